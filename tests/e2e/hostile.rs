//! Servers that break the protocol: one bad thing spoils nothing else.

use crate::world;
use hermes_tests::script::Ping;
use hermes_tests::{SOON, Script, Shim, World, holds_for, wait_for};
use serde_json::{Value, json};
use std::time::Duration;

fn still_works(client: &mut Shim) {
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "on"})), "on");
}

fn serve(script: Script) -> (World, hermes_tests::Daemon, Shim) {
    let w = world().server("w", script);
    let daemon = w.start();
    let client = w.client(&["w"]);
    (w, daemon, client)
}

/// Answers that nobody asked for are ignored; the second of a pair never reaches a client.
#[test]
fn stray_and_duplicate_answers_are_ignored() {
    let (_w, _daemon, mut client) = serve(Script::new());
    let good = r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"first"}]}}"#;
    let lines = [
        r#"{"jsonrpc":"2.0","id":424242,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"nobody","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":null,"result":{}}"#,
        r#"{"jsonrpc":"2.0","result":{}}"#,
        good,
        r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"second"}]}}"#,
    ];
    client.drain();
    assert_eq!(client.text("mcp_w_reply", &json!({"lines": lines})), "first");
    still_works(&mut client);
    assert_eq!(client.drain().len(), 0);
}

/// Errors of any shape end the call as an error, never as an empty success.
#[test]
fn malformed_error_objects_are_still_errors() {
    let (_w, _daemon, mut client) = serve(Script::new());
    let bodies = [
        r#""error":"plain text""#,
        r#""error":{"code":"E_FISH","message":"no fish"}"#,
        r#""error":{"code":-32000.5,"message":"half"}"#,
        r#""error":{"message":"no code"}"#,
        r#""result":{"content":[]},"error":{"code":-32001,"message":"both"}"#,
        r#""other":1"#,
    ];
    for body in bodies {
        let line = format!(r#"{{"jsonrpc":"2.0","id":$ID,{body}}}"#);
        let params = json!({"name": "mcp_w_reply", "arguments": {"lines": [line]}});
        let answer = client.request("tools/call", &params);
        let failed = answer["error"]["code"].is_i64() || answer["result"]["isError"] == true;
        assert!(failed, "{body}: {answer}");
        still_works(&mut client);
    }
}

/// Notifications and requests that hermesd does not know harm nothing; the request is answered.
#[test]
fn unknown_messages_of_a_server_harm_nothing() {
    let (_w, _daemon, mut client) = serve(Script::new());
    client.call("mcp_w_notify", &json!({"method": "notifications/whatever", "params": {"a": 1}}));
    client.call("mcp_w_notify", &json!({"method": "window/logMessage"}));
    let answer: Value =
        serde_json::from_str(&client.text("mcp_w_ask", &json!({"method": "foo/bar"}))).unwrap();
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    let answer: Value = serde_json::from_str(&client.text("mcp_w_ask", &json!({"method": "ping"}))).unwrap();
    assert_eq!(answer["result"], json!({}), "{answer}");
    still_works(&mut client);
}

/// A server may ask before it answers `initialize`.
#[test]
fn a_request_during_the_handshake_is_answered_at_once() {
    let ask = json!({"jsonrpc": "2.0", "id": "early", "method": "roots/list"});
    let (_w, _daemon, mut client) = serve(Script::new().with(|s| s.ask_before_initialize = vec![ask]));
    still_works(&mut client);
}

/// `notifications/initialized` is sent exactly once for each process.
#[test]
fn every_generation_is_told_that_it_is_initialized() {
    let (w, _daemon, mut client) = serve(Script::new().with(|s| s.strict_initialized = true));
    still_works(&mut client);
    w.ctl(["servers", "restart", "w"]).succeeds();
    still_works(&mut client);
    assert_eq!(w.journal("w").received("notifications/initialized").len(), 2);
    assert_eq!(w.journal("w").starts(), 2);
}

/// Every known revision of client and server works with every other; unknown ones are negotiated.
#[test]
fn every_pair_of_revisions_works() {
    let versions = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
    let w = versions.iter().enumerate().fold(world(), |w, (n, version)| {
        w.server(&format!("s{n}"), Script::new().with(|s| s.version = (*version).into()))
    });
    let _daemon = w.start();
    drop(w.client(&["s0", "s1", "s2", "s3"]));
    for version in versions.into_iter().chain(["9999-01-01"]) {
        let mut client = w.shim();
        let answered = client.initialize_as(version, &json!({}))["protocolVersion"].clone();
        let expected = if version.starts_with('9') { "2025-11-25" } else { version };
        assert_eq!(answered, expected);
        for n in 0..versions.len() {
            assert_eq!(client.text(&format!("mcp_s{n}_echo"), &json!({"text": "x"})), "x");
        }
    }
}

/// A server with a revision that nobody knows is refused with both versions in the reason.
#[test]
fn an_unknown_revision_of_a_server_is_named() {
    let w = world().server("w", Script::new().with(|s| s.version = "1999-12-31".into()));
    let _daemon = w.start();
    wait_for("the reason names it", SOON, || w.status("w").to_string().contains("1999-12-31"));
}

/// A ping that fails or is never answered is no reason to restart a server that works.
#[test]
fn a_server_without_ping_is_left_alone() {
    for ping in [Ping::Error, Ping::Silent] {
        let (w, _daemon, mut client) = serve(Script::new().with(|s| s.ping = ping));
        let pid = w.wait_server_pid("w");
        assert!(holds_for(Duration::from_secs(2), || w.server_pid("w") == Some(pid)));
        still_works(&mut client);
    }
}

/// A message nested without end fails alone.
#[test]
fn a_deeply_nested_message_fails_alone() {
    let (_w, _daemon, mut client) = serve(Script::new());
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let lines = [
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{deep}}}"#),
        r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"after"}]}}"#.to_owned(),
    ];
    assert_eq!(client.text("mcp_w_reply", &json!({"lines": lines})), "after");
    client.send_raw(
        format!("{{\"jsonrpc\":\"2.0\",\"id\":77,\"method\":\"ping\",\"params\":{deep}}}\n").as_bytes(),
    );
    still_works(&mut client);
}

/// An answer that comes after its cancellation reaches nobody.
#[test]
fn a_late_answer_is_dropped() {
    let (w, _daemon, mut client) = serve(Script::new());
    let id = client.begin_call("mcp_w_late_answer", &json!({"ms": 300}));
    wait_for("the call is at the server", SOON, || !w.journal("w").received("tools/call").is_empty());
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    assert_eq!(client.text("mcp_w_sleep", &json!({"ms": 600, "text": "later"})), "later");
    assert_eq!(client.maybe_reply(&id, Duration::ZERO), None);
}

/// Requests of a shared server that hermesd cannot attribute are declined, never broadcast.
#[test]
fn sampling_of_a_shared_server_is_never_broadcast() {
    let (w, _daemon, mut client) = serve(Script::new());
    let mut other = w.client(&["w"]);
    other.drain();
    let asked = client.text(
        "mcp_w_ask",
        &json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}),
    );
    let answer: Value = serde_json::from_str(&asked).unwrap();
    assert!(answer["error"]["code"].is_i64(), "{answer}");
    assert!(other.drain().iter().all(|m| m.value["method"] != "sampling/createMessage"));
}
