//! The recorded definitions of the reference against ours, and our answers against our own schemas.
//!
//! The recorded answers are compared in `tests/e2e/conversations_golden.rs`.

use super::{Conversations, ToolReply};
use jiff::tz::TimeZone;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

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

#[tokio::test]
async fn what_has_an_owner_of_its_own_is_not_the_readers() {
    let home = home("hermes-home");
    for tool in
        ["events_poll", "events_wait", "messages_send", "permissions_list_open", "permissions_respond", "x"]
    {
        assert!(over(home.path()).call(tool, None).await.is_err(), "{tool}");
    }
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

/// Arguments beyond the reference's, all optional.
const ADDED: [(&str, &[&str]); 7] = [
    ("conversations_list", &["active_since", "include_local"]),
    ("conversation_get", &["include_local"]),
    ("messages_read", &["before", "after", "roles", "full", "include_local"]),
    ("attachments_fetch", &["include_local"]),
    ("events_poll", &["kinds"]),
    ("events_wait", &["kinds"]),
    ("messages_send", &["idempotency_key"]),
];

#[test]
fn the_ten_tools_take_the_recorded_arguments_in_the_recorded_order_and_more_behind_them() {
    let recorded: Value =
        serde_json::from_str(&std::fs::read_to_string(golden().join("tools_list.json")).unwrap()).unwrap();
    let recorded = recorded["tools"].as_array().unwrap();
    let ours = Conversations::tools();
    assert_eq!(ours.len(), recorded.len());
    for (tool, expected) in ours.iter().zip(recorded) {
        let listed: Value = serde_json::from_str(tool.json.get()).unwrap();
        assert_eq!(listed["name"], expected["name"]);
        let mut schema = without_descriptions(&listed["inputSchema"]);
        let properties = schema["properties"].as_object_mut().unwrap();
        let known = expected["inputSchema"]["properties"].as_object().unwrap().len();
        let added: Vec<String> = properties.keys().skip(known).cloned().collect();
        let wanted =
            ADDED.iter().find(|(name, _)| *name == tool.name.as_str()).map_or(&[][..], |(_, names)| names);
        assert_eq!(added, wanted, "{}", tool.name);
        for name in &added {
            assert!(properties[name].get("default").is_some(), "{name} has no default");
            properties.remove(name);
        }
        assert_eq!(schema, expected["inputSchema"], "{}", listed["name"]);
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
            (
                "messages_read",
                json!({"session_key": key, "full": true, "roles": ["user", "tool"], "limit": 1}),
            ),
            ("conversations_list", json!({"include_local": true})),
            ("attachments_fetch", json!({"session_key": key, "message_id": "17"})),
            ("channels_list", json!({})),
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
