//! The recorded answers of the reference against ours, file by file.
//!
//! Deliberate differences: text is not `\u`-escaped, `structuredContent` is the object itself,
//! application errors set `isError`, wrong arguments have a text of our own, and the five tools of
//! a later issue refuse.

use super::{Conversations, ToolReply};
use jiff::tz::TimeZone;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const BUILT: [&str; 5] =
    ["conversations_list", "conversation_get", "messages_read", "attachments_fetch", "channels_list"];

pub(super) fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden")
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for item in std::fs::read_dir(from).unwrap() {
        let item = item.unwrap();
        let target = to.join(item.file_name());
        if item.file_type().unwrap().is_dir() {
            copy_tree(&item.path(), &target);
        } else {
            std::fs::write(target, std::fs::read(item.path()).unwrap()).unwrap();
        }
    }
}

/// A copy of a sample home that may be written.
pub(super) fn home(name: &str) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    copy_tree(&golden().join(name), home.path());
    home
}

pub(super) fn over(home: &Path) -> Conversations {
    Conversations::open_in_zone(home, TimeZone::UTC)
}

pub(super) async fn called(conversations: &Conversations, tool: &str, arguments: &Value) -> ToolReply {
    let arguments = RawValue::from_string(arguments.to_string()).unwrap();
    conversations.call(tool, Some(&arguments)).await.unwrap()
}

pub(super) fn result(reply: &ToolReply) -> Value {
    serde_json::from_str(reply.json.get()).unwrap()
}

pub(super) fn text(reply: &ToolReply) -> String {
    result(reply)["content"][0]["text"].as_str().unwrap().to_owned()
}

/// The object of a call that succeeds.
pub(super) async fn answered(conversations: &Conversations, tool: &str, arguments: Value) -> Value {
    let reply = called(conversations, tool, &arguments).await;
    assert!(!reply.is_error, "{tool} {arguments}: {}", reply.json);
    result(&reply)["structuredContent"].clone()
}

/// Compares one reply with the recorded case.
fn compare(file: &str, case: &Value, reply: &ToolReply) {
    let recorded = case["result_text"].as_str().unwrap();
    let ours = text(reply);
    if case["is_error"] == json!(true) {
        assert!(reply.is_error, "{file}");
        // The recorded text names each wrong argument on a line of its own.
        let wrong: Vec<&str> = recorded
            .lines()
            .filter(|line| line.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
            .collect();
        assert!(!wrong.is_empty(), "{file}: no argument named in {recorded}");
        for name in wrong {
            assert!(ours.contains(&format!("`{name}`")), "{file}: {name} not named in {ours}");
        }
        return;
    }
    let expected: Value = serde_json::from_str(recorded).unwrap();
    let parsed: Value = serde_json::from_str(&ours).unwrap();
    assert_eq!(parsed, expected, "{file}");
    assert_eq!(reply.is_error, expected.get("error").is_some(), "{file}");
    assert_eq!(result(reply)["structuredContent"], expected, "{file}");
    if !reply.is_error {
        // Same order of members, same indent, same numbers; only the escapes are gone.
        assert_eq!(ours, serde_json::to_string_pretty(&expected).unwrap(), "{file}");
    }
}

#[tokio::test]
async fn every_recorded_answer_of_the_five_built_tools_is_met() {
    let full = home("hermes-home");
    let without_directory = home("hermes-home");
    std::fs::remove_file(without_directory.path().join("channel_directory.json")).unwrap();
    let empty = tempfile::tempdir().unwrap();
    let homes = [("nodir_", &without_directory), ("empty_", &empty), ("send_", &full), ("", &full)];
    let mut compared: BTreeMap<String, usize> = BTreeMap::new();
    for item in std::fs::read_dir(golden()).unwrap() {
        let path = item.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !file.ends_with(".json") || file == "tools_list.json" {
            continue;
        }
        let case: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let tool = case["tool"].as_str().unwrap();
        let (_, home) = homes.iter().find(|(prefix, _)| file.starts_with(prefix)).unwrap();
        let conversations = over(home.path());
        if tool == "no_such_tool" {
            assert_eq!(conversations.call(tool, None).await.unwrap_err().name, tool);
            continue;
        }
        let reply = called(&conversations, tool, &case["arguments"]).await;
        if BUILT.contains(&tool) || case["is_error"] == json!(true) {
            compare(&file, &case, &reply);
        } else {
            assert!(reply.is_error, "{file}");
        }
        *compared.entry(tool.to_owned()).or_default() += 1;
    }
    for tool in BUILT {
        assert!(compared[tool] >= 4, "{tool}: {compared:?}");
    }
}

#[tokio::test]
async fn tools_of_a_later_issue_say_so_and_what_to_do() {
    let home = home("hermes-home");
    let calls = [
        ("events_poll", json!({})),
        ("events_wait", json!({"timeout_ms": "5"})),
        ("messages_send", json!({"target": "telegram:1", "message": "hi"})),
        ("permissions_list_open", json!({})),
        ("permissions_respond", json!({"id": "1", "decision": "deny"})),
    ];
    for (tool, arguments) in calls {
        let reply = called(&over(home.path()), tool, &arguments).await;
        assert!(reply.is_error, "{tool}");
        assert!(text(&reply).contains(&format!("{tool} is not available in this build")), "{}", reply.json);
    }
    let nothing = called(&over(home.path()), "messages_send", &json!({"target": "", "message": "hi"})).await;
    assert_eq!(
        result(&nothing)["structuredContent"],
        json!({"error": "Both target and message are required"})
    );
    let odd =
        called(&over(home.path()), "permissions_respond", &json!({"id": "1", "decision": "maybe"})).await;
    assert_eq!(
        result(&odd)["structuredContent"],
        json!({"error": "Invalid decision: maybe. Must be allow-once, allow-always, or deny"})
    );
}

/// Leaves out what the reference does not fix: the words.
fn without_descriptions(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            let kept = members.iter().filter(|(name, value)| *name != "description" || !value.is_string());
            Value::Object(kept.map(|(name, value)| (name.clone(), without_descriptions(value))).collect())
        }
        Value::Array(items) => items.iter().map(without_descriptions).collect(),
        other => other.clone(),
    }
}

