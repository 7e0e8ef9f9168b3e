//! The event log of conversations and how far its sources were read.
//!
//! Promise: events and the position of their source are committed together, so that after a crash none
//! is missed or written twice; numbers rise by one and never run backwards, also when rows were
//! removed or the file was lost. May not touch: what an event is (`conversations::events` does).

use super::error::StoreError;
use super::opening::set_meta;
use super::queue::Needs;
use super::time::UnixMs;
use super::{Shared, Store};
use rusqlite::{Connection, OptionalExtension, Transaction};
use tokio::sync::watch;

/// Most events of one page.
pub const PAGE_LIMIT: usize = 1000;
/// The newest number ever given out.
const LATEST: &str = "events_latest";

/// An event to be numbered and kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// When it was noticed.
    pub at: UnixMs,
    /// Whose it is; empty: of no session.
    pub session_key: String,
    /// Its JSON object, without a number.
    pub body: String,
}

/// How far a source was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePosition {
    /// Which source.
    pub source: String,
    /// Opaque text of its reader.
    pub position: String,
}

/// Some events and where they stand in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPage {
    /// The oldest number kept; one more than `latest` if there is none.
    pub oldest: u64,
    /// The newest number there ever was.
    pub latest: u64,
    /// Numbers and bodies, in order.
    pub events: Vec<(u64, String)>,
}

impl Store {
    /// Numbers and keeps `events`, and notes the position of their source. Answers the newest number.
    ///
    /// A new log starts at microseconds since 1970, so that it goes on above one that was lost.
    /// # Errors
    /// [`StoreError`]; then neither events nor position are kept.
    pub async fn append_events(
        &self,
        events: Vec<NewEvent>,
        read_to: Option<SourcePosition>,
    ) -> Result<u64, StoreError> {
        let shared = std::sync::Arc::downgrade(self.shared());
        let latest = self.write(Needs::Anything, move |at| append(at, &events, read_to.as_ref())).await?;
        announce(&shared, latest);
        Ok(latest)
    }

    /// As [`Store::append_events`], for a thread: blocks, at most about [`super::ORDER_WAIT`].
    /// # Errors
    /// As [`Store::append_events`].
    pub fn append_events_blocking(
        &self,
        events: Vec<NewEvent>,
        read_to: Option<SourcePosition>,
    ) -> Result<u64, StoreError> {
        let shared = std::sync::Arc::downgrade(self.shared());
        let latest = self.write_blocking(Needs::Anything, move |at| append(at, &events, read_to.as_ref()))?;
        announce(&shared, latest);
        Ok(latest)
    }

    /// Up to `limit` events (1 to [`PAGE_LIMIT`]) from number `from` on, of one session or of all.
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::Damaged`], [`StoreError::Sql`].
    pub async fn events_from(
        &self,
        from: u64,
        limit: usize,
        session_key: Option<String>,
    ) -> Result<EventPage, StoreError> {
        self.read(move |connection| Ok(page(connection, from, limit, session_key.as_deref())?)).await
    }

    /// How far `source` was read; `None`: never.
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::Damaged`], [`StoreError::Sql`].
    pub async fn source_position(&self, source: String) -> Result<Option<String>, StoreError> {
        self.read(move |connection| {
            let found = connection
                .query_row("SELECT position FROM cursors WHERE source = ?1", [source], |row| row.get(0))
                .optional();
            Ok(found?)
        })
        .await
    }

    /// The newest number, for those who wait; 0: no event yet.
    pub fn latest_event(&self) -> watch::Receiver<u64> {
        self.shared().latest_event.subscribe()
    }
}

fn announce(shared: &std::sync::Weak<Shared>, latest: u64) {
    if let Some(shared) = shared.upgrade() {
        // Two writers may come here in the other order.
        shared.latest_event.send_if_modified(|known| {
            let newer = latest > *known;
            *known = latest.max(*known);
            newer
        });
    }
}

fn append(
    transaction: &Transaction<'_>,
    events: &[NewEvent],
    read_to: Option<&SourcePosition>,
) -> Result<u64, StoreError> {
    let mut latest = latest(transaction)?;
    if latest == 0
        && let Some(first) = events.first()
    {
        latest = first.at.0.saturating_mul(1000).max(0);
    }
    let mut insert = transaction
        .prepare_cached("INSERT INTO events (cursor, at_ms, session_key, body) VALUES (?1, ?2, ?3, ?4)")?;
    for event in events {
        latest += 1;
        insert.execute((latest, event.at.0, &event.session_key, &event.body))?;
    }
    if !events.is_empty() {
        set_meta(transaction, LATEST, latest)?;
    }
    if let Some(SourcePosition { source, position }) = read_to {
        transaction.execute("INSERT OR REPLACE INTO cursors VALUES (?1, ?2)", (source, position))?;
    }
    Ok(unsigned(latest))
}

fn latest(connection: &Connection) -> rusqlite::Result<i64> {
    connection
        .query_row("SELECT value FROM meta WHERE name = ?1", [LATEST], |row| row.get(0))
        .optional()
        .map(Option::unwrap_or_default)
}

fn page(
    connection: &Connection,
    from: u64,
    limit: usize,
    session_key: Option<&str>,
) -> rusqlite::Result<EventPage> {
    let latest = latest(connection)?;
    let oldest: Option<i64> = connection.query_row("SELECT min(cursor) FROM events", [], |row| row.get(0))?;
    let mut statement = connection.prepare_cached(
        "SELECT cursor, body FROM events WHERE cursor >= ?1 AND (?2 IS NULL OR session_key = ?2) \
         ORDER BY cursor LIMIT ?3",
    )?;
    let limit = i64::try_from(limit.clamp(1, PAGE_LIMIT)).expect("at most PAGE_LIMIT");
    let rows = statement
        .query_map((signed(from), session_key, limit), |row| Ok((unsigned(row.get(0)?), row.get(1)?)))?;
    let events = rows.collect::<rusqlite::Result<_>>()?;
    Ok(EventPage { oldest: unsigned(oldest.unwrap_or(latest + 1)), latest: unsigned(latest), events })
}

/// Tells those who wait where the log ends.
pub(super) fn publish_latest(connection: &Connection, shared: &Shared) {
    // An error shows up again with the first write, where it is reported.
    let latest = latest(connection).unwrap_or(0);
    shared.latest_event.send_replace(unsigned(latest));
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
