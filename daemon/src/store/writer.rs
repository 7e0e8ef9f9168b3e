//! The one thread that writes hermesd.db.
//!
//! Owner: this thread has the only writing connection. Promise: orders run one by one in the order
//! they came, each in a transaction of its own; rows and quota that cannot be written are kept and
//! tried again; a damaged file is moved aside while the daemon runs; when the thread ends, for
//! whatever reason, everyone who waits is told. May not touch: what rows mean.

use super::error::StoreError;
use super::health::{Keeping, StoreFinding, StoreHealth, Trouble, TroubleKind};
use super::opening::{self, Journal, Opened, Place};
use super::queue::{Batch, Failed, Needs, Next, Order, StoreKind};
use super::retention::{self, Step};
use super::time::UnixMs;
use super::{Shared, audit, quota};
use rusqlite::{Connection, TransactionBehavior};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Longest wait for a lock on behalf of rows that nobody waits for; orders queue behind it.
const BATCH_WAIT: Duration = Duration::from_millis(50);
/// Pause after a batch that could not be written, and between tries to open a locked file.
const RETRY: Duration = Duration::from_millis(500);
/// Pause between two steps of a removal, so that orders get their turn.
const STEP_PAUSE: Duration = Duration::from_millis(20);
/// Pause after everything surplus is gone from memory.
const MEMORY_EXPIRE_EVERY: Duration = Duration::from_secs(1);
/// Pause after everything old is gone.
const EXPIRE_EVERY: Duration = Duration::from_secs(600);

pub(super) struct Writer {
    shared: Arc<Shared>,
    place: Place,
    db: Db,
    next_expiry: Instant,
}

enum Db {
    Disk(Connection),
    Memory(Connection, super::error::MemoryReason),
    Waiting { retry_at: Instant },
}

/// Tells everyone that the thread is gone, also when it panicked.
struct EndGuard(Arc<Shared>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.queue.abandon();
        let how = if std::thread::panicking() { super::Ended::Panicked } else { super::Ended::Closed };
        self.0.ended.send_replace(Some(how));
    }
}

impl Writer {
    /// Opens the file; the first health is published before this returns.
    pub(super) fn open(shared: Arc<Shared>, place: Place) -> (Self, Vec<StoreFinding>) {
        let mut findings = Vec::new();
        let opened = opening::open(&place, now(), &mut findings);
        let mut writer = Self {
            shared,
            place,
            db: Db::Waiting { retry_at: Instant::now() },
            next_expiry: Instant::now() + EXPIRE_EVERY / 60,
        };
        writer.install(opened, &findings);
        (writer, findings)
    }

