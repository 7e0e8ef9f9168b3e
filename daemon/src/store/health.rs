//! What a person should know about the store: how it keeps things, and what went wrong.
//!
//! Pure. The writer publishes [`StoreHealth`]; opening gives [`StoreFinding`]s.

use super::error::MemoryReason;
use super::time::UnixMs;
use crate::config::{Finding, Severity};
use std::fmt;
use std::path::PathBuf;

/// State of the store, published by its writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreHealth {
    /// Where things are kept.
    pub keeping: Keeping,
    /// What the last write ran into; `None` once one succeeds.
    pub trouble: Option<Trouble>,
    /// Where damaged files were moved since the daemon started, newest last.
    pub moved_aside: Vec<PathBuf>,
    /// Transactions that wrote audit rows or quota, since the daemon started.
    pub batches: u64,
    /// Audit rows written since the daemon started.
    pub audit_written: u64,
    /// Audit rows and events removed by age or number since the daemon started.
    pub removed: u64,
}

/// Where the store keeps things.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keeping {
    /// On disk, with a write-ahead log.
    Wal,
    /// On disk, with a rollback journal: slower, for file systems without shared memory.
    Rollback,
    /// In memory; all is lost with the daemon.
    Memory(MemoryReason),
    /// Nowhere yet: another process locks the file. Tried again about twice a second.
    Waiting,
}

/// A write that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Which kind.
    pub kind: TroubleKind,
    /// When it began.
    pub since: UnixMs,
}

/// Why a write did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TroubleKind {
    /// Another process holds a lock.
    Locked,
    /// No room.
    DiskFull,
    /// The file may no longer be written.
    ReadOnly,
    /// SQLite refused a statement; its own words.
    Refused(String),
}

impl fmt::Display for TroubleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked => f.write_str("hermesd.db is locked by another process"),
            Self::DiskFull => f.write_str("the disk that holds hermesd.db is full"),
            Self::ReadOnly => f.write_str("hermesd.db may only be read"),
            Self::Refused(words) => write!(f, "hermesd.db refuses writes: {words}"),
        }
    }
}

/// One thing found while opening.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreFinding {
    /// The file was damaged; it lies at `moved_to` with its -wal and -shm, and a new one was begun.
    Damaged {
        /// Where it lies.
        moved_to: PathBuf,
    },
    /// The store lives in memory.
    InMemory {
        /// The file that is not used.
        path: PathBuf,
        /// Why.
        reason: MemoryReason,
    },
    /// No write-ahead log on this file system.
    NoWal {
        /// The file.
        path: PathBuf,
        /// The file system, as far as it is known by name.
        filesystem: &'static str,
    },
    /// Another process locks the file; the store waits for it.
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// Files older than the newest few moved-aside ones could not be removed.
    Leftovers {
        /// Their folder.
        folder: PathBuf,
    },
}

impl StoreFinding {
    /// How bad it is.
    pub fn severity(&self) -> Severity {
        match self {
            Self::Damaged { .. } | Self::InMemory { .. } => Severity::Error,
            Self::NoWal { .. } | Self::Locked { .. } | Self::Leftovers { .. } => Severity::Warning,
        }
    }

    /// What a person can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Damaged { .. } => {
                "pins, approvals and audit start empty; look at `hermesctl pins list` before trusting servers under `pin: block`"
            }
            Self::InMemory { reason: MemoryReason::Newer { .. }, .. } => {
                "start the newer hermesd, or move the file away to begin anew"
            }
            Self::InMemory { reason: MemoryReason::DiskFull, .. } => "make room and restart hermesd",
            Self::InMemory { reason: MemoryReason::Migration | MemoryReason::Stuck, .. } => {
                "move the file away and restart hermesd to begin anew"
            }
            Self::InMemory { reason: MemoryReason::CannotOpen | MemoryReason::ReadOnly, .. } => {
                "make the folder writable and restart hermesd; until then pins and approvals are refused"
            }
            Self::NoWal { .. } => "put HERMES_HOME on a local disk",
            Self::Locked { .. } => "close the program that has the file open, for example a database browser",
            Self::Leftovers { .. } => "remove old `hermesd.db.damaged-*` files by hand",
        }
    }
}

impl fmt::Display for StoreFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { moved_to } => {
                write!(f, "hermesd.db was damaged and moved to {}; a new one was begun", moved_to.display())
            }
            Self::InMemory { path, reason } => {
                write!(f, "{} is not used, state is lost when hermesd ends: {reason}", path.display())
            }
            Self::NoWal { path, filesystem } => {
                write!(f, "{} is on {filesystem}, where a write-ahead log is not safe", path.display())
            }
            Self::Locked { path } => write!(f, "{} is locked by another process", path.display()),
            Self::Leftovers { folder } => {
                write!(f, "old damaged files in {} cannot be removed", folder.display())
            }
        }
    }
}

impl From<&StoreFinding> for Finding {
    fn from(found: &StoreFinding) -> Self {
        Self {
            severity: found.severity(),
            server: None,
            file: None,
            line: 0,
            key: String::new(),
            message: found.to_string(),
            hint: found.hint().to_owned(),
        }
    }
}
