//! The fake server itself: a test double that lies would make every other test worthless.

use crate::world;
use hermes_tests::{Fork, Framing, SOON, Script, Shim, wait_for};
use serde_json::json;

/// The fake server without hermesd in between.
fn direct(script: Script) -> (hermes_tests::World, Shim) {
    let w = world().server("f", script);
    let script = w.path().join("f.script");
    let shim = Shim::start(w.command(&w.bins().fake_server).arg(script));
    (w, shim)
}

#[test]
fn a_default_script_is_a_well_behaved_server() {
    let (w, mut fake) = direct(Script::new());
    assert_eq!(fake.initialize()["serverInfo"]["name"], "fake");
    assert!(fake.tool_names().contains(&"echo".to_owned()));
    assert_eq!(fake.text("echo", &json!({"text": "日本"})), "日本");
    assert_eq!(fake.text("raw_args", &json!({"b": 1, "a": [1.50]})), r#"{"b":1,"a":[1.5]}"#);
    assert!(fake.text("fds", &json!({})).starts_with("[0, 1, 2"));
    fake.close_stdin();
    assert!(fake.wait().success());
    assert_eq!(w.journal("f").starts(), 1);
    assert_eq!(w.journal("f").received("notifications/initialized").len(), 1);
}

#[test]
fn a_cancelled_sleep_never_answers_and_others_go_on() {
    let (_w, mut fake) = direct(Script::new());
    fake.initialize();
    let slow = fake.begin_call("sleep", &json!({"ms": 600_000}));
    fake.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": slow}}));
    assert_eq!(fake.text("echo", &json!({"text": "on"})), "on");
    assert!(fake.drain().is_empty());
}

#[test]
fn every_line_framing_carries_the_same_message() {
    for framing in [Framing::Line, Framing::Crlf, Framing::FourKib, Framing::Borders, Framing::Bytes] {
        let (_w, mut fake) = direct(Script::framed(framing));
        fake.initialize();
        assert_eq!(fake.text("echo", &json!({"text": "é"})), "é", "{framing:?}");
    }
}

#[test]
fn grandchildren_outlive_a_careless_stop() {
    let (w, mut fake) =
        direct(Script::new().with(|s| s.forks = vec![Fork::Plain, Fork::Setsid, Fork::Daemon]));
    fake.initialize();
    wait_for("three sleepers", SOON, || {
        w.processes("f").iter().filter(|p| p.cmdline.contains("--sleeper")).count() >= 3
    });
    fake.kill_hard();
    assert!(w.processes("f").len() >= 3, "they are deaf to everything but KILL");
    w.processes("f").iter().for_each(|p| hermes_tests::kill(p.pid, rustix::process::Signal::KILL));
}
