//! The event log of conversations and how far its sources were read.
//!
//! Promise: events, the position of their source and what it knows are committed together, so that
//! after a crash none is missed or written twice; numbers rise by one and never run backwards, also when
//! rows were removed or the file was lost. May not touch: what an event is (`conversations::events` does).

use super::error::StoreError;
use super::queue::Needs;
use super::recent::Recent;
use super::time::UnixMs;
use super::trails::{self, Trails};
use super::{Shared, Store, verdict};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};
use std::sync::Arc;
use tokio::sync::{oneshot, watch};

/// Most events of one page.
pub const PAGE_LIMIT: usize = 1000;
/// Kind of the marker that events are missing. It concerns everybody and passes every filter.
pub const GAP: &str = "gap";
/// The newest number ever given out.
const LATEST: &str = "events_latest";

/// An event to be numbered and kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// When it was noticed.
    pub at: UnixMs,
    /// `type` of the body.
    pub kind: &'static str,
    /// Whose it is; empty: of no session.
    pub session_key: String,
    /// Its JSON object, without a number.
    pub body: String,
}

/// An event of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptEvent {
    /// Its number.
    pub number: u64,
    /// When it was noticed.
    pub at: UnixMs,
    /// `type` of the body.
    pub kind: String,
    /// Whose it is; empty: of no session.
    pub session_key: String,
    /// Its JSON object, without the number.
    pub body: String,
}

/// Which events are wanted. The default wants all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventFilter {
    /// Only those of this session.
    pub session_key: Option<String>,
    /// Only these kinds; empty: all.
    pub kinds: Vec<String>,
}

impl EventFilter {
    /// Whether `event` is wanted. Gap markers always are.
    pub fn passes(&self, event: &KeptEvent) -> bool {
        let session = self.session_key.as_ref().is_none_or(|wanted| *wanted == event.session_key);
        let kind = self.kinds.is_empty() || self.kinds.contains(&event.kind);
        event.kind == GAP || (session && kind)
    }
}

/// How far a source was read, and which messages it knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePosition {
    /// Which source.
    pub source: String,
    /// Opaque text of its reader.
    pub position: String,
    /// What changes in the trails of its sessions.
    pub trails: Trails,
}

/// Some events and where they stand in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPage {
    /// The oldest number kept; one more than `latest` if there is none.
    pub oldest: u64,
    /// The newest number there ever was.
    pub latest: u64,
    /// In order.
    pub events: Vec<Arc<KeptEvent>>,
}

impl Store {
    /// Numbers and keeps `events`, and notes the position of their source. Answers the newest number.
    /// # Errors
    /// [`StoreError`]; then neither events nor position are kept.
    /// # Cancel safety
    /// Dropped after the first poll, the events are still kept.
    pub async fn append_events(
        &self,
        events: Vec<NewEvent>,
        read_to: Option<SourcePosition>,
    ) -> Result<u64, StoreError> {
        self.start_append(events, read_to)?.await.map_err(|_| StoreError::Closed)?
    }

    /// As [`Store::append_events`], for a thread: blocks, at most about [`super::ORDER_WAIT`].
    /// # Errors
    /// As [`Store::append_events`].
    pub fn append_events_blocking(
        &self,
        events: Vec<NewEvent>,
        read_to: Option<SourcePosition>,
    ) -> Result<u64, StoreError> {
        self.start_append(events, read_to)?.blocking_recv().map_err(|_| StoreError::Closed)?
    }

    fn start_append(
        &self,
        events: Vec<NewEvent>,
        read_to: Option<SourcePosition>,
    ) -> Result<oneshot::Receiver<Result<u64, StoreError>>, StoreError> {
        let (tell, told) = oneshot::channel();
        let shared = Arc::downgrade(self.shared());
        self.order(Needs::Anything, move |connection| {
            let done = connection.and_then(|connection| {
                let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                let kept = append(&transaction, events, read_to.as_ref())?;
                transaction.commit()?;
                Ok(kept)
            });
            let verdict = verdict(&done);
            // Told here, on the writer, so that those who wait see the order of the commits.
            let latest = done.map(|(latest, kept)| {
                if let Some(shared) = shared.upgrade() {
                    shared.recent().push(kept, latest);
                    shared.latest_event.send_if_modified(|known| std::mem::replace(known, latest) != latest);
                }
                latest
            });
            // Whoever asked may be gone; the events stand.
            let _ = tell.send(latest);
            verdict
        })?;
        Ok(told)
    }

    /// Up to `limit` events (1 to [`PAGE_LIMIT`]) from number `from` on that pass `filter`.
    ///
    /// The newest ones are answered from memory.
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::Damaged`], [`StoreError::Sql`].
    /// # Cancel safety
    /// Cancel safe.
    pub async fn events_from(
        &self,
        from: u64,
        limit: usize,
        filter: EventFilter,
    ) -> Result<EventPage, StoreError> {
        let limit = limit.clamp(1, PAGE_LIMIT);
        if let Some(page) = self.shared().recent().page(from, limit, &filter) {
            return Ok(page);
        }
        self.read(move |connection| Ok(page(connection, Start::At(from), limit, &filter)?)).await
    }

    /// The newest `limit` events (1 to [`PAGE_LIMIT`]) that pass `filter`, oldest first.
    /// # Errors
    /// As [`Store::events_from`].
    /// # Cancel safety
    /// Cancel safe.
    pub async fn newest_events(&self, limit: usize, filter: EventFilter) -> Result<EventPage, StoreError> {
        let limit = limit.clamp(1, PAGE_LIMIT);
        self.read(move |connection| {
            let mut page = page(connection, Start::Newest, limit, &filter)?;
            page.events.reverse();
            Ok(page)
        })
        .await
    }

    /// Where the log begins and ends; `None` while it is not open.
    pub fn event_window(&self) -> Option<(u64, u64)> {
        self.shared().recent().window()
    }

    /// How far `source` was read; `None`: never.
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::Damaged`], [`StoreError::Sql`].
    /// # Cancel safety
    /// Cancel safe.
    pub async fn source_position(&self, source: String) -> Result<Option<String>, StoreError> {
        self.read(move |connection| Ok(position(connection, &source)?)).await
    }

    /// As [`Store::source_position`], for a thread: blocks.
    /// # Errors
    /// As [`Store::source_position`].
    pub fn source_position_blocking(&self, source: String) -> Result<Option<String>, StoreError> {
        self.read_blocking(move |connection| Ok(position(connection, &source)?))
    }

    /// The newest number, for those who wait; 0: the log is not open yet.
    pub fn latest_event(&self) -> watch::Receiver<u64> {
        self.shared().latest_event.subscribe()
    }

    /// The newest event kept in memory; `None`: none since the daemon started.
    pub fn newest_event(&self) -> Option<Arc<KeptEvent>> {
        self.shared().recent().newest()
    }
}

