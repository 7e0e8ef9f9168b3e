//! What the tools say about homes of other ages and in bad states: newer schemas, a live writer,
//! files that are missing, damaged, locked, replaced, or in a folder that cannot be written.

use super::golden_tests::{answered, called, home, over, result, text};
use super::reader::{ANSWER_LIMIT, Reader};
use super::{Conversations, Platforms};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::path::Path;

const ANA: &str = "agent:main:telegram:dm:7001";
const WEI: &str = "agent:main:telegram:dm:6308981865";
const WEI_SESSION: &str = "20260517_064000_a1b2c3d4";

fn writer(home: &Path) -> Connection {
    Connection::open(home.join("state.db")).unwrap()
}

fn say(writer: &Connection, content: &str) {
    let sql =
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?1, 'user', ?2, 1779009999.5)";
    writer.execute(sql, [WEI_SESSION, content]).unwrap();
}

async fn last_text(conversations: &Conversations) -> String {
    let page = answered(conversations, "messages_read", json!({"session_key": WEI, "limit": 1})).await;
    page["messages"][0]["content"].as_str().unwrap().to_owned()
}

async fn refused(conversations: &Conversations, tool: &str, arguments: Value) -> String {
    let reply = called(conversations, tool, &arguments).await;
    assert!(reply.is_error, "{}", reply.json);
    result(&reply)["structuredContent"]["error"].as_str().unwrap().to_owned()
}

