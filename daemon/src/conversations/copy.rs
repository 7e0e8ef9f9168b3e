//! A private copy of a WAL database whose folder cannot hold the -shm file that readers need.
//!
//! Owner: the connection that [`open`] returns; the copy has no name any more when it does, so
//! nothing is left behind, not even after a crash in the middle of a read. Promise: the copy is of
//! one moment, or there is none. May not touch: the original, except to read it.

use rusqlite::Connection;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Largest database that is copied, -wal included, in bytes. Reading a larger one needs a folder
/// that may be written.
const LARGEST: u64 = 512 * 1024 * 1024;

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub(super) enum CopyError {
    /// It would take too much room.
    #[error("{bytes} bytes are too many to copy (limit {limit}); make its folder writable")]
    TooLarge {
        /// Size of the database, -wal included.
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

/// Identity, size and time of change of a database and its -wal: equal means unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fingerprint {
    database: FileState,
    wal: Option<FileState>,
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
        let wal = match FileState::of(&wal_of(path)) {
            Ok(state) => Some(state),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Self { database, wal })
    }

    fn bytes(&self) -> u64 {
        self.database.bytes + self.wal.map_or(0, |wal| wal.bytes)
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

fn wal_of(path: &Path) -> PathBuf {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    wal.into()
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
    copy_file(path, &copy)?;
    if taken.wal.is_some() {
        copy_file(&wal_of(path), &wal_of(&copy))?;
    }
    if Fingerprint::of(path)? != taken {
        return Err(CopyError::Written);
    }
    // Moves what is in the -wal into the copy, which then is a single file.
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
