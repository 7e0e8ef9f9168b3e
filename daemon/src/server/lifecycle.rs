//! What a server does next: the phases of one instance, from stopped to proven death.
//!
//! Pure: no clock, no I/O, `now` and the jitter come from the caller.
//! Promise: at most one generation lives; a spawn is asked for only when none does; failures in a
//! row never cause more spawns than [`Policy`] allows, and calls never more than one a second.
//!
//! ```text
//!  Stopped --use, start--> Starting --handshake--> Ready --crash--> BackingOff --timer, use--> Starting
//!                             |  \--fails--> BackingOff (1 2 4 8 16 s) --5th--> Parked (10 min, use, start, config)
//!                             |  \--permanent--> Parked        \--401--> NeedsAuth
//!  any --stop--> Stopping --proven dead--> Stopped          any --restart, config--> Stopping --> Starting
//! ```

pub use super::failure::{Failure, FailureKind};

use crate::names::Generation;
use std::fmt;
use std::time::{Duration, Instant};

/// The numbers behind the decisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Time for the first start, from spawn to handshake; attempt n gets n times as much.
    pub start_budget: Duration,
    /// Longest start budget. Default 10 min, or `start_budget` where that is longer.
    pub start_budget_cap: Duration,
    /// First delay after a failure; doubles with each. Default 1 s.
    pub backoff_first: Duration,
    /// Longest delay. Default 60 s.
    pub backoff_cap: Duration,
    /// Failures in a row that park the server. Default 5.
    pub attempts: u32,
    /// Time between tries of a parked server. Default 10 min.
    pub parked_retry: Duration,
    /// Health this long forgets earlier failures. Default 60 s.
    pub sustained: Duration,
    /// Least time between two spawns that calls ask for. Default 1 s.
    pub on_demand_gap: Duration,
    /// The same while the server needs a login. Default 30 s.
    pub login_gap: Duration,
    /// Whether anything may be started at all.
    pub starts: Starts,
}

/// Whether servers may be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Starts {
    /// Yes.
    #[default]
    Allowed,
    /// `HERMES_SAFE_MODE=1`: none.
    SafeMode,
}

impl Policy {
    /// Defaults with this first start budget (`connect_timeout`).
    pub fn with_start_budget(start_budget: Duration) -> Self {
        Self {
            start_budget,
            start_budget_cap: start_budget.max(Duration::from_secs(600)),
            backoff_first: Duration::from_secs(1),
            backoff_cap: Duration::from_secs(60),
            attempts: 5,
            parked_retry: Duration::from_secs(600),
            sustained: Duration::from_secs(60),
            on_demand_gap: Duration::from_secs(1),
            login_gap: Duration::from_secs(30),
            starts: Starts::Allowed,
        }
    }

    /// Delay after the `failures`-th failure in a row, with up to a tenth of jitter on top.
    /// `jitter` in 0.0..=1.0.
    fn backoff(&self, failures: u32, jitter: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let plain = self.backoff_first.saturating_mul(1 << doublings).min(self.backoff_cap);
        plain + plain.mul_f64(jitter.clamp(0.0, 1.0) / 10.0)
    }

    /// Budget of the start that follows `failures` failures.
    fn budget(&self, failures: u32) -> Duration {
        self.start_budget.saturating_mul(failures.saturating_add(1)).min(self.start_budget_cap)
    }
}

/// Why a server is stopped or being stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// Lazy, and nothing has used it.
    NotUsedYet,
    /// `hermesctl servers stop`.
    Operator,
    /// `idle_stop` went by without a call.
    Idle,
    /// Restarted on request.
    Restart,
    /// Its configuration changed.
    ConfigChanged,
    /// It left the configuration, or its instance is not needed any more.
    Removed,
    /// The daemon ends.
    Shutdown,
    /// `HERMES_SAFE_MODE=1`.
    SafeMode,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotUsedYet => "not used yet",
            Self::Operator => "stopped on request; the next call starts it",
            Self::Idle => "idle; the next call starts it",
            Self::Restart => "restarted on request",
            Self::ConfigChanged => "configuration changed",
            Self::Removed => "removed from the configuration",
            Self::Shutdown => "the daemon ends",
            Self::SafeMode => "HERMES_SAFE_MODE is set: no server is started",
        })
    }
}

