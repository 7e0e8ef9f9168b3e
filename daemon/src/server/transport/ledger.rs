//! The durable record of own children: `children.json` in the daemon's folder.
//!
//! Owner: one [`Ledger`] in a daemon, shared by all launches. Promise: a guard is on disk before
//! its server runs; the file is private, replaced whole, and never written on the runtime's
//! thread. It holds no command line and no environment. Not synced: a crash of the machine ends
//! the children anyway, and the boot id says so. May not touch: processes (that is the reaper's).

use crate::process::orders::{AfterStop, ContainerOrder, Leavers};
use crate::process::table;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Version of the file; another one is not understood and nothing is ended by it.
pub const VERSION: u32 = 1;

/// A process that can be recognised later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Process id.
    pub pid: u32,
    /// Start time as [`crate::process::stat::Process::start`] has it.
    pub start: u64,
}

impl Identity {
    /// The identity of the process that now has this pid.
    pub fn of(pid: u32) -> Option<Self> {
        table::one(pid).map(|process| Self { pid, start: process.start })
    }
}

/// One running server and its guard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Name in the configuration, for the log.
    pub server: String,
    /// Which spawn of the instance, for the log.
    pub generation: u64,
    /// The marker of the server: value of its `HERMESD_INSTANCE`.
    pub instance: String,
    /// The marker of the guard: value of its `HERMESD_GUARD`.
    pub guard_marker: String,
    /// The guard; its pid is the session of the server.
    pub guard: Identity,
    /// The server's first process, its pid also the process group; unknown until it runs.
    pub leader: Option<Identity>,
    /// Whether processes that left the session stay (`detached: keep`).
    pub keep_leavers: bool,
    /// Set when the server is a container client.
    pub container: Option<ContainerEntry>,
}

impl Entry {
    /// The configuration's word on processes that left the session.
    pub fn leavers(&self) -> Leavers {
        if self.keep_leavers { Leavers::Keep } else { Leavers::End }
    }
}

/// How to end the container of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerEntry {
    /// The client program.
    pub program: PathBuf,
    /// Its options before the subcommand.
    pub globals: Vec<String>,
    /// File with the container's id.
    pub cidfile: Option<PathBuf>,
    /// What happens to the stopped container.
    pub after: AfterStop,
}

impl ContainerEntry {
    /// The order to end it; the label is the instance.
    pub fn order(&self, instance: &str) -> ContainerOrder {
        ContainerOrder {
            label: instance.to_owned(),
            cidfile: self.cidfile.clone(),
            after: self.after,
            globals: self.globals.iter().map(Into::into).collect(),
        }
    }
}

/// The whole file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// [`VERSION`].
    pub version: u32,
    /// The boot during which the pids mean something.
    pub boot_id: String,
    /// Whose processes these are.
    pub uid: u32,
    /// Everything that runs.
    pub children: Vec<Entry>,
}

/// The ledger could not be brought to disk.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}")]
pub struct LedgerError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// Handle to the record; clones share it.
#[derive(Debug, Clone)]
pub struct Ledger {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    state: Mutex<State>,
    /// Which state is on disk; held while writing, so that writes never overtake each other.
    written: Mutex<u64>,
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    children: BTreeMap<String, Entry>,
}

impl Ledger {
    /// An empty record for `path`; nothing is written yet. Old content is the reaper's, which has
    /// to run before.
    pub fn new(path: PathBuf) -> Self {
        Self { shared: Arc::new(Shared { path, state: Mutex::default(), written: Mutex::new(0) }) }
    }

    /// Private folder for files that belong to single children.
    pub fn folder(&self) -> PathBuf {
        self.shared.path.with_file_name("children.d")
    }

    /// Notes a child, replacing what was known of the same instance.
    ///
    /// # Errors
    /// The file could not be written; the entry counts and the next write includes it.
    /// # Cancel safety
    /// Cancel safe: the entry is noted at once and written all the same.
    pub async fn record(&self, entry: Entry) -> Result<(), LedgerError> {
        self.change(|children| drop(children.insert(entry.instance.clone(), entry))).await
    }

    /// Forgets an instance of which nothing is left.
    ///
    /// # Errors
    /// As for [`Ledger::record`]; a stale entry does no harm, the reaper checks each process.
    /// # Cancel safety
    /// As for [`Ledger::record`].
    pub async fn forget(&self, instance: &str) -> Result<(), LedgerError> {
        self.change(|children| drop(children.remove(instance))).await
    }

