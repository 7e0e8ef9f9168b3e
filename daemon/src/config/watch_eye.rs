//! Looks at the three files of a home, and asks the system to report changes on the way to them.
//!
//! Owner: the watch task. Blocking: used on the blocking pool. Promise: every folder that a link
//! on the way leads through is watched, so that exchanged links (mounted secrets, dotfile
//! managers) are seen; contents are kept as digests only. May not touch: anything but for reading.

use super::check::read_small;
use super::file;
use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::warn;

/// The files as they were at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Look {
    /// Of all files together.
    pub(super) digest: [u8; 32],
    /// Whether changes may go unreported.
    pub(super) blind: bool,
    /// Bytes of `config.yaml` and `.env`; 0 where there is none.
    sizes: [usize; 2],
    /// Whether both end like files that somebody finished writing.
    finished: bool,
}

impl Look {
    /// Whether this may be a moment in the middle of a write, compared with `before`.
    pub(super) fn looks_unfinished(&self, before: &Self) -> bool {
        let vanished = |file: usize| self.sizes[file] == 0 && before.sizes[file] > 0;
        !self.finished || vanished(0) || vanished(1)
    }
}

/// Folder and name of everything whose change matters.
type Places = BTreeSet<(PathBuf, OsString)>;

/// See the module's words.
pub(super) struct Eye {
    files: [PathBuf; 3],
    places: Arc<Mutex<Places>>,
    watcher: Option<RecommendedWatcher>,
    /// Watched paths and which file they were, by device and inode.
    watched: BTreeMap<PathBuf, (u64, u64)>,
}

impl fmt::Debug for Eye {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Eye")
            .field("files", &self.files)
            .field("watched", &self.watched)
            .finish_non_exhaustive()
    }
}

impl Eye {
    /// `tell` is called from another thread for each change that matters; it must not block.
    pub(super) fn new(home: &Path, tell: impl Fn() + Send + 'static) -> Self {
        let places: Arc<Mutex<Places>> = Arc::default();
        let of_interest = Arc::clone(&places);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // An error may stand for lost events, so it is a reason to look too.
            if event.map_or(true, |event| {
                matters(&event, &of_interest.lock().unwrap_or_else(PoisonError::into_inner))
            }) {
                tell();
            }
        });
        let watcher = watcher
            .inspect_err(|err| warn!(error = %err, "cannot watch folders, configuration is polled"))
            .ok();
        Self {
            files: [home.join("config.yaml"), home.join(".env"), home.join("gateway.json")],
            places,
            watcher,
            watched: BTreeMap::new(),
        }
    }

    /// Renews the watches, then reads the files; in this order, or a change between the two
    /// would be missed.
    pub(super) fn look(&mut self) -> Look {
        let complete = self.renew();
        let read = self.files.each_ref().map(|path| read_small(path));
        let mut hasher = Sha256::new();
        for content in &read {
            match content {
                Ok(bytes) => {
                    hasher.update([1]);
                    hasher.update((bytes.len() as u64).to_le_bytes());
                    hasher.update(bytes);
                }
                Err(err) => hasher.update(format!("0{:?}", err.kind())),
            }
        }
        let [yaml, dotenv, _] = read.each_ref().map(|content| content.as_deref().unwrap_or(&[]));
        let parses = file::decode(yaml).and_then(file::parse).is_ok();
        Look {
            digest: hasher.finalize().into(),
            blind: !complete,
            sizes: [yaml.len(), dotenv.len()],
            finished: parses && [yaml, dotenv].iter().all(|bytes| bytes.is_empty() || bytes.ends_with(b"\n")),
        }
    }

    /// Watches what leads to the files now; whether all of it could be watched.
    fn renew(&mut self) -> bool {
        let places: Places = self.files.iter().flat_map(|path| places(path)).collect();
        let mut wanted: BTreeSet<PathBuf> = places.iter().map(|(dir, _)| dir.clone()).collect();
        if cfg!(not(target_os = "linux")) {
            // kqueue reports a folder's names only, not what is written into its files.
            wanted.extend(places.iter().map(|(dir, name)| dir.join(name)).filter(|path| path.is_file()));
        }
        *self.places.lock().unwrap_or_else(PoisonError::into_inner) = places;
        let Some(watcher) = &mut self.watcher else { return false };
        let watched = &mut self.watched;
        watched.retain(|path, id| {
            // A folder that was replaced has the same path and is not watched.
            let keep = wanted.contains(path) && identity(path) == Some(*id);
            if !keep {
                let _ = watcher.unwatch(path);
            }
            keep
        });
        let mut complete = true;
        for path in wanted {
            if watched.contains_key(&path) {
                continue;
            }
            match (identity(&path), watcher.watch(&path, RecursiveMode::NonRecursive)) {
                (Some(id), Ok(())) => {
                    watched.insert(path, id);
                }
                (None, _) | (_, Err(_)) => complete = false,
            }
        }
        complete
    }
}

