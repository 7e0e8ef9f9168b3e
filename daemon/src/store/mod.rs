//! hermesd.db: migrations, its single writer, and everything that must survive a restart.
//!
//! Owner: one writer thread; callers hold a [`Store`], which is cheap to clone. Promise: opening
//! always gives a store that works, if need be in memory, and says so; no call ever waits for the
//! disk inside [`Store::record`] or [`Store::count_calls`]; what the others answer is committed. Reads
//! have connections of their own. Pins and standing approvals are refused unless they are on disk.
//! May not touch: what the rest of the daemon makes of what it keeps.

mod approvals;
mod audit;
mod audit_query;
mod catalogue;
mod error;
mod eventlog;
pub(crate) mod filesystem;
mod health;
mod learned;
mod migrations;
mod opening;
mod pins;
mod quarantine;
mod queue;
mod quota;
mod readers;
mod recent;
mod retention;
mod sends;
mod time;
mod trails;
mod writer;

#[cfg(test)]
mod tests;

pub use approvals::{NewApproval, StandingApproval};
pub use audit::{ARGUMENTS_LIMIT, Arguments, AuditRow, CUT, Caller, Decision};
pub use audit_query::{AuditEntry, AuditFollow, AuditQuery, QUERY_LIMIT};
pub use catalogue::{CatalogRecord, StoredCatalog};
pub use error::{MemoryReason, StoreError};
pub use eventlog::{EventFilter, EventPage, GAP, KeptEvent, NewEvent, PAGE_LIMIT, SourcePosition};
pub use health::{Keeping, StoreFinding, StoreHealth, Trouble, TroubleKind};
pub use pins::{Approved, FirstUse, Pin, PinChange, PinKey, Pins};
pub use queue::Recorded;
pub use retention::Retention;
pub use sends::{Begun, KEPT, KEPT_FOR, Keyed, SendEnd};
pub use time::{Day, UnixMs};
pub use trails::{Before, FOLLOWED_LIMIT, Followed, TRAIL_LIMIT, TrailChange, TrailRow, Trails};

use opening::Place;
use queue::{Failed, Needs, Order, Queue, StoreKind};
use readers::{Readers, Road};
use recent::Recent;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};
use writer::Writer;

/// How long an order waits for a lock of another process before it answers [`StoreError::Locked`].
pub const ORDER_WAIT: Duration = Duration::from_secs(5);
/// How long the writer goes on after the last [`Store`] was dropped without [`Store::close`].
const DROP_WAIT: Duration = Duration::from_secs(1);

/// hermesd.db. Clones share one writer.
#[derive(Clone)]
pub struct Store {
    owner: Arc<Owner>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("health", &*self.shared().health.borrow()).finish_non_exhaustive()
    }
}

/// Closes the queue with the last handle; the writer then ends by itself.
struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.queue.close(Instant::now() + DROP_WAIT);
    }
}

/// What the handles and the writer share.
struct Shared {
    queue: Queue,
    readers: Readers,
    health: watch::Sender<StoreHealth>,
    ended: watch::Sender<Option<Ended>>,
    newest_audit: watch::Sender<i64>,
    latest_event: watch::Sender<u64>,
    recent: Mutex<Recent>,
    retention: Mutex<Retention>,
}

impl Shared {
    fn retention(&self) -> Retention {
        *self.retention.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// How the writer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The store was closed.
    Closed,
    /// It panicked. The daemon must end: nothing is kept any more.
    Panicked,
}

/// Whether everything that waited is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flushed {
    /// All of it.
    All,
    /// The limit was spent, or the file could not be written.
    Some {
        /// Audit rows that still wait.
        rows_left: usize,
    },
}

impl Store {
    /// Opens hermesd.db at `path` and starts its writer. Makes the folder (0700) and the file (0600).
    ///
    /// Blocks for about a second at most, when another process locks the file. Never fails: what could
    /// not be had is in the findings and in [`Store::health`].
    pub fn open(path: &Path) -> (Self, Vec<StoreFinding>) {
        Self::open_place(Place::of(path))
    }

