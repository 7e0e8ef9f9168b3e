//! Audit rows: who called what, when, with which outcome.
//!
//! Promise: a row that was queued is written in one of the next batches, also when the file is locked
//! meanwhile; following misses no row. Texts come redacted; nothing here looks into them.
//! May not touch: what is allowed.

use super::time::UnixMs;
use super::{Recorded, Shared, Store};
use crate::config::AuditArguments;
use crate::names::{ProfileName, ServerName};
use crate::redact::{Redactor, Scope};
use rusqlite::{Connection, OptionalExtension, Transaction};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// Longest stored text of arguments, in bytes. What is cut ends in [`CUT`].
pub const ARGUMENTS_LIMIT: usize = 16 << 10;
/// Mark of a cut text.
pub const CUT: &str = "…[cut]";

/// Who called. Made once for a client and shared by its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// User id, from the kernel; `None` over HTTP.
    pub uid: Option<u32>,
    /// Process id of the shim, from the kernel; `None` over HTTP.
    pub pid: Option<u32>,
    /// Executable of the process that started the shim, if it could be read.
    pub executable: Option<String>,
    /// Its profile.
    pub profile: ProfileName,
    /// `clientInfo.name`.
    pub name: Option<String>,
    /// `clientInfo.version`.
    pub version: Option<String>,
}

/// The arguments, as far as the configuration wants them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arguments {
    /// Not recorded.
    Off,
    /// SHA-256 of the arguments as sent.
    Hash([u8; 32]),
    /// The redacted text; stored up to [`ARGUMENTS_LIMIT`].
    Full(String),
}

impl Arguments {
    /// `text`, as far as `how` wants it. Costs as much as masking the whole of it.
    pub fn of(how: AuditArguments, text: &str, redactor: &Redactor) -> Self {
        match how {
            AuditArguments::Off => Self::Off,
            AuditArguments::Hash => Self::Hash(Sha256::digest(text.as_bytes()).into()),
            AuditArguments::Full => Self::Full(redactor.redact_json(text, Scope::Patterns).into_owned()),
        }
    }
}

/// One step of the path of a call that decided something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Name of the step, e.g. `approval`.
    pub step: Cow<'static, str>,
    /// What it said, e.g. `allow-once`.
    pub said: Cow<'static, str>,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// When it came.
    pub at: UnixMs,
    /// Until its outcome was known.
    pub duration: Duration,
    /// Who.
    pub caller: Arc<Caller>,
    /// `tools/call`, `resources/read`, …
    pub method: Cow<'static, str>,
    /// The server; `hermes` for the built-in one.
    pub server: ServerName,
    /// Raw name of the tool or prompt, or the URI; `None` where there is none.
    pub tool: Option<Arc<str>>,
    /// With what.
    pub arguments: Arguments,
    /// Trace id, 32 hex digits.
    pub trace_id: String,
    /// Kind of the outcome: `ok`, `tool_error`, or the kind of a refusal or failure.
    pub outcome: Cow<'static, str>,
    /// Whether the server may have acted, where that is in doubt.
    pub delivery: Option<Cow<'static, str>>,
    /// What the steps decided, in their order.
    pub decisions: Vec<Decision>,
}

impl AuditRow {
    /// Roughly the memory it takes while it waits.
    pub(super) fn bytes(&self) -> usize {
        let text = match &self.arguments {
            Arguments::Full(text) => text.len().min(ARGUMENTS_LIMIT + CUT.len()),
            Arguments::Off | Arguments::Hash(_) => 0,
        };
        size_of::<Self>() + text + self.trace_id.len() + self.decisions.len() * size_of::<Decision>()
    }
}

impl Store {
    /// Queues `row` for the next batch. Never waits for the disk; costs less than a microsecond.
    ///
    /// A full lane drops the row and counts it: a locked disk must not hold up calls.
    pub fn record(&self, mut row: AuditRow) -> Recorded {
        if let Arguments::Full(text) = &mut row.arguments
            && text.len() > ARGUMENTS_LIMIT
        {
            text.truncate(text.floor_char_boundary(ARGUMENTS_LIMIT));
            text.push_str(CUT);
            text.shrink_to_fit();
        }
        self.shared().queue.record(row)
    }
}

/// Writes `rows`; answers the newest id.
pub(super) fn insert(transaction: &Transaction<'_>, rows: &[AuditRow]) -> rusqlite::Result<Option<i64>> {
    let mut statement = transaction.prepare_cached(
        "INSERT INTO audit (at_ms, duration_us, uid, pid, executable, profile, client, client_version, method, \
         server, tool, arguments_hash, arguments, trace_id, outcome, delivery, decisions) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
    )?;
    let mut newest = None;
    for row in rows {
        let (hash, text) = match &row.arguments {
            Arguments::Off => (None, None),
            Arguments::Hash(hash) => (Some(hash.as_slice()), None),
            Arguments::Full(text) => (None, Some(text.as_str())),
        };
        statement.execute(rusqlite::params![
            row.at.0,
            i64::try_from(row.duration.as_micros()).unwrap_or(i64::MAX),
            row.caller.uid,
            row.caller.pid,
            row.caller.executable,
            row.caller.profile.as_str(),
            row.caller.name,
            row.caller.version,
            row.method,
            row.server.as_str(),
            row.tool.as_deref(),
            hash,
            text,
            row.trace_id,
            row.outcome,
            row.delivery,
            decisions_text(&row.decisions),
        ])?;
        newest = Some(transaction.last_insert_rowid());
    }
    Ok(newest)
}

/// `[["validate","ok"],["approval","allow-once"]]`.
fn decisions_text(decisions: &[Decision]) -> String {
    if decisions.is_empty() {
        return "[]".to_owned();
    }
    let pairs: Vec<(&str, &str)> =
        decisions.iter().map(|decision| (&*decision.step, &*decision.said)).collect();
    serde_json::to_string(&pairs).expect("pairs of texts are JSON")
}

/// Tells followers where the table ends.
pub(super) fn publish_newest(connection: &Connection, shared: &Shared) {
    let newest = connection
        .query_row("SELECT seq FROM sqlite_sequence WHERE name = 'audit'", [], |row| row.get(0))
        .optional();
    // An error shows up again with the first write, where it is reported.
    shared.newest_audit.send_replace(newest.ok().flatten().unwrap_or(0));
}
