//! A gated call asks the user of its own client, where that client can show a form.

use crate::world;
use hermes_tests::{SOON, Script, Shim, World, wait_for, wait_some};
use serde_json::{Value, json};

const QUESTION: &str = "elicitation/create";

fn gated() -> World {
    world().server_with("w", Script::new(), &["approval: [echo]"])
}

/// A client that can show forms.
fn with_forms(w: &World, revision: &str, capabilities: &Value) -> Shim {
    let mut shim = w.shim();
    shim.initialize_as(revision, capabilities);
    shim.wait_tool("mcp_w_echo");
    shim
}

fn forms(w: &World) -> Shim {
    with_forms(w, "2025-06-18", &json!({ "elicitation": {} }))
}

fn say(client: &mut Shim, question: &Value, result: &Value) {
    client.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }));
}

fn choose(client: &mut Shim, question: &Value, decision: &str) {
    say(client, question, &json!({ "action": "accept", "content": { "decision": decision } }));
}

fn waiting(w: &World) -> Vec<Value> {
    w.ctl(["approvals", "--json"]).succeeds().json()["waiting"].as_array().unwrap().clone()
}

fn sent(w: &World) -> usize {
    w.journal("w").received("tools/call").len()
}

fn kind(answer: &Value) -> &str {
    answer["result"]["_meta"]["kind"].as_str().unwrap_or_default()
}

/// What the audit says was decided, and by whom.
fn decisions(w: &World) -> Vec<String> {
    let rows = w.ctl(["audit", "--json"]).succeeds().stdout;
    let rows = rows.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let steps = rows.flat_map(|row| row["decisions"].as_array().cloned().unwrap_or_default());
    steps
        .map(|step| format!("{}: {}", step["step"].as_str().unwrap(), step["said"].as_str().unwrap()))
        .collect()
}

/// The user is asked in the client; nothing reaches the server before the answer, and the answer decides.
#[test]
fn the_user_of_the_client_decides() {
    let w = gated();
    let _daemon = w.start();
    for (revision, capabilities) in [
        ("2025-06-18", json!({ "elicitation": {} })),
        ("2025-11-25", json!({ "elicitation": { "form": {}, "url": {} } })),
    ] {
        let mut client = with_forms(&w, revision, &capabilities);
        let before = sent(&w);
        let secret = "ghp_abcdefghij0123456789abcdefghij012345";
        let call = client.begin_call("mcp_w_echo", &json!({ "text": "x", "key": secret }));
        let question = client.wait_method(QUESTION);
        let message = question["params"]["message"].as_str().unwrap();
        assert!(
            message.contains("`tester`") && message.contains("`echo`") && message.contains("`w`"),
            "{message}"
        );
        assert!(!message.contains(secret) && message.contains("[REDACTED]"), "{message}");
        let field = &question["params"]["requestedSchema"]["properties"]["decision"];
        assert_eq!(field["enum"], json!(["allow-once", "allow-always", "deny"]));
        assert_eq!(sent(&w), before);
        assert_eq!(waiting(&w).len(), 1, "others see it too");
        choose(&mut client, &question, "allow-once");
        assert_eq!(client.reply(&call)["result"]["content"][0]["text"], "x");
        assert_eq!(sent(&w), before + 1);
        assert!(waiting(&w).is_empty());
        // Once is once, and a refusal is one.
        for refusal in
            [json!({ "action": "accept", "content": { "decision": "deny" } }), json!({ "action": "decline" })]
        {
            let call = client.begin_call("mcp_w_echo", &json!({ "text": "x", "key": secret }));
            let question = client.wait_method(QUESTION);
            say(&mut client, &question, &refusal);
            assert_eq!(kind(&client.reply(&call)), "approval_denied");
        }
        assert_eq!(sent(&w), before + 1);
    }
    let by = "the client's user (elicitation)";
    let decided = decisions(&w);
    for line in
        ["approval: allow-once", &format!("approved_by: {by}"), "approval: deny", &format!("denied_by: {by}")]
    {
        assert!(decided.iter().any(|said| said == line), "{line} in {decided:?}");
    }
}

/// `allow-always` of the form stands for later calls, of every client, and is listed.
#[test]
fn an_answer_for_always_stands() {
    let w = gated();
    let _daemon = w.start();
    let mut client = forms(&w);
    let call = client.begin_call("mcp_w_echo", &json!({ "text": "a" }));
    let question = client.wait_method(QUESTION);
    choose(&mut client, &question, "allow-always");
    assert_eq!(client.reply(&call)["result"]["content"][0]["text"], "a");
    assert_eq!(client.text("mcp_w_echo", &json!({ "text": "b" })), "b");
    assert_eq!(w.client(&["w"]).text("mcp_w_echo", &json!({ "text": "c" })), "c");
    let standing = w.ctl(["approvals", "--json"]).succeeds().json()["standing"][0].clone();
    assert_eq!((&standing["tool"], &standing["created_by"]), (&json!("echo"), &json!("user of tester")));
}

