//! What one moment of state.db adds to the event log.
//!
//! Runs on the watch thread, inside one [`Snapshot`]; changes nothing: the [`Plan`] is carried out by
//! `follow` once the read has ended. Promise: rows become events in the order of their ids, each once.

use super::super::db::Snapshot;
use super::super::events::{self, Kind};
use super::super::trail::{self, Fate, Memory};
use super::inherited::{Inheritance, Kin};
use super::keys::Keys;
use super::position::Position;
use super::rows::{self, Found};
use crate::store::{Before, Followed, NewEvent, Store, TRAIL_LIMIT, TrailChange, TrailRow, UnixMs};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};

/// Rows of one step: a read is never open for longer than these take.
pub(super) const STEP: usize = 500;
/// Rows that are searched for the trail of a session that was not followed.
const SEARCHED: usize = TRAIL_LIMIT * 3;

/// Sessions that are followed: conversation, and row id of the newest message that was told.
pub(super) type FollowedMap = HashMap<String, (String, i64)>;

/// What to keep, and how to go on.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// With the row id that gives the order.
    events: Vec<(i64, NewEvent)>,
    /// What changes in each session.
    pub(super) changes: BTreeMap<String, TrailChange>,
    /// Whether there are more rows.
    pub(super) more: bool,
}

impl Plan {
    /// The events in order.
    pub(super) fn take_events(&mut self) -> Vec<NewEvent> {
        let mut events = std::mem::take(&mut self.events);
        // Stable: what belongs to one row stays in its order.
        events.sort_by_key(|(id, _)| *id);
        events.into_iter().map(|(_, event)| event).collect()
    }

    /// Whether nothing changes.
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.changes.is_empty()
    }
}

/// Makes a plan; see the module's words.
pub(super) struct Planner<'a> {
    pub(super) snapshot: &'a Snapshot<'a>,
    pub(super) followed: &'a FollowedMap,
    pub(super) keys: &'a mut Keys,
    pub(super) store: &'a Store,
    /// As it is before the step; the step leaves it as it is after.
    pub(super) position: &'a mut Position,
    pub(super) inheritance: &'a mut Inheritance,
    pub(super) now: UnixMs,
    pub(super) plan: Plan,
}

