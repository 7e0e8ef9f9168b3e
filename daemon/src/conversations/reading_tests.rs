//! What the reading tools answer beyond the reference: pages, roles, whole texts, single sessions, times.

use super::golden_tests::{answered, called, home, over, result, text};
use rusqlite::Connection;
use serde_json::{Value, json};

const WEI: &str = "agent:main:telegram:dm:6308981865";
const ANA: &str = "agent:main:telegram:dm:7001";

fn ids(page: &Value) -> Vec<&str> {
    page["messages"].as_array().unwrap().iter().map(|message| message["id"].as_str().unwrap()).collect()
}

fn keys(list: &Value) -> Vec<&str> {
    let conversations = list["conversations"].as_array().unwrap();
    conversations.iter().map(|conversation| conversation["session_key"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn pages_are_turned_backwards_and_forwards_without_a_gap() {
    for (name, key) in [("hermes-home", WEI), ("hermes-home-v30", ANA)] {
        let home = home(name);
        let conversations = over(home.path());
        let all = answered(&conversations, "messages_read", json!({"session_key": key})).await;
        let all: Vec<String> = ids(&all).into_iter().map(str::to_owned).collect();
        let mut back: Vec<String> = Vec::new();
        let mut before = Value::Null;
        loop {
            let arguments =
                json!({"session_key": key, "limit": 2, "before": before, "full": before.is_null()});
            let page = answered(&conversations, "messages_read", arguments).await;
            let found = ids(&page);
            before = json!(found[0]);
            back.splice(0..0, found.into_iter().map(str::to_owned));
            assert_eq!(page["total_in_session"], json!(all.len()));
            if page["more"] == json!(false) {
                break;
            }
        }
        assert_eq!(back, all);
        let mut forth: Vec<String> = Vec::new();
        let mut after = json!(0);
        loop {
            let arguments = json!({"session_key": key, "limit": "2", "after": after});
            let page = answered(&conversations, "messages_read", arguments).await;
            forth.extend(ids(&page).into_iter().map(str::to_owned));
            after = json!(forth.last().unwrap());
            if page["more"] == json!(false) {
                break;
            }
        }
        assert_eq!(forth, all);
    }
}

#[tokio::test]
async fn a_call_that_asks_for_no_more_than_the_reference_knows_is_answered_with_its_members() {
    let home = home("hermes-home");
    let page = answered(&over(home.path()), "messages_read", json!({"session_key": WEI, "limit": 2})).await;
    let members: Vec<&String> = page.as_object().unwrap().keys().collect();
    assert_eq!(members, ["session_key", "count", "total_in_session", "messages"]);
}

#[tokio::test]
async fn a_cut_text_says_so_and_comes_whole_on_demand() {
    let home = home("hermes-home");
    let conversations = over(home.path());
    let cut = answered(&conversations, "messages_read", json!({"session_key": WEI, "limit": 1})).await;
    let cut = &cut["messages"][0];
    assert_eq!((cut["content"].as_str().unwrap().chars().count(), &cut["truncated"]), (2000, &json!(true)));
    let whole = json!({"session_key": WEI, "limit": 1, "full": "yes"});
    let whole = answered(&conversations, "messages_read", whole).await;
    let whole = &whole["messages"][0];
    assert!(whole["content"].as_str().unwrap().chars().count() > 2000);
    assert!(whole["content"].as_str().unwrap().starts_with(cut["content"].as_str().unwrap()));
    assert_eq!(whole.get("truncated"), None);
}

#[tokio::test]
async fn roles_narrow_and_widen_what_is_read() {
    let home = home("hermes-home");
    let conversations = over(home.path());
    let roles = |roles: Value| {
        let conversations = conversations.clone();
        async move {
            let page =
                answered(&conversations, "messages_read", json!({"session_key": WEI, "roles": roles})).await;
            let messages = page["messages"].as_array().unwrap().clone();
            messages.iter().map(|message| message["role"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        }
    };
    assert!(roles(json!(["user"])).await.iter().all(|role| role == "user"));
    let both = roles(json!(null)).await;
    assert!(both.contains(&"user".to_owned()) && both.contains(&"assistant".to_owned()));
    assert_eq!(roles(json!("assistant,user")).await, both);
    let tools = roles(json!(["tool", "system"])).await;
    assert!(!tools.is_empty() && tools.iter().all(|role| role == "tool" || role == "system"), "{tools:?}");
    let odd = called(&conversations, "messages_read", &json!({"session_key": WEI, "roles": ["robot"]})).await;
    assert!(
        text(&odd).contains("`roles` takes user, assistant, tool, system, got \"robot\""),
        "{}",
        odd.json
    );
}

#[tokio::test]
async fn messages_of_pictures_only_are_listed_with_whole_texts() {
    let home = home("hermes-home");
    let writer = Connection::open(home.path().join("state.db")).unwrap();
    let sql = "INSERT INTO messages (session_id, role, content, timestamp) VALUES
         ('20260517_064000_a1b2c3d4', 'user', ?1, 1779009999.5)";
    writer
        .execute(sql, ["\0json:[{\"type\":\"image_url\",\"image_url\":{\"url\":\"https://a/1\"}}]"])
        .unwrap();
    let conversations = over(home.path());
    let last = |full: bool| json!({"session_key": WEI, "limit": 1, "full": full});
    let spoken = answered(&conversations, "messages_read", last(false)).await;
    assert_ne!(spoken["messages"][0]["content"], json!(""));
    let full = answered(&conversations, "messages_read", last(true)).await;
    let picture = &full["messages"][0];
    assert_eq!((&picture["content"], &picture["attachments"]), (&json!(""), &json!(1)));
    // The number of messages does not depend on how they are asked for.
    assert_eq!(spoken["total_in_session"], full["total_in_session"]);
    let fetch = json!({"session_key": WEI, "message_id": picture["id"]});
    assert_eq!(answered(&conversations, "attachments_fetch", fetch).await["count"], json!(1));
}

#[tokio::test]
async fn single_sessions_are_listed_and_read_where_they_are_asked_for() {
    for (name, expected) in [
        ("hermes-home", vec!["session:20260517_074000_c11c11", "session:20260516_090000_aaaa0000"]),
        ("hermes-home-v30", vec!["session:s1-5", "session:s1-4", "session:s1-0"]),
    ] {
        let home = home(name);
        let conversations = over(home.path());
        let plain = answered(&conversations, "conversations_list", json!({})).await;
        let all = answered(&conversations, "conversations_list", json!({"include_local": true})).await;
        let mut single: Vec<&str> =
            keys(&all).into_iter().filter(|key| key.starts_with("session:")).collect();
        single.sort_by_key(|key| expected.iter().position(|known| known == key));
        assert_eq!(single, expected);
        assert_eq!(keys(&all).len(), keys(&plain).len() + single.len());
        let times: Vec<&str> = all["conversations"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line["updated_at"].as_str().unwrap())
            .collect();
        assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
        let key = expected[0];
        let cli =
            answered(&conversations, "conversations_list", json!({"include_local": true, "platform": "cli"}))
                .await;
        assert_eq!(keys(&cli), [key]);
        for tool in ["conversation_get", "messages_read"] {
            let read = json!({"session_key": key, "include_local": true});
            assert_eq!(answered(&conversations, tool, read).await["session_key"], json!(key));
            let refused = called(&conversations, tool, &json!({"session_key": key})).await;
            assert!(text(&refused).contains("`include_local`: true"), "{}", refused.json);
            let missing = json!({"session_key": "session:nobody", "include_local": true});
            let missing = called(&conversations, tool, &missing).await;
            assert_eq!(
                result(&missing)["structuredContent"]["error"],
                json!("Conversation not found: session:nobody")
            );
        }
        let messages = json!({"session_key": key, "include_local": true});
        assert!(answered(&conversations, "messages_read", messages).await["count"].as_u64().unwrap() > 0);
    }
}

#[tokio::test]
async fn sessions_that_are_hidden_from_people_are_not_listed_as_single_ones() {
    let home = home("hermes-home-v30");
    let writer = Connection::open(home.path().join("state.db")).unwrap();
    writer.execute_batch("UPDATE sessions SET hidden = 1 WHERE id = 's1-5'").unwrap();
    let conversations = over(home.path());
    let all = answered(&conversations, "conversations_list", json!({"include_local": true})).await;
    assert!(!keys(&all).contains(&"session:s1-5"), "{all}");
    let read = called(
        &conversations,
        "messages_read",
        &json!({"session_key": "session:s1-5", "include_local": true}),
    )
    .await;
    assert!(read.is_error, "{}", read.json);
}

#[tokio::test]
async fn only_conversations_used_since_a_time_are_listed() {
    for name in ["hermes-home", "hermes-home-v30"] {
        let home = home(name);
        let conversations = over(home.path());
        let all = answered(&conversations, "conversations_list", json!({})).await;
        let lines = all["conversations"].as_array().unwrap();
        let border = lines[1]["updated_at"].as_str().unwrap();
        for since in [json!(border), json!(format!("{border}Z"))] {
            let recent = answered(&conversations, "conversations_list", json!({"active_since": since})).await;
            assert_eq!(keys(&recent), keys(&all)[..2]);
        }
        assert_eq!(
            answered(&conversations, "conversations_list", json!({"active_since": 4e9})).await["count"],
            json!(0)
        );
        let none = answered(&conversations, "conversations_list", json!({"active_since": null})).await;
        assert_eq!(none, all);
        let odd = called(&conversations, "conversations_list", &json!({"active_since": "lately"})).await;
        assert!(text(&odd).contains("`active_since` must be a time like"), "{}", odd.json);
    }
}

#[tokio::test]
async fn a_table_without_a_needed_column_is_named_and_the_rest_still_answers() {
    let home = home("hermes-home");
    let writer = Connection::open(home.path().join("state.db")).unwrap();
    writer.execute_batch("ALTER TABLE messages RENAME COLUMN content TO body").unwrap();
    let conversations = over(home.path());
    let refused = called(&conversations, "messages_read", &json!({"session_key": WEI})).await;
    assert!(text(&refused).contains("state.db has no column `messages.content`"), "{}", refused.json);
    assert_eq!(answered(&conversations, "conversations_list", json!({})).await["count"], json!(6));
    writer.execute_batch("ALTER TABLE messages RENAME COLUMN body TO content").unwrap();
    assert!(
        answered(&conversations, "messages_read", json!({"session_key": WEI})).await["count"].as_u64()
            > Some(0)
    );
}

#[tokio::test]
async fn columns_that_only_describe_may_be_missing() {
    let home = home("hermes-home-v30");
    let writer = Connection::open(home.path().join("state.db")).unwrap();
    let sessions = [
        "display_name",
        "origin_json",
        "last_activity_at",
        "ended_at",
        "input_tokens",
        "output_tokens",
        "hidden",
        "title",
        "chat_id",
        "chat_type",
        "thread_id",
    ];
    for column in sessions {
        writer.execute_batch(&format!("ALTER TABLE sessions DROP COLUMN {column}")).unwrap();
    }
    writer.execute_batch("DROP INDEX idx_messages_session; DROP INDEX idx_messages_session_active; DROP INDEX idx_messages_session_id").unwrap();
    for column in ["timestamp", "active", "display_kind"] {
        writer.execute_batch(&format!("ALTER TABLE messages DROP COLUMN {column}")).unwrap();
    }
    let conversations = over(home.path());
    let list = answered(&conversations, "conversations_list", json!({"include_local": true})).await;
    assert!(keys(&list).contains(&ANA), "{list}");
    let page = answered(&conversations, "messages_read", json!({"session_key": ANA})).await;
    assert_eq!(page["messages"][0]["timestamp"], Value::Null);
    assert!(
        answered(&conversations, "conversation_get", json!({"session_key": ANA})).await["total_tokens"]
            == json!(0)
    );
}
