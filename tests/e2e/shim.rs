//! `hermesctl mcp serve`: what a client registers must work in every client's surroundings.

use crate::world;
use hermes_tests::{SOON, Script, Shim, World, wait_for};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Only what clients give their children: HOME LOGNAME PATH SHELL TERM USER.
fn bare(w: &World, program: &std::path::Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("HOME", w.path().join("user")).env("LOGNAME", "tester").env("USER", "tester");
    command.env("PATH", "/usr/bin:/bin").env("SHELL", "/bin/sh").env("TERM", "dumb").current_dir("/");
    command
}

fn messages(w: &World, calls: u32, tool: &str, arguments: &Value) -> String {
    let info = json!({"name": "t", "version": "1"});
    let mut lines = vec![
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize",
            "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
    ];
    lines.extend((1..=calls).map(|id| {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
    }));
    drop(w.client(&["w"]));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn answered_ids(output: &str) -> Vec<u64> {
    let parsed = output.lines().map(|line| serde_json::from_str::<Value>(line).expect("only MCP on stdout"));
    let mut ids: Vec<u64> = parsed.filter_map(|m| m["id"].as_u64()).collect();
    ids.sort_unstable();
    ids
}

/// A client that ends its input right after its requests still gets every answer.
#[test]
fn all_answers_are_flushed_after_the_end_of_stdin() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let text = messages(&w, 10, "mcp_w_sleep", &json!({"ms": 300}));
    let mut command = w.command(&w.bins().hermesctl);
    let mut shim =
        command.args(["mcp", "serve"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    shim.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = shim.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(answered_ids(&String::from_utf8(output.stdout).unwrap()), (0..=10).collect::<Vec<_>>());
}

/// Stdin and stdout may be regular files.
#[test]
fn stdio_may_be_files() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    fs::write(w.path().join("in"), messages(&w, 3, "mcp_w_echo", &json!({"text": "f"}))).unwrap();
    let (input, output) =
        (File::open(w.path().join("in")).unwrap(), File::create(w.path().join("out")).unwrap());
    let mut command = w.command(&w.bins().hermesctl);
    let status = command.args(["mcp", "serve"]).stdin(input).stdout(output).status().unwrap();
    assert!(status.success());
    assert_eq!(answered_ids(&fs::read_to_string(w.path().join("out")).unwrap()), [0, 1, 2, 3]);
}

/// Node gives its children socket pairs.
#[test]
fn stdio_may_be_socket_pairs() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let text = messages(&w, 3, "mcp_w_echo", &json!({"text": "s"}));
    let (ours_in, theirs_in) = UnixStream::pair().unwrap();
    let (ours_out, theirs_out) = UnixStream::pair().unwrap();
    let mut command = w.command(&w.bins().hermesctl);
    command.args(["mcp", "serve"]);
    let mut shim = command
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs_in)))
        .stdout(Stdio::from(std::os::fd::OwnedFd::from(theirs_out)))
        .spawn()
        .unwrap();
    drop(command);
    (&ours_in).write_all(text.as_bytes()).unwrap();
    let mut lines = BufReader::new(ours_out).lines();
    let mut got = String::new();
    while answered_ids(&got).len() < 4 {
        got.push_str(&lines.next().unwrap().unwrap());
        got.push('\n');
    }
    drop(ours_in);
    wait_for("the shim ends", SOON, || shim.try_wait().unwrap().is_some());
}

/// No input at all is a clean end.
#[test]
fn an_empty_stdin_is_a_clean_end() {
    let w = world();
    let _daemon = w.start();
    let mut command = w.command(&w.bins().hermesctl);
    let output = command.args(["mcp", "serve"]).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success());
    assert!(output.stdout.is_empty());
}

/// With nothing but the six variables that clients pass, the shim finds the daemon of the default home.
#[test]
fn six_variables_are_enough_to_find_the_daemon() {
    let w = world();
    let home = w.path().join("user/.hermes");
    fs::create_dir(&home).unwrap();
    let mut command = w.command(&w.bins().hermesd);
    let _daemon = w.launch_command(command.env_remove("HERMES_HOME"));
    wait_for("the daemon accepts", SOON, || UnixStream::connect(w.mcp_socket()).is_ok());
    let mut shim = Shim::start(bare(&w, &w.bins().hermesctl).args(["mcp", "serve", "--no-spawn"]));
    shim.initialize();
    assert!(shim.request("ping", &json!({}))["result"].is_object());
}

/// Started under the name `hermes`, `mcp serve` works the same, so existing client configs keep working.
#[test]
fn the_old_name_works_for_mcp_serve() {
    let w = world();
    let _daemon = w.start();
    let link = w.path().join("hermes");
    std::os::unix::fs::symlink(&w.bins().hermesctl, &link).unwrap();
    let mut shim = Shim::start(w.command(&link).args(["mcp", "serve", "-v", "--accept-hooks"]));
    shim.initialize();
    let other = hermes_tests::Ran::of(w.command(&link).args(["chat"]));
    assert_ne!(other.code, 0);
    assert!(!other.stderr.is_empty());
}

