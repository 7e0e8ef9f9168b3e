//! `hermesctl mcp add` and `configure` with a person at a terminal.

use crate::world;
use hermes_tests::{HttpFake, Pty, Script, World, plain_server};
use serde_json::json;
use std::fs;

const ENTER: &str = "\r";
const DOWN: &str = "\x1b[B";
const LEFT: &str = "\x1b[D";

fn ask(w: &World, args: &[&str]) -> Pty {
    let mut command = w.command(&w.bins().hermesctl);
    command.args(args).env("TERM", "xterm-256color");
    Pty::start(&command, 120, 40)
}

fn config(w: &World) -> String {
    fs::read_to_string(w.home().join("config.yaml")).unwrap_or_default()
}

fn three_tools() -> Script {
    let tool = |name: &str| json!({"name": name, "description": format!("does {name}"), "inputSchema": {"type": "object"}});
    Script::new().with(|script| script.tools = Some(vec![tool("read_it"), tool("write_it"), tool("drop_it")]))
}

fn program(w: &World, script: Script) -> [String; 2] {
    w.rescript("s", script);
    [w.bins().fake_server.display().to_string(), w.path().join("s.script").display().to_string()]
}

/// The checklist is searched by typing; what is ticked is written.
#[test]
fn tools_are_ticked_in_a_list() {
    let w = world();
    let [fake, script] = program(&w, three_tools());
    let _daemon = w.start();
    let mut add = ask(&w, &["mcp", "add", "s", "--", &fake, &script]);
    add.wait_words("let me choose");
    add.type_in(DOWN);
    add.type_in(ENTER);
    add.wait_words("type to search");
    add.type_in(LEFT);
    add.type_in("write");
    add.wait_words("does write_it");
    add.type_in(" ");
    add.type_in(ENTER);
    add.wait_words("hermesd has it");
    assert_eq!(add.wait().code(), Some(0));
    assert!(config(&w).contains("include: [write_it]"), "{}", config(&w));
    let mut again = ask(&w, &["mcp", "configure", "s"]);
    again.wait_words("type to search");
    again.type_in(LEFT);
    again.type_in(ENTER);
    again.wait_words("no tool");
    assert_eq!(again.wait().code(), Some(0));
    assert!(config(&w).contains("include: []"), "{}", config(&w));
}

/// A secret is typed without echo.
#[test]
fn a_secret_is_not_echoed() {
    let w = world();
    let [fake, script] = program(&w, Script::new());
    let _daemon = w.start();
    let mut add = ask(&w, &["mcp", "add", "s", "--tools", "all", "--env", "MY_TOKEN", "--", &fake, &script]);
    add.wait_words("value of MY_TOKEN");
    add.type_in("hushhush-123");
    add.type_in(ENTER);
    add.wait_words("hermesd has it");
    assert_eq!(add.wait().code(), Some(0));
    assert!(!add.raw().contains("hushhush"), "{}", add.raw());
    assert_eq!(fs::read_to_string(w.home().join(".env")).unwrap(), "MY_TOKEN=hushhush-123\n");
}

/// A server that does not work: Enter means no, and nothing is written; yes saves it disabled.
#[test]
fn what_does_not_work_is_saved_only_on_a_yes() {
    let w = world();
    let _daemon = w.start();
    let mut add = ask(&w, &["mcp", "add", "s", "--command", "/no/such/program"]);
    add.wait_words("Save it anyway, disabled?");
    add.type_in(ENTER);
    assert_eq!(add.wait().code(), Some(1));
    assert_eq!(config(&w), "");
    let mut add = ask(&w, &["mcp", "add", "s", "--command", "/no/such/program"]);
    add.wait_words("Save it anyway, disabled?");
    add.type_in("y");
    add.type_in(ENTER);
    assert_eq!(add.wait().code(), Some(0));
    assert!(config(&w).contains("enabled: false"), "{}", config(&w));
}

/// A remote server that wants a token gets one, is tried again, and is saved with it.
#[test]
fn a_remote_server_asks_for_what_it_needs() {
    let w = world();
    let remote = HttpFake::start(|got, answer| match got.header("authorization") {
        Some("Bearer t0ken-12345") => plain_server(got, answer),
        _ => answer.status(401, &[("WWW-Authenticate", "Bearer")], ""),
    });
    let _daemon = w.start();
    let mut add = ask(&w, &["mcp", "add", "far", "--url", &remote.url(), "--tools", "echo"]);
    add.wait_words("wants to know who you are");
    add.wait_words("a token");
    add.type_in(DOWN);
    add.type_in(ENTER);
    add.wait_words("? token");
    add.type_in("t0ken-12345");
    add.type_in(ENTER);
    add.wait_words("hermesd has it");
    assert_eq!(add.wait().code(), Some(0));
    assert!(!add.raw().contains("t0ken"));
    assert!(config(&w).contains("Bearer ${MCP_FAR_API_KEY}"), "{}", config(&w));
}

/// Esc ends it with nothing written and the terminal as it was; removing asks; testing offers to enable.
#[test]
fn questions_can_be_left_and_answered_with_enter() {
    let w = world().server_with("w", Script::new(), &["enabled: false"]);
    let before = config(&w);
    let [fake, script] = program(&w, three_tools());
    let _daemon = w.start();
    let mut add = ask(&w, &["mcp", "add", "s", "--", &fake, &script]);
    add.wait_words("let me choose");
    add.type_in("\x1b");
    add.wait_words("nothing was written");
    assert_eq!(add.wait().code(), Some(1));
    assert!(add.is_cooked(), "the terminal is as it was");
    assert_eq!(config(&w), before);
    let mut test = ask(&w, &["mcp", "test", "w"]);
    test.wait_words("w is disabled. Enable it?");
    test.type_in("y");
    test.type_in(ENTER);
    test.wait_words("w is enabled");
    assert_eq!(test.wait().code(), Some(0));
    let mut remove = ask(&w, &["mcp", "remove", "w"]);
    remove.wait_words("Remove w");
    remove.type_in(ENTER);
    remove.wait_words("removed w");
    assert_eq!(remove.wait().code(), Some(0));
    assert!(config(&w).contains("mcp_servers: {}"), "{}", config(&w));
}
