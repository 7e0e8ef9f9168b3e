//! Calls that stop waiting for approval without a decision: their callers get a clear error, everybody
//! else an event, and no number ever means another call.

use crate::world;
use hermes_tests::{SOON, Script, Shim, World, wait_for, wait_some};
use serde_json::{Value, json};

fn gated() -> World {
    world().yaml("hermesd:\n  conversations: \"on\"").server_with("w", Script::new(), &["approval: always"])
}

#[track_caller]
fn waiting(w: &World) -> String {
    wait_some("a call waits", SOON, || {
        let listed = w.ctl(["approvals", "--json"]).succeeds().json();
        listed["waiting"].as_array().unwrap().first().map(|one| one["id"].as_str().unwrap().to_owned())
    })
}

fn nobody_waits(w: &World) {
    wait_for("nobody waits", SOON, || {
        w.ctl(["approvals", "--json"]).succeeds().json()["waiting"] == json!([])
    });
}

fn watcher(w: &World) -> Shim {
    // Approvals are shown to those who see their server.
    let mut client = w.client(&["w"]);
    client.wait_tool("permissions_respond");
    client
}

/// What the log says about an approval, in order: the decision of each event, null for the request.
#[track_caller]
fn told(client: &mut Shim, id: &str, events: usize) -> Vec<Value> {
    wait_some(&format!("{events} events about approval {id}"), SOON, || {
        let page = client.call("events_poll", &json!({"limit": 200}))["structuredContent"].clone();
        let about = |event: &&Value| event["approval_id"] == id;
        let found: Vec<Value> =
            page["events"].as_array()?.iter().filter(about).map(|event| event["decision"].clone()).collect();
        (found.len() >= events).then_some(found)
    })
}

fn sent(w: &World) -> usize {
    w.journal("w").received("tools/call").len()
}

/// A daemon that ends tells the caller that nothing was done, and everybody that the approval lapsed; the
/// next daemon gives the same call another number, and the old one decides nothing.
#[test]
fn a_waiting_call_lapses_with_its_daemon() {
    let w = gated();
    let mut daemon = w.start();
    let mut client = w.client(&["w"]);
    let call = client.begin_call("mcp_w_echo", &json!({"text": "x"}));
    let old = waiting(&w);
    daemon.stop();
    let answer = client.reply(&call);
    assert_eq!(answer["result"]["_meta"]["kind"], "approval_lapsed", "{answer}");
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("Not executed") && text.contains("repeat the call"), "{text}");
    let _daemon = w.start();
    nobody_waits(&w);
    let mut watcher = watcher(&w);
    assert_eq!(told(&mut watcher, &old, 2), [json!(null), json!("expired")]);
    let rows = w.ctl(["audit", "--json"]).succeeds().stdout;
    assert!(rows.contains("approval_lapsed"), "{rows}");
    client.wait_tool("mcp_w_echo");
    let call = client.begin_call("mcp_w_echo", &json!({"text": "x"}));
    let new = waiting(&w);
    assert_ne!(new, old);
    let late = watcher.call("permissions_respond", &json!({"id": old, "decision": "allow-once"}));
    assert_eq!(late["structuredContent"]["error"], json!(format!("Approval not found: {old}")));
    assert_eq!(sent(&w), 0);
    let allowed = watcher.call("permissions_respond", &json!({"id": new, "decision": "allow-once"}));
    assert_eq!(allowed["isError"], false, "{allowed}");
    assert_eq!(client.reply(&call)["result"]["content"][0]["text"], "x");
    assert_eq!(told(&mut watcher, &new, 2), [json!(null), json!("allow-once")]);
}

/// After `kill -9` the next daemon tells how it ended, once.
#[test]
fn a_waiting_call_of_a_killed_daemon_is_told_as_expired_by_the_next_one() {
    let w = gated();
    let mut daemon = w.start();
    let mut client = w.client(&["w"]);
    client.begin_call("mcp_w_echo", &json!({"text": "x"}));
    let old = waiting(&w);
    let mut watcher_before = watcher(&w);
    told(&mut watcher_before, &old, 1);
    drop(watcher_before);
    daemon.kill_hard();
    for _ in 0..2 {
        let mut daemon = w.start();
        let mut watcher = watcher(&w);
        assert_eq!(told(&mut watcher, &old, 2), [json!(null), json!("expired")]);
        drop(watcher);
        daemon.stop();
    }
    drop(client);
    assert_eq!(sent(&w), 0);
}

/// The death of the client that waits takes its call off the list; others keep waiting and can be decided.
#[test]
fn a_call_leaves_with_its_client_and_takes_no_other_along() {
    let w = gated();
    let _daemon = w.start();
    let (mut dies, mut stays) = (w.client(&["w"]), w.client(&["w"]));
    dies.begin_call("mcp_w_echo", &json!({"text": "dies"}));
    let dead = waiting(&w);
    let call = stays.begin_call("mcp_w_echo", &json!({"text": "stays"}));
    let mut watcher = watcher(&w);
    wait_for("both wait", SOON, || {
        watcher.call("permissions_list_open", &json!({}))["structuredContent"]["count"] == 2
    });
    dies.kill_hard();
    assert_eq!(told(&mut watcher, &dead, 2), [json!(null), json!("withdrawn")]);
    let left = waiting(&w);
    assert_ne!(left, dead);
    for (id, decision) in [(&dead, "allow-always"), (&left, "allow-once")] {
        let answer = watcher.call("permissions_respond", &json!({"id": id, "decision": decision}));
        assert_eq!(answer["isError"], json!(id == &dead), "{answer}");
    }
    assert_eq!(stays.reply(&call)["result"]["content"][0]["text"], "stays");
    assert_eq!(sent(&w), 1);
}

/// The time of an approval being over is an event too, also when nobody calls any more.
#[test]
fn an_approval_whose_time_is_over_is_told() {
    let w = world().yaml("hermesd:\n  conversations: \"on\"").server_with(
        "w",
        Script::new(),
        &["approval: always", "approval_timeout: 1"],
    );
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let late = client.call("mcp_w_echo", &json!({"text": "x"}));
    assert_eq!(late["_meta"]["kind"], "approval_timeout", "{late}");
    let mut watcher = watcher(&w);
    assert_eq!(told(&mut watcher, "1", 2), [json!(null), json!("expired")]);
}

/// Each decision of the tool does what it says, with the answers of the reference.
#[test]
fn the_three_decisions_are_taken_by_another_client() {
    let w = gated();
    let _daemon = w.start();
    let (mut client, mut other) = (w.client(&["w"]), watcher(&w));
    let mut decide = |client: &mut Shim, text: &str, decision: &str| {
        let call = client.begin_call("mcp_w_echo", &json!({"text": text}));
        let id = waiting(&w);
        let done = other.call("permissions_respond", &json!({"id": id, "decision": decision}));
        let wanted = json!({"resolved": true, "approval_id": id, "decision": decision});
        assert_eq!((&done["structuredContent"], &done["isError"]), (&wanted, &json!(false)));
        client.reply(&call)["result"].clone()
    };
    assert_eq!(decide(&mut client, "a", "deny")["_meta"]["kind"], "approval_denied");
    assert_eq!(decide(&mut client, "b", "allow-once")["content"][0]["text"], "b");
    assert_eq!(decide(&mut client, "c", "allow-always")["content"][0]["text"], "c");
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "d"})), "d");
    assert_eq!(sent(&w), 3);
}
