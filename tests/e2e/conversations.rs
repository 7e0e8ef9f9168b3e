//! The ten conversation tools through the real shim, over a recorded home.

use crate::world;
use hermes_tests::{Shim, World};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

const READ: [&str; 5] =
    ["conversations_list", "conversation_get", "messages_read", "attachments_fetch", "channels_list"];
const LATER: [&str; 5] =
    ["events_poll", "events_wait", "messages_send", "permissions_list_open", "permissions_respond"];

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Runs `tests/foreign/statedb.py VERB HOME...` and gives what it printed.
#[track_caller]
pub(crate) fn foreign(w: &World, args: &[&str]) -> String {
    let output = foreign_command(w, args).output().expect("python3 is needed for these tests");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn foreign_command(w: &World, args: &[&str]) -> Command {
    let mut command = Command::new("python3");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("foreign/statedb.py");
    command.arg(script).arg(args[0]).arg(w.home()).args(&args[1..]).current_dir(w.path());
    command
}

pub(crate) fn recorded() -> World {
    let w = world().env("TZ", "UTC");
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/hermes-home"), &w.home());
    w
}

pub(crate) fn client(w: &World) -> Shim {
    let mut shim = w.shim();
    shim.initialize();
    shim
}

/// All ten are listed where a session store exists, with schemas, and reading ones say so.
#[test]
fn the_ten_tools_are_listed() {
    let w = recorded();
    let _daemon = w.start();
    let tools = client(&w).tools();
    for name in READ.iter().chain(&LATER) {
        let tool = tools.iter().find(|t| t["name"] == *name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(tool["inputSchema"]["type"], "object");
        if READ.contains(name) {
            assert_eq!(tool["annotations"]["readOnlyHint"], true, "{name}");
        }
    }
}

/// The reading tools answer with text and the same object beside it.
#[test]
fn conversations_and_messages_are_read() {
    let w = recorded();
    let _daemon = w.start();
    let mut shim = client(&w);
    let list = shim.call("conversations_list", &json!({"limit": 50}));
    let text: Value = serde_json::from_str(list["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(list["structuredContent"], text);
    let conversations = text["conversations"].as_array().unwrap();
    assert!(!conversations.is_empty());
    let key = &conversations[0]["session_key"];
    let messages = shim.call("messages_read", &json!({"session_key": key}));
    assert_ne!(messages["isError"], true, "{messages}");
    assert!(messages["structuredContent"]["messages"].is_array());
    assert_ne!(shim.call("conversation_get", &json!({"session_key": key}))["isError"], true);
    assert_ne!(shim.call("channels_list", &json!({}))["isError"], true);
}

/// What cannot be found is an error for the model to act on.
#[test]
fn an_unknown_conversation_is_an_error_result() {
    let w = recorded();
    let _daemon = w.start();
    let result = client(&w).call("conversation_get", &json!({"session_key": "no:such:key"}));
    assert_eq!(result["isError"], true, "{result}");
}

/// Reading changes nothing in the store of Hermes Agent.
#[test]
fn reading_leaves_the_store_as_it_was() {
    let w = recorded();
    let before = fs::read(w.home().join("state.db")).unwrap();
    let _daemon = w.start();
    let mut shim = client(&w);
    shim.call("conversations_list", &json!({}));
    assert_eq!(fs::read(w.home().join("state.db")).unwrap(), before);
}

/// Without a session store they are not offered, unless a client asks for exactly them.
#[test]
fn they_are_offered_where_there_is_something_to_read() {
    let w = world();
    let _daemon = w.start();
    assert!(!client(&w).tool_names().iter().any(|n| n == "conversations_list"));
    let mut only = w.shim_with(&["mcp", "serve", "--only", "conversations"]);
    only.initialize();
    assert_eq!(only.tool_names().len(), 10);
}

/// `--only` narrows what a client sees.
#[test]
fn only_narrows_the_offer() {
    let w = recorded().server("w", hermes_tests::Script::new());
    let _daemon = w.start();
    let mut all = w.client(&["w"]);
    assert!(all.tool_names().iter().any(|n| n == "conversations_list"));
    let mut only = w.shim_with(&["mcp", "serve", "--only", "servers"]);
    only.initialize();
    let names = only.tool_names();
    assert!(names.iter().all(|n| n.starts_with("mcp_")) && !names.is_empty(), "{names:?}");
    let mut only = w.shim_with(&["mcp", "serve", "--only", "conversations"]);
    only.initialize();
    assert_eq!(only.tool_names().len(), 10);
    let answer = only.request("tools/call", &json!({"name": "mcp_w_echo", "arguments": {"text": "x"}}));
    assert!(answer.get("error").is_some(), "{answer}");
}
