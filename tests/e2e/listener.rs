//! MCP over HTTP: clients that are not on stdio get the same sessions.

use crate::world;
use hermes_tests::{HttpClient, SOON, Script, World, holds_for, wait_for};
use serde_json::{Value, json};
use std::time::Duration;

const LISTEN: &str = "hermesd: {http: {listen: '127.0.0.1:0'}}";

fn with_http(script: Script) -> World {
    world().server("w", script).yaml(LISTEN)
}

/// A client in a session that sees the tools of `w`.
fn client(w: &World) -> HttpClient {
    let client = w.http().initialize(&json!({}));
    wait_for("the tools are listed", SOON, || {
        let tools = client.request(&json!("list"), "tools/list", &json!({}))["result"]["tools"].clone();
        tools.as_array().unwrap().iter().any(|tool| tool["name"] == "mcp_w_echo")
    });
    client
}

fn call(id: impl Into<Value>, tool: &str, arguments: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": "tools/call",
            "params": { "name": format!("mcp_w_{tool}"), "arguments": arguments, "_meta": { "progressToken": "t" } } })
}

/// A call over HTTP is answered as JSON; ids, numbers and unknown members are those that were sent.
#[test]
fn bodies_are_passed_on_byte_for_byte() {
    let w = with_http(Script::new());
    let _daemon = w.start();
    let client = client(&w);
    let arguments = r#"{"z":1.0,"a":12345678901234567890,"m":{"k":[1e2,1,"\u2028é"]},"":null}"#;
    let body = format!(
        "{{\"jsonrpc\":\"2.0\",\r\n\"id\":12345678901234567890,\n \"method\":\"tools/call\",\"params\":{{\"name\":\"mcp_w_raw_args\",\"arguments\":{arguments}}}}}"
    );
    let mut reply = client.send("POST", "/mcp", body.as_bytes());
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let text = String::from_utf8(reply.body()).unwrap();
    assert!(text.contains(r#""id":12345678901234567890,"#), "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], arguments);
    let result = r#"{"zeta":1,"content":[{"type":"text","text":"\u00e9 \/","unknown":{"b":1.0,"a":1e3}}],"_meta":{"x/y":true},"later":"ok"}"#;
    let mut reply = client.post(&call("r", "answer", &json!({ "result": result })));
    let text = String::from_utf8(reply.body()).unwrap();
    assert!(text.contains(result), "{text}");
}

/// Progress comes on the stream of its own call, before the answer, and the stream ends with it.
#[test]
fn progress_comes_on_the_stream_of_its_call() {
    let w = with_http(Script::new());
    let _daemon = w.start();
    let client = client(&w);
    let mut one = client.post(&call(1, "progress", &json!({ "n": 4, "every_ms": 20 })));
    let other = client.with("X-Other", "1");
    let mut two = other.post(&{
        let mut two = call(2, "progress", &json!({ "n": 3, "every_ms": 20 }));
        two["params"]["_meta"]["progressToken"] = json!(7);
        two
    });
    assert!(one.is_stream() && two.is_stream());
    for (stream, token, steps, id) in [(&mut one, json!("t"), 4, 1), (&mut two, json!(7), 3, 2)] {
        for step in 1..=steps {
            let message = stream.message().unwrap();
            assert_eq!(message["params"]["progressToken"], token, "{message}");
            assert_eq!(message["params"]["progress"], step);
        }
        let answer = stream.message().unwrap();
        assert_eq!(
            (answer["id"].clone(), answer["result"]["content"][0]["text"].clone()),
            (json!(id), json!("done"))
        );
        assert_eq!(stream.event(), None, "the stream ends with the answer");
    }
}

/// A client that lost its connection goes on behind the last event it saw: nothing twice, nothing lost.
#[test]
fn a_broken_stream_goes_on_where_it_broke() {
    let w = with_http(Script::new());
    let _daemon = w.start();
    let client = client(&w);
    let mut first = client.post(&call("long", "progress", &json!({ "n": 6, "every_ms": 100 })));
    let opening = first.event().unwrap();
    assert!(opening.data.is_empty() && opening.id.is_some(), "an event to come back to: {opening:?}");
    let seen = first.event().unwrap();
    assert_eq!(seen.json()["params"]["progress"], 1);
    drop(first);
    let mut rest = client.with("Last-Event-ID", seen.id.as_deref().unwrap()).send("GET", "/mcp", b"");
    assert_eq!(rest.status, 200);
    let steps: Vec<Value> = (2..=6).map(|_| rest.message().unwrap()["params"]["progress"].clone()).collect();
    assert_eq!(steps, [2, 3, 4, 5, 6].map(Value::from));
    assert_eq!(rest.message().unwrap()["id"], "long");
    assert_eq!(rest.event(), None);
    let mut lost = client.with("Last-Event-ID", "99-1").send("GET", "/mcp", b"");
    assert_eq!((lost.status, lost.json()["error"]["code"].clone()), (400, json!(-32600)));
}

/// What belongs to no request comes on the stream of a GET; a second one at the same time is refused.
#[test]
fn changes_of_the_lists_come_on_the_general_stream() {
    let w = with_http(Script::new());
    let _daemon = w.start();
    let client = client(&w);
    let mut general = client.send("GET", "/mcp", b"");
    assert!(general.status == 200 && general.is_stream());
    assert_eq!(client.send("GET", "/mcp", b"").status, 409);
    let mut added = client.post(&call(1, "add_tool", &json!({ "name": "extra_one" })));
    assert_eq!(added.json()["result"]["content"][0]["text"], "will add");
    let heard = std::iter::from_fn(|| general.message());
    let methods = heard.map(|message| message["method"].as_str().unwrap_or_default().to_owned());
    assert!(methods.into_iter().any(|method| method == "notifications/tools/list_changed"));
}

/// Two sessions never see each other's answers; DELETE ends one, and its calls at the server with it.
#[test]
fn sessions_are_kept_apart_and_end_with_delete() {
    let w = with_http(Script::new());
    let _daemon = w.start();
    let (a, b) = (client(&w), client(&w));
    let (mut first, mut second) = (
        a.post(&call("same", "echo", &json!({ "text": "a" }))),
        b.post(&call("same", "echo", &json!({ "text": "b" }))),
    );
    assert_eq!(first.json()["result"]["content"][0]["text"], "a");
    assert_eq!(second.json()["result"]["content"][0]["text"], "b");
    let hanging = std::thread::spawn({
        let a = a.clone();
        move || a.post(&call("hangs", "hang", &json!({}))).event()
    });
    wait_for("the call is at the server", SOON, || {
        w.journal("w").received("tools/call").iter().any(|event| event["params"]["name"] == "hang")
    });
    assert_eq!(a.send("DELETE", "/mcp", b"").status, 204);
    wait_for("it is cancelled there", SOON, || {
        !w.journal("w").received("notifications/cancelled").is_empty()
    });
    hanging.join().unwrap();
    wait_for("the session is gone", SOON, || a.post(&call(9, "echo", &json!({ "text": "x" }))).status == 404);
    assert_eq!(b.request(&json!(5), "ping", &json!({}))["result"], json!({}));
    assert_eq!(
        b.in_session("0123").post(&call(9, "echo", &json!({}))).status,
        400,
        "of two ids neither is believed"
    );
}

/// A client that closes its connection takes nothing back: in a session only a cancellation does.
#[test]
fn a_closed_connection_cancels_nothing() {
    let w = with_http(Script::new());
    let _daemon = w.start();
    let client = client(&w);
    let streaming = client.post(&call("c", "progress", &json!({ "n": 8, "every_ms": 100 })));
    drop(streaming);
    assert!(holds_for(Duration::from_millis(600), || w
        .journal("w")
        .received("notifications/cancelled")
        .is_empty()));
    let mut hanging = client.clone();
    hanging.headers.push(("X-Test".to_owned(), "1".to_owned()));
    let waiting = std::thread::spawn(move || hanging.post(&call("h", "hang", &json!({}))).status);
    wait_for("the call is at the server", SOON, || {
        w.journal("w").received("tools/call").iter().any(|event| event["params"]["name"] == "hang")
    });
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": "h" } });
    assert_eq!(client.post(&cancel).status, 202);
    wait_for("it is cancelled there", SOON, || {
        !w.journal("w").received("notifications/cancelled").is_empty()
    });
    assert_eq!(client.send("DELETE", "/mcp", b"").status, 204);
    waiting.join().unwrap();
}

/// Status shows where the listener is, and says so when the port is taken; it opens once the port is free.
#[test]
fn a_taken_port_is_told_and_tried_again() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let w = world().yaml(&format!("hermesd: {{http: {{listen: {port}}}}}"));
    let _daemon = w.start();
    wait_for("the trouble is told", SOON, || {
        let doctor = w.ctl(["doctor", "--json"]).json();
        doctor.as_array().unwrap().iter().any(|finding| finding["key"] == "hermesd.http.listen")
    });
    assert!(w.ctl(["status"]).stdout.contains("not open: cannot listen on 127.0.0.1"));
    drop(other);
    w.http().initialize(&json!({}));
    let text = w.ctl(["status"]).stdout;
    assert!(text.contains(&format!("http           http://127.0.0.1:{port}/mcp (token in ")), "{text}");
    assert!(text.contains("tester"), "the client is shown: {text}");
    wait_for("the finding goes away", SOON, || {
        let doctor = w.ctl(["doctor", "--json"]).json();
        doctor.as_array().unwrap().iter().all(|finding| finding["key"] != "hermesd.http.listen")
    });
}

/// A changed section is taken over while the daemon runs: sessions of the old one are over.
#[test]
fn the_listener_follows_its_section() {
    let w = world();
    let _daemon = w.start();
    assert!(w.ctl(["status", "--json"]).succeeds().json()["http"].is_null());
    let config = w.home().join("config.yaml");
    std::fs::write(&config, format!("{LISTEN}\n")).unwrap();
    w.ctl(["reload"]).succeeds();
    let client = w.http().initialize(&json!({}));
    w.ctl(["reload"]).succeeds();
    assert_eq!(
        client.request(&json!(1), "ping", &json!({}))["result"],
        json!({}),
        "nothing changed, nothing ends"
    );
    std::fs::write(&config, "hermesd: {http: {listen: '127.0.0.1:0', token: token-of-the-test-0001}}\n")
        .unwrap();
    w.ctl(["reload"]).succeeds();
    let fresh = wait_new(&w, &client.authority);
    assert_eq!(fresh.post(&json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })).status, 401);
    let mut known = fresh.clone();
    known.token = Some("token-of-the-test-0001".to_owned());
    known.initialize(&json!({}));
    std::fs::write(&config, "mcp_servers: {}\n").unwrap();
    w.ctl(["reload"]).succeeds();
    wait_for("the listener is closed", SOON, || std::net::TcpStream::connect(&known.authority).is_err());
}

