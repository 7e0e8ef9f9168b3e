//! Opening hermesd.db, whatever is at its path.
//!
//! Promise: always ends with a store that takes writes, or a lock to wait for. A damaged file is moved
//! aside, never deleted; a newer file is never touched; what cannot be kept on disk lives in memory
//! and says so.

use super::error::{MemoryReason, StoreError};
use super::filesystem::Locality;
use super::health::StoreFinding;
use super::migrations;
use super::quarantine::{self, Thinned};
use super::time::UnixMs;
use rusqlite::{Connection, OpenFlags};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Files up to this size are checked page by page when opened; larger ones when a read finds damage.
const CHECKED_BYTES: u64 = 64 << 20;
/// Longest wait for another process while opening.
const OPEN_WAIT: Duration = Duration::from_millis(500);
/// Bytes of the write-ahead log that stay on disk after a checkpoint.
const WAL_LEFT_BYTES: i64 = 16 << 20;

/// Where the file is and how it may be opened.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) locality: Locality,
    pub(super) flags: OpenFlags,
}

impl Place {
    pub(super) fn of(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            locality: path.parent().map_or(Locality::Local, Locality::of),
            flags: OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        }
    }
}

/// What came of it.
pub(super) enum Opened {
    /// Kept on disk.
    Disk(Connection, Journal),
    /// Kept in memory.
    Memory(Connection, MemoryReason),
    /// Another process has the file; try again later.
    Locked,
}

/// How a commit becomes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Journal {
    Wal,
    Rollback,
}

enum Failure {
    Locked,
    Damaged,
    Hopeless(MemoryReason),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        match StoreError::of(error) {
            StoreError::Locked => Self::Locked,
            StoreError::Damaged => Self::Damaged,
            StoreError::ReadOnly => Self::Hopeless(MemoryReason::ReadOnly),
            StoreError::DiskFull => Self::Hopeless(MemoryReason::DiskFull),
            StoreError::NotDurable(_) | StoreError::Full { .. } | StoreError::Closed | StoreError::Sql(_) => {
                Self::Hopeless(MemoryReason::CannotOpen)
            }
        }
    }
}

/// Opens what is at `place`; what a person should know goes to `findings`.
pub(super) fn open(place: &Place, now: UnixMs, findings: &mut Vec<StoreFinding>) -> Opened {
    open_after(place, now, Lost::Nothing, findings)
}

/// Moves a file aside that was found damaged while in use, and begins a new one.
///
/// No connection of this process may be open.
pub(super) fn replace(place: &Place, now: UnixMs, findings: &mut Vec<StoreFinding>) -> Opened {
    match put_aside(place, now, findings) {
        Ok(lost) => open_after(place, now, lost, findings),
        Err(reason) => in_memory(place, now, reason, findings),
    }
}

fn open_after(place: &Place, now: UnixMs, lost: Lost, findings: &mut Vec<StoreFinding>) -> Opened {
    let mut lost = lost;
    loop {
        match on_disk(place, now, lost) {
            Ok((connection, journal)) => {
                if let (Journal::Rollback, name) = (journal, filesystem_name(place.locality)) {
                    findings.push(StoreFinding::NoWal { path: place.path.clone(), filesystem: name });
                }
                return Opened::Disk(connection, journal);
            }
            Err(Failure::Locked) => {
                findings.push(StoreFinding::Locked { path: place.path.clone() });
                return Opened::Locked;
            }
            // A file that is damaged right after it was made is on nothing to go on with.
            Err(Failure::Damaged) if lost == Lost::Pins => {
                return in_memory(place, now, MemoryReason::Stuck, findings);
            }
            Err(Failure::Damaged) => match put_aside(place, now, findings) {
                Ok(taken) => lost = taken,
                Err(reason) => return in_memory(place, now, reason, findings),
            },
            Err(Failure::Hopeless(reason)) => return in_memory(place, now, reason, findings),
        }
    }
}

fn put_aside(place: &Place, now: UnixMs, findings: &mut Vec<StoreFinding>) -> Result<Lost, MemoryReason> {
    let (moved_to, thinned) = quarantine::move_aside(&place.path, now).map_err(|_| MemoryReason::Stuck)?;
    findings.push(StoreFinding::Damaged { moved_to });
    if let (Thinned::No, Some(folder)) = (thinned, place.path.parent()) {
        findings.push(StoreFinding::Leftovers { folder: folder.to_owned() });
    }
    Ok(Lost::Pins)
}

/// What a damaged file took with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    Nothing,
    Pins,
}

