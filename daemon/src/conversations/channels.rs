//! Channels that a message could go to.
//!
//! Pure. Promise: a target in the list names exactly the chat it was read from.

use super::index::{self, Entry};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::HashSet;

/// One line of `channels_list`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Channel {
    target: String,
    platform: String,
    name: Option<String>,
    chat_type: Option<String>,
}

/// The content of `channel_directory.json`; `None` if it is damaged or says nothing.
pub(super) fn parse_directory(json: &str) -> Option<Map<String, Value>> {
    serde_json::from_str::<Map<String, Value>>(json).ok().filter(|directory| !directory.is_empty())
}

/// Channels of the directory in its order, those of `platform` only if one is named.
pub(super) fn from_directory(directory: &Map<String, Value>, platform: Option<&str>) -> Vec<Channel> {
    let platforms = directory.get("platforms").and_then(Value::as_object);
    platforms
        .into_iter()
        .flatten()
        .filter(|(name, _)| index::platform_matches(name, platform))
        .filter_map(|(name, channels)| Some((name, channels.as_array()?)))
        .flat_map(|(name, channels)| {
            channels.iter().filter_map(Value::as_object).map(|channel| from_member(name, channel))
        })
        .collect()
}

fn from_member(platform: &str, channel: &Map<String, Value>) -> Channel {
    let either = |first, second| {
        let name = if channel.contains_key(first) { first } else { second };
        index::text(channel, name, "")
    };
    let target = match either("id", "chat_id").filter(|id| !id.is_empty()) {
        Some(id) => format!("{platform}:{id}"),
        None => platform.to_owned(),
    };
    Channel {
        target,
        platform: platform.to_owned(),
        name: either("name", "display_name"),
        chat_type: index::text(channel, "type", ""),
    }
}

/// Channels of the conversations, each chat once, for homes without a directory.
pub(super) fn from_entries(entries: Vec<Entry>, platform: Option<&str>) -> Vec<Channel> {
    let mut seen = HashSet::new();
    entries
        .into_iter()
        .filter(|entry| !entry.platform.is_empty() && index::platform_matches(&entry.platform, platform))
        .filter_map(|entry| {
            let chat_id = entry.chat_id.filter(|id| !id.is_empty())?;
            let target = format!("{}:{chat_id}", entry.platform);
            let name = entry.display_name.filter(|name| !name.is_empty()).or(entry.chat_name);
            seen.insert(target.clone()).then_some(Channel {
                target,
                platform: entry.platform,
                name,
                chat_type: entry.chat_type,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(channels: &[Channel]) -> Vec<&str> {
        channels.iter().map(|channel| channel.target.as_str()).collect()
    }

    #[test]
    fn odd_parts_of_a_directory_are_skipped_and_the_rest_is_listed() {
        let directory = parse_directory(
            r#"{"platforms": {"a": [{"id": 7, "name": null}, 5, {"chat_id": "x", "display_name": "X"}, {}], "b": null}}"#,
        )
        .unwrap();
        let channels = from_directory(&directory, None);
        assert_eq!(targets(&channels), ["a:7", "a:x", "a"]);
        assert_eq!(channels[0].name, None);
        assert_eq!(channels[1].name.as_deref(), Some("X"));
        assert_eq!(from_directory(&directory, Some("B")), []);
    }

    #[test]
    fn a_directory_that_says_nothing_counts_as_missing_but_one_without_platforms_is_empty() {
        for json in ["", "{}", "[]", "null", "{"] {
            assert_eq!(parse_directory(json), None);
        }
        let updated = parse_directory(r#"{"updated_at": "x"}"#).unwrap();
        assert_eq!(from_directory(&updated, None), []);
    }

    #[test]
    fn each_chat_of_the_conversations_is_listed_once() {
        let entries = super::super::sessions_file::parse(
            r#"{"k1": {"platform": "t", "origin": {"chat_id": "1", "chat_name": "One"}},
                "k2": {"platform": "t", "origin": {"chat_id": "1"}},
                "k3": {"platform": "t", "origin": {"chat_id": ""}},
                "k4": {"platform": "", "origin": {"chat_id": "4"}}}"#,
        );
        let channels = from_entries(entries, None);
        assert_eq!(targets(&channels), ["t:1"]);
        assert_eq!(channels[0].name.as_deref(), Some("One"));
    }
}
