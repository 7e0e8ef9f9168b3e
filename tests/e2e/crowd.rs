//! Many clients at once: fairness, bounds, and nobody pays for somebody else.

use crate::world;
use hermes_tests::{SOON, Script, Shim, census, wait_for};
use rustix::process::{Signal, getpgid, kill_process_group};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::Stdio;

/// Fourteen clients of a server that fails at its start cause one row of starts, not fourteen.
#[test]
fn a_broken_server_is_not_started_once_for_each_client() {
    let w =
        world().server("w", Script::new()).server("v", Script::new().with(|s| s.start_delay_ms = 3_600_000));
    let _daemon = w.start();
    let _clients: Vec<Shim> = (0..14).map(|_| w.client(&["w"])).collect();
    assert!(w.processes("v").len() <= 1, "{:?}", w.processes("v"));
    assert_eq!(w.processes("w").len(), 1);
    assert_eq!(w.guards().len(), 2);
}

/// A server that takes one call at a time gets one at a time, and clients take turns.
#[test]
fn waiting_calls_queue_fairly_between_clients() {
    let w = world().server_with("w", Script::new(), &["supports_parallel_tool_calls: false"]);
    let _daemon = w.start();
    let (mut greedy, mut modest) = (w.client(&["w"]), w.client(&["w"]));
    let many: Vec<Value> = (0..20)
        .map(|n| greedy.begin_call("mcp_w_sleep", &json!({"ms": 50, "text": n.to_string()})))
        .collect();
    wait_for("the first call is there", SOON, || !w.journal("w").received("tools/call").is_empty());
    modest.text("mcp_w_echo", &json!({"text": "my one call"}));
    let sent = w.journal("w").received("tools/call");
    let turn = sent.iter().position(|m| m["params"]["name"] == "echo").unwrap();
    assert!(turn <= 4, "the modest client was number {turn}");
    many.iter().for_each(|id| assert!(greedy.reply(id)["result"].is_object()));
}

/// More waiting calls than a server's queue takes are refused with the limit, and the queue stays usable.
#[test]
fn a_full_queue_refuses_with_its_limit() {
    let w = world().server_with("w", Script::new(), &["max_concurrency: 1"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let first = client.begin_call("mcp_w_sleep", &json!({"ms": 600_000}));
    wait_for("the first call is there", SOON, || !w.journal("w").received("tools/call").is_empty());
    let waiting: Vec<Value> =
        (0..100).map(|_| client.begin_call("mcp_w_echo", &json!({"text": "x"}))).collect();
    let refused = client.reply(waiting.last().unwrap());
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    assert!(refused.to_string().contains("64"), "the limit is named: {refused}");
    client.send(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": first}}),
    );
    assert_eq!(client.reply(&waiting[0])["result"]["content"][0]["text"], "x");
    assert_eq!(client.reply(&waiting[63])["result"]["content"][0]["text"], "x");
}

/// A client that stops reading costs bounded memory, and the others notice nothing.
#[test]
fn a_client_that_does_not_read_harms_nobody() {
    let w = world().server("w", Script::new());
    let daemon = w.start();
    let mut other = w.client(&["w"]);
    let before = census::rss_kib(daemon.pid());
    let mut command = w.command(&w.bins().hermesctl);
    let mut deaf =
        command.args(["mcp", "serve"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = deaf.stdin.take().unwrap();
    let info = json!({"name": "deaf", "version": "1"});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}});
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "mcp_w_progress", "arguments": {"n": 200_000}, "_meta": {"progressToken": "p".repeat(400)}}});
    writeln!(stdin, "{hello}\n{call}").unwrap();
    wait_for("the flood has begun", SOON, || !w.journal("w").received("tools/call").is_empty());
    for n in 0..50 {
        assert_eq!(other.text("mcp_w_echo", &json!({"text": n.to_string()})), n.to_string());
    }
    let after = census::rss_kib(daemon.pid());
    assert!(after < before + 80 * 1024, "{before} KiB before, {after} KiB after");
    let mut lines = BufReader::new(deaf.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(first["id"], 1);
    drop((stdin, lines));
    wait_for("the shim ends", SOON, || deaf.try_wait().unwrap().is_some());
}

/// Ctrl-C in a terminal reaches the daemon and not the servers: a call in flight gets a final answer.
#[test]
fn a_terminal_signal_does_not_reach_the_servers() {
    let w = world().server("w", Script::new());
    let mut command = w.command(&w.bins().hermesd);
    let mut daemon = w.launch_command(command.process_group(0));
    wait_for("the daemon accepts", SOON, || std::os::unix::net::UnixStream::connect(w.mcp_socket()).is_ok());
    let mut client = w.client(&["w"]);
    let group = rustix::process::Pid::from_raw(daemon.pid()).unwrap();
    for process in w.processes("w").iter().chain(&w.guards()) {
        let pid = rustix::process::Pid::from_raw(process.pid);
        assert_ne!(getpgid(pid).unwrap(), group, "{process:?}");
    }
    let call = client.begin_call("mcp_w_sleep", &json!({"ms": 500, "text": "finished"}));
    wait_for("the call is there", SOON, || !w.journal("w").received("tools/call").is_empty());
    kill_process_group(group, Signal::INT).unwrap();
    assert_eq!(client.reply(&call)["result"]["content"][0]["text"], "finished");
    assert!(daemon.wait().success());
    assert!(w.journal("w").events("term").iter().all(|e| e.text != "2"), "no SIGINT reached the server");
}

/// A shim below one of our own servers refuses: no daemon serves itself.
#[test]
fn a_shim_below_a_server_refuses() {
    let w = world();
    let _daemon = w.start();
    let mut command = w.command(&w.bins().hermesctl);
    let mut shim = Shim::start(command.env("HERMESD_INSTANCE", "w-1").args(["mcp", "serve"]));
    let answer = shim.request("initialize", &json!({"protocolVersion": "2025-06-18", "capabilities": {}}));
    assert!(answer["error"]["code"].is_i64(), "{answer}");
}
