//! The task that owns one server instance from spawn to proven death.
//!
//! Owner: [`Supervisor::run`], one task an instance. It decides with `lifecycle`, acts here, and is
//! the only writer of the instance's status, listing and live connection. The loop only waits and
//! dispatches; whatever takes time is a future in `job`, `refresh` or `probe`.
//! Promise: at most one generation lives; a death is published at once; a server is stopped within
//! its budget also while it starts. May touch: the process, the wire. May not touch: calls, clients.

use super::body::{Body, EndOrder};
use super::breaker::Breaker;
use super::gate;
use super::handle::{self, Apply, Ask, FACTS, NotReady, ORDERS, ServerFact, ServerHandle};
use super::handshake::FirstWord;
use super::health::{Ping, Verdict};
use super::instances::Extras;
use super::launch::{Launched, Log};
use super::lifecycle::{Action, Drain, Event, Failure, Life, Phase, Policy, Starts, StopReason};
use super::listing::Listing;
use super::news::News;
use super::news::followers::Followers;
use super::places::Place;
use super::refresh::{Refresh, Refreshed};
pub use super::shared::Shared;
use super::slots::Slots;
use super::starting::{self, IntroduceError, Introduced, Prepared};
use super::status::{Exit, Reporter, ServerStatus};
use super::turns::Turns;
use super::wire::questions::Front;
use super::wire::{EndReason, Fact, WireHandle};
use crate::config::{ServerConfig, StartMode};
use crate::names::{Generation, ServerName};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

/// Longest time in a place among the starts: a few servers that hang must not keep all others from
/// starting, and what is still starting then waits for something else than this machine.
const PLACE_HELD: Duration = Duration::from_secs(10);

/// Whether the daemon's environment allows to start servers (`HERMES_SAFE_MODE`).
pub fn safe_mode(env: &BTreeMap<String, String>) -> Starts {
    match gate::safe_mode(env.get("HERMES_SAFE_MODE").map(String::as_str)) {
        gate::SafeMode::On => Starts::SafeMode,
        gate::SafeMode::Off => Starts::Allowed,
    }
}

/// What is known of a server's catalogue before it was ever started.
#[derive(Debug, Clone)]
pub enum Known {
    /// Nothing: it is started once to learn it.
    Nothing,
    /// From another configuration: served meanwhile, started once to learn it anew.
    Stale(Arc<Listing>),
    /// Good until the server says otherwise.
    Current(Arc<Listing>),
}

