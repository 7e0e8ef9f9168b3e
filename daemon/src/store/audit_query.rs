//! Reading audit rows: filters, pages, following.
//!
//! Promise: pages are in order of writing; following answers every row that matches, once.

use super::Store;
use super::audit::{Arguments, Caller, Decision};
use super::error::StoreError;
use super::time::UnixMs;
use crate::names::{ProfileName, ServerName};
use rusqlite::types::Value;
use rusqlite::{Connection, Row};
use std::borrow::Cow;
use std::time::Duration;
use tokio::sync::watch;

/// Most rows of one answer.
pub const QUERY_LIMIT: usize = 1000;

/// Which rows are wanted. The default is the newest [`QUERY_LIMIT`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// Only this server.
    pub server: Option<ServerName>,
    /// Only this tool, by raw name.
    pub tool: Option<String>,
    /// Only clients of this name.
    pub client: Option<String>,
    /// Only this profile.
    pub profile: Option<ProfileName>,
    /// Only this outcome.
    pub outcome: Option<String>,
    /// Only the call with this trace id.
    pub trace_id: Option<String>,
    /// Not before.
    pub since: Option<UnixMs>,
    /// Not at or after.
    pub until: Option<UnixMs>,
    /// The rows after this id, oldest first; without it the newest rows, also in order of writing.
    pub after: Option<i64>,
    /// At most so many, 1 to [`QUERY_LIMIT`]; `None`: [`QUERY_LIMIT`].
    pub limit: Option<usize>,
}

/// One stored row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// Rises with each row, never reused.
    pub id: i64,
    /// When the call came.
    pub at: UnixMs,
    /// Until its outcome was known.
    pub duration: Duration,
    /// Who called.
    pub caller: Caller,
    /// `tools/call`, …
    pub method: String,
    /// The server.
    pub server: ServerName,
    /// Raw name of the tool.
    pub tool: Option<String>,
    /// Its arguments, as far as they were recorded.
    pub arguments: Arguments,
    /// Trace id.
    pub trace_id: String,
    /// Kind of the outcome.
    pub outcome: String,
    /// Whether the server may have acted, where that is in doubt.
    pub delivery: Option<String>,
    /// What the steps decided.
    pub decisions: Vec<Decision>,
}

/// Rows as they come. Made by [`Store::follow_audit`].
#[derive(Debug)]
pub struct AuditFollow {
    store: Store,
    query: AuditQuery,
    newest: watch::Receiver<i64>,
    /// Everything up to here was answered or does not match.
    seen: i64,
}

