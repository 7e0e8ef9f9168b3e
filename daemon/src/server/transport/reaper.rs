//! The start-up reaper: what an earlier daemon left, ended before anything else opens.
//!
//! Owner: boot, once, after the lock of the home is held (so the earlier daemon is gone) and before
//! the runtime has work: it blocks. Promise: old guards get the time to finish by themselves; then
//! only processes are ended that the ledger names by pid, start time, boot, user and marker, or
//! that carry a recorded marker and are not older than its guard. A missing, damaged or foreign
//! ledger ends nothing and says so. May not touch: strangers.

use super::ledger::{Entry, Record, VERSION};
use crate::process::container::{self, Environment};
use crate::process::ladder::ORPHANED_BUDGET;
use crate::process::orders::Ended;
use crate::process::sweep::{Lost, Session, sweep};
use crate::process::table::{self, GUARD_MARKER, INSTANCE_MARKER};
use rustix::process::Signal;
use std::io;
use std::path::Path;
use std::time::Duration;

/// How long old guards may take: their own budget, and time to stop a container.
pub const GUARD_PATIENCE: Duration = ORPHANED_BUDGET.saturating_add(Duration::from_secs(4));
/// How long one server's leftovers may take once its guard is gone.
const SWEEP_BUDGET: Duration = Duration::from_secs(3);
/// How long a container client may take at start.
const CONTAINER_BUDGET: Duration = Duration::from_secs(10);

/// What the ledger was worth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerState {
    /// No file: first start, or an orderly stop.
    Missing,
    /// Read and understood.
    Read,
    /// From before the machine was started: none of its processes can live.
    OtherBoot,
    /// Of another user.
    OtherUser,
    /// Not readable as a ledger; nothing was looked for.
    Damaged {
        /// Where the text stops making sense.
        reason: String,
    },
}

/// Why a recorded process was left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spared {
    /// Its pid belongs to another process now.
    PidReused,
    /// It belongs to another user.
    OtherUser,
    /// It does not carry the marker, or its environment cannot be read.
    NoMarker,
}

/// What the reaper found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReapReport {
    /// What the ledger was worth.
    pub ledger: LedgerState,
    /// How long old guards were waited for.
    pub waited: Duration,
    /// Ended processes with the server they belonged to.
    pub ended: Vec<(String, Ended)>,
    /// Recorded pids that were left alone because they name somebody else.
    pub spared: Vec<(u32, Spared)>,
    /// Containers that were addressed.
    pub containers: usize,
    /// What outlived KILL.
    pub survivors: Vec<u32>,
}

impl ReapReport {
    /// Writes what was done into the daemon's log.
    pub fn log(&self) {
        for (server, ended) in &self.ended {
            tracing::warn!(
                server,
                pid = ended.pid,
                process = ended.name,
                "ended a process that an earlier daemon left"
            );
        }
        if !self.survivors.is_empty() {
            let pids: Vec<String> = self.survivors.iter().map(ToString::to_string).collect();
            tracing::error!(pids = pids.join(" "), "processes of an earlier daemon cannot be ended");
        }
        tracing::debug!(
            ended = self.ended.len(),
            spared = self.spared.len(),
            containers = self.containers,
            waited_ms = self.waited.as_millis(),
            "looked for leftovers"
        );
    }

    fn of(ledger: LedgerState) -> Self {
        Self {
            ledger,
            waited: Duration::ZERO,
            ended: Vec::new(),
            spared: Vec::new(),
            containers: 0,
            survivors: Vec::new(),
        }
    }
}

/// Ends what an earlier daemon of this home left, as recorded in `ledger_path`; waits at most
/// `patience` for its guards ([`GUARD_PATIENCE`]). Blocks; removes the file when nothing survived.
pub fn reap_leftovers(ledger_path: &Path, patience: Duration) -> ReapReport {
    let record = match read(ledger_path) {
        Ok(record) => record,
        Err(state) => return ReapReport::of(state),
    };
    let mut report = ReapReport::of(LedgerState::Read);
    report.waited = wait_for_guards(&record.children, patience);
    for entry in &record.children {
        reap(entry, &mut report);
    }
    if report.survivors.is_empty() {
        // Else it stays for the next start, until the first launch replaces it.
        let _ = std::fs::remove_file(ledger_path);
    }
    report
}

