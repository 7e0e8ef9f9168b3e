//! What the watcher asks state.db, built from the columns that are there.
//!
//! Runs on the watch thread, inside one [`Snapshot`]. Promise: memory for one row at a time; short
//! queries by row id. May not touch: what is made of the rows.

use super::super::db::{Columns, Snapshot};
use super::super::events::{self, MessageRow, Shown};
use super::super::local_time;
use super::super::trail::Fate;
use super::super::values::{self, fit};
use crate::store::TrailRow;
use jiff::tz::TimeZone;
use rusqlite::types::ValueRef;
use rusqlite::{OptionalExtension, Row, Statement, params};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// One row with its session.
pub(super) struct Found {
    pub(super) session_id: String,
    pub(super) row: MessageRow,
}

impl Found {
    /// The event under `key`, and what recognises the message later; `None` if people would see nothing.
    pub(super) fn told(&self, key: &str) -> Option<(Map<String, Value>, TrailRow)> {
        let event = events::of_message(key, &self.row)?;
        Some((event, TrailRow { id: self.row.id, digest: digest(&self.row) }))
    }
}

/// What identifies a message by what it says.
fn digest(row: &MessageRow) -> i64 {
    let mut hasher = Sha256::new();
    hasher.update(row.role.as_bytes());
    hasher.update([0]);
    hasher.update(row.content.as_bytes());
    let hash = hasher.finalize();
    i64::from_le_bytes(hash[..8].try_into().expect("a hash has more than 8 bytes"))
}

/// Where the ids of messages stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Newest {
    /// The newest id that was ever given out, as far as the file tells.
    pub(super) given: i64,
    /// Whether ids are never used again.
    pub(super) ids: Ids,
}

/// Whether ids of deleted rows come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ids {
    /// Never: the table counts them.
    Once,
    /// They may.
    Again,
}

/// Where the ids stand; `given` is 0 without messages.
pub(super) fn newest(snapshot: &Snapshot<'_>) -> rusqlite::Result<Newest> {
    if !fit(snapshot.messages)? {
        return Ok(Newest { given: 0, ids: Ids::Once });
    }
    let transaction = &snapshot.transaction;
    let newest: Option<i64> =
        transaction.prepare_cached("SELECT max(id) FROM messages")?.query_row([], |row| row.get(0))?;
    let newest = newest.unwrap_or(0);
    let counts = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_sequence')";
    if !transaction.prepare_cached(counts)?.query_row([], |row| row.get::<_, bool>(0))? {
        return Ok(Newest { given: newest, ids: Ids::Again });
    }
    let counted: Option<i64> = transaction
        .prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'messages'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(Newest { given: newest.max(counted.unwrap_or(0)), ids: Ids::Once })
}

/// `id, session_id, role, content, timestamp, shown` of messages.
fn select(messages: &Columns) -> String {
    let timestamp = if messages.has("timestamp") { "timestamp" } else { "NULL" };
    // Contents of other roles are never looked at, and may be large.
    format!(
        "SELECT id, session_id, role, CASE WHEN role IN ('user', 'assistant') THEN content END, {timestamp}, \
         {} FROM messages",
        shown(messages)
    )
}

fn shown(messages: &Columns) -> String {
    let active = if messages.has("active") { "active = 1" } else { "1" };
    let painted = if messages.has("display_kind") { "display_kind IS NOT 'hidden'" } else { "1" };
    format!("({active} AND {painted})")
}

/// Up to `limit` rows above `after`, by id; `each` gets them one by one. Answers how many there were.
pub(super) fn above(
    snapshot: &Snapshot<'_>,
    after: i64,
    limit: usize,
    mut each: impl FnMut(Found) -> rusqlite::Result<()>,
) -> rusqlite::Result<usize> {
    if !fit(snapshot.messages)? {
        return Ok(0);
    }
    let sql = format!("{} WHERE id > ?1 ORDER BY id LIMIT ?2", select(snapshot.messages));
    let mut statement = snapshot.transaction.prepare_cached(&sql)?;
    run(&mut statement, params![after, i64::try_from(limit).unwrap_or(i64::MAX)], &mut each)
}

/// The rows of one session above `after` up to `to`, by id.
pub(super) fn of_session(
    snapshot: &Snapshot<'_>,
    session_id: &str,
    after: i64,
    to: i64,
    mut each: impl FnMut(Found) -> rusqlite::Result<()>,
) -> rusqlite::Result<usize> {
    let sql = format!(
        "{} WHERE session_id = ?1 AND id > ?2 AND id <= ?3 AND role IN ('user', 'assistant') ORDER BY id",
        select(snapshot.messages)
    );
    let mut statement = snapshot.transaction.prepare_cached(&sql)?;
    run(&mut statement, params![session_id, after, to], &mut each)
}

