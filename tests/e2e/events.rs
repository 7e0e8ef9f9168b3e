//! What happens in conversations reaches clients: at once, once, in order, whoever writes and however.

use crate::world;
use hermes_tests::{ForeignWriter, SOON, Shim, World, holds_for, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

/// Defects of the reference's event bridge, and the test that shows each one gone: here, or beside the code.
const DEFECTS: [(&str, &str); 9] = [
    (
        "commits in WAL mode are not seen while the writer's connection is open",
        "a_wait_ends_with_a_message_of_another_process",
    ),
    ("a change of sessions.json alone is never looked at", "a_session_that_is_named_late_loses_nothing"),
    ("history is replayed, cursors begin anew with each start", "cursors_outlive_the_daemon_and_its_log"),
    ("an older clock loses messages, a rewrite repeats them", "two_thousand_messages_come_once_and_in_order"),
    ("a rewrite is told as new messages", "rewritten_conversations_are_told_as_such"),
    ("an overflow is silent", "positions_tell_gaps_and_other_logs_apart"),
    ("waiting blocks the whole server", "waiting_blocks_nothing_and_can_be_cancelled"),
    ("a wait of nothing never looks", "a_wait_of_nothing_looks_once"),
    ("approvals reach nobody", "approvals_are_events_for_those_who_see_the_tool"),
];

/// Each defect has its test.
#[test]
fn every_known_defect_of_the_event_bridge_has_a_test() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let files = [
        "tests/e2e/events.rs",
        "daemon/src/conversations/watch/tests.rs",
        "daemon/src/conversations/events.rs",
        "daemon/src/conversations/events_tools.rs",
    ];
    let sources: String = files.iter().map(|file| fs::read_to_string(root.join(file)).unwrap()).collect();
    for (defect, test) in DEFECTS {
        assert!(sources.contains(&format!("fn {test}()")), "{defect}: no test {test}");
    }
}

fn client(w: &World) -> Shim {
    let mut shim = w.shim_with(&["mcp", "serve", "--only", "conversations"]);
    shim.initialize();
    shim
}

fn poll(shim: &mut Shim, arguments: &Value) -> Value {
    let result = shim.call("events_poll", arguments);
    assert_ne!(result["isError"], true, "{result}");
    result["structuredContent"].clone()
}

fn newest(shim: &mut Shim) -> Value {
    poll(shim, &json!({"limit": 1}))["latest_cursor"].clone()
}

/// Follows `next_cursor` until `count` events of this kind came.
fn follow(shim: &mut Shim, mut after: Value, kinds: &[&str], count: usize) -> Vec<Value> {
    let mut found: Vec<Value> = Vec::new();
    while found.len() < count {
        let asked = json!({"after_cursor": after, "kinds": kinds, "timeout_ms": 30_000});
        let waited = shim.call("events_wait", &asked)["structuredContent"].clone();
        assert!(waited["event"].is_object(), "after {} of {count}: {waited}", found.len());
        let page = poll(shim, &json!({"after_cursor": after, "kinds": kinds, "limit": 200}));
        found.extend(page["events"].as_array().unwrap().iter().cloned());
        after = page["next_cursor"].clone();
    }
    found
}

fn texts(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["content"].as_str().unwrap_or_default()).collect()
}

fn numbered(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|n| format!("m{n}")).collect()
}

/// A message that another process commits reaches a client that waits, while the writer keeps its connection.
#[test]
fn a_wait_ends_with_a_message_of_another_process() {
    let w = world();
    let mut writer = ForeignWriter::start(&w.home());
    writer.add("s1", "history");
    let _daemon = w.start();
    let mut shim = client(&w);
    let start = newest(&mut shim);
    let waiting = shim.begin_call("events_wait", &json!({"after_cursor": start, "timeout_ms": 60_000}));
    let id = writer.add("s1", "hello");
    let answer = shim.reply(&waiting)["result"]["structuredContent"].clone();
    let event = &answer["event"];
    assert_eq!((&event["type"], &event["content"]), (&json!("message"), &json!("hello")), "{answer}");
    assert_eq!(event["session_key"], "agent:main:telegram:dm:s1");
    assert_eq!(event["message_id"], id.to_string());
    assert_eq!(answer["next_cursor"], event["cursor"]);
    assert_eq!(poll(&mut shim, &json!({}))["events"].as_array().unwrap().len(), 1, "history is no event");
}

