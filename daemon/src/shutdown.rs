//! The order in which the daemon ends: mcp.sock closed, calls drained, servers stopped in
//! parallel, store and logs flushed, control.sock last. One budget for all of it.

use crate::claim::{Claim, Made};
use crate::session::clients::Clients;
use crate::signals::Signal;
use crate::store::Store;
use crate::tasks::{Finished, TaskGroup};
use crate::telemetry::server_log::ServerLogs;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// From the signal to the end of the process. systemd/hermesd.service waits longer than this.
pub const BUDGET: Duration = Duration::from_secs(10);

/// The share of it that calls in flight get.
const DRAIN: Duration = Duration::from_secs(3);

/// What the store and the export of traces get for what is not written yet.
const LAST_WRITES: Duration = Duration::from_millis(500);

/// What runs and must end, in the order of the fields.
#[derive(Debug)]
pub struct Running {
    /// Accepts on mcp.sock.
    pub accepting: TaskGroup,
    /// Everyone connected.
    pub clients: Clients,
    /// One task a client.
    pub sessions: TaskGroup,
    /// Supervisors and wires.
    pub servers: TaskGroup,
    /// Reload, catalogue, watchers.
    pub inner: TaskGroup,
    /// The export of traces.
    pub traces: TaskGroup,
    /// hermesd.db.
    pub store: Store,
    /// Log files.
    pub logs: ServerLogs,
    /// control.sock.
    pub admin: TaskGroup,
}

/// Ends everything in order; `made` are the socket files to remove. A second signal skips what is left of
/// the draining.
pub async fn run(running: Running, mut claim: Claim, made: &[Made], signals: &mut mpsc::Receiver<Signal>) {
    let started = Instant::now();
    let left = || BUDGET.saturating_sub(started.elapsed());
    claim.ending();
    running.accepting.finish(Duration::from_millis(200)).await;
    tokio::select! {
        () = drained(&running.clients) => {}
        () = tokio::time::sleep(DRAIN) => tracing::warn!("calls still in flight are ended"),
        Some(Signal::End) = signals.recv() => tracing::warn!("second signal: calls in flight are ended"),
    }
    running.sessions.stop();
    // The servers get all that is left but for the last writes.
    if let Finished::Some { left } =
        running.servers.finish(left().saturating_sub(Duration::from_millis(500))).await
    {
        tracing::error!(left, "server tasks did not end within the budget; their guards finish the work");
    }
    running.sessions.finish(Duration::from_millis(200)).await;
    // A login shell that is still being asked gets two seconds to give back its locks.
    if let Finished::Some { left } = running.inner.finish(Duration::from_millis(2200).min(left())).await {
        tracing::warn!(left, "tasks of the daemon itself did not end within their time");
    }
    // Both wait for somebody else: a disk, a receiver.
    tokio::join!(running.store.close(LAST_WRITES), running.traces.finish(LAST_WRITES));
    tracing::info!(ms = started.elapsed().as_millis() as u64, "hermesd ended");
    running.logs.flush(Duration::from_millis(300)).await;
    running.admin.finish(Duration::from_millis(200)).await;
    claim.retire(made);
}

/// Returns when no client waits for an answer.
async fn drained(clients: &Clients) {
    let mut look = tokio::time::interval(Duration::from_millis(10));
    loop {
        look.tick().await;
        if clients.all().iter().all(|client| client.in_flight.load(Ordering::Relaxed) == 0) {
            return;
        }
    }
}
