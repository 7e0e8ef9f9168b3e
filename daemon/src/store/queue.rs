//! What waits for the writer: orders at once, audit rows and quota in batches.
//!
//! Promise: nobody waits inside a lock for the disk. Both lanes are bounded: a full lane of orders
//! refuses, a full lane of audit rows drops the newest and counts; quota is one number a profile and
//! day, so that it never overflows. May not touch: connections.

use super::audit::AuditRow;
use super::error::StoreError;
use super::quota::QuotaKey;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Orders that may wait.
pub(super) const ORDER_LIMIT: usize = 1024;
/// Audit rows that may wait.
pub(super) const ROW_LIMIT: usize = 16_384;
/// Bytes of audit rows that may wait.
pub(super) const ROW_BYTES_LIMIT: usize = 16 << 20;
/// Audit rows written in one transaction; an order behind it waits some milliseconds.
pub(super) const BATCH_ROWS: usize = 1024;
/// How long rows gather before they are written.
pub(super) const GATHER: Duration = Duration::from_millis(100);

/// Something for the writer to run on its connection.
pub(super) struct Order {
    /// Until when it may wait for a lock.
    pub(super) deadline: Instant,
    pub(super) needs: Needs,
    pub(super) work: Work,
}

/// What to do with the connection, or with the reason why there is none. Answers what went wrong.
pub(super) type Work =
    Box<dyn FnOnce(Result<&mut rusqlite::Connection, StoreError>) -> Result<(), Failed> + Send>;

/// What the writer has to know about an error it does not see.
pub(super) struct Failed(pub(super) StoreKind);

/// The kind of a [`StoreError`] that is told to someone else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StoreKind {
    Locked,
    DiskFull,
    ReadOnly,
    Damaged,
    Refused(String),
    /// No fault of the file.
    Caller,
}

impl StoreKind {
    pub(super) fn of(error: &StoreError) -> Self {
        match error {
            StoreError::Locked => Self::Locked,
            StoreError::DiskFull => Self::DiskFull,
            StoreError::ReadOnly => Self::ReadOnly,
            StoreError::Damaged => Self::Damaged,
            StoreError::Sql(error) => Self::Refused(error.to_string()),
            StoreError::NotDurable(_) | StoreError::Full { .. } | StoreError::Closed => Self::Caller,
        }
    }
}

/// What an order can run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// Memory will do.
    Anything,
    /// Refused in memory.
    Disk,
}

/// Rows and quota taken for one transaction.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) rows: Vec<AuditRow>,
    pub(super) quota: BTreeMap<QuotaKey, u64>,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.quota.is_empty()
    }
}

/// What the writer does next.
pub(super) enum Next {
    Order(Order),
    Batch(Batch),
    /// The time that was waited for has come.
    Timer,
    /// Everything is done and nothing more will come.
    Ended,
}

/// Whether a row was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// It waits for the next batch.
    Queued,
    /// The lane is full; the row is lost and counted.
    Dropped,
}

/// The two lanes.
pub(super) struct Queue {
    lanes: Mutex<Lanes>,
    wake: Condvar,
}

#[derive(Default)]
struct Lanes {
    orders: VecDeque<Order>,
    rows: VecDeque<AuditRow>,
    row_bytes: usize,
    /// Rows of the batch that the writer has in hand.
    in_hand: usize,
    quota: BTreeMap<QuotaKey, u64>,
    /// When the oldest row or count came; `None`: none waits.
    gathering_since: Option<Instant>,
    /// No batch before this: the last one failed.
    not_before: Option<Instant>,
    dropped: u64,
    served: Served,
    /// The timer is wanted before its time.
    timer_asked: bool,
    /// Nothing is taken any more; what waits is written until then.
    closed_until: Option<Instant>,
}

/// What was taken last, so that neither lane starves the other.
#[derive(Default, PartialEq)]
enum Served {
    Order,
    #[default]
    Batch,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self { lanes: Mutex::default(), wake: Condvar::new() }
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        // A panic elsewhere leaves plain queues in order; the writer's own end is told by its guard.
        self.lanes.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// # Errors
    /// [`StoreError::Full`] or [`StoreError::Closed`].
    pub(super) fn order(&self, order: Order) -> Result<(), StoreError> {
        let mut lanes = self.lanes();
        if lanes.closed_until.is_some() {
            return Err(StoreError::Closed);
        }
        if lanes.orders.len() >= ORDER_LIMIT {
            return Err(StoreError::Full { limit: ORDER_LIMIT });
        }
        lanes.orders.push_back(order);
        self.wake.notify_one();
        Ok(())
    }

