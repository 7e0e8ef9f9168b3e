//! How many messages of a session a person would read.
//!
//! Runs on the reader thread, inside one [`Snapshot`]. Owner of what was counted before: [`Tallies`].
//! Counting looks at every row, so a long session is counted once and then followed: rows above the
//! counted ones are added, and a sample of the counted ones is looked at again. Promise: exact for
//! sessions that are cheap to count; for a long one exact as long as its rows come and go as Hermes
//! Agent lets them (at the end, or all of them), and never wrong for longer than [`TRUSTED`].

use super::content;
use super::db::{Snapshot, Version};
use super::page;
use super::values::{fit, shown, text};
use rusqlite::params;
use std::time::Duration;
use tokio::time::Instant;

/// A session is counted anew at each change if that looks at no more than so many rows; an eighth of a
/// kilobyte of JSON costs as much as a row.
const CHEAP: usize = 4096;
const ROW_BYTES: usize = 128;
/// How long a count is followed before everything is counted again.
const TRUSTED: Duration = Duration::from_secs(60);
/// Counts that are kept.
const KEPT: usize = 16;
/// Rows that are looked at again; the first and the last one are always among them.
const SAMPLE: usize = 32;
/// Rows of the table that are looked through for new ones of the session.
const LOOKED_THROUGH: i64 = 4 * page::WALKED;

/// What was counted before, for the sessions that were asked for last.
#[derive(Debug, Default)]
pub(super) struct Tallies(Vec<Tally>);

#[derive(Debug)]
struct Tally {
    session_id: String,
    version: Version,
    counted: Counted,
    since: Instant,
}

/// One count and what it takes to follow it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Counted {
    readable: usize,
    /// What counting looked at, in rows.
    cost: usize,
    /// Rows above it were not counted.
    upto: i64,
    sample: Sample,
}

impl Tallies {
    /// How many messages of user and assistant with text there are in `session_id`.
    pub(super) fn total(&mut self, snapshot: &Snapshot<'_>, session_id: &str) -> rusqlite::Result<usize> {
        if !fit(snapshot.messages)? {
            return Ok(0);
        }
        let same =
            |tally: &Tally| tally.session_id == session_id && tally.version.file == snapshot.version.file;
        let known = self.0.iter().position(same).map(|at| self.0.remove(at));
        let tally = match known {
            Some(tally) if tally.version == snapshot.version => tally,
            known => {
                let followed = match known {
                    Some(old) => old.follow(snapshot)?,
                    None => None,
                };
                match followed {
                    Some(tally) => tally,
                    None => Tally {
                        session_id: session_id.to_owned(),
                        version: snapshot.version,
                        counted: count(snapshot, session_id)?,
                        since: Instant::now(),
                    },
                }
            }
        };
        let readable = tally.counted.readable;
        self.0.truncate(KEPT - 1);
        self.0.insert(0, tally);
        Ok(readable)
    }
}

impl Tally {
    /// Adds what has come since; `None` if it is better counted again.
    fn follow(mut self, snapshot: &Snapshot<'_>) -> rusqlite::Result<Option<Self>> {
        let counted = &mut self.counted;
        if counted.cost <= CHEAP || self.version.file.is_none() || self.since.elapsed() > TRUSTED {
            return Ok(None);
        }
        let newest = page::newest(snapshot)?.unwrap_or(0);
        if snapshot.by_id.is_none() && newest.saturating_sub(counted.upto) > LOOKED_THROUGH {
            return Ok(None);
        }
        let sql = format!("SELECT 1 FROM messages WHERE id = ?1 AND session_id = ?2 {}", readable(snapshot));
        let mut statement = snapshot.transaction.prepare_cached(&sql)?;
        for id in counted.sample.ids() {
            if !statement.exists(params![id, self.session_id])? {
                return Ok(None);
            }
        }
        let upto = counted.upto;
        rows(snapshot, &page::in_order(snapshot), &self.session_id, upto, counted)?;
        counted.settle(snapshot, newest);
        self.version = snapshot.version;
        Ok(Some(self))
    }
}

