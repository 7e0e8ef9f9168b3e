//! Who shares the process of a server, and whom it can ask: clients kept apart, questions that reach the one
//! client that they are about, and nobody else.

use crate::eras::{modern, question};
use crate::world;
use hermes_tests::{
    Answer, Got, HttpFake, SOON, Script, Shim, World, holds_for, plain_server, wait_for, wait_some,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

fn with(sharing: &str) -> World {
    world().server_with("w", Script::new(), &[&format!("sharing: {sharing}")])
}

/// A client that can be asked everything.
fn able(w: &World) -> Shim {
    client(
        w,
        &json!({
            "sampling": { "tools": {} }, "roots": { "listChanged": true }, "elicitation": { "form": {}, "url": {} }
        }),
    )
}

fn client(w: &World, capabilities: &Value) -> Shim {
    let mut shim = w.shim();
    shim.initialize_as("2025-11-25", capabilities);
    shim.wait_tool("mcp_w_ask");
    shim
}

fn pid(client: &mut Shim) -> String {
    client.text("mcp_w_pid", &json!({}))
}

fn instances(w: &World) -> Vec<Value> {
    w.status("w")["instances"].as_array().cloned().unwrap_or_default()
}

/// Has the server ask the client of `client` something; the answer comes with [`heard`].
fn ask(client: &mut Shim, method: &str, params: &Value) -> Value {
    client.begin_call("mcp_w_ask", &json!({ "method": method, "params": params }))
}

/// What the server heard, as it told the call.
fn heard(client: &mut Shim, call: &Value) -> Value {
    let reply = client.reply(call);
    let text = reply["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{reply}"));
    serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}"))
}

fn say(client: &mut Shim, question: &Value, result: &Value) {
    client.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }));
}

/// `per_client`: each client has a process with a state of its own, which status shows and which ends with it.
#[test]
fn clients_of_a_server_with_one_process_a_client_see_their_own_state() {
    let w = with("per_client");
    let _daemon = w.start();
    let (mut one, mut two) = (able(&w), able(&w));
    for (client, value) in [(&mut one, "first"), (&mut two, "second")] {
        client.text("mcp_w_set", &json!({ "key": "k", "value": value }));
    }
    assert_eq!(one.text("mcp_w_get", &json!({ "key": "k" })), "first");
    assert_eq!(two.text("mcp_w_get", &json!({ "key": "k" })), "second");
    assert_ne!(pid(&mut one), pid(&mut two));
    let shown = instances(&w);
    let serves: Vec<&str> = shown.iter().map(|instance| instance["serves"].as_str().unwrap()).collect();
    assert_eq!(serves, ["client 1", "client 2"]);
    assert!(shown.iter().all(|instance| instance["phase"] == "ready"), "{shown:?}");
    let page = w.ctl(["servers", "show", "w"]).succeeds().stdout;
    assert!(page.contains("per_client") && page.contains("for client 2: ready"), "{page}");
    two.close_stdin();
    wait_for("the process of the client that left is gone", SOON, || instances(&w).len() == 1);
    assert_eq!(one.text("mcp_w_get", &json!({ "key": "k" })), "first");
    // An admin command is nobody's session and gets none.
    w.ctl(["call", "mcp_w_pid"]).succeeds();
    assert_eq!(instances(&w).len(), 1);
}

/// A question reaches the client whose instance asks, under an id of ours, and the answer the server.
#[test]
fn a_server_with_one_process_a_client_asks_its_own_client() {
    let w = with("per_client");
    let _daemon = w.start();
    let (mut one, mut two) = (able(&w), able(&w));
    pid(&mut two);
    for (method, params, answer) in [
        (
            "sampling/createMessage",
            json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": "hi" } }], "maxTokens": 5 }),
            json!({ "role": "assistant", "content": { "type": "text", "text": "ho" }, "model": "m", "x": 1.5 }),
        ),
        (
            "elicitation/create",
            json!({ "mode": "form", "message": "who?", "requestedSchema": { "type": "object", "properties": {} } }),
            json!({ "action": "accept", "content": { "name": "n" } }),
        ),
        (
            "elicitation/create",
            json!({ "mode": "url", "message": "open", "url": "https://h/x", "elicitationId": "e" }),
            json!({ "action": "decline" }),
        ),
        ("roots/list", json!({}), json!({ "roots": [{ "uri": "file:///tmp/p" }] })),
    ] {
        let call = ask(&mut one, method, &params);
        let question = one.wait_method(method);
        assert_eq!(question["params"], params);
        say(&mut one, &question, &answer);
        let told = heard(&mut one, &call);
        assert_eq!((&told["result"], &told["error"]), (&answer, &Value::Null), "{method}");
        assert!(two.arrived(method).is_empty());
    }
    // What a client says no to is its server's to read.
    let call = ask(&mut one, "elicitation/create", &json!({ "message": "m" }));
    let question = one.wait_method("elicitation/create");
    let refusal = json!({ "code": -1, "message": "no dialogs today" });
    one.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "error": refusal }));
    assert_eq!(heard(&mut one, &call)["error"], refusal);
}

