//! The steps of a call: each refuses in its turn, says why, and is switched by its own key.

use crate::world;
use hermes_tests::{SOON, Script, Shim, World, wait_for};
use serde_json::{Value, json};

/// A call that a step refuses or that fails: its `_meta.kind`.
#[track_caller]
fn kind(result: &Value) -> &str {
    assert_eq!(result["isError"], true, "{result}");
    assert!(result["_meta"]["trace_id"].is_string(), "{result}");
    result["_meta"]["kind"].as_str().unwrap_or_else(|| panic!("no kind in {result}"))
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}

fn sent(w: &World, server: &str) -> usize {
    w.journal(server).received("tools/call").len()
}

fn typed() -> Script {
    let echo = json!({"name": "echo", "inputSchema": {"type": "object", "properties": {
        "text": {"type": "string"}, "n": {"type": "integer"}}, "required": ["text"]}});
    let raw = json!({"name": "raw_args", "inputSchema": {"type": "object", "properties": {
        "n": {"type": "integer"}, "flag": {"type": "boolean"}}}});
    let hang =
        json!({"name": "hang", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}}});
    Script::new().with(|s| s.tools = Some(vec![echo, raw, hang]))
}

/// Every step is reached only when all before it let the call pass: breaker, limits, arguments.
#[test]
fn steps_refuse_in_their_order() {
    let w = world().server_with(
        "w",
        typed(),
        &[
            "timeout: 1",
            "breaker: { threshold: 1, cooldown: 600 }",
            "rate_limit: { per_minute: 1, burst: 2 }",
        ],
    );
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    // Takes the first of two tokens, passes all steps, and opens the breaker.
    assert_eq!(kind(&client.call("mcp_w_hang", &json!({}))), "timeout_idle");
    let bad = json!({"n": "many"});
    // Wrong arguments, but the breaker comes first; it takes no token.
    for _ in 0..3 {
        assert_eq!(kind(&client.call("mcp_w_hang", &bad)), "breaker_open");
    }
    w.ctl(["breaker", "reset", "w"]).succeeds();
    // The second token is left, so the arguments are looked at.
    assert_eq!(kind(&client.call("mcp_w_hang", &bad)), "invalid_arguments");
    // Now the limit comes before the arguments.
    let refused = client.call("mcp_w_hang", &bad);
    assert_eq!(kind(&refused), "rate_limit");
    let wait = refused["_meta"]["retry_after_ms"].as_u64().unwrap();
    assert!(wait > 1000 && wait <= 60_000, "{refused}");
    assert!(text(&refused).contains("1 calls a minute, 2 at once"), "{refused}");
    assert_eq!(sent(&w, "w"), 1);
}

/// `rate_limit` holds for each client on its own.
#[test]
fn rate_limits_are_counted_for_each_client() {
    let w = world().server_with("w", Script::new(), &["rate_limit: { per_minute: 1, burst: 1 }"]);
    let _daemon = w.start();
    let (mut one, mut two) = (w.client(&["w"]), w.client(&["w"]));
    assert_eq!(one.text("mcp_w_echo", &json!({"text": "a"})), "a");
    assert_eq!(kind(&one.call("mcp_w_echo", &json!({"text": "b"}))), "rate_limit");
    assert_eq!(two.text("mcp_w_echo", &json!({"text": "c"})), "c");
}

fn profiled(w: &World, profile: &str) -> Shim {
    let mut client = w.shim_with(&["mcp", "serve", "--profile", profile]);
    client.initialize();
    client.wait_tool("mcp_w_echo");
    client
}

/// A day's quota is shared by all clients of a profile and survives a restart of the daemon.
#[test]
fn a_daily_quota_survives_a_restart() {
    let w = world()
        .yaml("hermesd:\n  profiles:\n    tight: { quota: { per_day: 2 } }")
        .server("w", Script::new());
    let mut daemon = w.start();
    assert_eq!(profiled(&w, "tight").text("mcp_w_echo", &json!({"text": "a"})), "a");
    daemon.stop();
    let _daemon = w.start();
    let mut client = profiled(&w, "tight");
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "b"})), "b");
    let refused = client.call("mcp_w_echo", &json!({"text": "c"}));
    assert_eq!(kind(&refused), "quota_day");
    assert!(text(&refused).contains("2 calls a day"), "{refused}");
    assert_eq!(w.client(&["w"]).text("mcp_w_echo", &json!({"text": "other profile"})), "other profile");
}