/// Whether the end of a generation waits for its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Drain {
    /// Calls in flight may finish, within the caller's limit.
    Calls,
    /// At once.
    Now,
}

/// What comes after a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Then {
    /// Stay stopped.
    Rest,
    /// Start again.
    Start,
}

/// The phases of product.md 4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// No process, none wanted.
    Stopped {
        /// Why.
        reason: StopReason,
    },
    /// On the way to ready; the process may not exist yet.
    Starting {
        /// 1 for the first try.
        attempt: u32,
    },
    /// Answers calls.
    Ready {
        /// Since the handshake.
        since: Instant,
    },
    /// Waits for the next try.
    BackingOff {
        /// What went wrong last.
        failure: Failure,
        /// When the next try starts.
        until: Instant,
    },
    /// Given up for now; comes back by use, by command, by a config change.
    Parked {
        /// What went wrong last.
        failure: Failure,
        /// When the daemon tries by itself; `None`: it does not.
        until: Option<Instant>,
    },
    /// Waits for a login.
    NeedsAuth {
        /// What the server said.
        failure: Failure,
        /// A try that a call asked for too soon after the last one.
        until: Option<Instant>,
    },
    /// Being ended.
    Stopping {
        /// Why.
        reason: StopReason,
        /// What comes after.
        then: Then,
    },
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A call needs the server.
    Used,
    /// Start was asked for by a person, by `start: eager`, or to learn the catalogue.
    StartAsked,
    /// Stop was asked for.
    StopAsked(StopReason),
    /// Stop, then start.
    RestartAsked(StopReason, Drain),
    /// The handshake of the living generation is done.
    Started,
    /// The start failed; a process of it may still be there.
    StartFailed(Failure),
    /// The ready server died or went deaf; something of it may still be there.
    Lost(Failure),
    /// Nothing of the last generation is left.
    Ended,
    /// [`Life::next_step`] has come.
    TimerDue,
}

/// What the supervisor must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Start this generation; answer with `Started` or `StartFailed`.
    Spawn {
        /// Its number.
        generation: Generation,
        /// Time from spawn to handshake.
        budget: Duration,
    },
    /// End whatever there is of the living generation (perhaps nothing); answer with `Ended`.
    End(Drain),
}

/// Whether a generation may live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Body {
    /// Proven dead.
    None,
    /// Spawned or about to be.
    Alive,
    /// Being ended.
    Ending,
}

/// The whole state of one instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    /// Where it is.
    pub phase: Phase,
    /// Failures in a row since the last sustained health.
    pub failures: u32,
    /// Spawns so far.
    pub generation: Generation,
    body: Body,
    last_spawn: Option<Instant>,
}

impl Life {
    /// Nothing was started yet.
    pub fn new(starts: Starts) -> Self {
        let reason = match starts {
            Starts::Allowed => StopReason::NotUsedYet,
            Starts::SafeMode => StopReason::SafeMode,
        };
        Self {
            phase: Phase::Stopped { reason },
            failures: 0,
            generation: Generation::NONE,
            body: Body::None,
            last_spawn: None,
        }
    }

    /// When [`Event::TimerDue`] is wanted.
    pub fn next_step(&self, policy: &Policy) -> Option<Instant> {
        match &self.phase {
            Phase::BackingOff { until, .. } => Some(*until),
            Phase::Parked { until, .. } | Phase::NeedsAuth { until, .. } => *until,
            Phase::Ready { since } if self.failures > 0 => Some(*since + policy.sustained),
            Phase::Ready { .. } | Phase::Stopped { .. } | Phase::Starting { .. } | Phase::Stopping { .. } => {
                None
            }
        }
    }

