//! No process outlives its reason: stop, restart, crash of the daemon, of a guard, of a client.

use crate::world;
use hermes_tests::kill;
use hermes_tests::{Fork, SOON, Script, World, holds_for, wait_for, wait_some};
use rustix::process::Signal;
use serde_json::json;
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::Duration;

/// A launcher with one grandchild of each kind, deaf to everything that can be ignored.
fn worst() -> Script {
    Script::stubborn().with(|s| s.forks = vec![Fork::Plain, Fork::Setsid, Fork::Daemon])
}

/// Waits until the server and its three grandchildren run.
fn wait_whole_tree(w: &World) -> Vec<i32> {
    // One look has to see all four: between two, a process on its way to being a grandchild may end.
    wait_some("the server and three grandchildren", SOON, || {
        let all = w.processes("w");
        let sleepers = all.iter().filter(|p| p.cmdline.contains("--sleeper")).count();
        let whole = w.server_pid("w").is_some() && sleepers == 3 && all.len() == 4;
        whole.then(|| all.iter().map(|p| p.pid).collect())
    })
}

/// `servers stop` returns when nothing of the server is left, even if it ignores everything.
#[test]
fn a_stopped_server_leaves_no_process_behind() {
    let w = world().server("w", worst());
    let _daemon = w.start();
    let client = w.client(&["w"]);
    wait_whole_tree(&w);
    let guard = w.guards()[0].pid;
    w.ctl(["servers", "stop", "w"]).succeeds();
    assert_eq!(w.processes("w"), []);
    wait_for("its guard ends too", SOON, || hermes_tests::census::process(guard).is_none());
    drop(client);
}

/// A restart ends the old generation completely before the new one starts.
#[test]
fn a_restart_leaves_one_generation() {
    let w = world().server("w", worst());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let old = wait_whole_tree(&w);
    w.ctl(["servers", "restart", "w"]).succeeds();
    assert!(old.iter().all(|pid| hermes_tests::census::process(*pid).is_none()), "{:?}", w.processes("w"));
    let new = wait_whole_tree(&w);
    assert_eq!(new.len(), 4);
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "again"})), "again");
}

/// Twenty restarts are twenty processes one after the other, never two at once.
#[test]
fn restarts_never_overlap() {
    let w = world().server("w", Script::new());
    let daemon = w.start();
    let _client = w.client(&["w"]);
    let fds = hermes_tests::census::open_fds(daemon.pid()).len();
    for _ in 0..20 {
        w.ctl(["servers", "restart", "w"]).succeeds();
        assert_eq!(w.processes("w").len(), 1);
        assert_eq!(w.guards().len(), 1);
    }
    wait_for("no file descriptor is lost", SOON, || {
        hermes_tests::census::open_fds(daemon.pid()).len() <= fds + 1
    });
}

/// When the daemon's exit code is there, its servers are gone.
#[test]
fn an_orderly_end_of_the_daemon_leaves_nothing() {
    let w = world().server("w", worst()).server("v", Script::new());
    let mut daemon = w.start();
    let client = w.client(&["w", "v"]);
    wait_whole_tree(&w);
    drop(client);
    assert!(daemon.stop().success());
    assert_eq!(w.census(), []);
}

/// Servers that are still starting are ended too.
#[test]
fn a_server_that_is_still_starting_is_ended_with_the_daemon() {
    let w = world().server("w", worst().with(|s| s.hang = vec!["initialize".into()]));
    let mut daemon = w.start();
    wait_whole_tree(&w);
    assert!(daemon.stop().success());
    assert_eq!(w.census(), []);
}

/// `kill -9` of the daemon: the guards end everything by themselves.
#[test]
fn a_killed_daemon_leaves_nothing() {
    let w = world().server("w", worst()).server("v", Script::new());
    let mut daemon = w.start();
    let client = w.client(&["w", "v"]);
    wait_whole_tree(&w);
    drop(client);
    daemon.kill_hard();
    wait_for("everything ends without a new daemon", SOON, || w.census().is_empty());
}