/// The newest `limit` rows of one session up to `to`, by id.
pub(super) fn tail(
    snapshot: &Snapshot<'_>,
    session_id: &str,
    to: i64,
    limit: usize,
    mut each: impl FnMut(Found) -> rusqlite::Result<()>,
) -> rusqlite::Result<usize> {
    let sql = format!(
        "{} WHERE id IN (SELECT id FROM messages WHERE session_id = ?1 AND id <= ?2 ORDER BY id DESC LIMIT ?3) \
         ORDER BY id",
        select(snapshot.messages)
    );
    let mut statement = snapshot.transaction.prepare_cached(&sql)?;
    run(&mut statement, params![session_id, to, i64::try_from(limit).unwrap_or(i64::MAX)], &mut each)
}

fn run(
    statement: &mut Statement<'_>,
    params: impl rusqlite::Params,
    each: &mut impl FnMut(Found) -> rusqlite::Result<()>,
) -> rusqlite::Result<usize> {
    let mut rows = statement.query(params)?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        count += 1;
        each(found(row)?)?;
    }
    Ok(count)
}

fn found(row: &Row<'_>) -> rusqlite::Result<Found> {
    let shown = row.get::<_, Option<bool>>(5)?.unwrap_or(false);
    Ok(Found {
        session_id: text(row, 1)?,
        row: MessageRow {
            id: row.get(0)?,
            role: text(row, 2)?,
            content: text(row, 3)?,
            timestamp: seconds(row, 4)?,
            shown: if shown { Shown::Yes } else { Shown::No },
        },
    })
}

/// What became of a message that was told.
pub(super) fn fate(snapshot: &Snapshot<'_>, session_id: &str, id: i64) -> rusqlite::Result<Fate> {
    let messages = &snapshot.messages;
    if !fit(messages)? {
        return Ok(Fate::Gone);
    }
    let compacted = if messages.has("compacted") { "ifnull(compacted, 0) <> 0" } else { "0" };
    let sql =
        format!("SELECT {}, {compacted} FROM messages WHERE id = ?1 AND session_id = ?2", shown(messages));
    let mut statement = snapshot.transaction.prepare_cached(&sql)?;
    let found = statement
        .query_row(params![id, session_id], |row| Ok((row.get::<_, Option<bool>>(0)?, row.get(1)?)))
        .optional()?;
    Ok(match found {
        None => Fate::Gone,
        Some((Some(true), _)) => Fate::Shown,
        // Summarised: what stays of it is stored again.
        Some((_, true)) => Fate::Gone,
        Some((_, false)) => Fate::TakenBack,
    })
}

/// The conversation that the session's own row names.
pub(super) fn session_key(snapshot: &Snapshot<'_>, session_id: &str) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT session_key FROM sessions WHERE id = ?1 AND session_key <> ''";
    snapshot.transaction.prepare_cached(sql)?.query_row([session_id], |row| row.get(0)).optional()
}

/// The session that this one continues.
pub(super) fn parent(snapshot: &Snapshot<'_>, session_id: &str) -> rusqlite::Result<Option<String>> {
    if !snapshot.sessions.has("parent_session_id") {
        return Ok(None);
    }
    let sql = "SELECT parent_session_id FROM sessions WHERE id = ?1 AND parent_session_id <> ''";
    snapshot.transaction.prepare_cached(sql)?.query_row([session_id], |row| row.get(0)).optional()
}

/// Whether rows of sessions name conversations at all; else sessions.json does.
pub(super) fn rows_name_keys(snapshot: &Snapshot<'_>) -> rusqlite::Result<bool> {
    let any = "SELECT EXISTS (SELECT 1 FROM sessions WHERE session_key <> '')";
    snapshot.transaction.prepare_cached(any)?.query_row([], |row| row.get(0))
}

fn text(row: &Row<'_>, index: usize) -> rusqlite::Result<String> {
    values::text(row, index).map(Option::unwrap_or_default)
}

/// Epoch seconds; older writers stored texts, of a number or in ISO form.
fn seconds(row: &Row<'_>, index: usize) -> rusqlite::Result<f64> {
    Ok(match row.get_ref(index)? {
        ValueRef::Integer(number) => number as f64,
        ValueRef::Real(number) => number,
        ValueRef::Text(bytes) => std::str::from_utf8(bytes).ok().and_then(spelled).unwrap_or(0.0),
        ValueRef::Null | ValueRef::Blob(_) => 0.0,
    })
}

fn spelled(text: &str) -> Option<f64> {
    text.trim().parse().ok().or_else(|| local_time::epoch(text, &TimeZone::system()))
}
