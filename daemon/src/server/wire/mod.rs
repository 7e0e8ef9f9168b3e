//! One generation's live connection to an MCP server: what the rest of the daemon may ask of it.
//!
//! Owner: the task in [`task`], one per generation; plain maps, no lock. Nothing here restarts
//! anything. Promise: each accepted request gets exactly one outcome; when the task ends, all
//! pending requests fail with [`WireError::Gone`] before it returns; output of this generation can
//! complete no request of another. May touch: the pipes or the HTTP connection it was given. May not touch: processes,
//! config, the catalogue.

mod core;
mod error;
pub mod inbound;
mod lines;
mod modern;
pub mod pending;
pub mod questions;
pub mod remote;
pub mod task;
#[cfg(test)]
mod tests;

pub use error::{Delivery, HttpRefusal, HttpSeen, WireError};

use super::turns::Pass;
use crate::jsonrpc::era::Era;
use crate::names::Generation;
use questions::{BACKLOG, Front, Question};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

/// Progress messages a caller may be behind before further ones are dropped.
const PROGRESS_BACKLOG: usize = 64;

/// One request to a server.
#[derive(Debug)]
pub struct Request {
    /// MCP method.
    pub method: Cow<'static, str>,
    /// Its parameters; an object. The wire adds its own `_meta.progressToken`.
    pub params: Option<Box<RawValue>>,
    /// Longest silence before the answer; progress starts it again.
    pub idle: Duration,
    /// Longest wait whatever progress says.
    pub cap: Duration,
    /// Whether the caller reads progress.
    pub progress: Progress,
}

/// Whether a caller reads progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Progress is yielded by [`InFlight::next`].
    Wanted,
    /// Progress only extends the idle limit.
    Unwanted,
}

/// What a server answered.
#[derive(Debug)]
pub enum Answer {
    /// The `result` member, raw.
    Result(Box<RawValue>),
    /// The `error` member, raw, with a usable code and message.
    Error(Box<RawValue>),
}

/// Something a server said on its own.
#[derive(Debug)]
pub enum Fact {
    /// `notifications/tools/list_changed`.
    ToolsChanged,
    /// `notifications/resources/list_changed`.
    ResourcesChanged,
    /// `notifications/prompts/list_changed`.
    PromptsChanged,
    /// `notifications/resources/updated`: its params.
    ResourceUpdated(Box<RawValue>),
    /// `notifications/message`: its params.
    Log(Box<RawValue>),
    /// A request that only a client could answer was declined: its method.
    Declined(Box<str>),
    /// A remote server had forgotten the session and another one was begun: subscriptions and log
    /// levels are gone, lists may be others.
    SessionRenewed,
    /// The server said more than could be passed on: lists and followed resources may have changed.
    Missed,
}

/// Counters of one generation, readable while it runs.
#[derive(Debug, Default)]
pub struct WireStats {
    /// Lines on stdout that were no JSON-RPC.
    pub noise_lines: AtomicU64,
    /// Lines over the limit.
    pub oversized_lines: AtomicU64,
    /// Answers to no open request, second answers, progress for no open call.
    pub stray_messages: AtomicU64,
    /// Facts dropped because the supervisor was behind.
    pub dropped_facts: AtomicU64,
    /// Those among them that were no log lines, since somebody looked.
    pub dropped_news: AtomicU64,
    /// Requests without an outcome yet.
    pub in_flight: AtomicU32,
    /// Questions of the server without an answer yet.
    pub asking: AtomicU32,
    /// Kind and sample of the last noise.
    pub noise: Mutex<Option<inbound::Noise>>,
    /// The last HTTP answer of a remote server that was no success.
    pub http: Mutex<Option<HttpSeen>>,
    last_heard: Mutex<Option<Instant>>,
}

impl WireStats {
    /// The last HTTP answer that was no success.
    pub fn last_http(&self) -> Option<HttpSeen> {
        self.http.lock().expect("nothing panics while holding it").clone()
    }

    /// When the server last sent a JSON-RPC message.
    pub fn last_heard(&self) -> Option<Instant> {
        *self.last_heard.lock().expect("nothing panics while holding it")
    }

    fn heard(&self, now: Instant) {
        *self.last_heard.lock().expect("nothing panics while holding it") = Some(now);
    }
}

