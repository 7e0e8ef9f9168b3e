//! Spans: what a call did when, on their way to an OTLP receiver.
//!
//! Owner of the queue: [`Tracer`], cheap to clone. Promise: without an exporter a span costs one atomic
//! read; nothing here waits; the queue is bounded, and what does not fit is dropped and counted. Spans
//! carry names and outcomes, never arguments or results. May not touch: the network, what is traced.

use super::ids;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Spans that wait for the exporter; further ones are dropped and counted.
pub const MAX_WAITING: usize = 4096;
/// Spans that are sent together.
pub const BATCH: usize = 512;
/// Bytes of a name or of one attribute's text; longer ones are cut.
const MAX_TEXT: usize = 256;
/// No exporter.
const OFF: u64 = u64::MAX;
/// The ratio 1 in the 63 bits of a trace id that decide.
const ALL: u64 = 1 << 63;

/// Which end of a request a span is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A request that came in.
    Server,
    /// A request that went out.
    Client,
    /// Something in between.
    Internal,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Text.
    Text(Cow<'static, str>),
    /// A whole number.
    Number(i64),
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

/// Where the first span of a request stands in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The trace; never 0.
    pub trace: u128,
    /// The span of the other side; `None`: the trace begins here.
    pub parent: Option<u64>,
    /// What the other side decided about sampling; `None`: it is ours to decide.
    pub sampled: Option<bool>,
}

/// A span that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// The trace.
    pub trace: u128,
    /// The span.
    pub id: u64,
    /// The span above; `None`: it is a root.
    pub parent: Option<u64>,
    /// Whether the span above is not ours.
    pub parent_is_remote: bool,
    /// Which end.
    pub kind: Kind,
    /// What it is about, few different ones.
    pub name: Cow<'static, str>,
    /// When it began.
    pub start: SystemTime,
    /// When it was over; never before `start`.
    pub end: SystemTime,
    /// What is known about it.
    pub attributes: Vec<(&'static str, Value)>,
    /// Why it failed; `None`: it did not.
    pub error: Option<Cow<'static, str>>,
}

/// What became of spans since the daemon started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Taken by the receiver.
    pub exported: u64,
    /// Not queued, because too many waited.
    pub dropped: u64,
    /// Given up, because the receiver did not take them.
    pub lost: u64,
    /// Not sent yet.
    pub waiting: u64,
}

/// Where spans go, and how that is going.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Status {
    /// `hermesd.otlp.endpoint`; empty: nowhere. May hold credentials.
    pub endpoint: String,
    /// `grpc` or `http/protobuf`.
    pub protocol: &'static str,
    /// Share of the traces begun here that are sent, 0 to 1.
    pub sample_ratio: f64,
    /// Why the receiver does not take them; `None`: it does, as far as is known. May hold credentials.
    pub trouble: Option<String>,
}

/// Makes spans and keeps those that are over until they are sent.
#[derive(Debug, Clone)]
pub struct Tracer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Trace ids whose low 63 bits are below this are sampled, or [`OFF`].
    threshold: AtomicU64,
    waiting: Mutex<VecDeque<Finished>>,
    /// A span waits where none did.
    some: Notify,
    /// A whole batch waits.
    full: Notify,
    exported: AtomicU64,
    dropped: AtomicU64,
    lost: AtomicU64,
    status: watch::Sender<Status>,
}

impl Default for Tracer {
    /// A tracer without an exporter: nothing is recorded.
    fn default() -> Self {
        let (status, _) = watch::channel(Status::default());
        Self {
            shared: Arc::new(Shared {
                threshold: AtomicU64::new(OFF),
                waiting: Mutex::default(),
                some: Notify::new(),
                full: Notify::new(),
                exported: AtomicU64::new(0),
                dropped: AtomicU64::new(0),
                lost: AtomicU64::new(0),
                status,
            }),
        }
    }
}

impl Tracer {
    /// Records this share of the traces that begin here, 0 to 1; `None`: nothing at all.
    pub fn sample(&self, ratio: Option<f64>) {
        // As the SDKs' samplers by trace id have it, so that services with the same ratio agree.
        let threshold = ratio.map_or(OFF, |ratio| ((ratio.clamp(0.0, 1.0) * ALL as f64) as u64).min(ALL));
        self.shared.threshold.store(threshold, Ordering::Relaxed);
    }

    /// Begins the first span of a request. The other side's decision wins over the ratio.
    pub fn begin(&self, origin: Origin, kind: Kind, name: impl FnOnce() -> Cow<'static, str>) -> Span {
        let threshold = self.shared.threshold.load(Ordering::Relaxed);
        if threshold == OFF {
            return Span::none();
        }
        let by_ratio = || (origin.trace as u64) & (ALL - 1) < threshold;
        if !origin.sampled.unwrap_or_else(by_ratio) {
            return Span { live: None, sampled: Some(false) };
        }
        Span::live(self.clone(), origin.trace, origin.parent, Parent::Remote, kind, name())
    }

    /// Up to [`BATCH`] spans, oldest first.
    pub fn take(&self) -> Vec<Finished> {
        let mut waiting = self.lock();
        let count = waiting.len().min(BATCH);
        waiting.drain(..count).collect()
    }

