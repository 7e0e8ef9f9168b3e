//! When the lists of one server are read again.
//!
//! Pure book-keeping plus one future. Owner: the supervisor. Promise: one refresh at a time however
//! many notices come; a notice that changed nothing is checked once more shortly after, because
//! servers announce a change before they make it.

use super::listing::{ListKind, Part, has_capability};
use super::pages;
use super::wire::WireHandle;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::Instant;

/// Time until a notice that changed nothing is checked once more.
pub(crate) const RECHECK: Duration = Duration::from_millis(500);

/// Time between two refreshes that notices cause; doubles while they change nothing, so that a
/// server which announces a change whenever it is asked cannot keep itself and us busy.
const NOTICE_GAP: Duration = Duration::from_millis(200);

/// Longest such time while nothing changes.
const NOTICE_GAP_CAP: Duration = Duration::from_secs(30);

/// Longest such time while something does change each time: the gap grows then too, because everybody
/// pays for a list that never rests.
const BUSY_GAP_CAP: Duration = Duration::from_secs(5);

/// After so long without a refresh a change is news again.
const QUIET: Duration = Duration::from_secs(10);

/// Time for one list on a refresh.
const LIST_BUDGET: Duration = Duration::from_secs(30);

/// Why a refresh runs; decides whether it is checked once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The server said that something changed.
    Notice,
    /// The rest of the lists after a handshake, or the second look after a notice.
    Own,
}

/// The lists that were read.
pub(crate) struct Refreshed {
    pub(crate) parts: Vec<Part>,
    pub(crate) kinds: Vec<ListKind>,
    pub(crate) cause: Cause,
}

/// What is running, what is wanted next, and when.
#[derive(Default)]
pub(crate) struct Refresh {
    pub(crate) running: Option<BoxFuture<'static, Refreshed>>,
    wanted: HashSet<ListKind>,
    again: HashSet<ListKind>,
    again_at: Option<Instant>,
    /// No refresh for a notice before this.
    not_before: Option<Instant>,
    /// Notices in a row that changed nothing.
    idle_notices: u32,
    /// Notices in a row, none long after the other, that changed something.
    busy_notices: u32,
    /// When the last refresh for a notice ended.
    noticed_at: Option<Instant>,
}

impl Refresh {
    /// Notes that the server announced a change.
    pub(crate) fn noticed(&mut self, kinds: &[ListKind]) {
        self.wanted.extend(kinds);
    }

    /// Forgets everything: the generation ended.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// When [`due`](Self::due) is worth asking.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let wanted = self.not_before.filter(|_| !self.wanted.is_empty());
        let next = [wanted, self.again_at].into_iter().flatten().min();
        next.filter(|_| self.running.is_none())
    }

    /// Starts what is wanted or due, unless something runs.
    pub(crate) fn due(&mut self, now: Instant, wire: &WireHandle) {
        if self.running.is_some() {
            return;
        }
        let may = self.not_before.is_none_or(|at| at <= now);
        if !self.wanted.is_empty() && may {
            let kinds = in_order(&self.wanted);
            self.wanted.clear();
            self.running = Some(Box::pin(read(wire.clone(), kinds, Cause::Notice)));
        } else if self.again_at.is_some_and(|at| at <= now) {
            let kinds = in_order(&self.again);
            self.again.clear();
            self.again_at = None;
            self.running = Some(Box::pin(read(wire.clone(), kinds, Cause::Own)));
        }
    }

    /// Starts reading every declared list but the tools, which the start has read.
    pub(crate) fn rest_of(&mut self, capabilities: &RawValue, wire: &WireHandle) {
        let kinds: Vec<ListKind> = ListKind::ALL
            .into_iter()
            .filter(|kind| *kind != ListKind::Tools && has_capability(capabilities, kind.capability()))
            .collect();
        if !kinds.is_empty() {
            self.running = Some(Box::pin(read(wire.clone(), kinds, Cause::Own)));
        }
    }

    /// Notes the end of a refresh; arms the second look where a notice changed nothing.
    pub(crate) fn finished(&mut self, refreshed: &Refreshed, changed: Changed, now: Instant) {
        self.running = None;
        self.idle_notices = match (refreshed.cause, changed) {
            (_, Changed::Something) => 0,
            (Cause::Notice, Changed::Nothing) => self.idle_notices.saturating_add(1),
            (Cause::Own, Changed::Nothing) => self.idle_notices,
        };
        if refreshed.cause == Cause::Notice {
            let quiet = self.noticed_at.is_none_or(|at| now >= at + QUIET);
            self.busy_notices = match changed {
                Changed::Something if !quiet => self.busy_notices.saturating_add(1),
                Changed::Something | Changed::Nothing => 0,
            };
            self.noticed_at = Some(now);
        }
        let gap = |notices: u32, cap| NOTICE_GAP.saturating_mul(1 << notices.min(16)).min(cap);
        let gap = gap(self.idle_notices, NOTICE_GAP_CAP).max(gap(self.busy_notices, BUSY_GAP_CAP));
        self.not_before = Some(now + gap);
        match (refreshed.cause, changed) {
            (Cause::Notice, Changed::Nothing) => {
                self.again.extend(&refreshed.kinds);
                self.again_at = Some(now + RECHECK);
            }
            (Cause::Notice, Changed::Something) | (Cause::Own, _) => {}
        }
    }
}

/// Whether a refresh changed the listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changed {
    /// Its content is another now.
    Something,
    /// It is as before.
    Nothing,
}

fn in_order(kinds: &HashSet<ListKind>) -> Vec<ListKind> {
    ListKind::ALL.into_iter().filter(|kind| kinds.contains(kind)).collect()
}

async fn read(wire: WireHandle, kinds: Vec<ListKind>, cause: Cause) -> Refreshed {
    let mut parts = Vec::with_capacity(kinds.len());
    for kind in &kinds {
        let read = pages::fetch(&wire, *kind, Instant::now() + LIST_BUDGET).await;
        parts.push(read.unwrap_or_else(|error| Part::unavailable(*kind, error.to_string())));
    }
    Refreshed { parts, kinds, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(refresh: &mut Refresh, changed: Changed) -> Duration {
        let refreshed = Refreshed { parts: Vec::new(), kinds: vec![ListKind::Tools], cause: Cause::Notice };
        let now = Instant::now();
        refresh.finished(&refreshed, changed, now);
        refresh.not_before.expect("set by every end") - now
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_never_rests_is_read_less_and_less_often() {
        let mut refresh = Refresh::default();
        let mut gaps = Vec::new();
        for _ in 0..7 {
            let gap = ended(&mut refresh, Changed::Something);
            gaps.push(gap.as_millis());
            tokio::time::advance(gap).await;
        }
        assert_eq!(gaps, [200, 400, 800, 1600, 3200, 5000, 5000]);
        tokio::time::advance(QUIET).await;
        assert_eq!(ended(&mut refresh, Changed::Something), NOTICE_GAP);
        assert_eq!(ended(&mut refresh, Changed::Nothing), 2 * NOTICE_GAP);
    }
}
