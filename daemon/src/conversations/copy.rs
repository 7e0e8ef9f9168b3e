//! A private copy of a database that cannot be read where it is: its folder cannot hold the -shm
//! file that readers of a WAL need, or a writer crashed and nobody may undo its half-done changes.
//!
//! Owner: the connection that [`open`] returns; the copy has no name any more when it does, so
//! nothing is left behind, not even after a crash in the middle of a read. Promise: the copy is of
//! one moment, or there is none. May not touch: the original, except to read it.

use rusqlite::Connection;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What may lie beside a database and belongs to it.
const COMPANIONS: [&str; 2] = ["-wal", "-journal"];
/// Largest database that is copied, companions included, in bytes. Reading a larger one needs a folder
/// that may be written.
const LARGEST: u64 = 512 * 1024 * 1024;

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub(super) enum CopyError {
    /// It would take too much room.
    #[error("{bytes} bytes are too many to copy (limit {limit}); make its folder writable")]
    TooLarge {
        /// Size of the database, companions included.
        bytes: u64,
        /// Largest accepted size.
        limit: u64,
    },
    /// Somebody wrote while it was copied.
    #[error("it was written while it was copied; try again")]
    Written,
    /// A file could not be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The copy is no usable database.
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
}

/// Identity, size and time of change of a database and its companions: equal means unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fingerprint {
    database: FileState,
    companions: [Option<FileState>; COMPANIONS.len()],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileState {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Fingerprint {
    /// Of the database at `path`.
    /// # Errors
    /// When a file is there but cannot be looked at, or the database is missing.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let database = FileState::of(path)?;
        let mut companions = [None; COMPANIONS.len()];
        for (found, suffix) in companions.iter_mut().zip(COMPANIONS) {
            *found = match FileState::of(&beside(path, suffix)) {
                Ok(state) => Some(state),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
        }
        Ok(Self { database, companions })
    }

    fn bytes(&self) -> u64 {
        let companions = self.companions.iter().flatten().map(|file| file.bytes);
        companions.fold(self.database.bytes, u64::saturating_add)
    }
}

impl FileState {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = std::fs::metadata(path)?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            changed: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Copies the database at `path` and opens the copy.
/// # Errors
/// [`CopyError`]; nothing is left on disk then either.
pub(super) fn open(path: &Path) -> Result<(Connection, Fingerprint), CopyError> {
    let taken = Fingerprint::of(path)?;
    if taken.bytes() > LARGEST {
        return Err(CopyError::TooLarge { bytes: taken.bytes(), limit: LARGEST });
    }
    let folder = tempfile::Builder::new().prefix("hermesd-").tempdir()?;
    let copy = folder.path().join("state.db");
    // Closing these descriptors drops every POSIX lock that this process holds on the files. None is
    // held: SQLite could not open the database, so no connection of ours has it open.
    copy_file(path, &copy)?;
    for (found, suffix) in taken.companions.iter().zip(COMPANIONS) {
        if found.is_some() {
            copy_file(&beside(path, suffix), &beside(&copy, suffix))?;
        }
    }
    if Fingerprint::of(path)? != taken {
        return Err(CopyError::Written);
    }
    // Takes in what is in the -wal, undoes what a -journal remembers: the copy is a single file then.
    let writer = Connection::open(&copy)?;
    writer.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))?;
    writer.close().map_err(|(_, error)| error)?;
    let reader = super::db::open_live(&copy)?;
    folder.close()?;
    Ok((reader, taken))
}

/// Copies bytes into a new file that only we may read: a copy of the mode could be read-only for us.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = File::open(from)?;
    let mut target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    io::copy(&mut source, &mut target).map(|_| ())
}
