//! hermesctl as a person and a script meet it: exit codes, JSON, hints.

use crate::world;
use hermes_tests::Script;
use rustix::process::Signal;
use serde_json::{Value, json};

/// Without a daemon every admin command exits 3 and says how to start one.
#[test]
fn an_unreachable_daemon_is_exit_code_three_with_a_hint() {
    let w = world();
    let runs = [
        w.ctl(["status"]),
        w.ctl(["servers"]),
        w.ctl(["tools"]),
        w.ctl(["call", "w", "echo", "{}"]),
        w.ctl(["servers", "stop", "w"]),
        w.ctl(["logs"]),
        w.ctl(["status", "--json"]),
    ];
    for run in runs {
        let run = run.exits(3);
        assert!(run.last_error_line().starts_with("hint:"), "{run:?}");
        assert!(run.stderr.starts_with("error:"), "{run:?}");
        assert_eq!(run.stdout, "");
    }
}

/// What is typed wrongly is exit code 2.
#[test]
fn a_usage_error_is_exit_code_two() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    w.ctl(["no-such-verb"]).exits(2);
    w.ctl(["servers", "stop"]).exits(2);
    w.ctl(["status", "--no-such-flag"]).exits(2);
}

/// `status` shows the daemon and every server, for people and for scripts.
#[test]
fn status_shows_daemon_and_servers() {
    let w = world().server("w", Script::new());
    let daemon = w.start();
    let _client = w.client(&["w"]);
    let status = w.ctl(["status", "--json"]).succeeds().json();
    assert_eq!(status["pid"], daemon.pid());
    assert_eq!(status["home"], w.home().canonicalize().unwrap().display().to_string());
    assert_eq!(status["servers"][0]["name"], "w");
    assert_eq!(status["servers"][0]["phase"], "ready");
    assert_eq!(status["clients"][0]["name"], "tester");
    let text = w.ctl(["status"]).succeeds().stdout;
    assert!(text.contains('w') && text.contains("ready"), "{text}");
    assert!(!text.contains('\u{1b}'), "no colour on a pipe");
}

/// `tools` lists what clients see, with server and raw name.
#[test]
fn tools_lists_the_catalogue() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let _client = w.client(&["w"]);
    let all = w.ctl(["tools", "--json"]).succeeds().json();
    let list = all["tools"].as_array().or(all.as_array()).unwrap();
    let echo = list.iter().find(|t| t["name"] == "mcp_w_echo").unwrap();
    assert_eq!((&echo["server"], &echo["raw_name"]), (&json!("w"), &json!("echo")));
    assert!(w.ctl(["tools"]).succeeds().stdout.contains("mcp_w_echo"));
}

/// A profile that does not exist is an error that names those which do, not an empty list.
#[test]
fn an_unknown_profile_is_refused_by_name() {
    let w = world().server("w", Script::new()).yaml("hermesd:\n  profiles:\n    work: { servers: [w] }");
    let _daemon = w.start();
    for run in [w.ctl(["tools", "--profile", "nope"]), w.ctl(["call", "--profile", "nope", "w", "echo"])] {
        let run = run.exits(1);
        assert!(run.stderr.starts_with("error: no profile `nope`"), "{run:?}");
        assert_eq!(run.last_error_line(), "hint: there are: default, work");
    }
    w.ctl(["tools", "--profile", "work"]).succeeds();
}

/// A daemon that stands still is given up, and named with what ends it.
#[test]
fn a_stopped_daemon_is_named_with_its_pid() {
    let w = world().server("w", Script::new());
    let daemon = w.start();
    daemon.signal(Signal::STOP);
    let run = w.ctl(["servers", "restart", "w"]).exits(3);
    daemon.signal(Signal::CONT);
    assert!(run.stderr.contains(&format!("hermesd (pid {})", daemon.pid())), "{run:?}");
    assert!(run.last_error_line().contains(&format!("`kill -9 {}`", daemon.pid())), "{run:?}");
    w.ctl(["status"]).succeeds();
}

/// `call` calls a tool on the same road as a client, and its exit code tells the outcome.
#[test]
fn call_calls_a_tool() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let _client = w.client(&["w"]);
    let done = w.ctl(["call", "w", "echo", r#"{"text":"日本"}"#]).succeeds();
    assert!(done.stdout.contains("日本"), "{done:?}");
    let json = w.ctl(["call", "w", "echo", r#"{"text":"x"}"#, "--json"]).succeeds().json();
    assert!(json.to_string().contains(r#""text":"x""#), "{json}");
    w.ctl(["call", "mcp_w_echo", r#"{"text":"x"}"#]).succeeds();
    w.ctl(["call", "w", "fail"]).exits(1);
    w.ctl(["call", "w", "no_such_tool"]).exits(1);
    let unknown = w.ctl(["call", "nobody", "echo"]).exits(1);
    assert!(unknown.stderr.starts_with("error:"), "{unknown:?}");
    assert_ne!(w.ctl(["call", "w", "echo", "{not json"]).code, 0);
}

/// Servers are stopped, started and restarted by name.
#[test]
fn servers_obey() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let _client = w.client(&["w"]);
    w.ctl(["servers", "stop", "w"]).succeeds();
    assert_eq!(w.phase("w"), "stopped");
    w.ctl(["servers", "start", "w"]).succeeds();
    assert_eq!(w.phase("w"), "ready");
    let before = w.wait_server_pid("w");
    w.ctl(["servers", "restart", "w"]).succeeds();
    assert_ne!(w.wait_server_pid("w"), before);
    let unknown = w.ctl(["servers", "restart", "nobody"]).exits(1);
    assert!(unknown.stderr.contains("nobody"), "{unknown:?}");
    assert!(unknown.last_error_line().starts_with("hint:"), "{unknown:?}");
}

/// `servers show` tells what runs and what it may see.
#[test]
fn show_tells_what_runs() {
    let w = world().server_with("w", Script::new(), &["env: {API_TOKEN: abcdefgh-secret-value}"]);
    let _daemon = w.start();
    let _client = w.client(&["w"]);
    let run = w.ctl(["servers", "show", "w", "--json"]).succeeds();
    let shown = run.json().to_string();
    assert!(shown.contains(&w.bins().fake_server.display().to_string()), "{shown}");
    assert!(shown.contains("API_TOKEN"), "names are shown");
    assert!(!shown.contains("abcdefgh-secret-value"), "values are not");
}

/// A daemon of another home never answers in place of the one that was meant.
#[test]
fn a_daemon_of_another_home_is_refused() {
    let w = world();
    let _daemon = w.start();
    let other = w.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let mut command = w.command(&w.bins().hermesctl);
    let run = hermes_tests::Ran::of(command.args(["status"]).env("HERMES_HOME", &other));
    assert_ne!(run.code, 0);
    assert!(run.stderr.contains("other") && run.stderr.contains("home"), "{run:?}");
}

/// The daemon's own log is there, structured and without arguments of calls.
#[test]
fn the_daemons_log_names_facts_and_no_contents() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    client.text("mcp_w_echo", &json!({"text": "very private words"}));
    let log = w.ctl(["logs"]).succeeds().stdout;
    assert!(!log.is_empty());
    assert!(!log.contains("very private words"));
}

/// Every `--json` output is one JSON document.
#[test]
fn json_output_is_json() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let _client = w.client(&["w"]);
    for verb in ["status", "servers", "tools", "doctor"] {
        assert_ne!(w.ctl([verb, "--json"]).succeeds().json(), Value::Null, "{verb}");
    }
}
