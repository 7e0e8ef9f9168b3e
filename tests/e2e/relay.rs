//! A call through hermesd: nothing is changed, mixed up, or held up by another.

use crate::world;
use hermes_tests::{SOON, Script, Shim, wait_for};
use serde_json::{Value, json};

/// Ids come back as the same JSON value, whatever kind they are.
#[test]
fn ids_come_back_as_they_were_sent() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    for id in
        [r#""a""#, r#""1""#, "1", "0", "-5", "9007199254740993", "12345678901234567890", r#""""#, r#""日本""#]
    {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"mcp_w_echo","arguments":{{"text":"x"}}}}}}"#
        );
        client.send_raw(format!("{line}\n").as_bytes());
        let value: Value = serde_json::from_str(id).unwrap();
        let answer = client.reply_message(&value, SOON);
        assert!(answer.raw.contains(&format!(r#""id":{id}"#)), "{}", answer.raw);
        assert_eq!(answer.value["result"]["content"][0]["text"], "x");
    }
}

/// A request whose id is null, a boolean or an object is invalid, and the stream goes on.
#[test]
fn impossible_ids_are_refused() {
    let w = world();
    let _daemon = w.start();
    let mut client = w.client(&[]);
    for id in ["null", "true", "{}", "[1]"] {
        client.send_raw(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}{}"#, "\n").as_bytes());
        let answer = client.reply(&Value::Null);
        assert_eq!(answer["error"]["code"], -32600, "{id}: {answer}");
    }
    assert!(client.request("ping", &json!({}))["result"].is_object());
}

/// What is no JSON-RPC 2.0 request is answered under its own id, reaches no server, and the stream goes on.
#[test]
fn requests_of_another_protocol_are_refused_under_their_id() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let call = r#""method":"tools/call","params":{"name":"mcp_w_echo","arguments":{"text":"x"}}"#;
    for (id, line) in [
        (json!(801), format!(r#"{{"id":801,{call}}}"#)),
        (json!("a"), format!(r#"{{"jsonrpc":"1.0","id":"a",{call}}}"#)),
        (json!(803), format!(r#"{{"jsonrpc":2.0,"id":803,{call}}}"#)),
        (json!(804), r#"{"jsonrpc":"2.0","id":804,"method":5}"#.to_owned()),
        (Value::Null, r#"{"jsonrpc":"2.0","method":["tools/list"]}"#.to_owned()),
    ] {
        client.send_raw(format!("{line}\n").as_bytes());
        let answer = client.reply(&id);
        assert_eq!(answer["error"]["code"], -32600, "{line}: {answer}");
    }
    assert!(w.journal("w").received("tools/call").is_empty());
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "on"})), "on");
}

/// A result is passed on byte for byte: unknown members, numbers, key order.
#[test]
fn results_are_lossless() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let result = r#"{"zeta":1,"content":[{"type":"text","text":"\u00e9 \/","unknown":{"b":1.0,"a":1e3}},{"type":"new_kind","q":[12345678901234567890,0.10]}],"structuredContent":{"z":-0.0,"a":null},"_meta":{"x/y":true},"later":"ok"}"#;
    let id = client.begin_call("mcp_w_answer", &json!({"result": result}));
    let answer = client.reply_message(&id, SOON);
    assert!(answer.raw.contains(result), "{}", answer.raw);
}

/// Arguments reach the server byte for byte.
#[test]
fn arguments_are_lossless() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let arguments = r#"{"z":1.0,"a":12345678901234567890,"m":{"k":[1e2,1,"\u2028é"]},"":null}"#;
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":"args","method":"tools/call","params":{{"name":"mcp_w_raw_args","arguments":{arguments}}}}}"#
    );
    client.send_raw(format!("{line}\n").as_bytes());
    let answer = client.reply(&json!("args"));
    assert_eq!(answer["result"]["content"][0]["text"], arguments);
}

/// Errors of a tool and errors of the server stay what they are.
#[test]
fn errors_keep_their_kind_code_and_data() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let failed = client.call("mcp_w_fail", &json!({}));
    assert_eq!(failed["isError"], true);
    assert_eq!(failed["content"], json!([{"type": "text", "text": "boom"}]));
    assert_eq!(failed["extra"].to_string(), r#"{"n":1.0}"#);
    let params = json!({"name": "mcp_w_rpc_error", "arguments": {"code": -32042, "message": "quota", "data": {"left": 0}}});
    let answer = client.request("tools/call", &params);
    assert_eq!(answer["error"], json!({"code": -32042, "message": "quota", "data": {"left": 0}}));
}

/// A tool nobody offers is a JSON-RPC error.
#[test]
fn an_unknown_tool_is_an_error() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let answer = client.request("tools/call", &json!({"name": "mcp_w_nope", "arguments": {}}));
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

/// A slow call holds up nobody: not its own client, not another one.
#[test]
fn there_is_no_head_of_line_blocking() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut slow = w.client(&["w"]);
    let mut quick = w.client(&["w"]);
    let id = slow.begin_call("mcp_w_sleep", &json!({"ms": 600_000}));
    wait_for("the slow call is at the server", SOON, || !w.journal("w").received("tools/call").is_empty());
    assert_eq!(slow.text("mcp_w_echo", &json!({"text": "same client"})), "same client");
    assert_eq!(quick.text("mcp_w_echo", &json!({"text": "other client"})), "other client");
    assert_eq!(slow.maybe_reply(&id, std::time::Duration::ZERO), None);
}

