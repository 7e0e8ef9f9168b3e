//! Progress, time limits and cancellation belong to exactly one call of one client.

use crate::world;
use hermes_tests::{SOON, Script, Shim, wait_for};
use serde_json::{Value, json};
use std::time::Duration;

fn call_with_token(client: &mut Shim, tool: &str, arguments: &Value, token: &Value) -> Value {
    client.begin(
        "tools/call",
        &json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": token}}),
    )
}

/// Progress carries the client's own token, in its own type, before the result.
#[test]
fn progress_comes_with_the_clients_token_before_the_result() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    client.drain();
    for token in [json!("tok"), json!(7), json!("7"), json!("")] {
        let id = call_with_token(&mut client, "mcp_w_progress", &json!({"n": 5}), &token);
        client.reply(&id);
        let seen = client.arrived("notifications/progress");
        let steps: Vec<_> = seen.iter().map(|m| m["params"]["progress"].clone()).collect();
        assert_eq!(steps, [1, 2, 3, 4, 5].map(|n| json!(n)), "all of it came before the result");
        assert!(seen.iter().all(|m| m["params"]["progressToken"] == token), "{seen:?}");
        assert_eq!(seen[0]["params"]["message"], "step");
    }
}

/// Who did not ask for progress gets none; tokens that nobody gave are swallowed, late progress too.
#[test]
fn progress_that_nobody_asked_for_is_swallowed() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    client.call("mcp_w_progress", &json!({"n": 3}));
    client.call("mcp_w_progress_odd", &json!({"kind": "fabricated"}));
    let id = call_with_token(&mut client, "mcp_w_progress_odd", &json!({"kind": "late"}), &json!("t"));
    client.reply(&id);
    client.text("mcp_w_echo", &json!({"text": "flush"}));
    assert_eq!(client.arrived("notifications/progress"), Vec::<Value>::new());
}

/// Progress that goes backwards is left out; what is passed on grows.
#[test]
fn progress_only_grows() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let id = call_with_token(&mut client, "mcp_w_progress_odd", &json!({"kind": "backwards"}), &json!("t"));
    client.reply(&id);
    let seen = client.arrived("notifications/progress");
    let steps: Vec<f64> = seen.iter().filter_map(|m| m["params"]["progress"].as_f64()).collect();
    assert_eq!(steps, [0.0, 1.0, 3.0]);
}

/// Two clients with the same token each see their own progress.
#[test]
fn equal_tokens_of_two_clients_do_not_cross() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let (mut a, mut b) = (w.client(&["w"]), w.client(&["w"]));
    let first = call_with_token(&mut a, "mcp_w_progress", &json!({"n": 3, "every_ms": 20}), &json!("same"));
    let second = call_with_token(&mut b, "mcp_w_progress", &json!({"n": 4, "every_ms": 20}), &json!("same"));
    a.reply(&first);
    b.reply(&second);
    assert_eq!(a.arrived("notifications/progress").len(), 3);
    assert_eq!(b.arrived("notifications/progress").len(), 4);
}

/// Progress extends the time limit; it is a limit for silence.
#[test]
fn progress_extends_the_time_limit() {
    let w = world().server_with("w", Script::new(), &["timeout: 2"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    assert_eq!(client.text("mcp_w_progress", &json!({"n": 20, "every_ms": 250})), "done");
}

/// A timeout fails the call, tells the server, and leaves the server alone.
#[test]
fn a_timeout_fails_the_call_and_not_the_server() {
    let w = world().server_with("w", Script::new(), &["timeout: 1"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let pid = w.wait_server_pid("w");
    let result = client.call("mcp_w_sleep", &json!({"ms": 600_000}));
    assert_eq!(result["isError"], true, "{result}");
    wait_for("the server is told", SOON, || w.journal("w").received("notifications/cancelled").len() == 1);
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "fine"})), "fine");
    assert_eq!(w.server_pid("w"), Some(pid));
}

/// A cancellation reaches exactly the call it means, though another client uses the same id.
#[test]
fn a_cancellation_hits_one_call() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let (mut a, mut b) = (w.client(&["w"]), w.client(&["w"]));
    let call = |name: &str, ms: u64| {
        json!({"jsonrpc": "2.0", "id": 555, "method": "tools/call",
            "params": {"name": "mcp_w_sleep", "arguments": {"ms": ms, "text": name}}})
    };
    a.send(&call("a", 600_000));
    wait_for("the first call is there", SOON, || w.journal("w").received("tools/call").len() == 1);
    b.send(&call("b", 1000));
    wait_for("both calls are there", SOON, || w.journal("w").received("tools/call").len() == 2);
    a.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 555}}));
    assert_eq!(b.reply(&json!(555))["result"]["content"][0]["text"], "b");
    let cancelled = w.journal("w").received("notifications/cancelled");
    assert_eq!(cancelled.len(), 1);
    assert_eq!(cancelled[0]["params"]["requestId"], w.journal("w").received("tools/call")[0]["id"]);
    assert_eq!(a.maybe_reply(&json!(555), Duration::ZERO), None, "a cancelled request is not answered");
    assert_eq!(a.text("mcp_w_echo", &json!({"text": "on"})), "on");
}

/// A cancellation overtakes calls that wait for a slot, and frees the slot.
#[test]
fn a_cancellation_is_not_queued_behind_its_call() {
    let w = world().server_with("w", Script::new(), &["max_concurrency: 1"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let first = client.begin_call("mcp_w_sleep", &json!({"ms": 600_000}));
    wait_for("the first call is there", SOON, || w.journal("w").received("tools/call").len() == 1);
    let second = client.begin_call("mcp_w_echo", &json!({"text": "next"}));
    client.send(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": first}}),
    );
    assert_eq!(client.reply(&second)["result"]["content"][0]["text"], "next");
}

/// Cancellations that make no sense are ignored.
#[test]
fn senseless_cancellations_are_ignored() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    for params in [
        json!({"requestId": 999}),
        json!({"requestId": "x"}),
        json!({"requestId": null}),
        json!({}),
        Value::Null,
    ] {
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
    }
    client.send_raw(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\"}\n");
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "on"})), "on");
    assert!(w.journal("w").received("notifications/cancelled").is_empty());
}
