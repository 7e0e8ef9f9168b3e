//! Entries of `sessions.json`. The file is written anew at every message, and a busy home has megabytes
//! of it, so members stay raw until they are known to be needed.
//!
//! Pure. Promise: one odd entry never hides the others; of members that are there twice the last
//! counts; a damaged file has no entries.

use super::index::{Entry, Tokens};
use crate::jsonrpc::splice::Members;
use serde_json::value::RawValue;
use std::collections::HashMap;

/// The entries in the file's order. Keys that start with `_` are notes of Hermes Agent, no conversations.
pub(super) fn parse(json: &str) -> Vec<Entry> {
    let Ok(members) = serde_json::from_str::<&RawValue>(json).and_then(Members::parse) else {
        return Vec::new();
    };
    let mut entries: Vec<Entry> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (key, member) in members.iter().filter(|(key, _)| !key.starts_with('_')) {
        let Some(entry) = entry(key, member) else { continue };
        match places.get(key) {
            Some(place) => entries[*place] = entry,
            None => {
                places.insert(key, entries.len());
                entries.push(entry);
            }
        }
    }
    entries
}

fn entry(session_key: &str, member: &RawValue) -> Option<Entry> {
    let entry = Members::parse(member).ok().filter(|entry| entry.iter().next().is_some())?;
    let origin = entry.get("origin").and_then(|origin| Members::parse(origin).ok()).unwrap_or_default();
    let count = |name| entry.get(name).and_then(number).unwrap_or(0);
    let chat_type = if entry.get("chat_type").is_some() { &entry } else { &origin };
    Some(Entry {
        session_key: session_key.to_owned(),
        session_id: text(&entry, "session_id").unwrap_or_default(),
        platform: text(&entry, "platform")
            .filter(|name| !name.is_empty())
            .or_else(|| text(&origin, "platform"))
            .unwrap_or_default(),
        chat_type: text(chat_type, "chat_type"),
        display_name: text(&entry, "display_name"),
        chat_name: text(&origin, "chat_name"),
        user_name: text(&origin, "user_name"),
        chat_id: text(&origin, "chat_id"),
        thread_id: origin.get("thread_id").and_then(scalar),
        created_at: text(&entry, "created_at"),
        updated_at: text(&entry, "updated_at"),
        tokens: Tokens {
            input: count("input_tokens"),
            output: count("output_tokens"),
            total: count("total_tokens"),
        },
    })
}

/// A member as text: empty where there is none, `None` where it is null or no scalar.
fn text(members: &Members<'_>, name: &str) -> Option<String> {
    members.get(name).map_or(Some(String::new()), scalar)
}

/// A scalar as text: some platforms number their chats, and an id is an id either way.
fn scalar(value: &RawValue) -> Option<String> {
    match value.get().as_bytes().first()? {
        b'"' => serde_json::from_str(value.get()).ok(),
        b'n' | b'[' | b'{' => None,
        _ => Some(value.get().to_owned()),
    }
}

fn number(value: &RawValue) -> Option<i64> {
    let text = value.get();
    text.parse().ok().or_else(|| text.parse::<f64>().ok().map(|float| float as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn entries(json: &Value) -> Vec<Entry> {
        parse(&json.to_string())
    }

    #[test]
    fn notes_and_odd_members_are_no_conversations_and_hide_none() {
        let found = entries(&serde_json::json!({
            "_README": {"session_id": "x"}, "a": 5, "b": null, "c": {"session_id": "s"}, "d": {}, "e": [], "f": "",
        }));
        assert_eq!(found.iter().map(|entry| &*entry.session_key).collect::<Vec<_>>(), ["c"]);
        assert_eq!(found[0].updated_at.as_deref(), Some(""));
        assert_eq!(found[0].thread_id, None);
    }

    #[test]
    fn a_damaged_file_has_no_conversations() {
        for json in ["", "{", "[]", "null", "{\"a\": {", "{\"a\": {\"b\": 1}} x"] {
            assert_eq!(parse(json), []);
        }
    }

    #[test]
    fn platform_and_chat_type_fall_back_to_the_origin() {
        let found = entries(&serde_json::json!({
            "k": {"platform": null, "origin": {"platform": "Signal", "chat_type": "dm", "chat_id": 42}},
        }));
        assert_eq!(found[0].platform, "Signal");
        assert_eq!(found[0].chat_type.as_deref(), Some("dm"));
        assert_eq!(found[0].chat_id.as_deref(), Some("42"));
    }

    #[test]
    fn what_stands_twice_is_read_as_python_reads_it() {
        let found = parse(
            "{\"a\": {\"session_id\": \"1\"}, \"b\": {\"session_id\": \"2\", \"session_id\": \"3\"}, \"a\": {\"session_id\": \"4\"}}",
        );
        let read: Vec<_> = found.iter().map(|entry| (&*entry.session_key, &*entry.session_id)).collect();
        assert_eq!(read, [("a", "4"), ("b", "3")]);
    }

    #[test]
    fn counts_are_read_from_whole_and_other_numbers() {
        let found = entries(&serde_json::json!({
            "k": {"input_tokens": 5, "output_tokens": 7.0, "total_tokens": null},
        }));
        assert_eq!(found[0].tokens, Tokens { input: 5, output: 7, total: 0 });
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a\"\\\\字]{0,3}".prop_map(Value::from),
        ];
        let names =
            prop_oneof![Just("origin"), Just("platform"), Just("chat_type"), Just("session_id"), Just("x")];
        leaf.prop_recursive(3, 20, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::hash_map(names.clone().prop_map(str::to_owned), inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_entry_that_is_an_object_with_members_is_found(members in prop::collection::vec(json(), 0..6)) {
            let file: Value = Value::Object(
                members.iter().enumerate().map(|(at, member)| (format!("k{at}"), member.clone())).collect(),
            );
            let expected = members.iter().filter(|member| member.as_object().is_some_and(|map| !map.is_empty())).count();
            prop_assert_eq!(entries(&file).len(), expected);
        }
    }
}
