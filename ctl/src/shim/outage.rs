//! When to try to reach the daemon, when to start one, when to tell the client that there is none.
//!
//! Pure: `now` is passed in. One [`Outage`] lives from the loss of a connection (or the start of
//! the shim) to the next welcome.

use std::time::{Duration, Instant};

/// How long requests wait for a daemon that was there before: time for an upgrade or a restart.
const PATIENCE_AFTER_LOSS: Duration = Duration::from_secs(60);
/// How long requests wait when no daemon was there, and after an outage already cost answers.
const PATIENCE_AT_START: Duration = Duration::from_secs(10);
/// After a loss someone else (systemd, an upgrade) may start the daemon; only then do we.
const SPAWN_AFTER_LOSS: Duration = Duration::from_secs(1);
/// A daemon that we started has this long before another one is started.
const SPAWN_AGAIN: Duration = Duration::from_secs(4);
/// First and longest pause between two tries while something waits.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Pause while nothing waits.
const IDLE_PAUSE: Duration = Duration::from_secs(5);
/// A connection that lived this long was a good one: the next outage starts afresh.
pub(crate) const HEALTHY: Duration = Duration::from_secs(5);

/// Whether a request waits for the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Nobody would notice an error.
    Nothing,
    /// At least one request waits.
    Requests,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing before this time.
    Wait(Instant),
    /// Try to connect.
    Connect,
    /// Start a daemon; the next step will be a try.
    Spawn,
    /// Answer what waits with an error.
    GiveUp,
}

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The shim just started.
    Start,
    /// A connection was lost.
    Loss,
}

/// The time without a connection so far.
#[derive(Debug)]
pub(crate) struct Outage {
    cause: Cause,
    next_try: Instant,
    pause: Duration,
    /// Not before this time is a daemon started.
    spawn_at: Instant,
    /// When waiting requests get an error; `None` after that happened, until a new request comes.
    give_up_at: Option<Instant>,
    tried: bool,
}

impl Outage {
    /// An outage that begins at `now`.
    pub(crate) fn new(cause: Cause, now: Instant) -> Self {
        let (patience, spawn_after) = match cause {
            Cause::Start => (PATIENCE_AT_START, Duration::ZERO),
            Cause::Loss => (PATIENCE_AFTER_LOSS, SPAWN_AFTER_LOSS),
        };
        Self {
            cause,
            next_try: now,
            pause: FIRST_PAUSE,
            spawn_at: now + spawn_after,
            give_up_at: Some(now + patience),
            tried: false,
        }
    }

    /// Why there is no connection.
    pub(crate) fn cause(&self) -> Cause {
        self.cause
    }

    /// What to do at `now`.
    pub(crate) fn step(&mut self, now: Instant, waiting: Waiting) -> Step {
        let give_up_at = match (waiting, self.give_up_at) {
            (Waiting::Requests, Some(at)) if now >= at => {
                self.give_up_at = None;
                return Step::GiveUp;
            }
            (Waiting::Requests, Some(at)) => at,
            (Waiting::Requests, None) => {
                // A new request after the error: it deserves a try of its own.
                self.next_try = now;
                self.pause = FIRST_PAUSE;
                *self.give_up_at.insert(now + PATIENCE_AT_START)
            }
            (Waiting::Nothing, _) => now + IDLE_PAUSE,
        };
        // The first try comes before the first start: a daemon may be there.
        let wants_spawn = self.tried && waiting == Waiting::Requests;
        if wants_spawn && now >= self.spawn_at {
            self.spawn_at = now + SPAWN_AGAIN;
            self.next_try = now;
            self.pause = FIRST_PAUSE;
            return Step::Spawn;
        }
        if now >= self.next_try {
            self.tried = true;
            self.next_try = now + self.pause;
            self.pause = match waiting {
                Waiting::Requests => (self.pause * 2).min(LONGEST_PAUSE),
                Waiting::Nothing => (self.pause * 2).min(IDLE_PAUSE),
            };
            return Step::Connect;
        }
        // A request that came during a long idle pause must not sit it out.
        if waiting == Waiting::Requests && self.pause > LONGEST_PAUSE {
            self.pause = FIRST_PAUSE;
            self.next_try = now;
        }
        let mut wake = self.next_try.min(give_up_at);
        if wants_spawn {
            wake = wake.min(self.spawn_at);
        }
        Step::Wait(wake)
    }