/// Many large requests at once: no line is torn, each gets its own answer.
#[test]
fn parallel_large_requests_do_not_mix() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let text = |n: usize| format!("{n}:{}", "x".repeat(100_000));
    let ids: Vec<_> =
        (0..60).map(|n| (n, client.begin_call("mcp_w_echo", &json!({"text": text(n)})))).collect();
    for (n, id) in ids {
        let answer = client.reply(&id);
        assert_eq!(answer["result"]["content"][0]["text"].as_str(), Some(text(n).as_str()));
    }
    assert!(w.journal("w").events("bad_line").is_empty());
}

/// Ten thousand calls of two clients that use the same ids: no answer goes to the wrong one.
#[test]
fn equal_ids_of_two_clients_never_cross() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut clients = [w.client(&["w"]), w.client(&["w"])];
    let window = 8;
    for batch in 0..(5000 / window) {
        for (who, client) in clients.iter_mut().enumerate() {
            for n in batch * window..(batch + 1) * window {
                client.send(&secret_call(who, n));
            }
        }
        for (who, client) in clients.iter_mut().enumerate() {
            for n in batch * window..(batch + 1) * window {
                check_secret(client, who, n);
            }
        }
    }
}

fn secret_call(who: usize, n: usize) -> Value {
    json!({"jsonrpc": "2.0", "id": 1000 + n, "method": "tools/call",
        "params": {"name": "mcp_w_secret", "arguments": {"nonce": format!("{who}/{n}")}}})
}

fn check_secret(client: &mut Shim, who: usize, n: usize) {
    let answer = client.reply(&json!(1000 + n));
    let text = answer["result"]["content"][0]["text"].clone();
    assert_eq!(text, format!("secret-of-{who}/{n}"), "{answer}");
}

/// State set through one client is the server's state, and stays where it was set: one child for all.
#[test]
fn all_clients_share_one_process() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut clients: Vec<Shim> = (0..5).map(|_| w.client(&["w"])).collect();
    let pids: Vec<String> = clients.iter_mut().map(|c| c.text("mcp_w_pid", &json!({}))).collect();
    assert!(pids.windows(2).all(|p| p[0] == p[1]), "{pids:?}");
    assert_eq!(w.journal("w").starts(), 1);
}
