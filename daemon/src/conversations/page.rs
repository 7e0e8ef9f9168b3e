//! Reading one page of a session's messages from its end, without looking at the rest.
//!
//! Runs on the reader thread, inside one [`Snapshot`]. Promise: rows are read in the order of their
//! ids, about as many as are answered: through an index where one has that order, else through
//! the newest rows of the table, else by picking ids out of an index and no contents.

use super::content::Content;
use super::db::Snapshot;
use super::messages::{Ask, Collector, Edge, Message, Stored};
use super::values::{fit, scalar, shown, text};
use rusqlite::{OptionalExtension, Row, params};
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

/// Rows of the table that are walked through, of whatever session, before an index is asked. A
/// conversation that is alive has its end among them.
pub(super) const WALKED: i64 = 4096;
/// How many ids are picked for each message that is asked for, and by how much more the next time.
const PICKED: usize = 4;
const PICKED_MORE: usize = 16;

/// All ids of a session in a range; an index over its messages has them, whatever else it is for.
const PICK: &str = "SELECT id FROM messages WHERE session_id = ?1 AND id > ?2 AND id < ?3";

/// The messages that `ask` wants of `session_id`, oldest first, and whether there are more of them.
pub(super) fn read(
    snapshot: &Snapshot<'_>,
    session_id: &str,
    ask: &Ask,
) -> rusqlite::Result<(Vec<Message>, bool)> {
    if !fit(snapshot.messages)? {
        return Ok((Vec::new(), false));
    }
    let mut reading = Reading { snapshot, session_id, ask, page: Collector::new(ask) };
    let whole = Range { after: ask.after.unwrap_or(i64::MIN), before: ask.before.unwrap_or(i64::MAX) };
    if snapshot.by_id.is_some() {
        let _ = reading.walk(&in_order(snapshot), whole)?;
    } else if let Some(newest) = newest(snapshot)? {
        let (near, rest) = whole.split(ask.edge(), newest);
        if reading.walk(&in_order(snapshot), near)?.is_continue() {
            reading.pick(rest)?;
        }
    }
    Ok(reading.page.finish())
}

/// The content of one message of `session_id`, whoever wrote it; `None` if there is no such message.
pub(super) fn content_of(
    snapshot: &Snapshot<'_>,
    session_id: &str,
    id: i64,
) -> rusqlite::Result<Option<Content>> {
    if !fit(snapshot.messages)? {
        return Ok(None);
    }
    let sql = format!(
        "SELECT content FROM messages WHERE id = ?1 AND session_id = ?2 {}",
        shown(snapshot.messages)
    );
    let decoded = |row: &Row<'_>| Ok(Content::decode(&text(row, 0)?.unwrap_or_default()));
    snapshot.transaction.prepare_cached(&sql)?.query_row(params![id, session_id], decoded).optional()
}

/// The highest id of the table, of whatever session.
pub(super) fn newest(snapshot: &Snapshot<'_>) -> rusqlite::Result<Option<i64>> {
    snapshot.transaction.prepare_cached("SELECT max(id) FROM messages")?.query_row([], |row| row.get(0))
}

/// The table, read in the order of its ids: by an index that has it in each session, or by row id.
pub(super) fn in_order(snapshot: &Snapshot<'_>) -> String {
    match snapshot.by_id {
        Some(index) => format!("messages INDEXED BY \"{}\"", index.replace('"', "\"\"")),
        None => "messages NOT INDEXED".to_owned(),
    }
}

/// Ids between two ends that are not part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    after: i64,
    before: i64,
}

impl Range {
    /// The part at the edge, at most [`WALKED`] ids, and what is left of it.
    fn split(self, edge: Edge, newest: i64) -> (Self, Self) {
        let before = self.before.min(newest.saturating_add(1));
        match edge {
            Edge::Newest => {
                let border = before.saturating_sub(WALKED).max(self.after.saturating_add(1));
                (Self { after: border - 1, before }, Self { after: self.after, before: border })
            }
            Edge::Oldest => {
                // Row ids begin at 1.
                let after = self.after.max(0);
                let border = after.saturating_add(WALKED).min(before);
                (Self { after, before: border.saturating_add(1).min(before) }, Self { after: border, before })
            }
        }
    }
}

