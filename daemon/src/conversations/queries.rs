//! Every query on state.db, built from the columns that are there.
//!
//! Runs on the reader thread, inside one [`Snapshot`]. Promise: memory for what is answered, not
//! for what is searched; a column that an older or newer Hermes Agent lacks is never asked for.

use super::content::{self, Content};
use super::db::{Columns, Snapshot};
use super::index::{SessionRow, Tokens};
use super::messages::{self, Message, Tail};
use rusqlite::types::ValueRef;
use rusqlite::{OptionalExtension, Row, params};
use serde_json::Value;

/// Open sessions that carry a session key, by start, newest first; only those of `key` if it is given.
/// `None` if no row at all carries one: then sessions.json is the index.
pub(super) fn keyed_sessions(
    snapshot: &Snapshot<'_>,
    key: Option<&str>,
) -> rusqlite::Result<Option<Vec<SessionRow>>> {
    let columns = &snapshot.sessions;
    if !columns.has("session_key") {
        return Ok(None);
    }
    let any = "SELECT EXISTS (SELECT 1 FROM sessions WHERE session_key <> '')";
    if !snapshot.transaction.query_row(any, [], |row| row.get::<_, bool>(0))? {
        return Ok(None);
    }
    let newest = if snapshot.messages.has("session_id") && snapshot.messages.has("timestamp") {
        "(SELECT max(m.timestamp) FROM messages m WHERE m.session_id = s.id)"
    } else {
        "NULL"
    };
    let list = [
        "id",
        "source",
        "session_key",
        "chat_id",
        "chat_type",
        "thread_id",
        "display_name",
        "origin_json",
        "started_at",
        "last_activity_at",
        "input_tokens",
        "output_tokens",
    ]
    .map(|name| column(columns, name))
    .join(", ");
    let open = if columns.has("ended_at") { "AND s.ended_at IS NULL" } else { "" };
    let order = if columns.has("started_at") { "s.started_at DESC, s.rowid DESC" } else { "s.rowid DESC" };
    let sql = format!(
        "SELECT {list}, {newest} FROM sessions s
         WHERE s.session_key <> '' AND (?1 IS NULL OR s.session_key = ?1) {open} ORDER BY {order}"
    );
    let mut statement = snapshot.transaction.prepare(&sql)?;
    let rows = statement.query_map(params![key], session_row)?;
    rows.collect::<rusqlite::Result<_>>().map(Some)
}

fn session_row(row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    Ok(SessionRow {
        id: text(row, 0)?.unwrap_or_default(),
        source: text(row, 1)?.unwrap_or_default(),
        session_key: text(row, 2)?.unwrap_or_default(),
        chat_id: text(row, 3)?,
        chat_type: text(row, 4)?,
        thread_id: text(row, 5)?,
        display_name: text(row, 6)?,
        origin_json: text(row, 7)?,
        started_at: number(row, 8)?,
        last_activity_at: number(row, 9)?,
        tokens: Tokens::of_row(count(row, 10)?, count(row, 11)?),
        newest_message_at: number(row, 12)?,
    })
}

/// What the row of `session_id` counted; zero if there is no such row.
pub(super) fn session_tokens(snapshot: &Snapshot<'_>, session_id: &str) -> rusqlite::Result<Tokens> {
    let columns = &snapshot.sessions;
    if !columns.has("id") {
        return Ok(Tokens::default());
    }
    let (input, output) = (column(columns, "input_tokens"), column(columns, "output_tokens"));
    let sql = format!("SELECT {input}, {output} FROM sessions s WHERE s.id = ?1");
    let tokens = snapshot
        .transaction
        .query_row(&sql, [session_id], |row| Ok(Tokens::of_row(count(row, 0)?, count(row, 1)?)))
        .optional()?;
    Ok(tokens.unwrap_or_default())
}

