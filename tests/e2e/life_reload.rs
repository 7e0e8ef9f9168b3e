//! Changing the configuration of a living daemon: only what really changed is touched, whoever writes the file.

use crate::world;
use hermes_tests::{SOON, Script, Shim, World, holds_for, wait_for};
use serde_json::json;
use std::fs;
use std::time::Duration;

const LISTS_CHANGED: &str = "notifications/tools/list_changed";

fn reload(w: &World) -> serde_json::Value {
    w.ctl(["reload", "--json"]).succeeds().json()
}

fn env_line(client: &mut Shim, server: &str, line: &str) -> bool {
    let result = client.call(&format!("mcp_{server}_env"), &json!({}));
    result["content"][0]["text"].as_str().is_some_and(|text| text.lines().any(|l| l == line))
}

/// A changed server ends after its calls, the untouched ones go on with the same process.
#[test]
fn a_changed_server_drains_and_the_others_keep_running() {
    let mut w = world().server_with("w", Script::new(), &["env: {STATE: old}"]).server("v", Script::new());
    let _daemon = w.start();
    let (mut client, mut other) = (w.client(&["w", "v"]), w.client(&["w", "v"]));
    let untouched = w.wait_server_pid("v");
    let call = client.begin_call("mcp_w_sleep", &json!({"ms": 1500, "text": "finished"}));
    let beside = client.begin_call("mcp_v_sleep", &json!({"ms": 1500, "text": "beside"}));
    wait_for("the call is at the server", SOON, || w.journal("w").received("tools/call").len() == 1);
    w = w.server_with("w", Script::new(), &["env: {STATE: new}"]);
    let reloaded = reload(&w);
    assert_eq!(reloaded["changed"], json!(["w"]), "{reloaded}");
    assert_eq!(client.reply(&call)["result"]["content"][0]["text"], "finished");
    assert_eq!(client.reply(&beside)["result"]["content"][0]["text"], "beside");
    wait_for("the new generation answers", SOON, || env_line(&mut other, "w", "STATE=new"));
    assert_eq!(w.server_pid("v"), Some(untouched));
    assert_eq!((w.journal("w").starts(), w.journal("v").starts()), (2, 1));
}

/// Limits take effect without a restart and without a word to clients; a filter tells them once.
#[test]
fn limits_and_filters_are_taken_over_in_place() {
    let mut w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let pid = w.wait_server_pid("w");
    client.arrived(LISTS_CHANGED);
    w = w.server_with("w", Script::new(), &["timeout: 500ms", "max_concurrency: 2"]);
    assert_eq!(reload(&w)["changed"], json!(["w"]));
    assert_eq!(client.call("mcp_w_hang", &json!({}))["isError"], true, "the new timeout holds");
    assert!(holds_for(Duration::from_millis(500), || client.arrived(LISTS_CHANGED).is_empty()));
    w = w.server_with("w", Script::new(), &["tools: {include: [echo, pid]}"]);
    reload(&w);
    client.wait_method(LISTS_CHANGED);
    assert_eq!(client.tool_names(), ["mcp_w_echo", "mcp_w_pid"]);
    assert_eq!(w.server_pid("w"), Some(pid));
    assert_eq!(w.journal("w").starts(), 1);
}

/// A changed secret in `.env` restarts the servers that use it, no other, and is never written to a log.
#[test]
fn a_changed_secret_restarts_only_its_users() {
    let secret = |text: &str| format!("SOME_TOKEN={text}\nUNUSED={text}\n");
    let w = world();
    fs::write(w.home().join(".env"), secret("first-secret-value")).unwrap();
    let w = w
        .server_with("user", Script::new(), &["env: {SOME_TOKEN: \"${SOME_TOKEN}\"}", "redact_results: off"])
        .server_with("passed", Script::new(), &["env_pass: [SOME_TOKEN]", "redact_results: off"])
        .server("other", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["user", "passed", "other"]);
    assert!(env_line(&mut client, "user", "SOME_TOKEN=first-secret-value"));
    assert!(env_line(&mut client, "passed", "SOME_TOKEN=first-secret-value"), "env_pass reads .env");
    let pid = w.wait_server_pid("other");
    fs::write(w.home().join(".env"), secret("second-secret-value")).unwrap();
    // Nobody says so: the file is watched.
    wait_for("both users have the new value", SOON, || {
        env_line(&mut client, "user", "SOME_TOKEN=second-secret-value")
            && env_line(&mut client, "passed", "SOME_TOKEN=second-secret-value")
    });
    assert_eq!(w.server_pid("other"), Some(pid));
    let told = client.call("mcp_user_stderr", &json!({"text": "my token is second-secret-value, yes"}));
    assert_ne!(told["isError"], true);
    wait_for("the line is logged", SOON, || {
        w.ctl(["logs", "user"]).succeeds().stdout.contains("my token is")
    });
    for entry in fs::read_dir(w.home().join("logs/hermesd")).unwrap().flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        assert!(!text.contains("secret-value"), "{}: {text}", entry.path().display());
    }
}

