//! The configuration file: one bad entry costs itself, a reload changes what changed and nothing else.

use crate::world;
use hermes_tests::{SOON, Script, holds_for, wait_for};
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::time::Duration;

/// A broken entry disables itself, with file, line and key in the reason; the others work.
#[test]
fn a_broken_entry_disables_only_itself() {
    let w = world()
        .server("w", Script::new())
        .entry("bad", &["command: [not, a, string]"])
        .entry("worse", &["timeout: soon", "command: x"])
        .entry("empty", &["args: []"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "fine"})), "fine");
    for name in ["bad", "empty"] {
        assert_eq!(w.phase(name), "refused", "{}", w.status(name));
    }
    let findings = w.ctl(["status", "--json"]).succeeds().json()["findings"].to_string();
    assert!(findings.contains("config.yaml") && findings.contains("bad"), "{findings}");
}

/// A file that is no YAML leaves the daemon running, with the reason in status.
#[test]
fn an_unreadable_file_leaves_the_daemon_running() {
    let w = world();
    fs::write(w.home().join("config.yaml"), "mcp_servers: {a: [}\n").unwrap();
    let _daemon = w.start();
    let status = w.ctl(["status", "--json"]).succeeds().json();
    assert_ne!(status["config_state"], "ok", "{status}");
}

/// No file at all is an empty configuration.
#[test]
fn no_file_is_no_server() {
    let w = world();
    let _ = fs::remove_file(w.home().join("config.yaml"));
    let _daemon = w.start();
    let mut client = w.client(&[]);
    assert!(client.tools().is_empty());
}

/// SIGHUP takes up new and removed servers; the untouched ones keep their process.
#[test]
fn a_hangup_reloads_what_changed() {
    let mut w = world().server("w", Script::new()).server("old", Script::new());
    let daemon = w.start();
    let mut client = w.client(&["w", "old"]);
    let pid = w.wait_server_pid("w");
    w = w.server("fresh", Script::new());
    w.remove_server("old");
    daemon.signal(Signal::HUP);
    client.wait_tool("mcp_fresh_echo");
    wait_for("the removed server is gone", SOON, || w.processes("old").is_empty());
    assert!(!client.tool_names().iter().any(|n| n.starts_with("mcp_old_")));
    assert_eq!(w.server_pid("w"), Some(pid));
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "on"})), "on");
}

/// A file broken at a reload never replaces the running configuration.
#[test]
fn the_last_good_configuration_stays() {
    let w = world().server("w", Script::new());
    let daemon = w.start();
    let mut client = w.client(&["w"]);
    let pid = w.wait_server_pid("w");
    fs::write(w.home().join("config.yaml"), "mcp_servers: {w: [}\n").unwrap();
    daemon.signal(Signal::HUP);
    wait_for("the reason is shown", SOON, || w.ctl(["status", "--json"]).json()["config_state"] != "ok");
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "on"})), "on");
    assert_eq!(w.server_pid("w"), Some(pid));
}

/// Touching the file, or changing only its comments, restarts nobody.
#[test]
fn an_equal_file_restarts_nobody() {
    let w = world().server("w", Script::new());
    let daemon = w.start();
    let _client = w.client(&["w"]);
    let pid = w.wait_server_pid("w");
    let file = w.home().join("config.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("# a comment\n{text}\n")).unwrap();
    daemon.signal(Signal::HUP);
    w.ctl(["reload"]).succeeds();
    assert!(holds_for(Duration::from_secs(1), || w.server_pid("w") == Some(pid)));
    assert_eq!(w.journal("w").starts(), 1);
}

/// `${VAR}` comes from `.env`, then from the environment, then from its default.
#[test]
fn variables_are_filled_in() {
    let w = world();
    fs::write(w.home().join(".env"), "FROM_FILE=file\nBOTH=file\n").unwrap();
    let env = r#"env: {A: "${FROM_FILE}", B: "${BOTH}", C: "${FROM_ENV}-x", D: "${NOWHERE:-fallback}", E: "$${BOTH}", F: "${NOWHERE}"}"#;
    let w = w.server_with("w", Script::new(), &[env]).env("BOTH", "process").env("FROM_ENV", "process");
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let seen = client.text("mcp_w_env", &json!({}));
    for line in ["A=file", "B=file", "C=process-x", "D=fallback", "E=${BOTH}"] {
        assert!(seen.lines().any(|l| l == line), "{line} in {seen}");
    }
    assert!(!seen.lines().any(|l| l.starts_with("F=")), "an unset variable never travels as text");
}

/// A server that needs an unset variable in its command line is refused with the variable's name.
#[test]
fn an_unset_variable_in_the_arguments_refuses_the_server() {
    let w = world().entry("v", &["command: /bin/cat", "args: [\"${NOWHERE_TO_BE_FOUND}\"]"]);
    let _daemon = w.start();
    assert_eq!(w.phase("v"), "refused");
    assert!(w.status("v").to_string().contains("NOWHERE_TO_BE_FOUND"), "{}", w.status("v"));
}

/// `enabled: false` is known and not run.
#[test]
fn a_disabled_server_is_not_run() {
    let w = world().server_with("w", Script::new(), &["enabled: false"]);
    let _daemon = w.start();
    assert_eq!(w.phase("w"), "disabled");
    assert!(holds_for(Duration::from_secs(1), || w.journal("w").starts() == 0));
}

/// An entry that is our own shim is never started: no loop.
#[test]
fn our_own_shim_is_never_a_server() {
    let w = world();
    let ours = w.path().join("hermesctl");
    std::os::unix::fs::symlink(&w.bins().hermesctl, &ours).unwrap();
    let command = format!("command: {}", ours.display());
    let w = w.entry("loop", &[&command, "args: [mcp, serve]"]);
    let _daemon = w.start();
    assert_eq!(w.phase("loop"), "refused", "{}", w.status("loop"));
}
