//! Which conversation a session belongs to.
//!
//! Owner: the watch thread. Promise: sessions.json is parsed only when a session is unknown and the file
//! changed, and takes at most a twentieth of the time. May not touch: anything but for reading.

use super::super::db::Snapshot;
use super::super::sessions_file;
use super::super::tools::read_text;
use super::rows;
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Sessions that are remembered as unknown.
const UNKNOWN_LIMIT: usize = 4096;

/// See the module's words.
#[derive(Debug)]
pub(super) struct Keys {
    index: PathBuf,
    /// State of sessions.json when it was read last.
    read: Option<Mark>,
    /// Sessions that were not in it then.
    unknown: HashSet<String>,
    /// Not read again before this.
    not_before: Option<Instant>,
}

/// Inode, size and time of change.
type Mark = (u64, u64, i64, i64);

impl Keys {
    pub(super) fn new(home: &Path) -> Self {
        Self {
            index: home.join("sessions/sessions.json"),
            read: None,
            unknown: HashSet::new(),
            not_before: None,
        }
    }

    /// Whether sessions that were unknown may be known now.
    pub(super) fn changed(&self) -> bool {
        mark(&self.index) != self.read
    }

    /// The conversation of `session_id`; `None`: none, or not yet.
    pub(super) fn of(
        &mut self,
        snapshot: &Snapshot<'_>,
        session_id: &str,
    ) -> rusqlite::Result<Option<String>> {
        if snapshot.sessions.has("session_key") {
            if let Some(key) = rows::session_key(snapshot, session_id)? {
                return Ok(Some(key));
            }
            if rows::rows_name_keys(snapshot)? {
                return Ok(None);
            }
        }
        let mark = mark(&self.index);
        if mark == self.read && self.unknown.contains(session_id) {
            return Ok(None);
        }
        if self.not_before.is_some_and(|not_before| Instant::now() < not_before) {
            // Asked again at the next look.
            self.read = None;
            return Ok(None);
        }
        let key = self.parse().remove(session_id);
        if mark != self.read || self.unknown.len() >= UNKNOWN_LIMIT {
            self.unknown.clear();
        }
        self.read = mark;
        if key.is_none() {
            self.unknown.insert(session_id.to_owned());
        }
        Ok(key)
    }

    /// All sessions of sessions.json with their conversations; none where rows of state.db name them.
    pub(super) fn all(&mut self, snapshot: &Snapshot<'_>) -> rusqlite::Result<HashMap<String, String>> {
        if snapshot.sessions.has("session_key") && rows::rows_name_keys(snapshot)? {
            return Ok(HashMap::new());
        }
        Ok(self.parse())
    }

    fn parse(&mut self) -> HashMap<String, String> {
        let started = Instant::now();
        // Missing or damaged: no conversations, as everywhere.
        let entries = read_text(&self.index).map(|json| sessions_file::parse(&json)).unwrap_or_default();
        let keys = entries.into_iter().map(|entry| (entry.session_id, entry.session_key)).collect();
        let took = started.elapsed();
        self.not_before = (took > Duration::from_millis(1)).then(|| Instant::now() + took * 20);
        keys
    }
}

fn mark(path: &Path) -> Option<Mark> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}
