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
        self.again_at.filter(|_| self.running.is_none())
    }

    /// Starts what is wanted or due, unless something runs.
    pub(crate) fn due(&mut self, now: Instant, wire: &WireHandle) {
        if self.running.is_some() {
            return;
        }
        if !self.wanted.is_empty() {
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
