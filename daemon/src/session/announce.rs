//! Tells a client that its lists changed: at once, but not again and again.
//!
//! Pure: the clock comes in. Promise: the last change is always announced, if need be later; a
//! server that changes its lists all the time costs a client one notice of a kind each
//! [`PERIOD`].

use crate::catalog::snapshot::View;
use crate::server::pace::Pace;
use std::time::{Duration, Instant};

/// Notices of one kind that may come close together.
const BURST: u32 = 4;

/// Time between two notices of one kind when they do not end.
pub const PERIOD: Duration = Duration::from_secs(2);

/// The lists a client may hold.
const METHODS: [&str; 3] = [
    "notifications/tools/list_changed",
    "notifications/resources/list_changed",
    "notifications/prompts/list_changed",
];

#[derive(Debug)]
struct Kind {
    pace: Pace,
    /// A change that was not announced yet, and when it will be.
    due: Option<Instant>,
}

/// What one client was told and has to be told.
#[derive(Debug)]
pub struct Announce {
    kinds: [Kind; 3],
}

impl Default for Announce {
    fn default() -> Self {
        Self { kinds: std::array::from_fn(|_| Kind { pace: Pace::new(BURST, PERIOD), due: None }) }
    }
}

impl Announce {
    /// The view changed; gives the notices to be sent now.
    pub fn changed(&mut self, old: &View, new: &View, now: Instant) -> Vec<&'static str> {
        let (before, after) = (old.natives(), new.natives());
        let changed = [
            old.digest() != new.digest(),
            before.resources.get() != after.resources.get()
                || before.resource_templates.get() != after.resource_templates.get(),
            before.prompts.get() != after.prompts.get(),
        ];
        self.note(changed, now)
    }

    /// Everything may have changed.
    pub fn all(&mut self, now: Instant) -> Vec<&'static str> {
        self.note([true; 3], now)
    }

    fn note(&mut self, changed: [bool; 3], now: Instant) -> Vec<&'static str> {
        for (kind, _) in self.kinds.iter_mut().zip(changed).filter(|(_, changed)| *changed) {
            kind.due.get_or_insert(now);
        }
        self.due(now)
    }

    /// The notices whose time has come.
    pub fn due(&mut self, now: Instant) -> Vec<&'static str> {
        let mut methods = Vec::new();
        for (kind, method) in self.kinds.iter_mut().zip(METHODS) {
            if kind.due.is_none_or(|at| at > now) {
                continue;
            }
            match kind.pace.take(now) {
                Ok(()) => {
                    kind.due = None;
                    methods.push(method);
                }
                Err(later) => kind.due = Some(later),
            }
        }
        methods
    }

    /// When [`due`](Self::due) has something to say.
    pub fn next(&self) -> Option<Instant> {
        self.kinds.iter().filter_map(|kind| kind.due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TOOLS: [bool; 3] = [true, false, false];

    #[test]
    fn a_single_change_is_announced_at_once_and_once() {
        let (mut announce, now) = (Announce::default(), Instant::now());
        assert_eq!(announce.note(TOOLS, now), [METHODS[0]]);
        assert_eq!((announce.next(), announce.due(now)), (None, vec![]));
        assert_eq!(announce.all(now), METHODS);
    }

    proptest! {
        #[test]
        fn the_rate_is_bounded_and_the_last_change_is_never_lost(
            gaps in proptest::collection::vec(0u64..900, 1..120),
        ) {
            let (mut announce, start) = (Announce::default(), Instant::now());
            let (mut now, mut told, mut last) = (start, 0u32, start);
            for gap in gaps {
                let next = now + Duration::from_millis(gap);
                while let Some(at) = announce.next().filter(|at| *at <= next) {
                    for _ in announce.due(at) { told += 1; last = at; }
                }
                now = next;
                for _ in announce.note(TOOLS, now) { told += 1; last = now; }
            }
            let changed = now;
            while let Some(at) = announce.next() {
                prop_assert!(at <= changed + PERIOD);
                now = at;
                for _ in announce.due(at) { told += 1; last = at; }
            }
            prop_assert!(last >= changed, "the change at the end was not announced");
            let allowed = BURST + u32::try_from((now - start).as_millis() / PERIOD.as_millis()).unwrap();
            prop_assert!(told <= allowed, "{told} of {allowed}");
        }
    }
}