struct Reading<'a, 's> {
    snapshot: &'a Snapshot<'s>,
    session_id: &'a str,
    ask: &'a Ask,
    page: Collector<'a>,
}

impl Reading<'_, '_> {
    /// The query for the rows of a range in the order of reading; the caller stops it when it has enough.
    fn sql(&self, from: &str) -> String {
        let roles: Vec<&str> = self.ask.roles.iter().map(|role| role.word()).collect();
        let timestamp = if self.snapshot.messages.has("timestamp") { "timestamp" } else { "NULL" };
        let order = match self.ask.edge() {
            Edge::Newest => "DESC",
            Edge::Oldest => "ASC",
        };
        format!(
            "SELECT id, role, content, {timestamp} FROM {from}
             WHERE session_id = ?1 AND id > ?2 AND id < ?3 AND role IN ('{}') AND octet_length(content) > 0 {}
             ORDER BY id {order}",
            roles.join("', '"),
            shown(self.snapshot.messages),
        )
    }

    fn walk(&mut self, from: &str, range: Range) -> rusqlite::Result<ControlFlow<()>> {
        let mut statement = self.snapshot.transaction.prepare_cached(&self.sql(from))?;
        let mut rows = statement.query(params![self.session_id, range.after, range.before])?;
        while let Some(row) = rows.next()? {
            if self.take(row)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Looks at all ids of the session in the range, but only at the contents of those next to the
    /// edge: at first of a few, and of ever more as long as they have no text.
    fn pick(&mut self, mut range: Range) -> rusqlite::Result<()> {
        let connection = &self.snapshot.transaction;
        let mut ids = connection.prepare_cached(PICK)?;
        let sql = self.sql(&in_order(self.snapshot));
        let mut wanted = self.ask.limit * PICKED;
        loop {
            let mut nearest = Nearest::new(wanted, self.ask.edge());
            let mut rows = ids.query(params![self.session_id, range.after, range.before])?;
            while let Some(row) = rows.next()? {
                nearest.push(row.get(0)?);
            }
            let picked = nearest.finish();
            for id in &picked {
                let mut statement = connection.prepare_cached(&sql)?;
                let mut rows = statement.query(params![self.session_id, id - 1, id + 1])?;
                if let Some(row) = rows.next()?
                    && self.take(row)?.is_break()
                {
                    return Ok(());
                }
            }
            match picked.last() {
                Some(last) if picked.len() == wanted => match self.ask.edge() {
                    Edge::Newest => range.before = *last,
                    Edge::Oldest => range.after = *last,
                },
                _ => return Ok(()),
            }
            wanted *= PICKED_MORE;
        }
    }

    fn take(&mut self, row: &Row<'_>) -> rusqlite::Result<ControlFlow<()>> {
        Ok(self.page.take(Stored {
            id: row.get(0)?,
            role: text(row, 1)?.unwrap_or_default(),
            content: &text(row, 2)?.unwrap_or_default(),
            timestamp: scalar(row, 3)?,
        }))
    }
}

/// Keeps the ids next to an edge, holding no more than it is to answer.
#[derive(Debug)]
struct Nearest {
    limit: usize,
    edge: Edge,
    /// As [`keyed`](Self::keyed): the one to give up first on top.
    kept: BinaryHeap<i64>,
}

impl Nearest {
    fn new(limit: usize, edge: Edge) -> Self {
        Self { limit, edge, kept: BinaryHeap::new() }
    }

    /// The id such that lower ones are nearer to the edge; its own inverse.
    fn keyed(&self, id: i64) -> i64 {
        match self.edge {
            Edge::Newest => !id,
            Edge::Oldest => id,
        }
    }

    fn push(&mut self, id: i64) {
        self.kept.push(self.keyed(id));
        if self.kept.len() > self.limit {
            self.kept.pop();
        }
    }

    /// From the edge inwards.
    fn finish(mut self) -> Vec<i64> {
        let kept = std::mem::take(&mut self.kept).into_sorted_vec();
        kept.into_iter().map(|key| self.keyed(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::db::StateDb;
    use super::super::messages::Role;
    use super::*;
    use proptest::prelude::*;
    use rusqlite::{Connection, StatementStatus};
    use std::path::Path;

    const OLD: &str = "CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL,
         content TEXT, timestamp REAL NOT NULL);
         CREATE INDEX idx_messages_session ON messages(session_id, timestamp);";
    const NEW: &str = "CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL,
         content TEXT, timestamp REAL NOT NULL, active INTEGER NOT NULL DEFAULT 1, display_kind TEXT);
         CREATE INDEX idx_messages_session ON messages(session_id, timestamp);
         CREATE INDEX idx_messages_session_active ON messages(session_id, active, timestamp);
         CREATE INDEX \"odd \"\" name\" ON messages(session_id, id);";

    /// Session `a` has `rows` messages, then `b` has `others`; clocks run backwards.
    fn filled(schema: &str, rows: i64, others: i64) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        let writer = Connection::open(home.path().join("state.db")).unwrap();
        writer.execute_batch(schema).unwrap();
        let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1 + ?2)
             INSERT INTO messages (session_id, role, content, timestamp)
             SELECT CASE WHEN i <= ?1 THEN 'a' ELSE 'b' END, 'user', 'text ' || i, 1e9 - i FROM n";
        writer.execute(sql, [rows, others]).unwrap();
        home
    }

    fn on<T>(home: &Path, work: impl FnOnce(&Snapshot<'_>) -> rusqlite::Result<T>) -> T {
        StateDb::new(home).read(work).unwrap()
    }

    fn plan(snapshot: &Snapshot<'_>, sql: &str) -> String {
        let mut statement = snapshot.transaction.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let steps = statement.query_map(params!["a", 0, 9], |row| row.get::<_, String>(3)).unwrap();
        steps.collect::<rusqlite::Result<Vec<_>>>().unwrap().join("; ")
    }

    /// Steps of SQLite's machine until `rows` rows were answered.
    fn steps(snapshot: &Snapshot<'_>, sql: &str, rows: usize) -> i32 {
        let mut statement = snapshot.transaction.prepare(sql).unwrap();
        let mut answer = statement.query(params!["a", i64::MIN, i64::MAX]).unwrap();
        for _ in 0..rows {
            assert!(answer.next().unwrap().is_some());
        }
        drop(answer);
        statement.get_status(StatementStatus::VmStep)
    }

    fn sql(snapshot: &Snapshot<'_>, ask: &Ask) -> String {
        let reading = Reading { snapshot, session_id: "a", ask, page: Collector::new(ask) };
        reading.sql(&in_order(snapshot))
    }

    #[test]
    fn an_index_in_the_order_of_ids_is_read_from_its_end_and_nothing_is_sorted() {
        let home = filled(NEW, 100, 0);
        let forward = Ask { after: Some(3), ..Ask::newest(50) };
        for ask in [Ask::newest(50), forward] {
            let plan = on(home.path(), |snapshot| Ok(plan(snapshot, &sql(snapshot, &ask))));
            assert_eq!(plan, "SEARCH messages USING INDEX odd \" name (session_id=? AND id>? AND id<?)");
        }
    }

    #[test]
    fn without_such_an_index_the_newest_rows_are_walked_and_older_ids_come_out_of_an_index_alone() {
        let home = filled(OLD, 100, 0);
        on(home.path(), |snapshot| {
            assert_eq!(
                plan(snapshot, &sql(snapshot, &Ask::newest(50))),
                "SEARCH messages USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"
            );
            assert_eq!(
                plan(snapshot, PICK),
                "SEARCH messages USING COVERING INDEX idx_messages_session (session_id=?)"
            );
            Ok(())
        });
    }

    #[test]
    fn a_page_costs_the_same_whatever_the_length_of_the_session() {
        for schema in [OLD, NEW] {
            let of = |rows| {
                let home = filled(schema, rows, 0);
                on(home.path(), |snapshot| Ok(steps(snapshot, &sql(snapshot, &Ask::newest(50)), 51)))
            };
            let (short, long) = (of(200), of(20_000));
            assert!(long <= short + 10, "{short} steps of 200 rows, {long} of 20,000");
        }
    }

    #[test]
    fn every_road_leads_to_the_same_page() {
        let asks = [
            Ask::newest(3),
            Ask { before: Some(2000), ..Ask::newest(200) },
            Ask { after: Some(7), ..Ask::newest(3) },
            Ask { after: Some(0), before: Some(3), ..Ask::newest(5) },
            Ask { after: Some(-5), ..Ask::newest(1) },
            Ask { before: Some(1), ..Ask::newest(5) },
            Ask { after: Some(i64::MAX), before: Some(i64::MIN), ..Ask::newest(5) },
            Ask { roles: [Role::Tool].into(), ..Ask::newest(5) },
        ];
        for (schema, others) in [(NEW, 0), (OLD, 0), (OLD, 3 * WALKED)] {
            let home = filled(schema, 6000, others);
            on(home.path(), |snapshot| {
                for ask in &asks {
                    let (messages, more) = read(snapshot, "a", ask)?;
                    let (after, before) =
                        (ask.after.unwrap_or(0).max(0), ask.before.unwrap_or(6001).min(6001));
                    let mut expected: Vec<i64> = (after.saturating_add(1)..before).collect();
                    if ask.roles.contains(&Role::Tool) {
                        expected.clear();
                    }
                    let all = expected.len();
                    match ask.edge() {
                        Edge::Oldest => expected.truncate(ask.limit),
                        Edge::Newest => drop(expected.drain(..all.saturating_sub(ask.limit))),
                    }
                    let ids: Vec<i64> = messages.iter().map(|message| message.id.parse().unwrap()).collect();
                    assert_eq!((ids, more), (expected, all > ask.limit), "{ask:?} behind {others}");
                }
                Ok(())
            });
        }
    }

    #[test]
    fn a_text_far_behind_pictures_is_found_on_every_road() {
        for (schema, others) in [(NEW, 0), (OLD, 0), (OLD, 2 * WALKED)] {
            let home = filled(schema, 5000, others);
            let writer = Connection::open(home.path().join("state.db")).unwrap();
            let picture = "\0json:[{\"type\":\"image\",\"url\":\"u\"}]";
            writer
                .execute("UPDATE messages SET content = ?1 WHERE id > 1 AND session_id = 'a'", [picture])
                .unwrap();
            let page = on(home.path(), |snapshot| read(snapshot, "a", &Ask::newest(2)));
            assert_eq!((page.0.len(), page.0[0].id.as_str(), page.1), (1, "1", false));
        }
    }

    proptest! {
        #[test]
        fn the_nearest_are_those_next_to_the_edge_whatever_their_order(
            ids in prop::collection::hash_set(any::<i64>(), 0..60), limit in 1usize..20, newest in any::<bool>(),
        ) {
            let edge = if newest { Edge::Newest } else { Edge::Oldest };
            let mut nearest = Nearest::new(limit, edge);
            for id in &ids {
                nearest.push(*id);
            }
            let mut sorted: Vec<i64> = ids.into_iter().collect();
            sorted.sort_unstable();
            if newest {
                sorted.reverse();
            }
            sorted.truncate(limit);
            prop_assert_eq!(nearest.finish(), sorted);
        }

        #[test]
        fn a_split_range_is_the_same_range_in_two_parts(
            after in prop_oneof![Just(i64::MIN), -5i64..20_000], before in prop_oneof![Just(i64::MAX), -5i64..20_000],
            newest in 1i64..20_000, id in 1i64..20_000, from_newest in any::<bool>(),
        ) {
            let edge = if from_newest { Edge::Newest } else { Edge::Oldest };
            let (near, rest) = Range { after, before }.split(edge, newest);
            let inside = |range: Range| id > range.after && id < range.before;
            let expected = id <= newest && inside(Range { after, before });
            prop_assert_eq!(inside(near) || inside(rest), expected, "{:?} {:?}", near, rest);
            prop_assert!(!(inside(near) && inside(rest)));
            prop_assert!(near.before.saturating_sub(near.after) <= WALKED + 1);
        }
    }
}
