//! The living part of a server instance: its process and its connection, and how both end.
//!
//! Owner: the supervisor. Promise: `Ended` is said only after the launcher has proven that nothing
//! of the generation is left; the pipes are closed before the process is ended.

use super::launch::{Connection, Launched, Log, Process};
use super::lifecycle::{Drain, Event};
use super::status::ServerStatus;
use super::supervisor::{Job, Shared, Supervisor};
use super::wire::questions::Front;
use super::wire::remote::RemoteWire;
use super::wire::task::Wire;
use super::wire::{EndReason, Fact, WireHandle, WireLimits};
use crate::names::{Generation, ServerName};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::error;

/// Facts that may wait for the supervisor; the wire drops and counts further ones.
const FACT_BACKLOG: usize = 64;

/// Time between tries to end what outlived KILL.
const SURVIVOR_RETRY: Duration = Duration::from_secs(5);

/// Time between two looks at the requests that a drain waits for.
const DRAIN_LOOK: Duration = Duration::from_millis(10);

/// What it means when a server says nothing for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    /// It is asked whether it lives.
    Suspicious,
    /// Between requests there is no connection that could say anything; asking each minute would be
    /// noise for a server that many share.
    Normal,
}

/// A process and its connection.
pub(crate) struct Body {
    pub(crate) pid: Option<u32>,
    pub(crate) guard_pid: Option<u32>,
    pub(crate) process: Box<dyn Process>,
    pub(crate) wire: WireHandle,
    /// Taken once it has reported.
    pub(crate) ended: Option<JoinHandle<EndReason>>,
    pub(crate) facts: mpsc::Receiver<Fact>,
    pub(crate) silence: Silence,
    wire_stop: CancellationToken,
}

impl Body {
    /// Starts the connection on the pipes of `launched`.
    pub(crate) fn start(
        launched: Launched,
        generation: Generation,
        shared: &Shared,
        front: &Front,
    ) -> (Self, WireHandle) {
        let (facts_in, facts) = mpsc::channel(FACT_BACKLOG);
        let wire_stop = CancellationToken::new();
        let limits =
            WireLimits { roots: shared.roots.clone(), front: front.clone(), ..WireLimits::default() };
        let (stop, tasks) = (wire_stop.clone(), &shared.tasks);
        let (wire, ended, silence) = match launched.connection {
            Connection::Pipes { stdin, stdout } => {
                let (wire, ended) = Wire::start(generation, (stdin, stdout), facts_in, limits, stop, tasks);
                (wire, ended, Silence::Suspicious)
            }
            Connection::Remote(remote) => {
                let (wire, ended) = RemoteWire::start(generation, remote, facts_in, limits, stop, tasks);
                (wire, ended, Silence::Normal)
            }
        };
        let body = Self {
            pid: launched.pid,
            guard_pid: launched.guard_pid,
            process: launched.process,
            wire: wire.clone(),
            ended: Some(ended),
            facts,
            silence,
            wire_stop,
        };
        (body, wire)
    }

    /// Lets calls finish if so ordered, closes the pipes, ends the process.
    pub(crate) async fn end(mut self, order: EndOrder, limits: EndLimits) {
        match order.drain {
            Drain::Calls => {
                tokio::select! {
                    biased;
                    () = order.urgent.cancelled() => {}
                    () = self.wire.closed() => {}
                    () = quiet(&self.wire) => {}
                    () = tokio::time::sleep(limits.drain) => {}
                }
            }
            Drain::Now => {}
        }
        // Pending calls fail and stdin closes before the process is touched: ending it may take
        // seconds, and callers would wait for them.
        self.wire_stop.cancel();
        if let Some(ended) = self.ended.take() {
            // A panic of the wire has closed its pipes too.
            let _ = ended.await;
        }
        while let Err(survivors) = self.process.stop(limits.stop).await {
            let pids: Vec<String> = survivors.pids.iter().map(ToString::to_string).collect();
            error!(server = %limits.name, pids = pids.join(" "), "processes outlived KILL");
            limits.log.note(&survivors.to_string());
            limits.status.send_modify(|status| status.survivors = Some(survivors));
            tokio::time::sleep(SURVIVOR_RETRY).await;
        }
    }
}

/// Returns once no request is at the server. The slots do not tell: a call that waits for the next
/// generation holds one too.
async fn quiet(wire: &WireHandle) {
    while wire.stats().in_flight.load(Ordering::Relaxed) > 0 {
        tokio::time::sleep(DRAIN_LOOK).await;
    }
}

/// The bounds of an end.
pub(crate) struct EndLimits {
    pub(crate) name: ServerName,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) status: watch::Sender<ServerStatus>,
    /// From closing stdin to proven death.
    pub(crate) stop: Duration,
    /// For calls in flight.
    pub(crate) drain: Duration,
}

/// How a generation is to be ended.
#[derive(Debug, Clone)]
pub(crate) struct EndOrder {
    pub(crate) drain: Drain,
    /// Cuts the draining short.
    pub(crate) urgent: CancellationToken,
}

impl Supervisor {
    /// Ends whatever there is of the living generation.
    pub(crate) fn end(&mut self, drain: Drain) {
        if let Some(order) = &self.ending {
            match drain {
                Drain::Now => order.urgent.cancel(),
                Drain::Calls => {}
            }
            return;
        }
        let order = EndOrder { drain, urgent: CancellationToken::new() };
        match self.job.take() {
            launching @ Some(Job::Launching(_)) => {
                // A process may exist already; it is ended as soon as it is known.
                self.job = launching;
                self.ending = Some(order);
            }
            Some(Job::Preparing(_) | Job::Introducing(_) | Job::Ending(_)) | None => self.end_body(order),
        }
    }

    /// Ends the body, or says that there is none.
    pub(crate) fn end_body(&mut self, order: EndOrder) {
        self.place = None;
        let Some(body) = self.body.take() else { return self.ended() };
        self.ending = Some(order.clone());
        let limits = EndLimits {
            name: self.name.clone(),
            log: self.log.clone(),
            status: self.status.clone(),
            stop: self.shared.stop_budget,
            drain: self.shared.drain_limit,
        };
        self.job = Some(Job::Ending(Box::pin(body.end(order, limits))));
    }

    /// Nothing of the generation is left.
    pub(crate) fn ended(&mut self) {
        self.ending = None;
        self.status.send_modify(|status| {
            status.pid = None;
            status.guard_pid = None;
            status.survivors = None;
        });
        // A use during the stop starts the next generation at once; this one is gone all the same.
        for done in self.stop_waiters.drain(..) {
            let _ = done.send(());
        }
        self.feed(Event::Ended);
    }
}
