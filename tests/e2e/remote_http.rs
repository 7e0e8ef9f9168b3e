//! Streamable HTTP: a server behind a URL is called like any other, whatever form its answers take.

use crate::world;
use hermes_tests::{Answer, Got, HttpFake, SOON, World, holds_for, plain, plain_server, wait_for};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn with(fake: &HttpFake, lines: &[&str]) -> World {
    let url = format!("url: {}", fake.url());
    world().entry("r", &[&[url.as_str()], lines].concat())
}

/// Streams events in place of JSON, with `before` in front of each answer.
fn streaming(before: &'static [&'static str]) -> impl Fn(&Got, &mut Answer<'_>) + Send + Sync {
    move |got, answer| match (got.method.as_str(), plain(&got.json)) {
        ("POST", Some(reply)) if got.mcp() == "tools/call" => {
            answer.stream(&[]);
            let token = &got.json["params"]["_meta"]["progressToken"];
            before.iter().for_each(|text| {
                answer.chunk(&text.replace("TOKEN", &token.to_string()));
            });
            answer.event(&reply);
        }
        _ => plain_server(got, answer),
    }
}

/// A server that answers in JSON is listed and called; the protocol headers are there when they must be.
#[test]
fn a_json_server_is_called_end_to_end() {
    let fake = HttpFake::start(plain_server);
    let w = with(&fake, &["headers: {X-Api-Key: sesame-of-the-test}"]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    assert_eq!(client.text("mcp_r_echo", &json!({"text": "hi"})), "hi");
    let opening = &fake.asked("initialize")[0];
    assert_eq!(opening.header("accept"), Some("application/json, text/event-stream"));
    assert_eq!(opening.header("content-type"), Some("application/json"));
    assert_eq!(opening.header("mcp-protocol-version"), None, "nothing is agreed on yet");
    let later = [fake.asked("notifications/initialized"), fake.asked("tools/call")].concat();
    assert!(later.iter().all(|got| got.header("mcp-protocol-version") == Some("2025-11-25")));
    assert!(fake.seen().iter().all(|got| got.header("x-api-key") == Some("sesame-of-the-test")));
    assert_eq!(w.status("r")["transport"], "http");
    assert!(!w.ctl(["servers", "show", "r", "--json"]).stdout.contains("sesame"));
}

/// Several messages before the answer: progress reaches the client in order, questions are answered.
#[test]
fn an_event_stream_brings_progress_questions_and_the_answer() {
    let fake = HttpFake::start(streaming(&[
        ": a comment\n\n",
        "id: 1\ndata:\n\n",
        "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":TOKEN,\"progress\":1}}\r\n\r\n",
        "data: {\"jsonrpc\":\"2.0\",\ndata: \"id\":\"q1\",\"method\":\"roots/list\"}\n\n",
        "event: message\rdata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":TOKEN,\"progress\":2}}\r\r",
    ]));
    let w = with(&fake, &[]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    let id = client.begin(
        "tools/call",
        &json!({"name": "mcp_r_echo", "arguments": {"text": "hi"}, "_meta": {"progressToken": "mine"}}),
    );
    assert_eq!(client.reply(&id)["result"]["content"][0]["text"], "hi");
    let steps = client.arrived("notifications/progress");
    let steps: Vec<_> =
        steps.iter().map(|m| (&m["params"]["progressToken"], &m["params"]["progress"])).collect();
    assert_eq!(steps, [(&json!("mine"), &json!(1)), (&json!("mine"), &json!(2))]);
    wait_for("the server's question is answered", SOON, || {
        fake.seen().iter().any(|got| got.json["id"] == "q1" && got.json["result"]["roots"].is_array())
    });
}

/// What is relayed is what was sent: unknown members, number spellings, key order, also over several lines.
#[test]
fn bodies_are_relayed_byte_for_byte() {
    let body = r#"{"content":[{"type":"text","text":"t\u00e4 😀","z":1.0,"a":1e3}],"_meta":{"x":12345678901234567890},"new":{"b":2,"a":[1.10,null]}}"#;
    let pretty = AtomicUsize::new(0);
    let fake = HttpFake::start(move |got, answer| match got.mcp() {
        "tools/call" => {
            let id = &got.json["id"];
            match pretty.fetch_add(1, Ordering::Relaxed) {
                0 => answer.json_text(&[], &format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{body}}}")),
                1 => answer.json_text(
                    &[],
                    &format!("{{\n  \"result\": {body},\r\n  \"id\": {id},\n \"jsonrpc\":\"2.0\"\n}}\n"),
                ),
                2 => {
                    answer.stream(&[]);
                    answer.chunk(&format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{body}}}\n\n"));
                }
                _ => {
                    answer.json_text(&[], &format!("[{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{body}}}]"))
                }
            }
        }
        _ => plain_server(got, answer),
    });
    let w = with(&fake, &[]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    let arguments = r#"{"z":1.0,"big":12345678901234567890,"a":{"y":1e2,"x":"\u00e4"}}"#;
    for id in 101..=104 {
        client.send_raw(
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"mcp_r_echo\",\"arguments\":{arguments}}}}}\n").as_bytes(),
        );
        let message = client.reply_message(&json!(id), SOON);
        assert!(message.raw.contains(body), "answer {id}: {}", message.raw);
    }
    let call = &fake.asked("tools/call")[0];
    assert!(
        String::from_utf8_lossy(&call.body).contains(arguments),
        "{}",
        String::from_utf8_lossy(&call.body)
    );
}

