//! Why the store could not do what it was asked, sorted by what a person or a caller can do about it.
//!
//! Pure. May not touch: connections.

use rusqlite::ErrorCode;

/// Why hermesd.db could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process held a lock for longer than the write could wait. Worth another try.
    #[error("hermesd.db is locked by another process")]
    Locked,
    /// Only the disk will do for this (pins, approvals), and the store lives in memory.
    #[error("hermesd.db is not kept on disk: {0}")]
    NotDurable(MemoryReason),
    /// The queue of writes is full. Worth another try.
    #[error("{limit} writes to hermesd.db are waiting, which is the limit")]
    Full {
        /// Most writes that may wait.
        limit: usize,
    },
    /// No room is left. Worth another try once there is.
    #[error("the disk that holds hermesd.db is full")]
    DiskFull,
    /// The file may no longer be written.
    #[error("hermesd.db may only be read")]
    ReadOnly,
    /// The file is damaged; it is moved aside and an empty one takes its place.
    #[error("hermesd.db is damaged and is being replaced")]
    Damaged,
    /// The store was closed.
    #[error("hermesd.db is closed")]
    Closed,
    /// SQLite refused a statement for another reason.
    #[error("hermesd.db refused a statement")]
    Sql(#[source] rusqlite::Error),
}

/// Why the store lives in memory and forgets everything with the daemon.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemoryReason {
    /// The folder or the file cannot be opened or made.
    #[error("the file cannot be opened")]
    CannotOpen,
    /// The folder or the file may only be read.
    #[error("the file or its folder may only be read")]
    ReadOnly,
    /// No room for even an empty database.
    #[error("the disk is full")]
    DiskFull,
    /// A newer hermesd wrote it. It is left as it is.
    #[error("it was written by a newer hermesd (version {found}, known up to {known})")]
    Newer {
        /// `user_version` in the file.
        found: u32,
        /// Newest version this program knows.
        known: u32,
    },
    /// It is damaged, and could not be moved aside.
    #[error("it is damaged and cannot be moved aside")]
    Stuck,
    /// A step from an older version failed; the file is as it was.
    #[error("it cannot be brought up to date")]
    Migration,
}

impl StoreError {
    /// Sorts an error of SQLite.
    pub(super) fn of(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(
                ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed,
            ) => Self::Locked,
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Self::Damaged,
            Some(ErrorCode::DiskFull) => Self::DiskFull,
            Some(ErrorCode::ReadOnly) => Self::ReadOnly,
            _ => Self::Sql(error),
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::of(error)
    }
}
