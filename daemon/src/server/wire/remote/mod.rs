//! The task that owns one generation's connection to a remote server.
//!
//! One loop, never blocking. Each request is an exchange of its own; what they hear comes back
//! through one queue, so order is kept: everything that a server says before an answer is handled
//! before it. Promise, besides the wire's: while a session is opened, or opened anew, nothing else is
//! sent; a request is repeated only when the server proved that it was not executed. May touch: its
//! HTTP connection.

mod ended;
mod flight;
mod session;
pub(super) mod wishes;

use super::core::Core;
use super::inbound::Inbound;
use super::pending::{NewEntry, Over};
use super::questions::Settled;
use super::{
    Answer, Carrier, Delivery, EndReason, Ends, Fact, Order, Request, WireError, WireHandle, WireLimits,
};
use crate::config::RemoteKind;
use crate::jsonrpc::era::Era;
use crate::jsonrpc::splice::ObjectWriter;
use crate::names::Generation;
use crate::server::transport::http::exchange::{Ended, Heard};
use crate::server::transport::http::link::Link;
use crate::server::transport::http::listen::{self, Opened};
use crate::server::transport::http::sse::{self, StreamEnd};
use crate::tasks::TaskGroup;
use flight::{Flights, Mode, Open, Ticket};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use reqwest::header::HeaderMap;
use session::{Gate, Renewed, Session};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wishes::{Listening, Wish};

/// Messages heard that may wait for the task; exchanges wait when it is full.
const HEARD: usize = 64;

/// Orders taken in one round.
const ORDERS_A_ROUND: usize = 64;

/// A timer that is armed for never.
const NEVER: Duration = Duration::from_secs(30 * 24 * 3600);

/// How a remote server is to be spoken to.
pub struct Remote {
    pub(crate) link: Arc<Link>,
    /// As configured, or as it was learned.
    pub(crate) kind: RemoteKind,
    /// Told once it is certain which of the two transports the server has.
    pub(crate) learned: Box<dyn Fn(RemoteKind) + Send + Sync>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("link", &self.link).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// The connection of one generation; see the module documentation.
pub struct RemoteWire {
    remote: Remote,
    core: Core,
    orders: mpsc::Receiver<Order>,
    gone: Arc<Notify>,
    stop: CancellationToken,
    heard: mpsc::Receiver<Heard>,
    heard_in: mpsc::Sender<Heard>,
    flights: Flights,
    open: HashMap<u64, Open>,
    /// Requests that wait for the gate, in their order.
    held: Vec<u64>,
    /// Bytes of all open requests.
    bytes: usize,
    mode: Mode,
    gate: Gate,
    session: Session,
    renewal: Option<BoxFuture<'static, Result<Renewed, EndReason>>>,
    /// What the server says on its own.
    listening: Listening,
    /// The one stream of a legacy server.
    stream: Option<BoxFuture<'static, StreamEnd>>,
    /// Why the connection ends as soon as nothing is open.
    ending: Option<EndReason>,
}

/// What makes one round of the loop.
enum Wake {
    Stop,
    Heard(Heard),
    Ended(Ticket, Ended),
    Settled(Settled),
    Renewed(Result<Renewed, EndReason>),
    StreamEnded(StreamEnd),
    Order(Option<Order>),
    Gone,
    Timer,
}

impl RemoteWire {
    /// Starts the task of one generation. Cancelling `stop` ends it: everything pending fails, the
    /// session is closed at the server within 2 s, and the task returns.
    pub fn start(
        generation: Generation,
        remote: Remote,
        facts: mpsc::Sender<Fact>,
        limits: WireLimits,
        stop: CancellationToken,
        tasks: &TaskGroup,
    ) -> (WireHandle, JoinHandle<EndReason>) {
        let (handle, Ends { orders, gone, stats }) =
            WireHandle::new(generation, limits.orders, Carrier::Http);
        let (heard_in, heard) = mpsc::channel(HEARD);
        let mode = if remote.kind == RemoteKind::Sse { Mode::legacy(None) } else { Mode::Streamable };
        let wire = Self {
            remote,
            core: Core::new(facts, stats, limits),
            orders,
            gone,
            stop,
            heard,
            heard_in,
            flights: Flights::default(),
            open: HashMap::new(),
            held: Vec::new(),
            bytes: 0,
            mode,
            gate: Gate::Open,
            session: Session::default(),
            renewal: None,
            listening: Listening::default(),
            stream: None,
            ending: None,
        };
        (handle, tasks.spawn(wire.run()))
    }