/// Two thousand messages: bursts and singles, clocks that go backwards, checkpoints, a killed writer, a daemon
/// that is restarted in the middle. None is missed, none comes twice, the order is that of the commits.
#[test]
fn two_thousand_messages_come_once_and_in_order() {
    let w = world();
    let mut writer = ForeignWriter::start(&w.home());
    let daemon = w.start();
    let mut shim = client(&w);
    let start = newest(&mut shim);
    writer.run("burst s1 0 400");
    for n in 400..460 {
        writer.add(if n % 3 == 0 { "s2" } else { "s1" }, &format!("m{n}"));
    }
    writer.run("checkpoint");
    writer.run("burst s2 460 340");
    // Dies with an open transaction: what was not committed never was.
    writer.run("sleepy s1 never");
    writer.kill_hard();
    let mut writer = ForeignWriter::start(&w.home());
    writer.run("burst s1 800 200");
    drop(daemon);
    writer.run("burst s3 1000 500");
    writer.run("checkpoint");
    let daemon = w.start();
    writer.run("burst s1 1500 300");
    writer.run("pace s2 1800 200 1");
    let events = follow(&mut shim, start, &["message"], 2000);
    assert_eq!(texts(&events), numbered(0..2000));
    let cursors: Vec<u64> = events.iter().map(|event| event["cursor"].as_u64().unwrap()).collect();
    assert!(cursors.windows(2).all(|pair| pair[0] < pair[1]));
    // Another client reads the same, and nothing comes afterwards.
    let mut other = client(&w);
    let oldest = poll(&mut other, &json!({"limit": 200}));
    assert_eq!(oldest["events"][0], events[0]);
    assert!(holds_for(Duration::from_millis(300), || newest(&mut other) == events[1999]["cursor"]));
    drop(daemon);
}

/// A rewrite is told as one, under a running daemon and under none, and only what is new comes as a message.
#[test]
fn rewritten_conversations_are_told_as_such() {
    let w = world();
    let mut writer = ForeignWriter::start(&w.home());
    let daemon = w.start();
    let mut shim = client(&w);
    let start = newest(&mut shim);
    writer.run("burst s1 0 20");
    follow(&mut shim, start.clone(), &["message"], 20);
    writer.run("rewrite s1 10");
    let told = follow(&mut shim, start.clone(), &["conversation_rewritten"], 1);
    assert_eq!(
        (&told[0]["removed"], &told[0]["session_key"]),
        (&json!(10), &json!("agent:main:telegram:dm:s1"))
    );
    writer.add("s1", "m20");
    writer.run("rewind s1 5");
    follow(&mut shim, start.clone(), &["conversation_rewritten"], 2);
    drop(daemon);
    writer.run("rewrite s1 3");
    writer.add("s1", "m21");
    let _daemon = w.start();
    let told = follow(&mut shim, start.clone(), &["conversation_rewritten"], 3);
    assert_eq!(told.len(), 3);
    let messages = follow(&mut shim, start, &["message"], 22);
    assert_eq!(texts(&messages), numbered(0..22));
}

/// Waiting blocks nothing else, is cancelled, and takes any number of clients.
#[test]
fn waiting_blocks_nothing_and_can_be_cancelled() {
    let w = world();
    let mut writer = ForeignWriter::start(&w.home());
    writer.add("s1", "history");
    let _daemon = w.start();
    let mut shims: Vec<Shim> = (0..4).map(|_| client(&w)).collect();
    let start = newest(&mut shims[0]);
    let wait =
        json!({"after_cursor": start, "session_key": "agent:main:telegram:dm:s1", "timeout_ms": 300_000});
    let waits: Vec<Value> = shims.iter_mut().map(|shim| shim.begin_call("events_wait", &wait)).collect();
    let more: Vec<Value> = (0..50).map(|_| shims[0].begin_call("events_wait", &wait)).collect();
    assert!(shims[0].request("ping", &json!({})).get("result").is_some());
    assert_ne!(shims[0].call("conversations_list", &json!({}))["isError"], true);
    let params = json!({"requestId": waits[3], "reason": "enough"});
    shims[3].send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
    assert!(shims[3].request("ping", &json!({})).get("result").is_some());
    writer.add("s2", "elsewhere");
    writer.add("s1", "here");
    for (shim, wait) in shims.iter_mut().zip(&waits).take(3) {
        assert_eq!(shim.reply(wait)["result"]["structuredContent"]["event"]["content"], "here");
    }
    for wait in &more {
        assert_eq!(shims[0].reply(wait)["result"]["structuredContent"]["event"]["content"], "here");
    }
    assert_eq!(shims[3].maybe_reply(&waits[3], Duration::from_millis(300)), None, "it was cancelled");
}

