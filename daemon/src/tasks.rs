//! Task groups: the only place that spawns tasks, so that shutdown can wait for all of them.
//!
//! Owner: whoever made the group. Promise: [`TaskGroup::finish`] returns only after every task
//! ended or the budget is spent. May not touch: what the tasks do.

use std::future::Future;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// A set of tasks with one stop signal.
#[derive(Debug, Clone, Default)]
pub struct TaskGroup {
    tracker: TaskTracker,
    /// Trackers of the groups above, which wait for our tasks too.
    above: Vec<TaskTracker>,
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

    /// A group within this one: it can be stopped and waited for on its own, and whoever stops and
    /// waits for this one stops and waits for it too.
    #[must_use]
    pub fn child(&self) -> Self {
        let mut above = self.above.clone();
        above.push(self.tracker.clone());
        Self { tracker: TaskTracker::new(), above, stop: self.stop.child_token() }
    }

    fn counted(&self) -> Vec<TaskTrackerToken> {
        self.above.iter().map(TaskTracker::token).collect()
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
        let counted = self.counted();
        self.tracker.spawn(async move {
            let output = task.await;
            drop(counted);
            output
        })
    }

    /// Runs `task` in this group until it ends or the group is told to stop, whichever comes first. For
    /// tasks that only wait for others and may be dropped at every await.
    pub fn spawn_until_stop<F>(&self, task: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = self.stop_signal();
        self.spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = task => {}
            }
        })
    }

    /// Runs `work` on the blocking pool; waited for like a task.
    pub fn spawn_blocking<F, T>(&self, work: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let counted = self.counted();
        self.tracker.spawn_blocking(move || {
            let output = work();
            drop(counted);
            output
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_would_wait_for_ever_ends_with_its_group() {
        let group = TaskGroup::new();
        group.spawn_until_stop(std::future::pending());
        assert_eq!(group.finish(Duration::from_millis(1)).await, Finished::All);
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_waits_for_the_tasks_of_groups_within_it() {
        let parent = TaskGroup::new();
        let child = parent.child();
        let stop = child.stop_signal();
        child.spawn(async move {
            stop.cancelled().await;
            tokio::time::sleep(Duration::from_secs(5)).await;
        });
        assert_eq!(parent.finish(Duration::from_secs(1)).await, Finished::Some { left: 1 });
        assert_eq!(parent.finish(Duration::from_secs(10)).await, Finished::All);
    }
}
