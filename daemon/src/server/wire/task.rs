//! The task that owns one generation's pipes.
//!
//! One loop, never blocking: it reads what is there, takes waiting orders, writes what the pipe
//! takes. Reading never waits on writing, so a server that writes a large result while it is sent
//! a large request cannot lock both sides up. Lines over [`LARGE_LINE`] are parsed on the blocking
//! pool, in their order.

use super::core::Core;
use super::inbound::{self, Inbound};
use super::lines::{cancelled, line_with_hole, notification_line, request_line};
use super::modern::Modern;
use super::pending::{NewEntry, Over};
use super::questions::Settled;
use super::{
    Answer, Carrier, Delivery, EndReason, Ends, Fact, Order, Request, WireError, WireHandle, WireLimits,
};
use crate::jsonrpc::era::Era;
use crate::jsonrpc::outbound::Outbound;
use crate::jsonrpc::splice::ObjectWriter;
use crate::names::Generation;
use crate::tasks::TaskGroup;
use hermes_proto::shim::envelope;
use hermes_proto::shim::framing::{Line, LineBuffer};
use serde_json::value::RawValue;
use std::io;
use std::sync::Arc;
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
    stop: CancellationToken,
    core: Core,
    lines: LineBuffer,
    out: Outbound,
    parsing: Option<JoinHandle<Option<Inbound>>>,
    /// Requests speak for themselves; `None`: a session was opened, or will be.
    modern: Option<Modern>,
}

/// What makes one round of the loop.
enum Wake {
    Stop,
    Readable(io::Result<()>),
    Parsed(Option<Inbound>),
    Settled(Settled),
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
        let (handle, Ends { orders, gone, stats }) =
            WireHandle::new(generation, limits.orders, Carrier::Pipes);
        let wire = Self {
            stdin: Some(pipes.0),
            stdout: pipes.1,
            orders,
            gone,
            stop,
            lines: LineBuffer::new(limits.max_line),
            core: Core::new(facts, stats, limits),
            out: Outbound::default(),
            parsing: None,
            modern: None,
        };
        (handle, tasks.spawn(wire.run()))
    }

    async fn run(mut self) -> EndReason {
        let timer = tokio::time::sleep(NEVER);
        tokio::pin!(timer);
        let mut armed: Option<Instant> = None;
        let mut looked = None;
        let reason = loop {
            if self.core.pending.check_at() != armed {
                armed = self.core.pending.check_at();
                timer.as_mut().reset(armed.unwrap_or_else(|| Instant::now() + NEVER));
            }
            let wake = tokio::select! {
                biased; // stop wins over work, or a busy server could never be stopped
                () = self.stop.cancelled() => Wake::Stop,
                parsed = wait_for(&mut self.parsing), if self.parsing.is_some() => Wake::Parsed(parsed),
                ready = self.stdout.readable(), if self.parsing.is_none() => Wake::Readable(ready),
                Some(settled) = self.core.questions.next(), if !self.core.questions.is_empty() => Wake::Settled(settled),
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
            Wake::Settled(settled) => {
                if let Some(line) = self.core.settled(settled) {
                    self.out.push(None, line);
                }
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
        self.core.count_open();
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
                    self.core.too_long(id, bytes);
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

    fn line(&mut self, line: &[u8]) {
        if let Some(message) = inbound::read(line) {
            self.message(message);
        }
    }

    fn message(&mut self, message: Inbound) {
        let said = self.modern.as_mut().map(|modern| modern.heard(&message)).unwrap_or_default();
        said.into_iter().for_each(|line| self.out.push(None, line));
        let reply = self.core.message(None, message);
        if let Some(reply) = reply.filter(|_| self.out.bytes() <= REPLY_BACKLOG) {
            self.out.push(None, reply);
        }
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::Request { request, hole, done, events, asks, keep } => {
                if done.is_closed() {
                    return; // its caller went before anything was written
                }
                if self.out.bytes() > self.core.limits.out_bytes {
                    let (waiting, limit) = (self.out.bytes(), self.core.limits.out_bytes);
                    let _ = done.send(Err(WireError::QueueFull { waiting, limit, unit: "bytes" }));
                    return;
                }
                let Request { method, params, idle, cap, progress: _ } = request;
                let wish = self.modern.as_mut().and_then(|modern| modern.wish(&method, params.as_deref()));
                if let Some(lines) = wish {
                    lines.into_iter().for_each(|line| self.out.push(None, line));
                    let _ = done.send(Ok(Answer::Result(ObjectWriter::default().finish())));
                    return;
                }
                let cancellable = method != "initialize";
                let entry = NewEntry { done, events, asks, keep, idle, cap, cancellable };
                let id = self.core.pending.insert(entry, Instant::now());
                let line = match (&mut self.modern, params, hole) {
                    (Some(modern), params, _) => modern.line(id, &method, params.as_deref()),
                    (None, Some(params), Some(hole)) => line_with_hole(id, &method, &params, hole),
                    (None, params, _) => request_line(id, &method, params.as_deref(), cancellable),
                };
                self.out.push(Some(id), line);
            }
            Order::Notify { method, params } => self.notify(method, params.as_deref()),
            Order::Agreed { revision, era } => {
                self.modern = (era == Era::PerRequest).then(|| Modern::new(revision));
            }
            Order::Cancel { reason } => {
                for id in self.core.pending.abandoned() {
                    self.give_up(id, &Over::Abandoned, &reason);
                }
            }
        }
    }

    fn notify(&mut self, method: &str, params: Option<&RawValue>) {
        self.out.push(None, notification_line(method, params));
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
        let unwritten = self.out.is_unwritten(id);
        let delivery = if unwritten { Delivery::NotWritten } else { Delivery::MaybeWritten };
        let cancellable = self.core.pending.end(id, over, delivery, Instant::now());
        if unwritten {
            self.out.take_back(id);
        } else if cancellable {
            self.notify("notifications/cancelled", Some(&cancelled(id, reason)));
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
        self.core.pending.fail_all(|id| out.is_unwritten(id));
        self.core.count_open();
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
