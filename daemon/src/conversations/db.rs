//! The only reader of state.db.
//!
//! Owner: the reader thread. Promise: the file and its schema are never changed; a replaced file is
//! noticed before the next read; each read sees one moment of the database, also while Hermes Agent
//! writes. May not touch: what rows mean (`queries` and the pure files decide that).

use super::copy::{self, CopyError};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Transaction};
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest wait for a lock that another process holds, as the reference waits.
const LOCK_WAIT: Duration = Duration::from_secs(1);
/// How often opening is tried again when the file is replaced under our hands.
const OPEN_TRIES: usize = 3;

/// Why state.db could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum DbError {
    /// There is no such file.
    #[error("no state.db")]
    Missing,
    /// Another process held a lock for longer than [`LOCK_WAIT`].
    #[error("state.db is locked by another process")]
    Locked(#[source] rusqlite::Error),
    /// The file is no database, or a damaged one.
    #[error("state.db is damaged")]
    Damaged(#[source] rusqlite::Error),
    /// The file is there, but may not be read.
    #[error("state.db cannot be read")]
    Unreadable(#[source] std::io::Error),
    /// SQLite needs a file beside state.db that it cannot make, and no copy could be taken.
    #[error("state.db cannot be opened in its folder")]
    NoCopy(#[source] CopyError),
    /// SQLite refused to open the file for another reason.
    #[error("state.db cannot be opened")]
    Open(#[source] rusqlite::Error),
    /// A column is not there without which nothing can be read: another program's file, or a schema
    /// that this version does not know.
    #[error("state.db has no column `{0}`")]
    Column(String),
    /// A query failed.
    #[error("state.db cannot be queried")]
    Query(#[source] rusqlite::Error),
    /// The file was replaced again and again while it was opened.
    #[error("state.db is being replaced")]
    Replaced,
}

/// state.db of one home, opened on first use.
#[derive(Debug)]
pub(super) struct StateDb {
    path: PathBuf,
    opened: Option<Opened>,
    /// Grows with each opening.
    openings: u64,
}

/// The state of the database without its content: equal means that nothing was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Inode of the file.
    pub(super) inode: u64,
    /// Which connection was asked: what it counts compares within one only.
    opening: u64,
    /// `PRAGMA data_version`.
    version: i64,
}

#[derive(Debug)]
struct Opened {
    connection: Connection,
    source: Source,
    number: u64,
    /// What was found under that number of the schema, which grows with each change of it.
    layout: Option<(i64, Layout)>,
}

/// What a connection reads, to notice when it is no longer the file at the path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    /// The file itself. Its content may change, SQLite follows.
    Live(FileId),
    /// A private copy. Any change of the original makes it stale.
    Copy(copy::Fingerprint),
}

/// Device and inode: what tells a replaced file from a changed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    // stat, never open: closing any descriptor of a file drops all POSIX locks that this process
    // holds on it, those of an open SQLite connection too.
    fn of(path: &Path) -> Result<Self, DbError> {
        match std::fs::metadata(path) {
            Ok(metadata) => Ok(Self { device: metadata.dev(), inode: metadata.ino() }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(DbError::Missing),
            Err(error) => Err(DbError::Unreadable(error)),
        }
    }
}

/// One moment of the database and the columns that it has.
pub(super) struct Snapshot<'a> {
    pub(super) transaction: Transaction<'a>,
    pub(super) sessions: &'a Columns,
    pub(super) messages: &'a Columns,
    /// An index that holds the messages of a session in the order of their ids.
    pub(super) by_id: Option<&'a str>,
    pub(super) version: Version,
}

/// Tells whether two snapshots can differ. Those of the same opening with the same `data` cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    /// The file; `None` for a private copy, which is a new one each time.
    pub(super) file: Option<FileId>,
    /// Number of the opening.
    opening: u64,
    /// Grows when another process commits.
    data: i64,
}

#[derive(Debug)]
struct Layout {
    sessions: Columns,
    messages: Columns,
    by_id: Option<String>,
}

impl Layout {
    fn of(connection: &Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            sessions: Columns::of(connection, "sessions")?,
            messages: Columns::of(connection, "messages")?,
            by_id: index_by_id(connection)?,
        })
    }
}

/// A whole index of `messages` whose first column is the session and whose next is the row id: by its
/// name, or without one, as it stands at the end of every index.
fn index_by_id(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT l.name FROM pragma_index_list('messages') l WHERE l.partial = 0
         AND EXISTS (SELECT 1 FROM pragma_index_xinfo(l.name) WHERE seqno = 0 AND name = 'session_id' AND coll = 'BINARY')
         AND EXISTS (SELECT 1 FROM pragma_index_xinfo(l.name) WHERE seqno = 1 AND (name = 'id' OR cid = -1)) LIMIT 1";
    connection.query_row(sql, [], |row| row.get(0)).optional()
}

