//! hermesd under a service manager: sockets that outlive it, notices, levels for a journal.

use crate::world;
use hermes_tests::{Handed, Notices, Order, SOON, Script, wait_for};
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::path::Path;

/// Puts a program at `to` as an installer does: a new file in the place of an old one.
fn put(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    let _ = fs::remove_file(to);
    if fs::hard_link(from, to).is_err() {
        fs::copy(from, to).unwrap();
    }
}

/// Sockets of a service manager are used, answered by the next daemon, and never removed.
#[test]
fn shims_survive_an_upgrade_on_sockets_that_were_handed_over() {
    let w = world().server("w", Script::new());
    let handed = Handed::listen(&w);
    let files = handed.files();
    let program = w.path().join("bin/hermesd");
    put(&w.bins().hermesd, &program);
    // Earlier than any daemon: its connection waits in the manager's socket.
    let mut client = w.shim();
    let mut old = handed.launch(&w, &program, Order::Listed, &[]);
    client.initialize();
    client.wait_tool("mcp_w_echo");
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "one"})), "one");
    // The new program takes the old one's place while that one still runs and starts servers.
    put(&w.bins().hermesd, &program);
    w.ctl(["servers", "restart", "w"]).succeeds();
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "two"})), "two");
    assert!(old.stop().success());
    assert_eq!(handed.files(), files, "the manager's files stay");
    // Asked while nobody runs; the order of the descriptors says nothing.
    let asked = client.begin_call("mcp_w_echo", &json!({"text": "three"}));
    let mut new = handed.launch(&w, &program, Order::Reversed, &[]);
    assert_eq!(client.reply(&asked)["result"]["content"][0]["text"], "three");
    new.kill_hard();
    let mut last = handed.launch(&w, &program, Order::Listed, &[]);
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "four"})), "four");
    assert_eq!(w.ctl(["status", "--json"]).succeeds().json()["pid"], json!(last.pid()));
    drop(client);
    assert!(last.stop().success());
    assert_eq!(handed.files(), files);
}

/// One socket alone would leave the other unanswered.
#[test]
fn half_a_handover_is_refused_by_name() {
    let w = world();
    let handed = Handed::listen(&w);
    let mut daemon = handed.launch(&w, &w.bins().hermesd, Order::Listed, &[("LISTEN_FDS", "1")]);
    assert!(!daemon.wait().success());
    let said = daemon.output();
    assert!(said.contains("mcp.sock") && said.contains("control.sock"), "{said}");
    assert!(said.lines().any(|line| line.starts_with("<3>error: ")), "{said}");
    handed.files();
}

/// The manager hears of the start, of life, of a reload and of the stop.
#[test]
fn start_life_reload_and_stop_are_notified() {
    let w = world();
    let mut notices = Notices::listen(&w);
    let handed = Handed::listen(&w);
    let address = notices.address().to_owned();
    let env = [("NOTIFY_SOCKET", address.as_str()), ("WATCHDOG_USEC", "300000")];
    let mut daemon = handed.launch(&w, &w.bins().hermesd, Order::Listed, &env);
    notices.wait("READY=1");
    w.ctl(["status"]).succeeds();
    notices.wait("WATCHDOG=1");
    notices.wait("WATCHDOG=1");
    daemon.signal(Signal::HUP);
    notices.wait("RELOADING=1");
    notices.wait("READY=1");
    daemon.signal(Signal::TERM);
    notices.wait("STOPPING=1");
    assert!(daemon.wait().success());
}

/// A daemon that hangs stops telling of life, so that the manager starts it afresh.
#[test]
fn a_stopped_daemon_gives_no_beat() {
    let w = world();
    let mut notices = Notices::listen(&w);
    let address = notices.address().to_owned();
    let mut command = w.command(&w.bins().hermesd);
    command.env("NOTIFY_SOCKET", &address).env("WATCHDOG_USEC", "300000");
    let mut daemon = w.launch_command(&mut command);
    notices.wait("WATCHDOG=1");
    daemon.signal(Signal::STOP);
    assert!(notices.silent_for(std::time::Duration::from_millis(900)), "three times the limit");
    daemon.signal(Signal::CONT);
    notices.wait("WATCHDOG=1");
    assert!(daemon.stop().success());
}

/// Lines for a journal carry their level and no time; a journal that is not ours is none.
#[test]
fn a_journal_gets_levels_and_a_terminal_does_not() {
    let w = world().yaml("mcp_servers:\n  bad: {command: [1]}");
    let handed = Handed::listen(&w);
    let mut daemon = handed.launch(&w, &w.bins().hermesd, Order::Listed, &[]);
    wait_for("it is ready", SOON, || daemon.output().contains("hermesd is ready"));
    assert!(daemon.stop().success());
    let said = daemon.output();
    assert!(said.lines().all(|line| line.starts_with('<') && line[2..].starts_with('>')), "{said}");
    assert!(said.lines().any(|line| line.starts_with("<6>") && line.contains("hermesd starts")), "{said}");
    let w = world();
    let mut command = w.command(&w.bins().hermesd);
    let mut daemon = w.launch_command(command.env("JOURNAL_STREAM", "1:1"));
    wait_for("it is ready", SOON, || daemon.output().contains("hermesd is ready"));
    assert!(daemon.stop().success());
    assert!(!daemon.output().contains("<6>"), "{}", daemon.output());
}
