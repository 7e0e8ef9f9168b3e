//! One resource of a server that clients follow: who, what the server was told, how often they hear.
//!
//! Pure: the clock comes in. Promise: an update that comes too early after others is not lost, it is
//! passed on when its time has come.

use super::followers::Refusal;
use super::hearer::Hearer;
use crate::jsonrpc::splice::{Members, ObjectWriter};
use crate::names::ClientId;
use crate::server::pace::Pace;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Updates of one resource that pass at once, and the time until there is room for another one.
const UPDATES: (u32, Duration) = (8, Duration::from_millis(250));

/// Longer URIs are compared as a whole only.
const MAX_URI: usize = 8 * 1024;

/// A client that follows a resource.
#[derive(Debug, Clone)]
pub(super) struct Follower {
    /// What it calls the resource.
    pub(super) named: Box<str>,
    pub(super) hearer: Arc<dyn Hearer>,
    /// It may have missed a change and hears so when the server sends updates again.
    pub(super) owed: bool,
}

/// What the present generation knows of it.
#[derive(Debug, Default)]
pub(super) enum Telling {
    #[default]
    Untold,
    Subscribing,
    Told,
    Unsubscribing,
    /// Not asked again by itself before the next generation.
    Refused(Refusal),
}

impl Telling {
    /// Somebody asks anew.
    pub(super) fn try_again(&mut self) {
        if matches!(self, Self::Refused(_)) {
            *self = Self::Untold;
        }
    }
}

/// An update that waits for its time.
#[derive(Debug)]
struct Late {
    at: Instant,
    uri: String,
    params: Box<RawValue>,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) clients: BTreeMap<ClientId, Follower>,
    pub(super) telling: Telling,
    pub(super) waiting: Vec<oneshot::Sender<Result<(), Refusal>>>,
    pace: Pace,
    late: Option<Late>,
}

impl Default for Resource {
    fn default() -> Self {
        Self {
            clients: BTreeMap::new(),
            telling: Telling::default(),
            waiting: Vec::new(),
            pace: Pace::new(UPDATES.0, UPDATES.1),
            late: None,
        }
    }
}

impl Resource {
    /// Whether somebody follows it, or the server still has to be told that nobody does.
    pub(super) fn is_needed(&self) -> bool {
        !self.clients.is_empty()
            || matches!(self.telling, Telling::Subscribing | Telling::Told | Telling::Unsubscribing)
    }

    /// The generation that knew of it is gone.
    pub(super) fn forgotten(&mut self) {
        let knew = matches!(self.telling, Telling::Told | Telling::Unsubscribing);
        self.telling = Telling::Untold;
        self.clients.values_mut().for_each(|follower| follower.owed |= knew);
    }

    /// The server answered; who hears now that something may have changed.
    pub(super) fn settle(&mut self, outcome: Result<(), Refusal>) -> Vec<Follower> {
        for done in self.waiting.drain(..) {
            // Whoever waited may be gone.
            let _ = done.send(outcome.clone());
        }
        match outcome {
            Err(refusal) => {
                self.telling = Telling::Refused(refusal);
                Vec::new()
            }
            Ok(()) => {
                self.telling = Telling::Told;
                let owed = self.clients.values_mut().filter(|follower| follower.owed);
                owed.map(|follower| {
                    follower.owed = false;
                    follower.clone()
                })
                .collect()
            }
        }
    }

    /// `uri`, which is this resource or a part of it, changed.
    pub(super) fn changed(&mut self, key: &str, uri: &str, params: &RawValue, now: Instant, told: &mut Told) {
        if self.late.as_ref().is_some_and(|late| late.at <= now) {
            self.flush(key, now, told);
        }
        if let Some(late) = &mut self.late {
            if late.uri != uri {
                // Several parts changed: one notice for the whole.
                late.uri = key.to_owned();
                let mut whole = ObjectWriter::default();
                whole.string("uri", key);
                late.params = whole.finish();
            } else {
                late.params = params.to_owned();
            }
            return;
        }
        match self.pace.take(now) {
            Ok(()) => self.tell(key, uri, params, told),
            Err(at) => self.late = Some(Late { at, uri: uri.to_owned(), params: params.to_owned() }),
        }
    }

    /// Passes on what had to wait until `now`.
    pub(super) fn flush(&mut self, key: &str, now: Instant, told: &mut Told) {
        if self.late.as_ref().is_none_or(|late| late.at > now) {
            return;
        }
        // The time was taken from the bucket itself, so there is a token now.
        let _ = self.pace.take(now);
        if let Some(late) = self.late.take() {
            self.tell(key, &late.uri, &late.params, told);
        }
    }

    /// When something waits for.
    pub(super) fn due(&self) -> Option<Instant> {
        self.late.as_ref().map(|late| late.at)
    }

    fn tell(&self, key: &str, uri: &str, params: &RawValue, told: &mut Told) {
        for follower in self.clients.values() {
            // A part keeps its place below the name that the client knows.
            let part = uri.strip_prefix(key).unwrap_or_default();
            told.push((follower.hearer.clone(), format!("{}{part}", follower.named), params.to_owned()));
        }
    }
}

/// Whom news are for, under which URI, and the server's params.
pub(super) type Told = Vec<(Arc<dyn Hearer>, String, Box<RawValue>)>;

/// `uri` of the params of an update.
pub(super) fn uri_in(params: &RawValue) -> Option<String> {
    Members::parse(params).ok()?.text("uri").map(std::borrow::Cow::into_owned)
}

/// The URIs that `uri` may be a part of, itself first (MCP 2025-11-25, schema: an update may name a
/// sub-resource of the one that was subscribed to).
pub(super) fn covering(uri: &str) -> impl Iterator<Item = &str> {
    let borders = if uri.len() > MAX_URI { "" } else { uri }.char_indices();
    let parents = borders.filter(|(_, c)| matches!(c, '/' | '?' | '#')).flat_map(move |(at, c)| {
        let with = if c == '/' && at + 1 < uri.len() { Some(&uri[..=at]) } else { None };
        std::iter::once(&uri[..at]).chain(with)
    });
    std::iter::once(uri).chain(parents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_covered_by_its_parents_and_not_by_its_neighbours() {
        let all: Vec<&str> = covering("a://b/c#d").collect();
        for parent in ["a://b/c#d", "a://b/c", "a://b/", "a://b"] {
            assert!(all.contains(&parent), "{parent} in {all:?}");
        }
        assert!(!all.contains(&"a://b/c#"));
        assert_eq!(covering("a://b/").filter(|uri| *uri == "a://b/").count(), 1);
    }
}
