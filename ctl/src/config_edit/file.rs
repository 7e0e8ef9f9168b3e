//! Changes of files that other programs read and write too.
//!
//! Promise: a reader sees the old file or the new one, never a part; mode, owner and a symbolic link
//! stay; of two hermesctl at once none loses anything, because each reads again under the lock; a
//! program that does not know the lock is noticed by what it wrote. May not touch: what files mean.

use super::edit::{self, EditError, Step};
use super::tree::{self, Node, TreeError};
use hermes_proto::endpoint::Home;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Looks at a lock that another process holds, and the pause between two.
const LOCK_LOOKS: u32 = 400;
const LOCK_PAUSE: Duration = Duration::from_millis(25);
/// How often a file may change under our hands before we give up.
const TRIES: u32 = 5;

/// Why a file was not changed.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Reading or writing failed.
    #[error("{}: cannot be {action}: {source}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried, e.g. `read`.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Not UTF-8.
    #[error("{}: it is not valid UTF-8", .path.display())]
    NotText {
        /// The file.
        path: PathBuf,
    },
    /// A folder, a pipe, or more than is read.
    #[error("{}: it is no regular file of at most {LARGEST} bytes", .path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// The text cannot be edited.
    #[error("{}: {source}", .path.display())]
    Edit {
        /// The file.
        path: PathBuf,
        /// Why.
        source: EditError,
    },
    /// Another process holds the lock.
    #[error("another command is editing these files (it holds {})", .path.display())]
    Busy {
        /// The lock.
        path: PathBuf,
    },
    /// Another program wrote the file each time between our look and our write.
    #[error("{}: another program changes it at this moment", .path.display())]
    Unsteady {
        /// The file.
        path: PathBuf,
    },
}

/// Largest file that is read, in bytes: `.claude.json` holds histories and grows. YAML has a limit of its own.
pub const LARGEST: u64 = 64 << 20;

/// The right to edit files of one home; given back when dropped. Never held while a person is asked.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// What became of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The file itself, behind any link.
    pub path: PathBuf,
    /// Its bytes before; `None`: it was not there.
    pub before: Option<Vec<u8>>,
    /// Its bytes now.
    pub after: Vec<u8>,
}

impl Written {
    /// Whether anything was written.
    pub fn changed(&self) -> bool {
        self.before.as_ref() != Some(&self.after)
    }
}

/// Who may read a file after it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privacy {
    /// As before; a new one is its owner's only.
    Kept,
    /// Its owner only, whatever it was.
    Private,
}

impl Lock {
    /// Waits for the lock of `home`, at most 10 s. Blocking.
    ///
    /// # Errors
    /// [`FileError::Busy`], or [`FileError::Io`] when hermesd's folder of the home cannot be made.
    pub fn take(home: &Home) -> Result<Self, FileError> {
        let dir = home.state_dir();
        let io = |action| {
            let path = dir.clone();
            move |source| FileError::Io { path, action, source }
        };
        fs::create_dir_all(&dir).map_err(io("made"))?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).map_err(io("made private"))?;
        let path = dir.join("edit.lock");
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| FileError::Io { path: path.clone(), action: "opened", source: error.into() })?;
        for _ in 0..LOCK_LOOKS {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { _file: file.into() }),
                Err(rustix::io::Errno::WOULDBLOCK) => pause(),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(FileError::Io { path, action: "locked", source: error.into() }),
            }
        }
        Err(FileError::Busy { path })
    }
}

fn pause() {
    let span = rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(LOCK_PAUSE.subsec_nanos()) };
    // Woken early, it only looks early.
    let _ = rustix::thread::nanosleep(&span);
}

/// Reads a YAML file as a tree; one that is not there is empty.
///
/// # Errors
/// [`FileError`], but for `Busy` and `Unsteady`.
pub fn read_tree(path: &Path) -> Result<Node, FileError> {
    let bytes = read(path)?.unwrap_or_default();
    tree::parse(text_of(path, &bytes)?).map_err(|error| edit_error(path, error.into()))
}

/// Edits a YAML file. `plan` sees what it means now and says what to change; it may be asked again
/// when another program wrote the file in between. No step, no write.
///
/// # Errors
/// The error of `plan`, or a [`FileError`]; the file is as it was then.
pub fn edit<E: From<FileError>>(
    lock: &Lock,
    path: &Path,
    plan: impl FnMut(&Node) -> Result<Vec<Step>, E>,
) -> Result<Written, E> {
    edit_as(lock, path, Privacy::Kept, plan)
}

/// As [`edit()`]; `privacy` says who may read the file then.
///
/// # Errors
/// As there.
pub fn edit_as<E: From<FileError>>(
    lock: &Lock,
    path: &Path,
    privacy: Privacy,
    mut plan: impl FnMut(&Node) -> Result<Vec<Step>, E>,
) -> Result<Written, E> {
    rewrite(lock, path, privacy, |before| Ok(edited(path, before, &mut plan)?.into_bytes()))
}

