//! The bounded queue of lines to one client, shared by its session task and its calls.
//!
//! Bounds: over [`SOFT_LIMIT`] bytes notifications are dropped and counted, over [`HARD_LIMIT`]
//! the client is given up, because it does not read. Every push wakes the session task, which is
//! the only one that writes. Lines are whole; their order is the order of the pushes.

use crate::jsonrpc::outbound::Outbound;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Notify;

/// Over this many waiting bytes notifications are dropped.
pub const SOFT_LIMIT: usize = 4 * 1024 * 1024;
/// Over this many waiting bytes the client is disconnected.
pub const HARD_LIMIT: usize = 64 * 1024 * 1024;

/// A handle on the queue of one client.
#[derive(Debug, Clone, Default)]
pub struct Outbox {
    queue: Arc<Mutex<Queue>>,
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Queue {
    lines: Outbound,
    dropped: u64,
    overflowed: bool,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("nothing panics while holding it")
    }

    /// Queues the answer to a request, or a control line.
    pub fn answer(&self, line: Vec<u8>) {
        let mut queue = self.lock();
        queue.overflowed |= queue.lines.bytes() > HARD_LIMIT;
        if !queue.overflowed {
            queue.lines.push(None, line);
        }
        drop(queue);
        self.changed.notify_one();
    }

    /// Queues a notification, or drops it when the client is far behind.
    pub fn notify(&self, line: Vec<u8>) {
        let mut queue = self.lock();
        if queue.lines.bytes() > SOFT_LIMIT {
            queue.dropped += 1;
            return;
        }
        queue.lines.push(None, line);
        drop(queue);
        self.changed.notify_one();
    }

    /// Returns after a push.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.lock().lines.is_empty()
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.lock().lines.bytes()
    }

    /// Whether the client must be given up.
    pub fn overflowed(&self) -> bool {
        self.lock().overflowed
    }

    /// Notifications dropped so far.
    pub fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// Writes as much as `write` takes.
    ///
    /// # Errors
    /// As `write`, but for `WouldBlock`.
    pub fn flush(&self, write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>) -> io::Result<()> {
        self.lock().lines.flush(write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_does_not_read_loses_notifications_first_and_is_given_up_last() {
        let outbox = Outbox::default();
        outbox.answer(vec![b'x'; SOFT_LIMIT + 1]);
        outbox.notify(b"n".to_vec());
        assert_eq!(outbox.dropped(), 1);
        outbox.answer(vec![b'x'; HARD_LIMIT]);
        assert!(!outbox.overflowed());
        outbox.answer(b"one too many".to_vec());
        assert!(outbox.overflowed());
    }
}