fn ids(page: &Value) -> Vec<&str> {
    page["messages"].as_array().unwrap().iter().map(|message| message["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_newest_schema_is_its_own_index_with_open_sessions_only() {
    let home = home("hermes-home-v30");
    let listed = answered(&over(home.path()), "conversations_list", json!({})).await;
    let line = |key: &str, id: &str, platform: &str, chat_type: &str, names: [&str; 3], at: &str| {
        json!({
            "session_key": key, "session_id": id, "platform": platform, "chat_type": chat_type,
            "display_name": names[0], "chat_name": names[1], "user_name": names[2], "updated_at": at,
        })
    };
    assert_eq!(
        listed,
        json!({"count": 4, "conversations": [
            line(ANA, "s1-1", "telegram", "dm", ["Ana Souza", "Ana Souza", "User 1"], "2026-07-26T23:36:40"),
            // Its origin_json is damaged: the columns stand in, and they know no names.
            line("agent:main:matrix:group:!r1:example.org", "s1-6", "matrix", "group", ["Book club", "", ""], "2026-07-26T22:46:41"),
            // No name of its own: the chat's.
            line("agent:main:slack:channel:C01ABCDEFG", "s1-3", "slack", "channel", ["eng-alerts", "eng-alerts", ""], "2026-07-26T21:56:42"),
            line("agent:main:discord:thread:9001:901", "s1-2", "discord", "thread", ["ops / 部署", "ops / 部署", "User 2"], "2026-07-26T21:41:40"),
        ]})
    );
}

#[tokio::test]
async fn the_newest_schema_has_the_details_in_its_rows() {
    let home = home("hermes-home-v30");
    let conversations = over(home.path());
    let ana = answered(&conversations, "conversation_get", json!({"session_key": ANA})).await;
    assert_eq!(
        ana,
        json!({
            "session_key": ANA, "session_id": "s1-1", "platform": "telegram", "chat_type": "dm",
            "display_name": "Ana Souza", "user_name": "User 1", "chat_name": "Ana Souza", "chat_id": "7001",
            "thread_id": null, "updated_at": "2026-07-26T23:36:40", "created_at": "2026-07-26T21:23:20",
            "input_tokens": 1200, "output_tokens": 340, "total_tokens": 1540,
        })
    );
    let club = json!({"session_key": "agent:main:matrix:group:!r1:example.org"});
    let club = answered(&conversations, "conversation_get", club).await;
    assert_eq!([&club["chat_id"], &club["thread_id"]], [&json!("!r1:example.org"), &json!(null)]);
    let thread = json!({"session_key": "agent:main:discord:thread:9001:901"});
    assert_eq!(answered(&conversations, "conversation_get", thread).await["thread_id"], json!("901"));
    let ended = json!({"session_key": "agent:main:signal:dm:+15550001"});
    assert_eq!(
        refused(&conversations, "conversation_get", ended).await,
        "Conversation not found: agent:main:signal:dm:+15550001"
    );
}

#[tokio::test]
async fn messages_taken_back_summarised_or_hidden_are_not_shown() {
    let home = home("hermes-home-v30");
    let conversations = over(home.path());
    let page = answered(&conversations, "messages_read", json!({"session_key": ANA})).await;
    assert_eq!(ids(&page), ["2", "5", "6", "10"]);
    assert_eq!(page["total_in_session"], json!(4));
    assert_eq!(page["messages"][2]["content"], json!("look at this"));
    let taken_back = json!({"session_key": ANA, "message_id": "7"});
    assert_eq!(refused(&conversations, "attachments_fetch", taken_back).await, "Message not found: 7");

    let thread = json!({"session_key": "agent:main:discord:thread:9001:901", "limit": 2});
    let page = answered(&conversations, "messages_read", thread).await;
    assert_eq!((ids(&page), &page["total_in_session"]), (vec!["69", "70"], &json!(60)));
}

#[tokio::test]
async fn a_damaged_content_is_shown_and_an_inline_image_can_be_fetched() {
    let home = home("hermes-home-v30");
    let conversations = over(home.path());
    let club = json!({"session_key": "agent:main:matrix:group:!r1:example.org"});
    let page = answered(&conversations, "messages_read", club).await;
    assert_eq!(page["messages"][0]["content"], json!("\0json:{broken"));
    let image = json!({"session_key": "agent:main:slack:channel:C01ABCDEFG", "message_id": "72"});
    assert_eq!(
        answered(&conversations, "attachments_fetch", image).await["attachments"],
        json!([{"type": "image", "url": "data:image/png;base64,iVBORw0KGgo="}])
    );
}

#[tokio::test]
async fn channels_of_the_newest_schema_come_from_its_conversations() {
    let home = home("hermes-home-v30");
    let listed = answered(&over(home.path()), "channels_list", json!({})).await;
    let targets: Vec<&str> = listed["channels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|channel| channel["target"].as_str().unwrap())
        .collect();
    assert_eq!(targets, ["telegram:7001", "matrix:!r1:example.org", "slack:C01ABCDEFG", "discord:9001"]);
}

#[tokio::test]
async fn a_column_that_appears_while_the_database_is_open_is_respected_at_once() {
    let home = home("hermes-home");
    let conversations = over(home.path());
    let before = answered(&conversations, "messages_read", json!({"session_key": WEI})).await;
    assert_eq!(ids(&before), ["4", "7", "8", "9", "13"]);
    let writer = writer(home.path());
    writer.execute_batch("ALTER TABLE messages ADD COLUMN active INTEGER NOT NULL DEFAULT 1").unwrap();
    writer.execute_batch("UPDATE messages SET active = 0 WHERE id = 13").unwrap();
    let after = answered(&conversations, "messages_read", json!({"session_key": WEI})).await;
    assert_eq!(ids(&after), ["4", "7", "8", "9"]);
}

#[tokio::test]
async fn what_a_live_writer_commits_is_read_at_once_and_what_it_has_not_committed_is_not() {
    let home = home("hermes-home");
    let writer = writer(home.path());
    let conversations = over(home.path());
    say(&writer, "committed");
    assert_eq!(last_text(&conversations).await, "committed");
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    say(&writer, "not yet");
    assert_eq!(last_text(&conversations).await, "committed");
    writer.execute_batch("COMMIT").unwrap();
    assert_eq!(last_text(&conversations).await, "not yet");
}

#[tokio::test]
async fn a_writer_can_checkpoint_everything_away_while_the_reader_stays_open() {
    let home = home("hermes-home");
    let writer = writer(home.path());
    let conversations = over(home.path());
    say(&writer, "one");
    assert_eq!(last_text(&conversations).await, "one");
    let busy: i64 = writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
    assert_eq!(busy, 0, "a read was left open");
    assert_eq!(last_text(&conversations).await, "one");
}

#[tokio::test]
async fn reading_leaves_every_byte_of_the_database_as_it_was() {
    let home = home("hermes-home");
    let conversations = over(home.path());
    let bytes = || std::fs::read(home.path().join("state.db")).unwrap();
    let before = bytes();
    answered(&conversations, "conversations_list", json!({})).await;
    answered(&conversations, "conversation_get", json!({"session_key": WEI})).await;
    answered(&conversations, "messages_read", json!({"session_key": WEI})).await;
    answered(&conversations, "attachments_fetch", json!({"session_key": WEI, "message_id": "9"})).await;
    // Compared while the reader is open: opening the file here drops its locks, and it reads no more.
    assert!(bytes() == before);
    assert_eq!(std::fs::metadata(home.path().join("state.db-wal")).map_or(0, |wal| wal.len()), 0);
}

#[tokio::test]
async fn tokens_come_from_the_row_where_the_index_counts_none() {
    let home = home("hermes-home");
    let key = json!({"session_key": "agent:main:signal:dm:+15551234567"});
    writer(home.path())
        .execute_batch("UPDATE sessions SET input_tokens = 7, output_tokens = 5 WHERE source = 'signal'")
        .unwrap();
    let detail = answered(&over(home.path()), "conversation_get", key).await;
    assert_eq!(
        [&detail["input_tokens"], &detail["output_tokens"], &detail["total_tokens"]],
        [&json!(7), &json!(5), &json!(12)]
    );
}

#[tokio::test]
async fn a_replaced_database_is_read_from_the_next_call_on() {
    let old = home("hermes-home");
    let new = home("hermes-home");
    let conversations = over(old.path());
    assert!(last_text(&conversations).await.starts_with("第0000行"));
    let writer = writer(new.path());
    say(&writer, "from the new file");
    writer.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(writer);
    for suffix in ["-wal", "-shm"] {
        std::fs::remove_file(old.path().join(format!("state.db{suffix}"))).unwrap();
    }
    std::fs::rename(new.path().join("state.db"), old.path().join("state.db")).unwrap();
    assert_eq!(last_text(&conversations).await, "from the new file");
}

#[tokio::test]
async fn a_missing_database_is_an_error_for_messages_and_appears_when_it_is_there() {
    let home = home("hermes-home");
    let aside = home.path().join("aside");
    std::fs::rename(home.path().join("state.db"), &aside).unwrap();
    let conversations = over(home.path());
    assert_eq!(answered(&conversations, "conversations_list", json!({})).await["count"], json!(6));
    assert_eq!(
        refused(&conversations, "messages_read", json!({"session_key": WEI})).await,
        "Session database unavailable"
    );
    std::fs::rename(&aside, home.path().join("state.db")).unwrap();
    assert!(last_text(&conversations).await.starts_with("第0000行"));
}

#[tokio::test]
async fn a_damaged_database_is_named_and_an_index_file_beside_it_still_serves() {
    let home = home("hermes-home");
    std::fs::write(home.path().join("state.db"), "this is not a database, whatever it says ".repeat(200))
        .unwrap();
    let conversations = over(home.path());
    assert_eq!(answered(&conversations, "conversations_list", json!({})).await["count"], json!(6));
    let error = refused(&conversations, "messages_read", json!({"session_key": WEI})).await;
    assert!(error.starts_with("Session database unavailable: state.db is damaged"), "{error}");
    // The tokens are lost, the conversation is not.
    assert_eq!(
        answered(&conversations, "conversation_get", json!({"session_key": WEI})).await["total_tokens"],
        json!(6100)
    );
}

#[tokio::test]
async fn a_damaged_database_without_an_index_file_is_an_error_and_not_an_empty_list() {
    let home = home("hermes-home-v30");
    std::fs::write(home.path().join("state.db"), "garbage ".repeat(1000)).unwrap();
    for tool in ["conversations_list", "channels_list"] {
        let error = refused(&over(home.path()), tool, json!({})).await;
        assert!(error.contains("state.db is damaged"), "{tool}: {error}");
    }
}

#[tokio::test]
async fn an_empty_database_file_has_no_messages() {
    let home = home("hermes-home");
    std::fs::write(home.path().join("state.db"), "").unwrap();
    let page = answered(&over(home.path()), "messages_read", json!({"session_key": WEI})).await;
    assert_eq!((&page["count"], &page["total_in_session"]), (&json!(0), &json!(0)));
}

#[tokio::test]
async fn a_truncated_database_is_an_error_and_ends_nothing() {
    let home = home("hermes-home");
    let file = std::fs::OpenOptions::new().write(true).open(home.path().join("state.db")).unwrap();
    file.set_len(40_000).unwrap();
    let conversations = over(home.path());
    let reply = called(&conversations, "messages_read", &json!({"session_key": WEI})).await;
    assert!(reply.is_error, "{}", reply.json);
    assert_eq!(answered(&conversations, "conversations_list", json!({})).await["count"], json!(6));
}

#[tokio::test]
async fn a_locked_database_is_told_as_such_and_serves_again_when_the_lock_is_gone() {
    let home = home("hermes-home");
    let writer = writer(home.path());
    writer.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(())).unwrap();
    writer.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let conversations = over(home.path());
    let error = refused(&conversations, "messages_read", json!({"session_key": WEI})).await;
    assert!(error.contains("locked by another process; try again"), "{error}");
    assert_eq!(answered(&conversations, "channels_list", json!({})).await["count"], json!(10));
    writer.execute_batch("COMMIT").unwrap();
    assert!(last_text(&conversations).await.starts_with("第0000行"));
}

/// Stands for a folder that cannot be written, which stops no test run as root: SQLite follows no
/// link in place of its -shm file, so it can neither make nor open one here either.
fn without_shm(home: &Path) {
    std::os::unix::fs::symlink("nowhere", home.join("state.db-shm")).unwrap();
    let error = super::db::open_live(&home.join("state.db")).unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::CannotOpen));
}