/// A daemon that is stopped lets those go who wait.
#[test]
fn stopping_does_not_wait_for_waiters() {
    let w = world();
    ForeignWriter::start(&w.home()).add("s1", "history");
    let mut daemon = w.start();
    let mut shim = client(&w);
    let start = newest(&mut shim);
    let waiting = shim.begin_call("events_wait", &json!({"after_cursor": start, "timeout_ms": 300_000}));
    assert!(shim.request("ping", &json!({})).get("result").is_some());
    let before = std::time::Instant::now();
    daemon.signal(Signal::TERM);
    let answer = shim.reply(&waiting);
    assert_eq!(answer["result"]["structuredContent"]["reason"], "restart", "{answer}");
    wait_for("the daemon ends", SOON, || daemon.exited().is_some());
    // Calls that do not end are given three seconds.
    let log = fs::read_to_string(w.home().join("logs/hermesd/hermesd.log")).unwrap_or_default();
    assert!(!log.contains("calls still in flight"), "{:?}\n{log}", before.elapsed());
}

/// A file that is not there at first is waited for; one that is replaced leaves a marker and begins anew.
#[test]
fn a_missing_file_is_waited_for_and_a_replaced_one_is_said() {
    let w = world();
    let daemon = w.start();
    let mut shim = client(&w);
    let start = newest(&mut shim);
    let mut writer = ForeignWriter::start(&w.home());
    writer.run("burst s1 0 30");
    let events = follow(&mut shim, start, &["message"], 30);
    assert_eq!(texts(&events), numbered(0..30));
    drop(writer);
    let other = tempfile::tempdir().unwrap();
    let mut elsewhere = ForeignWriter::start(other.path());
    elsewhere.run("burst s1 900 5");
    elsewhere.run("checkpoint");
    drop(elsewhere);
    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(w.home().join(format!("state.db{suffix}")));
    }
    // Onto the same file system first: a rename replaces at once.
    fs::copy(other.path().join("state.db"), w.home().join("state.db.new")).unwrap();
    fs::rename(w.home().join("state.db.new"), w.home().join("state.db")).unwrap();
    let after = events[29]["cursor"].clone();
    let gap = follow(&mut shim, after.clone(), &["gap"], 1);
    assert_eq!(gap[0]["type"], "gap");
    let mut writer = ForeignWriter::start(&w.home());
    writer.add("s1", "m30");
    let events = follow(&mut shim, gap[0]["cursor"].clone(), &["message"], 1);
    assert_eq!(texts(&events), ["m30"]);
    drop(daemon);
}

/// Cursors outlive the daemon; one from elsewhere is told apart; a lost log goes on above.
#[test]
fn cursors_outlive_the_daemon_and_its_log() {
    let w = world();
    let mut writer = ForeignWriter::start(&w.home());
    let daemon = w.start();
    let mut shim = client(&w);
    let start = newest(&mut shim);
    writer.add("s1", "m0");
    let first = follow(&mut shim, start, &["message"], 1);
    drop(daemon);
    let daemon = w.start();
    writer.add("s1", "m1");
    let second = follow(&mut shim, first[0]["cursor"].clone(), &["message"], 1);
    assert_eq!(texts(&second), ["m1"]);
    drop(daemon);
    // Damaged: moved aside, and a new log begins above the old numbers.
    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(w.home().join(format!("hermesd/hermesd.db{suffix}")));
    }
    fs::write(w.home().join("hermesd/hermesd.db"), "x".repeat(10_000)).unwrap();
    let _daemon = w.start();
    writer.add("s1", "m2");
    let page = loop {
        let page = poll(&mut shim, &json!({"after_cursor": second[0]["cursor"]}));
        if page["events"].as_array().is_some_and(|events| !events.is_empty()) {
            break page;
        }
    };
    assert_eq!((&page["gap"], &page["events"][0]["content"]), (&json!(true), &json!("m2")));
    assert!(page["events"][0]["cursor"].as_u64() > second[0]["cursor"].as_u64());
    let above = page["latest_cursor"].as_u64().unwrap() + 1000;
    let reset = shim.call("events_wait", &json!({"after_cursor": above, "timeout_ms": 300_000}));
    assert_eq!(reset["structuredContent"]["reset"], true);
    let moved = fs::read_dir(w.home().join("hermesd")).unwrap().flatten();
    assert!(
        moved.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("hermesd.db.damaged"))
    );
}