/// Editors that write a new file and rename it are noticed without a word.
#[test]
fn a_renamed_file_is_noticed() {
    let mut w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let file = w.home().join("config.yaml");
    let kept = fs::read_to_string(&file).unwrap();
    w = w.server("fresh", Script::new());
    let new = fs::read_to_string(&file).unwrap();
    fs::write(&file, kept).unwrap();
    fs::write(w.home().join(".config.yaml.swp"), new).unwrap();
    fs::rename(w.home().join(".config.yaml.swp"), &file).unwrap();
    client.wait_tool("mcp_fresh_echo");
}

/// A configuration behind exchanged links, as mounts and dotfile managers make them, is noticed.
#[test]
fn an_exchanged_link_is_noticed() {
    use std::os::unix::fs::symlink;
    let mut w = world().server("w", Script::new());
    let file = w.home().join("config.yaml");
    let mount = w.path().join("mount");
    for version in ["v1", "v2"] {
        fs::create_dir_all(mount.join(version)).unwrap();
    }
    fs::rename(&file, mount.join("v1/config.yaml")).unwrap();
    symlink("v1", mount.join("data")).unwrap();
    symlink(mount.join("data/config.yaml"), &file).unwrap();
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    fs::remove_file(&file).unwrap();
    w = w.server("fresh", Script::new());
    fs::rename(&file, mount.join("v2/config.yaml")).unwrap();
    symlink(mount.join("data/config.yaml"), &file).unwrap();
    assert!(!client.tool_names().contains(&"mcp_fresh_echo".to_owned()));
    symlink("v2", mount.join("data.new")).unwrap();
    fs::rename(mount.join("data.new"), mount.join("data")).unwrap();
    client.wait_tool("mcp_fresh_echo");
    assert_eq!(w.journal("w").starts(), 1);
}

/// A file that is written in two pieces is read when it is whole; the half of it stops nobody.
#[test]
fn a_half_written_file_stops_nobody() {
    let mut w = world().server("w", Script::new()).server("z", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w", "z"]);
    let pid = w.wait_server_pid("z");
    w = w.server("fresh", Script::new());
    let file = w.home().join("config.yaml");
    let whole = fs::read_to_string(&file).unwrap();
    // Cut in the middle of an entry: it would name a server less, and one without a command.
    let cut = whole.find("  z:").unwrap() + 4;
    fs::write(&file, &whole[..cut]).unwrap();
    assert!(holds_for(Duration::from_millis(300), || w.server_pid("z") == Some(pid)));
    fs::write(&file, &whole).unwrap();
    client.wait_tool("mcp_fresh_echo");
    assert_eq!(w.server_pid("z"), Some(pid));
    assert_eq!(w.journal("z").starts(), 1);
}

/// A parked server whose entry is mended comes back with the reload; a disabled one goes, an enabled one comes.
#[test]
fn a_mended_entry_comes_back_with_the_reload() {
    let mut w = world()
        .entry("w", &["command: /nonexistent/server"])
        .server_with("off", Script::new(), &["enabled: no"])
        .server("on", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["on"]);
    w.wait_phase("w", "parked");
    assert_eq!(w.phase("off"), "disabled");
    w = w.server("w", Script::new()).server("off", Script::new()).server_with(
        "on",
        Script::new(),
        &["enabled: false"],
    );
    reload(&w);
    client.wait_tool("mcp_w_echo");
    client.wait_tool("mcp_off_echo");
    wait_for("the disabled one is gone", SOON, || w.processes("on").is_empty());
    assert!(!client.tool_names().iter().any(|name| name.starts_with("mcp_on_")));
    assert_eq!(w.phase("on"), "disabled");
}

/// An entry that became wrong takes out its own server and says so; mended, it is as before.
#[test]
fn an_entry_that_became_wrong_takes_out_only_itself() {
    let mut w = world().server("w", Script::new()).server("v", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w", "v"]);
    let pid = w.wait_server_pid("v");
    w = w.server_with("w", Script::new(), &["timeout: soon"]);
    reload(&w);
    assert_eq!(w.phase("w"), "refused");
    wait_for("its process is gone", SOON, || w.processes("w").is_empty());
    w = w.server("w", Script::new());
    reload(&w);
    client.wait_tool("mcp_w_echo");
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "back"})), "back");
    assert_eq!(w.server_pid("v"), Some(pid));
}