impl Planner<'_> {
    /// Takes the next rows, at most [`STEP`].
    pub(super) fn step(mut self) -> rusqlite::Result<Plan> {
        self.inheritance.expire(self.now.0);
        self.named_by_now()?;
        let before = self.position.through;
        let mut through = before;
        let snapshot = self.snapshot;
        let count = rows::above(snapshot, before, STEP, |found| {
            through = found.row.id;
            self.row(&found, before)
        })?;
        self.position.through = through;
        self.position.expire(self.now.0);
        self.plan.more = count == STEP;
        Ok(self.plan)
    }

    /// Looks whether messages of `sessions` were taken back without a new one.
    pub(super) fn sweep(mut self, sessions: &[String]) -> rusqlite::Result<Plan> {
        let through = self.position.through;
        for session in sessions {
            self.open(session, through)?;
        }
        Ok(self.plan)
    }

    /// Tells the messages of sessions whose conversation has become known.
    fn named_by_now(&mut self) -> rusqlite::Result<()> {
        let waiting: Vec<(String, i64)> =
            self.position.waiting.iter().map(|(session, waiting)| (session.clone(), waiting.from)).collect();
        for (session, from) in waiting {
            if self.keys.of(self.snapshot, &session)?.is_none() {
                continue;
            }
            self.position.waiting.remove(&session);
            self.open(&session, from - 1)?;
            let (snapshot, through) = (self.snapshot, self.position.through);
            rows::of_session(snapshot, &session, from - 1, through, |found| {
                self.tell(&found);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn row(&mut self, found: &Found, before: i64) -> rusqlite::Result<()> {
        if self.open(&found.session_id, before)? {
            self.tell(found);
        } else {
            self.position.wait_for(&found.session_id, found.row.id, self.now.0);
        }
        Ok(())
    }

    /// Tells one row, unless it was told with a rewrite.
    fn tell(&mut self, found: &Found) {
        let Some(change) = self.plan.changes.get_mut(&found.session_id) else { return };
        if found.row.id <= change.session.last_id {
            return;
        }
        if let Some((event, row)) = found.told(&change.session.session_key) {
            change.session.last_id = row.id;
            change.rows.push(row);
            let key = change.session.session_key.clone();
            match self.inheritance.sort(&found.session_id, row.digest, self.now.0) {
                Kin::New => self.push(row.id, Kind::Message, key, &event),
                Kin::FirstCopy => {
                    self.push(row.id, Kind::Rewritten, key.clone(), &events::of_rewrite(&key, 0));
                }
                Kin::Copy => {}
            }
        }
    }

    fn push(&mut self, id: i64, kind: Kind, session_key: String, body: &Map<String, Value>) {
        let body = serde_json::to_string(body).expect("an event is JSON");
        self.plan.events.push((id, NewEvent { at: self.now, kind: kind.word(), session_key, body }));
    }

    /// Makes sure that the plan has the session, and finds out whether what was told of it still stands.
    /// False: no conversation is known for it. `before`: everything up to here was told or is history.
    fn open(&mut self, session: &str, before: i64) -> rusqlite::Result<bool> {
        if self.plan.changes.contains_key(session) {
            return Ok(true);
        }
        let Some((key, last_id)) = self.followed.get(session).cloned() else {
            let Some(key) = self.keys.of(self.snapshot, session)? else { return Ok(false) };
            self.begin(session, key, before)?;
            return Ok(true);
        };
        let followed = Followed { session_id: session.to_owned(), session_key: key, last_id };
        let change = TrailChange { session: followed, before: Before::Kept, rows: Vec::new() };
        self.plan.changes.insert(session.to_owned(), change);
        // 0: nothing of it is left that could change.
        if last_id > 0 && rows::fate(self.snapshot, session, last_id)? != Fate::Shown {
            self.rewritten(session)?;
        }
        Ok(true)
    }

    /// Begins to follow a session with what is there of it.
    fn begin(&mut self, session: &str, key: String, before: i64) -> rusqlite::Result<()> {
        let mut known = Vec::new();
        rows::tail(self.snapshot, session, before, SEARCHED, |found| {
            known.extend(found.told(&key).map(|(_, row)| row));
            Ok(())
        })?;
        if known.is_empty() {
            self.inherit(session)?;
        }
        known.drain(..known.len().saturating_sub(TRAIL_LIMIT));
        let last_id = known.last().map_or(0, |row: &TrailRow| row.id);
        let followed = Followed { session_id: session.to_owned(), session_key: key, last_id };
        let change = TrailChange { session: followed, before: Before::Forgotten, rows: known };
        self.plan.changes.insert(session.to_owned(), change);
        Ok(())
    }

    /// Has a new session take over what was told of the one it continues.
    fn inherit(&mut self, session: &str) -> rusqlite::Result<()> {
        let Some(parent) = rows::parent(self.snapshot, session)? else { return Ok(()) };
        let mut digests = Vec::new();
        if self.followed.contains_key(&parent) {
            // Without its trail copies count as new: told twice is better than never.
            let trail = self.store.trail_blocking(parent.clone()).unwrap_or_default();
            digests.extend(trail.iter().map(|row| row.digest));
        }
        if let Some(change) = self.plan.changes.get(&parent) {
            digests.extend(change.rows.iter().map(|row| row.digest));
        }
        self.inheritance.begin(session, digests, self.now.0);
        Ok(())
    }

    /// The newest message that was told is no longer shown: sorts what is there into old and new.
    fn rewritten(&mut self, session: &str) -> rusqlite::Result<()> {
        // Without its trail nobody can tell old from new: the rewrite is told, and sends readers to the session.
        let trail = self.store.trail_blocking(session.to_owned());
        let trail = trail
            .inspect_err(|error| tracing::warn!(%error, "a rewritten session is told without its messages"))
            .unwrap_or_default();
        let mut told = Vec::with_capacity(trail.len());
        for row in &trail {
            told.push((row.digest, rows::fate(self.snapshot, session, row.id)?));
        }
        let memory = if trail.len() >= TRAIL_LIMIT { Memory::Tail } else { Memory::Whole };
        let Some(change) = self.plan.changes.get_mut(session) else { return Ok(()) };
        let (key, last_id) = (change.session.session_key.clone(), change.session.last_id);
        // All of them, however many: a rewrite of a long session is one thing.
        let mut now: Vec<TrailRow> = Vec::new();
        rows::of_session(self.snapshot, session, last_id, i64::MAX, |found| {
            now.extend(found.told(&key).map(|(_, row)| row));
            Ok(())
        })?;
        let digests: Vec<i64> = now.iter().map(|row| row.digest).collect();
        let mut sorted = trail::sort(&told, memory, &digests);
        if told.is_empty() {
            sorted.new.clear();
        }
        let shown = trail.iter().zip(&told).filter(|(_, (_, fate))| *fate == Fate::Shown);
        let mut left: Vec<TrailRow> = shown.map(|(row, _)| *row).collect();
        let first = now.first().map_or(last_id, |row| row.id);
        let new: Vec<i64> = sorted.new.iter().map(|at| now[*at].id).collect();
        left.append(&mut now);
        change.before = Before::Forgotten;
        change.session.last_id = left.last().map_or(0, |row| row.id);
        change.rows = left;
        self.push(first, Kind::Rewritten, key.clone(), &events::of_rewrite(&key, sorted.removed));
        let Some((from, to)) = new.first().copied().zip(new.last().copied()) else { return Ok(()) };
        let snapshot = self.snapshot;
        rows::of_session(snapshot, session, from - 1, to, |found| {
            if let (Ok(_), Some((event, row))) = (new.binary_search(&found.row.id), found.told(&key)) {
                self.push(row.id, Kind::Message, key.clone(), &event);
            }
            Ok(())
        })?;
        Ok(())
    }
}
