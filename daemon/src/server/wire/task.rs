//! The task that owns one generation's pipes.
//!
//! One loop, never blocking: it reads what is there, takes waiting orders, writes what the pipe
//! takes. Reading never waits on writing, so a server that writes a large result while it is sent
//! a large request cannot lock both sides up. Lines over [`LARGE_LINE`] are parsed on the blocking
//! pool, in their order.

use super::inbound::{self, Body, Inbound};
use super::lines::{line_with_hole, request_line};
use super::pending::{NewEntry, Over, Pending};
use super::{
    Answer, Delivery, EndReason, Fact, Order, Request, WireError, WireHandle, WireLimits, WireStats,
};
use crate::jsonrpc::outbound::Outbound;
use crate::jsonrpc::splice::{self, Members, ObjectWriter};
use crate::names::Generation;
use crate::tasks::TaskGroup;
use hermes_proto::shim::envelope;
use hermes_proto::shim::framing::{Line, LineBuffer};
use serde_json::value::RawValue;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::unix::pipe;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Lines over this many bytes are parsed on the blocking pool.
pub const LARGE_LINE: usize = 256 * 1024;

/// Replies to a server's own requests are dropped while more than this waits to be read by it.
const REPLY_BACKLOG: usize = 1024 * 1024;

/// Orders taken in one round.
const ORDERS_A_ROUND: usize = 64;

/// Reads after the end was decided; what a pipe can hold is far less.
const LAST_READS: usize = 1024;

/// A timer that is armed for never.
const NEVER: Duration = Duration::from_secs(30 * 24 * 3600);

/// The connection of one generation; see the module documentation.
#[derive(Debug)]
pub struct Wire {
    stdin: Option<pipe::Sender>,
    stdout: pipe::Receiver,
    orders: mpsc::Receiver<Order>,
    gone: Arc<Notify>,
    facts: mpsc::Sender<Fact>,
    stop: CancellationToken,
    stats: Arc<WireStats>,
    limits: WireLimits,
    lines: LineBuffer,
    out: Outbound,
    pending: Pending,
    parsing: Option<JoinHandle<Option<Inbound>>>,
}

/// What makes one round of the loop.
enum Wake {
    Stop,
    Readable(io::Result<()>),
    Parsed(Option<Inbound>),
    Order(Option<Order>),
    Writable(io::Result<()>),
    Gone,
    Timer,
}

impl Wire {
    /// Starts the task of one generation on these pipes.
    ///
    /// Cancelling `stop` ends it: what the server wrote before is still read, then everything
    /// pending fails and the task returns. Dropping stdin (the first rung of the stop ladder)
    /// happens then too.
    pub fn start(
        generation: Generation,
        pipes: (pipe::Sender, pipe::Receiver),
        facts: mpsc::Sender<Fact>,
        limits: WireLimits,
        stop: CancellationToken,
        tasks: &TaskGroup,
    ) -> (WireHandle, JoinHandle<EndReason>) {
        let (sender, orders) = mpsc::channel(limits.orders);
        let gone = Arc::new(Notify::new());
        let stats = Arc::new(WireStats::default());
        let handle = WireHandle {
            orders: sender,
            gone: gone.clone(),
            stats: stats.clone(),
            generation,
            queue_limit: limits.orders,
        };
        let wire = Self {
            stdin: Some(pipes.0),
            stdout: pipes.1,
            orders,
            gone,
            facts,
            stop,
            stats,
            lines: LineBuffer::new(limits.max_line),
            limits,
            out: Outbound::default(),
            pending: Pending::default(),
            parsing: None,
        };
        (handle, tasks.spawn(wire.run()))
    }