/// Content types with parameters, other spellings and none at all are read; empty bodies are fine.
#[test]
fn content_types_and_empty_bodies_of_the_field_are_taken() {
    let fake = HttpFake::start(|got, answer| match (plain(&got.json), got.mcp()) {
        (Some(reply), "tools/call") => match got.json["params"]["arguments"]["text"]
            .as_str()
            .unwrap_or_default()
        {
            "charset" => {
                answer.raw(b"HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream;charset=utf-8\r\nconnection: close\r\n\r\n");
                answer.raw(format!("data:{reply}\n\n").as_bytes());
                answer.hang_up();
            }
            "untyped" => answer.status(200, &[], &reply.to_string()),
            "plain" => answer.status(200, &[("content-type", "text/plain")], &reply.to_string()),
            "created" => {
                answer.status(201, &[("content-type", "application/json; charset=UTF-8")], &reply.to_string())
            }
            _ => answer.json(&reply),
        },
        (Some(reply), _) => answer.json(&reply),
        // Notifications: whatever a server says is fine.
        (None, "notifications/initialized") => {
            answer.status(200, &[("content-type", "text/html")], "<p>thanks</p>")
        }
        (None, _) if got.method == "POST" => answer.status(204, &[], ""),
        (None, _) => answer.status(405, &[], ""),
    });
    let w = with(&fake, &[]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    for text in ["charset", "untyped", "plain", "created", "json"] {
        assert_eq!(client.text("mcp_r_echo", &json!({"text": text})), text);
    }
}

/// A page for people, and an error page, are told as what they are, with the status.
#[test]
fn a_page_in_place_of_a_message_is_told_as_such() {
    let fake = HttpFake::start(|got, answer| match got.json["params"]["arguments"]["text"].as_str() {
        Some("login") => answer.status(
            200,
            &[("content-type", "text/html; charset=utf-8")],
            "<html><title>Sign in</title>",
        ),
        Some("broken") => {
            answer.status(502, &[("content-type", "text/html")], "<html><head><title>502 Bad Gateway</title>")
        }
        Some("refused") => answer.status(413, &[], "payload too large"),
        Some("empty") => answer.status(200, &[("content-type", "application/json")], ""),
        _ => plain_server(got, answer),
    });
    let w = with(&fake, &["breaker: {threshold: 50}"]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    for (text, wanted, delivery) in [
        ("login", "HTTP 200: an HTML page, \"Sign in\" in place of an MCP message", "unknown"),
        ("broken", "HTTP 502: an HTML page, \"502 Bad Gateway\"", "unknown"),
        ("refused", "HTTP 413: payload too large", "not_written"),
        ("empty", "HTTP 202: no body where an answer was due", "unknown"),
    ] {
        let result = client.call("mcp_r_echo", &json!({"text": text}));
        assert_eq!(result["isError"], true, "{result}");
        let said = result["content"][0]["text"].as_str().unwrap();
        assert!(said.contains(wanted), "{text}: {said}");
        assert_eq!(result["_meta"]["kind"], "http_error");
        assert_eq!(result["_meta"]["delivery"], delivery, "{text}");
    }
    assert!(w.status("r")["notes"].to_string().contains("413"), "{}", w.status("r"));
    assert_eq!(client.text("mcp_r_echo", &json!({"text": "fine"})), "fine");
}

/// A server's own JSON-RPC error counts whatever the status is, with or without the id.
#[test]
fn an_error_of_the_server_passes_under_any_status() {
    let fake = HttpFake::start(|got, answer| {
        let id = match got.json["params"]["arguments"]["text"].as_str() {
            Some("id") => got.json["id"].clone(),
            Some("null") => Value::Null,
            _ => return plain_server(got, answer),
        };
        let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32077, "message": "no such row"}});
        answer.status(400, &[("content-type", "application/json")], &error.to_string());
    });
    let w = with(&fake, &[]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    for text in ["id", "null"] {
        let params = json!({"name": "mcp_r_echo", "arguments": {"text": text}});
        assert_eq!(client.request("tools/call", &params)["error"]["code"], -32077, "{text}");
    }
}

