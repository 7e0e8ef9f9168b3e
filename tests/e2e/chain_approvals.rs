//! A gated call waits for a person, and only a person's decision about this very call lets it pass.

use crate::world;
use hermes_tests::{SOON, Script, Shim, World, wait_for, wait_some};
use serde_json::{Value, json};

fn sent(w: &World) -> usize {
    w.journal("w").received("tools/call").len()
}

/// The one call that waits, as hermesctl lists it.
#[track_caller]
fn waiting(w: &World) -> Value {
    wait_some("a call waits", SOON, || {
        let listed = w.ctl(["approvals", "--json"]).succeeds().json();
        let waiting = listed["waiting"].as_array().unwrap();
        assert!(waiting.len() <= 1, "{listed}");
        waiting.first().cloned()
    })
}

fn id(approval: &Value) -> String {
    approval["id"].as_str().unwrap().to_owned()
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_default()
}

/// `allow-once` lets exactly this call through, once; `deny` does not; nothing reaches the server before.
#[test]
fn a_person_decides_about_each_call() {
    let w = world().server_with("w", Script::new(), &["approval: always"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let secret = "ghp_abcdefghij0123456789abcdefghij012345";
    let call = client.begin_call("mcp_w_echo", &json!({"text": "x", "key": secret}));
    let approval = waiting(&w);
    assert_eq!((&approval["server"], &approval["tool"]), (&json!("w"), &json!("echo")));
    assert_eq!((&approval["client"], &approval["profile"]), (&json!("tester"), &json!("default")));
    assert!(!approval.to_string().contains(secret), "{approval}");
    assert_eq!(sent(&w), 0);
    w.ctl(["approvals", "respond", &id(&approval), "allow-once"]).succeeds();
    assert_eq!(text(&client.reply(&call)), "x");
    // The same call again is another one.
    let call = client.begin_call("mcp_w_echo", &json!({"text": "x", "key": secret}));
    let again = waiting(&w);
    assert_ne!(again["id"], approval["id"]);
    w.ctl(["approvals", "respond", &id(&again), "deny"]).succeeds();
    let denied = client.reply(&call);
    assert_eq!(denied["result"]["_meta"]["kind"], "approval_denied", "{denied}");
    assert_eq!(sent(&w), 1);
    w.ctl(["approvals", "respond", &id(&again), "allow-once"]).exits(1);
    let rows = w.ctl(["audit", "--json", "--outcome", "ok"]).succeeds().stdout;
    assert!(
        rows.contains(r#"{"said":"allow-once","step":"approval"}"#)
            || rows.contains(r#"{"step":"approval","said":"allow-once"}"#),
        "{rows}"
    );
}

/// `allow-always` holds for the tool, is listed, survives a restart, and can be taken back.
#[test]
fn an_answer_for_always_stands_until_it_is_taken_back() {
    let w = world().server_with("w", Script::new(), &["approval: [echo]"]);
    let mut daemon = w.start();
    let mut client = w.client(&["w"]);
    let call = client.begin_call("mcp_w_echo", &json!({"text": "a"}));
    w.ctl(["approvals", "respond", &id(&waiting(&w)), "allow-always"]).succeeds();
    assert_eq!(text(&client.reply(&call)), "a");
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "b"})), "b");
    // Tools that are not on the list never wait.
    assert_eq!(client.text("mcp_w_raw_args", &json!({})), "{}");
    drop(client);
    daemon.stop();
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "c"})), "c");
    let standing = w.ctl(["approvals", "--json"]).succeeds().json()["standing"][0].clone();
    assert_eq!(standing["tool"], "echo");
    w.ctl(["approvals", "revoke", &standing["id"].to_string()]).succeeds();
    let call = client.begin_call("mcp_w_echo", &json!({"text": "d"}));
    w.ctl(["approvals", "respond", &id(&waiting(&w)), "deny"]).succeeds();
    assert_eq!(client.reply(&call)["result"]["isError"], true);
}

/// `destructive` gates what is neither read-only nor declared harmless.
#[test]
fn destructive_tools_wait_and_readers_do_not() {
    let w = world().server_with("w", Script::new(), &["approval: destructive"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "reads"})), "reads");
    let call = client.begin_call("mcp_w_raw_args", &json!({}));
    w.ctl(["approvals", "respond", &id(&waiting(&w)), "allow-once"]).succeeds();
    assert_eq!(text(&client.reply(&call)), "{}");
}

/// `approval_timeout` ends the wait; a cancelled call leaves the list.
#[test]
fn waiting_ends_with_its_time_or_its_call() {
    let w = world().server_with("w", Script::new(), &["approval: always", "approval_timeout: 1"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let late = client.call("mcp_w_echo", &json!({"text": "x"}));
    assert_eq!(late["_meta"]["kind"], "approval_timeout", "{late}");
    let w = world().server_with("w", Script::new(), &["approval: always"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let call = client.begin_call("mcp_w_echo", &json!({"text": "x"}));
    waiting(&w);
    client
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call}}));
    wait_for("the list is empty", SOON, || {
        w.ctl(["approvals", "--json"]).succeeds().json()["waiting"] == json!([])
    });
    assert_eq!(sent(&w), 0);
}

/// A call whose meaning depends on which of two members is read cannot be approved.
#[test]
fn ambiguous_arguments_are_refused() {
    let w = world().server_with("w", Script::new(), &["approval: always"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let line = r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"mcp_w_echo","arguments":{"text":"harmless","text":"evil"}}}"#;
    client.send_raw(format!("{line}\n").as_bytes());
    let answer = client.reply(&json!("a"));
    assert_eq!(answer["result"]["_meta"]["kind"], "invalid_arguments", "{answer}");
}

fn permissions(w: &World, args: &[&str]) -> Shim {
    let all: Vec<&str> = ["mcp", "serve"].iter().chain(args).copied().collect();
    let mut client = w.shim_with(&all);
    client.initialize();
    client.wait_tool("permissions_respond");
    client
}

/// Another client can decide with the permission tools, the one that waits cannot, and a profile that
/// does not show the server sees nothing.
#[test]
fn the_permission_tools_decide_for_others() {
    let w = world()
        .yaml("hermesd:\n  conversations: \"on\"\n  profiles:\n    blind: { servers: [] }")
        .server_with("w", Script::new(), &["approval: always"]);
    let _daemon = w.start();
    let mut waits = w.client(&["w"]);
    let mut other = permissions(&w, &[]);
    let mut blind = permissions(&w, &["--profile", "blind"]);
    let call = waits.begin_call("mcp_w_echo", &json!({"text": "x"}));
    let number = id(&waiting(&w));
    assert_eq!(blind.call("permissions_list_open", &json!({}))["structuredContent"]["count"], 0);
    let listed = other.call("permissions_list_open", &json!({}))["structuredContent"].clone();
    assert_eq!((&listed["count"], &listed["approvals"][0]["id"]), (&json!(1), &json!(number)));
    let allow = json!({"id": number, "decision": "allow-once"});
    for client in [&mut waits, &mut blind] {
        assert_eq!(client.call("permissions_respond", &allow)["isError"], true);
    }
    let wrong = other.call("permissions_respond", &json!({"id": number, "decision": "maybe"}));
    assert!(wrong.to_string().contains("Invalid decision: maybe"), "{wrong}");
    assert_eq!(sent(&w), 0);
    let done = other.call("permissions_respond", &allow);
    let wanted = json!({"resolved": true, "approval_id": number, "decision": "allow-once"});
    assert_eq!(done["structuredContent"], wanted);
    assert_eq!(text(&waits.reply(&call)), "x");
}