/// The listener at another address than `old`.
fn wait_new(w: &World, old: &str) -> HttpClient {
    wait_for("the listener has moved", SOON, || w.http().authority != old);
    w.http()
}

/// Ending the daemon answers what is open over HTTP and ends at once, open streams or not.
#[test]
fn open_streams_do_not_hold_up_the_end() {
    let w = with_http(Script::new());
    let mut daemon = w.start();
    let client = client(&w);
    let mut general = client.send("GET", "/mcp", b"");
    assert!(daemon.stop().success());
    while general.event().is_some() {}
}

/// Whatever asks is never taken for a request: batches of 2025-03-26 are, with all answers in one response.
#[test]
fn a_batch_is_answered_in_one_response() {
    let w = with_http(Script::new());
    let _daemon = w.start();
    let http = w.http();
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": { "protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let reply = http.post(&hello);
    let old = http.with("Mcp-Session-Id", reply.header("mcp-session-id").unwrap());
    let mut reply = old.post(&json!([
        { "jsonrpc": "2.0", "id": 1, "method": "ping" },
        { "jsonrpc": "2.0", "method": "notifications/initialized" },
        { "jsonrpc": "2.0", "id": "two", "method": "ping" },
    ]));
    let mut ids: Vec<String> =
        reply.json().as_array().unwrap().iter().map(|one| one["id"].to_string()).collect();
    ids.sort();
    assert_eq!(ids, ["\"two\"", "1"]);
    let mut refused = client(&w).post(&json!([{ "jsonrpc": "2.0", "id": 1, "method": "ping" }]));
    assert_eq!(refused.json()["error"]["code"], -32600);
}

/// Clients that never say good-bye do not shut out new ones: the session that is idle for longest makes room.
#[test]
fn sessions_that_nobody_uses_make_room() {
    let w = world().yaml(LISTEN);
    let _daemon = w.start();
    let http = w.http();
    let first = http.initialize(&json!({}));
    let listening = http.initialize(&json!({}));
    let _general = listening.send("GET", "/mcp", b"");
    let mut last = first.clone();
    for _ in 0..127 {
        last = http.initialize(&json!({}));
    }
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    wait_for("the oldest one is gone", SOON, || first.post(&ping).status == 404);
    assert_eq!((listening.post(&ping).status, last.post(&ping).status), (200, 200), "who is there stays");
}
