//! Legacy HTTP+SSE: chosen, found out, remembered; an endpoint elsewhere is never used.

use crate::world;
use hermes_tests::{Answer, Got, HttpFake, SOON, World, plain, wait_for};
use serde_json::{Value, json};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the stream has to say; the POST side puts it in.
#[derive(Clone)]
struct Pipe(SyncSender<Value>, Arc<Mutex<Receiver<Value>>>);

/// A legacy server whose `endpoint` event names `endpoint`; `piece` cuts what the stream carries.
fn legacy(endpoint: &'static str, piece: usize) -> impl Fn(&Got, &mut Answer<'_>) + Send + Sync {
    let (tx, rx) = sync_channel(64);
    let pipe = Pipe(tx, Arc::new(Mutex::new(rx)));
    move |got, answer| match got.method.as_str() {
        "GET" if got.header("accept") == Some("text/event-stream") => {
            // What an earlier stream left unsaid is gone with it.
            let said = pipe.1.lock().unwrap();
            while said.try_recv().is_ok() {}
            answer.stream(&[]);
            let address = got.header("host").unwrap_or_default();
            let named = endpoint.replace("HOST", address);
            slowly(
                answer,
                piece,
                &format!(": hello\r\n\r\nretry: 5\r\nevent: endpoint\r\ndata: {named}\r\n\r\n"),
            );
            loop {
                match said.recv_timeout(Duration::from_millis(50)) {
                    Ok(message) if message == "end" => return,
                    Ok(message) => {
                        let text = message.to_string();
                        let (a, b) = text.split_at(text.find(",\"").map_or(text.len(), |at| at + 1));
                        let ends = ["\n", "\r\n", "\r"][text.len() % 3];
                        let data = if b.is_empty() {
                            format!("data: {a}{ends}{ends}")
                        } else {
                            format!("data: {a}{ends}data: {b}{ends}{ends}")
                        };
                        slowly(answer, piece, &format!("event: message{ends}{data}"));
                    }
                    Err(_) if !answer.chunk(": ping\n\n") => return,
                    Err(_) => {}
                }
            }
        }
        "POST" if got.target.starts_with("/messages") => {
            if got.json["params"]["arguments"]["text"] == "end the stream" {
                pipe.0.send(json!("end")).unwrap();
            } else if let Some(reply) = plain(&got.json) {
                pipe.0.send(reply).unwrap();
            }
            answer.status(202, &[("content-type", "text/plain")], "Accepted");
        }
        "POST" => answer.status(405, &[("content-type", "text/html")], "<h1>Method Not Allowed</h1>"),
        _ => answer.status(404, &[], ""),
    }
}

fn slowly(answer: &mut Answer<'_>, piece: usize, text: &str) {
    for part in text.as_bytes().chunks(piece) {
        answer.chunk(std::str::from_utf8(part).expect("the tests send ASCII"));
    }
}

fn with(fake: &HttpFake, lines: &[&str]) -> World {
    let url = format!("url: http://{}/sse", fake.address());
    world().entry("r", &[&[url.as_str()], lines].concat())
}

/// A legacy server is called end to end, whatever form its endpoint has, also byte by byte.
#[test]
fn a_legacy_server_is_called_whatever_its_endpoint_looks_like() {
    for (endpoint, piece) in
        [("/messages?session=1", 4096), ("messages?session=2", 1), ("http://HOST/messages/x?session=3", 7)]
    {
        let fake = HttpFake::start(legacy(endpoint, piece));
        let w = with(&fake, &["transport: sse"]);
        let _daemon = w.start();
        let mut client = w.client(&["r"]);
        assert_eq!(client.text("mcp_r_echo", &json!({"text": "hi"})), "hi", "{endpoint}");
        assert_eq!(w.status("r")["transport"], "sse");
        assert!(fake.with_verb("POST").iter().all(|got| got.target.starts_with("/messages")));
    }
}

