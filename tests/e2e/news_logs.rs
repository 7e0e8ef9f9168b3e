//! Log messages of servers: by level for each client, and never those of another client's call.

use crate::world;
use hermes_tests::{SOON, Script, Shim, World, holds_for, wait_for};
use serde_json::{Value, json};
use std::time::Duration;

const MESSAGE: &str = "notifications/message";

fn script() -> Script {
    Script::new().with(|s| {
        s.capabilities = Some(json!({"tools": {}, "logging": {}}));
        s.results.insert("logging/setLevel".to_owned(), json!({}));
    })
}

fn set_level(client: &mut Shim, level: &str) {
    let answer = client.request("logging/setLevel", &json!({"level": level}));
    assert_eq!(answer["result"], json!({}), "{answer}");
}

/// Has the server log a line during, or some time after, a call of this client.
fn log(client: &mut Shim, params: &Value, after_ms: u64) {
    client.call("mcp_w_notify", &json!({"method": MESSAGE, "params": params, "after_ms": after_ms}));
}

/// Has the server log a line long after any call, so that it belongs to nobody: what `caller` and
/// `other` hear of it. On a machine that stood still it looks like one of the call; then once more.
fn log_for_all(caller: &mut Shim, other: &mut Shim, params: &Value) -> [Value; 2] {
    for _ in 0..10 {
        log(caller, params, 2000);
        let own = caller.wait_method(MESSAGE)["params"].clone();
        other.text("mcp_v_echo", &json!({"text": "flush"}));
        if let Some(heard) = other.arrived(MESSAGE).pop() {
            return [own, heard["params"].clone()];
        }
    }
    panic!("the line is never for everybody");
}

/// The levels that the server was asked for.
fn levels(w: &World) -> Vec<String> {
    let asked = w.journal("w").received("logging/setLevel");
    asked.iter().map(|m| m["params"]["level"].as_str().unwrap().to_owned()).collect()
}

/// Each client sees what it asked for; the server is as verbose as the most curious of them wants.
#[test]
fn log_messages_go_by_the_level_of_each_client() {
    let w = world().server("w", script()).server("v", Script::new());
    let _daemon = w.start();
    let (mut a, mut b, mut silent) = (w.client(&["w", "v"]), w.client(&["w", "v"]), w.client(&["w"]));
    set_level(&mut a, "warning");
    wait_for("the server hears of it", SOON, || levels(&w) == ["warning"]);
    set_level(&mut b, "debug");
    wait_for("the server hears of more", SOON, || levels(&w) == ["warning", "debug"]);
    // Long after any call: it belongs to nobody, so it is for everybody who wants it.
    let line = json!({"level": "warning", "logger": "db", "data": {"b": 1.0, "a": [2]}});
    let wanted =
        json!({"level": "warning", "logger": "db", "data": {"b": 1.0, "a": [2]}, "_meta": {"server": "w"}});
    assert_eq!(log_for_all(&mut a, &mut b, &line), [wanted.clone(), wanted]);
    log(&mut b, &json!({"level": "info", "data": "x"}), 0);
    assert_eq!(
        b.wait_method(MESSAGE)["params"]["logger"],
        "w",
        "a nameless logger is named after its server"
    );
    log_for_all(&mut a, &mut b, &json!({"level": "error", "data": "for both"}));
    assert!(a.arrived(MESSAGE).is_empty() && silent.arrived(MESSAGE).is_empty());
    drop(b);
    wait_for("the server may be quieter again", SOON, || {
        levels(&w).last().is_some_and(|level| level == "warning")
    });
    let wrong = a.request("logging/setLevel", &json!({"level": "loud"}));
    assert_eq!(wrong["error"]["code"], -32602);
    assert!(w.ctl(["logs", "w"]).succeeds().stdout.contains("db"), "the server's own log has every line");
}

/// A client that names no level hears what its own calls make the server say, as if it were alone with it.
#[test]
fn without_a_level_a_client_hears_of_its_own_calls() {
    let w = world().server("w", script());
    let _daemon = w.start();
    let (mut a, mut b) = (w.client(&["w"]), w.client(&["w"]));
    log(&mut a, &json!({"level": "info", "data": "of a"}), 0);
    assert_eq!(a.wait_method(MESSAGE)["params"]["data"], "of a");
    // As long as the call of the other one is fresh, nobody knows whose line it is.
    wait_for("the other one hears of its own call", SOON, || {
        log(&mut b, &json!({"level": "debug", "data": "too small"}), 0);
        log(&mut b, &json!({"level": "warning", "data": "of b"}), 0);
        b.text("mcp_w_echo", &json!({"text": "flush"}));
        let heard = b.arrived(MESSAGE);
        assert!(heard.iter().all(|line| line["params"]["data"] == "of b"), "{heard:?}");
        !heard.is_empty()
    });
    a.text("mcp_w_echo", &json!({"text": "flush"}));
    assert_eq!((a.arrived(MESSAGE), b.arrived(MESSAGE)), (vec![], vec![]));
    assert_eq!(levels(&w), Vec::<String>::new(), "the server keeps its own level");
}

