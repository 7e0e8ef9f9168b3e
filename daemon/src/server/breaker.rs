//! The breaker of one server: cuts it off after failures in a row, lets one probe through later.
//!
//! Pure: `now` comes from the caller, the std mutex is never held across an await. Words are
//! fixed: `Closed` = calls pass, `Open` = calls refused, `HalfOpen` = one probe passes.
//! Owner: the server's handle; it outlives generations. May not touch: processes, the wire.

use crate::config::BreakerConfig;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a refused caller is told while somebody else's probe is out.
const PROBE_RETRY: Duration = Duration::from_secs(1);

/// What a finished call says about its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The server answered.
    Success,
    /// Transport error, timeout or crash; or an `isError` answer where those count.
    Failure,
    /// Says nothing about the server: cancelled, refused by ourselves.
    Neutral,
}

/// Calls are refused. The numbers are for the text that a model reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cut off after {failures} failures in a row, next try in {retry_in:?}")]
pub struct Open {
    /// Failures in a row that led here.
    pub failures: u32,
    /// Time until the next call may pass, at least 1 ms.
    pub retry_in: Duration,
}

/// What the outcome of a call changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Calls are refused from now on.
    Opened {
        /// Failures in a row.
        failures: u32,
    },
    /// Calls pass again.
    Closed,
    /// Nothing.
    None,
}

/// The three states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BreakerState {
    /// Calls pass.
    Closed,
    /// Calls are refused.
    Open,
    /// One probe is out, or the next call becomes it.
    HalfOpen,
}

/// The state for status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    /// The state as a caller would meet it now.
    pub state: BreakerState,
    /// Failures in a row.
    pub failures: u32,
    /// Time until the next call may pass; zero unless open.
    pub retry_in: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    /// Refusing until then; later the next call is the probe.
    Open {
        until: Instant,
    },
    /// The one probe is out.
    Probing {
        until: Instant,
    },
}

/// The decisions, without the lock.
#[derive(Debug)]
struct Core {
    threshold: u32,
    cooldown: Duration,
    state: State,
    failures: u32,
    /// Grows with every change of state; permits of an older one count no more.
    epoch: u64,
}

impl Core {
    fn check(&self, now: Instant) -> Result<(), Open> {
        match self.state {
            State::Open { until } if now < until => Err(self.refusal(until - now)),
            State::Probing { .. } => Err(self.refusal(PROBE_RETRY.min(self.cooldown))),
            State::Open { .. } | State::Closed => Ok(()),
        }
    }

    fn refusal(&self, retry_in: Duration) -> Open {
        Open { failures: self.failures, retry_in: retry_in.max(Duration::from_millis(1)) }
    }

    fn acquire(&mut self, now: Instant) -> Result<u64, Open> {
        self.check(now)?;
        if let State::Open { until } = self.state {
            self.enter(State::Probing { until });
        }
        Ok(self.epoch)
    }

    fn finish(&mut self, epoch: u64, outcome: Outcome, now: Instant) -> Turn {
        if epoch != self.epoch {
            // A call from before the last change of state: its news is old.
            return Turn::None;
        }
        match (self.state, outcome) {
            (State::Closed, Outcome::Success) => {
                self.failures = 0;
                Turn::None
            }
            (State::Closed, Outcome::Failure) => {
                self.failures = self.failures.saturating_add(1);
                if self.failures < self.threshold {
                    return Turn::None;
                }
                self.enter(State::Open { until: now + self.cooldown });
                Turn::Opened { failures: self.failures }
            }
            (State::Probing { .. }, Outcome::Success) => {
                self.failures = 0;
                self.enter(State::Closed);
                Turn::Closed
            }
            (State::Probing { .. }, Outcome::Failure) => {
                self.failures = self.failures.saturating_add(1);
                self.enter(State::Open { until: now + self.cooldown });
                Turn::Opened { failures: self.failures }
            }
            // `until` has passed, so the next call becomes the probe.
            (State::Probing { until }, Outcome::Neutral) => {
                self.enter(State::Open { until });
                Turn::None
            }
            (State::Closed, Outcome::Neutral) | (State::Open { .. }, _) => Turn::None,
        }
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.epoch += 1;
    }

    fn close(&mut self) {
        self.failures = 0;
        self.enter(State::Closed);
    }

    fn snapshot(&self, now: Instant) -> Snapshot {
        let (state, retry_in) = match self.state {
            State::Closed => (BreakerState::Closed, Duration::ZERO),
            State::Open { until } if now < until => (BreakerState::Open, until - now),
            State::Open { .. } | State::Probing { .. } => (BreakerState::HalfOpen, Duration::ZERO),
        };
        Snapshot { state, failures: self.failures, retry_in }
    }
}

