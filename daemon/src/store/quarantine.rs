//! Moving a damaged hermesd.db out of the way, whole.
//!
//! Promise: the file, its -wal and its -shm move together under one new name, so that a repair tool
//! finds what belongs together and the new file never meets an old log. Only the newest
//! [`KEPT`] moved-aside files stay.

use super::time::UnixMs;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// How many damaged files are kept.
const KEPT: usize = 3;
/// What stands between the file's name and the time.
const MARK: &str = ".damaged-";
/// What SQLite puts behind a file's name; the last is the rollback journal.
const COMPANIONS: [&str; 4] = ["", "-wal", "-shm", "-journal"];

/// Whether old moved-aside files could be thinned out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thinned {
    /// At most [`KEPT`] are left.
    Yes,
    /// Some could not be removed.
    No,
}

/// Moves `path` and its companions aside; no connection may be open.
///
/// Answers where the file lies now.
/// # Errors
/// What the file system says about the file itself.
pub(super) fn move_aside(path: &Path, now: UnixMs) -> io::Result<(PathBuf, Thinned)> {
    let mut to = with_suffix(path, &format!("{MARK}{}", now.0));
    // Twice within a millisecond, or a clock that was set back.
    for n in 1_u32.. {
        if COMPANIONS.iter().all(|companion| !with_suffix(&to, companion).exists()) {
            break;
        }
        to = with_suffix(path, &format!("{MARK}{}.{n}", now.0));
    }
    // Companions first: were the daemon killed in between, a file without its log is still found
    // damaged, but a log without its file would be read into the next one.
    for companion in COMPANIONS.iter().rev() {
        match fs::rename(with_suffix(path, companion), with_suffix(&to, companion)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok((to, thin_out(path)))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

fn thin_out(path: &Path) -> Thinned {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Thinned::No;
    };
    let Ok(entries) = fs::read_dir(folder) else { return Thinned::No };
    let prefix = format!("{name}{MARK}");
    let mut sets: Vec<(u64, u64, String)> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter_map(|name| age_of(name.strip_prefix(&prefix)?).map(|(ms, n)| (ms, n, name)))
        .collect();
    sets.sort();
    let surplus = sets.len().saturating_sub(KEPT);
    let mut thinned = Thinned::Yes;
    for (_, _, name) in &sets[..surplus] {
        for companion in COMPANIONS {
            match fs::remove_file(folder.join(format!("{name}{companion}"))) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) => thinned = Thinned::No,
            }
        }
    }
    thinned
}

/// Time and number in `1700000000000` or `1700000000000.2`; companions are none.
fn age_of(rest: &str) -> Option<(u64, u64)> {
    match rest.split_once('.') {
        None => Some((rest.parse().ok()?, 0)),
        Some((ms, n)) => Some((ms.parse().ok()?, n.parse().ok()?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_and_its_log_move_together_and_only_the_newest_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hermesd.db");
        for round in 0..5 {
            fs::write(&path, "x").unwrap();
            fs::write(with_suffix(&path, "-wal"), "w").unwrap();
            let (to, thinned) = move_aside(&path, UnixMs(1000 + round)).unwrap();
            assert_eq!(thinned, Thinned::Yes);
            assert_eq!(fs::read_to_string(with_suffix(&to, "-wal")).unwrap(), "w");
            assert!(!path.exists() && !with_suffix(&path, "-wal").exists());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2 * KEPT);
        assert!(folder.path().join("hermesd.db.damaged-1004").exists());
    }

    #[test]
    fn a_second_file_of_the_same_millisecond_does_not_replace_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hermesd.db");
        fs::write(&path, "first").unwrap();
        let (first, _) = move_aside(&path, UnixMs(7)).unwrap();
        fs::write(&path, "second").unwrap();
        let (second, _) = move_aside(&path, UnixMs(7)).unwrap();
        assert_eq!(fs::read_to_string(first).unwrap(), "first");
        assert_eq!(fs::read_to_string(second).unwrap(), "second");
    }
}