    /// Notes a child until the returned value is dropped without [`Pending::keep`].
    ///
    /// # Cancel safety
    /// Cancel safe: given up, the entry is forgotten.
    pub(super) async fn record_pending(&self, entry: Entry) -> (Pending<'_>, Result<(), LedgerError>) {
        let pending = Pending { ledger: self, instance: Some(entry.instance.clone()) };
        let written = self.record(entry).await;
        (pending, written)
    }

    /// What is noted now.
    pub fn entries(&self) -> Vec<Entry> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).children.values().cloned().collect()
    }

    async fn change(&self, apply: impl FnOnce(&mut BTreeMap<String, Entry>)) -> Result<(), LedgerError> {
        {
            let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
            apply(&mut state.children);
            state.version += 1;
        }
        let shared = Arc::clone(&self.shared);
        let written = tokio::task::spawn_blocking(move || shared.write_out()).await;
        let source = match written {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(source)) => source,
            Err(panicked) => io::Error::other(panicked),
        };
        Err(LedgerError { path: self.shared.path.clone(), source })
    }
}

/// An entry whose launch is not through yet.
#[derive(Debug)]
pub(super) struct Pending<'a> {
    ledger: &'a Ledger,
    instance: Option<String>,
}

impl Pending<'_> {
    /// The launch succeeded: the entry stays.
    pub(super) fn keep(mut self) {
        self.instance = None;
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        // Only the books: the guard ends by its lifeline, and the next write brings this to disk.
        if let Some(instance) = self.instance.take() {
            let mut state = self.ledger.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.children.remove(&instance);
            state.version += 1;
        }
    }
}

impl Shared {
    fn write_out(&self) -> io::Result<()> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let (version, children) = {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            (state.version, state.children.values().cloned().collect())
        };
        if *written >= version {
            return Ok(());
        }
        let record = Record {
            version: VERSION,
            boot_id: table::boot_id().unwrap_or_default(),
            uid: rustix::process::getuid().as_raw(),
            children,
        };
        write_private(&self.path, &serde_json::to_vec_pretty(&record)?)?;
        *written = version;
        Ok(())
    }
}

/// Replaces `path` by `content`, readable by the user alone.
fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("json.new");
    // Never written through what somebody may have put there.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(content)?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn entry(instance: &str) -> Entry {
        Entry {
            server: "w".to_owned(),
            generation: 1,
            instance: instance.to_owned(),
            guard_marker: "g".to_owned(),
            guard: Identity { pid: 10, start: 20 },
            leader: None,
            keep_leavers: false,
            container: None,
        }
    }

    fn on_disk(path: &Path) -> Vec<String> {
        let record: Record = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        assert_eq!(record.version, VERSION);
        record.children.into_iter().map(|entry| entry.instance).collect()
    }

    #[tokio::test]
    async fn what_runs_is_on_disk_and_private() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("children.json");
        let ledger = Ledger::new(path.clone());
        ledger.record(entry("a")).await.unwrap();
        ledger.record(entry("b")).await.unwrap();
        assert_eq!(on_disk(&path), ["a", "b"]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        ledger.forget("a").await.unwrap();
        assert_eq!(on_disk(&path), ["b"]);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "no temporary file stays");
    }

    #[tokio::test]
    async fn many_changes_at_once_all_arrive() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("children.json");
        let ledger = Ledger::new(path.clone());
        let names: Vec<String> = (0..40).map(|n| format!("{n:02}")).collect();
        let all = names.iter().map(|name| ledger.record(entry(name)));
        for done in futures_util::future::join_all(all).await {
            done.unwrap();
        }
        assert_eq!(on_disk(&path), names);
    }

    #[tokio::test]
    async fn a_failed_write_is_named_and_made_up_for_by_the_next() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("missing/children.json");
        let ledger = Ledger::new(path.clone());
        assert_eq!(ledger.record(entry("a")).await.unwrap_err().path, path);
        fs::create_dir(home.path().join("missing")).unwrap();
        ledger.record(entry("b")).await.unwrap();
        assert_eq!(on_disk(&path), ["a", "b"]);
    }
}
