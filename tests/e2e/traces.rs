//! Traces: one from the shim to the server, exported by OTLP, never at the cost of a call.

use crate::traces_receiver::{Protocol, Receiver, Span, named};
use crate::world;
use hermes_tests::{SOON, Script, Shim, World, wait_for, wait_some};
use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use std::time::{Duration, Instant};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// A world that exports to `receiver`; gRPC has no path, and a port that says so only by the scheme of
/// its own: see [`grpc_port`].
fn exporting(endpoint: &str, ratio: &str) -> World {
    world().yaml(&format!("hermesd:\n  otlp: {{ endpoint: \"{endpoint}\", sample_ratio: {ratio} }}"))
}

fn call_in(client: &mut Shim, tool: &str, traceparent: &str, more: &Value) -> Value {
    let mut params = json!({ "name": tool, "arguments": { "text": "argument-argument" } });
    params["_meta"] = json!({ "traceparent": traceparent });
    for (key, value) in more.as_object().into_iter().flatten() {
        params["_meta"][key] = value.clone();
    }
    client.request("tools/call", &params)
}

fn check_call(spans: &[Span], w: &World, pid: i32) {
    let request = named(spans, "tools/call mcp_w_echo");
    let call = named(spans, "call");
    let slot = named(spans, "wait for slot");
    let server = named(spans, "tools/call echo");
    assert_eq!((request.parent.as_str(), request.kind), (PARENT, 2));
    assert_eq!((&call.parent, call.kind), (&request.id, 1));
    assert_eq!((&slot.parent, slot.kind), (&call.id, 1));
    assert_eq!((&server.parent, server.kind), (&call.id, 3));
    assert!(spans.iter().all(|span| span.trace == TRACE && span.start <= span.end && span.status == 0));
    assert!(request.start <= call.start && call.start <= server.start && server.end <= call.end);
    // What the server got names the span of its own call.
    let meta = w.journal("w").received("tools/call").last().unwrap()["params"]["_meta"].clone();
    assert_eq!(meta["traceparent"], format!("00-{TRACE}-{}-01", server.id));
    assert_eq!((&meta["tracestate"], &meta["other"]), (&json!("a=1"), &json!(5)));
    let said = |span: &Span, key: &str| span.attributes.get(key).cloned().unwrap_or_default();
    for (key, value) in [
        ("mcp.method.name", "tools/call"),
        ("gen_ai.tool.name", "mcp_w_echo"),
        ("gen_ai.operation.name", "execute_tool"),
        ("mcp.protocol.version", "2025-11-25"),
        ("network.transport", "pipe"),
        ("rpc.system", "jsonrpc"),
        ("hermes.client.name", "tester"),
        ("hermes.profile", "default"),
    ] {
        assert_eq!(said(request, key), value, "{key}");
    }
    assert_eq!(said(request, "hermes.shim.pid"), pid.to_string());
    assert!(!said(request, "mcp.session.id").is_empty() && !said(request, "jsonrpc.request.id").is_empty());
    assert_eq!((said(call, "hermes.server"), said(call, "hermes.outcome")), ("w".into(), "ok".into()));
    assert_eq!(
        (said(server, "gen_ai.tool.name"), said(server, "hermes.server")),
        ("echo".into(), "w".into())
    );
}

/// A call is one trace: below the client's span the request, the call, its waits, the server's part; the
/// server is told the last one. Names and outcomes are exported, arguments and results are not.
#[test]
fn a_call_is_one_trace_from_the_shim_to_the_server() {
    for protocol in [Protocol::Http, Protocol::Grpc] {
        let receiver = match protocol {
            Protocol::Http => Receiver::start(protocol),
            Protocol::Grpc => Receiver::on(grpc_port(), protocol),
        };
        let w = exporting(&format!("http://{}", receiver.address), "1.0").server("w", Script::new());
        let _daemon = w.start();
        let mut client = w.client(&["w"]);
        wait_for("the server runs", SOON, || w.phase("w") == "ready");
        let more = json!({ "tracestate": "a=1", "other": 5, "progressToken": "p" });
        let answer = call_in(&mut client, "mcp_w_echo", &format!("00-{TRACE}-{PARENT}-01"), &more);
        assert_eq!(answer["result"]["content"][0]["text"], "argument-argument");
        let spans = receiver.trace_of("tools/call mcp_w_echo");
        check_call(&spans, &w, client.pid());
        let resource = receiver.resource();
        assert_eq!(resource["service.name"], "hermesd");
        assert!(!resource["service.version"].is_empty() && resource["service.instance.id"].len() == 32);
        let bytes = receiver.bytes();
        assert!(!bytes.windows(17).any(|part| part == b"argument-argument"), "arguments are exported");
        let status = w.ctl(["status", "--json"]).succeeds().json();
        let spoken = if protocol == Protocol::Grpc { "grpc" } else { "http/protobuf" };
        assert_eq!(status["traces"]["protocol"], spoken, "{status}");
        let shown = w.ctl(["status"]).succeeds().stdout;
        assert!(shown.lines().any(|line| line.starts_with("traces ") && line.contains(spoken)), "{shown}");
    }
}

