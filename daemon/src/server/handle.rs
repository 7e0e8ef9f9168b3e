//! What the rest of the daemon sees of one server instance: verbs, status, limits.
//!
//! Cheap to clone. Orders go down by one bounded channel, facts come up by `watch`. A handle
//! outlives generations, and breaker and slots live here for the same reason.

use super::breaker::Breaker;
use super::instances::{Extras, Instances};
use super::lifecycle::{Drain, Failure, FailureKind, Phase, StopReason};
use super::listing::Listing;
use super::news::followers::Followers;
use super::slots::Slots;
use super::status::ServerStatus;
use super::turns::Turns;
use super::wire::questions::Front;
use super::wire::{Fact, WireHandle};
use crate::config::{ServerConfig, Sharing};
use crate::names::ServerName;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::Instant;

/// Orders that may wait for a supervisor; more make the sender wait.
pub const ORDERS: usize = 64;

/// Facts a subscriber may be behind before the oldest are dropped.
pub const FACTS: usize = 256;

/// Callers wait this long for a server that asked for time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no live server for a call. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// The start that this call waited for failed.
    #[error("server `{server}` could not be started: {failure}")]
    Failed {
        /// Which server.
        server: ServerName,
        /// Why.
        failure: Failure,
        /// When the daemon tries again by itself; `None`: not by itself.
        retry_in: Option<Duration>,
    },
    /// It was still starting at the caller's deadline.
    #[error("server `{server}` was not ready within {waited:?} ({reason})")]
    TimedOut {
        /// Which server.
        server: ServerName,
        /// How long the caller waited.
        waited: Duration,
        /// What the server was doing.
        reason: String,
    },
    /// It was stopped, and is not to be started.
    #[error("server `{server}` is stopped: {reason}")]
    Stopped {
        /// Which server.
        server: ServerName,
        /// Why.
        reason: StopReason,
    },
}

impl NotReady {
    /// Which server.
    pub fn server(&self) -> &ServerName {
        match self {
            Self::Failed { server, .. } | Self::TimedOut { server, .. } | Self::Stopped { server, .. } => {
                server
            }
        }
    }

    /// Whether only a person's login helps.
    pub fn needs_auth(&self) -> bool {
        matches!(self, Self::Failed { failure, .. } if failure.kind == FailureKind::NeedsAuth)
    }

    /// When the daemon tries again by itself, where it does.
    pub fn next_step(&self) -> Option<Duration> {
        match self {
            Self::Failed { retry_in, .. } => *retry_in,
            Self::TimedOut { .. } | Self::Stopped { .. } => None,
        }
    }
}

/// Why nobody should wait in this phase: a person must act, or the server asked for more time than
/// callers have.
pub(crate) fn futile(phase: &Phase, now: std::time::Instant) -> Option<(Failure, Option<Duration>)> {
    match phase {
        Phase::NeedsAuth { failure, .. } => Some((failure.clone(), None)),
        Phase::BackingOff { failure, until } if failure.wait.is_some() => {
            let left = until.saturating_duration_since(now);
            (left > PATIENCE).then(|| (failure.clone(), Some(left)))
        }
        _ => None,
    }
}

/// Whether a new configuration needs a new process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Apply {
    /// Command, environment or the like changed: drain, stop, start.
    Restart,
    /// Limits and filters only: the process stays.
    InPlace,
}

/// What a server said on its own, with the generation it came from.
#[derive(Debug)]
pub struct ServerFact {
    /// Which spawn.
    pub generation: crate::names::Generation,
    /// What it said.
    pub fact: Fact,
}

/// An order to the supervisor.
#[derive(Debug)]
pub(crate) enum Ask {
    Use(oneshot::Sender<Result<WireHandle, NotReady>>),
    Start(oneshot::Sender<Result<WireHandle, NotReady>>),
    Stop(StopReason, oneshot::Sender<()>),
    Restart(Drain, oneshot::Sender<Result<WireHandle, NotReady>>),
    Reconfigure(Arc<ServerConfig>, Apply),
    Check,
}

/// One server instance.
#[derive(Debug, Clone)]
pub struct ServerHandle {
    pub(crate) name: ServerName,
    pub(crate) asks: mpsc::Sender<Ask>,
    pub(crate) config: watch::Receiver<Arc<ServerConfig>>,
    pub(crate) status: watch::Receiver<ServerStatus>,
    pub(crate) listing: watch::Receiver<Option<Arc<Listing>>>,
    pub(crate) live: watch::Receiver<Option<WireHandle>>,
    pub(crate) facts: broadcast::Sender<Arc<ServerFact>>,
    pub(crate) breaker: Breaker,
    pub(crate) slots: Slots,
    pub(crate) followers: Followers,
    pub(crate) front: Front,
    pub(crate) turns: Turns,
    pub(crate) extras: Extras,
}

impl ServerHandle {
    /// Its key in the configuration.
    pub fn name(&self) -> &ServerName {
        &self.name
    }

