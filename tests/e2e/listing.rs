//! What clients see listed: all pages, all good items, honest names, real changes.

use crate::world;
use hermes_tests::script::Paging;
use hermes_tests::{Script, holds_for};
use serde_json::{Value, json};
use std::time::Duration;

fn echo_tool(name: &Value) -> Value {
    json!({"name": name, "description": "d", "inputSchema": {"type": "object", "properties": {}}})
}

/// Tools of every page are listed, however the last page says that it is the last.
#[test]
fn all_pages_are_listed() {
    for last in [None, Some(Value::Null), Some(json!(0)), Some(json!({}))] {
        let paging = Paging { size: 10, last: last.clone(), repeat: false };
        let w = world().server(
            "w",
            Script::new().with(|s| {
                s.extra_tools = 15;
                s.paging = Some(paging);
            }),
        );
        let _daemon = w.start();
        let mut client = w.client(&["w"]);
        assert!(client.tool_names().contains(&"mcp_w_extra_0014".to_owned()), "{last:?}");
    }
}

/// A cursor that repeats ends the walk instead of walking for ever.
#[test]
fn a_repeated_cursor_ends_the_walk() {
    for paging in [
        Paging { size: 100, last: None, repeat: true },
        Paging { size: 100, last: Some(json!("")), repeat: false },
    ] {
        let w = world().server("w", Script::new().with(|s| s.paging = Some(paging)));
        let _daemon = w.start();
        let mut client = w.client(&["w"]);
        let names = client.tool_names();
        assert_eq!(names.iter().filter(|n| *n == "mcp_w_echo").count(), 1);
        assert!(w.journal("w").received("tools/list").len() < 10);
    }
}

/// One tool that makes no sense costs itself, and status says why.
#[test]
fn a_bad_item_spoils_nothing_else() {
    let tools = vec![
        echo_tool(&json!("echo")),
        json!({"name": "any", "inputSchema": {"anyOf": [{"type": "object"}]}}),
        json!({"name": "none"}),
        echo_tool(&json!(5)),
        json!("just a string"),
        json!({"description": "nameless"}),
        echo_tool(&json!("last")),
    ];
    let w = world().server("w", Script::new().with(|s| s.tools = Some(tools)));
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let names = client.tool_names();
    for name in ["mcp_w_echo", "mcp_w_any", "mcp_w_none", "mcp_w_last"] {
        assert!(names.contains(&name.to_owned()), "{name} in {names:?}");
    }
    for tool in client.tools() {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
    }
    assert!(w.status("w")["dropped_items"].as_u64() >= Some(3), "{}", w.status("w"));
}

/// Three thousand tools are three thousand tools.
#[test]
fn a_huge_catalogue_is_listed_whole() {
    let w = world().server("w", Script::new().with(|s| s.extra_tools = 3000));
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    assert_eq!(client.tool_names().iter().filter(|n| n.contains("extra_")).count(), 3000);
    assert_eq!(client.text("mcp_w_extra_2999", &json!({"text": "x"})), "extra_2999");
}

/// A new tool is announced to every client, whether the server tells before or after the change.
#[test]
fn a_new_tool_is_announced() {
    for (name, order) in [("fresh", "change_first"), ("newer", "notice_first")] {
        let w = world().server("w", Script::new().with(|s| s.capabilities = Some(json!({"tools": {}}))));
        let _daemon = w.start();
        let (mut client, mut other) = (w.client(&["w"]), w.client(&["w"]));
        client.drain();
        other.drain();
        client.call("mcp_w_add_tool", &json!({"name": name, "after_ms": 200, "order": order}));
        other.wait_method("notifications/tools/list_changed");
        client.wait_tool(&format!("mcp_w_{name}"));
        assert_eq!(client.text(&format!("mcp_w_{name}"), &json!({})), name);
    }
}

/// A notice without a change is not passed on.
#[test]
fn a_notice_without_a_change_stays_silent() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    client.drain();
    client.call("mcp_w_notify", &json!({"method": "notifications/tools/list_changed"}));
    assert!(holds_for(Duration::from_secs(2), || client
        .arrived("notifications/tools/list_changed")
        .is_empty()));
}

/// `tools.include` and `tools.exclude` hide tools, and a hidden tool cannot be called.
#[test]
fn hidden_tools_are_neither_listed_nor_callable() {
    let w = world().server_with("w", Script::new(), &["tools: {include: [echo, get]}"]).server_with(
        "v",
        Script::new(),
        &["tools: {exclude: [crash]}"],
    );
    let _daemon = w.start();
    let mut client = w.client(&["w", "v"]);
    let names = client.tool_names();
    let of_w: Vec<_> = names.iter().filter(|n| n.starts_with("mcp_w_")).collect();
    assert_eq!(of_w, ["mcp_w_echo", "mcp_w_get"]);
    assert!(!names.contains(&"mcp_v_crash".to_owned()) && names.contains(&"mcp_v_env".to_owned()));
    for hidden in ["mcp_w_pid", "mcp_v_crash"] {
        let answer = client.request("tools/call", &json!({"name": hidden, "arguments": {}}));
        assert!(answer.get("error").is_some(), "{answer}");
    }
}

/// The list is the same for everybody and each time, byte for byte.
#[test]
fn the_order_of_tools_is_stable() {
    let w = world().server("b", Script::new()).server("a", Script::new().with(|s| s.start_delay_ms = 500));
    let mut lists = Vec::new();
    for _ in 0..2 {
        let mut daemon = w.start();
        let mut client = w.client(&["a", "b"]);
        for _ in 0..2 {
            let id = client.begin("tools/list", &json!({}));
            let raw = client.reply_message(&id, hermes_tests::SOON).value["result"].to_string();
            lists.push(raw);
        }
        drop(client);
        daemon.stop();
    }
    assert!(lists.windows(2).all(|pair| pair[0] == pair[1]));
}

/// Names fit what model APIs accept, and stay different where the raw names differ.
#[test]
fn exposed_names_are_safe_and_unique() {
    let long = "a".repeat(80);
    let names = ["echo", "a.b", "a-b", "a_b", "名前", &long, &format!("{long}x")];
    let tools = names.iter().map(|n| echo_tool(&json!(n))).collect();
    let w = world().server("w", Script::new().with(|s| s.tools = Some(tools)));
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let mut exposed = client.tool_names();
    assert_eq!(exposed.len(), names.len());
    for name in &exposed {
        assert!(name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{name}");
        client.call(name, &json!({}));
    }
    exposed.sort();
    exposed.dedup();
    assert_eq!(exposed.len(), names.len());
}

/// A server without prompts or resources is no broken server, whatever it declares.
#[test]
fn optional_lists_may_be_missing() {
    let capabilities = json!({"tools": {}, "prompts": {}, "resources": {}});
    let w = world().server("w", Script::new().with(|s| s.capabilities = Some(capabilities)));
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "fine"})), "fine");
    assert_eq!(client.request("prompts/list", &json!({}))["result"]["prompts"], json!([]));
}