/// Device and inode: whether a path still leads to what was watched.
pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Whether an event only says that somebody looked.
pub(crate) fn is_reading(event: &notify::Event) -> bool {
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => false,
        EventKind::Access(_) => true,
        EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => false,
    }
}

/// Whether an event concerns one of the places. Reading is no change, and we read ourselves.
fn matters(event: &notify::Event, places: &Places) -> bool {
    if is_reading(event) {
        return false;
    }
    let concerns = |path: &PathBuf| places.iter().any(|(dir, name)| path == dir || *path == dir.join(name));
    event.need_rescan() || event.paths.is_empty() || event.paths.iter().any(concerns)
}

/// Most links that are followed on the way to one file, as in Linux.
const MAX_LINKS: usize = 40;

/// The folder and name of the file, of each link on the way to it and of what they lead to.
fn places(path: &Path) -> Places {
    let mut found = Places::new();
    let mut links = 0;
    let mut todo: Vec<OsString> = components(path);
    let mut at = PathBuf::new();
    while let Some(part) = todo.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        let target = std::fs::read_link(&next).ok().filter(|_| links < MAX_LINKS);
        if target.is_some() || todo.is_empty() {
            found.insert((at.clone(), part));
        }
        match target {
            Some(target) => {
                links += 1;
                if target.is_absolute() {
                    at = PathBuf::new();
                }
                todo.extend(components(&target));
            }
            None => at = next,
        }
    }
    found
}

/// The parts of a path, last first.
fn components(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter(|part| !matches!(part, Component::CurDir));
    let mut parts: Vec<OsString> = parts.map(|part| part.as_os_str().to_owned()).collect();
    parts.reverse();
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn names(found: &Places, root: &Path) -> Vec<String> {
        let plain = |(dir, name): &(PathBuf, OsString)| {
            dir.join(name).strip_prefix(root).map_or(String::new(), |path| path.display().to_string())
        };
        found.iter().map(plain).collect()
    }

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("temporary folder");
        let real = dir.path().canonicalize().expect("real path");
        (dir, real)
    }

    #[test]
    fn a_plain_file_has_one_place_even_before_it_exists() {
        let (_dir, root) = folder();
        assert_eq!(names(&places(&root.join("config.yaml")), &root), ["config.yaml"]);
    }

    #[test]
    fn every_link_on_the_way_is_a_place() {
        let (_dir, root) = folder();
        fs::create_dir_all(root.join("home")).expect("home");
        fs::create_dir_all(root.join("v1")).expect("v1");
        fs::write(root.join("v1/config.yaml"), "").expect("file");
        symlink("v1", root.join("current")).expect("link");
        symlink("../current/config.yaml", root.join("home/config.yaml")).expect("link");
        let found = places(&root.join("home/config.yaml"));
        assert_eq!(names(&found, &root), ["current", "home/config.yaml", "v1/config.yaml"]);
    }

    #[test]
    fn links_in_a_circle_end() {
        let (_dir, root) = folder();
        symlink("b", root.join("a")).expect("link");
        symlink("a", root.join("b")).expect("link");
        assert!(places(&root.join("a")).len() <= 2);
    }

    #[test]
    fn reading_and_neighbours_are_no_reason_to_look() {
        let found = Places::from([(PathBuf::from("/h"), OsString::from("config.yaml"))]);
        let event = |kind, path: &str| notify::Event::new(kind).add_path(PathBuf::from(path));
        let close_write = EventKind::Access(AccessKind::Close(AccessMode::Write));
        assert!(matters(&event(close_write, "/h/config.yaml"), &found));
        assert!(matters(
            &event(EventKind::Create(notify::event::CreateKind::File), "/h/config.yaml"),
            &found
        ));
        assert!(!matters(
            &event(EventKind::Access(AccessKind::Open(AccessMode::Any)), "/h/config.yaml"),
            &found
        ));
        assert!(!matters(&event(close_write, "/h/state.db-wal"), &found));
    }

    #[test]
    fn a_digest_follows_the_content_and_not_the_time() {
        let (_dir, root) = folder();
        let mut eye = Eye::new(&root, || {});
        let empty = eye.look();
        fs::write(root.join("config.yaml"), "a: 1\n").expect("write");
        let first = eye.look();
        fs::write(root.join("config.yaml"), "a: 1\n").expect("write");
        assert_eq!(eye.look(), first);
        assert_ne!(first.digest, empty.digest);
        fs::write(root.join(".env"), "A=1\n").expect("write");
        assert_ne!(eye.look().digest, first.digest);
        assert!(!first.blind && first.finished);
    }

    #[test]
    fn files_without_an_end_or_without_sense_look_unfinished() {
        let (_dir, root) = folder();
        let mut eye = Eye::new(&root, || {});
        let mut look = |text: &str| {
            fs::write(root.join("config.yaml"), text).expect("write");
            eye.look()
        };
        let good = look("a: 1\n");
        for half in ["a: 1", "a: [1,\n", ""] {
            assert!(look(half).looks_unfinished(&good), "{half:?}");
        }
        assert!(!look("a: 2\n").looks_unfinished(&good));
    }
}