#[tokio::test]
async fn a_folder_that_cannot_hold_the_shm_file_is_read_with_its_wal_and_followed() {
    let busy = home("hermes-home");
    let writer = writer(busy.path());
    let copied = |to: &Path| {
        for file in ["state.db", "state.db-wal"] {
            std::fs::write(to.join(file), std::fs::read(busy.path().join(file)).unwrap()).unwrap();
        }
    };
    writer.execute_batch("PRAGMA wal_autocheckpoint = 0").unwrap();
    say(&writer, "only in the wal");
    let frozen = home("hermes-home");
    copied(frozen.path());
    without_shm(frozen.path());
    let conversations = over(frozen.path());
    assert_eq!(last_text(&conversations).await, "only in the wal");
    assert_eq!(last_text(&conversations).await, "only in the wal");
    say(&writer, "a longer wal");
    copied(frozen.path());
    assert_eq!(last_text(&conversations).await, "a longer wal");
}

#[tokio::test]
async fn what_a_crashed_writer_left_half_done_is_not_shown_and_not_undone_in_place() {
    let busy = home("hermes-home");
    let writer = writer(busy.path());
    writer.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(())).unwrap();
    // A tiny cache writes pages of the open transaction into the file: the state after a crash.
    writer.execute_batch("PRAGMA cache_size = 1; BEGIN; UPDATE messages SET content = 'half done'").unwrap();
    let crashed = home("hermes-home");
    for file in ["state.db", "state.db-journal"] {
        std::fs::write(crashed.path().join(file), std::fs::read(busy.path().join(file)).unwrap()).unwrap();
    }
    let raw = std::fs::read(crashed.path().join("state.db")).unwrap();
    assert!(raw.windows(9).any(|bytes| bytes == b"half done"), "nothing half done is in the file");
    assert!(last_text(&over(crashed.path())).await.starts_with("第0000行"));
    assert!(std::fs::read(crashed.path().join("state.db")).unwrap() == raw);
    assert!(crashed.path().join("state.db-journal").exists());
}

