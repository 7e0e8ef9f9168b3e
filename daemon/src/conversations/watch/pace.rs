//! When state.db is looked at next.
//!
//! Pure. Promise: a change that was notified is looked at at once and again and again for a while,
//! because the notice comes before the commit can be seen: the writer waits for its disk in between, for
//! a millisecond or, under load, for hundreds. A change that was not notified is found by a slow look;
//! where notices do not come, the slow look becomes a quick one by itself.

use std::time::{Duration, Instant};

/// After a notice it is looked at again for so long.
const AGAIN_FOR: Duration = Duration::from_millis(1500);
/// In steps of a quarter of what has passed, so that the wait is at most a quarter longer than the
/// writer's; at least this, while nothing was found.
const AGAIN: Duration = Duration::from_micros(500);
/// The same once something was found: it may have been an earlier commit.
const AGAIN_AFTER: Duration = Duration::from_millis(5);
/// Between two looks that nobody asked for.
pub(super) const SAFETY: Duration = Duration::from_secs(2);
/// The same where no notices come.
pub(super) const POLL: Duration = Duration::from_millis(200);
/// First pause after a look that failed; doubled up to [`SAFETY`].
const RETRY: Duration = Duration::from_millis(25);
/// So many changes without a notice in a row mean that none come.
const UNNOTICED: u32 = 2;

/// What a look found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Something new.
    Change,
    /// Nothing new.
    Nothing,
    /// The database could not be read.
    Trouble,
}

/// How changes are noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The system tells about changes of the folder.
    Notices,
    /// It cannot, or the file system is known not to.
    Polling,
    /// It should, but changes came without a notice.
    PollingUnnoticed,
}

/// See the module's words.
#[derive(Debug)]
pub(super) struct Pace {
    mode: Mode,
    unnoticed: u32,
    /// The last notice, as long as a commit may follow it, and the shortest step.
    notice: Option<(Instant, Duration)>,
    failures: u32,
    due: Instant,
}

impl Pace {
    /// Begins with a look at once, as after a notice: what is found then went unnoticed by nobody.
    pub(super) fn new(mode: Mode, now: Instant) -> Self {
        Self { mode, unnoticed: 0, notice: Some((now, AGAIN)), failures: 0, due: now }
    }

    /// How changes are noticed now.
    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// When to look.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// The folder is watched, or cannot be.
    pub(super) fn watches(&mut self, mode: Mode) {
        // That notices should come says nothing about whether they do.
        if !(self.mode == Mode::PollingUnnoticed && mode == Mode::Notices) {
            self.mode = mode;
        }
    }

    /// A notice came.
    pub(super) fn noticed(&mut self, now: Instant) {
        self.unnoticed = 0;
        if self.mode == Mode::PollingUnnoticed {
            self.mode = Mode::Notices;
        }
        self.notice = Some((now, AGAIN));
        // A database that cannot be read is left alone for its pause.
        if self.failures == 0 {
            self.due = now;
        }
    }

    /// It was looked at.
    pub(super) fn looked(&mut self, found: Found, now: Instant) {
        if found == Found::Trouble {
            let pause = RETRY * 2_u32.saturating_pow(self.failures.min(10));
            self.failures += 1;
            self.due = now + pause.min(SAFETY);
            return;
        }
        self.failures = 0;
        if let Some((at, step)) = &mut self.notice {
            if found == Found::Change {
                *step = AGAIN_AFTER;
            }
            let passed = now.saturating_duration_since(*at);
            let again = (passed / 4).max(*step);
            if passed + again <= AGAIN_FOR {
                self.due = now + again;
                return;
            }
        }
        let asked = self.notice.take().is_some();
        if found == Found::Change && !asked && self.mode == Mode::Notices {
            self.unnoticed += 1;
            if self.unnoticed >= UNNOTICED {
                self.mode = Mode::PollingUnnoticed;
            }
        }
        self.due = now + if self.mode == Mode::Notices { SAFETY } else { POLL };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// After the looks of the start, at `t`.
    fn quiet(t: Instant) -> Pace {
        let mut pace = Pace::new(Mode::Notices, t - AGAIN_FOR);
        while pace.notice.is_some() {
            pace.looked(Found::Change, pace.due().min(t));
        }
        assert!(
            pace.due() <= t + SAFETY && pace.unnoticed == 0,
            "nobody was to notice what was there before"
        );
        pace
    }

    /// When it is looked after a notice at `t`, until the slow looks.
    fn looks(mut pace: Pace, t: Instant, found: Found) -> Vec<Duration> {
        pace.noticed(t);
        let mut looks = Vec::new();
        while pace.notice.is_some() {
            looks.push(pace.due() - t);
            pace.looked(found, pace.due());
        }
        assert_eq!(pace.due() - t - *looks.last().unwrap(), SAFETY);
        looks
    }

    #[test]
    fn whenever_the_commit_comes_the_wait_is_little_longer_than_the_writers() {
        let t = Instant::now();
        let nothing = looks(quiet(t), t + ms(100), Found::Nothing);
        assert_eq!(nothing[0], Duration::ZERO);
        for pair in nothing.windows(2) {
            assert!(pair[1] <= (pair[0] + AGAIN).max(pair[0] * 5 / 4), "{pair:?}");
        }
        assert!(*nothing.last().unwrap() > AGAIN_FOR * 3 / 4 && nothing.len() < 40, "{nothing:?}");
        let found = looks(quiet(t), t + ms(100), Found::Change);
        assert_eq!(found[1], AGAIN_AFTER);
        assert!(found.len() < 30, "{found:?}");
    }

    #[test]
    fn changes_that_nobody_notices_make_the_looks_quick_until_a_notice_comes() {
        let t = Instant::now();
        let mut pace = quiet(t);
        pace.looked(Found::Change, t + SAFETY);
        assert_eq!(pace.mode(), Mode::Notices);
        pace.looked(Found::Change, t + SAFETY * 2);
        assert_eq!((pace.mode(), pace.due()), (Mode::PollingUnnoticed, t + SAFETY * 2 + POLL));
        pace.watches(Mode::Notices);
        assert_eq!(pace.mode(), Mode::PollingUnnoticed);
        pace.noticed(t + SAFETY * 3);
        assert_eq!(pace.mode(), Mode::Notices);
    }

    #[test]
    fn trouble_is_tried_again_more_and_more_slowly_whatever_is_noticed() {
        let t = Instant::now();
        let mut pace = Pace::new(Mode::Notices, t);
        let mut now = t;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            pace.looked(Found::Trouble, now);
            pace.noticed(now);
            pauses.push(pace.due() - now);
            now = pace.due();
        }
        assert_eq!((pauses[0], pauses[1], pauses[8]), (ms(25), ms(50), SAFETY));
        pace.looked(Found::Nothing, now);
        pace.noticed(now + ms(900));
        assert_eq!(pace.due(), now + ms(900));
    }

    proptest! {
        #[test]
        fn the_next_look_is_never_further_away_than_the_slow_one(steps in prop::collection::vec((0u8..5, 0u64..3000), 0..60)) {
            let t = Instant::now();
            let (mut pace, mut now) = (Pace::new(Mode::Notices, t), t);
            for (step, later) in steps {
                now += ms(later);
                match step {
                    0 => pace.noticed(now),
                    1 => pace.looked(Found::Change, now),
                    2 => pace.looked(Found::Nothing, now),
                    3 => pace.looked(Found::Trouble, now),
                    _ => pace.watches(Mode::Polling),
                }
                prop_assert!(pace.due() <= now + SAFETY);
            }
        }
    }
}
