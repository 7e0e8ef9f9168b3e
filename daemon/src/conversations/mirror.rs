//! The one writer of state.db: what was sent is added to the session it belongs to.
//!
//! Promise: one row in one short transaction, and only where every column is understood; nothing else of
//! the file is changed, no checkpoint is made, no schema touched. A busy database is waited for a few
//! seconds, off the runtime. May not touch: sessions.json, which is only read.

use super::index;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Transaction, TransactionBehavior};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// Longest wait for another writer.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// Columns of `messages` that the row fills.
const FILLED: [&str; 4] = ["session_id", "role", "content", "timestamp"];

/// What was sent, and where.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    /// The platform's name.
    pub(super) platform: &'static str,
    /// Its id of the chat.
    pub(super) chat_id: String,
    /// The thread; `None`: any session of the chat.
    pub(super) thread_id: Option<String>,
    /// The text.
    pub(super) text: String,
    /// When, in seconds since 1970.
    pub(super) at: f64,
}

/// Why there is no row.
#[derive(Debug, thiserror::Error)]
pub(super) enum MirrorError {
    /// No session, or no single one, belongs to the chat.
    #[error("no session of Hermes Agent belongs to this chat")]
    NoSession,
    /// The file has columns that must be filled and that nobody here knows.
    #[error("state.db has a schema that hermesd does not understand: {0}")]
    NotUnderstood(String),
    /// Another process kept writing.
    #[error("state.db is locked by another process")]
    Locked,
    /// SQLite refused.
    #[error("state.db was not written: {0}")]
    Sql(#[source] rusqlite::Error),
}

impl From<rusqlite::Error> for MirrorError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked,
            _ => Self::Sql(error),
        }
    }
}

/// Adds `sent` to its session, as the assistant's words. Blocks, at most a little over [`LOCK_WAIT`].
///
/// # Errors
/// [`MirrorError`]; then the file is as it was.
pub(super) fn write(home: &Path, sent: &Sent) -> Result<(), MirrorError> {
    let file = home.join("state.db");
    if !file.exists() {
        return Err(MirrorError::NoSession);
    }
    // No CREATE: a file that was just taken away must not come back empty.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(file, flags)?;
    connection.busy_timeout(LOCK_WAIT)?;
    // Checkpoints are Hermes Agent's business; the log file stays for it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    let listed = std::fs::read_to_string(home.join("sessions/sessions.json")).ok();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    understood(&transaction)?;
    let session = match by_row(&transaction, sent)? {
        Looked::Found(session) => session,
        // As the reference: the older index decides only where no row does.
        Looked::NoRow => {
            listed.as_deref().and_then(|json| by_index(json, sent)).ok_or(MirrorError::NoSession)?
        }
        Looked::SeveralPeople => return Err(MirrorError::NoSession),
    };
    let open = transaction
        .query_row("SELECT 1 FROM sessions WHERE id = ?1", [&session], |_| Ok(()))
        .optional()?
        .is_some();
    if !open {
        return Err(MirrorError::NoSession);
    }
    transaction.execute(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?1, 'assistant', ?2, ?3)",
        (&session, &sent.text, sent.at),
    )?;
    if columns(&transaction, "sessions")?.contains("message_count") {
        transaction
            .execute("UPDATE sessions SET message_count = message_count + 1 WHERE id = ?1", [&session])?;
    }
    transaction.commit()?;
    Ok(())
}

fn columns(connection: &Connection, table: &str) -> rusqlite::Result<BTreeSet<String>> {
    let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
    let names = statement.query_map([table], |row| row.get(0))?;
    names.collect()
}