/// A breaker shared by all calls to one server. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Breaker {
    core: Arc<Mutex<Core>>,
}

/// Leave to make one call. Dropping it without [`Permit::finish`] counts as [`Outcome::Neutral`].
#[derive(Debug)]
#[must_use = "dropping the permit says that nothing was learned"]
pub struct Permit {
    breaker: Breaker,
    epoch: u64,
    settled: bool,
}

impl Breaker {
    /// A closed breaker.
    pub fn new(limits: &BreakerConfig) -> Self {
        Self {
            core: Arc::new(Mutex::new(Core {
                threshold: limits.threshold.get(),
                cooldown: limits.cooldown,
                state: State::Closed,
                failures: 0,
                epoch: 0,
            })),
        }
    }

    /// Whether a call would pass now; takes nothing.
    /// # Errors
    /// [`Open`] when it would be refused.
    pub fn check(&self, now: Instant) -> Result<(), Open> {
        self.lock().check(now)
    }

    /// Leave for one call. In half-open the first caller gets the only probe.
    /// # Errors
    /// [`Open`] with the count of failures and the time until the next try.
    pub fn try_acquire(&self, now: Instant) -> Result<Permit, Open> {
        let epoch = self.lock().acquire(now)?;
        Ok(Permit { breaker: self.clone(), epoch, settled: false })
    }

    /// Closes it and forgets all failures: an operator's reset, a config change.
    pub fn reset(&self) {
        self.lock().close();
    }

    /// A new connection works: closes an open breaker.
    ///
    /// Failures counted while closed stay, or a server that dies in every call and comes back
    /// would never be cut off. Returns whether it was open.
    pub fn reconnected(&self) -> WasOpen {
        let mut core = self.lock();
        match core.state {
            State::Closed => WasOpen::No,
            State::Open { .. } | State::Probing { .. } => {
                core.close();
                WasOpen::Yes
            }
        }
    }

    /// Takes new limits; a config change also closes it.
    pub fn reconfigure(&self, limits: &BreakerConfig) {
        let mut core = self.lock();
        core.threshold = limits.threshold.get();
        core.cooldown = limits.cooldown;
        core.close();
    }

