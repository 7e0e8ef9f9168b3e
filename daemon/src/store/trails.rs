//! Which messages of which sessions were told as events, to recognise them when they are written again.
//!
//! Written together with the events (`eventlog`). Promise: at most [`TRAIL_LIMIT`] messages for each of
//! [`FOLLOWED_LIMIT`] sessions. May not touch: what a message is.

use super::{Store, StoreError};
use rusqlite::Connection;

/// Messages of one session.
pub const TRAIL_LIMIT: usize = 400;
/// Sessions.
pub const FOLLOWED_LIMIT: usize = 1000;

/// One session and the newest message that was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// The session.
    pub session_id: String,
    /// Its conversation.
    pub session_key: String,
    /// Row id of the newest message that is known.
    pub last_id: i64,
}

/// A message by its row and what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrailRow {
    /// Row id.
    pub id: i64,
    /// Digest of role and content.
    pub digest: i64,
}

/// What changes in the trails.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trails {
    /// What happens to all that was known.
    pub before: Before,
    /// One for each session that changes.
    pub changes: Vec<TrailChange>,
}

/// What happens to what was known before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Before {
    /// It stays.
    #[default]
    Kept,
    /// It goes: the messages are of another file.
    Forgotten,
}

/// The trail of one session after a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrailChange {
    /// Which session, and its newest message now.
    pub session: Followed,
    /// What happens to its trail.
    pub before: Before,
    /// Rows to add.
    pub rows: Vec<TrailRow>,
}

impl Store {
    /// All sessions that are followed, least recently used first. Blocks.
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::Damaged`], [`StoreError::Sql`].
    pub fn followed_blocking(&self) -> Result<Vec<Followed>, StoreError> {
        self.read_blocking(|connection| {
            let mut statement = connection
                .prepare_cached("SELECT session_id, session_key, last_id FROM followed ORDER BY last_id")?;
            let rows = statement.query_map([], |row| {
                Ok(Followed { session_id: row.get(0)?, session_key: row.get(1)?, last_id: row.get(2)? })
            })?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// The known messages of a session, oldest first. Blocks.
    /// # Errors
    /// As [`Store::followed_blocking`].
    pub fn trail_blocking(&self, session_id: String) -> Result<Vec<TrailRow>, StoreError> {
        self.read_blocking(move |connection| {
            let mut statement = connection
                .prepare_cached("SELECT id, digest FROM trails WHERE session_id = ?1 ORDER BY id")?;
            let rows = statement
                .query_map([session_id], |row| Ok(TrailRow { id: row.get(0)?, digest: row.get(1)? }))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }
}

pub(super) fn write(connection: &Connection, trails: &Trails) -> rusqlite::Result<()> {
    if trails.before == Before::Forgotten {
        connection.execute_batch("DELETE FROM trails; DELETE FROM followed")?;
    }
    for TrailChange { session, before, rows: added } in &trails.changes {
        let Followed { session_id, session_key, last_id } = session;
        if *before == Before::Forgotten {
            connection.prepare_cached("DELETE FROM trails WHERE session_id = ?1")?.execute([session_id])?;
        }
        connection.prepare_cached("INSERT OR REPLACE INTO followed VALUES (?1, ?2, ?3)")?.execute((
            session_id,
            session_key,
            last_id,
        ))?;
        let mut add = connection.prepare_cached("INSERT OR REPLACE INTO trails VALUES (?1, ?2, ?3)")?;
        for TrailRow { id, digest } in added {
            add.execute((session_id, id, digest))?;
        }
        connection
            .prepare_cached(
                "DELETE FROM trails WHERE session_id = ?1 AND id <= (SELECT id FROM trails \
                 WHERE session_id = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
            )?
            .execute((session_id, rows(TRAIL_LIMIT)))?;
    }
    if !trails.changes.is_empty() {
        limit_sessions(connection)?;
    }
    Ok(())
}

/// Lets the sessions go that were silent for longest.
fn limit_sessions(connection: &Connection) -> rusqlite::Result<()> {
    let surplus = "SELECT session_id FROM followed ORDER BY last_id DESC LIMIT -1 OFFSET ?1";
    let limit = rows(FOLLOWED_LIMIT);
    let count: i64 =
        connection.prepare_cached("SELECT count(*) FROM followed")?.query_row([], |row| row.get(0))?;
    if count <= limit {
        return Ok(());
    }
    for table in ["trails", "followed"] {
        connection.execute(&format!("DELETE FROM {table} WHERE session_id IN ({surplus})"), [limit])?;
    }
    Ok(())
}

fn rows(limit: usize) -> i64 {
    i64::try_from(limit).expect("limits are small")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{NewEvent, SourcePosition};

    fn change(session: &str, before: Before, ids: std::ops::RangeInclusive<i64>) -> TrailChange {
        TrailChange {
            session: Followed {
                session_id: session.to_owned(),
                session_key: format!("k:{session}"),
                last_id: *ids.end(),
            },
            before,
            rows: ids.map(|id| TrailRow { id, digest: -id }).collect(),
        }
    }

    fn note(store: &Store, before: Before, changes: Vec<TrailChange>) {
        let read_to = SourcePosition {
            source: "s".to_owned(),
            position: String::new(),
            trails: Trails { before, changes },
        };
        store.append_events_blocking(Vec::<NewEvent>::new(), Some(read_to)).unwrap();
    }

    #[test]
    fn trails_keep_the_newest_messages_of_the_sessions_used_last() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(&dir.path().join("hermesd.db"));
        note(&store, Before::Kept, vec![change("a", Before::Kept, 1..=450)]);
        let ids = |session: &str| -> Vec<i64> {
            store.trail_blocking(session.to_owned()).unwrap().iter().map(|row| row.id).collect()
        };
        assert_eq!(ids("a"), (51..=450).collect::<Vec<_>>());
        note(&store, Before::Kept, vec![change("a", Before::Forgotten, 451..=452)]);
        assert_eq!(ids("a"), [451, 452]);
        let many = (0..1000).map(|n| change(&format!("s{n}"), Before::Kept, 1000 + n..=1000 + n)).collect();
        note(&store, Before::Kept, many);
        assert_eq!(ids("a"), Vec::<i64>::new(), "it was silent for longest");
        assert_eq!(store.followed_blocking().unwrap().len(), FOLLOWED_LIMIT);
        note(&store, Before::Forgotten, vec![change("b", Before::Kept, 1..=2)]);
        assert_eq!(store.followed_blocking().unwrap(), [change("b", Before::Kept, 1..=2).session]);
    }
}