/// A hermesd.db of a newer hermesd is left as it is; events go on without it, and status says so.
#[test]
fn a_newer_log_is_not_written() {
    let w = world();
    let mut writer = ForeignWriter::start(&w.home());
    drop(w.start());
    let db = w.home().join("hermesd/hermesd.db");
    let script = "import sqlite3,sys; c=sqlite3.connect(sys.argv[1]); c.execute('PRAGMA user_version=999'); \
                  c.execute('PRAGMA wal_checkpoint(TRUNCATE)')";
    let done = std::process::Command::new("python3").args(["-c", script]).arg(&db).status().unwrap();
    assert!(done.success());
    let before = fs::read(&db).unwrap();
    let _daemon = w.start();
    let mut shim = client(&w);
    let start = newest(&mut shim);
    writer.add("s1", "m0");
    assert_eq!(texts(&follow(&mut shim, start, &["message"], 1)), ["m0"]);
    assert_eq!(fs::read(&db).unwrap(), before);
    let status = w.ctl(["status"]).succeeds().stdout;
    assert!(status.contains("newer hermesd"), "{status}");
}

/// What waits for a person and what was decided stands in the same log, for those who see the tool.
#[test]
fn approvals_are_events_for_those_who_see_the_tool() {
    let w = world()
        .yaml("hermesd:\n  conversations: on\n  profiles:\n    default: {}\n    blind:\n      servers: []\n")
        .server_with("w", hermes_tests::Script::new(), &["approval: always"]);
    let _daemon = w.start();
    let mut shim = w.client(&["w"]);
    let mut blind = w.shim_with(&["mcp", "serve", "--profile", "blind"]);
    blind.initialize();
    let start = newest(&mut shim);
    let call = shim.begin_call("mcp_w_echo", &json!({"text": "x"}));
    let asked = follow(&mut shim, start.clone(), &["approval_requested"], 1);
    let id = asked[0]["approval_id"].as_str().unwrap().to_owned();
    w.ctl(["approvals", "respond", &id, "allow-once"]).succeeds();
    assert_ne!(shim.reply(&call)["result"]["isError"], true);
    let decided = follow(&mut shim, asked[0]["cursor"].clone(), &["approval_resolved"], 1);
    assert_eq!((&decided[0]["approval_id"], &decided[0]["decision"]), (&json!(id), &json!("allow-once")));
    assert_eq!(poll(&mut blind, &json!({"after_cursor": start}))["events"], json!([]));
}