/// Whoever decides first wins: the question is taken back at the client, and its late answer counts for nothing.
#[test]
fn a_decision_elsewhere_takes_the_question_back() {
    let w = gated();
    let _daemon = w.start();
    let mut client = forms(&w);
    let call = client.begin_call("mcp_w_echo", &json!({ "text": "x" }));
    let question = client.wait_method(QUESTION);
    let number = waiting(&w)[0]["id"].as_str().unwrap().to_owned();
    w.ctl(["approvals", "respond", &number, "deny"]).succeeds();
    assert_eq!(kind(&client.reply(&call)), "approval_denied");
    let cancelled = client.wait_method("notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], question["id"]);
    choose(&mut client, &question, "allow-always");
    let call = client.begin_call("mcp_w_echo", &json!({ "text": "x" }));
    let again = client.wait_method(QUESTION);
    assert_ne!(again["id"], question["id"]);
    assert_eq!(sent(&w), 0);
    // The other way round: the client decides, and hermesctl comes too late.
    let number = waiting(&w)[0]["id"].as_str().unwrap().to_owned();
    choose(&mut client, &again, "allow-once");
    assert_eq!(client.reply(&call)["result"]["content"][0]["text"], "x");
    w.ctl(["approvals", "respond", &number, "deny"]).exits(1);
    assert!(decisions(&w).iter().any(|said| said == "denied_by: hermesctl"), "{:?}", decisions(&w));
}

/// A closed dialog decides nothing: the call ends unexecuted at once, and what is decided later is redeemed by
/// its repetition. An answer that makes no sense leaves the other ways open.
#[test]
fn a_closed_dialog_decides_nothing() {
    let w = gated();
    let _daemon = w.start();
    let mut client = forms(&w);
    let call = client.begin_call("mcp_w_echo", &json!({ "text": "x" }));
    let question = client.wait_method(QUESTION);
    say(&mut client, &question, &json!({ "action": "cancel" }));
    let answer = client.reply(&call);
    assert_eq!(kind(&answer), "approval_waiting", "{answer}");
    assert_eq!((sent(&w), waiting(&w).len()), (0, 1));
    let number = waiting(&w)[0]["id"].as_str().unwrap().to_owned();
    w.ctl(["approvals", "respond", &number, "allow-once"]).succeeds();
    assert_eq!(client.text("mcp_w_echo", &json!({ "text": "x" })), "x");
    for nonsense in
        [json!({ "action": "accept", "content": { "decision": "yes" } }), json!({ "action": "accept" })]
    {
        let call = client.begin_call("mcp_w_echo", &json!({ "text": "y" }));
        let question = client.wait_method(QUESTION);
        say(&mut client, &question, &nonsense);
        let number =
            wait_some("it still waits", SOON, || Some(waiting(&w).first()?["id"].as_str()?.to_owned()));
        assert_eq!(sent(&w), 1);
        w.ctl(["approvals", "respond", &number, "deny"]).succeeds();
        assert_eq!(kind(&client.reply(&call)), "approval_denied");
    }
}

/// A client that takes its call back, or goes away, ends the question; the same call twice is one question.
#[test]
fn a_question_ends_with_its_call() {
    let w = gated();
    let _daemon = w.start();
    let mut client = forms(&w);
    let calls: Vec<Value> =
        (0..2).map(|_| client.begin_call("mcp_w_echo", &json!({ "text": "x" }))).collect();
    let question = client.wait_method(QUESTION);
    assert_eq!(client.request("ping", &json!({}))["result"], json!({}));
    assert!(client.arrived(QUESTION).is_empty());
    let back = |call: &Value| json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": call } });
    calls.iter().for_each(|call| client.send(&back(call)));
    assert_eq!(client.wait_method("notifications/cancelled")["params"]["requestId"], question["id"]);
    wait_for("nothing waits", SOON, || waiting(&w).is_empty());
    client.begin_call("mcp_w_echo", &json!({ "text": "x" }));
    client.wait_method(QUESTION);
    client.kill_hard();
    wait_for("nothing waits", SOON, || waiting(&w).is_empty());
    assert_eq!(sent(&w), 0);
}

/// Only a client that declared it, in a revision that has it, is asked; answers that nobody asked for, also
/// under another connection's id, reach nobody.
#[test]
fn nobody_else_is_asked_and_nobody_else_can_answer() {
    let w = gated();
    let _daemon = w.start();
    let mut asked = forms(&w);
    let call = asked.begin_call("mcp_w_echo", &json!({ "text": "x" }));
    let question = asked.wait_method(QUESTION);
    for (revision, capabilities) in [
        ("2025-11-25", json!({})),
        ("2025-11-25", json!({ "elicitation": { "url": {} } })),
        ("2024-11-05", json!({ "elicitation": {} })),
    ] {
        let mut other = with_forms(&w, revision, &capabilities);
        choose(&mut other, &question, "allow-always");
        other.begin_call("mcp_w_echo", &json!({ "text": "other" }));
        wait_for("it waits", SOON, || waiting(&w).len() == 2);
        assert!(other.arrived(QUESTION).is_empty(), "{revision} {capabilities}");
        other.kill_hard();
        wait_for("it is gone", SOON, || waiting(&w).len() == 1);
    }
    assert_eq!(sent(&w), 0);
    choose(&mut asked, &question, "allow-once");
    assert_eq!(asked.reply(&call)["result"]["content"][0]["text"], "x");
}

/// A daemon that dies with a question open leaves no dialog behind: the shim takes it back, and the late answer
/// means nothing to the next daemon.
#[test]
fn a_lost_daemon_leaves_no_question_open() {
    let w = gated();
    let mut daemon = w.start();
    let mut client = forms(&w);
    let call = client.begin_call("mcp_w_echo", &json!({ "text": "x" }));
    let question = client.wait_method(QUESTION);
    daemon.kill_hard();
    assert_eq!(client.wait_method("notifications/cancelled")["params"]["requestId"], question["id"]);
    assert!(
        client.reply(&call)["result"]["content"][0]["text"].as_str().unwrap().starts_with("outcome unknown")
    );
    choose(&mut client, &question, "allow-always");
    let _daemon = w.start();
    client.wait_tool("mcp_w_echo");
    let call = client.begin_call("mcp_w_echo", &json!({ "text": "x" }));
    // The session goes on, capabilities included.
    let again = client.wait_method(QUESTION);
    choose(&mut client, &again, "deny");
    assert_eq!(kind(&client.reply(&call)), "approval_denied");
    assert_eq!(sent(&w), 0);
}
