//! Standing approvals: `allow-always` answers.
//!
//! Promise: only what is on disk counts; without a disk, reading and writing are refused, so that the
//! caller asks a person each time. One for each tool: a new answer for another schema replaces the old.

use super::Store;
use super::error::StoreError;
use super::queue::Needs;
use super::time::UnixMs;
use crate::names::{RawTool, ServerName};

/// An answer to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewApproval {
    /// The server.
    pub server: ServerName,
    /// Its tool.
    pub tool: RawTool,
    /// SHA-256 of the tool's schema; with another one the answer no longer holds.
    pub schema_hash: [u8; 32],
    /// Who answered, for people: a user name, a client.
    pub created_by: String,
    /// When.
    pub created_at: UnixMs,
}

/// An answer that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingApproval {
    /// Its number, for `hermesctl approvals revoke`.
    pub id: i64,
    /// What was answered.
    pub approval: NewApproval,
}

impl Store {
    /// Keeps an `allow-always`; answers its number once it is on disk.
    /// # Errors
    /// [`StoreError::NotDurable`] without a disk: then it does not hold.
    pub async fn allow_always(&self, new: NewApproval) -> Result<i64, StoreError> {
        self.write(Needs::Disk, move |transaction| {
            transaction.execute(
                "INSERT OR REPLACE INTO approvals (server, tool, schema_hash, created_ms, created_by) \
                 VALUES (?1, ?2, ?3, ?4, ?5)",
                (new.server.as_str(), new.tool.as_str(), new.schema_hash, new.created_at.0, new.created_by),
            )?;
            Ok(transaction.last_insert_rowid())
        })
        .await
    }

    /// Every standing approval, by number.
    /// # Errors
    /// [`StoreError`], [`StoreError::NotDurable`] without a disk; then none holds.
    pub async fn standing_approvals(&self) -> Result<Vec<StandingApproval>, StoreError> {
        self.require_disk()?;
        self.read(|connection| {
            let mut statement = connection.prepare(
                "SELECT id, server, tool, schema_hash, created_ms, created_by FROM approvals ORDER BY id",
            )?;
            let rows = statement.query_map([], |row| {
                Ok(StandingApproval {
                    id: row.get(0)?,
                    approval: NewApproval {
                        server: ServerName::new(row.get::<_, String>(1)?),
                        tool: RawTool::new(row.get::<_, String>(2)?),
                        schema_hash: row.get(3)?,
                        created_at: UnixMs(row.get(4)?),
                        created_by: row.get(5)?,
                    },
                })
            })?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
        .await
    }

    /// Takes an answer back; answers it, or `None` if there is none of that number.
    /// # Errors
    /// [`StoreError`]; then it may still hold.
    pub async fn revoke_approval(&self, id: i64) -> Result<Option<(ServerName, RawTool)>, StoreError> {
        self.write(Needs::Disk, move |transaction| {
            let mut statement =
                transaction.prepare_cached("DELETE FROM approvals WHERE id = ?1 RETURNING server, tool")?;
            let mut rows = statement.query([id])?;
            let Some(row) = rows.next()? else { return Ok(None) };
            Ok(Some((ServerName::new(row.get::<_, String>(0)?), RawTool::new(row.get::<_, String>(1)?))))
        })
        .await
    }
}