#[tokio::test]
async fn odd_files_in_place_of_the_json_files_are_as_good_as_none() {
    let home = home("hermes-home");
    std::fs::remove_file(home.path().join("channel_directory.json")).unwrap();
    std::fs::create_dir(home.path().join("channel_directory.json")).unwrap();
    std::fs::write(home.path().join("sessions/sessions.json"), [0xFF, 0xFE, 0x00]).unwrap();
    let conversations = over(home.path());
    assert_eq!(answered(&conversations, "channels_list", json!({})).await["count"], json!(0));
    assert_eq!(answered(&conversations, "conversations_list", json!({})).await["count"], json!(0));
}

#[tokio::test]
async fn ids_are_names_and_not_numbers() {
    let home = home("hermes-home");
    for id in ["07", " 7", "+7", "7.0", "", "99999999999999999999"] {
        let arguments = json!({"session_key": WEI, "message_id": id});
        assert_eq!(
            refused(&over(home.path()), "attachments_fetch", arguments).await,
            format!("Message not found: {id}")
        );
    }
}

#[tokio::test]
async fn a_message_of_another_conversation_is_not_found() {
    let home = home("hermes-home");
    let arguments = json!({"session_key": WEI, "message_id": "17"});
    assert_eq!(refused(&over(home.path()), "attachments_fetch", arguments).await, "Message not found: 17");
}