    /// Returns when a span waits.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn some(&self) {
        while self.lock().is_empty() {
            self.shared.some.notified().await;
        }
    }

    /// Returns when a whole batch waits.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn full(&self) {
        while self.lock().len() < BATCH {
            self.shared.full.notified().await;
        }
    }

    /// Counts spans that the receiver took.
    pub fn exported(&self, spans: usize) {
        self.shared.exported.fetch_add(spans as u64, Ordering::Relaxed);
    }

    /// Counts spans that were given up.
    pub fn lost(&self, spans: usize) {
        self.shared.lost.fetch_add(spans as u64, Ordering::Relaxed);
    }

    /// What became of spans so far.
    pub fn counts(&self) -> Counts {
        Counts {
            exported: self.shared.exported.load(Ordering::Relaxed),
            dropped: self.shared.dropped.load(Ordering::Relaxed),
            lost: self.shared.lost.load(Ordering::Relaxed),
            waiting: self.lock().len() as u64,
        }
    }

    /// Where spans go; written by the exporter.
    pub fn status(&self) -> &watch::Sender<Status> {
        &self.shared.status
    }

    fn push(&self, span: Finished) {
        let mut waiting = self.lock();
        if waiting.len() >= MAX_WAITING {
            drop(waiting);
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.push_back(span);
        let count = waiting.len();
        drop(waiting);
        if count == 1 {
            self.shared.some.notify_one();
        } else if count == BATCH {
            self.shared.full.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Finished>> {
        self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parent {
    Ours,
    Remote,
}

/// One span under way, or nothing where nobody records. Dropped before it was ended it counts as
/// cancelled: that is how calls end whose client took them back.
#[derive(Debug)]
pub struct Span {
    live: Option<Box<Live>>,
    /// `None`: there is no exporter.
    sampled: Option<bool>,
}

#[derive(Debug)]
struct Live {
    tracer: Tracer,
    began: Instant,
    span: Finished,
}

impl Span {
    /// A span that nobody records.
    pub fn none() -> Self {
        Self { live: None, sampled: None }
    }

    fn live(
        tracer: Tracer,
        trace: u128,
        parent: Option<u64>,
        of: Parent,
        kind: Kind,
        name: Cow<'static, str>,
    ) -> Self {
        let start = SystemTime::now();
        let span = Finished {
            trace,
            id: ids::next(),
            parent,
            parent_is_remote: parent.is_some() && of == Parent::Remote,
            kind,
            name: cut(name),
            start,
            end: start,
            attributes: Vec::with_capacity(8),
            error: None,
        };
        Self { live: Some(Box::new(Live { tracer, began: Instant::now(), span })), sampled: Some(true) }
    }

    /// Begins a span below this one.
    #[must_use]
    pub fn child(&self, kind: Kind, name: impl FnOnce() -> Cow<'static, str>) -> Self {
        match &self.live {
            None => Self { live: None, sampled: self.sampled },
            Some(live) => Self::live(
                live.tracer.clone(),
                live.span.trace,
                Some(live.span.id),
                Parent::Ours,
                kind,
                name(),
            ),
        }
    }

    /// Adds an attribute.
    pub fn set<V: Into<Value>>(&mut self, key: &'static str, value: impl FnOnce() -> V) {
        if let Some(live) = &mut self.live {
            let value = match value().into() {
                Value::Text(text) => Value::Text(cut(text)),
                number @ Value::Number(_) => number,
            };
            live.span.attributes.push((key, value));
        }
    }

    /// Its id; `None`: it is not recorded.
    pub fn id(&self) -> Option<u64> {
        self.live.as_ref().map(|live| live.span.id)
    }

    /// Whether it is recorded; `None`: there is no exporter, so nobody decided.
    pub fn sampled(&self) -> Option<bool> {
        self.sampled
    }

    /// It is over.
    pub fn end(mut self) {
        self.finish(None);
    }

    /// It is over and failed; `why` is one of few words.
    pub fn fail(mut self, why: impl Into<Cow<'static, str>>) {
        self.finish(Some(why.into()));
    }

    /// It is over as `outcome` says; `why` names an error.
    pub fn settle<T, E>(self, outcome: &Result<T, E>, why: impl FnOnce(&E) -> &'static str) {
        match outcome {
            Ok(_) => self.end(),
            Err(error) => self.fail(why(error)),
        }
    }

    fn finish(&mut self, error: Option<Cow<'static, str>>) {
        if let Some(live) = self.live.take() {
            let Live { tracer, began, mut span } = *live;
            // By the clock that never jumps.
            span.end = span.start + began.elapsed();
            span.error = error;
            tracer.push(span);
        }
    }
}

impl Drop for Span {
    /// A call may end by being dropped, and that must be seen too.
    fn drop(&mut self) {
        self.finish(Some(Cow::Borrowed("cancelled")));
    }
}

fn cut(text: Cow<'static, str>) -> Cow<'static, str> {
    if text.len() <= MAX_TEXT {
        return text;
    }
    Cow::Owned(text[..text.floor_char_boundary(MAX_TEXT)].to_owned())
}

#[cfg(test)]
#[path = "traces_tests.rs"]
mod tests;
