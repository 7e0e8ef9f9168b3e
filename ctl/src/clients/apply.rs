//! Writing a client's file: with a copy kept, and only when it still is what the person saw.
//!
//! Promise: the file is replaced atomically, keeps mode and symbolic link, and is refused when it changed after it was
//! looked at; before that its bytes are in `hermesd/backups` of the home, for its owner only. May not touch: what
//! files mean.

use crate::config_edit::file::{FileError, LARGEST, Lock, Privacy, rewrite};
use hermes_proto::endpoint::Home;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Copies kept of one file; older ones are removed.
const KEPT: usize = 20;

/// Why a client's file was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Replacing it failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is not what it was when it was looked at.
    #[error("{}: the file changed in the meantime; nothing was written", .path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// Reading it, or writing beside it, failed.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A folder, a pipe, or larger than is read.
    #[error("{}: it is no regular file of at most {LARGEST} bytes", .path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
}

/// A file as it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Where it is, as the client names it.
    pub path: PathBuf,
    /// Its bytes; `None` where there is none.
    pub bytes: Option<Vec<u8>>,
}

/// What was written beside the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beside {
    /// Copy of the bytes before; `None` where there was no file.
    pub backup: Option<PathBuf>,
    /// Folders that had to be made, outermost first.
    pub folders: Vec<PathBuf>,
}

fn io_at(path: &Path) -> impl FnOnce(io::Error) -> ApplyError {
    let path = path.to_owned();
    move |source| ApplyError::Io { path, source }
}

/// Reads the file at `path`.
///
/// # Errors
/// [`ApplyError`] when it is there and cannot be read.
pub fn look(path: &Path) -> Result<Seen, ApplyError> {
    let bytes = match fs::metadata(path) {
        Ok(meta) if !meta.is_file() || meta.len() > LARGEST => {
            return Err(ApplyError::NotAFile { path: path.to_owned() });
        }
        Ok(_) => Some(fs::read(path).map_err(io_at(path))?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(io_at(path)(error)),
    };
    Ok(Seen { path: path.to_owned(), bytes })
}

/// Replaces the file by `after`, and keeps a copy of it under a name that begins with `label`.
///
/// # Errors
/// [`ApplyError`]; the file is as it was then.
pub fn write(lock: &Lock, home: &Home, seen: &Seen, label: &str, after: &[u8]) -> Result<Beside, ApplyError> {
    let backup = backup(home, seen, label)?;
    let folders = make_folders(&seen.path)?;
    rewrite(lock, &seen.path, Privacy::Kept, |before| {
        let now = if before.is_empty() && !seen.path.exists() { None } else { Some(before) };
        if now != seen.bytes.as_deref() {
            return Err(ApplyError::Changed { path: seen.path.clone() });
        }
        Ok(after.to_owned())
    })?;
    Ok(Beside { backup, folders })
}

/// Removes the file, and those of `folders` that are empty then.
///
/// # Errors
/// [`ApplyError`]; the file is still there then.
pub fn delete(
    _lock: &Lock,
    home: &Home,
    seen: &Seen,
    label: &str,
    folders: &[PathBuf],
) -> Result<Beside, ApplyError> {
    let backup = backup(home, seen, label)?;
    if look(&seen.path)? != *seen {
        return Err(ApplyError::Changed { path: seen.path.clone() });
    }
    fs::remove_file(&seen.path).map_err(io_at(&seen.path))?;
    for folder in folders.iter().rev() {
        // One that holds something by now stays.
        let _ = fs::remove_dir(folder);
    }
    Ok(Beside { backup, folders: Vec::new() })
}

fn make_folders(path: &Path) -> Result<Vec<PathBuf>, ApplyError> {
    let Some(dir) = path.parent() else { return Ok(Vec::new()) };
    let mut missing: Vec<PathBuf> =
        dir.ancestors().take_while(|dir| !dir.exists()).map(Path::to_owned).collect();
    missing.retain(|dir| !dir.as_os_str().is_empty());
    missing.reverse();
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(io_at(dir))?;
    Ok(missing)
}

fn backup(home: &Home, seen: &Seen, label: &str) -> Result<Option<PathBuf>, ApplyError> {
    let Some(bytes) = &seen.bytes else { return Ok(None) };
    let dir = home.state_dir().join("backups");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(io_at(&dir))?;
    let name = seen.path.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!("{label}-{}.", name.trim_start_matches('.'));
    // Two copies of one moment get two names.
    let (path, mut file) = loop {
        let stamp = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%.9fZ").to_string();
        let path = dir.join(format!("{prefix}{stamp}"));
        match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => break (path, file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(io_at(&path)(error)),
        }
    };
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(io_at(&path))?;
    prune(&dir, &prefix);
    Ok(Some(path))
}

/// Removes the oldest copies; one that cannot be removed is no reason to fail.
fn prune(dir: &Path, prefix: &str) {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .collect();
    names.sort();
    for name in names.iter().take(names.len().saturating_sub(KEPT)) {
        let _ = fs::remove_file(dir.join(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn home(dir: &Path) -> Home {
        Home::find(Some(&dir.join("home")), &|_| None).unwrap()
    }

    #[test]
    fn a_file_that_changed_in_between_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        let lock = Lock::take(&home).unwrap();
        let path = dir.path().join("c.json");
        fs::write(&path, "one").unwrap();
        let seen = look(&path).unwrap();
        fs::write(&path, "two").unwrap();
        let refused = write(&lock, &home, &seen, "cursor", b"three");
        assert!(matches!(refused, Err(ApplyError::Changed { .. })), "{refused:?}");
        assert!(matches!(delete(&lock, &home, &seen, "cursor", &[]), Err(ApplyError::Changed { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        for _ in 0..50 {
            backup(&home, &seen, "moment").unwrap();
        }
    }

    #[test]
    fn a_file_with_a_long_history_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        let lock = Lock::take(&home).unwrap();
        let path = dir.path().join("c.json");
        fs::write(&path, vec![b'x'; 5 << 20]).unwrap();
        write(&lock, &home, &look(&path).unwrap(), "claude", b"short").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"short");
    }

    #[test]
    fn mode_and_link_stay_and_the_copy_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        let lock = Lock::take(&home).unwrap();
        let (real, link) = (dir.path().join("real.json"), dir.path().join("link.json"));
        fs::write(&real, "old").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let beside = write(&lock, &home, &look(&link).unwrap(), "cursor", b"new").unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&real).unwrap(), "new");
        assert_eq!(real.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        let backup = beside.backup.unwrap();
        assert_eq!(fs::read_to_string(&backup).unwrap(), "old");
        assert_eq!(backup.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn folders_that_were_made_are_known_and_go_again_when_they_are_empty() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        let lock = Lock::take(&home).unwrap();
        let path = dir.path().join("a/b/c.json");
        let made = write(&lock, &home, &look(&path).unwrap(), "cursor", b"new").unwrap();
        assert_eq!(made.folders, [dir.path().join("a"), dir.path().join("a/b")]);
        assert_eq!(made.backup, None);
        delete(&lock, &home, &look(&path).unwrap(), "cursor", &made.folders).unwrap();
        assert!(!dir.path().join("a").exists());
    }
}
