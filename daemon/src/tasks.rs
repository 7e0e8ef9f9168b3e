//! Task groups: the only place that spawns tasks, so that shutdown can wait for all of them.
//!
//! Owner: whoever made the group. Promise: [`TaskGroup::finish`] returns only after every task
//! ended or the budget is spent. May not touch: what the tasks do.

use std::future::Future;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A set of tasks with one stop signal.
#[derive(Debug, Clone, Default)]
pub struct TaskGroup {
    tracker: TaskTracker,
    stop: CancellationToken,
}

/// Whether a group ended within its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// Every task ended.
    All,
    /// Some tasks were still running when the budget was spent.
    Some {
        /// How many.
        left: usize,
    },
}

impl TaskGroup {
    /// An empty group.
    pub fn new() -> Self {
        Self::default()
    }

    /// A group that is told to stop when this one is, but is waited for on its own.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { tracker: TaskTracker::new(), stop: self.stop.child_token() }
    }

    /// The stop signal; tasks select on it first.
    pub fn stop_signal(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Runs `task` in this group.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tracker.spawn(task)
    }

    /// Runs `work` on the blocking pool; waited for like a task.
    pub fn spawn_blocking<F, T>(&self, work: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.tracker.spawn_blocking(work)
    }

    /// Tells every task to stop without waiting.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Tells every task to stop and waits for them, at most `budget`.
    ///
    /// # Cancel safety
    /// Cancel safe: the stop signal stays set, a later call waits again.
    pub async fn finish(&self, budget: Duration) -> Finished {
        self.stop.cancel();
        self.tracker.close();
        match tokio::time::timeout(budget, self.tracker.wait()).await {
            Ok(()) => Finished::All,
            Err(_) => Finished::Some { left: self.tracker.len() },
        }
    }
}
