//! Connects to a server once, with the code that runs it, and says how each step went.
//!
//! Owner: the caller; a server that runs already is not touched, this is a process of its own.
//! Promise: nothing of it is left when [`diagnose`] returns, whatever failed; dropped half-way, the
//! supervisor underneath ends it. May not touch: the catalogue, breakers of running servers.

use super::handle::NotReady;
use super::lifecycle::StopReason;
use super::listing::Listing;
use super::status::{Reporter, ServerStatus};
use super::supervisor::{Known, Shared, Supervisor};
use crate::config::{ServerConfig, StartMode};
use crate::tasks::TaskGroup;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Time for a malware check and a start place before the server's own budget begins.
const BEFORE_START: Duration = Duration::from_secs(15);

/// What a test of a server found.
#[derive(Debug)]
pub struct Diagnosis {
    /// Ready, or why not.
    pub outcome: Result<(), NotReady>,
    /// The steps, the exit, the stderr tail, the noise; taken after the end.
    pub status: ServerStatus,
    /// What it offers; `None` when it never said.
    pub listing: Option<Arc<Listing>>,
    /// From the first step to the end of the listing, the stop not counted.
    pub total: Duration,
}

/// Starts `config` once, reads its lists, ends it. At most its `connect_timeout` and 15 s, besides
/// the stop. A failed start is not repeated.
///
/// # Cancel safety
/// Dropping the future tells the process to end; nobody waits for it then but `shared.tasks`.
pub async fn diagnose(config: &ServerConfig, shared: &Shared) -> Diagnosis {
    let begun = Instant::now();
    let config = Arc::new(ServerConfig { start: StartMode::Lazy, idle_stop: None, ..config.clone() });
    let tasks = shared.tasks.child();
    let _ends_with_us = StopOnDrop(tasks.clone());
    let deadline = begun + BEFORE_START + config.connect_timeout;
    // Known as current, so that nothing but the order below starts it.
    let known = Known::Current(Arc::new(Listing::default()));
    let handle = Supervisor::start(config, known, Shared { tasks, ..shared.clone() });
    let outcome = handle.start(deadline).await;
    let total = begun.elapsed();
    let listing = outcome.is_ok().then(|| handle.listing().borrow().clone()).flatten();
    let before = handle.status().borrow().clone();
    handle.stop(StopReason::Removed).await;
    let after = handle.status().borrow().clone();
    // The phase that was reached; a crash may have been noticed only in the end.
    let status = ServerStatus { last_exit: after.last_exit, ..before };
    Diagnosis { outcome, status, listing, total }
}

/// What a start of `config` would find, without starting anything: command, folder, PATH, names of
/// variables, gate, malware check. At most [`BEFORE_START`]; what takes longer is left out.
///
/// # Cancel safety
/// Cancel safe.
pub async fn preview(config: Arc<ServerConfig>, shared: &Shared) -> Reporter {
    let report = Reporter::default();
    let prepared = shared.launcher.prepare(config, report.clone());
    // An ignition that is dropped starts nothing; failures are in the report.
    let _ = tokio::time::timeout(BEFORE_START, prepared).await;
    report
}

struct StopOnDrop(TaskGroup);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        // Only a signal; the group's owner waits for the task.
        self.0.stop();
    }
}