/// Whether [`edit()`] would go through now; nothing is written. For what must not be done before an edit that
/// is refused.
///
/// # Errors
/// As there.
pub fn try_edit<E: From<FileError>>(
    path: &Path,
    mut plan: impl FnMut(&Node) -> Result<Vec<Step>, E>,
) -> Result<(), E> {
    edited(path, &read(path)?.unwrap_or_default(), &mut plan).map(drop)
}

fn edited<E: From<FileError>>(
    path: &Path,
    before: &[u8],
    plan: &mut impl FnMut(&Node) -> Result<Vec<Step>, E>,
) -> Result<String, E> {
    let text = text_of(path, before)?;
    let tree = tree::parse(text).map_err(|error: TreeError| edit_error(path, error.into()))?;
    let steps = plan(&tree)?;
    Ok(edit::apply(text, &steps).map_err(|error| edit_error(path, error))?)
}

fn edit_error(path: &Path, source: EditError) -> FileError {
    FileError::Edit { path: path.to_owned(), source }
}

fn text_of<'b>(path: &Path, bytes: &'b [u8]) -> Result<&'b str, FileError> {
    std::str::from_utf8(bytes).map_err(|_| FileError::NotText { path: path.to_owned() })
}

/// Replaces the bytes of a file by what `change` makes of them, atomically and durably. `change`
/// gets nothing where the file is not there, and may be asked again.
///
/// # Errors
/// The error of `change`, or a [`FileError`]; the file is as it was then.
pub fn rewrite<E: From<FileError>>(
    _lock: &Lock,
    path: &Path,
    privacy: Privacy,
    mut change: impl FnMut(&[u8]) -> Result<Vec<u8>, E>,
) -> Result<Written, E> {
    let target = behind_link(path)?;
    for _ in 0..TRIES {
        let before = read(&target)?;
        let after = change(before.as_deref().unwrap_or_default())?;
        let written = Written { path: target.clone(), before, after };
        let was_there = written.before.is_some();
        let untouched = if was_there { !written.changed() } else { written.after.is_empty() };
        if untouched && (privacy == Privacy::Kept || !was_there) {
            return Ok(written);
        }
        let new = beside(&target, &written.after, privacy)?;
        if read(&target)? != written.before {
            continue; // dropping the temporary file removes it
        }
        let io = |source| FileError::Io { path: target.clone(), action: "replaced", source };
        new.persist(&target).map_err(|error| io(error.error))?;
        // Without it the rename may be lost with the power; a folder that cannot be synced is no reason to fail.
        if let Some(dir) = target.parent().and_then(|dir| File::open(dir).ok()) {
            let _ = dir.sync_all();
        }
        return Ok(written);
    }
    Err(FileError::Unsteady { path: target }.into())
}

/// The file that a path leads to. A link to nothing is an error: the target may be a disk that is
/// not mounted.
fn behind_link(path: &Path) -> Result<PathBuf, FileError> {
    if path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink()) {
        return path.canonicalize().map_err(|source| FileError::Io {
            path: path.to_owned(),
            action: "followed",
            source,
        });
    }
    Ok(path.to_owned())
}

/// The bytes of a regular file; `None` where there is none.
fn read(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    let io = |source| FileError::Io { path: path.to_owned(), action: "read", source };
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() || metadata.len() > LARGEST => {
            Err(FileError::NotAFile { path: path.to_owned() })
        }
        Ok(_) => fs::read(path).map(Some).map_err(io),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io(error)),
    }
}

/// The new content in a temporary file of the same folder, with mode and owner of the old file.
fn beside(target: &Path, bytes: &[u8], privacy: Privacy) -> Result<tempfile::NamedTempFile, FileError> {
    let io = |source| FileError::Io { path: target.to_owned(), action: "written", source };
    let dir = target.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Made with mode 0600: nobody else can open it before it has its own.
    let mut new = tempfile::Builder::new().prefix(".hermes-").suffix(".tmp").tempfile_in(dir).map_err(io)?;
    new.write_all(bytes).map_err(io)?;
    if let Ok(old) = fs::metadata(target) {
        let mode = if privacy == Privacy::Private { 0o600 } else { old.mode() & 0o7777 };
        let owned = std::os::unix::fs::fchown(new.as_file(), Some(old.uid()), Some(old.gid()));
        // A group that is not ours must not lend its rights to the group that the file gets.
        let mode = if owned.is_err() && old.gid() != rustix::process::getegid().as_raw() {
            mode & 0o700
        } else {
            mode
        };
        new.as_file().set_permissions(fs::Permissions::from_mode(mode)).map_err(io)?;
    }
    new.as_file().sync_all().map_err(io)?;
    Ok(new)
}