/// Names of a table's columns; none if there is no such table.
#[derive(Debug, Default)]
pub(super) struct Columns(HashSet<String>);

impl Columns {
    fn of(connection: &Connection, table: &str) -> rusqlite::Result<Self> {
        let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
        let names = statement.query_map([table], |row| row.get(0))?;
        names.collect::<rusqlite::Result<_>>().map(Self)
    }

    /// Whether the table has a column `name`.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// Whether there is no such table.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl StateDb {
    /// state.db below `home`; nothing is opened yet.
    pub(super) fn new(home: &Path) -> Self {
        Self { path: home.join("state.db"), opened: None, openings: 0 }
    }

    /// Closes the connection; the next read opens it again.
    pub(super) fn close(&mut self) {
        self.opened = None;
    }

    /// Whether something was committed since another stamp was taken; a few microseconds.
    /// # Errors
    /// As [`StateDb::read`].
    pub(super) fn stamp(&mut self) -> Result<Stamp, DbError> {
        let opened = self.current()?;
        let version = opened
            .connection
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)));
        let inode = FileId::of(&self.path)?.inode;
        match version {
            Ok(version) => Ok(Stamp { inode, opening: self.openings, version }),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Runs `work` on one moment of the database.
    /// # Errors
    /// [`DbError`]. After any error but a lock the connection is closed, so that the next read starts afresh.
    pub(super) fn read<T>(
        &mut self,
        work: impl FnOnce(&Snapshot<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, DbError> {
        let result = self.current()?.read(work);
        result.map_err(|error| self.failed(error))
    }

    fn failed(&mut self, error: rusqlite::Error) -> DbError {
        let error = sorted(error, DbError::Query);
        if !matches!(error, DbError::Locked(_)) {
            self.close();
        }
        error
    }

    /// The connection to what is at the path now.
    fn current(&mut self) -> Result<&mut Opened, DbError> {
        let stale = match &self.opened {
            None => true,
            Some(Opened { source: Source::Live(id), .. }) => *id != FileId::of(&self.path)?,
            Some(Opened { source: Source::Copy(taken), .. }) => {
                *taken != copy::Fingerprint::of(&self.path).map_err(|error| DbError::NoCopy(error.into()))?
            }
        };
        if stale {
            // Closed first: a second connection to the same file would be no gain.
            self.close();
            let (connection, source) = open(&self.path)?;
            self.openings += 1;
            self.opened = Some(Opened { connection, source, number: self.openings, layout: None });
        }
        Ok(self.opened.as_mut().expect("opened above if it was not open"))
    }
}

impl Opened {
    fn read<T>(&mut self, work: impl FnOnce(&Snapshot<'_>) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        // Only SELECTs run in it; dropping it ends the read.
        let transaction = self.connection.unchecked_transaction()?;
        // The first of these begins the read, so all of them tell of the same moment.
        let schema = transaction.query_row("PRAGMA schema_version", [], |row| row.get(0))?;
        let data = transaction.query_row("PRAGMA data_version", [], |row| row.get(0))?;
        if self.layout.as_ref().is_none_or(|(known, _)| *known != schema) {
            self.layout = Some((schema, Layout::of(&transaction)?));
        }
        let (_, layout) = self.layout.as_ref().expect("found above if it was not known");
        let file = match self.source {
            Source::Live(id) => Some(id),
            Source::Copy(_) => None,
        };
        work(&Snapshot {
            transaction,
            sessions: &layout.sessions,
            messages: &layout.messages,
            by_id: layout.by_id.as_deref(),
            version: Version { file, opening: self.number, data },
        })
    }
}

fn open(path: &Path) -> Result<(Connection, Source), DbError> {
    for _ in 0..OPEN_TRIES {
        let before = FileId::of(path)?;
        match open_live(path) {
            Ok(connection) if FileId::of(path)? == before => {
                return Ok((connection, Source::Live(before)));
            }
            Ok(_) => {}
            Err(error) if needs_copy(&error) => {
                let (connection, taken) = copy::open(path).map_err(DbError::NoCopy)?;
                return Ok((connection, Source::Copy(taken)));
            }
            Err(error) => return Err(sorted(error, DbError::Open)),
        }
    }
    Err(DbError::Replaced)
}

/// Opens read-only and proves that the file can be read: SQLite itself opens lazily.
pub(super) fn open_live(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(LOCK_WAIT)?;
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(connection)
}

/// Whether reading needs a change that a reader may not make: a -shm file in a folder that may only
/// be read, or undoing what a crashed writer left half done.
fn needs_copy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly))
}

/// Sorts an error of SQLite by what a person can do about it; `other` takes the rest.
fn sorted(error: rusqlite::Error, other: fn(rusqlite::Error) -> DbError) -> DbError {
    if let rusqlite::Error::InvalidColumnName(name) = error {
        return DbError::Column(name);
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => {
            DbError::Locked(error)
        }
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => DbError::Damaged(error),
        _ => other(error),
    }
}
