//! hermesd.db and state.db: whether they are databases and whole. Only read.

use super::{AskedBy, Found, Subject};
use crate::config::Severity;
use rusqlite::{Connection, OpenFlags};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// What every SQLite file begins with.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Larger files are not read through: that would take long.
const LARGEST: u64 = 64 << 20;
/// How long a lock of somebody else is waited for.
const PATIENCE: Duration = Duration::from_millis(500);

/// Looks at both files; one that does not exist is no trouble.
pub(super) fn look(subject: &Subject<'_>) -> Vec<Found> {
    let paths = subject.paths;
    let mut found = Vec::new();
    if let Err(why) = readable(&paths.state_db) {
        let hint = "mend it with Hermes Agent, or put a backup in its place: conversations cannot be read";
        found.push(Found::new("state-db", Severity::Error, why, hint.to_owned()).at(&paths.state_db));
    }
    // A running daemon has looked at its own and says so itself.
    if subject.asked_by == AskedBy::Nobody
        && let Err(why) = readable(&paths.db).and_then(|()| whole(&paths.db))
    {
        let hint =
            "the next daemon moves it aside and begins a new one: approvals, pins and audit rows begin anew";
        found.push(Found::new("hermesd-db", Severity::Error, why, hint.to_owned()).at(&paths.db));
    }
    found
}

/// `Ok` as well where there is no file, or an empty one.
fn readable(path: &Path) -> Result<(), String> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    let mut start = [0; 16];
    match file.read(&mut start) {
        Ok(0) => Ok(()),
        Ok(_) if start == *MAGIC => Ok(()),
        Ok(_) => Err("is no SQLite database".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn whole(path: &Path) -> Result<(), String> {
    if path.metadata().is_ok_and(|meta| meta.len() == 0 || meta.len() > LARGEST) || !path.exists() {
        return Ok(());
    }
    let check = || -> rusqlite::Result<String> {
        let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        db.busy_timeout(PATIENCE)?;
        db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
    };
    match check() {
        Ok(said) if said == "ok" => Ok(()),
        Ok(said) => Err(format!("is damaged: {said}")),
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_database_or_damaged_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.db");
        assert_eq!(readable(&path).and_then(|()| whole(&path)), Ok(()), "none yet");
        let db = Connection::open(&path).unwrap();
        db.execute_batch("create table t (a); create index i on t (a); insert into t values (1), (2);")
            .unwrap();
        drop(db);
        assert_eq!(readable(&path).and_then(|()| whole(&path)), Ok(()));
        let mut bytes = std::fs::read(&path).unwrap();
        let page = bytes.len() / 3;
        bytes[page..page + 200].fill(0xff);
        std::fs::write(&path, &bytes).unwrap();
        assert!(whole(&path).is_err());
        std::fs::write(&path, "no database at all").unwrap();
        assert_eq!(readable(&path), Err("is no SQLite database".to_owned()));
    }
}