impl Store {
    /// The rows that `query` wants, in order of writing.
    ///
    /// Rows of the last 100 ms may still wait for their batch.
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::Damaged`], [`StoreError::Sql`].
    pub async fn audit(&self, query: AuditQuery) -> Result<Vec<AuditEntry>, StoreError> {
        self.read(move |connection| Ok(select(connection, &query, i64::MAX)?)).await
    }

    /// Rows that match `query`, from `query.after` on, or from now on without it.
    pub fn follow_audit(&self, query: AuditQuery) -> AuditFollow {
        let newest = self.shared().newest_audit.subscribe();
        let seen = query.after.unwrap_or(*newest.borrow());
        AuditFollow { store: self.clone(), query, newest, seen }
    }
}

impl AuditFollow {
    /// The id after which rows are still to come from here.
    pub fn seen(&self) -> i64 {
        self.seen
    }

    /// Waits for the next rows that match; never empty.
    ///
    /// # Errors
    /// As [`Store::audit`]; calling again goes on where it was. [`StoreError::Closed`] at the end.
    /// # Cancel safety
    /// Cancel safe: no row is lost.
    pub async fn next(&mut self) -> Result<Vec<AuditEntry>, StoreError> {
        loop {
            let seen = self.seen;
            let newest = tokio::select! {
                newest = self.newest.wait_for(|newest| *newest > seen) => {
                    *newest.map_err(|_| StoreError::Closed)?
                }
                _ = self.store.ended() => return Err(StoreError::Closed),
            };
            let query = AuditQuery { after: Some(self.seen), ..self.query.clone() };
            let limit = query.limit();
            let rows = self.store.read(move |connection| Ok(select(connection, &query, newest)?)).await?;
            self.seen = match rows.last() {
                // A full page may have more behind it below `newest`.
                Some(last) if rows.len() >= limit => last.id,
                Some(_) | None => newest,
            };
            if !rows.is_empty() {
                return Ok(rows);
            }
        }
    }
}

impl AuditQuery {
    fn limit(&self) -> usize {
        self.limit.unwrap_or(QUERY_LIMIT).clamp(1, QUERY_LIMIT)
    }

    /// The conditions and their values.
    fn conditions(&self, up_to: i64) -> (String, Vec<Value>) {
        let text = |text: &str| Value::Text(text.to_owned());
        let wanted = [
            ("server = ?", self.server.as_ref().map(|server| text(server.as_str()))),
            ("tool = ?", self.tool.as_deref().map(text)),
            ("client = ?", self.client.as_deref().map(text)),
            ("profile = ?", self.profile.as_ref().map(|profile| text(profile.as_str()))),
            ("outcome = ?", self.outcome.as_deref().map(text)),
            ("trace_id = ?", self.trace_id.as_deref().map(text)),
            ("at_ms >= ?", self.since.map(|since| Value::Integer(since.0))),
            ("at_ms < ?", self.until.map(|until| Value::Integer(until.0))),
            ("id > ?", self.after.map(Value::Integer)),
            ("id <= ?", Some(Value::Integer(up_to))),
        ];
        let (conditions, values): (Vec<&str>, Vec<Value>) =
            wanted.into_iter().filter_map(|(condition, value)| Some((condition, value?))).unzip();
        (conditions.join(" AND "), values)
    }
}

fn select(connection: &Connection, query: &AuditQuery, up_to: i64) -> rusqlite::Result<Vec<AuditEntry>> {
    let (conditions, mut values) = query.conditions(up_to);
    let newest_first = query.after.is_none();
    let order = if newest_first { "DESC" } else { "ASC" };
    values.push(Value::Integer(i64::try_from(query.limit()).expect("at most QUERY_LIMIT")));
    let mut statement = connection.prepare_cached(&format!(
        "SELECT id, at_ms, duration_us, uid, pid, executable, profile, client, client_version, method, server, \
         tool, arguments_hash, arguments, trace_id, outcome, delivery, decisions \
         FROM audit WHERE {conditions} ORDER BY id {order} LIMIT ?"
    ))?;
    let rows = statement.query_map(rusqlite::params_from_iter(values), entry)?;
    let mut entries = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    if newest_first {
        entries.reverse();
    }
    Ok(entries)
}

fn entry(row: &Row<'_>) -> rusqlite::Result<AuditEntry> {
    let arguments = match (row.get::<_, Option<[u8; 32]>>(12)?, row.get::<_, Option<String>>(13)?) {
        (_, Some(text)) => Arguments::Full(text),
        (Some(hash), None) => Arguments::Hash(hash),
        (None, None) => Arguments::Off,
    };
    let decisions: String = row.get(17)?;
    // Only `audit::insert` writes the column; what cannot be read is shown as no decision.
    let decisions: Vec<(String, String)> = serde_json::from_str(&decisions).unwrap_or_default();
    Ok(AuditEntry {
        id: row.get(0)?,
        at: UnixMs(row.get(1)?),
        duration: Duration::from_micros(u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0)),
        caller: Caller {
            uid: row.get(3)?,
            pid: row.get(4)?,
            executable: row.get(5)?,
            profile: ProfileName::new(row.get::<_, String>(6)?),
            name: row.get(7)?,
            version: row.get(8)?,
        },
        method: row.get(9)?,
        server: ServerName::new(row.get::<_, String>(10)?),
        tool: row.get(11)?,
        arguments,
        trace_id: row.get(14)?,
        outcome: row.get(15)?,
        delivery: row.get(16)?,
        decisions: decisions
            .into_iter()
            .map(|(step, said)| Decision { step: Cow::Owned(step), said: Cow::Owned(said) })
            .collect(),
    })
}