/// The port that means gRPC. Tests run beside each other, so it is taken on an address of its own.
fn grpc_port() -> TcpListener {
    let own = std::process::id() % 250 + 2;
    let free = (2..250).find_map(|n| TcpListener::bind((format!("127.9.{own}.{n}"), 4317)).ok());
    free.expect("the whole of 127/8 is loopback")
}

/// Failures carry their kind, a call that its client takes back is cancelled, a wait for a person shows, and a
/// call without a trace begins one.
#[test]
fn outcomes_and_waits_show_in_the_trace() {
    let receiver = Receiver::start(Protocol::Http);
    let w = exporting(&format!("http://{}", receiver.address), "100%")
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-team=key-12345678")
        .server_with("w", Script::new(), &["approval: [meta]"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    client.call("mcp_w_fail", &json!({}));
    let failed = receiver.trace_of("tools/call mcp_w_fail");
    for span in failed.iter().filter(|span| span.name != "wait for slot" && span.name != "wait for server") {
        assert_eq!((span.status, span.attributes["error.type"].as_str()), (2, "tool_error"), "{span:?}");
    }
    assert_eq!(named(&failed, "tools/call mcp_w_fail").parent, "");
    client.request(
        "tools/call",
        &json!({ "name": "mcp_w_rpc_error", "arguments": { "code": -5, "message": "m" } }),
    );
    let refused = receiver.trace_of("tools/call mcp_w_rpc_error");
    let request = named(&refused, "tools/call mcp_w_rpc_error");
    assert_eq!(
        (&*request.attributes["error.type"], &*request.attributes["rpc.response.status_code"]),
        ("-5", "-5")
    );
    let hung = client.begin_call("mcp_w_hang", &json!({}));
    wait_for("the call is there", SOON, || {
        w.journal("w").received("tools/call").iter().any(|call| call["params"]["name"] == "hang")
    });
    let reason = json!({ "requestId": hung });
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": reason }));
    let cancelled = receiver.trace_of("tools/call mcp_w_hang");
    assert_eq!(named(&cancelled, "tools/call mcp_w_hang").attributes["error.type"], "cancelled");
    assert_eq!(named(&cancelled, "tools/call hang").attributes["error.type"], "cancelled");
    let gated = client.begin_call("mcp_w_meta", &json!({}));
    let waiting = wait_some("a call waits", SOON, || {
        w.ctl(["approvals", "--json"]).succeeds().json()["waiting"][0]["id"].as_str().map(str::to_owned)
    });
    w.ctl(["approvals", "respond", &waiting, "allow-once"]).succeeds();
    client.reply(&gated);
    let decided = receiver.trace_of("tools/call mcp_w_meta");
    let wait = named(&decided, "wait for approval");
    assert_eq!(wait.parent, named(&decided, "call").id);
    assert_eq!(wait.attributes["hermes.decision"], "allow-once");
    let env = client.text("mcp_w_env", &json!({}));
    assert!(!env.contains("OTEL_"), "servers get nothing of it: {env}");
    assert!(
        receiver
            .heads()
            .iter()
            .all(|head| head.starts_with("POST /v1/traces ") && head.contains("key-12345678")),
        "{:?}",
        receiver.heads()
    );
}

/// `sample_ratio: 0` exports nothing that begins here, and the flag tells the server so; a client that
/// decided to sample is believed, and so is one that decided not to.
#[test]
fn the_ratio_decides_only_about_traces_that_begin_here() {
    for (ratio, flag) in [("0", "00"), ("1", "01")] {
        let receiver = Receiver::start(Protocol::Http);
        let w = exporting(&format!("http://{}/custom", receiver.address), ratio).server("w", Script::new());
        let mut daemon = w.start();
        let mut client = w.client(&["w"]);
        client.call("mcp_w_echo", &json!({ "text": "own" }));
        call_in(&mut client, "mcp_w_echo", &format!("00-{TRACE}-{PARENT}-00"), &json!({}));
        call_in(
            &mut client,
            "mcp_w_echo",
            &format!("00-{}-{PARENT}-01", TRACE.replace('0', "1")),
            &json!({}),
        );
        // Everything that is left is sent before the end.
        daemon.stop();
        let traces: Vec<String> = receiver.spans().into_iter().map(|span| span.trace).collect();
        assert!(!traces.contains(&TRACE.to_owned()), "{traces:?}");
        assert!(traces.contains(&TRACE.replace('0', "1")), "{traces:?}");
        let sent = w.journal("w").received("tools/call");
        let headers: Vec<&str> =
            sent.iter().map(|call| call["params"]["_meta"]["traceparent"].as_str().unwrap()).collect();
        let flags: Vec<&str> = headers.iter().map(|header| &header[53..]).collect();
        assert_eq!(flags, [flag, "00", "01"], "{headers:?}");
        assert_eq!(traces.contains(&headers[0][3..35].to_owned()), ratio == "1", "{headers:?} {traces:?}");
        assert!(
            receiver.heads().iter().all(|head| head.starts_with("POST /custom ")),
            "{:?}",
            receiver.heads()
        );
    }
}

/// A receiver that takes connections and says nothing, or that is not there at all, costs calls nothing:
/// spans are dropped and counted, status names the trouble, and the daemon ends in time.
#[test]
fn a_dead_receiver_costs_spans_and_no_call() {
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let w = exporting(&format!("http://{}", mute.local_addr().unwrap()), "1.0").server("w", Script::new());
    let mut daemon = w.start();
    let mut client = w.client(&["w"]);
    // More spans than wait at most, in portions that the server's own limits allow.
    for _ in 0..22 {
        let calls: Vec<Value> =
            (0..64).map(|_| client.begin_call("mcp_w_echo", &json!({ "text": "x" }))).collect();
        for call in &calls {
            assert_eq!(client.reply(call)["result"]["content"][0]["text"], "x");
        }
    }
    let metrics = w.ctl(["metrics"]).succeeds().stdout;
    let count = |name: &str| -> f64 {
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{metrics}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(count("hermes_trace_spans_dropped_total ") > 0.0, "{metrics}");
    assert!(count("hermes_trace_spans_waiting ") <= 4096.0, "{metrics}");
    let stopping = Instant::now();
    daemon.stop();
    assert!(stopping.elapsed() < Duration::from_secs(10), "{:?}", stopping.elapsed());
    drop(mute);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    client.call("mcp_w_echo", &json!({ "text": "x" }));
    wait_for("status names the trouble", SOON, || {
        let findings = w.ctl(["status", "--json"]).succeeds().json()["findings"].clone();
        findings.as_array().unwrap().iter().any(|f| f["key"] == "hermesd.otlp" && f["severity"] == "warning")
    });
}

/// The key is followed while the daemon runs: switched on, moved, switched off.
#[test]
fn the_key_is_followed_at_run_time() {
    let (first, second) = (Receiver::start(Protocol::Http), Receiver::start(Protocol::Http));
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let file = w.home().join("config.yaml");
    let servers = fs::read_to_string(&file).unwrap();
    let trace = |n: usize| format!("{n:032x}");
    let mut call = |n: usize| {
        call_in(&mut client, "mcp_w_echo", &format!("00-{}-{PARENT}-01", trace(n)), &json!({}));
    };
    let reload = |otlp: &str| {
        fs::write(&file, format!("{otlp}{servers}")).unwrap();
        w.ctl(["reload"]).succeeds();
        let exported = w.ctl(["status", "--json"]).succeeds().json()["traces"]["endpoint"].clone();
        let wanted = otlp.split('"').nth(1).map_or(Value::Null, |endpoint| json!(endpoint));
        wait_for("the exporter follows", SOON, || {
            exported == wanted
                || w.ctl(["status", "--json"]).succeeds().json()["traces"]["endpoint"] == wanted
        });
    };
    let to =
        |receiver: &Receiver| format!("hermesd:\n  otlp: {{ endpoint: \"http://{}\" }}\n", receiver.address);
    call(1);
    reload(&to(&first));
    call(2);
    first.trace_of("tools/call mcp_w_echo");
    reload(&to(&second));
    call(3);
    second.trace_of("tools/call mcp_w_echo");
    reload("");
    call(4);
    reload(&to(&first));
    call(5);
    wait_for("the last trace is there", SOON, || first.spans().iter().any(|span| span.trace == trace(5)));
    for (receiver, traces) in [(&first, vec![2, 5]), (&second, vec![3])] {
        let mut seen: Vec<String> = receiver.spans().into_iter().map(|span| span.trace).collect();
        seen.dedup();
        assert_eq!(seen, traces.into_iter().map(trace).collect::<Vec<_>>());
    }
}
