//! The watcher against a writer with a connection of its own.

use super::*;
use crate::conversations::events::Kind;
use crate::store::{EventFilter, KeptEvent};
use rusqlite::{Connection, params};
use serde_json::{Value, json};
use std::fs;

/// Generous: a loaded machine must not fail a test.
const LONG: Duration = Duration::from_secs(60);

const SCHEMA: &str = "
    CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, started_at REAL, parent_session_id TEXT);
    CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL,
        content TEXT, timestamp REAL NOT NULL, active INTEGER NOT NULL DEFAULT 1,
        compacted INTEGER NOT NULL DEFAULT 0);
    CREATE INDEX by_session ON messages (session_id, timestamp);";

/// A home with a writer; the sessions `a`, `b` and `c` have conversations.
struct Home {
    dir: tempfile::TempDir,
}

struct Writer(Connection);

impl Home {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sessions")).unwrap();
        let home = Self { dir };
        home.name(&["a", "b", "c"]);
        home
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn name(&self, sessions: &[&str]) {
        let entries = sessions.iter().map(|id| (format!("key:{id}"), json!({"session_id": id})));
        let text = Value::Object(entries.collect()).to_string();
        fs::write(self.path().join("sessions/new"), text).unwrap();
        fs::rename(self.path().join("sessions/new"), self.path().join("sessions/sessions.json")).unwrap();
    }

    fn writer_of(&self, file: &str, journal: &str) -> Writer {
        let connection = Connection::open(self.path().join(file)).unwrap();
        connection.query_row(&format!("PRAGMA journal_mode={journal}"), [], |_| Ok(())).unwrap();
        connection.execute_batch(SCHEMA).unwrap();
        Writer(connection)
    }

    fn writer(&self) -> Writer {
        self.writer_of("state.db", "WAL")
    }

    async fn follow(&self) -> Followed {
        let (store, _) = Store::open(&self.path().join("hermesd.db"));
        let group = TaskGroup::new();
        let metrics = Metrics::new("0", SystemTime::now(), None);
        let watch = Watch::start(self.path(), store.clone(), metrics, &group);
        watch.settled().await;
        watch.want(Wanted::Yes);
        let mut status = watch.status();
        let on = status.wait_for(|status| matches!(status.state, State::Following | State::Missing));
        tokio::time::timeout(LONG, on).await.unwrap().unwrap();
        let seen = *store.latest_event().borrow();
        Followed { store, group, watch, seen }
    }
}

impl Writer {
    fn add(&self, session: &str, text: &str) -> i64 {
        self.add_at(session, text, 1_779_000_000.0)
    }

    fn add_at(&self, session: &str, text: &str, timestamp: f64) -> i64 {
        let insert =
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?1, 'user', ?2, ?3)";
        self.0.execute(insert, params![session, text, timestamp]).unwrap();
        self.0.last_insert_rowid()
    }

    /// As the reference replaces a session: all rows go, those that stay come again.
    fn rewrite(&self, session: &str, texts: &[&str]) {
        self.0.execute_batch("BEGIN IMMEDIATE").unwrap();
        self.0.execute("DELETE FROM messages WHERE session_id = ?1", [session]).unwrap();
        for text in texts {
            self.add(session, text);
        }
        self.0.execute_batch("COMMIT").unwrap();
    }
}

struct Followed {
    store: Store,
    group: TaskGroup,
    watch: Watch,
    /// The newest event that was taken.
    seen: u64,
}

impl Followed {
    /// The next `count` events, in order.
    async fn next(&mut self, count: u64) -> Vec<KeptEvent> {
        let mut latest = self.store.latest_event();
        let there = latest.wait_for(|latest| *latest >= self.seen + count);
        tokio::time::timeout(LONG, there).await.expect("the events come").unwrap();
        let page = self.store.events_from(self.seen + 1, 1000, EventFilter::default()).await.unwrap();
        let events: Vec<KeptEvent> = page.events.iter().take(count as usize).map(|e| (**e).clone()).collect();
        self.seen = events.last().unwrap().number;
        events
    }

    /// The texts of the next messages, or their kinds where they are none.
    async fn texts(&mut self, count: u64) -> Vec<String> {
        let events = self.next(count).await;
        events
            .iter()
            .map(|event| {
                let body: Value = serde_json::from_str(&event.body).unwrap();
                body["content"].as_str().map_or_else(|| event.kind.clone(), str::to_owned)
            })
            .collect()
    }

    async fn stop(self) {
        self.group.finish(LONG).await;
        self.store.close(LONG).await;
    }
}

fn rewritten() -> String {
    Kind::Rewritten.word().to_owned()
}

