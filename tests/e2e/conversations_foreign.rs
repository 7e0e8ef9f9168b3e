//! Databases that another program wrote and writes: Python's sqlite3, by `tests/foreign/statedb.py`.

use crate::conversations::{client, foreign, foreign_command, recorded};
use crate::world;
use hermes_tests::{SOON, Shim, wait_for};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

/// How many random homes are made.
const HOMES: u64 = 60;

fn check(client: &mut Shim, home: &Value, seed: u64) {
    for case in home["cases"].as_array().unwrap() {
        let tool = case["tool"].as_str().unwrap();
        let result = client.call(tool, &case["arguments"]);
        let answer = &result["structuredContent"];
        let about =
            || format!("home {seed} ({}, {}): {tool} {}", home["schema"], home["mode"], case["arguments"]);
        if let Some(keys) = case.get("keys") {
            let lines = answer["conversations"].as_array().unwrap_or_else(|| panic!("{}: {result}", about()));
            let mut found: Vec<&str> =
                lines.iter().map(|line| line["session_key"].as_str().unwrap()).collect();
            let times: Vec<&str> = lines.iter().map(|line| line["updated_at"].as_str().unwrap()).collect();
            assert!(times.is_sorted_by(|a, b| a >= b), "{}: {times:?}", about());
            found.sort_unstable();
            assert_eq!(json!(found), *keys, "{}", about());
        } else {
            assert_eq!(*answer, case["expected"], "{}", about());
        }
    }
}

/// Whatever columns in whatever order, whatever contents, with and without a WAL left behind: the answers
/// are those that another reader of the same rows works out. The files are replaced under a running daemon.
#[test]
fn random_homes_read_as_another_program_reads_them() {
    let w = recorded();
    let _daemon = w.start();
    let mut client = client(&w);
    let (mut schemas, mut checked) = (std::collections::BTreeSet::new(), 0);
    for seed in 0..HOMES {
        let home: Value = serde_json::from_str(&foreign(&w, &["random", &seed.to_string()])).unwrap();
        check(&mut client, &home, seed);
        schemas.insert((home["schema"].as_u64(), home["mode"].as_str().unwrap().to_owned()));
        checked += home["cases"].as_array().unwrap().len();
    }
    assert_eq!(schemas.len(), 9, "{schemas:?}");
    assert!(checked > 300, "{checked}");
}

/// A program that holds the write lock until its stdin ends.
struct Holder(Child);