/// After a crash the next daemon runs exactly one of each server, none of the old ones.
#[test]
fn a_new_daemon_after_a_crash_starts_clean() {
    let w = world().server("w", worst()).server("v", Script::new());
    let mut daemon = w.start();
    drop(w.client(&["w", "v"]));
    let mut old = wait_whole_tree(&w);
    old.extend(w.server_pid("v"));
    daemon.kill_hard();
    let _daemon = w.start();
    let _client = w.client(&["w", "v"]);
    w.ctl(["servers", "start", "w"]).succeeds();
    wait_whole_tree(&w);
    assert!(old.iter().all(|pid| hermes_tests::census::process(*pid).is_none()));
}

/// `kill -9` of a guard: its whole tree goes, then a new generation serves.
#[test]
fn a_killed_guard_takes_its_tree_along() {
    let w = world().server("w", worst());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let old = wait_whole_tree(&w);
    kill(w.guards()[0].pid, Signal::KILL);
    wait_for("the old tree is gone", SOON, || {
        old.iter().all(|pid| hermes_tests::census::process(*pid).is_none())
    });
    let new = wait_whole_tree(&w);
    assert_eq!(new.len(), 4);
    wait_for("the new generation serves", SOON, || {
        client.call("mcp_w_echo", &json!({"text": "new"}))["content"][0]["text"] == "new"
    });
}

/// `kill -9` of a shim disturbs nobody else.
#[test]
fn a_killed_shim_disturbs_nobody() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut other = w.client(&["w"]);
    let pid = w.wait_server_pid("w");
    let mut gone = w.client(&["w"]);
    gone.begin_call("mcp_w_sleep", &json!({"ms": 600_000}));
    wait_for("the call is at the server", SOON, || !w.journal("w").received("tools/call").is_empty());
    gone.kill_hard();
    wait_for("its call is cancelled", SOON, || w.journal("w").received("notifications/cancelled").len() == 1);
    assert_eq!(other.text("mcp_w_echo", &json!({"text": "on"})), "on");
    assert_eq!(w.server_pid("w"), Some(pid));
}

/// A client that dies takes its shim with it, even with a call in flight.
#[test]
fn a_dead_client_ends_its_shim() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    drop(w.client(&["w"]));
    let mut command = w.command(&w.bins().hermesctl);
    let mut shim =
        command.args(["mcp", "serve"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = shim.stdin.take().unwrap();
    let info = json!({"name": "t", "version": "1"});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}});
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "mcp_w_sleep", "arguments": {"ms": 600_000}}});
    writeln!(stdin, "{hello}\n{call}").unwrap();
    let mut first = [0];
    shim.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    wait_for("the call is at the server", SOON, || !w.journal("w").received("tools/call").is_empty());
    drop((stdin, shim.stdout.take()));
    wait_for("the shim ends", SOON, || shim.try_wait().unwrap().is_some());
    wait_for("its call is cancelled", SOON, || w.journal("w").received("notifications/cancelled").len() == 1);
}

/// Five deaf servers end within the one budget of the daemon, not one after the other.
#[test]
fn the_stop_budget_is_one_for_all() {
    let names = ["a", "b", "c", "d", "e"];
    let w = names.iter().fold(world(), |w, name| w.server(name, Script::stubborn()));
    let mut daemon = w.start();
    drop(w.client(&names));
    let start = std::time::Instant::now();
    assert!(daemon.stop().success());
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(w.census(), []);
}

/// A stopped server stays stopped until someone asks for it.
#[test]
fn a_stopped_server_stays_stopped() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let _client = w.client(&["w"]);
    w.ctl(["servers", "stop", "w"]).succeeds();
    assert!(holds_for(Duration::from_secs(3), || w.processes("w").is_empty()));
    assert_eq!(w.phase("w"), "stopped");
}