fn append(
    transaction: &Transaction<'_>,
    events: Vec<NewEvent>,
    read_to: Option<&SourcePosition>,
) -> Result<(u64, Vec<KeptEvent>), StoreError> {
    let mut latest = latest(transaction)?;
    let mut insert = transaction.prepare_cached(
        "INSERT INTO events (cursor, at_ms, kind, session_key, body) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let mut kept = Vec::with_capacity(events.len());
    for NewEvent { at, kind, session_key, body } in events {
        latest += 1;
        insert.execute((latest, at.0, kind, &session_key, &body))?;
        kept.push(KeptEvent { number: unsigned(latest), at, kind: kind.to_owned(), session_key, body });
    }
    if !kept.is_empty() {
        super::opening::set_meta(transaction, LATEST, latest)?;
    }
    if let Some(SourcePosition { source, position, trails }) = read_to {
        let mut note = transaction.prepare_cached("INSERT OR REPLACE INTO cursors VALUES (?1, ?2)")?;
        note.execute((source, position))?;
        trails::write(transaction, trails)?;
    }
    Ok((unsigned(latest), kept))
}

/// Gives a new log its first number: microseconds since 1970, so that it goes on above one that was lost.
pub(super) fn begin(connection: &Connection, now: UnixMs) -> rusqlite::Result<()> {
    let first = now.0.saturating_mul(1000).max(1);
    connection.execute("INSERT OR IGNORE INTO meta VALUES (?1, ?2)", (LATEST, first)).map(|_| ())
}

fn position(connection: &Connection, source: &str) -> rusqlite::Result<Option<String>> {
    connection
        .query_row("SELECT position FROM cursors WHERE source = ?1", [source], |row| row.get(0))
        .optional()
}

fn latest(connection: &Connection) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare_cached("SELECT value FROM meta WHERE name = ?1")?;
    statement.query_row([LATEST], |row| row.get(0)).optional().map(Option::unwrap_or_default)
}

fn oldest(connection: &Connection, latest: i64) -> rusqlite::Result<u64> {
    let oldest: Option<i64> = connection.query_row("SELECT min(cursor) FROM events", [], |row| row.get(0))?;
    Ok(unsigned(oldest.unwrap_or(latest + 1)))
}

/// Where a page begins.
#[derive(Debug, Clone, Copy)]
enum Start {
    /// With this number; goes up.
    At(u64),
    /// With the newest; goes down.
    Newest,
}

fn page(
    connection: &Connection,
    start: Start,
    limit: usize,
    filter: &EventFilter,
) -> rusqlite::Result<EventPage> {
    let latest = latest(connection)?;
    let (from, order) = match start {
        Start::At(from) => (from, "ASC"),
        Start::Newest => (0, "DESC"),
    };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT cursor, at_ms, kind, session_key, body FROM events WHERE cursor >= ?1 AND (kind = ?2 \
         OR (?3 IS NULL OR session_key = ?3) AND (?4 = '' OR instr(?4, ' ' || kind || ' ') > 0)) \
         ORDER BY cursor {order} LIMIT ?5"
    ))?;
    let limit = i64::try_from(limit).expect("at most PAGE_LIMIT");
    let kinds = if filter.kinds.is_empty() { String::new() } else { format!(" {} ", filter.kinds.join(" ")) };
    let rows = statement.query_map((signed(from), GAP, &filter.session_key, kinds, limit), |row| {
        Ok(Arc::new(KeptEvent {
            number: unsigned(row.get(0)?),
            at: UnixMs(row.get(1)?),
            kind: row.get(2)?,
            session_key: row.get(3)?,
            body: row.get(4)?,
        }))
    })?;
    let events = rows.collect::<rusqlite::Result<_>>()?;
    Ok(EventPage { oldest: oldest(connection, latest)?, latest: unsigned(latest), events })
}

/// A file was opened: tells those who wait where its log begins and ends.
pub(super) fn publish(connection: &Connection, shared: &Shared) {
    // An error shows up again with the first write, where it is reported.
    let latest = latest(connection).unwrap_or(0);
    let oldest = oldest(connection, latest).unwrap_or(0);
    *shared.recent() = Recent::of(oldest, unsigned(latest));
    shared.latest_event.send_replace(unsigned(latest));
}

/// Events were removed.
pub(super) fn publish_oldest(connection: &Connection, shared: &Shared) {
    if let Ok(oldest) = latest(connection).and_then(|latest| oldest(connection, latest)) {
        shared.recent().begins_at(oldest);
    }
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
