//! Servers that bend the protocol: what they get wrong costs what it touches, and nothing else.

use crate::world;
use hermes_tests::script::Ping;
use hermes_tests::{SOON, Script, holds_for, wait_for};
use serde_json::{Value, json};
use std::time::Duration;

/// An error with a null id is the answer of the only open request; with two open ones nobody knows whose it is.
#[test]
fn an_error_with_a_null_id_ends_the_only_open_request() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let nameless = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"cannot read it"}}"#;
    let params = json!({"name": "mcp_w_reply", "arguments": {"lines": [nameless]}});
    let answer = client.request("tools/call", &params);
    assert_eq!(answer["error"], json!({"code": -32700, "message": "cannot read it"}), "{answer}");
    let open = client.begin_call("mcp_w_sleep", &json!({"ms": 600_000}));
    wait_for("it is at the server", SOON, || {
        w.journal("w").received("tools/call").iter().any(|m| m["params"]["name"] == "sleep")
    });
    let own = r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"mine"}]}}"#;
    assert_eq!(client.text("mcp_w_reply", &json!({"lines": [nameless, own]})), "mine");
    assert_eq!(client.maybe_reply(&open, Duration::ZERO), None, "the other one is still open");
    client
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": open}}));
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "on"})), "on");
}

/// A server with resources that knows no templates, or with neither, keeps its resources and tools.
#[test]
fn a_list_method_that_does_not_exist_is_an_empty_list() {
    let resources = json!({"resources": [{"uri": "n://1", "name": "1"}]});
    let half = Script::new().with(|s| {
        s.capabilities = Some(json!({"tools": {}, "resources": {}}));
        s.results.insert("resources/list".to_owned(), resources.clone());
    });
    let w = world().server("half", half).server("tools", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["half", "tools"]);
    wait_for("its resources are listed", SOON, || {
        client.request("resources/list", &json!({}))["result"] == resources
    });
    let templates = client.request("resources/templates/list", &json!({}))["result"].clone();
    assert_eq!(templates, json!({"resourceTemplates": []}));
    assert!(
        w.journal("tools").received("resources/list").is_empty(),
        "what is not declared is not asked for"
    );
    for server in ["half", "tools"] {
        assert_eq!(w.phase(server), "ready");
        assert_eq!(w.journal(server).starts(), 1);
    }
}

/// A server that answers `ping` with an error, or not at all, is asked, and is not restarted for it.
#[test]
fn a_ping_without_an_answer_restarts_nobody() {
    for ping in [Ping::Error, Ping::Silent] {
        let w = world().server_with("w", Script::new().with(|s| s.ping = ping), &["timeout: 1"]);
        let _daemon = w.start();
        let mut client = w.client(&["w"]);
        let pid = w.wait_server_pid("w");
        let before = w.journal("w").received("tools/list").len();
        // A call that runs out of time makes the daemon look whether the server lives.
        assert_eq!(client.call("mcp_w_sleep", &json!({"ms": 600_000}))["isError"], true);
        wait_for("it is pinged", SOON, || !w.journal("w").received("ping").is_empty());
        if ping == Ping::Silent {
            wait_for("it is asked something else", SOON, || {
                w.journal("w").received("tools/list").len() > before
            });
        }
        assert!(holds_for(Duration::from_secs(1), || w.server_pid("w") == Some(pid)), "{ping:?}");
        assert_eq!(client.text("mcp_w_echo", &json!({"text": "on"})), "on");
        assert_eq!((w.phase("w"), w.journal("w").starts()), ("ready".to_owned(), 1));
    }
}

/// The text of a call that ran out of time.
fn timed_out(result: &Value) -> String {
    assert_eq!(result["isError"], true, "{result}");
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

/// A time limit that fires is named with its value: silence is one, the absolute limit another.
#[test]
fn time_limits_are_told_apart() {
    let w = world().server_with("w", Script::new(), &["timeout: 1"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let silent = client.call("mcp_w_sleep", &json!({"ms": 600_000}));
    assert_eq!(silent["_meta"]["kind"], "timeout_idle");
    let text = timed_out(&silent);
    assert!(text.contains("no answer and no progress for 1s"), "{text}");
    // Progress for ever: ten times the limit is the end.
    let endless = client.call("mcp_w_progress", &json!({"n": 1_000_000, "every_ms": 200}));
    assert_eq!(endless["_meta"]["kind"], "timeout_cap");
    let text = timed_out(&endless);
    assert!(text.contains("absolute limit of 10s") && text.contains("waited 10."), "{text}");
    wait_for("the server is told of both", SOON, || {
        w.journal("w").received("notifications/cancelled").len() == 2
    });
}

/// A schema ten thousand levels deep costs its own tool at most.
#[test]
fn an_endless_schema_costs_its_own_tool_at_most() {
    const LEVELS: usize = 10_000;
    let head = r#"{"type":"object","properties":{"a":"#.repeat(LEVELS);
    let deep = format!("{head}{{}}{}", "}}".repeat(LEVELS));
    let echo = r#"{"name":"echo","inputSchema":{"type":"object","properties":{}}}"#;
    let tools = format!(r#"{{"tools":[{{"name":"deep","inputSchema":{deep}}},{echo}]}}"#);
    let script = Script::new().with(|s| drop(s.raw_results.insert("tools/list".to_owned(), tools)));
    let w = world().server("w", script);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    assert_eq!(client.tool_names(), ["mcp_w_echo"]);
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "on"})), "on");
    let status = w.status("w");
    assert!(status["notes"].to_string().contains("`deep` dropped, nested deeper"), "{status}");
    assert_eq!((w.phase("w"), w.journal("w").starts()), ("ready".to_owned(), 1));
}

/// An answer that no client could read fails its own call and reaches nobody.
#[test]
fn an_endless_answer_fails_its_own_call() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let result =
        |levels: usize| format!(r#"{{"content":[],"structuredContent":{{"a":{}}}}}"#, nested(levels));
    let answer = client
        .request("tools/call", &json!({"name": "mcp_w_answer", "arguments": {"result": result(100_000)}}));
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("nested deeper than"), "{answer}");
    let deep = client.call("mcp_w_answer", &json!({"result": result(100)}));
    assert!(deep["structuredContent"]["a"].is_array());
}
