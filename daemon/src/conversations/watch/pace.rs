//! When state.db is looked at next.
//!
//! Pure. Promise: a change that was notified is looked at at once, and twice more, because the notice
//! comes before the commit can be seen; a change that was not notified is found by a slow look; where
//! notices do not come, the slow look becomes a quick one by itself.

use std::time::{Duration, Instant};

/// After a notice it is looked at again after these spans: the commit may not be visible yet.
const AGAIN: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(25)];
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
    /// The last notice, and how many looks followed it.
    notice: Option<(Instant, usize)>,
    failures: u32,
    due: Instant,
}

impl Pace {
    /// Begins with a look at once, as after a notice: what is found then went unnoticed by nobody.
    pub(super) fn new(mode: Mode, now: Instant) -> Self {
        Self { mode, unnoticed: 0, notice: Some((now, 0)), failures: 0, due: now }
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
        self.notice = Some((now, 0));
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
        let again = match &mut self.notice {
            Some((at, looks)) => {
                let again = AGAIN.get(*looks).map(|span| *at + *span);
                *looks += 1;
                again
            }
            None => None,
        };
        if let Some(again) = again {
            self.due = again.max(now);
            return;
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

    /// After the looks of the start, which found something at `t`.
    fn quiet(t: Instant) -> Pace {
        let mut pace = Pace::new(Mode::Notices, t - ms(25));
        for found in [Found::Nothing, Found::Nothing, Found::Change] {
            pace.looked(found, pace.due());
        }
        assert_eq!(
            (pace.due(), pace.unnoticed),
            (t + SAFETY, 0),
            "nobody was to notice what was there before"
        );
        pace
    }

    #[test]
    fn a_notice_is_followed_by_three_looks_and_then_by_slow_ones() {
        let t = Instant::now();
        let mut pace = quiet(t);
        pace.noticed(t + ms(100));
        let mut looks = Vec::new();
        for _ in 0..4 {
            looks.push(pace.due() - t);
            pace.looked(Found::Nothing, pace.due());
        }
        assert_eq!(looks, [ms(100), ms(105), ms(125), ms(2125)]);
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