/// A client of 2026-07-28 has its own process too, and what that asks ends its request with `input_required`;
/// the same request with the answer completes the call, at the server as well.
#[test]
fn a_client_without_a_session_is_asked_by_its_own_process() {
    let w = with("per_client");
    let _daemon = w.start();
    let mut old = able(&w);
    let mut new = modern(&w, json!({ "elicitation": { "form": {} } }));
    new.wait_tool("mcp_w_ask");
    let theirs = new.call("mcp_w_pid", &json!({}))["content"][0]["text"].as_str().unwrap().to_owned();
    assert_ne!(pid(&mut old), theirs);
    let params = json!({ "mode": "form", "message": "who?", "requestedSchema": { "type": "object", "properties": {} } });
    let arguments = json!({ "method": "elicitation/create", "params": params });
    let asks = new.call("mcp_w_ask", &arguments);
    let (name, asked) = question(&asks);
    assert_eq!((&asked["method"], &asked["params"]), (&json!("elicitation/create"), &params));
    let answer = json!({ "action": "accept", "content": { "name": "n" } });
    let done = new.retry("mcp_w_ask", &arguments, &asks["requestState"], &json!({ name: answer }));
    let text = done["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{done}"));
    assert_eq!(serde_json::from_str::<Value>(text).unwrap()["result"], answer);
    assert!(old.arrived("elicitation/create").is_empty());
    // What it did not declare is declined at once.
    let roots = new.call("mcp_w_ask", &json!({ "method": "roots/list", "params": {} }));
    assert_ne!(roots["resultType"], "input_required", "{roots}");
}

/// An instance declares what its client can do and nothing else; the rest is declined at once.
#[test]
fn what_a_client_cannot_do_is_not_declared_and_declined_at_once() {
    let w = with("per_client");
    let _daemon = w.start();
    let mut plain = client(&w, &json!({ "elicitation": {} }));
    pid(&mut plain);
    let declared: Vec<Value> = w.journal("w").received("initialize");
    let declared: Vec<&Value> = declared.iter().map(|message| &message["params"]["capabilities"]).collect();
    assert_eq!(declared.last(), Some(&&json!({ "elicitation": {} })), "{declared:?}");
    for (method, params, why) in [
        ("sampling/createMessage", json!({ "messages": [] }), "offers no sampling"),
        (
            "elicitation/create",
            json!({ "mode": "url", "message": "m", "url": "https://h/" }),
            "does not support",
        ),
    ] {
        let call = ask(&mut plain, method, &params);
        let error = heard(&mut plain, &call)["error"].clone();
        assert!(error["message"].as_str().unwrap().contains(why), "{error}");
        assert!(plain.arrived(method).is_empty());
    }
    let call = ask(&mut plain, "roots/list", &json!({}));
    assert_eq!(heard(&mut plain, &call)["result"], json!({ "roots": [] }));
}

/// A shared process that asks gets no answer, because nobody can know whom it means; from then on each client
/// has one of its own, also under the next daemon.
#[test]
fn a_shared_server_that_asks_has_one_process_a_client_from_then_on() {
    let w = world().server("w", Script::new());
    let mut daemon = w.start();
    let (mut one, mut two) = (able(&w), able(&w));
    assert_eq!(pid(&mut one), pid(&mut two));
    // Neither of these teaches anything.
    for method in ["ping", "roots/list"] {
        let call = ask(&mut one, method, &json!({}));
        assert_eq!(heard(&mut one, &call)["error"], Value::Null);
    }
    assert_eq!(w.status("w")["sharing"], "shared");
    let call = ask(&mut one, "elicitation/create", &json!({ "message": "m" }));
    let error = heard(&mut one, &call)["error"].clone();
    assert!(error["message"].as_str().unwrap().contains("cannot tell which user"), "{error}");
    wait_for("it is learned", SOON, || w.status("w")["sharing"] == "per_client");
    let notes = w.status("w")["notes"].to_string();
    assert!(notes.contains("elicitation/create") && notes.contains("instance of its own"), "{notes}");
    let call = ask(&mut one, "elicitation/create", &json!({ "message": "m" }));
    let question = one.wait_method("elicitation/create");
    say(&mut one, &question, &json!({ "action": "cancel" }));
    assert_eq!(heard(&mut one, &call)["result"]["action"], "cancel");
    assert_ne!(pid(&mut one), pid(&mut two));
    assert!(two.arrived("elicitation/create").is_empty());
    drop((one, two));
    daemon.stop();
    let _daemon = w.start();
    assert_eq!(w.status("w")["sharing"], "per_client");
}

