//! The newest events, in memory: those who wait for one need no disk.
//!
//! Pure. Promise: holds the end of the log without a hole, or says that it does not; at most
//! [`KEPT`] events and [`KEPT_BYTES`]. May not touch: connections.

use super::eventlog::{EventFilter, EventPage, KeptEvent};
use std::collections::VecDeque;
use std::sync::Arc;

/// Most events.
const KEPT: usize = 512;
/// Most bytes of their bodies.
const KEPT_BYTES: usize = 256 * 1024;

/// The end of the log.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// `None`: no file is open.
    window: Option<(u64, u64)>,
    events: VecDeque<Arc<KeptEvent>>,
    bytes: usize,
}

impl Recent {
    /// Nothing of a log that goes from `oldest` to `latest`.
    pub(super) fn of(oldest: u64, latest: u64) -> Self {
        Self { window: Some((oldest, latest)), ..Self::default() }
    }

    /// The oldest and the newest number of the log.
    pub(super) fn window(&self) -> Option<(u64, u64)> {
        self.window
    }

    /// Older events were removed from the log.
    pub(super) fn begins_at(&mut self, oldest: u64) {
        if let Some(window) = &mut self.window {
            window.0 = oldest;
        }
    }

    /// Takes what was added to the log, which now ends at `latest`.
    pub(super) fn push(&mut self, events: Vec<KeptEvent>, latest: u64) {
        let Some(window) = &mut self.window else { return };
        window.1 = latest;
        for event in events {
            self.bytes += event.body.len();
            self.events.push_back(Arc::new(event));
        }
        while self.events.len() > KEPT || self.bytes > KEPT_BYTES {
            let Some(gone) = self.events.pop_front() else { break };
            self.bytes -= gone.body.len();
        }
    }

    /// The newest event, if it is here.
    pub(super) fn newest(&self) -> Option<Arc<KeptEvent>> {
        self.events.back().cloned()
    }

    /// The page from `from` on; `None` if some of it may be on disk only.
    pub(super) fn page(&self, from: u64, limit: usize, filter: &EventFilter) -> Option<EventPage> {
        let (oldest, latest) = self.window?;
        let here = self.events.front().map_or(latest + 1, |first| first.number);
        // Nothing is older than the oldest, so a log that is here as a whole answers everything.
        if from.max(oldest) < here {
            return None;
        }
        let wanted = |event: &&Arc<KeptEvent>| event.number >= from && filter.passes(event);
        let events = self.events.iter().filter(wanted).take(limit).cloned().collect();
        Some(EventPage { oldest, latest, events })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::UnixMs;
    use proptest::prelude::*;

    fn event(number: u64, bytes: usize) -> KeptEvent {
        let kind = if number.is_multiple_of(3) { "message" } else { "other" };
        KeptEvent {
            number,
            at: UnixMs(0),
            kind: kind.to_owned(),
            session_key: (number % 2).to_string(),
            body: "x".repeat(bytes),
        }
    }

    #[test]
    fn without_an_open_file_nothing_is_known() {
        assert_eq!(Recent::default().page(1, 9, &EventFilter::default()), None);
    }

    proptest! {
        #[test]
        fn an_answer_from_memory_is_that_of_the_whole_log(
            before in 0u64..20, sizes in prop::collection::vec(0usize..20_000, 0..60), from in 0u64..120, limit in 1usize..9,
        ) {
            let start = 40;
            let mut recent = Recent::of(start - before + 1, start);
            let mut all: Vec<KeptEvent> = (start - before + 1..=start).map(|number| event(number, 1)).collect();
            for bytes in sizes {
                let next = event(start + 1 + (all.len() as u64 - before), bytes);
                all.push(next.clone());
                recent.push(vec![next.clone()], next.number);
            }
            let filter = EventFilter { session_key: Some("1".to_owned()), kinds: vec!["message".to_owned()] };
            prop_assert!(recent.bytes <= KEPT_BYTES && recent.events.len() <= KEPT);
            if let Some(page) = recent.page(from, limit, &filter) {
                let wanted: Vec<u64> = all.iter()
                    .filter(|event| event.number >= from && filter.passes(event))
                    .map(|event| event.number).take(limit).collect();
                prop_assert_eq!(page.events.iter().map(|event| event.number).collect::<Vec<_>>(), wanted);
            }
        }
    }
}