#[test]
fn a_home_is_present_by_any_of_its_three_signs() {
    let home = tempfile::tempdir().unwrap();
    let conversations = over(home.path());
    assert!(!conversations.present(Platforms::Absent));
    assert!(conversations.present(Platforms::Configured));
    std::fs::create_dir(home.path().join("sessions")).unwrap();
    assert!(!conversations.present(Platforms::Absent));
    std::fs::write(home.path().join("sessions/sessions.json"), "{}").unwrap();
    assert!(conversations.present(Platforms::Absent));
    std::fs::remove_file(home.path().join("sessions/sessions.json")).unwrap();
    std::fs::write(home.path().join("state.db"), "").unwrap();
    assert!(conversations.present(Platforms::Absent));
}

#[tokio::test]
async fn calls_at_the_same_time_each_get_their_own_answer() {
    let home = home("hermes-home");
    let conversations = over(home.path());
    let limits: Vec<u64> = (1..=40).collect();
    let key = "agent:main:slack:channel:C0B0QV5434G:U02ABCDEF";
    let calls = limits
        .iter()
        .map(|limit| answered(&conversations, "messages_read", json!({"session_key": key, "limit": limit})));
    let pages = futures_util::future::join_all(calls).await;
    let counts: Vec<u64> = pages.iter().map(|page| page["count"].as_u64().unwrap()).collect();
    assert_eq!(counts, limits);
}

#[tokio::test]
async fn a_reader_that_ended_is_started_again_by_the_next_call() {
    let home = home("hermes-home");
    let conversations = over(home.path());
    let (reader, queue) = Reader::stuck();
    drop(queue);
    *conversations.shared.reader.lock().unwrap() = Some(reader);
    assert_eq!(answered(&conversations, "conversations_list", json!({})).await["count"], json!(6));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_hangs_costs_its_callers_a_bounded_time_and_refuses_more_than_it_can_hold() {
    let home = home("hermes-home");
    let conversations = over(home.path());
    let (reader, _queue) = Reader::stuck();
    *conversations.shared.reader.lock().unwrap() = Some(reader);
    let arguments = json!({});
    let first = called(&conversations, "conversations_list", &arguments);
    let second = called(&conversations, "conversations_list", &arguments);
    let before = tokio::time::Instant::now();
    let (late, crowded) = tokio::join!(first, second);
    assert_eq!(before.elapsed().as_secs(), ANSWER_LIMIT.as_secs());
    assert!(text(&late).contains("did not answer within 30 s"), "{}", late.json);
    assert!(text(&crowded).contains("already waiting"), "{}", crowded.json);
}