    fn open_place(place: Place) -> (Self, Vec<StoreFinding>) {
        let shared = Arc::new(Shared {
            queue: Queue::new(),
            readers: Readers::new(&place.path),
            health: watch::Sender::new(StoreHealth {
                keeping: Keeping::Waiting,
                trouble: None,
                moved_aside: Vec::new(),
                batches: 0,
                audit_written: 0,
                removed: 0,
            }),
            ended: watch::Sender::new(None),
            newest_audit: watch::Sender::new(0),
            latest_event: watch::Sender::new(0),
            recent: Mutex::default(),
            retention: Mutex::new(Retention::default()),
        });
        // Opened here and not on the thread: boot has nothing to do before it knows the findings.
        let (writer, findings) = Writer::open(shared.clone(), place);
        std::thread::Builder::new()
            .name("hermesd-store".to_owned())
            .spawn(move || writer.run())
            .expect("the first threads of a process can be started");
        (Self { owner: Arc::new(Owner(shared)) }, findings)
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.owner.0
    }

    /// How the store is doing, now and from now on.
    pub fn health(&self) -> watch::Receiver<StoreHealth> {
        self.shared().health.subscribe()
    }

    /// Audit rows lost since the daemon started because too many waited.
    pub fn audit_dropped(&self) -> u64 {
        self.shared().queue.waiting_and_dropped().1
    }

    /// Audit rows that wait to be written.
    pub fn audit_waiting(&self) -> usize {
        self.shared().queue.waiting_and_dropped().0
    }

    /// Sets how long things are kept, and starts to remove what is older.
    pub fn set_retention(&self, retention: Retention) {
        *self.shared().retention.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = retention;
        self.shared().queue.ask_timer();
    }

    /// Waits until the file is open, or memory took its place; at most `limit`.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if another process still locks the file.
    /// # Cancel safety
    /// Cancel safe.
    pub async fn opened(&self, limit: Duration) -> Result<Keeping, StoreError> {
        let mut health = self.health();
        let open = health.wait_for(|health| health.keeping != Keeping::Waiting);
        match tokio::time::timeout(limit, open).await {
            Ok(Ok(health)) => Ok(health.keeping.clone()),
            Ok(Err(_)) => Err(StoreError::Closed),
            Err(_) => Err(StoreError::Locked),
        }
    }

    /// Answers once the writer had a turn: the sign of life for the watchdog.
    ///
    /// While another process locks the file this may take [`ORDER_WAIT`].
    /// # Errors
    /// [`StoreError::Full`], [`StoreError::Closed`].
    pub async fn beat(&self) -> Result<(), StoreError> {
        let (tell, told) = oneshot::channel();
        self.order(Needs::Anything, move |_| {
            // Whoever asked may be gone.
            let _ = tell.send(());
            Err(Failed(StoreKind::Caller))
        })?;
        told.await.map_err(|_| StoreError::Closed)
    }

