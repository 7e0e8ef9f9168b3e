//! Carries what happens in state.db into the event log.
//!
//! Owner: the watch thread. Promise: events and the position they leave are one transaction; the first
//! look at a file makes no events from history, and a file that took another's place leaves a marker.
//! May not touch: state.db but for reading.

use super::super::db::{DbError, StateDb};
use super::super::events::{self, Kind};
use super::inherited::Inheritance;
use super::keys::Keys;
use super::plan::{FollowedMap, Plan, Planner};
use super::position::{FileMark, Position, SOURCE};
use super::rows::{self, Found, Ids, Newest};
use super::{Change, State};
use crate::store::{
    Before, FOLLOWED_LIMIT, Followed, NewEvent, SourcePosition, Store, StoreError, TRAIL_LIMIT, TrailChange,
    TrailRow, Trails, UnixMs,
};
use crate::telemetry::metrics::Metrics;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use tokio::sync::broadcast;

/// The newest messages of a file that are remembered at the first look, to recognise rewrites.
const REMEMBERED: usize = 20_000;
/// Rows of one read while they are gathered.
const REMEMBERED_STEP: i64 = 1_000;
/// Sessions used last that are looked at for messages taken back without a new one.
const SWEPT: usize = 64;
/// A file that appears with more messages than this may have been put there with its history.
const FEW: i64 = 200;
/// And it was, if they are older than the time without a file by more than this, in milliseconds.
const OLD_MS: i64 = 3_600_000;

/// Why a look ended without an answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum LookError {
    /// state.db cannot be read.
    #[error("{0}")]
    Database(#[from] DbError),
    /// hermesd.db cannot be written or read; the same rows are tried again.
    #[error("{0}")]
    Store(#[from] StoreError),
}

/// Whether a look found something new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Looked {
    /// It did.
    New,
    /// It did not.
    Same,
}

/// See the module's words.
pub(super) struct Follower {
    path: PathBuf,
    db: StateDb,
    store: Store,
    metrics: Metrics,
    changes: broadcast::Sender<Change>,
    keys: Keys,
    /// `None`: not read from hermesd.db yet.
    followed: Option<FollowedMap>,
    position: Option<Position>,
    /// What the last complete look saw.
    seen: Option<super::super::db::Stamp>,
    /// Where a file was begun whose newest messages are still to be remembered.
    unremembered: Option<i64>,
    /// What new sessions take over from those they continue.
    inheritance: Inheritance,
    /// Whether sessions are to be looked at for messages taken back.
    unswept: bool,
}

impl Follower {
    pub(super) fn new(
        home: &Path,
        store: Store,
        metrics: Metrics,
        changes: broadcast::Sender<Change>,
    ) -> Self {
        Self {
            path: home.join("state.db"),
            db: StateDb::new(home),
            store,
            metrics,
            changes,
            keys: Keys::new(home),
            followed: None,
            position: None,
            seen: None,
            unremembered: None,
            inheritance: Inheritance::default(),
            unswept: false,
        }
    }

    /// Looks once; as long as rows come they are carried over.
    /// # Errors
    /// [`LookError`]; nothing is lost, the next look goes on from the same place.
    pub(super) fn look(&mut self, now: UnixMs) -> Result<(Looked, State), LookError> {
        self.restore()?;
        let stamp = match self.db.stamp() {
            Ok(stamp) => stamp,
            Err(DbError::Missing) => return self.missing(now),
            Err(error) => return Err(error.into()),
        };
        let waiting = self.position.as_ref().is_some_and(|position| !position.waiting.is_empty());
        if self.seen == Some(stamp) && !(waiting && self.keys.changed()) {
            return Ok((Looked::Same, State::Following));
        }
        let file = FileMark { inode: stamp.inode, born_ms: self.born() };
        self.same_file(file, now)?;
        // Not with the beginning itself, which the start of the daemon waits for.
        if let Some(through) = self.unremembered {
            self.remember(through)?;
            self.unremembered = None;
        }
        while self.step(now)? {}
        // Only now: rows that an error kept back are looked for again.
        self.seen = Some(stamp);
        self.unswept = true;
        Ok((Looked::New, State::Following))
    }

    /// Notes where the file stands if that was never done; carries nothing over.
    /// # Errors
    /// As [`Follower::look`].
    pub(super) fn anchor(&mut self, now: UnixMs) -> Result<(), LookError> {
        self.restore()?;
        if self.position.is_some() {
            return Ok(());
        }
        match self.db.stamp() {
            Ok(stamp) => self.same_file(FileMark { inode: stamp.inode, born_ms: self.born() }, now),
            Err(DbError::Missing) => self.missing(now).map(|_| ()),
            Err(error) => Err(error.into()),
        }
    }