/// How many messages a person would read in `session_id`, and the newest `limit`, oldest first.
pub(super) fn tail(
    snapshot: &Snapshot<'_>,
    session_id: &str,
    limit: usize,
) -> rusqlite::Result<(usize, Vec<Message>)> {
    if !snapshot.messages.has("content") {
        return Ok((0, Vec::new()));
    }
    let (total, ids) = readable(snapshot, session_id, limit)?;
    let mut statement =
        snapshot.transaction.prepare("SELECT role, content, timestamp FROM messages WHERE id = ?1")?;
    let messages = ids
        .into_iter()
        .map(|id| {
            statement.query_row([id], |row| {
                let content = Content::decode(&text(row, 1)?.unwrap_or_default());
                Ok(Message {
                    id: id.to_string(),
                    role: text(row, 0)?.unwrap_or_default(),
                    content: messages::cut(content.text()),
                    timestamp: scalar(row, 2)?,
                })
            })
        })
        .collect::<rusqlite::Result<_>>()?;
    Ok((total, messages))
}

/// Counts the messages with text and finds the ids of the newest. Only contents that are JSON are
/// looked into, one at a time: they may have no text at all.
fn readable(snapshot: &Snapshot<'_>, session_id: &str, limit: usize) -> rusqlite::Result<(usize, Vec<i64>)> {
    let shown = shown(&snapshot.messages);
    // Comparisons see the whole text; substr() and length() of SQLite end at the NUL of the mark.
    let sql = format!(
        "SELECT id, CASE WHEN content >= ?2 AND content < ?3 THEN content END FROM messages
         WHERE session_id = ?1 AND role IN ('user', 'assistant') AND octet_length(content) > 0 {shown}"
    );
    let mut statement = snapshot.transaction.prepare(&sql)?;
    let mut rows = statement.query(params![session_id, content::JSON_MARK, content::JSON_MARK_END])?;
    let mut tail = Tail::new(limit);
    while let Some(row) = rows.next()? {
        let has_text = text(row, 1)?.is_none_or(|json| content::has_text(&json));
        if has_text {
            tail.push(row.get(0)?);
        }
    }
    Ok(tail.finish())
}

/// The content of one message of `session_id`, whoever wrote it; `None` if there is no such message.
pub(super) fn message_content(
    snapshot: &Snapshot<'_>,
    session_id: &str,
    id: i64,
) -> rusqlite::Result<Option<Content>> {
    if !snapshot.messages.has("content") {
        return Ok(None);
    }
    let shown = shown(&snapshot.messages);
    let sql = format!("SELECT content FROM messages WHERE id = ?1 AND session_id = ?2 {shown}");
    snapshot
        .transaction
        .query_row(&sql, params![id, session_id], |row| {
            Ok(Content::decode(&text(row, 0)?.unwrap_or_default()))
        })
        .optional()
}

/// Leaves out what was taken back or summarised away, and what is never painted for people.
fn shown(columns: &Columns) -> String {
    let active = if columns.has("active") { "AND active = 1 " } else { "" };
    let painted = if columns.has("display_kind") { "AND display_kind IS NOT 'hidden'" } else { "" };
    format!("{active}{painted}")
}

fn column(columns: &Columns, name: &str) -> String {
    if columns.has(name) { format!("s.{name}") } else { "NULL".to_owned() }
}

/// Any scalar as text; bytes that are no UTF-8 are replaced, a bad byte must not hide a message.
fn text(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<String>> {
    Ok(match row.get_ref(index)? {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
    })
}

fn number(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<f64>> {
    Ok(match row.get_ref(index)? {
        ValueRef::Integer(number) => Some(number as f64),
        ValueRef::Real(number) => Some(number),
        ValueRef::Text(bytes) => std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()),
        ValueRef::Null | ValueRef::Blob(_) => None,
    })
}

fn count(row: &Row<'_>, index: usize) -> rusqlite::Result<i64> {
    Ok(number(row, index)?.map_or(0, |number| number as i64))
}

/// A stored time as it is: the column takes texts too.
fn scalar(row: &Row<'_>, index: usize) -> rusqlite::Result<Value> {
    Ok(match row.get_ref(index)? {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::from(number),
        ValueRef::Real(number) => Value::from(number),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Value::from(String::from_utf8_lossy(bytes)),
    })
}