impl Holder {
    fn of(w: &hermes_tests::World) -> Self {
        let ready = w.path().join("ready");
        let mut command = foreign_command(w, &["hold", ready.to_str().unwrap()]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        wait_for("the other program holds its lock", SOON, || ready.exists());
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn bytes(home: &Path) -> Vec<(String, Vec<u8>)> {
    ["state.db", "state.db-wal", "sessions/sessions.json", "channel_directory.json"]
        .into_iter()
        .map(|name| (name.to_owned(), fs::read(home.join(name)).unwrap_or_default()))
        .collect()
}

fn read_everything(client: &mut Shim) {
    let key = "agent:main:telegram:dm:6308981865";
    let calls = [
        ("conversations_list", json!({"include_local": true})),
        ("conversation_get", json!({"session_key": key})),
        ("messages_read", json!({"session_key": key, "full": true})),
        ("messages_read", json!({"session_key": "session:20260517_074000_c11c11", "include_local": true})),
        ("attachments_fetch", json!({"session_key": key, "message_id": "9"})),
        ("channels_list", json!({})),
    ];
    for (tool, arguments) in calls {
        let result = client.call(tool, &arguments);
        assert_eq!(result["isError"], false, "{tool}: {result}");
        assert!(!result.to_string().contains("not committed"), "{result}");
    }
}

/// Reading needs no lock that a writer holds, changes not one byte and moves nothing from the WAL.
#[test]
fn a_writer_in_the_middle_of_a_transaction_is_neither_waited_for_nor_disturbed() {
    let w = recorded();
    let _daemon = w.start();
    let holder = Holder::of(&w);
    let before = bytes(&w.home());
    let mut client = client(&w);
    read_everything(&mut client);
    for (old, new) in before.iter().zip(bytes(&w.home())) {
        assert!(*old == new, "{} changed", old.0);
    }
    drop(holder);
    read_everything(&mut client);
}

/// A daemon that reads leaves nothing beside the database when it ends, and the writer can go on.
#[test]
fn a_wal_that_was_there_is_there_with_the_same_bytes_when_the_daemon_has_ended() {
    let w = recorded();
    foreign(&w, &["random", "3"]);
    let before = bytes(&w.home());
    assert!(!before[1].1.is_empty(), "this home has a WAL");
    let mut daemon = w.start();
    let mut client = client(&w);
    let list = client.call("conversations_list", &json!({"include_local": true}));
    assert!(list["structuredContent"]["count"].as_u64() > Some(0), "{list}");
    drop(client);
    daemon.stop();
    for (old, new) in before.iter().zip(bytes(&w.home())) {
        assert!(*old == new, "{} changed", old.0);
    }
}

/// Trouble with the file is told, and over as soon as the file is well again.
#[test]
fn files_that_vanish_break_and_come_back_are_followed() {
    let w = recorded();
    let _daemon = w.start();
    let mut client = client(&w);
    let good = fs::read(w.home().join("state.db")).unwrap();
    let read = json!({"session_key": "agent:main:telegram:dm:6308981865", "limit": 1});
    let path = w.home().join("state.db");
    let clear = || {
        for name in ["state.db", "state.db-wal", "state.db-shm"] {
            let _ = fs::remove_file(w.home().join(name));
        }
    };
    let first = client.call("messages_read", &read);
    assert_eq!(first["isError"], false, "{first}");
    for broken in [
        None,
        Some(b"no database at all, not even close ".repeat(300)),
        Some(good[..good.len() / 2].to_vec()),
    ] {
        clear();
        if let Some(bytes) = &broken {
            fs::write(&path, bytes).unwrap();
        }
        let refused = client.call("messages_read", &read);
        assert_eq!(refused["isError"], true, "{refused}");
        let list = client.call("conversations_list", &json!({}));
        assert_eq!(list["structuredContent"]["count"], 6, "{list}");
        clear();
        fs::write(w.home().join("restored"), &good).unwrap();
        fs::rename(w.home().join("restored"), &path).unwrap();
        assert_eq!(client.call("messages_read", &read), first, "after {:?}", broken.map(|bytes| bytes.len()));
    }
    // In place, under the same inode.
    fs::write(&path, &good).unwrap();
    assert_eq!(client.call("messages_read", &read), first);
}

/// A home whose state.db comes later is served from then on.
#[test]
fn a_database_that_appears_later_is_read() {
    let w = world().env("TZ", "UTC").yaml("hermesd:\n  conversations: \"on\"");
    let _daemon = w.start();
    let mut client = client(&w);
    let none = client.call("conversations_list", &json!({"include_local": true}));
    assert_eq!(none["structuredContent"]["count"], 0, "{none}");
    foreign(&w, &["random", "1"]);
    let some = client.call("conversations_list", &json!({"include_local": true}));
    assert!(some["structuredContent"]["count"].as_u64() > Some(0), "{some}");
}

/// All clients are served by one reader: one daemon, and one thread in it, whoever asks at the same time.
#[test]
fn clients_share_one_reader() {
    let w = recorded();
    let daemon = w.start();
    let mut clients: Vec<Shim> = (0..8).map(|_| client(&w)).collect();
    let readers = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap().flatten();
        let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.trim() == "conversations").count()
    };
    for _ in 0..3 {
        let arguments = json!({"session_key": "agent:main:telegram:dm:6308981865"});
        let calls: Vec<Value> =
            clients.iter_mut().map(|client| client.begin_call("messages_read", &arguments)).collect();
        let answers: Vec<Value> = clients
            .iter_mut()
            .zip(&calls)
            .map(|(client, call)| client.reply(call)["result"].clone())
            .collect();
        assert!(answers.iter().all(|answer| *answer == answers[0] && answer["isError"] == false));
        assert_eq!(readers(), 1);
    }
}