/// A session's quota ends with the session.
#[test]
fn a_session_quota_ends_with_its_session() {
    let w = world()
        .yaml("hermesd:\n  profiles:\n    short: { quota: { per_session: 1 } }")
        .server("w", Script::new());
    let _daemon = w.start();
    let mut client = profiled(&w, "short");
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "a"})), "a");
    assert_eq!(kind(&client.call("mcp_w_echo", &json!({"text": "b"}))), "quota_session");
    assert_eq!(profiled(&w, "short").text("mcp_w_echo", &json!({"text": "c"})), "c");
}

/// Wrong arguments never reach the server; misspelt ones are mended, everything else keeps its bytes.
#[test]
fn arguments_are_checked_against_the_schema() {
    let w = world().server("w", typed());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let refused = client.call("mcp_w_echo", &json!({"text": 5, "n": {"a": 1}}));
    assert_eq!(kind(&refused), "invalid_arguments");
    assert!(text(&refused).contains("`n`: expected"), "{refused}");
    assert_eq!(refused["_meta"]["delivery"], "not_written");
    assert_eq!(sent(&w, "w"), 0);
    let line = r#"{"jsonrpc":"2.0","id":"v","method":"tools/call","params":{"name":"mcp_w_raw_args","arguments":{"z":1.0,"n":"42","flag":"true"}}}"#;
    client.send_raw(format!("{line}\n").as_bytes());
    let answer = client.reply(&json!("v"));
    assert_eq!(answer["result"]["content"][0]["text"], r#"{"z":1.0,"n":42,"flag":true}"#);
}

/// `validate: false` lets everything through as it is.
#[test]
fn validation_can_be_switched_off() {
    let w = world().server_with("w", typed(), &["validate: false"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    assert_eq!(client.text("mcp_w_raw_args", &json!({"n": "many"})), r#"{"n":"many"}"#);
}

/// A schema that models cannot take is shown repaired, and arguments are checked against the original.
#[test]
fn the_original_schema_is_what_counts() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    let tools = vec![
        json!({"name": "echo", "inputSchema": {"type": "object"}}),
        json!({"name": "raw_args", "inputSchema": schema}),
        json!({"name": "never", "inputSchema": {"type": "string"}}),
    ];
    let w = world().server("w", Script::new().with(|s| s.tools = Some(tools)));
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let listed = client.tools();
    let shown = listed.iter().find(|tool| tool["name"] == "mcp_w_raw_args").unwrap();
    assert!(shown["inputSchema"].get("oneOf").is_none(), "{shown}");
    assert!(!listed.iter().any(|tool| tool["name"] == "mcp_w_never"), "{listed:?}");
    let notes = w.status("w")["notes"].to_string();
    assert!(notes.contains("`never`: the input schema accepts no object"), "{notes}");
    assert!(notes.contains("`raw_args`: alternatives at the top"), "{notes}");
    assert_eq!(kind(&client.call("mcp_w_raw_args", &json!({"a": "1", "b": "2"}))), "invalid_arguments");
    assert_eq!(client.text("mcp_w_raw_args", &json!({"a": "1"})), r#"{"a":"1"}"#);
}

const PLANTED: &str = "q9Xw-planted-value-77";

/// What of secrets in results is masked: `known` values by default, `patterns` too, or nothing.
#[test]
fn results_are_masked_as_configured() {
    let leak = format!("{PLANTED} and ghp_abcdefghij0123456789abcdefghij012345");
    for (key, known_stays, pattern_stays) in
        [("known", false, true), ("patterns", false, false), ("off", true, true)]
    {
        let lines = [format!("redact_results: {key}"), format!("env: {{ API_TOKEN: \"{PLANTED}\" }}")];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let w = world().server_with("w", Script::new(), &lines);
        let _daemon = w.start();
        let text = w.client(&["w"]).text("mcp_w_echo", &json!({"text": leak}));
        assert_eq!(
            (text.contains(PLANTED), text.contains("ghp_")),
            (known_stays, pattern_stays),
            "{key}: {text}"
        );
        assert_eq!(text.contains("[REDACTED]"), key != "off", "{key}: {text}");
    }
}

/// `redaction.labels: typed` says what was masked.
#[test]
fn labels_say_what_was_masked_where_asked_for() {
    let w = world().yaml("hermesd:\n  redaction: { labels: typed }").server_with(
        "w",
        Script::new(),
        &["redact_results: patterns"],
    );
    let _daemon = w.start();
    let leak = "ghp_abcdefghij0123456789abcdefghij012345";
    assert_eq!(w.client(&["w"]).text("mcp_w_echo", &json!({"text": leak})), "[GH_TOKEN_REDACTED]");
}

/// Errors of a server lose their secrets whatever the key says.
#[test]
fn errors_are_always_masked() {
    let w = world().server_with("w", Script::new(), &["redact_results: off"]);
    let _daemon = w.start();
    let params = json!({"name": "mcp_w_rpc_error", "arguments": {"code": -32000,
        "message": "Invalid GitHub token ghp_xxxxxxxxxxxx", "data": {"left": 1}}});
    let answer = w.client(&["w"]).request("tools/call", &params);
    let wanted = json!({"code": -32000, "message": "Invalid GitHub token [REDACTED]", "data": {"left": 1}});
    assert_eq!(answer["error"], wanted);
}

/// `result_limit` cuts long results and says so; without it nothing is cut.
#[test]
fn long_results_are_cut_only_where_asked_for() {
    let w = world().server_with("cut", Script::new(), &["result_limit: 2000"]).server("whole", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["cut", "whole"]);
    let cut = client.call("mcp_cut_big", &json!({"bytes": 100_000}));
    assert!(cut.to_string().len() < 4000 && cut.to_string().contains("result_limit"), "{cut}");
    let whole = client.text("mcp_whole_big", &json!({"bytes": 100_000}));
    assert_eq!(whole.len(), 100_000);
}

/// A call is sent a second time only where the server's word, that this is harmless, is to be believed.
#[test]
fn only_trusted_harmless_tools_are_called_twice() {
    let die = |read_only: bool| {
        json!({"name": "append_then_die", "inputSchema": {"type": "object"},
               "annotations": {"readOnlyHint": read_only}})
    };
    let echo = json!({"name": "echo", "inputSchema": {"type": "object"}});
    for (read_only, trust, calls) in [(true, true, 2), (true, false, 1), (false, true, 1)] {
        let script = Script::new().with(|s| s.tools = Some(vec![echo.clone(), die(read_only)]));
        let line = format!("trust_annotations: {trust}");
        let w = world().server_with("w", script, &[line.as_str()]);
        let _daemon = w.start();
        let file = w.path().join("effects");
        let mut client = w.client(&["w"]);
        let result = client.call("mcp_w_append_then_die", &json!({"file": file, "text": "once"}));
        assert_eq!(kind(&result), "server_gone");
        assert!(text(&result).contains("Outcome unknown"), "{result}");
        let effects = std::fs::read_to_string(&file).unwrap().lines().count();
        assert_eq!(effects, calls, "read_only {read_only}, trust {trust}");
    }
}

/// What the breaker does is in the log in two fixed words.
#[test]
fn the_breakers_turns_are_logged() {
    let w =
        world().server_with("w", Script::new(), &["timeout: 1", "breaker: { threshold: 1, cooldown: 1 }"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    assert_eq!(kind(&client.call("mcp_w_hang", &json!({}))), "timeout_idle");
    wait_for("a probe closes the breaker", SOON, || {
        client.call("mcp_w_echo", &json!({"text": "x"}))["isError"] != true
    });
    let log = w.ctl(["logs", "-n", "200"]).succeeds().stdout;
    assert!(log.contains("breaker opened") && log.contains("breaker closed"), "{log}");
}