    async fn run(mut self) -> EndReason {
        let timer = tokio::time::sleep(NEVER);
        tokio::pin!(timer);
        let mut armed: Option<Instant> = None;
        let mut looked = None;
        if matches!(self.mode, Mode::Legacy { .. }) {
            self.open_stream();
        }
        let reason = loop {
            if self.core.pending.check_at() != armed {
                armed = self.core.pending.check_at();
                timer.as_mut().reset(armed.unwrap_or_else(|| Instant::now() + NEVER));
            }
            let wake = tokio::select! {
                biased; // stop wins over work, or a busy server could never be stopped
                () = self.stop.cancelled() => Wake::Stop,
                Some(heard) = self.heard.recv() => Wake::Heard(heard),
                Some((ticket, ended)) = self.flights.next(), if !self.flights.is_empty() => Wake::Ended(ticket, ended),
                Some(settled) = self.core.questions.next(), if !self.core.questions.is_empty() => Wake::Settled(settled),
                renewed = maybe(&mut self.renewal) => Wake::Renewed(renewed),
                end = maybe(&mut self.stream) => Wake::StreamEnded(end),
                order = self.orders.recv() => Wake::Order(order),
                () = self.gone.notified() => Wake::Gone,
                () = timer.as_mut() => Wake::Timer,
                never = self.listening.run() => match never {},
            };
            if matches!(wake, Wake::Timer) && looked != armed {
                // A process that was stopped wakes with its timers before it hears of its sockets: only
                // what is silent after a look is late.
                looked = armed.take();
                tokio::task::yield_now().await;
                continue;
            }
            if let Some(reason) = self.round(wake) {
                break reason;
            }
        };
        self.finish(&reason).await;
        reason
    }

    /// One round: what woke the task, then whatever else is there, so that no source starves another.
    fn round(&mut self, wake: Wake) -> Option<EndReason> {
        match wake {
            Wake::Stop => return Some(EndReason::Stopped),
            Wake::Heard(heard) => self.hear(heard),
            Wake::Ended(ticket, ended) => {
                // What the exchange heard comes before how it ended.
                while let Ok(heard) = self.heard.try_recv() {
                    self.hear(heard);
                }
                self.ended(ticket, ended);
            }
            Wake::Settled(settled) => {
                if let Some(line) = self.core.settled(settled) {
                    self.reply(line);
                }
            }
            Wake::Renewed(renewed) => {
                self.renewal = None;
                match renewed {
                    Ok(renewed) => self.renewed(renewed),
                    Err(reason) => return Some(reason),
                }
            }
            Wake::StreamEnded(end) => {
                self.stream = None;
                while let Ok(heard) = self.heard.try_recv() {
                    self.hear(heard);
                }
                return Some(self.stream_ended(end));
            }
            Wake::Order(Some(order)) => self.order(order),
            // Every handle is gone: nobody can ask anything any more.
            Wake::Order(None) => return Some(EndReason::Stopped),
            Wake::Gone => self.sweep(),
            Wake::Timer => self.expire(),
        }
        for _ in 0..ORDERS_A_ROUND {
            match self.orders.try_recv() {
                Ok(order) => self.order(order),
                Err(_) => break,
            }
        }
        self.core.count_open();
        if self.core.pending.is_empty() { self.ending.take() } else { None }
    }

    fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Session(id) => self.session.opened(id),
            Heard::Message { from, message } => {
                self.learn(from, &message);
                let answers = match &message {
                    Inbound::Answer { id, .. } if *id != from => *id,
                    _ => None,
                };
                if let Some(reply) = self.core.message(from, message) {
                    self.reply(reply);
                }
                // Its own exchange may still be taking the acceptance.
                if let Some(open) = answers.and_then(|id| self.open.remove(&id)) {
                    self.bytes -= open.line.len();
                }
            }
            Heard::TooLong { from, bytes } => self.core.too_long(from, bytes),
            Heard::Endpoint(url) => {
                self.mode.endpoint(url);
                (self.remote.learned)(RemoteKind::Sse);
                self.release();
            }
        }
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::Request { request, hole, done, events, asks, keep } => {
                if done.is_closed() {
                    return; // its caller went before anything was written
                }
                if self.bytes > self.core.limits.out_bytes {
                    let (waiting, limit) = (self.bytes, self.core.limits.out_bytes);
                    let _ = done.send(Err(WireError::QueueFull { waiting, limit, unit: "bytes" }));
                    return;
                }
                let Request { method, params, idle, cap, progress: _ } = request;
                if self.session.era() == Era::PerRequest
                    && let Some(wish) = self.session.wishes.take(&method, params.as_deref())
                {
                    if wish == Wish::Stream {
                        let stream = self.stream_of_news();
                        self.listening.replace(stream);
                    }
                    let _ = done.send(Ok(Answer::Result(ObjectWriter::default().finish())));
                    return;
                }
                let cancellable = method != "initialize";
                let entry = NewEntry { done, events, asks, keep, idle, cap, cancellable };
                let id = self.core.pending.insert(entry, Instant::now());
                self.accept(id, method, params, hole);
            }
            Order::Notify { method, params } => self.notify(method, params.as_deref()),
            Order::Cancel { reason } => {
                for id in self.core.pending.abandoned() {
                    self.give_up(id, &Over::Abandoned, &reason);
                }
            }
            Order::Agreed { revision, era } => self.session.agreed(revision, era),
        }
    }

    fn sweep(&mut self) {
        for id in self.core.pending.abandoned() {
            self.give_up(id, &Over::Abandoned, Over::Abandoned.reason());
        }
    }

    fn expire(&mut self) {
        for (id, over) in self.core.pending.expire(Instant::now()) {
            self.give_up(id, &over, over.reason());
        }
    }

    /// Ends a request here and, if the server may know of it, there.
    fn give_up(&mut self, id: u64, over: &Over, reason: &str) {
        let unwritten = self.is_unwritten(id);
        let delivery = if unwritten { Delivery::NotWritten } else { Delivery::MaybeWritten };
        let cancellable = self.core.pending.end(id, over, delivery, Instant::now());
        // Its connection closes with it; from 2026-07-28 on that is the cancellation.
        self.forget(id);
        self.core.pending.forgive(id);
        if !unwritten && cancellable && self.session.is_told_of_cancellations() {
            self.notify("notifications/cancelled", Some(&super::lines::cancelled(id, reason)));
        }
    }

    fn is_unwritten(&self, id: u64) -> bool {
        self.open.get(&id).is_none_or(|open| !open.written.is_set())
    }

    /// Drops whatever there is of a request.
    fn forget(&mut self, id: u64) {
        if let Some(open) = self.open.remove(&id) {
            self.bytes -= open.line.len();
            open.abort();
            self.held.retain(|held| *held != id);
        }
    }

    fn open_stream(&mut self) {
        let stream = sse::stream(self.remote.link.clone(), self.heard_in.clone());
        self.stream = Some(Box::pin(stream));
    }

    fn listen(&mut self) {
        let stream = self.stream_of_news();
        self.listening.set(stream);
    }

    fn stream_of_news(&self) -> Option<(BoxFuture<'static, ()>, Opened)> {
        if matches!(self.mode, Mode::Legacy { .. }) {
            return None;
        }
        let (ask, opened) = (self.news()?, Opened::default());
        let (link, heard) = (self.remote.link.clone(), self.heard_in.clone());
        Some((Box::pin(listen::listen(link, ask, heard, opened.clone())), opened))
    }

    /// Fails what is open, then closes the session at the server.
    async fn finish(mut self, reason: &EndReason) {
        self.orders.close();
        while let Ok(order) = self.orders.try_recv() {
            if let Order::Request { done, .. } = order {
                let _ = done.send(Err(WireError::Gone { delivery: Delivery::NotWritten }));
            }
        }
        let open = std::mem::take(&mut self.open);
        self.core.pending.fail_all(|id| open.get(&id).is_none_or(|open| !open.written.is_set()));
        self.core.count_open();
        self.flights = Flights::default();
        (self.stream, self.renewal) = (None, None);
        self.listening.set(None);
        let headers: HeaderMap = self.session.headers();
        match (&self.mode, reason) {
            (Mode::Streamable, EndReason::Stopped) if self.session.has_id() => {
                session::close(&self.remote.link, headers).await;
            }
            _ => {}
        }
    }
}

async fn maybe<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