/// Bounds of one connection.
#[derive(Debug, Clone)]
pub struct WireLimits {
    /// Longest line in bytes. Default 32 MiB.
    pub max_line: usize,
    /// Orders that may wait for the task. Default 256.
    pub orders: usize,
    /// Bytes that may wait for the server to read. Default 64 MiB.
    pub out_bytes: usize,
    /// The value of the instance's `roots/list` answer, a JSON array. Default `[]`.
    pub roots: Arc<str>,
    /// Whom questions are about that came with no call.
    pub front: Front,
}

impl Default for WireLimits {
    fn default() -> Self {
        Self {
            max_line: hermes_proto::shim::framing::DEFAULT_MAX_LINE,
            orders: 256,
            out_bytes: 64 * 1024 * 1024,
            roots: Arc::from("[]"),
            front: Front::default(),
        }
    }
}

/// Why a generation's connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndReason {
    /// stdout was closed by the server and all that could hold it.
    Eof,
    /// Reading or writing failed.
    Io(String),
    /// The supervisor said so.
    Stopped,
    /// A remote server wants a login; what a person can do.
    NeedsAuth(String),
}

enum Order {
    Request {
        request: Request,
        hole: Option<usize>,
        done: oneshot::Sender<Result<Answer, WireError>>,
        events: Option<mpsc::Sender<Box<RawValue>>>,
        asks: Option<mpsc::Sender<Question>>,
        keep: Option<Pass>,
    },
    Notify {
        method: &'static str,
        params: Option<Box<RawValue>>,
    },
    Cancel {
        reason: String,
    },
    /// What the handshake agreed on, or is about to try.
    Agreed {
        revision: &'static str,
        era: Era,
    },
}

/// The task's ends of what a handle holds.
struct Ends {
    orders: mpsc::Receiver<Order>,
    gone: Arc<Notify>,
    stats: Arc<WireStats>,
}

/// What the daemon holds to talk to one generation.
#[derive(Debug, Clone)]
pub struct WireHandle {
    orders: mpsc::Sender<Order>,
    gone: Arc<Notify>,
    stats: Arc<WireStats>,
    generation: Generation,
    queue_limit: usize,
    carrier: Carrier,
}

/// What carries the messages of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// The pipes of a child.
    Pipes,
    /// HTTP.
    Http,
}

impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Request { .. } => "Request",
            Self::Notify { .. } => "Notify",
            Self::Cancel { .. } => "Cancel",
            Self::Agreed { .. } => "Agreed",
        })
    }
}

impl WireHandle {
    fn new(generation: Generation, queue_limit: usize, carrier: Carrier) -> (Self, Ends) {
        let (sender, orders) = mpsc::channel(queue_limit);
        let gone = Arc::new(Notify::new());
        let stats = Arc::new(WireStats::default());
        let handle = Self {
            orders: sender,
            gone: gone.clone(),
            stats: stats.clone(),
            generation,
            queue_limit,
            carrier,
        };
        (handle, Ends { orders, gone, stats })
    }