    /// Looks whether messages were taken back; for quiet moments.
    /// # Errors
    /// As [`Follower::look`].
    pub(super) fn sweep(&mut self, now: UnixMs) -> Result<(), LookError> {
        let (Some(followed), Some(position), true) = (&self.followed, &mut self.position, self.unswept)
        else {
            return Ok(());
        };
        let mut newest: Vec<(&String, i64)> = followed
            .iter()
            .filter(|(_, (_, last))| *last > 0)
            .map(|(session, (_, last))| (session, *last))
            .collect();
        if newest.len() > SWEPT {
            newest.select_nth_unstable_by_key(SWEPT, |(_, last)| std::cmp::Reverse(*last));
            newest.truncate(SWEPT);
        }
        let sessions: Vec<String> = newest.into_iter().map(|(session, _)| session.clone()).collect();
        let (keys, store, inheritance) = (&mut self.keys, &self.store, &mut self.inheritance);
        let mut plan = self.db.read(|snapshot| {
            let plan = Plan::default();
            Planner { snapshot, followed, keys, store, position, inheritance, now, plan }.sweep(&sessions)
        })?;
        plan.changes.retain(|_, change| change.before == Before::Forgotten);
        self.unswept = false;
        if !plan.is_empty() {
            let position = position.clone();
            self.keep(plan, position)?;
        }
        Ok(())
    }

    /// Reads from hermesd.db how far an earlier daemon came.
    fn restore(&mut self) -> Result<(), LookError> {
        if self.followed.is_some() {
            return Ok(());
        }
        let position = self.store.source_position_blocking(SOURCE.to_owned())?;
        let followed = self.store.followed_blocking()?;
        self.position = position.as_deref().and_then(Position::parse);
        self.followed = Some(
            followed
                .into_iter()
                .map(|session| (session.session_id, (session.session_key, session.last_id)))
                .collect(),
        );
        Ok(())
    }

    /// There is no file: what is written into one that is made later is new.
    fn missing(&mut self, now: UnixMs) -> Result<(Looked, State), LookError> {
        self.seen = None;
        if self.position.is_none() {
            let nothing =
                Position { file: None, through: 0, missing_since: Some(now.0), waiting: BTreeMap::new() };
            self.begin(nothing, Vec::new())?;
        }
        Ok((Looked::Same, State::Missing))
    }

