//! What a server sees of the world: environment, file descriptors, working directory; where its stderr goes.

use crate::world;
use hermes_tests::{SOON, Script, wait_for};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;

fn env_of(client: &mut hermes_tests::Shim) -> BTreeMap<String, String> {
    let text = client.text("mcp_w_env", &json!({}));
    text.lines().filter_map(|line| line.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

/// A server gets the allow-list and its own `env`, and no secret of the daemon.
#[test]
fn the_environment_is_an_allow_list() {
    let w = world()
        .server_with("w", Script::new(), &["env: {FLAVOUR: sweet, VERSION: 1.10}"])
        .env("AWS_SECRET_ACCESS_KEY", "must-not-travel")
        .env("NODE_OPTIONS", "--require=/evil.js")
        .env("LD_LIBRARY_PATH", "/evil")
        .env("LC_ALL", "C.UTF-8")
        .env("XDG_DATA_HOME", "/data");
    let _daemon = w.start();
    let env = env_of(&mut w.client(&["w"]));
    assert_eq!(env["FLAVOUR"], "sweet");
    assert_eq!(env["VERSION"], "1.10", "scalars keep their spelling");
    assert_eq!(env["XDG_DATA_HOME"], "/data");
    assert_eq!(env["HOME"], w.path().join("user").display().to_string());
    let allowed = [
        "PATH",
        "HOME",
        "USER",
        "LANG",
        "LC_ALL",
        "TERM",
        "SHELL",
        "TMPDIR",
        "FLAVOUR",
        "VERSION",
        "HERMESD_INSTANCE",
    ];
    let strange: Vec<_> =
        env.keys().filter(|k| !allowed.contains(&k.as_str()) && !k.starts_with("XDG_")).collect();
    assert!(strange.is_empty(), "{strange:?}");
}

/// Names listed in `env_pass` travel too.
#[test]
fn passed_names_reach_the_server() {
    let w = world()
        .server_with("w", Script::new(), &["env_pass: [EDITOR]"])
        .env("EDITOR", "ed")
        .env("PAGER", "no");
    let _daemon = w.start();
    let env = env_of(&mut w.client(&["w"]));
    assert_eq!(env.get("EDITOR").map(String::as_str), Some("ed"));
    assert_eq!(env.get("PAGER"), None);
}

/// A server holds no file of the daemon and no pipe of another server.
#[test]
fn a_server_sees_three_file_descriptors() {
    let w = world().server("w", Script::new()).server("v", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w", "v"]);
    assert_eq!(client.text("mcp_w_fds", &json!({})), "[0, 1, 2]");
    assert_eq!(client.text("mcp_v_fds", &json!({})), "[0, 1, 2]");
}

/// Servers run in the user's home unless the file says otherwise.
#[test]
fn the_working_directory_is_home_or_as_configured() {
    let w = world();
    let elsewhere = w.path().join("project");
    fs::create_dir(&elsewhere).unwrap();
    let line = format!("cwd: {}", elsewhere.display());
    let w = w.server("w", Script::new()).server_with("v", Script::new(), &[&line]);
    let _daemon = w.start();
    let mut client = w.client(&["w", "v"]);
    assert_eq!(client.text("mcp_w_cwd", &json!({})), w.path().join("user").display().to_string());
    assert_eq!(client.text("mcp_v_cwd", &json!({})), elsewhere.display().to_string());
}

/// A working directory that does not exist is that server's error and nobody else's.
#[test]
fn a_missing_working_directory_is_a_clear_error() {
    let w =
        world().server("w", Script::new()).server_with("v", Script::new(), &["cwd: /nonexistent/project"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "fine"})), "fine");
    wait_for("the reason names the folder", SOON, || {
        w.status("v").to_string().contains("/nonexistent/project")
    });
}

/// However much a server writes to stderr, its calls go on.
#[test]
fn stderr_is_drained_for_life() {
    let flood = Script::new().with(|s| {
        s.stderr_first = 1 << 20;
        s.stderr_each = 1 << 20;
    });
    let w = world().server("w", flood);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    for _ in 0..3 {
        assert_eq!(client.text("mcp_w_echo", &json!({"text": "on"})), "on");
    }
}

/// What a server says on stderr is in its own log file and in `hermesctl logs NAME`.
#[test]
fn stderr_goes_to_a_log_of_its_own() {
    let w = world().server("w", Script::new()).server("v", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w", "v"]);
    client.call("mcp_w_stderr", &json!({"text": "the pump is \u{1b}[31mred"}));
    wait_for("the line is shown", SOON, || w.ctl(["logs", "w"]).succeeds().stdout.contains("the pump is"));
    let shown = w.ctl(["logs", "w"]).stdout;
    assert!(!shown.contains('\u{1b}'), "control characters are escaped");
    assert!(!w.ctl(["logs", "v"]).stdout.contains("the pump is"));
    let folder = w.home().join("logs/hermesd");
    let files: Vec<_> = fs::read_dir(&folder).unwrap().flatten().map(|e| e.path()).collect();
    let holding =
        files.iter().filter(|f| fs::read_to_string(f).is_ok_and(|t| t.contains("the pump is"))).count();
    assert_eq!(holding, 1, "{files:?}");
}