/// An endpoint at another origin gets nothing, not even the handshake.
#[test]
fn an_endpoint_at_another_origin_gets_nothing() {
    let thief = HttpFake::start(|_, answer| answer.status(202, &[], ""));
    let endpoint: &'static str = Box::leak(format!("http://{}/messages", thief.address()).into_boxed_str());
    let fake = HttpFake::start(legacy(endpoint, 4096));
    let w = with(&fake, &["transport: sse", "headers: {X-Api-Key: sesame-of-the-test}"]);
    let _daemon = w.start();
    wait_for("the start fails", SOON, || {
        w.status("r")["reason"].as_str().unwrap_or_default().contains("at another origin")
    });
    assert_eq!(thief.seen().len(), 0);
}

/// Without `transport` the old transport is found out by a refused POST, and remembered over restarts
/// until the entry changes.
#[test]
fn the_old_transport_is_found_out_and_remembered() {
    let fake = HttpFake::start(legacy("/messages?session=1", 4096));
    let w = with(&fake, &[]);
    let refused = |fake: &HttpFake| fake.with_verb("POST").iter().filter(|got| got.target == "/sse").count();
    {
        let _daemon = w.start();
        let mut client = w.client(&["r"]);
        assert_eq!(client.text("mcp_r_echo", &json!({"text": "hi"})), "hi");
        assert_eq!(refused(&fake), 1, "Streamable HTTP is tried first");
        w.ctl(["servers", "restart", "r"]).succeeds();
        assert_eq!(client.text("mcp_r_echo", &json!({"text": "hi"})), "hi");
        assert_eq!(refused(&fake), 1);
    }
    {
        let _daemon = w.start();
        let mut client = w.client(&["r"]);
        assert_eq!(client.text("mcp_r_echo", &json!({"text": "hi"})), "hi");
        assert_eq!(refused(&fake), 1, "the next daemon knows");
    }
    let w = w.entry("r", &[&format!("url: http://{}/sse", fake.address()), "headers: {X-New: entry}"]);
    let _daemon = w.start();
    w.client(&["r"]);
    assert_eq!(refused(&fake), 2, "another entry is another server");
}

/// `transport: http` is meant: no second transport is tried.
#[test]
fn a_written_transport_is_the_only_one() {
    let fake = HttpFake::start(legacy("/messages", 4096));
    let w = with(&fake, &["transport: http"]);
    let _daemon = w.start();
    wait_for("the start fails", SOON, || {
        w.status("r")["reason"].as_str().unwrap_or_default().contains("405")
    });
    assert_eq!(fake.with_verb("GET").len(), 0);
}

/// Neither transport: the reason has both answers.
#[test]
fn an_address_that_is_no_mcp_server_is_told_with_both_answers() {
    let fake = HttpFake::start(|_, answer| {
        answer.status(404, &[("content-type", "text/html")], "<title>Shop</title>")
    });
    let w = with(&fake, &[]);
    let _daemon = w.start();
    wait_for("the start fails", SOON, || {
        let reason = w.status("r")["reason"].as_str().unwrap_or_default().to_owned();
        reason.contains("HTTP 404: an HTML page, \"Shop\"") && reason.contains("as a legacy SSE server")
    });
}

/// The end of the stream is the end of the session: the next one is a new generation, and said.
#[test]
fn the_end_of_the_stream_is_a_new_generation() {
    let fake = HttpFake::start(legacy("/messages", 4096));
    let w = with(&fake, &["transport: sse"]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    let result = client.call("mcp_r_echo", &json!({"text": "end the stream"}));
    assert_eq!(result["_meta"]["delivery"], "unknown", "{result}");
    wait_for("it is ready again", SOON, || w.phase("r") == "ready" && w.status("r")["generation"] == 2);
    assert_eq!(client.text("mcp_r_echo", &json!({"text": "on"})), "on");
}
