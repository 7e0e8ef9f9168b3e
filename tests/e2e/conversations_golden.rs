//! Every recorded answer of the reference against ours, through the real shim, over two homes: the
//! recorded one, and the same home as a newer Hermes Agent keeps it (schema 30, no sessions.json).
//!
//! Every difference is a line of [`DEVIATIONS`] with its reason; a line without a difference fails too.

use crate::conversations::{client, foreign, recorded};
use hermes_tests::World;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What differs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    /// The text is ours; it names every argument that the recorded one names.
    ArgumentError,
    /// A JSON-RPC error in place of a result.
    ProtocolError,
    /// A member that the reference does not have, by JSON pointer.
    Added(&'static str),
    /// The same items in another order, by JSON pointer of their list.
    Reordered(&'static str),
    /// Another test compares it.
    Elsewhere,
}

/// In which home.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Where {
    Both,
    Newer,
}

use Change::{Added, ArgumentError, Elsewhere, ProtocolError, Reordered};
use Where::{Both, Newer};

/// Beside these, all answers differ in three ways that [`compare`] checks: text is not `\u`-escaped
/// (the escapes triple the size of CJK text), `structuredContent` is the object itself and not a text
/// of it, and application errors set `isError`.
const DEVIATIONS: &[(&str, Where, Change, &str)] = &[
    ("attachments_fetch_10", Both, ArgumentError, WORDS),
    ("conversation_get_06", Both, ArgumentError, WORDS),
    ("conversations_list_10", Both, ArgumentError, WORDS),
    ("messages_read_08", Both, ArgumentError, WORDS),
    ("messages_send_12", Both, ArgumentError, WORDS),
    ("permissions_respond_06", Both, ArgumentError, WORDS),
    (
        "no_such_tool_00",
        Both,
        ProtocolError,
        "MCP has an error for unknown tools; a result would be the tool's own",
    ),
    ("messages_read_00", Both, Added("/messages/4/truncated"), "a cut is marked"),
    (
        "nodir_channels_list_00",
        Newer,
        Reordered("/channels"),
        "rows of state.db have no order of their own: as in conversations_list, last used first",
    ),
    ("messages_send_", Both, Elsewhere, SENDS),
    ("empty_messages_send_", Both, Elsewhere, SENDS),
    ("send_messages_send_", Both, Elsewhere, SENDS),
];

const WORDS: &str = "the recorded words are those of a Python library; ours say what would be right";
const SENDS: &str = "needs platforms";

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

fn cases() -> Vec<(String, Value)> {
    let mut cases: Vec<(String, Value)> = fs::read_dir(golden())
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "json") && !path.ends_with("tools_list.json"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap())
        })
        .collect();
    cases.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(cases.len() >= 50, "{} cases", cases.len());
    cases
}

/// The lines of the table for one case; those that begin with a `_` at the end stand for all of a kind.
fn deviations(case: &str, newer: bool) -> Vec<usize> {
    let about = |name: &str| name == case || name.ends_with('_') && case.starts_with(name);
    let applies = |(name, place, ..): &(&str, Where, Change, &str)| about(name) && (newer || *place == Both);
    (0..DEVIATIONS.len()).filter(|at| applies(&DEVIATIONS[*at])).collect()
}

/// The names of the arguments in a recorded error: each has a line of its own.
fn named(recorded: &str) -> Vec<&str> {
    let name =
        |line: &&str| line.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') && !line.is_empty();
    recorded.lines().filter(name).collect()
}