/// `hermesctl events` shows the same, and follows; status says what the watcher does.
#[test]
fn hermesctl_shows_and_follows_events() {
    let w = world();
    let mut writer = ForeignWriter::start(&w.home());
    let _daemon = w.start();
    let mut shim = client(&w);
    let start = newest(&mut shim);
    writer.add("s1", "m0");
    writer.add("s2", "m1");
    let events = follow(&mut shim, start.clone(), &["message"], 2);
    let text = w.ctl(["events"]).succeeds().stdout;
    assert!(text.contains("user: m0") && text.lines().count() == 2, "{text}");
    let of_s2 =
        w.ctl(["events", "--session", "agent:main:telegram:dm:s2", "--kind", "message", "--json"]).succeeds();
    let event: Value = serde_json::from_str(&of_s2.stdout).unwrap();
    assert_eq!((&event["content"], &event["cursor"]), (&json!("m1"), &events[1]["cursor"]));
    let since = events[0]["cursor"].to_string();
    assert_eq!(w.ctl(["events", "--since", &since]).succeeds().stdout.lines().count(), 1);
    let wrong = w.ctl(["events", "--kind", "nonsense"]).exits(1);
    assert!(wrong.stderr.contains("conversation_rewritten"), "{}", wrong.stderr);
    let mut following = w
        .command(&w.bins().hermesctl)
        .args(["events", "-f", "--json", "--since", &events[1]["cursor"].to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writer.add("s1", "m2");
    let line = BufReader::new(following.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["content"], "m2");
    following.kill().unwrap();
    following.wait().unwrap();
    let status = w.ctl(["status"]).succeeds().stdout;
    assert!(status.contains("following state.db") && status.contains("3 kept"), "{status}");
    let metrics = w.ctl(["metrics"]).succeeds().stdout;
    assert!(metrics.contains("hermes_events_total{kind=\"message\"} 3"), "{metrics}");
}

/// `conversations: off` means that nothing of them is copied anywhere.
#[test]
fn switched_off_conversations_make_no_events() {
    let w = world().yaml("hermesd:\n  conversations: off\n");
    let mut writer = ForeignWriter::start(&w.home());
    let _daemon = w.start();
    writer.add("s1", "m0");
    let status = || w.ctl(["status", "--json"]).succeeds().json()["events"].clone();
    wait_for("the watcher is off", SOON, || status()["watcher"] == "off");
    assert!(holds_for(Duration::from_millis(400), || status()["last_at_ms"] == "0"
        || status()["last_at_ms"] == 0));
    fs::write(w.home().join("config.yaml"), "hermesd:\n  conversations: on\n").unwrap();
    writer.add("s1", "m1");
    wait_for("events come again", SOON, || w.ctl(["events"]).succeeds().stdout.contains("m1"));
}

/// A conversation is a resource: it is read, and who follows it hears of new messages, also over a restart.
#[test]
fn conversations_are_resources_that_can_be_followed() {
    let w = world();
    let mut writer = ForeignWriter::start(&w.home());
    writer.add("s1", "m0");
    writer.add("s2", "m0");
    let daemon = w.start();
    let mut shim = w.shim_with(&["mcp", "serve", "--only", "conversations"]);
    assert_eq!(shim.initialize()["capabilities"]["resources"]["subscribe"], true);
    let templates =
        shim.request("resources/templates/list", &json!({}))["result"]["resourceTemplates"].clone();
    assert_eq!(templates[0]["uriTemplate"], "hermes://conversations/{session_key}");
    let (plain, encoded) = (
        "hermes://conversations/agent:main:telegram:dm:s1",
        "hermes://conversations/agent%3Amain%3Atelegram%3Adm%3As2",
    );
    for uri in [plain, encoded] {
        let content = shim.request("resources/read", &json!({"uri": uri}))["result"]["contents"][0].clone();
        assert_eq!(content["uri"], uri);
        let page: Value = serde_json::from_str(content["text"].as_str().unwrap()).unwrap();
        assert_eq!(page["messages"][0]["content"], "m0");
        assert!(shim.request("resources/subscribe", &json!({"uri": uri})).get("result").is_some());
    }
    let unknown = shim.request("resources/read", &json!({"uri": "hermes://conversations/nobody"}));
    assert_eq!(unknown["error"]["code"], -32002, "{unknown}");
    writer.add("s2", "m1");
    assert_eq!(shim.wait_method("notifications/resources/updated")["params"]["uri"], encoded);
    writer.add("s1", "m1");
    assert_eq!(shim.wait_method("notifications/resources/updated")["params"]["uri"], plain);
    assert!(shim.request("resources/unsubscribe", &json!({"uri": encoded})).get("result").is_some());
    drop(daemon);
    let _daemon = w.start();
    // What came meanwhile may have been missed: told once.
    assert_eq!(shim.wait_method("notifications/resources/updated")["params"]["uri"], plain);
    writer.add("s2", "m2");
    writer.add("s1", "m2");
    assert_eq!(shim.wait_method("notifications/resources/updated")["params"]["uri"], plain);
    let mut blind = w.shim_with(&["mcp", "serve", "--only", "servers"]);
    blind.initialize();
    let hidden = blind.request("resources/read", &json!({"uri": plain}));
    assert_eq!(hidden["error"]["code"], -32002, "{hidden}");
}

/// Conversations that appear while the daemon runs are offered at once.
#[test]
fn conversations_that_appear_are_offered() {
    let w = world();
    let _daemon = w.start();
    let mut shim = w.shim();
    shim.initialize();
    assert!(!shim.tool_names().iter().any(|name| name == "events_wait"));
    ForeignWriter::start(&w.home()).add("s1", "m0");
    shim.wait_method("notifications/tools/list_changed");
    shim.wait_tool("events_wait");
}