/// `per_root`: clients in the same folder share a process that is told of it.
#[test]
fn clients_of_one_folder_share_a_process_that_knows_the_folder() {
    let w = with("per_root");
    let _daemon = w.start();
    let mut pids = Vec::new();
    let mut kept = Vec::new();
    for root in ["file:///tmp/a", "file:///tmp/b", "file:///tmp/a"] {
        let mut client = client(&w, &json!({ "roots": {} }));
        let call = client.begin_call("mcp_w_pid", &json!({}));
        let question = client.wait_method("roots/list");
        say(&mut client, &question, &json!({ "roots": [{ "uri": root }] }));
        pids.push(client.reply(&call)["result"]["content"][0]["text"].clone());
        let call = ask(&mut client, "roots/list", &json!({}));
        assert_eq!(heard(&mut client, &call)["result"]["roots"][0]["uri"], root);
        kept.push(client);
    }
    assert_eq!(pids[0], pids[2]);
    assert_ne!(pids[0], pids[1]);
    let serves: Vec<Value> = instances(&w).iter().map(|instance| instance["serves"].clone()).collect();
    assert_eq!(serves.len(), 2, "{serves:?}");
    assert!(serves.contains(&json!("/tmp/b")), "{serves:?}");
    // Without a folder to tell there is the first process.
    let mut nowhere = client(&w, &json!({}));
    assert!(!pids.contains(&json!(pid(&mut nowhere))));
    assert_eq!(instances(&w).len(), 2);
}

/// The server hears at once when the client that it asked is killed, and the others notice nothing.
#[test]
fn a_client_that_dies_while_it_is_asked_costs_nobody_anything() {
    let w = with("per_client");
    let _daemon = w.start();
    let (mut one, mut two) = (able(&w), able(&w));
    let theirs = pid(&mut two);
    ask(&mut one, "elicitation/create", &json!({ "message": "m" }));
    one.wait_method("elicitation/create");
    let of = |serves: &str| instances(&w).into_iter().find(|instance| instance["serves"] == serves);
    let pid_of_one = wait_some("its process", SOON, || of("client 1")?["pid"].as_i64());
    one.kill_hard();
    wait_for("the process that asked is gone", SOON, || {
        w.processes("w").iter().all(|process| i64::from(process.pid) != pid_of_one)
    });
    assert_eq!(pid(&mut two), theirs);
    assert!(two.arrived("elicitation/create").is_empty());
}

/// Changed roots are told to the instance of that client and to no other.
#[test]
fn changed_roots_are_told_where_they_belong() {
    let w = with("per_client");
    let _daemon = w.start();
    let (mut one, mut two) = (able(&w), able(&w));
    pid(&mut one);
    pid(&mut two);
    const CHANGED: &str = "notifications/roots/list_changed";
    one.send(&json!({ "jsonrpc": "2.0", "method": CHANGED }));
    wait_for("its server hears it", SOON, || w.journal("w").received(CHANGED).len() == 1);
    assert!(holds_for(Duration::from_millis(300), || w.journal("w").received(CHANGED).len() == 1));
}

/// `exclusive`: while one client has calls at the server others wait, or are told who has it; the server asks
/// whoever has the turn.
#[test]
fn clients_take_turns_at_an_exclusive_server() {
    let w = world().server_with("w", Script::new(), &["sharing: exclusive", "timeout: 20"]);
    let _daemon = w.start();
    let (mut one, mut two) = (able(&w), able(&w));
    let asking = ask(&mut one, "elicitation/create", &json!({ "message": "m" }));
    let question = one.wait_method("elicitation/create");
    let waits = two.begin_call("mcp_w_pid", &json!({}));
    assert!(two.maybe_reply(&waits, Duration::from_millis(300)).is_none());
    // A call of the client that the server waits for passes, or nothing would ever end.
    let nested = pid(&mut one);
    assert!(two.maybe_reply(&waits, Duration::from_millis(100)).is_none());
    say(&mut one, &question, &json!({ "action": "accept" }));
    assert_eq!(heard(&mut one, &asking)["result"]["action"], "accept");
    assert_eq!(two.reply(&waits)["result"]["content"][0]["text"], nested);
    assert!(two.arrived("elicitation/create").is_empty());
}