    async fn run(mut self) -> EndReason {
        let timer = tokio::time::sleep(NEVER);
        tokio::pin!(timer);
        let mut armed: Option<Instant> = None;
        let mut looked = None;
        let reason = loop {
            if self.pending.check_at() != armed {
                armed = self.pending.check_at();
                timer.as_mut().reset(armed.unwrap_or_else(|| Instant::now() + NEVER));
            }
            let wake = tokio::select! {
                biased; // stop wins over work, or a busy server could never be stopped
                () = self.stop.cancelled() => Wake::Stop,
                parsed = wait_for(&mut self.parsing), if self.parsing.is_some() => Wake::Parsed(parsed),
                ready = self.stdout.readable(), if self.parsing.is_none() => Wake::Readable(ready),
                order = self.orders.recv() => Wake::Order(order),
                ready = writable(&self.stdin), if !self.out.is_empty() => Wake::Writable(ready),
                () = self.gone.notified() => Wake::Gone,
                () = timer.as_mut() => Wake::Timer,
            };
            if matches!(wake, Wake::Timer) && looked != armed {
                // A process that was stopped wakes with its timers before it hears of its pipes: the
                // answer may have been there for long. Only what is silent after a look is late.
                looked = armed.take();
                tokio::task::yield_now().await;
                continue;
            }
            if let Some(reason) = self.round(wake) {
                break reason;
            }
        };
        self.finish().await;
        reason
    }

