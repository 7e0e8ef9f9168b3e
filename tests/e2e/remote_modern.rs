//! A server that speaks only 2026-07-28: every request says for itself who asks and in which revision.

use crate::world;
use hermes_tests::{Answer, Got, HttpFake, SOON, wait_for};
use serde_json::{Value, json};
use std::time::Duration;

const REVISION: &str = "2026-07-28";

/// A strict server: what is not exactly as the specification has it is refused.
fn modern(got: &Got, answer: &mut Answer<'_>) {
    let refuse = |answer: &mut Answer<'_>, code: i64, message: &str| {
        let data = json!({"supported": [REVISION]});
        let error = json!({"jsonrpc": "2.0", "id": got.json["id"], "error": {"code": code, "message": message, "data": data}});
        answer.status(400, &[("content-type", "application/json")], &error.to_string());
    };
    if got.method != "POST" {
        return answer.status(405, &[], "");
    }
    let meta = &got.json["params"]["_meta"];
    if meta["io.modelcontextprotocol/protocolVersion"] != REVISION {
        return refuse(answer, -32022, "Unsupported protocol version");
    }
    let params = &got.json["params"];
    let name = params["name"].as_str().or(params["uri"].as_str());
    let is_complete = meta["io.modelcontextprotocol/clientCapabilities"].is_object()
        && meta["io.modelcontextprotocol/clientInfo"]["name"] == "hermesd";
    let headers_match = got.header("mcp-protocol-version") == Some(REVISION)
        && got.header("mcp-method") == Some(got.mcp())
        && got.header("mcp-name") == name
        && got.header("mcp-session-id").is_none()
        && got.header("mcp-param-region") == params["arguments"]["region"].as_str();
    if !is_complete || !headers_match {
        return refuse(answer, -32020, "Header mismatch");
    }
    let result = match got.mcp() {
        "server/discover" => json!({
            "supportedVersions": [REVISION],
            "capabilities": {"tools": {"listChanged": true}},
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "modern", "version": "9"}}}),
        "tools/list" => json!({"tools": [
            {"name": "echo", "inputSchema": {"type": "object", "properties": {
                "text": {"type": "string"}, "region": {"type": "string", "x-mcp-header": "Region"}}}},
            {"name": "ask", "inputSchema": {"type": "object"}},
            {"name": "bad", "inputSchema": {"type": "object", "properties": {
                "n": {"type": "number", "x-mcp-header": "N"}}}}]}),
        "tools/call" if params["name"] == "ask" => json!({
            "resultType": "input_required", "requestState": "s",
            "inputRequests": {"a": {"method": "elicitation/create", "params": {}}}}),
        "tools/call" if params["arguments"]["text"] == "hang" => {
            answer.stream(&[]);
            return answer.hold(Duration::from_secs(60));
        }
        "tools/call" => json!({"content": [{"type": "text", "text": params["arguments"]["text"]}]}),
        "subscriptions/listen" => {
            answer.stream(&[]);
            answer.event(&json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {}}));
            answer.event(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
            return answer.hold(Duration::from_secs(60));
        }
        _ => return refuse(answer, -32601, "Method not found"),
    };
    let mut result = result;
    if result["resultType"] == Value::Null {
        result["resultType"] = json!("complete");
    }
    answer.json(&json!({"jsonrpc": "2.0", "id": got.json["id"], "result": result}));
}