/// One malformed line is answered as JSON-RPC says, and the next request works.
#[test]
fn a_malformed_line_is_answered_and_the_stream_goes_on() {
    let w = world();
    let _daemon = w.start();
    let mut shim = w.shim();
    for line in ["not json\n", "{\"jsonrpc\":\"2.0\",\"id\":\n", "{\"a\":1\u{7}}\n"] {
        shim.send_raw(line.as_bytes());
        assert_eq!(shim.reply(&Value::Null)["error"]["code"], -32700, "{line}");
    }
    shim.send_raw(b"[]\n");
    assert_eq!(shim.reply(&Value::Null)["error"]["code"], -32600);
    shim.initialize();
}

/// Clients that send things early or out of order are answered, not dropped.
#[test]
fn early_requests_are_answered() {
    let w = world();
    let _daemon = w.start();
    let mut shim = w.shim();
    assert!(shim.request("ping", &json!({}))["result"].is_object());
    assert!(shim.request("tools/list", &json!({}))["error"]["code"].is_i64());
    let info = json!({"name": "t", "version": "1"});
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info});
    assert!(shim.request("initialize", &params)["result"].is_object());
    assert!(shim.request("logging/setLevel", &json!({"level": "info"})).get("id").is_some());
    shim.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    assert!(shim.request("tools/list", &json!({}))["result"]["tools"].is_array());
}

/// Clients that probe every list get an empty list, even with no server at all.
#[test]
fn every_list_is_answered_without_any_server() {
    let w = world();
    let _daemon = w.start();
    let mut shim = w.client(&[]);
    for (method, member) in [
        ("tools/list", "tools"),
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ] {
        assert!(shim.request(method, &json!({}))["result"][member].is_array(), "{method}");
    }
    assert_eq!(shim.request("no/such/method", &json!({}))["error"]["code"], -32601);
}

/// `initialize` is answered at once, whatever servers do; their tools are announced when they come.
#[test]
fn initialize_does_not_wait_for_servers() {
    let w = world()
        .server("slow", Script::new().with(|s| s.start_delay_ms = 3000))
        .server("never", Script::new().with(|s| s.start_delay_ms = 3_600_000));
    let _daemon = w.start();
    let mut shim = w.shim();
    let start = Instant::now();
    let result = shim.initialize();
    assert!(start.elapsed() < Duration::from_millis(2500), "{:?}", start.elapsed());
    assert_eq!(result["capabilities"]["tools"]["listChanged"], true);
    assert!(!shim.tool_names().iter().any(|t| t.contains("slow")));
    shim.wait_method("notifications/tools/list_changed");
    shim.wait_tool("mcp_slow_echo");
}

/// A client that starts two copies and ends one at once keeps a working one.
#[test]
fn a_short_lived_twin_disturbs_nothing() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut twin = w.shim();
    twin.begin("initialize", &json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}));
    let mut stays = w.client(&["w"]);
    twin.kill_hard();
    assert_eq!(stays.text("mcp_w_echo", &json!({"text": "stays"})), "stays");
    assert_eq!(w.journal("w").starts(), 1);
}

/// The daemon ends under a living shim: open calls get a result that says the outcome is unknown,
/// the pipe stays open, and with the next daemon the session goes on.
#[test]
fn a_shim_survives_a_restart_of_the_daemon() {
    let w = world().server("w", Script::new());
    let mut daemon = w.start();
    let mut client = w.client(&["w"]);
    let open = client.begin_call("mcp_w_sleep", &json!({"ms": 600_000}));
    wait_for("the call is at the server", SOON, || !w.journal("w").received("tools/call").is_empty());
    daemon.kill_hard();
    let answer = client.reply(&open);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert!(
        answer["result"]["content"][0]["text"].as_str().unwrap_or_default().contains("unknown"),
        "{answer}"
    );
    let _daemon = w.start();
    assert!(client.runs());
    client.wait_tool("mcp_w_echo");
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "after"})), "after");
}

/// Without a daemon the shim starts one: detached, and with nothing of the client's environment.
#[test]
fn a_shim_starts_the_daemon_when_none_runs() {
    let w = world().server("w", Script::new());
    let bin = w.path().join("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(&w.bins().hermesd, bin.join("hermesd")).unwrap();
    let mut command = w.command(&w.bins().hermesctl);
    let path = format!("{}:/usr/bin:/bin", bin.display());
    command.env("PATH", path).env("CLIENT_SECRET", "must-not-travel").args(["mcp", "serve"]);
    let mut shim = Shim::start(&mut command);
    shim.initialize();
    shim.wait_tool("mcp_w_echo");
    let daemon = w.ctl(["status", "--json"]).succeeds().json()["pid"].as_i64().unwrap();
    let env = fs::read(format!("/proc/{daemon}/environ")).unwrap();
    assert!(!String::from_utf8_lossy(&env).contains("must-not-travel"));
    shim.kill_hard();
    w.ctl(["status"]).succeeds();
    w.ctl(["daemon", "stop"]).succeeds();
    wait_for("the daemon ends", SOON, || w.census().is_empty());
}

/// The shim stays small.
#[test]
fn a_shim_is_a_small_process() {
    let w = world();
    let _daemon = w.start();
    let shim = w.client(&[]);
    assert_eq!(hermes_tests::census::children(shim.pid()), []);
    let threads = fs::read_dir(format!("/proc/{}/task", shim.pid())).unwrap().count();
    assert_eq!(threads, 1);
}