    /// Whether nothing of any generation is left.
    pub fn is_proven_dead(&self) -> bool {
        self.body == Body::None
    }

    /// Decides what happens next. `jitter` in 0.0..=1.0.
    #[must_use]
    pub fn step(mut self, event: Event, now: Instant, jitter: f64, policy: &Policy) -> (Self, Vec<Action>) {
        let mut actions = Vec::new();
        match event {
            Event::Used => self.used(now, policy, &mut actions),
            Event::StartAsked => self.start_asked(now, policy, &mut actions),
            Event::StopAsked(reason) => self.stop(reason, Then::Rest, Drain::Now, &mut actions),
            Event::RestartAsked(reason, drain) => self.restart(reason, drain, now, policy, &mut actions),
            Event::Started => {
                // A stop may have been asked for meanwhile; then the phase is no longer Starting.
                if matches!(self.phase, Phase::Starting { .. }) && self.body == Body::Alive {
                    self.phase = Phase::Ready { since: now };
                }
            }
            Event::StartFailed(failure) => {
                if matches!(self.phase, Phase::Starting { .. }) && self.body == Body::Alive {
                    self.end(Drain::Now, &mut actions);
                    self.failed(failure, now, jitter, policy);
                }
            }
            Event::Lost(failure) => {
                if let Phase::Ready { since } = self.phase {
                    self.refill(since, now, policy);
                    self.end(Drain::Now, &mut actions);
                    self.failed(failure, now, jitter, policy);
                }
            }
            Event::Ended => self.ended(now, policy, &mut actions),
            Event::TimerDue => self.timer(now, policy, &mut actions),
        }
        (self, actions)
    }

    fn used(&mut self, now: Instant, policy: &Policy, actions: &mut Vec<Action>) {
        let earliest = self.last_spawn.map_or(now, |last| last + policy.on_demand_gap);
        match &mut self.phase {
            Phase::Ready { .. } | Phase::Starting { .. } => {}
            Phase::Stopping { then, reason } => {
                if !matches!(reason, StopReason::Removed | StopReason::Shutdown) {
                    *then = Then::Start;
                }
            }
            Phase::Stopped { .. } => self.begin(now, policy, actions),
            // What the server asked for holds for calls too.
            Phase::BackingOff { failure, .. } if failure.wait.is_some() => {}
            Phase::BackingOff { until, .. } => {
                *until = (*until).min(earliest.max(now));
                self.timer(now, policy, actions);
            }
            Phase::Parked { until, .. } => {
                let wanted = earliest.max(now);
                *until = Some(until.map_or(wanted, |until| until.min(wanted)));
                self.timer(now, policy, actions);
            }
            // A call cannot log in; but somebody may have set things right elsewhere.
            Phase::NeedsAuth { .. } => {
                if self.last_spawn.is_none_or(|last| last + policy.login_gap <= now) {
                    self.begin(now, policy, actions);
                }
            }
        }
    }

    fn start_asked(&mut self, now: Instant, policy: &Policy, actions: &mut Vec<Action>) {
        match &mut self.phase {
            Phase::Ready { .. } | Phase::Starting { .. } => {}
            Phase::Stopping { then, .. } => *then = Then::Start,
            Phase::BackingOff { .. }
            | Phase::Parked { .. }
            | Phase::NeedsAuth { .. }
            | Phase::Stopped { .. } => {
                self.failures = 0;
                self.begin(now, policy, actions);
            }
        }
    }

    fn stop(&mut self, reason: StopReason, then: Then, drain: Drain, actions: &mut Vec<Action>) {
        if self.body == Body::None {
            self.phase = Phase::Stopped { reason };
            return;
        }
        self.end(drain, actions);
        self.phase = Phase::Stopping { reason, then };
    }