/// The one thing that the supervisor does at a time about its generation.
pub(crate) enum Job {
    /// Dropping it leaves nothing behind.
    Preparing(BoxFuture<'static, Result<Prepared, Failure>>),
    /// Must be awaited to its end.
    Launching(BoxFuture<'static, Result<Launched, Failure>>),
    /// Dropping it leaves the body, which is ended.
    Introducing(BoxFuture<'static, Result<Introduced, IntroduceError>>),
    /// Must be awaited to its end.
    Ending(BoxFuture<'static, ()>),
}

pub(crate) enum JobDone {
    Prepared(Result<Prepared, Failure>),
    Launched(Result<Launched, Failure>),
    Introduced(Result<Introduced, IntroduceError>),
    Ended,
}

enum Wake {
    Leave,
    Ask(Ask),
    Job(JobDone),
    Exited(Exit),
    WireEnded(Option<EndReason>),
    Fact(Fact),
    Refreshed(Refreshed),
    Probed(Verdict),
    Timer,
}

type Waiter = oneshot::Sender<Result<WireHandle, NotReady>>;

/// The task's state; see the module documentation.
pub struct Supervisor {
    pub(super) name: ServerName,
    pub(super) config: watch::Sender<Arc<ServerConfig>>,
    pub(super) shared: Shared,
    pub(super) front: Front,
    pub(super) log: Arc<dyn Log>,
    pub(super) policy: Policy,
    pub(super) life: Life,
    pub(super) asks: mpsc::Receiver<Ask>,
    pub(super) stop: CancellationToken,
    pub(super) breaker: Breaker,
    pub(super) slots: Slots,
    pub(super) followers: Followers,
    pub(super) status: watch::Sender<ServerStatus>,
    pub(super) listing: watch::Sender<Option<Arc<Listing>>>,
    pub(super) live: watch::Sender<Option<WireHandle>>,
    pub(super) facts: broadcast::Sender<Arc<ServerFact>>,
    pub(super) job: Option<Job>,
    /// Set while an end is under way or due after a launch.
    pub(super) ending: Option<EndOrder>,
    pub(super) body: Option<Body>,
    /// The place among the starts, held until the introduction is over or for [`PLACE_HELD`].
    pub(super) place: Option<Place>,
    pub(super) place_until: Instant,
    /// What the server is asked first.
    pub(super) first: Arc<FirstWord>,
    /// Budget of the start under way.
    pub(super) budget: Duration,
    /// The connection broke; this is the reason unless the exit report tells a better one in time.
    pub(super) dying: Option<(Failure, Instant)>,
    pub(super) refresh: Refresh,
    pub(super) probe: Option<BoxFuture<'static, Verdict>>,
    pub(super) ping: Ping,
    /// Not to be probed before.
    pub(super) probe_after: Instant,
    pub(super) waiters: Vec<Waiter>,
    pub(super) stop_waiters: Vec<oneshot::Sender<()>>,
    pub(super) leaving: bool,
}

impl Supervisor {
    /// Starts the task of one instance. Eager servers and those whose catalogue is not known are
    /// started at once, the others by their first use.
    pub fn start(config: Arc<ServerConfig>, known: Known, shared: Shared) -> ServerHandle {
        let name = config.name.clone();
        let life = Life::new(shared.starts);
        let (asks_in, asks) = mpsc::channel(ORDERS);
        let begin = matches!(config.start, StartMode::Eager) || !matches!(known, Known::Current(_));
        let listing = match known {
            Known::Nothing => None,
            Known::Stale(listing) | Known::Current(listing) => Some(listing),
        };
        let log = shared.launcher.log(&name);
        let first = shared.first.clone().unwrap_or_default();
        let mut status = ServerStatus::new(name.clone(), life.phase.clone(), log.clone());
        status.listing.clone_from(&listing);
        let supervisor = Self {
            name: name.clone(),
            policy: Policy { starts: shared.starts, ..Policy::with_start_budget(config.connect_timeout) },
            breaker: Breaker::new(&config.breaker),
            slots: Slots::new(config.max_concurrency.get() as usize),
            followers: Followers::default(),
            config: watch::Sender::new(config),
            stop: shared.tasks.stop_signal(),
            life,
            asks,
            status: watch::Sender::new(status),
            listing: watch::Sender::new(listing),
            live: watch::Sender::new(None),
            facts: broadcast::Sender::new(FACTS),
            job: None,
            ending: None,
            body: None,
            place: None,
            place_until: Instant::now(),
            first: first.clone(),
            budget: Duration::ZERO,
            dying: None,
            refresh: Refresh::default(),
            probe: None,
            ping: Ping::default(),
            probe_after: Instant::now(),
            waiters: Vec::new(),
            stop_waiters: Vec::new(),
            leaving: false,
            log,
            front: Front::of(name.clone(), shared.models.clone()),
            // Its further instances start with what this one knows.
            shared: Shared { first: Some(first), ..shared },
        };
        let handle = ServerHandle {
            name,
            asks: asks_in,
            config: supervisor.config.subscribe(),
            status: supervisor.status.subscribe(),
            listing: supervisor.listing.subscribe(),
            live: supervisor.live.subscribe(),
            facts: supervisor.facts.clone(),
            breaker: supervisor.breaker.clone(),
            slots: supervisor.slots.clone(),
            followers: supervisor.followers.clone(),
            turns: Turns::new(supervisor.name.clone(), supervisor.front.clone()),
            front: supervisor.front.clone(),
            extras: Extras::new(supervisor.config.borrow().clone(), supervisor.shared.clone()),
        };
        let tasks = supervisor.shared.tasks.clone();
        tasks.spawn(News::of(&handle).run(tasks.stop_signal()));
        let status = supervisor.status.clone();
        let run = AssertUnwindSafe(supervisor.run(begin.then_some(Event::StartAsked)));
        tasks.spawn(async move {
            if run.catch_unwind().await.is_err() {
                // What it owned was dropped: the guard sees its lifeline end and clears up.
                let failure = Failure::permanent("the supervisor panicked; restart the daemon");
                error!(server = %status.borrow().name, "supervisor panicked");
                status.send_modify(|status| status.phase = Phase::Parked { failure, until: None });
            }
        });
        handle
    }

    async fn run(mut self, first: Option<Event>) {
        if let Some(event) = first {
            self.feed(event);
        }
        loop {
            self.settle();
            if self.leaving && self.life.is_proven_dead() {
                return;
            }
            let wake = self.wake().await;
            self.apply(wake);
        }
    }

    async fn wake(&mut self) -> Wake {
        let timer = self.timer_at();
        let (exit, ended, facts) = match &mut self.body {
            Some(body) => (Some(&mut body.process), body.ended.as_mut(), Some(&mut body.facts)),
            None => (None, None, None),
        };
        tokio::select! {
            biased; // stop wins over work, or a busy server could never be stopped
            () = self.stop.cancelled(), if !self.leaving => Wake::Leave,
            Some(ask) = self.asks.recv() => Wake::Ask(ask),
            exit = async { match exit { Some(process) => process.exited().await, None => pending().await } } => Wake::Exited(exit),
            done = job_done(&mut self.job) => Wake::Job(done),
            reason = async { match ended { Some(task) => task.await.ok(), None => pending().await } } => Wake::WireEnded(reason),
            Some(fact) = async { match facts { Some(facts) => facts.recv().await, None => pending().await } } => Wake::Fact(fact),
            refreshed = maybe(&mut self.refresh.running) => Wake::Refreshed(refreshed),
            verdict = maybe(&mut self.probe) => Wake::Probed(verdict),
            () = async { match timer { Some(at) => tokio::time::sleep_until(at).await, None => pending().await } } => Wake::Timer,
        }
    }

    fn apply(&mut self, wake: Wake) {
        match wake {
            Wake::Leave => self.leave(StopReason::Shutdown),
            Wake::Ask(ask) => self.asked(ask),
            Wake::Job(done) => self.job_finished(done),
            Wake::Exited(exit) => self.exited(exit),
            Wake::WireEnded(reason) => self.wire_ended(reason),
            Wake::Fact(fact) => self.fact(fact),
            Wake::Refreshed(refreshed) => self.refreshed(refreshed),
            Wake::Probed(verdict) => self.probed(verdict),
            Wake::Timer => self.timer(),
        }
    }

    /// Feeds the pure machine and does what it says.
    pub(crate) fn feed(&mut self, event: Event) {
        let now = Instant::now().into_std();
        let before = std::mem::discriminant(&self.life.phase);
        let (life, actions) = self.life.clone().step(event, now, jitter(), &self.policy);
        self.life = life;
        if std::mem::discriminant(&self.life.phase) != before {
            self.log_phase();
        }
        if !matches!(self.life.phase, Phase::Ready { .. }) {
            // Before anything else: no new call may get a connection that is being ended.
            self.live.send_replace(None);
            self.refresh.clear();
            self.probe = None;
        }
        for action in actions {
            match action {
                Action::Spawn { generation, budget } => self.spawn(generation, budget),
                Action::End(drain) => self.end(drain),
            }
        }
    }

    fn log_phase(&self) {
        let generation = self.life.generation;
        match &self.life.phase {
            Phase::Ready { .. } => info!(server = %self.name, %generation, "server ready"),
            Phase::Starting { attempt } => debug!(server = %self.name, attempt, "server starting"),
            Phase::Stopped { reason } => info!(server = %self.name, %reason, "server stopped"),
            Phase::Stopping { reason, .. } => debug!(server = %self.name, %reason, "server stopping"),
            Phase::BackingOff { failure, .. } => {
                warn!(server = %self.name, failures = self.life.failures, reason = %failure, "server failed");
            }
            Phase::Parked { failure, .. } => {
                warn!(server = %self.name, failures = self.life.failures, reason = %failure, "server parked");
            }
            Phase::NeedsAuth { failure, .. } => {
                warn!(server = %self.name, reason = %failure, "server needs a login");
            }
        }
    }

    fn spawn(&mut self, generation: Generation, budget: Duration) {
        let report = Reporter::default();
        self.status.send_modify(|status| {
            status.report = report.clone();
            status.generation = generation;
        });
        self.budget = budget;
        let (launcher, places) = (self.shared.launcher.clone(), self.shared.places.clone());
        let config = self.config.borrow().clone();
        self.job = Some(Job::Preparing(Box::pin(starting::prepare(launcher, config, places, report))));
    }

    fn job_finished(&mut self, done: JobDone) {
        self.job = None;
        match done {
            JobDone::Prepared(Ok(Prepared { ignition, place })) => {
                self.place = Some(place);
                self.place_until = Instant::now() + PLACE_HELD;
                let report = self.status.borrow().report.clone();
                let launching = starting::launch(ignition, self.life.generation, self.budget, report);
                self.job = Some(Job::Launching(Box::pin(launching)));
            }
            JobDone::Prepared(Err(failure)) => self.fell(failure),
            JobDone::Launched(launched) => self.launched(launched),
            JobDone::Introduced(Ok(introduced)) => self.introduced(introduced),
            JobDone::Introduced(Err(IntroduceError::Failed(failure))) => self.fell(failure),
            JobDone::Introduced(Err(IntroduceError::Gone(failure))) => self.breaks(failure),
            JobDone::Ended => self.ended(),
        }
    }

    fn asked(&mut self, ask: Ask) {
        if self.leaving {
            if let Ask::Stop(_, done) = ask {
                self.stop_waiters.push(done);
            }
            return;
        }
        match ask {
            Ask::Use(waiter) => self.wanted(waiter, Event::Used),
            Ask::Start(waiter) => self.wanted(waiter, Event::StartAsked),
            Ask::Restart(drain, waiter) => {
                self.waiters.push(waiter);
                self.feed(Event::RestartAsked(StopReason::Restart, drain));
            }
            Ask::Stop(reason, done) => {
                self.stop_waiters.push(done);
                match reason {
                    StopReason::Removed | StopReason::Shutdown => self.leave(reason),
                    _ => self.feed(Event::StopAsked(reason)),
                }
            }
            Ask::Reconfigure(config, apply) => self.reconfigure(config, apply),
            Ask::Check => self.probe_now(),
        }
    }

    fn wanted(&mut self, waiter: Waiter, event: Event) {
        self.waiters.retain(|waiter| !waiter.is_closed());
        self.waiters.push(waiter);
        self.feed(event);
    }

    fn reconfigure(&mut self, config: Arc<ServerConfig>, apply: Apply) {
        self.policy =
            Policy { starts: self.shared.starts, ..Policy::with_start_budget(config.connect_timeout) };
        self.slots.set_limit(config.max_concurrency.get() as usize);
        self.breaker.reconfigure(&config.breaker);
        self.config.send_replace(config);
        match apply {
            Apply::Restart => self.feed(Event::RestartAsked(StopReason::ConfigChanged, Drain::Calls)),
            Apply::InPlace => {}
        }
    }

    fn leave(&mut self, reason: StopReason) {
        self.leaving = true;
        self.feed(Event::StopAsked(reason));
    }

    /// Publishes what became of the last event and answers those who can be answered.
    fn settle(&mut self) {
        if let Some(wire) = self.live.borrow().clone() {
            self.refresh.due(Instant::now(), &wire);
            if !wire.is_closed() {
                for waiter in self.waiters.drain(..) {
                    let _ = waiter.send(Ok(wire.clone()));
                }
            }
        }
        let phase = self.life.phase.clone();
        let next = match phase {
            // Only book-keeping: earlier failures are forgotten then.
            Phase::Ready { .. } => None,
            _ => self.next_step().map(Instant::into_std),
        };
        if let Some((failure, retry_in)) = handle::futile(&phase, Instant::now().into_std()) {
            for waiter in self.waiters.drain(..) {
                let (server, failure) = (self.name.clone(), failure.clone());
                let _ = waiter.send(Err(NotReady::Failed { server, failure, retry_in }));
            }
        }
        if let Phase::Stopped { reason } = phase {
            for waiter in self.waiters.drain(..) {
                let _ = waiter.send(Err(NotReady::Stopped { server: self.name.clone(), reason }));
            }
        }
        if self.life.is_proven_dead() && !matches!(phase, Phase::Starting { .. }) {
            for done in self.stop_waiters.drain(..) {
                let _ = done.send(());
            }
        }
        let (attempts, generation) = (self.life.failures, self.life.generation);
        self.status.send_if_modified(|status| {
            let changed = status.phase != phase || status.next_step != next || status.attempts != attempts;
            status.phase = phase;
            status.next_step = next;
            status.attempts = attempts;
            status.generation = generation;
            changed
        });
    }
}

async fn maybe<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

async fn job_done(job: &mut Option<Job>) -> JobDone {
    match job {
        None => pending().await,
        Some(Job::Preparing(job)) => JobDone::Prepared(job.await),
        Some(Job::Launching(job)) => JobDone::Launched(job.await),
        Some(Job::Introducing(job)) => JobDone::Introduced(job.await),
        Some(Job::Ending(job)) => {
            job.await;
            JobDone::Ended
        }
    }
}

/// Spreads retries of many servers; 0.0 when the system has no random numbers.
fn jitter() -> f64 {
    getrandom::u32().map_or(0.0, |n| f64::from(n) / f64::from(u32::MAX))
}

#[cfg(test)]
#[path = "supervisor_tests.rs"]
mod tests;
