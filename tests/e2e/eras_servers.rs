//! Servers on pipes that speak only 2026-07-28, used by clients of every revision.

use crate::eras::{Modern, modern, question};
use crate::world;
use hermes_tests::script::Modern as Speaks;
use hermes_tests::{SOON, Script, World, wait_for};
use serde_json::{Value, json};

const QUESTION: &str = "elicitation/create";

fn script() -> Script {
    Script::new().with(|s| s.modern = Speaks::Strict)
}

/// Arguments with which the server wants a form filled in before it finishes.
fn form() -> Value {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    json!({"method": QUESTION, "params": {"mode": "form", "message": "who?", "requestedSchema": schema}})
}

fn got(result: &Value) -> Value {
    serde_json::from_str(result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))).unwrap()
}

fn asked(w: &World, method: &str) -> usize {
    w.journal("w").received(method).len()
}

/// It refuses `initialize` and is asked what it is, by the same process; an old client sees nothing of that.
#[test]
fn an_old_client_uses_a_server_that_opens_no_session() {
    let w = world().server("w", script());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "x"})), "x");
    assert_eq!((asked(&w, "initialize"), asked(&w, "server/discover"), w.journal("w").starts()), (1, 1, 1));
    let call = w.journal("w").received("tools/call")[0].clone();
    assert_eq!(call["params"]["_meta"]["io.modelcontextprotocol/clientInfo"]["name"], "hermesd");
    assert_eq!(call["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"], json!({}));
    // Progress, cancellation and news work as with any other.
    let params = json!({"name": "mcp_w_progress", "arguments": {"n": 2}, "_meta": {"progressToken": "t"}});
    let id = client.begin("tools/call", &params);
    assert_eq!(client.wait_method("notifications/progress")["params"]["progressToken"], "t");
    client.reply(&id);
    let id = client.begin_call("mcp_w_hang", &json!({}));
    wait_for("it is there", SOON, || asked(&w, "tools/call") == 3);
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    wait_for("it is cancelled", SOON, || asked(&w, "notifications/cancelled") == 1);
    client.call("mcp_w_add_tool", &json!({"name": "new"}));
    client.wait_tool("mcp_w_new");
    assert_eq!(asked(&w, "subscriptions/listen"), 1);
    // Found out once: the next process is asked at once in its own way.
    w.ctl(["servers", "restart", "w"]).succeeds();
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "y"})), "y");
    assert_eq!((asked(&w, "initialize"), w.journal("w").starts()), (1, 2));
    for method in ["ping", "logging/setLevel", "notifications/initialized"] {
        assert_eq!(asked(&w, method), 0, "{method}");
    }
}

/// A server that takes its first request for the era of all is asked by a fresh process; so is one that is pinned.
#[test]
fn a_server_that_the_first_request_spoils_gets_a_fresh_process() {
    let spoilt = Script::new().with(|s| s.modern = Speaks::FirstCounts);
    let w = world().server("w", spoilt.clone()).server_with("pinned", spoilt, &["protocol: modern"]);
    let _daemon = w.start();
    let mut client = w.client(&["w", "pinned"]);
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "x"})), "x");
    assert_eq!(client.text("mcp_pinned_echo", &json!({"text": "x"})), "x");
    assert_eq!(w.journal("w").starts(), 2);
    assert_eq!(w.journal("pinned").starts(), 1);
    assert!(w.journal("pinned").received("initialize").is_empty());
}

/// What the server wants becomes an ordinary question to an old client; its answer completes the call. A client
/// that cannot be asked gets the reason, and rounds are bounded.
#[test]
fn an_old_client_is_asked_what_a_new_server_wants() {
    let w = world().server("w", script());
    let _daemon = w.start();
    let mut client = w.shim();
    client.initialize_as("2025-06-18", &json!({"elicitation": {}, "roots": {}}));
    client.wait_tool("mcp_w_ask");
    let call = client.begin_call("mcp_w_ask", &form());
    let question = client.wait_method(QUESTION);
    assert_eq!(question["params"]["message"], "who?");
    let answer = json!({"action": "accept", "content": {"name": "n"}});
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
    let done = got(&client.reply(&call)["result"]);
    assert_eq!(done["got"], answer);
    assert!(done["can"]["elicitation"]["form"].is_object() && done["can"]["roots"].is_object(), "{done}");
    let call = client.begin_call("mcp_w_ask", &json!({"method": "roots/list", "params": {}}));
    let roots = client.wait_method("roots/list");
    client.send(&json!({"jsonrpc": "2.0", "id": roots["id"], "result": {"roots": [{"uri": "file:///r"}]}}));
    assert_eq!(got(&client.reply(&call)["result"])["got"]["roots"][0]["uri"], "file:///r");
    let mut endless = form();
    endless["for_ever"] = json!(true);
    let call = client.begin_call("mcp_w_ask", &endless);
    for _ in 0..10 {
        let question = client.wait_method(QUESTION);
        client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}));
    }
    let given_up = client.reply(&call)["result"].clone();
    assert_eq!((&given_up["isError"], &given_up["_meta"]["kind"]), (&json!(true), &json!("input_required")));
    let mut mute = w.client(&["w"]);
    let refused = mute.call("mcp_w_ask", &form());
    assert_eq!(refused["_meta"]["kind"], "input_required");
    assert!(
        refused["content"][0]["text"].as_str().unwrap().contains("does not support elicitation"),
        "{refused}"
    );
}

/// Both sides of the newest revision: what the server wants ends the client's request, and the answer goes back
/// with the server's own state.
#[test]
fn a_new_client_is_asked_what_a_new_server_wants() {
    let w = world().server("w", script());
    let _daemon = w.start();
    let mut client: Modern = modern(&w, json!({"elicitation": {"form": {}}}));
    client.wait_tool("mcp_w_ask");
    let asks = client.call("mcp_w_ask", &form());
    let (name, wanted) = question(&asks);
    assert_eq!(wanted["params"]["message"], "who?");
    let answer = json!({"action": "accept", "content": {"name": "n"}});
    let done = client.retry("mcp_w_ask", &form(), &asks["requestState"], &json!({ name: answer.clone() }));
    assert_eq!(got(&done["result"])["got"], answer);
    assert_eq!(client.call("mcp_w_echo", &json!({"text": "x"}))["content"][0]["text"], "x");
}

/// A followed resource is part of what the server is listened to for, and its updates arrive.
#[test]
fn an_old_client_follows_a_resource_of_a_new_server() {
    let script = script().with(|s| {
        s.capabilities = Some(json!({"tools": {}, "resources": {"subscribe": true}}));
        let results = [
            ("resources/list", json!({"resources": [{"uri": "note://one", "name": "one"}]})),
            ("resources/templates/list", json!({"resourceTemplates": []})),
        ];
        s.results = results.into_iter().map(|(method, result)| (method.to_owned(), result)).collect();
    });
    let w = world().server("w", script);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    wait_for("it is listed", SOON, || {
        client.request("resources/list", &json!({}))["result"]["resources"].as_array().unwrap().len() == 1
    });
    assert_eq!(client.request("resources/subscribe", &json!({"uri": "note://one"}))["result"], json!({}));
    wait_for("the server is listened to", SOON, || {
        let all = w.journal("w").received("subscriptions/listen");
        all.last().is_some_and(|one| {
            one["params"]["notifications"]["resourceSubscriptions"] == json!(["note://one"])
        })
    });
    let update = json!({"method": "notifications/resources/updated", "params": {"uri": "note://one"}});
    client.call("mcp_w_notify", &update);
    assert_eq!(client.wait_method("notifications/resources/updated")["params"]["uri"], "note://one");
}