/// Who waits for its turn in vain is told who has it, also when that one has given its call up.
#[test]
fn who_waits_in_vain_for_its_turn_is_told_who_has_it() {
    let w = world().server_with("w", Script::new(), &["sharing: exclusive", "timeout: 2"]);
    let _daemon = w.start();
    let (mut one, mut two) = (able(&w), able(&w));
    let before = pid(&mut one);
    let hangs = one.begin_call("mcp_w_hang", &json!({}));
    wait_for("the call is at the server", SOON, || w.status("w")["in_flight"] == 1);
    one.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": hangs } }),
    );
    // The server says nothing about the cancelled call, and may still work on it.
    wait_for("the call was given up", SOON, || w.status("w")["in_flight"] == 0);
    let refused = two.call("mcp_w_pid", &json!({}));
    let text = refused["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(text.contains("one client at a time") && text.contains("client 1 (`tester`)"), "{text}");
    assert_eq!(refused["_meta"]["kind"], "busy");
    // Given-up calls keep nobody out for ever.
    wait_for("another process serves", SOON, || {
        let result = two.call("mcp_w_pid", &json!({}));
        result["isError"] != true && result["content"][0]["text"] != before.as_str()
    });
}

/// Asks on the answer stream of a call, and answers the call with what came back.
fn asks_on_its_stream() -> impl Fn(&Got, &mut Answer<'_>) + Send + Sync {
    let answers: Mutex<BTreeMap<String, Value>> = Mutex::default();
    move |got, answer| match (got.method.as_str(), got.mcp()) {
        ("POST", "tools/call") => {
            let text = got.json["params"]["arguments"]["text"].as_str().unwrap_or_default().to_owned();
            let params =
                json!({ "message": text, "requestedSchema": { "type": "object", "properties": {} } });
            answer.stream(&[]);
            answer.event(
                &json!({ "jsonrpc": "2.0", "id": text, "method": "elicitation/create", "params": params }),
            );
            let came =
                wait_some("the answer to the question", SOON, || answers.lock().unwrap().remove(&text));
            let content = json!([{ "type": "text", "text": came.to_string() }]);
            answer
                .event(&json!({ "jsonrpc": "2.0", "id": got.json["id"], "result": { "content": content } }));
        }
        ("POST", "") if got.json["id"].is_string() => {
            let id = got.json["id"].as_str().unwrap_or_default().to_owned();
            answers.lock().unwrap().insert(id, got.json.clone());
            answer.status(202, &[], "");
        }
        _ => plain_server(got, answer),
    }
}

/// Over HTTP a process serves all: the stream on which a question comes says whom it is about.
#[test]
fn a_question_on_the_answer_stream_of_a_call_reaches_its_caller() {
    let fake = HttpFake::start(asks_on_its_stream());
    let w = world().entry("r", &[&format!("url: {}", fake.url())]);
    let _daemon = w.start();
    let client = |capabilities: &Value| {
        let mut shim = w.shim();
        shim.initialize_as("2025-11-25", capabilities);
        shim.wait_tool("mcp_r_echo");
        shim
    };
    let (mut one, mut two) = (client(&json!({ "elicitation": {} })), client(&json!({ "elicitation": {} })));
    let first = one.begin_call("mcp_r_echo", &json!({ "text": "for one" }));
    let second = two.begin_call("mcp_r_echo", &json!({ "text": "for two" }));
    for (client, call, text) in [(&mut two, &second, "for two"), (&mut one, &first, "for one")] {
        let question = client.wait_method("elicitation/create");
        assert_eq!(question["params"]["message"], text);
        say(client, &question, &json!({ "action": "accept", "content": { "said": text } }));
        assert_eq!(heard(client, call)["result"]["content"]["said"], text);
        assert!(client.arrived("elicitation/create").is_empty());
    }
    let declared = &fake.asked("initialize")[0].json["params"]["capabilities"];
    assert_eq!(declared["elicitation"], json!({ "form": {}, "url": {} }));
    let mut plain = client(&json!({}));
    let call = plain.begin_call("mcp_r_echo", &json!({ "text": "for nobody" }));
    assert!(heard(&mut plain, &call)["error"]["message"].as_str().unwrap().contains("does not support"));
    assert_eq!(w.status("r")["sharing"], "shared");
}
