//! Versions of hermesd.db, from 1 upwards.
//!
//! Promise: each step runs in a transaction of its own together with its version number; a file of a
//! newer version is never touched; a step that landed is never edited, a change is a new step.

use rusqlite::{Connection, TransactionBehavior};

/// The steps. Number n brings a file from version n to n + 1.
const STEPS: &[&str] =
    &[include_str!("schema/001.sql"), include_str!("schema/002.sql"), include_str!("schema/003.sql")];

/// Newest version this program knows.
pub(super) fn known() -> u32 {
    u32::try_from(STEPS.len()).expect("there are fewer than 2^32 steps")
}

/// Version of the file; 0: empty.
pub(super) fn found(connection: &Connection) -> rusqlite::Result<u32> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Brings the file up to date. The version must not be above [`known`].
/// # Errors
/// What SQLite says; the file is then at the last version that was reached.
pub(super) fn run(connection: &mut Connection) -> rusqlite::Result<()> {
    run_steps(connection, STEPS)
}

fn run_steps(connection: &mut Connection, steps: &[&str]) -> rusqlite::Result<()> {
    let done = usize::try_from(found(connection)?).expect("32 bits fit an index");
    for (version, step) in steps.iter().enumerate().skip(done) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(step)?;
        transaction.pragma_update(
            None,
            "user_version",
            u32::try_from(version + 1).expect("there are fewer than 2^32 steps"),
        )?;
        transaction.commit()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_reaches_the_newest_version_and_running_again_changes_nothing() {
        let mut connection = Connection::open_in_memory().unwrap();
        run(&mut connection).unwrap();
        assert_eq!(found(&connection).unwrap(), known());
        run(&mut connection).unwrap();
    }

    #[test]
    fn a_step_that_fails_leaves_the_version_before_it() {
        let mut connection = Connection::open_in_memory().unwrap();
        let steps = ["CREATE TABLE a(x)", "CREATE TABLE b(x); INSERT INTO missing VALUES(1)"];
        run_steps(&mut connection, &steps).unwrap_err();
        assert_eq!(found(&connection).unwrap(), 1);
        let tables: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
        assert_eq!(tables, 1);
    }

    #[test]
    fn only_the_missing_steps_run() {
        let mut connection = Connection::open_in_memory().unwrap();
        run_steps(&mut connection, &["CREATE TABLE a(x)"]).unwrap();
        run_steps(&mut connection, &["CREATE TABLE a(x)", "CREATE TABLE b(x)"]).unwrap();
        assert_eq!(found(&connection).unwrap(), 2);
    }
}