#[test]
fn the_ten_tools_take_the_recorded_arguments_in_the_recorded_order() {
    let recorded: Value =
        serde_json::from_str(&std::fs::read_to_string(golden().join("tools_list.json")).unwrap()).unwrap();
    let recorded = recorded["tools"].as_array().unwrap();
    let ours = Conversations::tools();
    assert_eq!(ours.len(), recorded.len());
    for (tool, expected) in ours.iter().zip(recorded) {
        let listed: Value = serde_json::from_str(tool.json.get()).unwrap();
        assert_eq!(listed["name"], expected["name"]);
        assert_eq!(
            without_descriptions(&listed["inputSchema"]),
            expected["inputSchema"],
            "{}",
            listed["name"]
        );
        let order: Vec<&String> = listed.as_object().unwrap().keys().collect();
        assert_eq!(order, ["name", "title", "description", "inputSchema", "outputSchema", "annotations"]);
    }
}

#[test]
fn definitions_have_the_same_bytes_every_time_and_say_which_tools_only_read() {
    let (first, second) = (Conversations::tools(), Conversations::tools());
    let acting: Vec<&str> = first
        .iter()
        .filter(|tool| tool.effect == super::Effect::Acts)
        .map(|tool| tool.name.as_str())
        .collect();
    assert_eq!(acting, ["messages_send", "permissions_respond"]);
    for (a, b) in first.iter().zip(&second) {
        assert_eq!(a.json.get(), b.json.get());
        let listed: Value = serde_json::from_str(a.json.get()).unwrap();
        assert_eq!(listed["annotations"]["readOnlyHint"], json!(a.effect == super::Effect::Reads));
    }
}

#[tokio::test]
async fn answers_and_refusals_fit_the_output_schemas() {
    let schemas: Map<String, Value> = Conversations::tools()
        .iter()
        .map(|tool| {
            let listed: Value = serde_json::from_str(tool.json.get()).unwrap();
            (tool.name.to_string(), listed["outputSchema"].clone())
        })
        .collect();
    let key = "agent:main:discord:channel:112233445566778899:998877";
    for name in ["hermes-home", "hermes-home-v30"] {
        let home = home(name);
        let conversations = over(home.path());
        let calls = [
            ("conversations_list", json!({})),
            ("conversation_get", json!({"session_key": key})),
            ("messages_read", json!({"session_key": key})),
            ("attachments_fetch", json!({"session_key": key, "message_id": "17"})),
            ("channels_list", json!({})),
            ("permissions_list_open", json!({})),
        ];
        for (tool, arguments) in calls {
            let reply = called(&conversations, tool, &arguments).await;
            let validator = jsonschema::validator_for(&schemas[tool]).unwrap();
            let structured = &result(&reply)["structuredContent"];
            assert!(validator.is_valid(structured), "{name} {tool}: {structured}");
            assert!(!validator.is_valid(&json!({})), "{tool}: the schema says nothing");
        }
    }
}