#[tokio::test]
async fn history_makes_no_events_and_a_commit_does_while_its_connection_stays_open() {
    for journal in ["WAL", "DELETE"] {
        let home = Home::new();
        let writer = home.writer_of("state.db", journal);
        writer.add("a", "history");
        let mut followed = home.follow().await;
        let mut changes = followed.watch.changes();
        writer.add("a", "one");
        assert_eq!(followed.texts(1).await, ["one"], "{journal}");
        assert_eq!(changes.recv().await.unwrap(), Change::Session("key:a".into()));
        writer.add("b", "two");
        let event = &followed.next(1).await[0];
        assert_eq!((event.session_key.as_str(), event.kind.as_str()), ("key:b", "message"), "{journal}");
        assert_eq!(changes.recv().await.unwrap(), Change::Session("key:b".into()));
        followed.stop().await;
    }
}

#[tokio::test]
async fn a_file_that_is_missing_at_first_is_waited_for() {
    let home = Home::new();
    let mut followed = home.follow().await;
    assert_eq!(followed.watch.status().borrow().state, State::Missing);
    let writer = home.writer();
    writer.add("a", "one");
    writer.add("c", "two");
    assert_eq!(followed.texts(2).await, ["one", "two"]);
    followed.stop().await;
}

#[tokio::test]
async fn order_and_completeness_do_not_depend_on_clocks_and_restarts() {
    let home = Home::new();
    let writer = home.writer();
    let mut followed = home.follow().await;
    for n in 0..700 {
        writer.add_at("a", &n.to_string(), 2_000_000.0 - f64::from(n));
    }
    let mut texts = followed.texts(700).await;
    followed.stop().await;
    for n in 700..1300 {
        writer.add_at(if n % 2 == 0 { "a" } else { "b" }, &n.to_string(), 5.0);
    }
    let mut followed = home.follow().await;
    // It may have looked before `follow` returned.
    followed.seen = followed.store.events_from(0, 1, EventFilter::default()).await.unwrap().oldest + 699;
    texts.extend(followed.texts(600).await);
    assert_eq!(texts, (0..1300).map(|n| n.to_string()).collect::<Vec<_>>());
    followed.stop().await;
}

#[tokio::test]
async fn a_rewrite_is_told_as_one_and_only_new_messages_follow() {
    let home = Home::new();
    let writer = home.writer();
    writer.add("a", "old");
    let mut followed = home.follow().await;
    for text in ["q1", "a1", "q2", "a2"] {
        writer.add("a", text);
    }
    followed.texts(4).await;
    writer.rewrite("a", &["old", "q1", "a1"]);
    assert_eq!(followed.texts(1).await, [rewritten()]);
    writer.add("a", "q3");
    assert_eq!(followed.texts(1).await, ["q3"]);
    followed.stop().await;
    // Also one that nobody watched, with messages after it.
    writer.rewrite("a", &["old", "q1"]);
    writer.add("a", "q4");
    writer.add("b", "other");
    let mut followed = home.follow().await;
    followed.seen = followed.store.events_from(0, 1, EventFilter::default()).await.unwrap().oldest + 5;
    let events = followed.next(3).await;
    let body: Value = serde_json::from_str(&events[0].body).unwrap();
    assert_eq!((events[0].kind.as_str(), &body["removed"]), (Kind::Rewritten.word(), &json!(2)));
    assert!(events[1].body.contains("q4") && events[2].body.contains("other"), "{events:?}");
    followed.stop().await;
}

#[tokio::test]
async fn a_session_that_continues_another_tells_only_what_is_new() {
    let home = Home::new();
    let writer = home.writer();
    let mut followed = home.follow().await;
    for text in ["q1", "a1", "q2", "a2"] {
        writer.add("a", text);
    }
    followed.texts(4).await;
    writer.0.execute_batch("INSERT INTO sessions VALUES ('a2', 'x', 1.0, 'a')").unwrap();
    home.name(&["a", "b", "c", "a2"]);
    for text in ["q2", "a2", "q3", "q2"] {
        writer.add("a2", text);
    }
    assert_eq!(followed.texts(3).await, [rewritten(), "q3".to_owned(), "q2".to_owned()]);
    followed.stop().await;
}