    /// Works until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let _guard = EndGuard(self.shared.clone());
        loop {
            match self.shared.queue.next(self.next_expiry) {
                Next::Order(order) => self.run_order(order),
                Next::Batch(batch) => self.write_batch(batch),
                Next::Timer => self.expire(),
                Next::Ended => return self.finish(),
            }
            if let Db::Memory(..) = self.db {
                // Memory is kept small as rows come, not every ten minutes.
                self.next_expiry = self.next_expiry.min(Instant::now() + MEMORY_EXPIRE_EVERY);
            }
        }
    }

    fn install(&mut self, opened: Opened, findings: &[StoreFinding]) {
        let keeping = match opened {
            Opened::Disk(connection, journal) => {
                audit::publish_newest(&connection, &self.shared);
                super::eventlog::publish(&connection, &self.shared);
                self.db = Db::Disk(connection);
                match journal {
                    Journal::Wal => Keeping::Wal,
                    Journal::Rollback => Keeping::Rollback,
                }
            }
            Opened::Memory(connection, reason) => {
                super::eventlog::publish(&connection, &self.shared);
                self.db = Db::Memory(connection, reason.clone());
                Keeping::Memory(reason)
            }
            Opened::Locked => {
                let retry_at = Instant::now() + RETRY;
                self.db = Db::Waiting { retry_at };
                // Also tried again when nobody asks.
                self.next_expiry = retry_at;
                Keeping::Waiting
            }
        };
        self.shared.readers.renew(&keeping);
        self.shared.health.send_modify(|health| {
            health.keeping = keeping;
            health.moved_aside.extend(findings.iter().filter_map(|finding| match finding {
                StoreFinding::Damaged { moved_to } => Some(moved_to.clone()),
                StoreFinding::InMemory { .. }
                | StoreFinding::NoWal { .. }
                | StoreFinding::Locked { .. }
                | StoreFinding::Leftovers { .. } => None,
            }));
        });
    }

    fn run_order(&mut self, order: Order) {
        let wait = order.deadline.saturating_duration_since(Instant::now());
        let connection =
            self.connection(wait).and_then(|(connection, durable)| match (order.needs, durable) {
                (Needs::Disk, Some(reason)) => Err(StoreError::NotDurable(reason)),
                (Needs::Anything, _) | (Needs::Disk, None) => Ok(connection),
            });
        let result = (order.work)(connection);
        self.note(result.map_err(|Failed(kind)| kind));
    }

    /// The connection, and why it is none on disk. Waits for a lock at most `wait` per statement.
    fn connection(
        &mut self,
        wait: Duration,
    ) -> Result<(&mut Connection, Option<super::error::MemoryReason>), StoreError> {
        if let Db::Waiting { retry_at } = self.db {
            if Instant::now() < retry_at {
                return Err(StoreError::Locked);
            }
            let mut findings = Vec::new();
            let opened = opening::open(&self.place, now(), &mut findings);
            self.install(opened, &findings);
        }
        match &mut self.db {
            Db::Disk(connection) => {
                connection.busy_timeout(wait)?;
                Ok((connection, None))
            }
            Db::Memory(connection, reason) => Ok((connection, Some(reason.clone()))),
            Db::Waiting { .. } => Err(StoreError::Locked),
        }
    }

    fn write_batch(&mut self, batch: Batch) {
        let shared = self.shared.clone();
        let written = match self.connection(BATCH_WAIT) {
            Ok((connection, _)) => land(&shared, connection, batch),
            Err(error) => {
                shared.queue.put_back(batch, RETRY);
                Err(error)
            }
        };
        self.note(written.map_err(|error| StoreKind::of(&error)));
    }

    fn expire(&mut self) {
        let policy = self.shared.retention();
        let shared = self.shared.clone();
        let step = self.connection(Duration::ZERO).and_then(|(connection, memory)| {
            let policy = if memory.is_some() { policy.for_memory() } else { policy };
            let step = retention::step(connection, policy, now()).map_err(StoreError::of)?;
            if step != Step::Done {
                super::eventlog::publish_oldest(connection, &shared);
            }
            Ok(step)
        });
        if let Ok(Step::Removed(rows)) = step {
            let rows = u64::try_from(rows).expect("a step removes few rows");
            self.shared.health.send_modify(|health| health.removed += rows);
        }
        let pause = match (&step, &self.db) {
            (Ok(Step::Removed(_)), _) => STEP_PAUSE,
            (_, Db::Waiting { .. }) => RETRY,
            (Ok(Step::Done) | Err(_), _) => EXPIRE_EVERY,
        };
        self.next_expiry = Instant::now() + pause;
        // A lock that only this step met is no trouble: nobody waits for it.
        match step.map_err(|error| StoreKind::of(&error)) {
            Err(StoreKind::Locked) => {}
            other => self.note(other.map(|_| ())),
        }
    }

    /// Publishes what the last write came to, and replaces a file that turns out to be damaged.
    fn note(&mut self, result: Result<(), StoreKind>) {
        let kind = match result {
            Ok(()) => None,
            Err(StoreKind::Caller) => return,
            Err(StoreKind::Damaged) => return self.replace_damaged(),
            Err(StoreKind::Locked) => Some(TroubleKind::Locked),
            Err(StoreKind::DiskFull) => Some(TroubleKind::DiskFull),
            Err(StoreKind::ReadOnly) => Some(TroubleKind::ReadOnly),
            Err(StoreKind::Refused(words)) => Some(TroubleKind::Refused(words)),
        };
        let at = now();
        self.shared.health.send_if_modified(|health| set_trouble(health, kind, at));
    }

    fn replace_damaged(&mut self) {
        let Db::Disk(_) = self.db else { return };
        // The connection must be gone before the file moves.
        self.db = Db::Waiting { retry_at: Instant::now() };
        self.shared.readers.renew(&Keeping::Waiting);
        let mut findings = Vec::new();
        let opened = opening::replace(&self.place, now(), &mut findings);
        for finding in &findings {
            tracing::error!(%finding, hint = finding.hint(), "hermesd.db was found damaged");
        }
        self.install(opened, &findings);
    }

    fn finish(self) {
        if let Db::Disk(connection) = self.db {
            // Best effort: the log is read again by the next start if it stays.
            let _ = connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
        }
        self.shared.readers.renew(&Keeping::Waiting);
    }
}

/// Writes everything that gathers, now; what cannot be written goes back and is tried again.
pub(super) fn land_all(shared: &Shared, connection: &mut Connection) -> Result<(), StoreError> {
    loop {
        let batch = shared.queue.take_batch();
        if batch.is_empty() {
            return Ok(());
        }
        land(shared, connection, batch)?;
    }
}

fn land(shared: &Shared, connection: &mut Connection, batch: Batch) -> Result<(), StoreError> {
    let written = (|| {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let newest = audit::insert(&transaction, &batch.rows)?;
        quota::add(&transaction, &batch.quota)?;
        transaction.commit()?;
        Ok::<_, rusqlite::Error>(newest)
    })();
    match written {
        Ok(newest) => {
            shared.queue.landed();
            let rows = u64::try_from(batch.rows.len()).expect("a batch has few rows");
            shared.health.send_modify(|health| {
                health.batches += 1;
                health.audit_written += rows;
            });
            if let Some(newest) = newest {
                shared.newest_audit.send_replace(newest);
            }
            Ok(())
        }
        Err(error) => {
            shared.queue.put_back(batch, RETRY);
            Err(error.into())
        }
    }
}

/// Answers whether anything changed.
fn set_trouble(health: &mut StoreHealth, kind: Option<TroubleKind>, at: UnixMs) -> bool {
    match (kind, &health.trouble) {
        (None, None) => false,
        (None, Some(_)) => {
            health.trouble = None;
            true
        }
        (Some(kind), Some(old)) if old.kind == kind => false,
        (Some(kind), _) => {
            tracing::warn!(trouble = %kind, "hermesd.db cannot be written");
            health.trouble = Some(Trouble { kind, since: at });
            true
        }
    }
}

fn now() -> UnixMs {
    UnixMs::at(SystemTime::now())
}
