//! Which sessions state.db holds: queries on its table `sessions`, built from the columns that are there.
//!
//! Runs on the reader thread, inside one [`Snapshot`]. Promise: memory for what is answered, not
//! for what is searched; a column that an older or newer Hermes Agent lacks is never asked for.

use super::db::Snapshot;
use super::index::{Head, LOCAL_KEY, SessionRow, Tokens};
use super::values::{column, count, number, text};
use rusqlite::{OptionalExtension, Row, params};

/// Sessions whose rows are the index: open ones that carry a session key. `None` if no row at all
/// carries one: then sessions.json is the index.
pub(super) fn keyed(snapshot: &Snapshot<'_>) -> rusqlite::Result<Option<Vec<Head>>> {
    if !any_keyed(snapshot)? {
        return Ok(None);
    }
    let open = if snapshot.sessions.has("ended_at") { "AND s.ended_at IS NULL" } else { "" };
    heads(snapshot, "s.session_key", &format!("s.session_key <> '' {open}")).map(Some)
}

/// All sessions that may be shown, each under a key of its own.
pub(super) fn local(snapshot: &Snapshot<'_>) -> rusqlite::Result<Vec<Head>> {
    if !snapshot.sessions.has("id") {
        return Ok(Vec::new());
    }
    let painted = if snapshot.sessions.has("hidden") { "s.hidden IS NOT 1" } else { "1" };
    heads(snapshot, &format!("'{LOCAL_KEY}' || s.id"), painted)
}

/// Whether any session carries a session key.
pub(super) fn any_keyed(snapshot: &Snapshot<'_>) -> rusqlite::Result<bool> {
    if !snapshot.sessions.has("session_key") {
        return Ok(false);
    }
    let any = "SELECT EXISTS (SELECT 1 FROM sessions WHERE session_key <> '')";
    snapshot.transaction.prepare_cached(any)?.query_row([], |row| row.get(0))
}

fn heads(snapshot: &Snapshot<'_>, key: &str, condition: &str) -> rusqlite::Result<Vec<Head>> {
    let list = ["id", "source", "started_at", "last_activity_at"]
        .map(|name| column(snapshot.sessions, name))
        .join(", ");
    let sql = format!(
        "SELECT s.rowid, {key}, {list}, {} FROM sessions s WHERE {condition}",
        newest_message(snapshot)
    );
    let mut statement = snapshot.transaction.prepare_cached(&sql)?;
    let heads = statement.query_map([], |row| {
        Ok(Head {
            rowid: row.get(0)?,
            session_key: text(row, 1)?.unwrap_or_default(),
            id: text(row, 2)?.unwrap_or_default(),
            source: text(row, 3)?.unwrap_or_default(),
            started_at: number(row, 4)?,
            last_activity_at: number(row, 5)?,
            newest_message_at: number(row, 6)?,
        })
    })?;
    heads.collect()
}

/// The time of a session's newest message: an index from session to time has it without reading one.
fn newest_message(snapshot: &Snapshot<'_>) -> &'static str {
    if snapshot.messages.has("session_id") && snapshot.messages.has("timestamp") {
        "(SELECT max(m.timestamp) FROM messages m WHERE m.session_id = s.id)"
    } else {
        "NULL"
    }
}

const ROW: [&str; 13] = [
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
    "title",
];

fn rows_sql(snapshot: &Snapshot<'_>, condition: &str) -> String {
    let list = ROW.map(|name| column(snapshot.sessions, name)).join(", ");
    format!("SELECT {list}, {} FROM sessions s WHERE {condition}", newest_message(snapshot))
}

/// The row with that row id; `None` if it is gone.
pub(super) fn row(snapshot: &Snapshot<'_>, rowid: i64) -> rusqlite::Result<Option<SessionRow>> {
    let sql = rows_sql(snapshot, "s.rowid = ?1");
    snapshot.transaction.prepare_cached(&sql)?.query_row([rowid], session_row).optional()
}

/// The row of the session `id`, if it may be shown.
pub(super) fn row_of_session(snapshot: &Snapshot<'_>, id: &str) -> rusqlite::Result<Option<SessionRow>> {
    if !snapshot.sessions.has("id") {
        return Ok(None);
    }
    let painted = if snapshot.sessions.has("hidden") { "AND s.hidden IS NOT 1" } else { "" };
    let sql = rows_sql(snapshot, &format!("s.id = ?1 {painted}"));
    snapshot.transaction.prepare_cached(&sql)?.query_row([id], session_row).optional()
}

/// The newest open session with that key.
pub(super) fn row_of_key(snapshot: &Snapshot<'_>, key: &str) -> rusqlite::Result<Option<SessionRow>> {
    if key.is_empty() || !snapshot.sessions.has("session_key") {
        return Ok(None);
    }
    let open = if snapshot.sessions.has("ended_at") { "AND s.ended_at IS NULL" } else { "" };
    let order =
        if snapshot.sessions.has("started_at") { "s.started_at DESC, s.rowid DESC" } else { "s.rowid DESC" };
    let sql = rows_sql(snapshot, &format!("s.session_key = ?1 {open} ORDER BY {order} LIMIT 1"));
    snapshot.transaction.prepare_cached(&sql)?.query_row([key], session_row).optional()
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
        title: text(row, 12)?,
        newest_message_at: number(row, 13)?,
    })
}

/// What the row of `session_id` counted; zero if there is no such row.
pub(super) fn session_tokens(snapshot: &Snapshot<'_>, session_id: &str) -> rusqlite::Result<Tokens> {
    if !snapshot.sessions.has("id") {
        return Ok(Tokens::default());
    }
    let counts = ["input_tokens", "output_tokens"].map(|name| column(snapshot.sessions, name)).join(", ");
    let sql = format!("SELECT {counts} FROM sessions s WHERE s.id = ?1");
    let of_row = |row: &Row<'_>| Ok(Tokens::of_row(count(row, 0)?, count(row, 1)?));
    let tokens =
        snapshot.transaction.prepare_cached(&sql)?.query_row(params![session_id], of_row).optional()?;
    Ok(tokens.unwrap_or_default())
}
