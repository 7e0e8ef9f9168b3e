//! Every call leaves its traces: audit rows, figures, metrics.

use crate::world;
use hermes_tests::{SOON, Script, World, wait_for};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};

/// All audit rows that match.
fn audit<const N: usize>(w: &World, args: [&str; N]) -> Vec<Value> {
    let all: Vec<&str> = ["audit", "--json"].into_iter().chain(args).collect();
    let ran = hermes_tests::Ran::of(w.command(&w.bins().hermesctl).args(all)).succeeds();
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A row says who called what with which outcome, and which executable started the shim.
#[test]
fn a_row_says_who_called_what() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    client.call("mcp_w_echo", &json!({"text": "x"}));
    client.call("mcp_w_fail", &json!({}));
    client.call("mcp_w_echo", &json!({"text": 5.5, "text2": [1]}));
    client.call("mcp_w_echo", &json!({}));
    let rows = audit(&w, []);
    let outcomes: Vec<&str> = rows.iter().map(|row| row["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes[..2], ["ok", "tool_error"], "{rows:#?}");
    assert_eq!(outcomes.last(), Some(&"invalid_arguments"), "{rows:#?}");
    let row = &rows[0];
    assert_eq!((&row["server"], &row["tool"]), (&json!("w"), &json!("echo")));
    assert_eq!((&row["client"], &row["client_version"]), (&json!("tester"), &json!("1")));
    assert_eq!((&row["profile"], &row["method"]), (&json!("default"), &json!("tools/call")));
    assert_eq!(row["pid"], client.pid());
    assert_eq!(row["uid"], rustix::process::getuid().as_raw());
    assert_eq!(row["executable"], std::env::current_exe().unwrap().display().to_string());
    assert_eq!(row["trace_id"].as_str().map(str::len), Some(32));
    assert_eq!(row["arguments_hash"].as_str().map(str::len), Some(64));
    let filtered =
        audit(&w, ["--outcome", "tool_error", "--tool", "fail", "--client", "tester", "--since", "1h"]);
    assert_eq!(filtered.len(), 1);
    assert!(audit(&w, ["--server", "other"]).is_empty());
    assert_eq!(audit(&w, ["-n", "1"])[0]["id"], rows.last().unwrap()["id"]);
}

/// A call that its client takes back is in the audit too.
#[test]
fn cancelled_calls_are_recorded() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let id = client.begin_call("mcp_w_hang", &json!({}));
    wait_for("the call is at the server", SOON, || !w.journal("w").received("tools/call").is_empty());
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    wait_for("the row is there", SOON, || audit(&w, ["--outcome", "cancelled"]).len() == 1);
}

/// `audit.arguments` decides what is kept of arguments; secrets are never kept.
#[test]
fn arguments_are_recorded_as_configured() {
    for how in ["off", "hash", "full"] {
        let w =
            world().yaml(&format!("hermesd:\n  audit: {{ arguments: {how} }}")).server("w", Script::new());
        let _daemon = w.start();
        let text = "see ghp_abcdefghij0123456789abcdefghij012345";
        w.client(&["w"]).call("mcp_w_echo", &json!({"text": text}));
        let row = &audit(&w, [])[0];
        assert_eq!(row["arguments_hash"] != "", how == "hash", "{row}");
        assert_eq!(row["arguments"] == r#"{"text":"see [REDACTED]"}"#, how == "full", "{row}");
    }
}

/// `audit -f` goes on with new rows.
#[test]
fn the_audit_can_be_followed() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    client.call("mcp_w_echo", &json!({"text": "first"}));
    let mut following = w
        .command(&w.bins().hermesctl)
        .args(["audit", "--json", "-f"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    client.call("mcp_w_fail", &json!({}));
    let second: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((&first["tool"], &second["tool"]), (&json!("echo"), &json!("fail")));
    following.kill().unwrap();
    following.wait().unwrap();
}

/// `stats` and `metrics` count each call once, by server, tool and outcome.
#[test]
fn calls_are_counted() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    for _ in 0..3 {
        client.call("mcp_w_echo", &json!({"text": "x"}));
    }
    client.call("mcp_w_fail", &json!({}));
    let stats = w.ctl(["stats", "--json"]).succeeds().json();
    let server = &stats["servers"][0];
    assert_eq!((&server["server"], &server["all"]["calls"]), (&json!("w"), &json!(4)), "{stats}");
    assert_eq!(server["all"]["outcomes"], json!({"ok": 3, "tool_error": 1}));
    assert_eq!(server["tools"][0]["tool"], "echo");
    assert!(server["all"]["p50_micros"].as_u64() <= server["all"]["p99_micros"].as_u64());
    let metrics = w.ctl(["metrics"]).succeeds().stdout;
    let has = |parts: &[&str]| metrics.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(
        has(&["hermes_calls_total{", "server=\"w\"", "tool=\"echo\"", "outcome=\"ok\"", "} 3"]),
        "{metrics}"
    );
    assert!(has(&["hermes_server_state{", "\"ready\"", "} 1"]), "{metrics}");
    assert!(has(&["hermes_clients 1"]), "{metrics}");
    assert!(w.ctl(["stats"]).succeeds().stdout.contains("tool_error 1"));
}

/// `metrics.listen` serves the same text over HTTP on the loopback; without it nothing listens.
#[test]
fn metrics_are_served_where_configured() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let w =
        world().yaml(&format!("hermesd:\n  metrics: {{ listen: \"{free}\" }}")).server("w", Script::new());
    let _daemon = w.start();
    let mut scrape = None;
    wait_for("the listener is there", SOON, || {
        scrape = std::net::TcpStream::connect(free).ok();
        scrape.is_some()
    });
    let mut scrape = scrape.unwrap();
    scrape.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    scrape.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("hermes_build_info"), "{text}");
}
