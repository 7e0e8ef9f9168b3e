//! Who may use the HTTP listener, and what it says to requests that are none.

use crate::world;
use hermes_tests::{HttpClient, SOON, Script, World, wait_for};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

const LISTEN: &str = "hermesd: {http: {listen: '127.0.0.1:0'}}";

fn ping() -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })
}

fn hello() -> Value {
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize",
            "params": { "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } })
}

fn status(client: &HttpClient, message: &Value) -> u16 {
    client.post(message).status
}

/// Without the token nothing is answered and no session begins; the token's file is private and its text in no log.
#[test]
fn nobody_gets_in_without_the_token() {
    let w = world().yaml(LISTEN);
    let daemon = w.start();
    let client = w.http();
    let token = client.token.clone().unwrap();
    let file = w.home().join("hermesd/http-token");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    for wrong in [None, Some("wrong"), Some(&token[..token.len() - 1])] {
        let stranger = HttpClient { token: wrong.map(ToOwned::to_owned), ..client.clone() };
        let mut reply = stranger.post(&hello());
        assert_eq!(reply.status, 401);
        assert!(reply.header("www-authenticate").unwrap().starts_with("Bearer"));
        assert_eq!(reply.header("mcp-session-id"), None);
        assert!(!reply.json()["error"]["message"].as_str().unwrap().contains(&token));
    }
    assert!(w.ctl(["status", "--json"]).succeeds().json()["clients"].as_array().unwrap().is_empty());
    let session = client.initialize(&json!({}));
    assert_eq!(status(&session, &ping()), 200);
    assert!(!daemon.output().contains(&token) && !w.ctl(["status", "--json"]).stdout.contains(&token));
}

/// A web page cannot use it: not by a name that was rebound to this machine, not from another origin.
#[test]
fn web_pages_get_no_answer_and_have_no_effect() {
    let w = world().server("w", Script::new()).yaml(LISTEN);
    let _daemon = w.start();
    let client = w.http();
    let own = client.authority.clone();
    let port = own.split(':').nth(1).unwrap();
    for (name, value) in [
        ("Host", "evil.example"),
        ("Host", &format!("evil.example:{port}")),
        ("Host", "127.0.0.1.evil.example"),
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
        ("Origin", "http://localhost:3000"),
        ("Origin", &format!("http://evil.example:{port}")),
    ] {
        let reply = client.with(name, value).post(&hello());
        assert_eq!((reply.status, reply.header("mcp-session-id")), (403, None), "{name}: {value}");
        assert_eq!(reply.header("access-control-allow-origin"), None);
    }
    assert!(w.ctl(["status", "--json"]).succeeds().json()["clients"].as_array().unwrap().is_empty());
    for (name, value) in [("Host", format!("LOCALHOST:{port}")), ("Origin", format!("http://{own}"))] {
        assert_eq!(client.with(name, &value).post(&hello()).status, 200, "{name}: {value}");
    }
    let preflight = client.with("Origin", &format!("http://{own}")).send("OPTIONS", "/mcp", b"");
    assert_eq!((preflight.status, preflight.header("access-control-allow-origin")), (405, None));
}

/// Each mistake of a client has the status that the protocol names.
#[test]
fn mistakes_have_their_status() {
    let w = world().yaml(LISTEN);
    let _daemon = w.start();
    let http = w.http();
    let client = http.initialize(&json!({}));
    let post = |client: &HttpClient, body: &str| client.send("POST", "/mcp", body.as_bytes()).status;
    let ping = ping().to_string();
    assert_eq!(client.send("GET", "/", b"").status, 404);
    assert_eq!(client.send("PUT", "/mcp", b"").status, 405);
    assert_eq!(post(&http, &ping), 400, "no session");
    assert_eq!(post(&http.in_session("feed"), &ping), 404, "no such session");
    assert_eq!(post(&client.with("Content-Type", "text/plain"), &ping), 415);
    assert_eq!(post(&client.with("Accept", "application/json"), &ping), 406);
    assert_eq!(client.with("Accept", "application/json").send("GET", "/mcp", b"").status, 406);
    for bad in ["", "{", "{}", "[]", "3", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\nb\"}"] {
        assert_eq!(post(&client, bad), 400, "{bad}");
    }
    let mut other = http.clone();
    other.headers = client.headers.clone();
    other.headers.retain(|(name, _)| name != "MCP-Protocol-Version");
    assert_eq!(post(&other, &ping), 200, "clients before 2025-06-18 do not name the revision");
    assert_eq!(post(&other.with("MCP-Protocol-Version", "1999-01-01"), &ping), 400);
    let large = client.raw(
        &format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: 99999999\r\n\r\n",
            http.token.as_deref().unwrap()
        ),
        b"",
    );
    assert_eq!(large.status, 413);
    assert_eq!(post(&client, &ping), 200, "the session lives");
}