/// A server that keeps sessions: the id is on everything, and DELETE ends it.
#[test]
fn the_session_id_is_sent_and_the_session_is_deleted() {
    let fake = HttpFake::start(|got, answer| match (got.mcp(), plain(&got.json)) {
        ("initialize", Some(reply)) => answer.json_text(&[("Mcp-Session-Id", "s-1")], &reply.to_string()),
        _ if got.header("mcp-session-id") != Some("s-1") => answer.status(400, &[], "no session"),
        _ => plain_server(got, answer),
    });
    let w = with(&fake, &[]);
    let mut daemon = w.start();
    assert_eq!(w.client(&["r"]).text("mcp_r_echo", &json!({"text": "hi"})), "hi");
    daemon.stop();
    let deleted = fake.with_verb("DELETE");
    assert_eq!(deleted.len(), 1);
    assert_eq!(deleted[0].header("mcp-session-id"), Some("s-1"));
}

/// A DELETE that hangs does not keep the daemon from stopping.
#[test]
fn a_hanging_delete_does_not_keep_the_daemon() {
    let fake = HttpFake::start(|got, answer| match (got.method.as_str(), got.mcp(), plain(&got.json)) {
        (_, "initialize", Some(reply)) => answer.json_text(&[("Mcp-Session-Id", "s-1")], &reply.to_string()),
        ("DELETE", ..) => {
            answer.stream(&[]);
            answer.hold(Duration::from_secs(60));
        }
        _ => plain_server(got, answer),
    });
    let w = with(&fake, &[]);
    let mut daemon = w.start();
    w.client(&["r"]);
    let begun = std::time::Instant::now();
    daemon.stop();
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    assert_eq!(fake.with_verb("DELETE").len(), 1);
}

/// A server that forgets its sessions after three calls: ten calls at once all succeed, and each lost
/// session costs one `initialize` for everybody.
#[test]
fn a_lost_session_is_opened_anew_once_for_all() {
    let state: Mutex<(usize, usize)> = Mutex::default();
    let fake = HttpFake::start(move |got, answer| {
        let mut at = state.lock().unwrap();
        let current = format!("s-{}", at.0);
        match (got.mcp(), plain(&got.json)) {
            ("initialize", Some(reply)) => {
                *at = (at.0 + 1, 0);
                let id = format!("s-{}", at.0);
                answer.json_text(&[("Mcp-Session-Id", &id)], &reply.to_string());
            }
            _ if got.header("mcp-session-id") != Some(&current) => {
                answer.status(
                    404,
                    &[("content-type", "application/json")],
                    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#,
                );
            }
            ("tools/call", Some(reply)) => {
                at.1 += 1;
                if at.1 > 3 {
                    answer.status(404, &[], "");
                } else {
                    answer.json(&reply);
                }
            }
            _ => plain_server(got, answer),
        }
    });
    let w = with(&fake, &[]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    let ids: Vec<_> =
        (0..10).map(|n| client.begin_call("mcp_r_echo", &json!({"text": n.to_string()}))).collect();
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(client.reply(id)["result"]["content"][0]["text"], n.to_string());
    }
    // 10 calls in threes: the first session and at most one for each three of the rest.
    assert!((2..=5).contains(&fake.asked("initialize").len()), "{}", fake.asked("initialize").len());
    assert_eq!(w.status("r")["generation"], 1, "a session is not a generation");
    let spoken: BTreeSet<_> = fake
        .asked("tools/call")
        .iter()
        .filter_map(|got| got.header("mcp-session-id").map(str::to_owned))
        .collect();
    assert!(spoken.len() >= 3, "{spoken:?}");
}