    /// Waits until the writer ended; `Panicked` must end the daemon.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ended(&self) -> Ended {
        let mut ended = self.shared().ended.subscribe();
        let how = ended.wait_for(Option::is_some).await.map(|how| *how);
        how.ok().flatten().unwrap_or(Ended::Closed)
    }

    /// Writes what gathers, at most `limit` long.
    ///
    /// # Cancel safety
    /// Cancel safe: writing goes on.
    pub async fn flush(&self, limit: Duration) -> Flushed {
        let (tell, told) = oneshot::channel();
        let shared = Arc::downgrade(self.shared());
        let asked = self.order(Needs::Anything, move |connection| {
            let written = connection.and_then(|connection| match shared.upgrade() {
                Some(shared) => writer::land_all(&shared, connection),
                None => Err(StoreError::Closed),
            });
            let verdict = verdict(&written);
            // Whoever asked may be gone.
            let _ = tell.send(written);
            verdict
        });
        if asked.is_ok() && matches!(tokio::time::timeout(limit, told).await, Ok(Ok(Ok(())))) {
            return Flushed::All;
        }
        Flushed::Some { rows_left: self.audit_waiting() }
    }

    /// Refuses new work, writes what waits and ends the writer, at most `limit` long.
    ///
    /// # Cancel safety
    /// Cancel safe: the writer goes on until its limit.
    pub async fn close(&self, limit: Duration) -> Flushed {
        self.shared().queue.close(Instant::now() + limit);
        // Some more than the writer has, so that it can tell.
        let waited = tokio::time::timeout(limit + DROP_WAIT, self.ended()).await;
        match (waited, self.audit_waiting()) {
            (Ok(Ended::Closed), 0) => Flushed::All,
            (_, rows_left) => Flushed::Some { rows_left },
        }
    }

    fn order(
        &self,
        needs: Needs,
        work: impl FnOnce(Result<&mut Connection, StoreError>) -> Result<(), Failed> + Send + 'static,
    ) -> Result<(), StoreError> {
        self.shared().queue.order(Order {
            deadline: Instant::now() + ORDER_WAIT,
            needs,
            work: Box::new(work),
        })
    }

    /// Runs `change` in a transaction on the writer and answers once it is committed.
    ///
    /// # Cancel safety
    /// Dropped after the first poll, the change still happens.
    async fn write<T: Send + 'static>(
        &self,
        needs: Needs,
        change: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.start_write(needs, change)?.await.map_err(|_| StoreError::Closed)?
    }

    fn start_write<T: Send + 'static>(
        &self,
        needs: Needs,
        change: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, StoreError>>, StoreError> {
        let (tell, told) = oneshot::channel();
        self.order(needs, move |connection| {
            let done = connection.and_then(|connection| {
                let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                let answer = change(&transaction)?;
                transaction.commit()?;
                Ok(answer)
            });
            let verdict = verdict(&done);
            // Whoever asked may be gone; the change stands.
            let _ = tell.send(done);
            verdict
        })?;
        Ok(told)
    }

    /// Runs `query` on one moment of the database, off the runtime's thread.
    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        match self.shared().readers.road() {
            Road::Locked => Err(StoreError::Locked),
            Road::Writer => self.read_at_writer(query).await,
            Road::Own => {
                let permits = self.shared().readers.permits.clone();
                let permit = permits.acquire_owned().await.map_err(|_| StoreError::Closed)?;
                let shared = self.shared().clone();
                let read = tokio::task::spawn_blocking(move || {
                    // Kept by the query itself: whoever asked may be gone before it ends.
                    let _permit = permit;
                    shared.readers.read(query)
                });
                let result = read.await.map_err(|_| StoreError::Closed)?;
                if let Err(StoreError::Damaged) = result {
                    self.look_for_damage();
                }
                result
            }
        }
    }

    /// As [`Store::read`], for threads of their own: blocks.
    fn read_blocking<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        match self.shared().readers.road() {
            Road::Locked => Err(StoreError::Locked),
            Road::Writer => self.start_read(query)?.blocking_recv().map_err(|_| StoreError::Closed)?,
            Road::Own => {
                let result = self.shared().readers.read(query);
                if let Err(StoreError::Damaged) = result {
                    self.look_for_damage();
                }
                result
            }
        }
    }

    async fn read_at_writer<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.start_read(query)?.await.map_err(|_| StoreError::Closed)?
    }

    fn start_read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, StoreError>>, StoreError> {
        let (tell, told) = oneshot::channel();
        self.order(Needs::Anything, move |connection| {
            let found = connection.and_then(|connection| query(connection));
            let verdict = verdict(&found);
            // Whoever asked may be gone.
            let _ = tell.send(found);
            verdict
        })?;
        Ok(told)
    }

    /// A reader met a damaged page: the writer looks itself and replaces the file if it is so.
    fn look_for_damage(&self) {
        let shared = Arc::downgrade(self.shared());
        // A full queue has orders in it that will meet the damage themselves.
        let _ = self.order(Needs::Disk, move |_| {
            match shared.upgrade().map(|shared| shared.readers.is_sound()) {
                None | Some(Ok(true)) => Err(Failed(StoreKind::Caller)),
                Some(Ok(false)) => Err(Failed(StoreKind::Damaged)),
                Some(Err(error)) => Err(Failed(StoreKind::of(&error))),
            }
        });
    }
}

fn verdict<T>(result: &Result<T, StoreError>) -> Result<(), Failed> {
    match result {
        Ok(_) => Ok(()),
        Err(error) => Err(Failed(StoreKind::of(error))),
    }
}
