//! What the mirror writes, and above all what it leaves alone.

use super::super::golden_tests::home;
use super::*;
use tempfile::TempDir;

fn sent(platform: &'static str, chat_id: &str, thread_id: Option<&str>) -> Sent {
    Sent {
        platform,
        chat_id: chat_id.into(),
        thread_id: thread_id.map(Into::into),
        text: "hello 你好".into(),
        at: 1_790_000_000.25,
    }
}

fn ask(home: &TempDir, sql: &str) -> Vec<String> {
    let connection = Connection::open(home.path().join("state.db")).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

fn change(home: &TempDir, sql: &str) {
    Connection::open(home.path().join("state.db")).unwrap().execute_batch(sql).unwrap();
}

const NEWEST: &str = "SELECT session_id || '|' || role || '|' || content || '|' || timestamp FROM messages ORDER BY id DESC LIMIT 1";

#[test]
fn the_text_becomes_the_assistants_in_the_session_of_its_chat_and_can_be_searched() {
    let home = home("hermes-home");
    let before = ask(&home, "SELECT message_count || '' FROM sessions WHERE id = '20260517_073000_5160a100'");
    write(home.path(), &sent("signal", "+15551234567", None)).unwrap();
    assert_eq!(ask(&home, NEWEST), ["20260517_073000_5160a100|assistant|hello 你好|1790000000.25"]);
    let after = ask(&home, "SELECT message_count || '' FROM sessions WHERE id = '20260517_073000_5160a100'");
    assert_eq!(after[0].parse::<i64>().unwrap(), before[0].parse::<i64>().unwrap() + 1);
    // Hermes Agent's own triggers have filled its index.
    assert_eq!(
        ask(&home, "SELECT count(*) || '' FROM messages_fts WHERE messages_fts MATCH 'hello'").len(),
        1
    );
}

#[test]
fn a_newer_home_is_found_by_its_rows() {
    let home = home("hermes-home-v30");
    let target = ask(&home, "SELECT source || '|' || chat_id || '|' || coalesce(thread_id, '') || '|' || id FROM sessions
                             WHERE session_key IS NOT NULL AND ended_at IS NULL AND chat_id IS NOT NULL ORDER BY started_at DESC LIMIT 1");
    let parts: Vec<&str> = target[0].split('|').collect();
    let platform = ["telegram", "discord", "slack", "signal", "matrix"]
        .into_iter()
        .find(|name| *name == parts[0])
        .unwrap();
    write(home.path(), &sent(platform, parts[1], None)).unwrap();
    assert!(ask(&home, NEWEST)[0].starts_with(&format!("{}|assistant|", parts[3])));
}

#[test]
fn a_thread_finds_its_own_session_only() {
    let home = home("hermes-home");
    write(home.path(), &sent("telegram", "-1001234567890", Some("17585"))).unwrap();
    assert!(ask(&home, NEWEST)[0].starts_with("20260517_065500_0badcafe|"));
    let other = write(home.path(), &sent("telegram", "-1001234567890", Some("9")));
    assert!(matches!(other, Err(MirrorError::NoSession)), "{other:?}");
}

#[test]
fn where_several_people_share_a_chat_nothing_is_written() {
    let home = home("hermes-home");
    let entry = |user: &str| {
        serde_json::json!({
            "session_id": "20260517_072000_51ac5000", "updated_at": user,
            "origin": {"platform": "slack", "chat_id": "C1", "user_id": user},
        })
    };
    let json = serde_json::json!({"a": entry("U1"), "b": entry("U2")});
    std::fs::write(home.path().join("sessions/sessions.json"), json.to_string()).unwrap();
    assert!(matches!(write(home.path(), &sent("slack", "C1", None)), Err(MirrorError::NoSession)));
    let one = serde_json::json!({"a": entry("U1")});
    std::fs::write(home.path().join("sessions/sessions.json"), one.to_string()).unwrap();
    write(home.path(), &sent("slack", "C1", None)).unwrap();
}

#[test]
fn a_schema_with_a_column_that_must_be_filled_is_not_written() {
    let home = home("hermes-home");
    change(&home, "DROP TRIGGER IF EXISTS x; CREATE TABLE m2 AS SELECT * FROM messages; DROP TABLE messages;
                   CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, role TEXT NOT NULL,
                   content TEXT, timestamp REAL NOT NULL, fate TEXT NOT NULL);");
    let refused = write(home.path(), &sent("signal", "+15551234567", None));
    assert!(matches!(refused, Err(MirrorError::NotUnderstood(_))), "{refused:?}");
    assert_eq!(ask(&home, "SELECT count(*) || '' FROM messages"), ["0"]);
}

#[test]
fn a_home_without_a_database_gets_none() {
    let home = tempfile::tempdir().unwrap();
    assert!(matches!(write(home.path(), &sent("signal", "+1", None)), Err(MirrorError::NoSession)));
    assert!(!home.path().join("state.db").exists());
}

#[test]
fn the_writer_waits_for_another_one_and_makes_no_checkpoint() {
    let home = home("hermes-home");
    let file = home.path().join("state.db");
    let mut agent = Connection::open(&file).unwrap();
    agent.pragma_update(None, "journal_mode", "wal").unwrap();
    agent.execute("UPDATE sessions SET message_count = message_count", []).unwrap();
    let before = std::fs::read(&file).unwrap();
    std::thread::scope(|scope| {
        let held = agent.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let writing = scope.spawn(|| write(home.path(), &sent("signal", "+15551234567", None)));
        // Whether the other thread waits already or not yet: it must get through after this.
        held.commit().unwrap();
        writing.join().unwrap().unwrap();
    });
    assert_eq!(std::fs::read(&file).unwrap(), before, "the row is in the log, the file is as it was");
    assert!(ask(&home, NEWEST)[0].contains("|assistant|hello"));
}