    /// Tells the connection what the handshake agreed on; what is sent from now on says so.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn agreed(&self, revision: &'static str, era: Era) -> Result<(), WireError> {
        self.send(Order::Agreed { revision, era })
    }

    /// What carries the messages.
    pub fn carrier(&self) -> Carrier {
        self.carrier
    }

    /// Hands one request to the server.
    ///
    /// # Errors
    /// [`WireError::QueueFull`] and [`WireError::Gone`] with [`Delivery::NotWritten`]: nothing was sent.
    pub fn request(&self, request: Request) -> Result<InFlight, WireError> {
        self.ask(request, None, None, None)
    }

    /// As [`request`](Self::request), for a client's call: what the server asks on its answer stream is
    /// yielded as [`CallEvent::Asked`]. Where the params hold `_meta.progressToken` already, the one byte
    /// at `hole`, a digit, is replaced by the wire's own token. Saves reading large params again. `keep` is
    /// dropped when the server has answered, also after the caller gave up, or when the connection ends.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn call(
        &self,
        request: Request,
        hole: Option<usize>,
        keep: Option<Pass>,
    ) -> Result<InFlight, WireError> {
        // On pipes nothing says to which request a question belongs.
        let asks = match self.carrier {
            Carrier::Http => Some(mpsc::channel(BACKLOG)),
            Carrier::Pipes => None,
        };
        self.ask(request, hole, asks, keep)
    }

    fn ask(
        &self,
        request: Request,
        hole: Option<usize>,
        asks: Option<(mpsc::Sender<Question>, mpsc::Receiver<Question>)>,
        keep: Option<Pass>,
    ) -> Result<InFlight, WireError> {
        let (done, outcome) = oneshot::channel();
        let (events, progress) = match request.progress {
            Progress::Wanted => {
                let (events, progress) = mpsc::channel(PROGRESS_BACKLOG);
                (Some(events), Some(progress))
            }
            Progress::Unwanted => (None, None),
        };
        let (asks, asked) = asks.unzip();
        self.send(Order::Request { request, hole, done, events, asks, keep })?;
        let (orders, gone) = (self.orders.clone(), self.gone.clone());
        Ok(InFlight { outcome, progress, asked, held: None, orders, gone, finished: false })
    }

    /// Sends one notification.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn notify(&self, method: &'static str, params: Option<Box<RawValue>>) -> Result<(), WireError> {
        self.send(Order::Notify { method, params })
    }

    fn send(&self, order: Order) -> Result<(), WireError> {
        self.orders.try_send(order).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                WireError::QueueFull { waiting: self.queue_limit, limit: self.queue_limit, unit: "requests" }
            }
            mpsc::error::TrySendError::Closed(_) => WireError::Gone { delivery: Delivery::NotWritten },
        })
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.orders.is_closed()
    }

    /// Returns once the connection has ended.
    pub async fn closed(&self) {
        self.orders.closed().await;
    }

    /// The counters.
    pub fn stats(&self) -> &Arc<WireStats> {
        &self.stats
    }

    /// Which spawn this talks to.
    pub fn generation(&self) -> Generation {
        self.generation
    }
}

/// What happens to a request.
#[derive(Debug)]
pub enum CallEvent {
    /// `params` of a `notifications/progress` with a value higher than before.
    Progress(Box<RawValue>),
    /// The server asks something of the client that made this call, and waits.
    Asked(Question),
    /// The outcome; nothing follows.
    Done(Result<Answer, WireError>),
}

/// One request under way. Dropping it cancels the request at the server.
#[derive(Debug)]
pub struct InFlight {
    outcome: oneshot::Receiver<Result<Answer, WireError>>,
    progress: Option<mpsc::Receiver<Box<RawValue>>>,
    asked: Option<mpsc::Receiver<Question>>,
    held: Option<Result<Answer, WireError>>,
    orders: mpsc::Sender<Order>,
    gone: Arc<Notify>,
    finished: bool,
}

impl InFlight {
    /// The next thing that happened; all progress before the outcome.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost. After [`CallEvent::Done`] it must not be called again.
    pub async fn next(&mut self) -> CallEvent {
        if self.held.is_none() {
            let outcome = tokio::select! {
                biased;
                Some(progress) = heard(&mut self.progress) => return CallEvent::Progress(progress),
                Some(question) = heard(&mut self.asked) => return CallEvent::Asked(question),
                outcome = &mut self.outcome => outcome,
            };
            self.held = Some(outcome.unwrap_or(Err(WireError::Gone { delivery: Delivery::MaybeWritten })));
        }
        // The wire queues progress before the outcome, and clients must see that order.
        if let Some(progress) = self.progress.as_mut().and_then(|progress| progress.try_recv().ok()) {
            return CallEvent::Progress(progress);
        }
        self.finished = true;
        CallEvent::Done(self.held.take().expect("set above"))
    }

    /// The outcome, progress left aside.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request.
    pub async fn done(mut self) -> Result<Answer, WireError> {
        loop {
            if let CallEvent::Done(outcome) = self.next().await {
                return outcome;
            }
        }
    }

    /// Cancels the request at the server with a reason (MCP 2025-11-25, Cancellation). A late
    /// answer is dropped.
    pub fn cancel(mut self, reason: &str) {
        self.outcome.close();
        // A full queue is no loss: the drop below makes the wire look, only the reason is generic then.
        let _ = self.orders.try_send(Order::Cancel { reason: reason.to_owned() });
    }
}

async fn heard<T>(from: &mut Option<mpsc::Receiver<T>>) -> Option<T> {
    match from {
        Some(from) => from.recv().await,
        None => None,
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if !self.finished {
            self.outcome.close();
            // Only a wake-up: the wire finds the closed receiver itself and sends the cancellation.
            self.gone.notify_one();
        }
    }
}

impl WireStats {
    fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