    pub(super) fn record(&self, row: AuditRow) -> Recorded {
        let bytes = row.bytes();
        let mut lanes = self.lanes();
        if lanes.closed_until.is_some()
            || lanes.rows.len() >= ROW_LIMIT
            || lanes.row_bytes + bytes > ROW_BYTES_LIMIT
        {
            lanes.dropped += 1;
            return Recorded::Dropped;
        }
        lanes.row_bytes += bytes;
        lanes.rows.push_back(row);
        self.gather(&mut lanes);
        Recorded::Queued
    }

    pub(super) fn count(&self, key: QuotaKey, calls: u64) {
        let mut lanes = self.lanes();
        *lanes.quota.entry(key).or_default() += calls;
        self.gather(&mut lanes);
    }

    fn gather(&self, lanes: &mut Lanes) {
        // Only the first row wakes the writer; the rest ride along.
        if lanes.gathering_since.is_none() {
            lanes.gathering_since = Some(Instant::now());
            self.wake.notify_one();
        }
    }

    /// Rows that are not written yet, and rows lost because too many waited.
    pub(super) fn waiting_and_dropped(&self) -> (usize, u64) {
        let lanes = self.lanes();
        (lanes.rows.len() + lanes.in_hand, lanes.dropped)
    }

    /// Takes a batch now, however young it is. Only the writer.
    pub(super) fn take_batch(&self) -> Batch {
        self.lanes().take_batch()
    }

    /// The batch in hand is written. Only the writer.
    pub(super) fn landed(&self) {
        self.lanes().in_hand = 0;
    }

    /// Puts a batch back that could not be written; it is tried again after `pause`.
    pub(super) fn put_back(&self, batch: Batch, pause: Duration) {
        let mut lanes = self.lanes();
        lanes.in_hand = 0;
        for row in batch.rows.into_iter().rev() {
            lanes.row_bytes += row.bytes();
            lanes.rows.push_front(row);
        }
        for (key, calls) in batch.quota {
            *lanes.quota.entry(key).or_default() += calls;
        }
        let now = Instant::now();
        lanes.gathering_since = Some(now);
        lanes.not_before = Some(now + pause);
    }

    /// Waits for work, at most until `timer`. Only the writer.
    pub(super) fn next(&self, timer: Instant) -> Next {
        let mut lanes = self.lanes();
        loop {
            let now = Instant::now();
            let closing = lanes.closed_until.is_some();
            if lanes.closed_until.is_some_and(|until| until <= now) {
                return Next::Ended;
            }
            let due = lanes.batch_due();
            let batch_is_due = due.is_some_and(|due| due <= now || closing);
            if batch_is_due && (lanes.served == Served::Order || lanes.orders.is_empty()) {
                lanes.served = Served::Batch;
                return Next::Batch(lanes.take_batch());
            }
            if let Some(order) = lanes.orders.pop_front() {
                lanes.served = Served::Order;
                return Next::Order(order);
            }
            if closing {
                return Next::Ended;
            }
            if timer <= now || std::mem::take(&mut lanes.timer_asked) {
                return Next::Timer;
            }
            let until = due.map_or(timer, |due| due.min(timer));
            lanes = self
                .wake
                .wait_timeout(lanes, until.saturating_duration_since(now))
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .0;
        }
    }

    /// Lets the timer fire as soon as nothing else waits.
    pub(super) fn ask_timer(&self) {
        self.lanes().timer_asked = true;
        self.wake.notify_one();
    }

    /// Refuses everything from now on; what waits is still written, but not after `until`.
    pub(super) fn close(&self, until: Instant) {
        self.lanes().closed_until.get_or_insert(until);
        self.wake.notify_one();
    }

    /// Takes what is left when the writer is gone, so that nobody waits for an answer for ever.
    pub(super) fn abandon(&self) {
        let mut lanes = self.lanes();
        lanes.closed_until.get_or_insert_with(Instant::now);
        lanes.orders.clear();
    }
}

impl Lanes {
    fn batch_due(&self) -> Option<Instant> {
        let gathered = self.gathering_since? + GATHER;
        Some(self.not_before.map_or(gathered, |not_before| gathered.max(not_before)))
    }

    fn take_batch(&mut self) -> Batch {
        let count = self.rows.len().min(BATCH_ROWS);
        let rows: Vec<AuditRow> = self.rows.drain(..count).collect();
        self.in_hand = rows.len();
        self.row_bytes -= rows.iter().map(AuditRow::bytes).sum::<usize>();
        // What is left has gathered long enough already.
        self.gathering_since = if self.rows.is_empty() { None } else { self.gathering_since };
        self.not_before = None;
        Batch { rows, quota: std::mem::take(&mut self.quota) }
    }
}
