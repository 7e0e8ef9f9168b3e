//! Calls of each profile and day, so that a restart does not give anybody a second day's worth.
//!
//! Owner of the count while the daemon runs: `policy`; here it only survives. A crash loses at most
//! what gathered for one batch (100 ms).

use super::Store;
use super::error::StoreError;
use super::time::Day;
use crate::names::ProfileName;
use rusqlite::Transaction;
use std::collections::BTreeMap;

pub(super) type QuotaKey = (ProfileName, Day);

impl Store {
    /// Adds `calls` to what `profile` used on `day`. Never waits for the disk, never lost to a full queue.
    pub fn count_calls(&self, profile: ProfileName, day: Day, calls: u64) {
        self.shared().queue.count((profile, day), calls);
    }

    /// What each profile used on `day`, as far as it was written.
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::Damaged`], [`StoreError::Sql`].
    pub async fn quota_used(&self, day: Day) -> Result<BTreeMap<ProfileName, u64>, StoreError> {
        self.read(move |connection| {
            let mut statement =
                connection.prepare_cached("SELECT profile, calls FROM quota WHERE day = ?1")?;
            let rows = statement.query_map([day.0], |row| {
                let calls: i64 = row.get(1)?;
                Ok((ProfileName::new(row.get::<_, String>(0)?), u64::try_from(calls).unwrap_or(0)))
            })?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
        .await
    }
}

pub(super) fn add(transaction: &Transaction<'_>, used: &BTreeMap<QuotaKey, u64>) -> rusqlite::Result<()> {
    let mut statement = transaction.prepare_cached(
        "INSERT INTO quota VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET calls = calls + excluded.calls",
    )?;
    for ((profile, day), calls) in used {
        statement.execute((profile.as_str(), day.0, i64::try_from(*calls).unwrap_or(i64::MAX)))?;
    }
    Ok(())
}
