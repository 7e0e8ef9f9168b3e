//! `hermesctl top` on a terminal: shows what runs, acts, and leaves the terminal as it was.

use crate::world;
use hermes_tests::{Pty, Script, World, kill, wait_for};
use rustix::process::Signal;
use serde_json::json;

fn top(w: &World) -> Pty {
    let mut command = w.command(&w.bins().hermesctl);
    command.arg("top").env("TERM", "xterm-256color");
    Pty::start(&command, 100, 30)
}

/// It starts, shows a server with memory, acts after a question, and quits with the terminal as it was.
#[test]
fn top_shows_a_server_restarts_it_and_quits_clean() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    client.text("mcp_w_echo", &json!({"text": "x"}));
    let before = w.wait_server_pid("w");
    let mut top = top(&w);
    top.wait_words("1/1 ready");
    top.wait_words("tester");
    assert!(!top.is_cooked());
    top.type_in("r");
    top.wait_words("Restart server w?");
    top.type_in("y");
    wait_for("another process of w", hermes_tests::SOON, || {
        w.server_pid("w").is_some_and(|pid| pid != before)
    });
    top.wait_words("w is ready");
    top.type_in("q");
    assert_eq!(top.wait().code(), Some(0));
    assert!(top.is_cooked(), "the terminal is as it was");
    let raw = top.raw();
    assert!(raw.contains("\x1b[?1049h") && raw.contains("\x1b[?1049l"), "its own screen, and back");
    assert!(raw.rfind("\x1b[?25h") > raw.rfind("\x1b[?25l"), "the cursor is back");
}

/// A waiting call is answered on the screen.
#[test]
fn top_answers_a_waiting_call() {
    let w = world().server_with("w", Script::new(), &["approval: always"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let call = client.begin_call("mcp_w_echo", &json!({"text": "gated"}));
    let mut top = top(&w);
    top.wait_words("1 call waits");
    top.type_in("2a");
    top.wait_words("Allow this call, once?");
    top.wait_words("gated");
    top.type_in("y");
    let answer = client.reply(&call);
    assert!(
        answer.to_string().contains("gated") && !answer.to_string().contains("isError\":true"),
        "{answer}"
    );
    top.type_in("q");
    assert_eq!(top.wait().code(), Some(0));
}

/// A signal gives the terminal back too.
#[test]
fn a_signal_ends_top_and_gives_the_terminal_back() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut top = top(&w);
    top.wait_words("w");
    wait_for("raw mode", hermes_tests::SOON, || !top.is_cooked());
    kill(top.pid(), Signal::TERM);
    assert_eq!(top.wait().code(), Some(143));
    assert!(top.is_cooked());
}

/// The daemon may go and come back meanwhile.
#[test]
fn top_says_that_the_daemon_is_gone_and_finds_the_next_one() {
    let w = world().server("w", Script::new());
    let mut daemon = w.start();
    let mut top = top(&w);
    top.wait_words(&format!("pid {}", daemon.pid()));
    daemon.stop();
    top.wait_words("trying again");
    let next = w.start();
    top.wait_words(&next.pid().to_string());
    top.type_in("q");
    assert_eq!(top.wait().code(), Some(0));
}

/// Where there is no terminal it says what to use in its place; for programs there is one look as JSON.
#[test]
fn without_a_terminal_top_names_the_other_commands() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let _client = w.client(&["w"]);
    let run = w.ctl(["top"]).exits(2);
    assert!(run.last_error_line().contains("hermesctl status"), "{run:?}");
    let look = w.ctl(["top", "--json"]).succeeds().json();
    let server = &look["status"]["servers"][0];
    assert_eq!(server["phase"], "ready");
    assert!(server["processes"].as_u64().unwrap() >= 1, "{server}");
    assert!(server["memory_bytes"].as_u64().unwrap() > 100_000, "{server}");
    assert_eq!(w.status("w")["memory_bytes"], 0, "nobody pays for it who did not ask");
}