impl Counted {
    /// Says up to where was counted. Where rows can be taken back they can also come back: those above
    /// the last one that is shown are looked at each time.
    fn settle(&mut self, snapshot: &Snapshot<'_>, newest: i64) {
        let reversible = snapshot.messages.has("active") || snapshot.messages.has("display_kind");
        self.upto = if reversible { self.sample.last.unwrap_or(0) } else { newest };
    }
}

fn count(snapshot: &Snapshot<'_>, session_id: &str) -> rusqlite::Result<Counted> {
    let mut counted = Counted { readable: 0, cost: 0, upto: 0, sample: Sample::default() };
    let newest = page::newest(snapshot)?.unwrap_or(0);
    rows(snapshot, "messages", session_id, i64::MIN, &mut counted)?;
    counted.settle(snapshot, newest);
    Ok(counted)
}

/// What makes a row one that is counted, apart from a JSON content without text.
fn readable(snapshot: &Snapshot<'_>) -> String {
    let shown = shown(snapshot.messages);
    format!("AND role IN ('user', 'assistant') AND octet_length(content) > 0 {shown}")
}

/// Counts the rows above `after`. Only contents that are JSON are looked into, one at a time.
fn rows(
    snapshot: &Snapshot<'_>,
    from: &str,
    session_id: &str,
    after: i64,
    counted: &mut Counted,
) -> rusqlite::Result<()> {
    // Comparisons see the whole text; substr() and length() of SQLite end at the NUL of the mark.
    let sql = format!(
        "SELECT id, CASE WHEN content >= ?3 AND content < ?4 THEN content END FROM {from}
         WHERE session_id = ?1 AND id > ?2 {}",
        readable(snapshot)
    );
    let mut statement = snapshot.transaction.prepare_cached(&sql)?;
    let mut rows = statement.query(params![session_id, after, content::JSON_MARK, content::JSON_MARK_END])?;
    while let Some(row) = rows.next()? {
        let json = text(row, 1)?;
        counted.cost += 1 + json.as_ref().map_or(0, |json| json.len() / ROW_BYTES);
        if json.is_none_or(|json| content::has_text(&json)) {
            counted.readable += 1;
            counted.sample.push(row.get(0)?);
        }
    }
    Ok(())
}

/// Some of many ids, about evenly spread, and always the lowest and the highest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Sample {
    first: Option<i64>,
    last: Option<i64>,
    between: Vec<i64>,
    /// Each `1 << thinned`-th id is kept.
    thinned: u32,
    seen: usize,
}

impl Sample {
    fn push(&mut self, id: i64) {
        self.first = Some(self.first.map_or(id, |first| first.min(id)));
        self.last = Some(self.last.map_or(id, |last| last.max(id)));
        if self.seen.is_multiple_of(1 << self.thinned) {
            self.between.push(id);
        }
        self.seen += 1;
        if self.between.len() > SAMPLE {
            let mut keep = false;
            self.between.retain(|_| {
                keep = !keep;
                keep
            });
            self.thinned += 1;
        }
    }