fn filesystem_name(locality: Locality) -> &'static str {
    match locality {
        Locality::Local => "a file system without shared memory",
        Locality::Network { name } => name,
    }
}

fn in_memory(place: &Place, now: UnixMs, reason: MemoryReason, findings: &mut Vec<StoreFinding>) -> Opened {
    findings.push(StoreFinding::InMemory { path: place.path.clone(), reason: reason.clone() });
    let mut connection = Connection::open_in_memory().expect("an empty database fits into memory");
    migrations::run(&mut connection).expect("every step runs on an empty database: tested");
    super::eventlog::begin(&connection, now).expect("an empty database in memory takes a row");
    Opened::Memory(connection, reason)
}

fn on_disk(place: &Place, now: UnixMs, lost: Lost) -> Result<(Connection, Journal), Failure> {
    make_private(&place.path)?;
    let mut connection = Connection::open_with_flags(&place.path, place.flags)?;
    connection.busy_timeout(OPEN_WAIT)?;
    connection.set_prepared_statement_cache_capacity(64);
    if let Locality::Network { .. } = place.locality {
        // Without shared memory a file left in WAL mode can only be read by one that has it alone.
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    }
    let version = migrations::found(&connection)?;
    if version > migrations::known() {
        return Err(Failure::Hopeless(MemoryReason::Newer { found: version, known: migrations::known() }));
    }
    if fs::metadata(&place.path).is_ok_and(|file| file.len() <= CHECKED_BYTES) && !is_sound(&connection)? {
        return Err(Failure::Damaged);
    }
    if version == 0 {
        // Has to stand before the first table, or it never does anything.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    let journal = set_journal(&connection, place.locality)?;
    connection.pragma_update(None, "journal_size_limit", WAL_LEFT_BYTES)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    migrations::run(&mut connection).map_err(|error| match Failure::from(error) {
        Failure::Hopeless(MemoryReason::CannotOpen) => Failure::Hopeless(MemoryReason::Migration),
        other => other,
    })?;
    // SQLite opens a file that may only be read without a word; only a write tells.
    set_meta(&connection, "opened_ms", now.0)?;
    super::eventlog::begin(&connection, now)?;
    if lost == Lost::Pins {
        set_meta(&connection, super::pins::LOST, now.0)?;
    }
    Ok((connection, journal))
}

pub(super) fn set_meta(connection: &Connection, name: &str, value: i64) -> rusqlite::Result<()> {
    connection
        .execute("INSERT INTO meta VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = ?2", (name, value))
        .map(|_| ())
}

/// Whether every page is what it should be.
pub(super) fn is_sound(connection: &Connection) -> rusqlite::Result<bool> {
    connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))
        .map(|found| found == "ok")
}

/// WAL where it is safe, else a rollback journal that waits for the disk at each commit.
fn set_journal(connection: &Connection, locality: Locality) -> Result<Journal, Failure> {
    let mode = |wanted: &str| {
        connection.query_row(&format!("PRAGMA journal_mode={wanted}"), [], |row| row.get::<_, String>(0))
    };
    if locality == Locality::Local {
        match mode("WAL").map_err(|error| (error.sqlite_error_code(), Failure::from(error))) {
            Ok(got) if got.eq_ignore_ascii_case("wal") => {
                connection.pragma_update(None, "synchronous", "NORMAL")?;
                return Ok(Journal::Wal);
            }
            // `locking protocol` is what a file system without working locks answers.
            Err((code, failure)) if code != Some(rusqlite::ErrorCode::FileLockingProtocolFailed) => {
                return Err(failure);
            }
            Ok(_) | Err(_) => {}
        }
    }
    mode("TRUNCATE")?;
    connection.pragma_update(None, "locking_mode", "NORMAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // The lock taken above is let go by the next read.
    migrations::found(connection)?;
    Ok(Journal::Rollback)
}

/// Makes the folder and the file for this user only. SQLite gives -wal and -shm the file's mode.
fn make_private(path: &Path) -> Result<(), Failure> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unreachable_folder)?;
    }
    // Only ever creates: opening and closing a file that SQLite has open would drop its locks.
    match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Best effort: a file of another owner cannot be changed, and may still be usable.
            let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o600));
            Ok(())
        }
        Err(error) => Err(unreachable_folder(error)),
    }
}

fn unreachable_folder(error: io::Error) -> Failure {
    Failure::Hopeless(match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => MemoryReason::ReadOnly,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => MemoryReason::DiskFull,
        _ => MemoryReason::CannotOpen,
    })
}
