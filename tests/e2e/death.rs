//! A dying server: everyone waiting is told at once, it comes back with backoff, nothing is done twice.

use crate::world;
use hermes_tests::kill;
use hermes_tests::script::FailStarts;
use hermes_tests::{SOON, Script, census, holds_for, wait_for};
use rustix::process::Signal;
use serde_json::json;
use std::time::{Duration, Instant};

/// A crash in the middle of a call is answered within a second, although the call may take half an hour.
#[test]
fn a_crash_answers_within_a_second() {
    let w = world().server_with("w", Script::new(), &["timeout: 1800"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let start = Instant::now();
        let result = client.call("mcp_w_crash", &json!({}));
        best = best.min(start.elapsed());
        assert_eq!(result["isError"], true, "{result}");
        wait_for("the server is back", SOON, || {
            client.call("mcp_w_echo", &json!({"text": "back"}))["content"][0]["text"] == "back"
        });
    }
    assert!(best < Duration::from_secs(1), "fastest of three: {best:?}");
}

/// Every call in flight is answered when its server dies, not just the first.
#[test]
fn all_pending_calls_are_answered_when_the_server_dies() {
    let w = world().server_with("w", Script::new(), &["timeout: 1800", "max_concurrency: 20"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let pid = w.wait_server_pid("w");
    let ids: Vec<_> = (0..20).map(|_| client.begin_call("mcp_w_hang", &json!({}))).collect();
    wait_for("all calls are at the server", SOON, || w.journal("w").received("tools/call").len() == 20);
    kill(pid, Signal::KILL);
    for id in ids {
        let answer = client.reply(&id);
        assert_eq!(answer["result"]["isError"], true, "{answer}");
    }
}

/// The answer for a lost call says that it may have been executed, and it is not repeated.
#[test]
fn a_lost_call_is_not_repeated_and_says_so() {
    let w = world().server("w", Script::new());
    let file = w.path().join("effects");
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let text = client.text("mcp_w_append_then_die", &json!({"file": file, "text": "paid"}));
    assert!(text.contains("w"), "{text}");
    wait_for("the server is back", SOON, || {
        client.call("mcp_w_echo", &json!({"text": "back"}))["content"][0]["text"] == "back"
    });
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "paid\n");
    assert!(text.contains("may have") || text.contains("unknown"), "{text}");
}

/// A server that dies while idle comes back by itself; its tools stay listed meanwhile.
#[test]
fn a_dead_server_comes_back_and_keeps_its_tools() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let old = w.wait_server_pid("w");
    kill(old, Signal::KILL);
    assert!(client.tool_names().contains(&"mcp_w_echo".to_owned()));
    wait_for("a new process", SOON, || w.server_pid("w").is_some_and(|new| new != old));
    wait_for("the server is back", SOON, || {
        client.call("mcp_w_echo", &json!({"text": "back"}))["content"][0]["text"] == "back"
    });
}

/// A server whose stdout is closed is as good as dead: it is replaced, its old process ends.
#[test]
fn a_closed_stdout_is_a_death() {
    let w = world().server("w", Script::stubborn());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let old = w.wait_server_pid("w");
    assert_eq!(client.call("mcp_w_close_stdout", &json!({}))["isError"], true);
    wait_for("a new process", SOON, || w.server_pid("w").is_some_and(|new| new != old));
    assert!(census::process(old).is_none());
}

/// A server that fails at once is tried again with growing pauses, not in a storm.
#[test]
fn a_failing_start_is_no_storm() {
    let w = world().server("w", Script::new().with(|s| s.exit_at_start = Some(1)));
    let _daemon = w.start();
    wait_for("the first start", SOON, || w.journal("w").starts() >= 1);
    assert!(
        holds_for(Duration::from_secs(5), || w.journal("w").starts() <= 5),
        "{}",
        w.journal("w").starts()
    );
    let phase = w.phase("w");
    assert!(["backing_off", "parked", "starting"].contains(&phase.as_str()), "{phase}");
}

/// Status names the exit code and what the server said last.
#[test]
fn a_failed_start_says_why() {
    let fail = FailStarts { count: 99, code: 3, stderr: "ModuleNotFoundError: no module named fish".into() };
    let w = world().server("w", Script::new().with(|s| s.fail_starts = Some(fail)));
    let _daemon = w.start();
    wait_for("the reason is shown", SOON, || {
        let all = w.ctl(["servers", "show", "w", "--json"]).stdout;
        all.contains("no module named fish") && all.contains('3')
    });
}

/// A command that does not exist parks its server at once; the others work.
#[test]
fn a_missing_command_parks_only_its_server() {
    let w = world().server("w", Script::new()).entry("gone", &["command: /nonexistent/server"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "fine"})), "fine");
    w.wait_phase("gone", "parked");
    let reason = w.status("gone")["reason"].as_str().unwrap_or_default().to_owned();
    assert!(reason.contains("/nonexistent/server") || reason.contains("not found"), "{reason}");
}

/// Exit 127 is the shell's word for the same.
#[test]
fn exit_code_127_parks_at_once() {
    let w = world().server("w", Script::new().with(|s| s.exit_at_start = Some(127)));
    let _daemon = w.start();
    w.wait_phase("w", "parked");
    assert!(holds_for(Duration::from_secs(3), || w.journal("w").starts() == 1));
}

/// A parked server that was mended comes back by command.
#[test]
fn a_mended_server_starts_by_command() {
    let w = world().server("w", Script::new().with(|s| s.exit_at_start = Some(127)));
    let _daemon = w.start();
    w.wait_phase("w", "parked");
    w.rescript("w", Script::new());
    w.ctl(["servers", "start", "w"]).succeeds();
    assert_eq!(w.phase("w"), "ready");
}

/// A slow server keeps nobody waiting.
#[test]
fn a_server_that_hangs_in_initialize_blocks_nobody() {
    let w = world()
        .server("stuck", Script::new().with(|s| s.hang = vec!["initialize".into()]))
        .server("w", Script::new());
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "go"})), "go");
}

/// Servers that exit by themselves leave no zombies behind.
#[test]
fn ended_servers_are_reaped() {
    let w = world().server("w", Script::new());
    let daemon = w.start();
    let _client = w.client(&["w"]);
    for _ in 0..3 {
        let old = w.wait_server_pid("w");
        kill(old, Signal::KILL);
        wait_for("a new process", SOON, || w.server_pid("w").is_some_and(|new| new != old));
    }
    wait_for("no zombie", SOON, || {
        let guards = census::children(daemon.pid());
        let below = guards.iter().flat_map(|g| census::children(g.pid));
        guards.iter().cloned().chain(below).all(|p| p.state != 'Z')
    });
}