    fn born(&self) -> Option<i64> {
        let made = std::fs::metadata(&self.path).and_then(|metadata| metadata.created()).ok()?;
        i64::try_from(made.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
    }

    /// Makes sure that the position is one in this file.
    fn same_file(&mut self, file: FileMark, now: UnixMs) -> Result<(), LookError> {
        let newest = self.db.read(rows::newest)?;
        let gap = |reason: &str| {
            vec![NewEvent {
                at: now,
                kind: Kind::Gap.word(),
                session_key: String::new(),
                body: serde_json::to_string(&events::of_gap(reason)).expect("an event is JSON"),
            }]
        };
        let here = Position {
            file: Some(file),
            through: newest.given,
            missing_since: None,
            waiting: BTreeMap::new(),
        };
        let Some((known, missing_since, through)) =
            self.position.as_ref().map(|position| (position.file, position.missing_since, position.through))
        else {
            return self.baseline(here, Vec::new());
        };
        let reason = match known {
            None if self.put_there(missing_since.unwrap_or(0), newest)? => {
                "state.db appeared with its history"
            }
            Some(known) if !known.fits(file) => "state.db was replaced",
            Some(_) if newest.given < through && newest.ids == Ids::Once => {
                "state.db went back to an older state"
            }
            None | Some(_) => {
                if let Some(position) = &mut self.position {
                    position.file = Some(file);
                    // If the newest rows were deleted, their ids come again.
                    position.through = through.min(newest.given);
                }
                return Ok(());
            }
        };
        tracing::warn!(reason, "events of messages may be missing");
        self.baseline(here, gap(reason))
    }

    /// Whether a file that was not there before came with its history.
    fn put_there(&mut self, missing_since: i64, newest: Newest) -> Result<bool, LookError> {
        if newest.given <= FEW {
            return Ok(false);
        }
        let (mut old, mut all) = (0_usize, 0_usize);
        self.db.read(|snapshot| {
            rows::above(snapshot, 0, usize::try_from(FEW).unwrap_or(0), |found| {
                all += 1;
                old += usize::from(found.row.timestamp * 1000.0 < (missing_since - OLD_MS) as f64);
                Ok(())
            })
        })?;
        Ok(old * 2 > all)
    }

    /// Begins in a file: everything in it is history.
    fn baseline(&mut self, position: Position, gap: Vec<NewEvent>) -> Result<(), LookError> {
        let through = position.through;
        self.begin(position, gap)?;
        tracing::debug!(through, "state.db is followed from here on");
        self.unremembered = Some(through);
        Ok(())
    }

    fn begin(&mut self, position: Position, gap: Vec<NewEvent>) -> Result<(), LookError> {
        let trails = Trails { before: Before::Forgotten, changes: Vec::new() };
        let read_to = SourcePosition { source: SOURCE.to_owned(), position: position.text(), trails };
        let gaps = gap.len();
        self.store.append_events_blocking(gap, Some(read_to))?;
        self.position = Some(position);
        self.followed = Some(HashMap::new());
        (0..gaps).for_each(|_| self.metrics.event(Kind::Gap.word()));
        if gaps > 0 {
            // An error: nobody listens.
            let _ = self.changes.send(Change::Everything);
        }
        Ok(())
    }

    /// Notes the newest messages of the file, so that they are recognised when they are stored again.
    fn remember(&mut self, through: i64) -> Result<(), LookError> {
        let keys = &mut self.keys;
        let mut named = self.db.read(|snapshot| keys.all(snapshot))?;
        let mut trails: HashMap<String, (String, Vec<TrailRow>)> = HashMap::new();
        let (mut left, mut to) = (REMEMBERED, through);
        while left > 0 && to > 0 {
            let from = (to - REMEMBERED_STEP).max(0);
            let count = self.db.read(|snapshot| {
                rows::above(snapshot, from, usize::try_from(to - from).unwrap_or(0), |found| {
                    if let Some((session, key, row)) = remembered(snapshot, &mut named, &trails, &found)? {
                        trails.entry(session).or_insert_with(|| (key, Vec::new())).1.push(row);
                    }
                    Ok(())
                })
            })?;
            left = left.saturating_sub(count.max(1));
            to = from;
        }
        let mut sessions: Vec<(String, (String, Vec<TrailRow>))> = trails.into_iter().collect();
        for (_, (_, rows)) in &mut sessions {
            rows.sort_by_key(|row| row.id);
            rows.dedup_by_key(|row| row.id);
            rows.drain(..rows.len().saturating_sub(TRAIL_LIMIT));
        }
        sessions.sort_by_key(|(_, (_, rows))| rows.last().map(|row| row.id));
        let surplus = sessions.len().saturating_sub(FOLLOWED_LIMIT);
        let mut plan = Plan::default();
        for (session_id, (session_key, rows)) in sessions.into_iter().skip(surplus) {
            let last_id = rows.last().map_or(0, |row| row.id);
            let session = Followed { session_id: session_id.clone(), session_key, last_id };
            plan.changes.insert(session_id, TrailChange { session, before: Before::Forgotten, rows });
        }
        match &self.position {
            Some(position) if !plan.is_empty() => {
                let position = position.clone();
                self.keep(plan, position)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Carries the next rows over; whether there are more.
    fn step(&mut self, now: UnixMs) -> Result<bool, LookError> {
        let (Some(followed), Some(position)) = (&self.followed, &self.position) else { return Ok(false) };
        let mut after = position.clone();
        // Of a step that is not kept nothing stays: it is made again.
        let mut heirs = self.inheritance.clone();
        let (keys, store) = (&mut self.keys, &self.store);
        let plan = self.db.read(|snapshot| {
            let (position, inheritance, plan) = (&mut after, &mut heirs, Plan::default());
            Planner { snapshot, followed, keys, store, position, inheritance, now, plan }.step()
        })?;
        let more = plan.more;
        if after != *position || !plan.is_empty() {
            self.keep(plan, after)?;
        }
        self.inheritance = heirs;
        Ok(more)
    }

    /// Commits events and position, then tells those who wait.
    fn keep(&mut self, mut plan: Plan, after: Position) -> Result<(), LookError> {
        let events = plan.take_events();
        let told: Vec<(&'static str, String)> =
            events.iter().map(|event| (event.kind, event.session_key.clone())).collect();
        // A session that was only looked at has nothing to write.
        let known = self.followed.get_or_insert_default();
        let changes: Vec<TrailChange> = plan
            .changes
            .into_values()
            .filter(|change| change.before == Before::Forgotten || !change.rows.is_empty())
            .collect();
        let sessions: Vec<Followed> = changes.iter().map(|change| change.session.clone()).collect();
        let trails = Trails { before: Before::Kept, changes };
        let read_to = SourcePosition { source: SOURCE.to_owned(), position: after.text(), trails };
        self.store.append_events_blocking(events, Some(read_to))?;
        self.position = Some(after);
        for Followed { session_id, session_key, last_id } in sessions {
            known.insert(session_id, (session_key, last_id));
        }
        if known.len() > FOLLOWED_LIMIT * 2 {
            let mut last: Vec<i64> = known.values().map(|(_, last)| *last).collect();
            last.sort_unstable();
            let keep_from = last[last.len() - FOLLOWED_LIMIT];
            known.retain(|_, (_, last)| *last >= keep_from);
        }
        for (kind, key) in told {
            self.metrics.event(kind);
            // An error: nobody listens.
            let _ = self.changes.send(Change::Session(key.into()));
        }
        Ok(())
    }
}

/// Session, conversation and trail row of a message that is remembered.
fn remembered(
    snapshot: &super::super::db::Snapshot<'_>,
    named: &mut HashMap<String, String>,
    trails: &HashMap<String, (String, Vec<TrailRow>)>,
    found: &Found,
) -> rusqlite::Result<Option<(String, String, TrailRow)>> {
    let session = &found.session_id;
    let key = match trails.get(session).map(|(key, _)| key).or_else(|| named.get(session)) {
        Some(key) => Some(key.clone()),
        None if snapshot.sessions.has("session_key") => rows::session_key(snapshot, session)?,
        None => None,
    };
    let Some(key) = key else { return Ok(None) };
    Ok(found.told(&key).map(|(_, row)| (session.clone(), key, row)))
}
