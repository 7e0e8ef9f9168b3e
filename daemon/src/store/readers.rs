//! Connections that only read hermesd.db, so that a long query never holds up a write.
//!
//! Owner: the pool; a connection belongs to one blocking task while it reads. Promise: at most
//! [`READERS`] at once; after a file was replaced no old connection is used again. May not touch:
//! the writer's connection.

use super::error::StoreError;
use super::health::Keeping;
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Queries at once.
const READERS: usize = 4;
/// Longest wait for a lock.
const READ_WAIT: Duration = Duration::from_secs(2);

/// Where a query runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Road {
    /// On a connection of this pool.
    Own,
    /// On the writer's: what lives in memory has no second connection.
    Writer,
    /// Nowhere: the file is locked.
    Locked,
}

pub(super) struct Readers {
    path: PathBuf,
    state: Mutex<State>,
    pub(super) permits: Arc<Semaphore>,
}

struct State {
    road: Road,
    /// Counts the files that were at the path.
    epoch: u64,
    idle: Vec<Connection>,
}

impl Readers {
    pub(super) fn new(path: &Path) -> Self {
        let state = State { road: Road::Locked, epoch: 0, idle: Vec::new() };
        Self { path: path.to_owned(), state: Mutex::new(state), permits: Arc::new(Semaphore::new(READERS)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The file was opened, replaced or given up.
    pub(super) fn renew(&self, keeping: &Keeping) {
        let mut state = self.state();
        state.epoch += 1;
        state.idle.clear();
        state.road = match keeping {
            Keeping::Wal | Keeping::Rollback => Road::Own,
            Keeping::Memory(_) => Road::Writer,
            Keeping::Waiting => Road::Locked,
        };
    }

    pub(super) fn road(&self) -> Road {
        self.state().road
    }

    /// Runs `query` on one moment of the database. Blocks.
    pub(super) fn read<T>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let (epoch, idle) = {
            let mut state = self.state();
            (state.epoch, state.idle.pop())
        };
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let transaction = connection.unchecked_transaction()?;
        let result = query(&transaction);
        drop(transaction);
        // A connection that met an error is not trusted again.
        let mut state = self.state();
        if result.is_ok() && state.epoch == epoch {
            state.idle.push(connection);
        }
        result
    }

    /// Whether every page on disk is what it should be. Blocks.
    ///
    /// On a new connection: the caches of others may still hold what the file has lost.
    pub(super) fn is_sound(&self) -> Result<bool, StoreError> {
        Ok(super::opening::is_sound(&self.connect()?)?)
    }

    fn connect(&self) -> Result<Connection, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(READ_WAIT)?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    }
}