fn compare(case: &str, recorded: &Value, answer: &Value, lines: &[usize]) {
    let result = &answer["result"];
    let text = recorded["result_text"].as_str().unwrap();
    let mut expected: Value = serde_json::from_str(text).unwrap_or(Value::Null);
    for at in lines {
        match DEVIATIONS[*at].2 {
            Elsewhere => return,
            ProtocolError => {
                assert!(answer["error"]["code"].is_i64(), "{case}: {answer}");
                return;
            }
            ArgumentError => {
                assert_eq!(result["isError"], true, "{case}: {answer}");
                assert!(!named(text).is_empty(), "{case}: {text}");
                let ours = result["content"][0]["text"].as_str().unwrap();
                for name in named(text) {
                    assert!(ours.contains(&format!("`{name}`")), "{case}: {name} is not named in {ours}");
                }
                return;
            }
            Added(pointer) => {
                let (holder, member) = pointer.rsplit_once('/').unwrap();
                let ours = result["structuredContent"].pointer(pointer);
                let ours = ours.unwrap_or_else(|| panic!("{case}: no {pointer}")).clone();
                let holder = expected.pointer_mut(holder).unwrap().as_object_mut().unwrap();
                assert!(holder.insert(member.to_owned(), ours).is_none(), "{case}: {pointer} is recorded");
            }
            Reordered(pointer) => {
                let ours = result["structuredContent"].pointer(pointer).unwrap();
                let recorded = expected.pointer_mut(pointer).unwrap();
                assert_ne!(recorded, ours, "{case}: the order is the same");
                let sorted = |list: &Value| {
                    let mut items: Vec<String> =
                        list.as_array().unwrap().iter().map(Value::to_string).collect();
                    items.sort_unstable();
                    items
                };
                assert_eq!(sorted(recorded), sorted(ours), "{case}");
                *recorded = ours.clone();
            }
        }
    }
    assert_eq!(result["structuredContent"], expected, "{case}");
    assert_eq!(result["isError"], expected.get("error").is_some(), "{case}");
    let ours = result["content"][0]["text"].as_str().unwrap();
    if expected.get("error").is_none() {
        // Same order of members, same indent, same numbers; only the escapes are gone.
        assert_eq!(ours, serde_json::to_string_pretty(&expected).unwrap(), "{case}");
    } else {
        assert_eq!(serde_json::from_str::<Value>(ours).unwrap(), expected, "{case}");
    }
}

fn empty() -> World {
    crate::world().env("TZ", "UTC")
}

fn all_are_met(newer: bool) {
    let prepare = |w: &World| {
        if newer {
            foreign(w, &["upgrade"]);
        }
    };
    let (full, without_directory, empty) = (recorded(), recorded(), empty());
    fs::remove_file(without_directory.home().join("channel_directory.json")).unwrap();
    prepare(&full);
    prepare(&without_directory);
    let worlds = [("nodir_", &without_directory), ("empty_", &empty), ("", &full)];
    let daemons = worlds.map(|(_, w)| w.start());
    let mut clients = worlds.map(|(_, w)| {
        let mut client = w.shim_with(&["mcp", "serve", "--only", "conversations"]);
        client.initialize();
        client
    });
    let mut used = BTreeSet::new();
    for (case, recorded) in cases() {
        let at = worlds.iter().position(|(prefix, _)| case.starts_with(prefix)).unwrap();
        let lines = deviations(&case, newer);
        let call = json!({"name": recorded["tool"], "arguments": recorded["arguments"]});
        let answer = clients[at].request("tools/call", &call);
        compare(&case, &recorded, &answer, &lines);
        used.extend(lines);
    }
    let unused: Vec<_> = DEVIATIONS
        .iter()
        .enumerate()
        .filter(|(at, line)| !used.contains(at) && (newer || line.1 == Both))
        .collect();
    assert!(unused.is_empty(), "{unused:#?}");
    drop(clients);
    drop(daemons);
}

/// The recorded home.
#[test]
fn every_recorded_answer_is_met() {
    all_are_met(false);
}

/// The same conversations in the home of a newer Hermes Agent.
#[test]
fn every_recorded_answer_is_met_in_a_newer_home() {
    all_are_met(true);
}

/// The kinds of calls that no recorded case has to be made for.
#[test]
fn all_ten_tools_have_recorded_answers_or_tests_of_their_own() {
    let tools: BTreeSet<String> =
        cases().iter().map(|(_, case)| case["tool"].as_str().unwrap().to_owned()).collect();
    let w = recorded();
    let _daemon = w.start();
    let listed: BTreeSet<String> = client(&w).tool_names().into_iter().collect();
    let missing: Vec<&String> = listed.difference(&tools).collect();
    assert_eq!(missing, ["events_poll", "events_wait"]);
}