    /// A daemon cannot be started, or must not be. At the start nobody else will do it, so errors
    /// come now; after a loss the one that was there may come back (an upgrade, a service manager).
    pub(crate) fn cannot_spawn(&mut self, now: Instant) {
        self.spawn_at = now + SPAWN_AGAIN;
        if self.cause == Cause::Start && self.give_up_at.is_some() {
            self.give_up_at = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the outage without a daemon; returns (time, step) of everything but waits and tries.
    fn play(
        mut outage: Outage,
        start: Instant,
        waiting: Waiting,
        span: Duration,
    ) -> (Vec<(u64, Step)>, usize) {
        let (mut now, mut out, mut tries) = (start, Vec::new(), 0);
        while now < start + span {
            match outage.step(now, waiting) {
                Step::Wait(until) => {
                    assert!(until >= now, "a wait that ends in the past is a busy loop");
                    now = until.max(now + Duration::from_micros(1));
                }
                Step::Connect => tries += 1,
                other => {
                    out.push((u64::try_from((now - start).as_millis()).unwrap(), other));
                    if other == Step::GiveUp {
                        break;
                    }
                }
            }
        }
        (out, tries)
    }

    #[test]
    fn at_start_a_daemon_is_tried_then_started_then_waited_for() {
        let now = Instant::now();
        let mut outage = Outage::new(Cause::Start, now);
        assert_eq!(outage.step(now, Waiting::Requests), Step::Connect);
        assert_eq!(outage.step(now, Waiting::Requests), Step::Spawn);
        assert_eq!(outage.step(now, Waiting::Requests), Step::Connect);
        let (events, _) =
            play(Outage::new(Cause::Start, now), now, Waiting::Requests, Duration::from_secs(100));
        assert_eq!(events.last(), Some(&(10_000, Step::GiveUp)));
    }

    #[test]
    fn after_a_loss_others_have_a_second_to_start_the_daemon() {
        let now = Instant::now();
        let (events, tries) =
            play(Outage::new(Cause::Loss, now), now, Waiting::Requests, Duration::from_secs(100));
        assert_eq!(events.first(), Some(&(1000, Step::Spawn)));
        assert_eq!(events.last(), Some(&(60_000, Step::GiveUp)));
        assert!((100..1000).contains(&tries), "{tries}");
    }

    #[test]
    fn a_lost_daemon_is_waited_for_even_if_none_can_be_started() {
        let now = Instant::now();
        let mut outage = Outage::new(Cause::Loss, now);
        outage.step(now, Waiting::Requests);
        outage.cannot_spawn(now + SPAWN_AFTER_LOSS);
        let (events, _) = play(outage, now, Waiting::Requests, Duration::from_secs(100));
        assert_eq!(events.last(), Some(&(60_000, Step::GiveUp)));
    }

    #[test]
    fn an_idle_shim_starts_nothing_and_looks_rarely() {
        let now = Instant::now();
        let (events, tries) =
            play(Outage::new(Cause::Loss, now), now, Waiting::Nothing, Duration::from_secs(600));
        assert_eq!(events, []);
        assert!((100..150).contains(&tries), "{tries}");
    }

    #[test]
    fn a_request_after_the_error_gets_a_try_at_once() {
        let now = Instant::now();
        let mut outage = Outage::new(Cause::Start, now);
        while outage.step(now, Waiting::Requests) != Step::Spawn {}
        outage.cannot_spawn(now);
        assert_eq!(outage.step(now, Waiting::Requests), Step::GiveUp);
        let later = now + Duration::from_secs(30);
        assert_eq!(outage.step(later, Waiting::Requests), Step::Spawn);
        assert_eq!(outage.step(later, Waiting::Requests), Step::Connect);
    }

    #[test]
    fn a_request_in_an_idle_outage_does_not_sit_out_the_long_pause() {
        let now = Instant::now();
        let mut outage = Outage::new(Cause::Loss, now);
        let mut at = now;
        while at < now + Duration::from_secs(30) {
            if let Step::Wait(until) = outage.step(at, Waiting::Nothing) {
                at = until;
            }
        }
        let at = at + Duration::from_millis(1);
        outage.step(at, Waiting::Nothing);
        outage.spawn_at = at + Duration::from_secs(9);
        let mut next = outage.step(at, Waiting::Requests);
        if let Step::Wait(until) = next {
            assert_eq!(until, at);
            next = outage.step(until, Waiting::Requests);
        }
        assert_eq!(next, Step::Connect);
    }
}