/// A server that loses every session at once is not asked for ever; the call says so.
#[test]
fn a_server_that_loses_every_session_is_given_up() {
    let fake = HttpFake::start(|got, answer| match (got.mcp(), plain(&got.json)) {
        ("initialize", Some(reply)) => answer.json_text(&[("Mcp-Session-Id", "s")], &reply.to_string()),
        ("tools/call", _) => answer.status(404, &[], ""),
        _ => plain_server(got, answer),
    });
    let w = with(&fake, &[]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    let before = fake.asked("initialize").len();
    let result = client.call("mcp_r_echo", &json!({"text": "x"}));
    assert_eq!(result["isError"], true);
    assert_eq!(result["_meta"]["delivery"], "not_written", "{result}");
    assert!(result["content"][0]["text"].as_str().unwrap().contains("forgets every session"), "{result}");
    assert!(fake.asked("initialize").len() - before <= 4);
}

/// Every way of refusing the optional stream leaves calls alone, and it is not asked about again soon.
#[test]
fn a_refused_stream_is_harmless() {
    for (code, kind) in [(405, ""), (404, ""), (406, ""), (400, "text/plain"), (401, ""), (200, "text/html")]
    {
        let fake = HttpFake::start(move |got, answer| match got.method.as_str() {
            "GET" => answer.status(code, &[("content-type", kind)], "<p>no</p>"),
            _ => plain_server(got, answer),
        });
        let w = with(&fake, &[]);
        let _daemon = w.start();
        let mut client = w.client(&["r"]);
        wait_for("the stream is asked for", SOON, || fake.with_verb("GET").len() == 1);
        assert!(holds_for(Duration::from_millis(300), || client.text("mcp_r_echo", &json!({"text": "on"}))
            == "on"));
        assert_eq!(fake.with_verb("GET").len(), 1, "{code}");
        assert_eq!(w.phase("r"), "ready", "{code}");
    }
}

/// The stream brings news; when it ends it is opened again where it stopped, and nothing else happens.
#[test]
fn the_stream_brings_news_and_comes_back() {
    let opened = AtomicUsize::new(0);
    let fake = HttpFake::start(move |got, answer| match got.method.as_str() {
        "GET" => {
            let n = opened.fetch_add(1, Ordering::Relaxed);
            answer.stream(&[]);
            answer.chunk(&format!("retry: 10\nid: e{n}\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}}\n\n"));
        }
        _ => plain_server(got, answer),
    });
    let w = with(&fake, &[]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    wait_for("the stream comes back", SOON, || fake.with_verb("GET").len() >= 20);
    let streams = fake.with_verb("GET");
    assert_eq!(streams[0].header("last-event-id"), None);
    assert_eq!(streams[1].header("last-event-id"), Some("e0"));
    wait_for("the list is read again", SOON, || fake.asked("tools/list").len() >= 2);
    assert_eq!(client.text("mcp_r_echo", &json!({"text": "on"})), "on");
    assert_eq!((w.phase("r").as_str(), &w.status("r")["generation"]), ("ready", &json!(1)));
}

/// An answer's stream that breaks off is taken up where it stopped; the call is sent once.
#[test]
fn a_broken_stream_is_resumed_and_the_call_is_not_repeated() {
    let waiting: Mutex<Option<Value>> = Mutex::default();
    let fake = HttpFake::start(move |got, answer| match (got.method.as_str(), got.mcp(), plain(&got.json)) {
        ("POST", "tools/call", Some(reply)) => {
            *waiting.lock().unwrap() = Some(reply);
            answer.stream(&[]);
            answer.chunk("id: call-7\nretry: 20\ndata:\n\n");
            answer.hang_up();
        }
        ("GET", ..) if got.header("last-event-id") == Some("call-7") => {
            answer.stream(&[]);
            let reply = waiting.lock().unwrap().take();
            answer.event(&reply.unwrap());
        }
        _ => plain_server(got, answer),
    });
    let w = with(&fake, &[]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    assert_eq!(client.text("mcp_r_echo", &json!({"text": "late"})), "late");
    assert_eq!(fake.asked("tools/call").len(), 1);
}

/// A stream that breaks off and cannot be resumed: outcome unknown, sent once, other calls unharmed.
#[test]
fn a_broken_answer_is_outcome_unknown() {
    let fake = HttpFake::start(|got, answer| {
        if got.json["params"]["arguments"]["text"] == "cut" {
            answer.stream(&[]);
            answer.chunk(": nothing yet\n\n");
            answer.hang_up();
        } else {
            plain_server(got, answer);
        }
    });
    let w = with(&fake, &[]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    let result = client.call("mcp_r_echo", &json!({"text": "cut"}));
    assert_eq!(result["_meta"]["delivery"], "unknown", "{result}");
    assert!(result["content"][0]["text"].as_str().unwrap().contains("Outcome unknown"), "{result}");
    assert_eq!(fake.asked("tools/call").len(), 1);
    assert_eq!(client.text("mcp_r_echo", &json!({"text": "on"})), "on");
}

/// A call that is given up is cancelled at the server, by message, in the session.
#[test]
fn a_timeout_cancels_at_the_server() {
    let fake = HttpFake::start(|got, answer| {
        if got.mcp() == "tools/call" {
            answer.stream(&[]);
            answer.hold(Duration::from_secs(60));
        } else {
            plain_server(got, answer);
        }
    });
    let w = with(&fake, &["timeout: 1"]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    let result = client.call("mcp_r_slow", &json!({}));
    assert_eq!(result["_meta"]["kind"], "timeout_idle", "{result}");
    wait_for("the server is told", SOON, || fake.asked("notifications/cancelled").len() == 1);
    assert_eq!(
        fake.asked("notifications/cancelled")[0].json["params"]["requestId"],
        fake.asked("tools/call")[0].json["id"]
    );
    assert_eq!(w.phase("r"), "ready");
}

/// Answers over the limit fail their call and nothing else; they are not kept in memory.
#[test]
fn an_answer_over_the_limit_fails_only_its_call() {
    let fake = HttpFake::start(|got, answer| match got.json["params"]["arguments"]["text"].as_str() {
        Some("announced") => {
            answer.raw(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99000000\r\n\r\n{",
            );
            answer.hang_up();
        }
        Some("flood") => {
            answer.stream(&[]);
            let piece = "x".repeat(1 << 20);
            answer.chunk("data: ");
            while answer.chunk(&piece) {}
        }
        _ => plain_server(got, answer),
    });
    let w = with(&fake, &[]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    for text in ["announced", "flood"] {
        let result = client.call("mcp_r_echo", &json!({"text": text}));
        assert_eq!(result["_meta"]["kind"], "answer_too_long", "{text}: {result}");
    }
    assert_eq!(client.text("mcp_r_echo", &json!({"text": "on"})), "on");
}

/// Many calls at once share few connections, and later ones use the same again.
#[test]
fn concurrent_calls_share_connections() {
    let fake = HttpFake::start(plain_server);
    let w = with(&fake, &["max_concurrency: 64"]);
    let _daemon = w.start();
    let mut client = w.client(&["r"]);
    for _ in 0..4 {
        let ids: Vec<_> = (0..64).map(|_| client.begin_call("mcp_r_echo", &json!({"text": "x"}))).collect();
        ids.iter().for_each(|id| drop(client.reply(id)));
    }
    assert_eq!(fake.asked("tools/call").len(), 256);
    assert!(fake.connections() <= 70, "{} connections for 256 calls", fake.connections());
}
