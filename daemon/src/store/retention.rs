//! What is removed from hermesd.db by age or number, a little at a time.
//!
//! Pure decisions over a connection: the clock comes in. Promise: one step is short enough that an
//! order behind it does not notice.

use super::time::UnixMs;
use rusqlite::{Connection, TransactionBehavior};
use std::time::Duration;

/// Rows that one step removes from one table.
const STEP_ROWS: i64 = 500;
/// Pages that one step gives back to the disk.
const STEP_PAGES: i64 = 64;
/// Audit rows kept in memory when there is no disk.
const MEMORY_AUDIT_ROWS: u64 = 20_000;
/// Events kept in memory when there is no disk.
const MEMORY_EVENTS: u64 = 5_000;
/// Days of quota kept.
const QUOTA_DAYS: i64 = 400;

/// How long things are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Age of the oldest audit row.
    pub audit_for: Duration,
    /// Most audit rows, whatever their age.
    pub audit_rows: u64,
    /// Age of the oldest event.
    pub events_for: Duration,
    /// Most events, whatever their age.
    pub events: u64,
}

impl Default for Retention {
    fn default() -> Self {
        let days = |n: u64| Duration::from_secs(n * 24 * 60 * 60);
        Self { audit_for: days(30), audit_rows: 10_000_000, events_for: days(30), events: 100_000 }
    }
}

impl Retention {
    /// The default, with audit rows kept for `days`.
    pub fn with_audit_days(days: u32) -> Self {
        Self { audit_for: Duration::from_secs(u64::from(days) * 24 * 60 * 60), ..Self::default() }
    }

    pub(super) fn for_memory(self) -> Self {
        Self {
            audit_rows: self.audit_rows.min(MEMORY_AUDIT_ROWS),
            events: self.events.min(MEMORY_EVENTS),
            ..self
        }
    }
}

/// What one step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Removed so many; another step may find more.
    Removed(usize),
    /// There was nothing to remove.
    Done,
}

/// Removes at most [`STEP_ROWS`] for each reason.
pub(super) fn step(connection: &mut Connection, keep: Retention, now: UnixMs) -> rusqlite::Result<Step> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let audit = transaction.execute(
        "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE at_ms < ?1 ORDER BY at_ms LIMIT ?2)",
        (now.minus(keep.audit_for).0, STEP_ROWS),
    )?;
    let surplus = transaction.execute(
        "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?1 \
         ORDER BY id LIMIT ?2)",
        (count(keep.audit_rows), STEP_ROWS),
    )?;
    // Events go by their number only, oldest first, so that no gap opens in the middle when a clock
    // was set back.
    let fresh: Option<i64> = transaction.query_row(
        "SELECT min(cursor) FROM (SELECT cursor, at_ms FROM events ORDER BY cursor LIMIT ?2) WHERE at_ms >= ?1",
        (now.minus(keep.events_for).0, STEP_ROWS + 1),
        |row| row.get(0),
    )?;
    let events = transaction.execute(
        "DELETE FROM events WHERE cursor IN (SELECT cursor FROM events WHERE cursor < ifnull(?1, 9e18) \
         OR cursor <= (SELECT max(cursor) FROM events) - ?2 ORDER BY cursor LIMIT ?3)",
        (fresh, count(keep.events), STEP_ROWS),
    )?;
    transaction.execute("DELETE FROM quota WHERE day < ?1", [now.0 / 86_400_000 - QUOTA_DAYS])?;
    transaction.commit()?;
    let removed = audit + surplus + events;
    if removed == 0 {
        return Ok(Step::Done);
    }
    connection.execute_batch(&format!("PRAGMA incremental_vacuum({STEP_PAGES})"))?;
    Ok(Step::Removed(removed))
}
