//! `hermesctl doctor`: each kind of trouble is made for real, and found with one thing to do.

use crate::world;
use hermes_tests::{Ran, SOON, Script, World, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// The finding of this kind.
#[track_caller]
fn found(run: &Ran, kind: &str) -> Value {
    let all = run.json();
    let found = all.as_array().unwrap().iter().find(|found| found["kind"] == kind);
    let found = found.unwrap_or_else(|| panic!("no {kind} in {all:#}")).clone();
    assert_ne!(found["hint"], "", "one action: {found}");
    found
}

#[track_caller]
fn not_found(run: &Ran, kind: &str) {
    let all = run.json();
    assert!(all.as_array().unwrap().iter().all(|found| found["kind"] != kind), "{all:#}");
}

fn doctor(w: &World) -> Ran {
    w.ctl(["doctor", "--json"])
}

fn words(found: &Value) -> &str {
    found["message"].as_str().unwrap()
}

/// A program of this name that only prints these words.
fn program(path: &Path, words: &str) {
    fs::write(path, format!("#!/bin/sh\necho '{words}'\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Where all is well nothing is an error, with and without a daemon that was there before.
#[test]
fn a_healthy_home_has_no_errors() {
    let w = world().server("w", Script::new());
    // As a person would have it who heeds the warning about secrets.
    fs::set_permissions(w.home().join("config.yaml"), fs::Permissions::from_mode(0o600)).unwrap();
    let _daemon = w.start();
    let _client = w.client(&["w"]);
    let run = doctor(&w).succeeds();
    for found in run.json().as_array().unwrap() {
        assert_eq!(found["severity"], "info", "{found}");
    }
}

/// Without a daemon everything is looked at that needs none.
#[test]
fn without_a_daemon_configuration_commands_and_addresses_are_looked_at() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("url: \"http://{closed}/mcp\"");
    let w = world()
        .entry("lost", &["command: no-such-program-anywhere"])
        .entry("far", &[&url])
        .entry("odd", &["command: [1]"])
        .entry("a", &["command: cat", "args: [\"-\"]"])
        .entry("b", &["command: cat", "args: [\"-\"]"]);
    let run = doctor(&w).exits(3);
    found(&run, "daemon-gone");
    let lost = found(&run, "command");
    assert_eq!((&lost["server"], &lost["severity"]), (&json!("lost"), &json!("error")));
    assert!(words(&lost).contains("no-such-program-anywhere"), "{lost}");
    assert!(words(&found(&run, "url")).contains(&closed.to_string()));
    assert_eq!(found(&run, "config")["server"], "odd");
    assert!(words(&found(&run, "twins")).contains("a, b"));
    not_found(&run, "cannot-run");
}

/// The running daemon looks at the same, in its own environment.
#[test]
fn a_running_daemon_finds_a_command_that_was_never_needed() {
    let w = world().server("w", Script::new()).entry("lost", &["command: no-such-program-anywhere"]);
    let _daemon = w.start();
    wait_for("a finding about it", SOON, || {
        let all = doctor(&w).json();
        all.as_array().unwrap().iter().any(|found| found["server"] == "lost" && found["severity"] == "error")
    });
}

/// Logins that nothing renews are told before they end.
#[test]
fn logins_that_are_missing_or_over_are_found() {
    let w = world()
        .entry("never", &["url: http://127.0.0.1:9/mcp", "auth: oauth"])
        .entry("over", &["url: http://127.0.0.1:9/mcp", "auth: oauth"]);
    let tokens = w.home().join("mcp-tokens");
    fs::create_dir(&tokens).unwrap();
    let file = json!({"access_token": "secret-access", "token_type": "Bearer", "expires_at": 1_000_000});
    fs::write(tokens.join("over.json"), file.to_string()).unwrap();
    let run = doctor(&w);
    assert_eq!(found(&run, "login-missing")["hint"], "hermesctl mcp login never");
    assert_eq!(found(&run, "login-ended")["hint"], "hermesctl mcp login over");
    assert!(!run.stdout.contains("secret-access"));
}

/// Files and folders that are not what they should be.
#[test]
fn damaged_files_and_folders_that_others_enter_are_found() {
    let w = world();
    let state = w.home().join("hermesd");
    fs::create_dir_all(w.home().join("logs")).unwrap();
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(state.join("hermesd.db"), "this is no database").unwrap();
    fs::write(w.home().join("state.db"), "nor is this one").unwrap();
    symlink("/tmp", w.home().join("logs/hermesd")).unwrap();
    fs::write(w.home().join(".env"), "TOKEN=x\n").unwrap();
    fs::set_permissions(w.home().join(".env"), fs::Permissions::from_mode(0o644)).unwrap();
    let run = doctor(&w);
    assert!(found(&run, "state-folder")["hint"].as_str().unwrap().starts_with("chmod 700 "));
    found(&run, "hermesd-db");
    found(&run, "state-db");
    assert!(words(&found(&run, "log-folder")).contains("symlink"));
    assert!(found(&run, "permissions")["file"].as_str().unwrap().ends_with(".env"));
    // A daemon says why it cannot run with such a log folder.
    found(&run, "cannot-run");
}

/// A socket that nobody listens at, something else in its place, and a folder that others can enter.
#[test]
fn sockets_that_lead_nowhere_are_found() {
    let w = world();
    fs::create_dir(w.runtime()).unwrap();
    fs::set_permissions(w.runtime(), fs::Permissions::from_mode(0o700)).unwrap();
    drop(UnixListener::bind(w.runtime().join("control.sock")).unwrap());
    fs::write(w.mcp_socket(), "").unwrap();
    let run = doctor(&w);
    assert!(found(&run, "stale-socket")["file"].as_str().unwrap().ends_with("control.sock"));
    assert!(found(&run, "no-socket")["file"].as_str().unwrap().ends_with("mcp.sock"));
    fs::set_permissions(w.runtime(), fs::Permissions::from_mode(0o755)).unwrap();
    found(&doctor(&w), "runtime-folder");
}

/// A daemon whose socket was removed, and one that stands still.
#[test]
fn a_daemon_that_cannot_be_reached_is_told_from_none() {
    let w = world();
    let daemon = w.start();
    daemon.signal(Signal::STOP);
    let run = doctor(&w).exits(3);
    daemon.signal(Signal::CONT);
    assert!(found(&run, "daemon-silent")["hint"].as_str().unwrap().contains(&daemon.pid().to_string()));
    fs::remove_file(w.runtime().join("control.sock")).unwrap();
    let run = doctor(&w).exits(3);
    assert!(words(&found(&run, "socket-gone")).contains(&daemon.pid().to_string()));
}

/// Programs of other versions, and a shell that starts another one.
#[test]
fn programs_that_do_not_belong_together_are_found() {
    let w = world();
    let _daemon = w.start();
    let bin = w.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let ctl = bin.join("hermesctl");
    fs::copy(&w.bins().hermesctl, &ctl).unwrap();
    let run = Ran::of(w.command(&ctl).args(["doctor", "--json"]));
    found(&run, "shim-missing");
    found(&run, "path");
    found(&run, "no-hermesd");
    program(&bin.join("hermesd"), "hermesd 99.0.0");
    program(&bin.join("hermes-shim"), "hermes-shim 98.0.0");
    let other = w.path().join("other");
    fs::create_dir(&other).unwrap();
    program(&other.join("hermesctl"), "another one");
    let path = format!("{}:{}:/usr/bin:/bin", other.display(), bin.display());
    let run = Ran::of(w.command(&ctl).args(["doctor", "--json"]).env("PATH", &path));
    assert!(words(&found(&run, "restart-needed")).contains("99.0.0"));
    found(&run, "hermesd-version");
    assert!(words(&found(&run, "shim-version")).contains("98.0.0"));
    assert!(words(&found(&run, "path-other")).contains(&other.display().to_string()));
    program(&bin.join("hermesd"), "");
    found(&Ran::of(w.command(&ctl).args(["doctor", "--json"])), "hermesd-broken");
}

/// Another daemon of the same user.
#[test]
fn a_second_daemon_is_named_with_its_pid() {
    let (w, other) = (world(), world());
    let _daemon = w.start();
    let second = other.start();
    let more = found(&doctor(&w), "more-daemons");
    assert!(words(&more).contains(&format!("pid {}", second.pid())), "{more}");
}

/// A unit that nothing starts and whose program is gone.
#[test]
fn a_service_that_is_off_or_starts_nothing_is_found() {
    let w = world();
    let units = w.path().join("user/.config/systemd/user");
    fs::create_dir_all(&units).unwrap();
    let name = {
        let printed = w.ctl(["service", "print", "systemd", "--json"]).succeeds().json();
        Path::new(printed[0]["path"].as_str().unwrap()).file_name().unwrap().to_owned()
    };
    fs::write(units.join(name), "[Service]\nExecStart=/nonexistent/hermesd run\n").unwrap();
    let run = doctor(&w);
    assert!(found(&run, "service-off")["hint"].as_str().unwrap().starts_with("systemctl --user enable"));
    assert!(words(&found(&run, "service-program")).contains("/nonexistent/hermesd"));
}

/// A client that still starts its own copy of a server of hermesd's.
#[test]
fn a_client_that_starts_its_own_copy_is_found() {
    let w = world().entry("files", &["command: cat", "args: [\"-u\"]"]);
    let cursor = w.path().join("user/.cursor");
    fs::create_dir(&cursor).unwrap();
    let theirs = json!({"mcpServers": {"my-files": {"command": "cat", "args": ["-u"]}}});
    fs::write(cursor.join("mcp.json"), theirs.to_string()).unwrap();
    let copy = found(&doctor(&w), "own-copy");
    assert_eq!(copy["server"], "files");
    assert!(words(&copy).contains("Cursor") && words(&copy).contains("my-files"), "{copy}");
}

/// A home that is not there yet, and too few open files.
#[test]
fn a_missing_home_and_a_low_limit_are_found() {
    let w = world();
    let missing = w.path().join("missing");
    let run = Ran::of(w.command(&w.bins().hermesctl).args(["doctor", "--json"]).env("HERMES_HOME", &missing));
    found(&run, "no-home");
    let mut command = w.command(Path::new("/bin/sh"));
    command.args(["-c", "ulimit -n 200; exec \"$0\" doctor --json"]).arg(&w.bins().hermesctl);
    assert!(words(&found(&Ran::of(&mut command), "open-files")).contains("200"));
}

/// For people each finding is a line and what to do.
#[test]
fn for_people_each_finding_has_a_hint_below_it() {
    let w = world().entry("lost", &["command: no-such-program-anywhere"]);
    let run = w.ctl(["doctor"]).exits(3);
    assert!(run.stdout.contains("server `lost`: cannot be started"), "{run:?}");
    let lines: Vec<&str> = run.stdout.lines().collect();
    for pair in lines.chunks(2) {
        assert!(!pair[0].starts_with(' ') && pair[1].starts_with("  hint: "), "{run:?}");
    }
}
