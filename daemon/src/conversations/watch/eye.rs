//! Asks the system to tell when something happens beside state.db.
//!
//! Owner: the watch thread. Promise: a notice never blocks whoever gives it; what cannot be watched is
//! said. May not touch: contents of files.

use super::pace::Mode;
use crate::config::{identity, is_reading};
use crate::store::filesystem::Locality;
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;

/// Names whose change matters: the database with what belongs to it, and the older index.
const NAMES: [&str; 4] = ["state.db", "state.db-wal", "state.db-journal", "sessions.json"];

/// See the module's words.
pub(super) struct Eye {
    home: PathBuf,
    watcher: Option<RecommendedWatcher>,
    /// Watched paths and which file they were, by device and inode.
    watched: BTreeMap<PathBuf, (u64, u64)>,
}

impl Eye {
    /// `wake` gets something for each notice; when it is full, one already waits.
    pub(super) fn new(home: &Path, wake: SyncSender<()>) -> Self {
        let own = home.to_owned();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // An error may stand for lost events, so it is a reason to look too.
            if event.map_or(true, |event| matters(&event, &own)) {
                // Full: the thread is going to look anyway. Closed: it has ended.
                let _ = wake.try_send(());
            }
        });
        let watcher = watcher
            .inspect_err(|error| tracing::warn!(%error, "state.db is polled: folders cannot be watched"));
        Self { home: home.to_owned(), watcher: watcher.ok(), watched: BTreeMap::new() }
    }

    /// Watches what is there now, and says whether notices can be expected.
    pub(super) fn renew(&mut self) -> Mode {
        let database = self.home.join("state.db");
        // A link's target changes in the target's folder.
        let real = std::fs::canonicalize(&database).unwrap_or(database);
        let folder = real.parent().unwrap_or(&self.home).to_owned();
        let mut wanted = BTreeSet::from([self.home.clone(), folder.clone()]);
        let sessions = self.home.join("sessions");
        if sessions.is_dir() {
            wanted.insert(sessions);
        }
        if cfg!(not(target_os = "linux")) {
            // kqueue reports a folder's names only, not what is written into its files.
            let files = NAMES[..3].iter().map(|name| folder.join(name));
            wanted.extend(files.filter(|file| file.is_file()));
        }
        let Some(watcher) = &mut self.watcher else { return Mode::Polling };
        self.watched.retain(|path, id| {
            // A folder that was replaced has the same path and is not watched.
            let keep = wanted.contains(path) && identity(path) == Some(*id);
            if !keep {
                // It may be gone with its folder.
                let _ = watcher.unwatch(path);
            }
            keep
        });
        let mut mode = Mode::Notices;
        for path in wanted {
            if self.watched.contains_key(&path) {
                continue;
            }
            match (identity(&path), watcher.watch(&path, RecursiveMode::NonRecursive)) {
                (Some(id), Ok(())) => drop(self.watched.insert(path, id)),
                (None, _) | (_, Err(_)) => mode = Mode::Polling,
            }
        }
        match Locality::of(&folder) {
            Locality::Local => mode,
            // What another machine writes is not told here.
            Locality::Network { .. } => Mode::Polling,
        }
    }
}

/// Whether an event may mean a change of conversations. Reading is no change, and we read ourselves.
fn matters(event: &notify::Event, home: &Path) -> bool {
    if is_reading(event) {
        return false;
    }
    let sessions = home.join("sessions");
    let concerns = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        NAMES.iter().any(|wanted| name == *wanted) || path == home || *path == sessions
    };
    event.need_rescan() || event.paths.is_empty() || event.paths.iter().any(concerns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use notify::EventKind;
    use notify::event::{AccessKind, AccessMode, CreateKind, DataChange, ModifyKind};

    #[test]
    fn only_changes_of_the_database_and_its_index_matter() {
        let home = Path::new("/h");
        let event = |kind, path: &str| notify::Event::new(kind).add_path(PathBuf::from(path));
        let written = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        assert!(matters(&event(written, "/h/state.db-wal"), home));
        assert!(matters(&event(written, "/elsewhere/state.db"), home));
        assert!(matters(&event(EventKind::Create(CreateKind::Folder), "/h/sessions"), home));
        assert!(matters(&event(written, "/h/sessions/sessions.json"), home));
        assert!(!matters(&event(written, "/h/state.db-shm"), home));
        assert!(!matters(&event(written, "/h/gateway.log"), home));
        let opened = EventKind::Access(AccessKind::Open(AccessMode::Any));
        assert!(!matters(&event(opened, "/h/state.db"), home));
    }
}