#[tokio::test]
async fn a_long_session_is_rewritten_as_a_whole() {
    let home = Home::new();
    let writer = home.writer();
    let texts: Vec<String> = (0..1500).map(|n| format!("m{n}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    writer.rewrite("a", &texts);
    let mut followed = home.follow().await;
    writer.rewrite("a", &texts[..1490]);
    assert_eq!(followed.texts(1).await, [rewritten()]);
    writer.add("a", "next");
    writer.add("b", "other");
    assert_eq!(followed.texts(2).await, ["next", "other"]);
    followed.stop().await;
}

#[tokio::test]
async fn messages_taken_back_are_told_and_the_same_words_again_are_new() {
    let home = Home::new();
    let writer = home.writer();
    let mut followed = home.follow().await;
    writer.add("a", "one");
    let second = writer.add("a", "two");
    followed.texts(2).await;
    writer.0.execute("UPDATE messages SET active = 0 WHERE id = ?1", [second]).unwrap();
    assert_eq!(followed.texts(1).await, [rewritten()]);
    writer.add("a", "two");
    assert_eq!(followed.texts(1).await, ["two"]);
    // Summarised: the rows stay, and what is kept is stored again.
    writer
        .0
        .execute_batch(
            "BEGIN; UPDATE messages SET active = 0, compacted = 1;
             INSERT INTO messages (session_id, role, content, timestamp) VALUES
             ('a', 'user', 'summary', 1.0), ('a', 'user', 'two', 1.0), ('a', 'assistant', 'three', 1.0); COMMIT",
        )
        .unwrap();
    assert_eq!(followed.texts(2).await, [rewritten(), "three".to_owned()]);
    followed.stop().await;
}

#[tokio::test]
async fn a_replaced_file_leaves_a_marker_and_a_new_beginning() {
    let home = Home::new();
    let writer = home.writer();
    let mut followed = home.follow().await;
    writer.add("a", "one");
    followed.texts(1).await;
    let other = home.writer_of("other.db", "WAL");
    for _ in 0..3 {
        other.add("b", "history of another file");
    }
    // One file again, so that it can be moved.
    other.0.query_row("PRAGMA journal_mode=DELETE", [], |_| Ok(())).unwrap();
    drop(other);
    drop(writer);
    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(home.path().join(format!("state.db{suffix}")));
    }
    fs::rename(home.path().join("other.db"), home.path().join("state.db")).unwrap();
    assert_eq!(followed.texts(1).await, [crate::store::GAP]);
    let writer = Connection::open(home.path().join("state.db")).unwrap();
    Writer(writer).add("b", "two");
    assert_eq!(followed.texts(1).await, ["two"]);
    followed.stop().await;
}

#[tokio::test]
async fn a_session_that_is_named_late_loses_nothing() {
    let home = Home::new();
    let writer = home.writer();
    let mut followed = home.follow().await;
    writer.add("new", "first");
    writer.add("a", "known");
    writer.add("new", "second");
    assert_eq!(followed.texts(1).await, ["known"]);
    home.name(&["a", "b", "c", "new"]);
    assert_eq!(followed.texts(2).await, ["first", "second"]);
    followed.stop().await;
}

#[tokio::test]
async fn a_row_that_names_its_conversation_needs_no_index() {
    let home = Home::new();
    let writer = home.writer();
    writer.0.execute_batch("ALTER TABLE sessions ADD COLUMN session_key TEXT").unwrap();
    writer.0.execute_batch("INSERT INTO sessions VALUES ('x', 'signal', 1.0, NULL, 'agent:x')").unwrap();
    let mut followed = home.follow().await;
    writer.add("a", "in sessions.json only, which does not count now");
    writer.add("x", "one");
    let event = &followed.next(1).await[0];
    assert_eq!(event.session_key, "agent:x");
    followed.stop().await;
}

/// A second name of the file in another folder: what is written through it, nobody is told of.
#[tokio::test]
async fn changes_without_notices_are_found_and_then_looked_for_quickly() {
    let home = Home::new();
    drop(home.writer_of("state.db", "DELETE"));
    let elsewhere = tempfile::tempdir_in(home.path()).unwrap();
    fs::hard_link(home.path().join("state.db"), elsewhere.path().join("state.db")).unwrap();
    let writer = Writer(Connection::open(elsewhere.path().join("state.db")).unwrap());
    let mut followed = home.follow().await;
    // The first are found by the looks of the start.
    let status = followed.watch.status();
    let mut count = 0;
    while status.borrow().mode != Mode::PollingUnnoticed {
        count += 1;
        assert!(count < 500, "{:?}", *status.borrow());
        writer.add("a", "text");
        followed.texts(1).await;
    }
    let mut status = followed.watch.status();
    writer.add("a", "four");
    assert_eq!(followed.texts(1).await, ["four"]);
    // A notice ends it.
    home.name(&["a", "b"]);
    let told = status.wait_for(|status| status.mode == Mode::Notices);
    tokio::time::timeout(LONG, told).await.unwrap().unwrap();
    followed.stop().await;
}

#[tokio::test]
async fn a_database_that_cannot_be_read_is_tried_again() {
    let home = Home::new();
    fs::write(home.path().join("state.db"), "this is no database at all, but it will be one").unwrap();
    let (store, _) = Store::open(&home.path().join("hermesd.db"));
    let group = TaskGroup::new();
    let metrics = Metrics::new("0", SystemTime::now(), None);
    let watch = Watch::start(home.path(), store.clone(), metrics, &group);
    watch.want(Wanted::Yes);
    let mut status = watch.status();
    let trouble = status.wait_for(|status| matches!(status.state, State::Trouble(_)));
    tokio::time::timeout(LONG, trouble).await.unwrap().unwrap();
    fs::remove_file(home.path().join("state.db")).unwrap();
    let writer = home.writer();
    let following = status.wait_for(|status| status.state == State::Following);
    tokio::time::timeout(LONG, following).await.unwrap().unwrap();
    let mut followed = Followed { seen: *store.latest_event().borrow(), store, group, watch };
    writer.add("a", "one");
    assert_eq!(followed.texts(1).await, ["one"]);
    followed.stop().await;
}