    fn ids(&self) -> impl Iterator<Item = i64> {
        self.first.into_iter().chain(self.last).chain(self.between.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::super::db::StateDb;
    use super::*;
    use proptest::prelude::*;
    use rusqlite::Connection;

    const ROWS: i64 = 2 * CHEAP as i64;

    struct Lab {
        _home: tempfile::TempDir,
        writer: Connection,
        db: StateDb,
        tallies: Tallies,
    }

    impl Lab {
        fn new(extra: &str) -> Self {
            let home = tempfile::tempdir().unwrap();
            let writer = Connection::open(home.path().join("state.db")).unwrap();
            writer.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
            let schema = format!(
                "CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT, role TEXT, content TEXT{extra});
                 CREATE INDEX i ON messages(session_id);"
            );
            writer.execute_batch(&schema).unwrap();
            let db = StateDb::new(home.path());
            let lab = Self { _home: home, writer, db, tallies: Tallies::default() };
            lab.say("a", ROWS);
            lab
        }

        fn say(&self, session: &str, rows: i64) {
            let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
                 INSERT INTO messages (session_id, role, content) SELECT ?1, iif(i % 3, 'user', 'tool'), 'x' FROM n";
            self.writer.execute(sql, params![session, rows]).unwrap();
        }

        /// What the tally says, and whether it counted everything for that. Checked against the truth.
        fn total(&mut self) -> (usize, Told) {
            let before = self.tallies.0.first().map(|tally| tally.since);
            let tallies = &mut self.tallies;
            let (total, fresh) = self
                .db
                .read(|snapshot| Ok((tallies.total(snapshot, "a")?, count(snapshot, "a")?.readable)))
                .unwrap();
            assert_eq!(total, fresh);
            let told = if before == self.tallies.0.first().map(|tally| tally.since) {
                Told::Followed
            } else {
                Told::Counted
            };
            (total, told)
        }
    }

    #[derive(Debug, PartialEq)]
    enum Told {
        Counted,
        Followed,
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_session_is_counted_once_and_then_followed() {
        let mut lab = Lab::new("");
        let (first, told) = lab.total();
        assert_eq!(told, Told::Counted);
        // Time stands still until it is told to go on, so `since` tells one count from another.
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(lab.total(), (first, Told::Followed));
        lab.say("a", 2);
        lab.say("b", 5);
        assert_eq!(lab.total(), (first + 2, Told::Followed));
        tokio::time::advance(TRUSTED).await;
        lab.say("b", 1);
        assert_eq!(lab.total(), (first + 2, Told::Counted));
    }

    #[tokio::test(start_paused = true)]
    async fn a_rewritten_shortened_or_thinned_session_is_counted_again() {
        for change in [
            "DELETE FROM messages WHERE id = (SELECT max(id) FROM messages WHERE role = 'user')",
            "DELETE FROM messages WHERE id < 50",
            "DELETE FROM messages WHERE id BETWEEN 2000 AND 3000",
            "UPDATE messages SET id = id + 100000",
            "DELETE FROM messages",
        ] {
            let mut lab = Lab::new("");
            lab.total();
            tokio::time::advance(Duration::from_secs(1)).await;
            lab.writer.execute_batch(change).unwrap();
            assert_eq!(lab.total().1, Told::Counted, "{change}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn messages_taken_back_and_brought_back_are_followed() {
        let mut lab = Lab::new(", active INTEGER NOT NULL DEFAULT 1");
        let (all, _) = lab.total();
        lab.writer.execute_batch("UPDATE messages SET active = 0 WHERE id > 8000").unwrap();
        let (fewer, _) = lab.total();
        assert!(fewer < all);
        tokio::time::advance(Duration::from_secs(1)).await;
        lab.writer.execute_batch("UPDATE messages SET active = 1 WHERE id > 8000").unwrap();
        assert_eq!(lab.total(), (all, Told::Followed));
    }

    proptest! {
        #[test]
        fn a_sample_is_small_and_leaves_no_wide_gap(count in 1usize..5000) {
            let mut sample = Sample::default();
            for id in 0..count {
                sample.push(i64::try_from(id).unwrap());
            }
            let mut ids: Vec<i64> = sample.ids().collect();
            ids.sort_unstable();
            prop_assert!(ids.len() <= SAMPLE + 2);
            prop_assert_eq!((ids[0], ids[ids.len() - 1]), (0, i64::try_from(count).unwrap() - 1));
            let widest = ids.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
            prop_assert!(widest <= i64::try_from(4 * count / SAMPLE + 1).unwrap(), "{widest}");
        }
    }
}