/// It is found out, listed, called by a client of another revision, and its news are heard.
#[test]
fn a_server_without_handshake_is_called_by_a_client_with_one() {
    let fake = HttpFake::start(modern);
    let w = world().entry("r", &[&format!("url: {}", fake.url())]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    let arguments = json!({"text": "hi", "region": "us-west1"});
    assert_eq!(client.text("mcp_r_echo", &arguments), "hi");
    let status = w.status("r");
    assert_eq!((&status["protocol_version"], &status["server_name"]), (&json!(REVISION), &json!("modern")));
    assert_eq!(fake.asked("initialize").len(), 1, "the older handshake is tried once");
    assert_eq!(fake.with_verb("GET").len() + fake.with_verb("DELETE").len(), 0);
    assert!(fake.asked("notifications/initialized").is_empty());
    wait_for("its news are heard", SOON, || fake.asked("tools/list").len() >= 2);
    let listen = &fake.asked("subscriptions/listen")[0];
    assert_eq!(listen.json["params"]["notifications"], json!({"toolsListChanged": true}));
}

/// A tool whose arguments cannot be put into headers as it asks is not offered, and that is said.
#[test]
fn a_tool_with_an_impossible_header_is_not_offered() {
    let fake = HttpFake::start(modern);
    let w = world().entry("r", &[&format!("url: {}", fake.url())]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    assert!(!client.tool_names().contains(&"mcp_r_bad".to_owned()));
    assert!(w.status("r")["notes"].to_string().contains("x-mcp-header"), "{}", w.status("r"));
}

/// `protocol: 2026-07-28` asks for nothing else.
#[test]
fn a_pinned_revision_is_used_at_once() {
    let fake = HttpFake::start(modern);
    let w = world().entry("r", &[&format!("url: {}", fake.url()), "protocol: 2026-07-28"]);
    let _daemon = w.start();
    w.client(&["r"]);
    assert!(fake.asked("initialize").is_empty());
}

/// A call that wants input first is a clear error and no half result.
#[test]
fn a_call_that_wants_input_first_says_so() {
    let fake = HttpFake::start(modern);
    let w = world().entry("r", &[&format!("url: {}", fake.url())]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    let result = client.call("mcp_r_ask", &json!({}));
    assert_eq!(result["_meta"]["kind"], "input_required", "{result}");
    assert!(result["content"][0]["text"].as_str().unwrap().contains("elicitation/create"), "{result}");
}

/// A call that is given up is cancelled by closing its stream; no message is sent.
#[test]
fn a_cancelled_call_closes_its_stream() {
    let fake = HttpFake::start(modern);
    let w = world().entry("r", &[&format!("url: {}", fake.url()), "timeout: 1"]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    let result = client.call("mcp_r_echo", &json!({"text": "hang"}));
    assert_eq!(result["_meta"]["kind"], "timeout_idle", "{result}");
    assert_eq!(client.text("mcp_r_echo", &json!({"text": "on"})), "on");
    assert!(fake.asked("notifications/cancelled").is_empty());
}

/// Such a server too is followed and logs: by its subscription stream and by what each request says.
#[test]
fn resources_are_followed_and_log_lines_heard_without_a_handshake() {
    let fake = HttpFake::start(|got: &Got, answer: &mut Answer<'_>| {
        let result = match got.mcp() {
            "server/discover" => json!({"supportedVersions": [REVISION], "capabilities":
                {"tools": {}, "resources": {"subscribe": true}, "logging": {}}}),
            "tools/list" => json!({"tools": [{"name": "talk", "inputSchema": {"type": "object"}}]}),
            "resources/list" => {
                json!({"resources": [{"uri": "r:a", "name": "a"}, {"uri": "r:b", "name": "b"}]})
            }
            "resources/templates/list" => json!({"resourceTemplates": []}),
            "subscriptions/listen" => {
                answer.stream(&[]);
                let uris = got.json["params"]["notifications"]["resourceSubscriptions"].clone();
                for uri in uris.as_array().cloned().unwrap_or_default() {
                    answer.event(&json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}}));
                }
                return answer.hold(Duration::from_secs(60));
            }
            "tools/call" => {
                answer.stream(&[]);
                let level = got.json["params"]["_meta"]["io.modelcontextprotocol/logLevel"].clone();
                if level != Value::Null {
                    answer.event(&json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": level, "data": "said"}}));
                }
                answer.event(&json!({"jsonrpc": "2.0", "id": got.json["id"], "result": {"resultType": "complete", "content": []}}));
                return;
            }
            _ => return modern(got, answer),
        };
        let mut result = result;
        result["resultType"] = json!("complete");
        answer.json(&json!({"jsonrpc": "2.0", "id": got.json["id"], "result": result}));
    });
    let w = world().entry("r", &[&format!("url: {}", fake.url())]);
    let _daemon = w.start();
    let mut client = w.shim();
    client.initialize();
    wait_for("the resources are listed", SOON, || {
        client.request("resources/list", &json!({}))["result"]["resources"].as_array().unwrap().len() == 2
    });
    client.wait_tool("mcp_r_talk");
    for uri in ["r:a", "r:b"] {
        assert_eq!(client.request("resources/subscribe", &json!({"uri": uri}))["result"], json!({}));
        while client.wait_method("notifications/resources/updated")["params"]["uri"] != uri {}
    }
    assert!(fake.asked("resources/subscribe").is_empty(), "that method does not exist there");
    assert_eq!(client.request("resources/unsubscribe", &json!({"uri": "r:a"}))["result"], json!({}));
    wait_for("only the other one is followed", SOON, || {
        let last = fake.asked("subscriptions/listen").last().unwrap().json["params"]["notifications"].clone();
        last["resourceSubscriptions"] == json!(["r:b"])
    });
    client.call("mcp_r_talk", &json!({}));
    assert_eq!(
        client.wait_method("notifications/message")["params"]["level"],
        "info",
        "as older servers do by themselves"
    );
    client.request("logging/setLevel", &json!({"level": "error"}));
    wait_for("calls say the level", SOON, || {
        client.call("mcp_r_talk", &json!({}));
        let calls = fake.asked("tools/call");
        calls.last().unwrap().json["params"]["_meta"]["io.modelcontextprotocol/logLevel"] == "error"
    });
    assert!(fake.asked("logging/setLevel").is_empty());
}