/// A token names its profile: what that does not show is not there; a session belongs to its token.
#[test]
fn the_token_decides_what_is_seen() {
    let tokens = "hermesd:\n  profiles: {work: {servers: [b]}}\n  http: {listen: '127.0.0.1:0', token: {default: token-of-the-test-0001, work: token-of-the-test-0002}}";
    let w = world().server("a", Script::new()).server("b", Script::new()).yaml(tokens);
    let daemon = w.start();
    let with = |token: &str| HttpClient { token: Some(token.to_owned()), ..w.http() };
    let (all, work) = (
        with("token-of-the-test-0001").initialize(&json!({})),
        with("token-of-the-test-0002").initialize(&json!({})),
    );
    let names = |client: &HttpClient| -> Vec<String> {
        let tools = client.request(&json!(1), "tools/list", &json!({}))["result"]["tools"].clone();
        tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    wait_for("both servers are listed", SOON, || {
        let names = names(&all);
        ["mcp_a_echo", "mcp_b_echo"].iter().all(|tool| names.iter().any(|name| name == tool))
    });
    wait_for("one of them is listed", SOON, || names(&work).iter().any(|name| name == "mcp_b_echo"));
    assert!(names(&work).iter().all(|name| !name.starts_with("mcp_a_")));
    let stolen = HttpClient { token: Some("token-of-the-test-0002".to_owned()), ..all.clone() };
    assert_eq!(status(&stolen, &ping()), 404, "a session of another token");
    assert!(!daemon.output().contains("token-of-the-test"));
}

/// `names: raw` in a profile with one server: tools are called as their server calls them.
#[test]
fn a_profile_of_one_server_may_have_raw_names() {
    let w = world().server("w", Script::new()).yaml(
        "hermesd:\n  conversations: off\n  profiles: {default: {names: raw}}\n  http: {listen: '127.0.0.1:0', token: off}",
    );
    let _daemon = w.start();
    let client = w.http().initialize(&json!({}));
    wait_for("the tool is listed under its own name", SOON, || {
        let tools = client.request(&json!(1), "tools/list", &json!({}))["result"]["tools"].clone();
        tools.as_array().unwrap().iter().any(|tool| tool["name"] == "echo")
    });
    let said =
        client.request(&json!(2), "tools/call", &json!({ "name": "echo", "arguments": { "text": "raw" } }));
    assert_eq!(said["result"]["content"][0]["text"], "raw");
    let findings = w.ctl(["status", "--json"]).succeeds().json()["findings"].clone();
    let open = findings.as_array().unwrap().iter().any(|finding| finding["key"] == "hermesd.http.token");
    assert!(open, "an open listener is warned of: {findings}");
}

/// Nobody knows which program is behind a token: approvals are not decided over HTTP.
#[test]
fn approvals_are_not_decided_over_http() {
    let w: World = world()
        .server_with("w", Script::new(), &["approval: [echo]"])
        .yaml("hermesd: {conversations: on, http: {listen: '127.0.0.1:0'}}");
    let _daemon = w.start();
    let client = w.http().initialize(&json!({ "elicitation": {} }));
    let listed = |client: &HttpClient| {
        let tools = client.request(&json!(1), "tools/list", &json!({}))["result"]["tools"].clone();
        tools.as_array().unwrap().iter().any(|tool| tool["name"] == "mcp_w_echo")
    };
    wait_for("the tool is listed", SOON, || listed(&client));
    let gated = std::thread::spawn({
        let client = client.clone();
        let params = json!({ "name": "mcp_w_echo", "arguments": { "text": "x" } });
        move || client.request(&json!("gated"), "tools/call", &params)
    });
    let waiting = || w.ctl(["approvals", "--json"]).succeeds().json()["waiting"].clone();
    wait_for("the call waits", SOON, || waiting().as_array().unwrap().len() == 1);
    let id = waiting()[0]["id"].as_str().map_or_else(|| waiting()[0]["id"].to_string(), ToOwned::to_owned);
    let second = w.http().initialize(&json!({}));
    let decide =
        json!({ "name": "permissions_respond", "arguments": { "id": id, "decision": "allow-once" } });
    let refused = second.request(&json!(2), "tools/call", &decide);
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    assert!(refused.to_string().contains("over HTTP"), "{refused}");
    w.ctl(["approvals", "respond", &id, "allow-once"]).succeeds();
    assert_eq!(gated.join().unwrap()["result"]["content"][0]["text"], "x");
    assert_eq!(w.journal("w").received("tools/call").len(), 1);
}