    /// The state for status.
    pub fn snapshot(&self, now: Instant) -> Snapshot {
        self.lock().snapshot(now)
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether [`Breaker::reconnected`] closed an open breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WasOpen {
    /// It was open or half-open.
    Yes,
    /// It was closed already.
    No,
}

impl Permit {
    /// Reports how the call went; returns what it changed, for the log.
    pub fn finish(mut self, outcome: Outcome, now: Instant) -> Turn {
        self.settled = true;
        self.breaker.lock().finish(self.epoch, outcome, now)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.settled {
            // Neutral never looks at the clock.
            self.breaker.lock().finish(self.epoch, Outcome::Neutral, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::num::NonZeroU32;

    fn limits(threshold: u32, cooldown: Duration) -> BreakerConfig {
        BreakerConfig { threshold: NonZeroU32::new(threshold).unwrap(), cooldown, count_tool_errors: false }
    }

    fn fail(breaker: &Breaker, now: Instant) -> Turn {
        breaker.try_acquire(now).unwrap().finish(Outcome::Failure, now)
    }

    #[test]
    fn three_failures_in_a_row_open_it_for_the_cooldown() {
        let breaker = Breaker::new(&limits(3, Duration::from_secs(60)));
        let t = Instant::now();
        fail(&breaker, t);
        fail(&breaker, t);
        breaker.try_acquire(t).unwrap().finish(Outcome::Success, t);
        fail(&breaker, t);
        fail(&breaker, t);
        assert!(breaker.check(t).is_ok());
        assert_eq!(fail(&breaker, t), Turn::Opened { failures: 3 });
        let open = breaker.try_acquire(t + Duration::from_secs(20)).unwrap_err();
        assert_eq!(open, Open { failures: 3, retry_in: Duration::from_secs(40) });
    }

    #[test]
    fn half_open_lets_exactly_one_probe_through() {
        let breaker = Breaker::new(&limits(1, Duration::from_secs(60)));
        let t = Instant::now();
        fail(&breaker, t);
        let later = t + Duration::from_secs(61);
        let probe = breaker.try_acquire(later).unwrap();
        assert!(breaker.try_acquire(later).is_err());
        drop(probe);
        let probe = breaker.try_acquire(later).expect("a dropped probe frees its place");
        probe.finish(Outcome::Failure, later);
        let open = breaker.try_acquire(later).unwrap_err();
        assert_eq!((open.failures, open.retry_in), (2, Duration::from_secs(60)));
        let probe = breaker.try_acquire(later + Duration::from_secs(60)).unwrap();
        assert_eq!(probe.finish(Outcome::Success, later), Turn::Closed);
        assert_eq!(breaker.snapshot(later).state, BreakerState::Closed);
    }

    #[test]
    fn a_reconnect_closes_it_but_keeps_a_count_that_is_still_running() {
        let breaker = Breaker::new(&limits(2, Duration::from_secs(60)));
        let t = Instant::now();
        fail(&breaker, t);
        assert_eq!(breaker.reconnected(), WasOpen::No);
        fail(&breaker, t);
        assert!(breaker.check(t).is_err());
        assert_eq!(breaker.reconnected(), WasOpen::Yes);
        assert_eq!(breaker.snapshot(t).failures, 0);
    }

    #[test]
    fn a_call_from_before_a_reset_counts_no_more() {
        let breaker = Breaker::new(&limits(1, Duration::from_secs(60)));
        let t = Instant::now();
        let old = breaker.try_acquire(t).unwrap();
        breaker.reset();
        old.finish(Outcome::Failure, t);
        assert!(breaker.check(t).is_ok());
    }

    /// The promise as one would write it down, with whole seconds and no epochs.
    #[derive(Debug, Default)]
    struct Model {
        failures: u32,
        open_until: Option<u64>,
        probe: Option<usize>,
        /// Calls whose outcome still counts.
        counted: Vec<usize>,
    }

    #[derive(Debug, Clone)]
    enum Op {
        Acquire,
        Finish(usize, Outcome),
        Drop(usize),
        Reset,
        Wait(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        let outcome = prop_oneof![Just(Outcome::Success), Just(Outcome::Failure), Just(Outcome::Neutral)];
        prop_oneof![
            5 => Just(Op::Acquire),
            5 => (0usize..8, outcome).prop_map(|(at, o)| Op::Finish(at, o)),
            1 => (0usize..8).prop_map(Op::Drop),
            1 => Just(Op::Reset),
            2 => (1u64..15).prop_map(Op::Wait),
        ]
    }

    proptest! {
        #[test]
        fn it_does_what_the_model_does(ops in proptest::collection::vec(op(), 0..80), threshold in 1u32..4) {
            let breaker = Breaker::new(&limits(threshold, Duration::from_secs(10)));
            let start = Instant::now();
            let mut clock = 0u64;
            let mut model = Model::default();
            let mut held: Vec<(usize, Permit)> = Vec::new();
            let mut next = 0usize;
            for op in ops {
                let now = start + Duration::from_secs(clock);
                match op {
                    Op::Acquire => {
                        let refused = model.probe.is_some() || model.open_until.is_some_and(|u| clock < u);
                        let got = breaker.try_acquire(now);
                        prop_assert_eq!(got.is_err(), refused);
                        if let Ok(permit) = got {
                            if model.open_until.is_some() {
                                model.probe = Some(next);
                                model.counted = vec![];
                            }
                            model.counted.push(next);
                            held.push((next, permit));
                            next += 1;
                        }
                    }
                    Op::Finish(at, outcome) if !held.is_empty() => {
                        let (id, permit) = held.remove(at % held.len());
                        permit.finish(outcome, now);
                        settle(&mut model, id, outcome, clock, threshold);
                    }
                    Op::Drop(at) if !held.is_empty() => {
                        let (id, permit) = held.remove(at % held.len());
                        drop(permit);
                        settle(&mut model, id, Outcome::Neutral, clock, threshold);
                    }
                    Op::Finish(..) | Op::Drop(_) => {}
                    Op::Reset => {
                        breaker.reset();
                        model = Model::default();
                    }
                    Op::Wait(secs) => clock += secs,
                }
                let seen = breaker.snapshot(start + Duration::from_secs(clock));
                prop_assert_eq!(seen.failures, model.failures);
                let expected = match model.open_until {
                    None => BreakerState::Closed,
                    Some(u) if clock < u && model.probe.is_none() => BreakerState::Open,
                    Some(_) => BreakerState::HalfOpen,
                };
                prop_assert_eq!(seen.state, expected);
            }
        }
    }

    fn settle(model: &mut Model, id: usize, outcome: Outcome, clock: u64, threshold: u32) {
        if !model.counted.contains(&id) {
            return;
        }
        let probe = model.probe == Some(id);
        model.counted.retain(|c| *c != id);
        match outcome {
            Outcome::Neutral => {
                if probe {
                    model.probe = None;
                }
            }
            Outcome::Success => {
                model.failures = 0;
                if probe {
                    *model = Model::default();
                }
            }
            Outcome::Failure => {
                model.failures += 1;
                if probe || model.failures >= threshold {
                    model.probe = None;
                    model.open_until = Some(clock + 10);
                    model.counted.clear();
                }
            }
        }
    }
}