/// A line that a call of one client may have caused is not shown to another one.
#[test]
fn log_messages_of_a_call_stay_with_its_client() {
    let w = world().server("w", script());
    let _daemon = w.start();
    let (mut a, mut b) = (w.client(&["w"]), w.client(&["w"]));
    set_level(&mut a, "debug");
    set_level(&mut b, "debug");
    let line = |text: &str| json!({"level": "info", "data": text});
    log(&mut a, &line("only a calls"), 0);
    assert_eq!(a.wait_method(MESSAGE)["params"]["data"], "only a calls");
    let open = b.begin_call("mcp_w_sleep", &json!({"ms": 600_000}));
    wait_for("both have calls", SOON, || {
        w.journal("w").received("tools/call").iter().any(|m| m["params"]["name"] == "sleep")
    });
    log(&mut a, &line("both call"), 0);
    a.text("mcp_w_echo", &json!({"text": "flush"}));
    b.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": open}}));
    assert!(holds_for(Duration::from_millis(500), || {
        a.arrived(MESSAGE).is_empty() && b.arrived(MESSAGE).is_empty()
    }));
    assert!(w.ctl(["logs", "w"]).succeeds().stdout.contains("both call"));
}

/// The level is told anew to a server, and by a daemon, that was restarted.
#[test]
fn the_log_level_survives_restarts() {
    let w = world().server("w", script());
    let mut daemon = w.start();
    let mut a = w.client(&["w"]);
    set_level(&mut a, "error");
    wait_for("the server hears of it", SOON, || levels(&w) == ["error"]);
    w.ctl(["servers", "restart", "w"]).succeeds();
    wait_for("the new process hears of it", SOON, || levels(&w) == ["error", "error"]);
    daemon.kill_hard();
    let _daemon = w.start();
    a.wait_tool("mcp_w_echo");
    a.text("mcp_w_echo", &json!({"text": "start it"}));
    wait_for("the server of the new daemon hears of it", SOON, || levels(&w).len() == 3);
}

/// Secrets of a log line are masked, and a flood of lines is cut to what a client can read.
#[test]
fn log_messages_are_masked_and_bounded() {
    let w = world().server_with("w", script(), &["env: {API_TOKEN: s3cret-value-of-mine}"]);
    let _daemon = w.start();
    let mut a = w.client(&["w"]);
    set_level(&mut a, "info");
    log(&mut a, &json!({"level": "info", "data": {"k": "s3cret-value-of-mine"}}), 0);
    assert_eq!(a.wait_method(MESSAGE)["params"]["data"]["k"], "[REDACTED]");
    let line = json!({"level": "info", "data": "again"});
    a.call("mcp_w_notify", &json!({"method": MESSAGE, "params": line, "times": 5000}));
    a.text("mcp_w_echo", &json!({"text": "flush"}));
    let seen = a.arrived(MESSAGE).len();
    assert!((1..2500).contains(&seen), "{seen} of 5000");
    // What a flood leaves no room for is not lost: lists are read again.
    a.drain();
    a.call("mcp_w_notify", &json!({"method": MESSAGE, "params": line, "times": 5000}));
    a.call("mcp_w_add_tool", &json!({"name": "behind", "order": "change_first"}));
    a.wait_tool("mcp_w_behind");
}

/// A profile that does not show a server shows none of its lines.
#[test]
fn profiles_hide_log_messages() {
    let w = world()
        .yaml("hermesd:\n  profiles:\n    other: { servers: [v] }")
        .server("w", script())
        .server("v", Script::new());
    let _daemon = w.start();
    let (mut a, mut seeing) = (w.client(&["w"]), w.client(&["v"]));
    let mut blind = w.shim_with(&["mcp", "serve", "--profile", "other"]);
    blind.initialize();
    blind.wait_tool("mcp_v_echo");
    set_level(&mut a, "debug");
    set_level(&mut seeing, "debug");
    set_level(&mut blind, "debug");
    log_for_all(&mut a, &mut seeing, &json!({"level": "alert", "data": "x"}));
    blind.text("mcp_v_echo", &json!({"text": "flush"}));
    assert!(blind.arrived(MESSAGE).is_empty());
}