/// Every column that the row fills is there, and no other has to be filled.
fn understood(connection: &Connection) -> Result<(), MirrorError> {
    let found = columns(connection, "messages")?;
    if let Some(missing) = FILLED.iter().find(|name| !found.contains(**name)) {
        return Err(MirrorError::NotUnderstood(format!("messages has no column {missing}")));
    }
    if !columns(connection, "sessions")?.contains("id") {
        return Err(MirrorError::NotUnderstood("sessions has no column id".to_owned()));
    }
    let mut statement = connection.prepare(
        "SELECT name FROM pragma_table_info('messages') WHERE \"notnull\" AND dflt_value IS NULL AND NOT pk",
    )?;
    let needed = statement.query_map([], |row| row.get::<_, String>(0))?;
    for name in needed {
        let name = name?;
        if !FILLED.contains(&name.as_str()) {
            return Err(MirrorError::NotUnderstood(format!("messages.{name} must be filled")));
        }
    }
    Ok(())
}

/// What the rows say about a chat.
enum Looked {
    Found(String),
    NoRow,
    /// Sessions of different people in one chat: whose it was cannot be known.
    SeveralPeople,
}

/// The newest open session of the chat, for homes whose rows say where they come from.
fn by_row(transaction: &Transaction<'_>, sent: &Sent) -> rusqlite::Result<Looked> {
    let found = columns(transaction, "sessions")?;
    if !["source", "session_key", "chat_id", "started_at"].iter().all(|name| found.contains(*name)) {
        return Ok(Looked::NoRow);
    }
    let optional = |name: &str| if found.contains(name) { name.to_owned() } else { "NULL".to_owned() };
    let sql = format!(
        "SELECT id, {user} FROM sessions WHERE lower(source) = ?1 AND session_key IS NOT NULL AND chat_id = ?2
         AND {ended} IS NULL AND (?3 IS NULL OR coalesce({thread}, '') = ?3) ORDER BY started_at DESC",
        user = optional("user_id"),
        ended = optional("ended_at"),
        thread = optional("thread_id"),
    );
    let mut statement = transaction.prepare(&sql)?;
    let rows = statement.query_map((sent.platform, &sent.chat_id, &sent.thread_id), |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?.unwrap_or_default()))
    })?;
    let rows: Vec<(String, String)> = rows.collect::<rusqlite::Result<_>>()?;
    let people = rows.iter().map(|(_, user)| user.trim()).filter(|user| !user.is_empty());
    if people.collect::<BTreeSet<_>>().len() > 1 {
        return Ok(Looked::SeveralPeople);
    }
    Ok(rows.into_iter().next().map_or(Looked::NoRow, |(id, _)| Looked::Found(id)))
}

/// The same by sessions.json.
fn by_index(json: &str, sent: &Sent) -> Option<String> {
    let entries: Map<String, Value> = serde_json::from_str(json.trim_start_matches('\u{feff}')).ok()?;
    let none = Map::new();
    let mut found: Vec<(String, String, String)> = Vec::new();
    for (_, entry) in entries.iter().filter(|(key, _)| !key.starts_with('_')) {
        let Some(entry) = entry.as_object() else { continue };
        let origin = entry.get("origin").and_then(Value::as_object).unwrap_or(&none);
        let text = |map: &Map<String, Value>, name: &str| index::text(map, name, "").unwrap_or_default();
        let platform = Some(text(origin, "platform")).filter(|name| !name.is_empty());
        let fits = platform.unwrap_or_else(|| text(entry, "platform")).to_lowercase() == sent.platform
            && text(origin, "chat_id") == sent.chat_id
            && sent.thread_id.as_ref().is_none_or(|thread| text(origin, "thread_id") == *thread);
        if fits {
            found.push((text(entry, "updated_at"), text(entry, "session_id"), text(origin, "user_id")));
        }
    }
    let people: BTreeSet<&str> =
        found.iter().map(|(_, _, user)| user.trim()).filter(|user| !user.is_empty()).collect();
    if people.len() > 1 {
        return None;
    }
    found.into_iter().max().map(|(_, session, _)| session).filter(|session| !session.is_empty())
}

#[cfg(test)]
#[path = "mirror_tests.rs"]
mod tests;