fn read(path: &Path) -> Result<Record, LedgerState> {
    let damaged = |reason: &dyn std::fmt::Display| LedgerState::Damaged { reason: reason.to_string() };
    let bytes = std::fs::read(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => LedgerState::Missing,
        _ => damaged(&error),
    })?;
    let record: Record = serde_json::from_slice(&bytes).map_err(|error| damaged(&error))?;
    if record.version != VERSION {
        return Err(damaged(&format_args!("version {}, known is {VERSION}", record.version)));
    }
    if record.uid != rustix::process::getuid().as_raw() {
        return Err(LedgerState::OtherUser);
    }
    match table::boot_id() {
        Some(boot) if boot == record.boot_id => Ok(record),
        Some(_) => Err(LedgerState::OtherBoot),
        None => Err(damaged(&"this boot has no id to compare with")),
    }
}

fn wait_for_guards(entries: &[Entry], patience: Duration) -> Duration {
    let begin = table::clock();
    let living =
        |entry: &Entry| verify(entry.guard.pid, entry.guard.start, GUARD_MARKER, &entry.guard_marker).is_ok();
    while entries.iter().any(living) && table::clock() < begin + patience {
        table::pause(Duration::from_millis(20));
    }
    table::clock() - begin
}

/// The recorded process, if it still is that one in every respect; `Err(None)` when it is gone.
fn verify(
    pid: u32,
    start: u64,
    marker: &str,
    instance: &str,
) -> Result<crate::process::stat::Process, Option<Spared>> {
    let process = table::one(pid).filter(|process| !process.zombie).ok_or(None)?;
    if process.start != start {
        return Err(Some(Spared::PidReused));
    }
    if table::uid(pid) != Some(rustix::process::getuid().as_raw()) {
        return Err(Some(Spared::OtherUser));
    }
    if !table::carries(pid, marker, instance) {
        return Err(Some(Spared::NoMarker));
    }
    Ok(process)
}

fn reap(entry: &Entry, report: &mut ReapReport) {
    match verify(entry.guard.pid, entry.guard.start, GUARD_MARKER, &entry.guard_marker) {
        // It had its time. Its server dies with it; the sweep below finds the rest.
        Ok(guard) => {
            table::signal(&guard, Signal::KILL);
            report.ended.push((
                entry.server.clone(),
                Ended { pid: guard.pid, name: guard.name, left_session: false },
            ));
        }
        Err(None) => {}
        Err(Some(spared)) => report.spared.push((entry.guard.pid, spared)),
    }
    if let Some(leader) = entry.leader
        && let Err(Some(spared)) = verify(leader.pid, leader.start, INSTANCE_MARKER, &entry.instance)
    {
        report.spared.push((leader.pid, spared));
    }
    let swept = sweep(&lost(entry), SWEEP_BUDGET);
    report.ended.extend(swept.ended.into_iter().map(|ended| (entry.server.clone(), ended)));
    report.survivors.extend(swept.survivors);
    if let Some(client) = &entry.container {
        let order = client.order(&entry.instance);
        // The guard removes the id file after it stopped the container.
        if order.cidfile.as_ref().is_none_or(|path| path.exists()) {
            report.containers += container::end(
                &client.program,
                &Environment::Inherited,
                &order,
                table::clock() + CONTAINER_BUDGET,
            );
        }
    }
}

fn lost(entry: &Entry) -> Lost {
    Lost {
        instance: entry.instance.clone(),
        guard: entry.guard.pid,
        session: Session::Unheld,
        since: entry.guard.start,
        leavers: entry.leavers(),
    }
}