    /// Its configuration as it is applied now.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.borrow().clone()
    }

    /// Phase, reason, report; changes whenever something happens to the server, not with calls.
    pub fn status(&self) -> watch::Receiver<ServerStatus> {
        self.status.clone()
    }

    /// The last known listing; changes only when the content does. `None`: never learned.
    pub fn listing(&self) -> watch::Receiver<Option<Arc<Listing>>> {
        self.listing.clone()
    }

    /// Its breaker.
    pub fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Its slots.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// The clients that follow its resources and log lines.
    pub fn followers(&self) -> &Followers {
        &self.followers
    }

    /// Whom the instance serves alone.
    pub fn front(&self) -> &Front {
        &self.front
    }

    /// The turns of its clients, where they take turns.
    pub fn turns(&self) -> &Turns {
        &self.turns
    }

    /// Has it restarted at once and does not wait; only a hint, lost when the queue is full.
    pub fn restart_soon(&self) {
        let (done, _) = oneshot::channel();
        let _ = self.asks.try_send(Ask::Restart(Drain::Now, done));
    }

    /// This instance, as the first one, and all others of the server.
    pub fn instances(&self) -> Instances {
        Instances::of(self)
    }

    /// Who shares the server: as configured, or one instance for each client once it was seen to ask them
    /// things.
    pub fn sharing(&self) -> Sharing {
        match self.config.borrow().sharing {
            Sharing::Shared if self.asks().is_some() => Sharing::PerClient,
            sharing => sharing,
        }
    }

    /// What the server was seen to ask of clients.
    pub fn asks(&self) -> Option<String> {
        self.extras.shared().habits.asks(&self.name)
    }

    /// Everything the server says on its own from now on; a slow reader loses the oldest.
    pub fn facts(&self) -> broadcast::Receiver<Arc<ServerFact>> {
        self.facts.subscribe()
    }

    /// The live connection, if there is one; starts nothing.
    pub fn live(&self) -> Option<WireHandle> {
        self.live.borrow().clone().filter(|wire| !wire.is_closed())
    }

    /// A live connection for a call: starts a stopped, parked or waiting server and waits for it.
    ///
    /// Hold a slot meanwhile, or `idle_stop` may end the server between this and the request.
    /// # Errors
    /// [`NotReady`]: the start failed, took longer than `deadline`, or is not allowed.
    /// # Cancel safety
    /// Cancel safe; a start that was caused goes on.
    pub async fn ready(&self, deadline: Instant) -> Result<WireHandle, NotReady> {
        match self.live() {
            Some(wire) => Ok(wire),
            None => self.wait_ready(Ask::Use, deadline).await,
        }
    }

    /// Has it started, as a call would, and does not wait; only a hint, lost when the queue is full.
    pub fn wake(&self) {
        if self.live().is_none() {
            let (done, _) = oneshot::channel();
            let _ = self.asks.try_send(Ask::Use(done));
        }
    }

    /// Starts it and waits until it is ready or the start failed.
    /// # Errors
    /// As [`ready`](Self::ready).
    pub async fn start(&self, deadline: Instant) -> Result<(), NotReady> {
        self.wait_ready(Ask::Start, deadline).await.map(drop)
    }

    /// Stops it at once and waits until nothing of it is left.
    /// # Cancel safety
    /// Cancel safe; the stop goes on.
    pub async fn stop(&self, reason: StopReason) {
        let (done, stopped) = oneshot::channel();
        // A closed channel means that the supervisor has ended, and its server before it.
        if self.asks.send(Ask::Stop(reason, done)).await.is_ok() {
            let _ = stopped.await;
        }
    }

    /// Stops it, starts it and waits until it is ready or the start failed.
    /// # Errors
    /// As [`ready`](Self::ready).
    pub async fn restart(&self, drain: Drain, deadline: Instant) -> Result<(), NotReady> {
        self.wait_ready(|done| Ask::Restart(drain, done), deadline).await.map(drop)
    }

    /// Takes a new configuration over; does not wait for a restart.
    pub async fn reconfigure(&self, config: Arc<ServerConfig>, apply: Apply) {
        // A closed channel: the supervisor has ended, nothing is left to be changed.
        let _ = self.asks.send(Ask::Reconfigure(config, apply)).await;
    }

    /// Asks for a probe now, e.g. after a call timed out; only a hint, lost when the queue is full.
    pub fn check(&self) {
        let _ = self.asks.try_send(Ask::Check);
    }

    async fn wait_ready(
        &self,
        ask: impl FnOnce(oneshot::Sender<Result<WireHandle, NotReady>>) -> Ask,
        deadline: Instant,
    ) -> Result<WireHandle, NotReady> {
        let asked = Instant::now();
        let (done, outcome) = oneshot::channel();
        let wait = async {
            self.asks.send(ask(done)).await.ok()?;
            outcome.await.ok()
        };
        match tokio::time::timeout_at(deadline, wait).await {
            Ok(Some(outcome)) => outcome,
            Ok(None) => Err(NotReady::Stopped { server: self.name.clone(), reason: StopReason::Shutdown }),
            Err(_) => Err(NotReady::TimedOut {
                server: self.name.clone(),
                waited: asked.elapsed(),
                reason: self.status.borrow().reason(),
            }),
        }
    }
}
