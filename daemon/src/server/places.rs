//! How many servers may start at once (`start_concurrency`).
//!
//! Owner: `boot` makes it, every supervisor takes places in turn. First come, first served. The
//! number may change while places are taken; nobody loses the one that it has.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The places. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Places {
    free: Arc<Semaphore>,
    count: Arc<Mutex<Count>>,
}

#[derive(Debug)]
struct Count {
    total: usize,
    /// Places that vanish when they are given back.
    surplus: usize,
}

/// One server's place among the starts; dropping it gives it back.
#[derive(Debug)]
#[must_use = "dropping the place lets the next server start"]
pub struct Place {
    permit: Option<OwnedSemaphorePermit>,
    count: Arc<Mutex<Count>>,
}

impl Places {
    /// `total` places, at least one.
    pub fn new(total: usize) -> Self {
        let total = total.max(1);
        Self {
            free: Arc::new(Semaphore::new(total)),
            count: Arc::new(Mutex::new(Count { total, surplus: 0 })),
        }
    }

    /// Waits for a place.
    /// # Cancel safety
    /// Cancel safe; the turn is lost.
    pub async fn take(&self) -> Place {
        let permit = self.free.clone().acquire_owned().await.expect("the semaphore is never closed");
        Place { permit: Some(permit), count: self.count.clone() }
    }

    /// Changes the number of places.
    pub fn set_total(&self, total: usize) {
        let total = total.max(1);
        let mut count = lock(&self.count);
        if total > count.total {
            let more = total - count.total;
            let kept = more.min(count.surplus);
            count.surplus -= kept;
            self.free.add_permits(more - kept);
        } else {
            let fewer = count.total - total;
            count.surplus += fewer - self.free.forget_permits(fewer);
        }
        count.total = total;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut count = lock(&self.count);
        if count.surplus > 0
            && let Some(permit) = self.permit.take()
        {
            count.surplus -= 1;
            permit.forget();
        }
    }
}

fn lock(count: &Mutex<Count>) -> MutexGuard<'_, Count> {
    count.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use proptest::prelude::*;

    proptest! {
        /// Whatever is taken, given back and configured: never more starts than the larger of the
        /// present total and what was taken before it shrank, and all places come back.
        #[test]
        fn the_number_may_change_at_any_time(ops in proptest::collection::vec((0u8..3, 1usize..6), 1..60)) {
            let places = Places::new(4);
            let mut total = 4;
            let mut held = Vec::new();
            for (op, n) in ops {
                match op {
                    0 => {
                        let free = held.len() < total;
                        let taken = places.take().now_or_never();
                        prop_assert_eq!(taken.is_some(), free);
                        held.extend(taken);
                    }
                    1 => drop(held.pop()),
                    _ => {
                        places.set_total(n);
                        total = n;
                    }
                }
            }
            held.clear();
            for _ in 0..total {
                held.push(places.take().now_or_never().unwrap());
            }
            prop_assert!(places.take().now_or_never().is_none());
        }
    }
}