    /// One round: what woke the task, then whatever else is there, so that no source starves another.
    fn round(&mut self, wake: Wake) -> Option<EndReason> {
        match wake {
            Wake::Stop => return Some(EndReason::Stopped),
            Wake::Readable(Err(error)) | Wake::Writable(Err(error)) => {
                return Some(EndReason::Io(error.to_string()));
            }
            Wake::Readable(Ok(())) => {
                if let Some(reason) = self.read() {
                    return Some(reason);
                }
            }
            Wake::Parsed(message) => {
                self.parsing = None;
                if let Some(message) = message {
                    self.message(message);
                }
                self.take_lines();
            }
            Wake::Order(Some(order)) => self.order(order),
            // Every handle is gone: nobody can ask anything any more.
            Wake::Order(None) => return Some(EndReason::Stopped),
            Wake::Writable(Ok(())) => {}
            Wake::Gone => self.sweep(),
            Wake::Timer => self.expire(),
        }
        for _ in 0..ORDERS_A_ROUND {
            match self.orders.try_recv() {
                Ok(order) => self.order(order),
                Err(_) => break,
            }
        }
        self.stats.in_flight.store(u32::try_from(self.pending.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
        self.flush().err().map(|error| EndReason::Io(error.to_string()))
    }

    fn read(&mut self) -> Option<EndReason> {
        match self.stdout.try_read(self.lines.room()) {
            Ok(0) => {
                // A last line without a newline may still be a whole answer.
                let rest = self.lines.rest().to_vec();
                if !rest.is_empty() {
                    self.line(&rest);
                }
                Some(EndReason::Eof)
            }
            Ok(n) => {
                self.lines.filled(n);
                self.take_lines();
                None
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                None
            }
            Err(error) => Some(EndReason::Io(error.to_string())),
        }
    }

    fn take_lines(&mut self) {
        let mut lines = std::mem::replace(&mut self.lines, LineBuffer::new(0));
        while self.parsing.is_none() {
            match lines.next_line() {
                None => break,
                Some(Line::Oversized { bytes, head }) => {
                    let id = envelope::id_in(head).and_then(|id| id.parse().ok());
                    self.too_long(id, bytes);
                }
                Some(Line::Full(line)) if line.len() > LARGE_LINE => {
                    let line = line.to_vec();
                    self.parsing = Some(tokio::task::spawn_blocking(move || inbound::read(&line)));
                }
                Some(Line::Full(line)) => self.line(line),
            }
        }
        self.lines = lines;
    }

    /// An answer over the limit fails its request at once: waiting for the timeout would say the wrong
    /// thing about a call that was executed.
    fn too_long(&mut self, id: Option<u64>, bytes: usize) {
        WireStats::count(&self.stats.oversized_lines);
        let limit = self.limits.max_line;
        tracing::warn!(bytes, limit, "a line of a server is too long and was skipped");
        if let Some(id) = id {
            self.pending.finish(id, Err(WireError::TooLong { bytes, limit }));
        }
    }

    fn line(&mut self, line: &[u8]) {
        if let Some(message) = inbound::read(line) {
            self.message(message);
        }
    }

    fn message(&mut self, message: Inbound) {
        if !matches!(message, Inbound::Noise(_)) {
            self.stats.heard(Instant::now());
        }
        match message {
            Inbound::Answer { id, null_id, body } => self.answer(id, null_id, body),
            Inbound::Notification { method, params } => self.notification(&method, params),
            Inbound::Request { id, method } => self.asked(&id, &method),
            Inbound::Noise(noise) => {
                WireStats::count(&self.stats.noise_lines);
                *self.stats.noise.lock().expect("nothing panics while holding it") = Some(noise);
            }
        }
    }

    fn answer(&mut self, id: Option<u64>, null_id: bool, body: Body) {
        // JSON-RPC 2.0, section 5: an error with a null id answers a request that could not be read.
        // With one request open it can only be that one; with more nobody knows.
        let id = if null_id && matches!(body, Body::Error(_)) { self.pending.only() } else { id };
        let outcome = match body {
            Body::Result(result) => Ok(Answer::Result(result)),
            Body::Error(error) => Ok(Answer::Error(error)),
            Body::Neither => Err(WireError::Malformed),
        };
        if !id.is_some_and(|id| self.pending.finish(id, outcome)) {
            WireStats::count(&self.stats.stray_messages);
        }
    }

    fn notification(&mut self, method: &str, params: Option<Box<RawValue>>) {
        let fact = match (method, params) {
            ("notifications/progress", Some(params)) => return self.progress(&params),
            ("notifications/tools/list_changed", _) => Fact::ToolsChanged,
            ("notifications/resources/list_changed", _) => Fact::ResourcesChanged,
            ("notifications/prompts/list_changed", _) => Fact::PromptsChanged,
            ("notifications/resources/updated", Some(params)) => Fact::ResourceUpdated(params),
            ("notifications/message", Some(params)) => Fact::Log(params),
            // Unknown notifications are the server's affair (JSON-RPC 2.0, section 4.1).
            _ => return,
        };
        self.fact(fact);
    }

    fn progress(&mut self, params: &RawValue) {
        let now = Instant::now();
        let known = Members::parse(params).ok().and_then(|members| {
            let token = crate::jsonrpc::ids::own_number(members.get("progressToken")?)?;
            let value: f64 = members.get("progress")?.get().parse().ok()?;
            Some((token, value))
        });
        // Made-up tokens and progress after the answer must not reach a client: strict ones end the session.
        if !known.is_some_and(|(token, value)| self.pending.progress(token, value, params, now)) {
            WireStats::count(&self.stats.stray_messages);
        }
    }

    /// A request of the server. Answered from the instance, whatever clients there are; nothing is
    /// guessed and nothing broadcast.
    fn asked(&mut self, id: &RawValue, method: &str) {
        if self.out.bytes() > REPLY_BACKLOG {
            return;
        }
        let mut reply = ObjectWriter::with_capacity(128);
        reply.member("jsonrpc", "\"2.0\"").member("id", id.get());
        match method {
            "ping" => {
                reply.member("result", "{}");
            }
            "roots/list" => {
                reply.member("result", &format!("{{\"roots\":{}}}", self.limits.roots));
            }
            _ => {
                let mut error = ObjectWriter::default();
                error.member("code", "-32601").string("message", decline(method));
                reply.member("error", error.finish().get());
            }
        }
        self.out.push(None, reply.finish().get().as_bytes().to_vec());
        if matches!(method, "sampling/createMessage" | "elicitation/create") {
            self.fact(Fact::Declined(method.into()));
        }
    }

    fn fact(&mut self, fact: Fact) {
        if self.facts.try_send(fact).is_err() {
            WireStats::count(&self.stats.dropped_facts);
        }
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::Request { request, hole, done, events } => {
                if done.is_closed() {
                    return; // its caller went before anything was written
                }
                if self.out.bytes() > self.limits.out_bytes {
                    let (waiting, limit) = (self.out.bytes(), self.limits.out_bytes);
                    let _ = done.send(Err(WireError::QueueFull { waiting, limit, unit: "bytes" }));
                    return;
                }
                let Request { method, params, idle, cap, progress: _ } = request;
                let cancellable = method != "initialize";
                let entry = NewEntry { done, events, idle, cap, cancellable };
                let id = self.pending.insert(entry, Instant::now());
                let line = match (params, hole) {
                    (Some(params), Some(hole)) => line_with_hole(id, &method, &params, hole),
                    (params, _) => request_line(id, &method, params.as_deref(), cancellable),
                };
                self.out.push(Some(id), line);
            }
            Order::Notify { method, params } => self.notify(method, params.as_deref()),
            Order::Cancel { reason } => {
                for id in self.pending.abandoned() {
                    self.give_up(id, &Over::Abandoned, &reason);
                }
            }
        }
    }

    fn notify(&mut self, method: &str, params: Option<&RawValue>) {
        let mut line = ObjectWriter::with_capacity(96);
        line.member("jsonrpc", "\"2.0\"").string("method", method);
        if let Some(params) = params {
            line.member("params", &splice::one_line(params.get()));
        }
        self.out.push(None, line.finish().get().as_bytes().to_vec());
    }

    fn sweep(&mut self) {
        for id in self.pending.abandoned() {
            self.give_up(id, &Over::Abandoned, "the client went away or cancelled the request");
        }
    }

    fn expire(&mut self) {
        for (id, over) in self.pending.expire(Instant::now()) {
            let reason = match over {
                Over::Abandoned => "the client went away or cancelled the request",
                Over::Idle => "timed out: no answer and no progress",
                Over::Cap => "timed out: absolute limit reached",
            };
            self.give_up(id, &over, reason);
        }
    }

    /// Ends a request here and, if the server may know of it, there.
    fn give_up(&mut self, id: u64, over: &Over, reason: &str) {
        let unwritten = self.out.is_unwritten(id);
        let delivery = if unwritten { Delivery::NotWritten } else { Delivery::MaybeWritten };
        let cancellable = self.pending.end(id, over, delivery, Instant::now());
        if unwritten {
            self.out.take_back(id);
        } else if cancellable {
            let mut params = ObjectWriter::default();
            params.member("requestId", &id.to_string()).string("reason", reason);
            let params = params.finish();
            self.notify("notifications/cancelled", Some(&params));
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &self.stdin {
            Some(stdin) => self.out.flush(|slices| stdin.try_write_vectored(slices)),
            None => Ok(()),
        }
    }

    /// Reads what the server still wrote, fails the rest, closes the pipes.
    async fn finish(mut self) {
        self.stdin = None;
        // Bounded: a server that floods stdout must not keep the stop waiting.
        for _ in 0..LAST_READS {
            if let Some(parsing) = self.parsing.take() {
                if let Ok(Some(message)) = parsing.await {
                    self.message(message);
                }
                self.take_lines();
                continue;
            }
            match self.stdout.try_read(self.lines.room()) {
                Ok(n) if n > 0 => {
                    self.lines.filled(n);
                    self.take_lines();
                }
                _ => break,
            }
        }
        // Orders that came in the meantime were never written.
        self.orders.close();
        while let Ok(order) = self.orders.try_recv() {
            if let Order::Request { done, .. } = order {
                let _ = done.send(Err(WireError::Gone { delivery: Delivery::NotWritten }));
            }
        }
        let out = &self.out;
        self.pending.fail_all(|id| out.is_unwritten(id));
        self.stats.in_flight.store(0, Ordering::Relaxed);
    }
}

/// The reason a request of the server is declined with.
fn decline(method: &str) -> &'static str {
    match method {
        "sampling/createMessage" => {
            "hermesd shares this server between clients and cannot tell which one to ask for sampling"
        }
        "elicitation/create" => {
            "hermesd shares this server between clients and cannot tell which user to ask"
        }
        _ => "method not found: hermesd does not know this request",
    }
}

async fn writable(stdin: &Option<pipe::Sender>) -> io::Result<()> {
    match stdin {
        Some(stdin) => stdin.writable().await,
        None => std::future::pending().await,
    }
}

async fn wait_for(parsing: &mut Option<JoinHandle<Option<Inbound>>>) -> Option<Inbound> {
    match parsing {
        // A panic while parsing one line costs that line only.
        Some(handle) => handle.await.ok().flatten(),
        None => std::future::pending().await,
    }
}