    fn restart(
        &mut self,
        reason: StopReason,
        drain: Drain,
        now: Instant,
        policy: &Policy,
        actions: &mut Vec<Action>,
    ) {
        self.failures = 0;
        self.stop(reason, Then::Start, drain, actions);
        if self.body == Body::None {
            self.begin(now, policy, actions);
        }
    }

    /// Health long enough forgets what was before.
    fn refill(&mut self, since: Instant, now: Instant, policy: &Policy) {
        if now.saturating_duration_since(since) >= policy.sustained {
            self.failures = 0;
        }
    }

    fn failed(&mut self, failure: Failure, now: Instant, jitter: f64, policy: &Policy) {
        self.failures = self.failures.saturating_add(1);
        self.phase = match failure.kind {
            FailureKind::Permanent => Phase::Parked { failure, until: None },
            FailureKind::NeedsAuth => Phase::NeedsAuth { failure, until: None },
            FailureKind::Transient if self.failures >= policy.attempts => {
                let wait = policy.parked_retry + policy.parked_retry.mul_f64(jitter.clamp(0.0, 1.0) / 10.0);
                let wait = wait.max(failure.wait.unwrap_or_default());
                Phase::Parked { failure, until: Some(now + wait) }
            }
            FailureKind::Transient => {
                let wait = policy.backoff(self.failures, jitter).max(failure.wait.unwrap_or_default());
                Phase::BackingOff { failure, until: now + wait }
            }
        };
    }

    fn end(&mut self, drain: Drain, actions: &mut Vec<Action>) {
        match self.body {
            // A second order matters only where it is more urgent; the supervisor tells them apart.
            Body::Alive | Body::Ending => {
                self.body = Body::Ending;
                actions.push(Action::End(drain));
            }
            Body::None => {}
        }
    }

    fn ended(&mut self, now: Instant, policy: &Policy, actions: &mut Vec<Action>) {
        self.body = Body::None;
        match self.phase {
            Phase::Stopping { then: Then::Start, .. } | Phase::Starting { .. } => {
                self.begin(now, policy, actions)
            }
            Phase::Stopping { reason, then: Then::Rest } => self.phase = Phase::Stopped { reason },
            // Only the proof of a death that nobody reported: the pipes went with it.
            Phase::Ready { .. } => self.phase = Phase::Stopped { reason: StopReason::NotUsedYet },
            Phase::Stopped { .. }
            | Phase::BackingOff { .. }
            | Phase::Parked { .. }
            | Phase::NeedsAuth { .. } => {}
        }
    }

    fn timer(&mut self, now: Instant, policy: &Policy, actions: &mut Vec<Action>) {
        let due = |until: Option<Instant>| until.is_some_and(|until| until <= now);
        match &self.phase {
            Phase::BackingOff { until, .. } if due(Some(*until)) => self.begin(now, policy, actions),
            Phase::Parked { until, .. } | Phase::NeedsAuth { until, .. } if due(*until) => {
                self.begin(now, policy, actions);
            }
            Phase::Ready { since } => {
                let since = *since;
                self.refill(since, now, policy);
            }
            _ => {}
        }
    }

    /// To Starting; the spawn itself waits until the last generation is proven dead.
    fn begin(&mut self, now: Instant, policy: &Policy, actions: &mut Vec<Action>) {
        match policy.starts {
            Starts::SafeMode => {
                if self.body == Body::None {
                    self.phase = Phase::Stopped { reason: StopReason::SafeMode };
                }
                return;
            }
            Starts::Allowed => {}
        }
        self.phase = Phase::Starting { attempt: self.failures.saturating_add(1) };
        if self.body == Body::None {
            self.body = Body::Alive;
            self.generation = self.generation.next();
            self.last_spawn = Some(now);
            actions.push(Action::Spawn { generation: self.generation, budget: policy.budget(self.failures) });
        }
    }
}

#[cfg(test)]
#[path = "lifecycle_tests.rs"]
mod tests;
