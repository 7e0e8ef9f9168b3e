//! Names of chats: Hermes Agent's channel directory with the user's own names over it.
//!
//! Pure. Promise: the matching of the reference, but for one thing: where a name fits several chats
//! none is chosen, and the answer lists them.

use super::platform::Platform;
use super::target::{self, Chat};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Candidates that an answer lists.
const SHOWN: usize = 10;

/// One chat of the directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Channel {
    pub(super) id: String,
    pub(super) name: String,
    /// `dm`, `group`, `channel`, `forum`, …
    pub(super) kind: Option<String>,
    pub(super) guild: Option<String>,
    pub(super) thread_id: Option<String>,
}

/// What a name came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    One(&'a Channel),
    Several(Vec<&'a Channel>),
    None,
}

/// A chat that may have been meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(in crate::conversations) struct Candidate {
    target: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    chat_type: Option<String>,
}

impl Channel {
    /// From a member of `channel_directory.json`; `None` without an id.
    pub(super) fn of(member: &Map<String, Value>) -> Option<Self> {
        let text = |key: &str| match member.get(key)? {
            Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
            Value::Number(number) => Some(number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        let id = text("id").or_else(|| text("chat_id"))?;
        Some(Self {
            name: text("name").or_else(|| text("display_name")).unwrap_or_else(|| id.clone()),
            kind: text("type").or_else(|| text("chat_type")),
            guild: text("guild"),
            thread_id: text("thread_id"),
            id,
        })
    }

    /// The chat behind the entry. The id of a thread is `chat:thread`.
    pub(super) fn chat(&self, platform: Platform) -> Chat {
        if let Some(thread) = &self.thread_id
            && let Some(id) = self.id.strip_suffix(thread.as_str()).and_then(|id| id.strip_suffix(':'))
        {
            return Chat::new(id, Some(thread));
        }
        target::explicit(platform, &self.id).unwrap_or_else(|| Chat::new(&self.id, None))
    }

    /// How Hermes Agent shows it in its own list.
    fn label(&self, platform: Platform) -> String {
        match (platform, &self.guild, &self.kind) {
            (Platform::Discord, Some(_), _) => format!("#{}", self.name),
            (Platform::Discord, None, _) | (_, _, None) => self.name.clone(),
            (_, _, Some(kind)) => format!("{} ({kind})", self.name),
        }
    }
}

/// The channels of `platform`: those of the directory under the names that the user gave them, then those
/// that only the user named.
pub(super) fn channels(
    directory: Option<&Map<String, Value>>,
    aliases: Option<&Map<String, Value>>,
    platform: Platform,
) -> Vec<Channel> {
    let listed = directory.and_then(|root| root.get("platforms")?.get(platform.name())?.as_array());
    let mut channels: Vec<Channel> =
        listed.into_iter().flatten().filter_map(Value::as_object).filter_map(Channel::of).collect();
    let aliases = aliases.and_then(|root| root.get(platform.name())?.as_object());
    for (id, name) in aliases.into_iter().flatten() {
        let Some(name) = name.as_str().map(str::trim).filter(|name| !name.is_empty()) else { continue };
        let mut known = false;
        for channel in channels.iter_mut().filter(|channel| channel.id == *id) {
            name.clone_into(&mut channel.name);
            known = true;
        }
        if !known {
            channels.push(Channel { id: id.clone(), name: name.to_owned(), ..Channel::default() });
        }
    }
    channels
}

/// Looks `reference` up: exact id, exact name or label, `guild/channel`, beginning of one name.
pub(super) fn find<'a>(channels: &'a [Channel], platform: Platform, reference: &str) -> Found<'a> {
    let raw = reference.trim();
    if let Some(channel) = channels.iter().find(|channel| channel.id == raw) {
        return Found::One(channel);
    }
    let query = plain(raw);
    if query.is_empty() {
        return Found::None;
    }
    let named =
        |channel: &&Channel| query == plain(&channel.name) || query == plain(&channel.label(platform));
    let in_guild = |channel: &&Channel| {
        let Some((guild, name)) = query.rsplit_once('/') else { return false };
        channel.guild.as_deref().is_some_and(|own| own.trim().to_lowercase() == guild)
            && plain(&channel.name) == name
    };
    let begins = |channel: &&Channel| plain(&channel.name).starts_with(&query);
    for matching in [&named as &dyn Fn(&&Channel) -> bool, &in_guild, &begins] {
        match distinct(channels.iter().filter(matching)) {
            found if found.is_empty() => {}
            found if found.len() == 1 => return Found::One(found[0]),
            several => return Found::Several(several),
        }
    }
    Found::None
}

/// One entry for each id: the directory lists some chats twice.
fn distinct<'a>(channels: impl Iterator<Item = &'a Channel>) -> Vec<&'a Channel> {
    let mut seen = HashSet::new();
    channels.filter(|channel| seen.insert(channel.id.as_str())).collect()
}

/// As names are compared.
fn plain(name: &str) -> String {
    name.trim_start_matches('#').trim().to_lowercase()
}

/// `channels` as an answer lists them.
pub(super) fn candidates<'a>(
    platform: Platform,
    channels: impl IntoIterator<Item = &'a Channel>,
) -> Vec<Candidate> {
    let shown = distinct(channels.into_iter()).into_iter().take(SHOWN);
    let candidate = |channel: &Channel| Candidate {
        target: format!("{}:{}", platform.name(), channel.id),
        name: match &channel.guild {
            Some(guild) => format!("{guild}/{}", channel.name),
            None => channel.name.clone(),
        },
        chat_type: channel.kind.clone(),
    };
    shown.map(candidate).collect()
}

/// The channels that `reference` may have meant, nearest first, then the others.
pub(super) fn near<'a>(channels: &'a [Channel], reference: &str) -> Vec<&'a Channel> {
    let query = plain(reference);
    let mut all: Vec<&Channel> = channels.iter().collect();
    let distance = |channel: &&Channel| {
        let name = plain(&channel.name);
        let contains = name.contains(&query) || query.contains(&name);
        (!contains, strsim::damerau_levenshtein(&name, &query))
    };
    all.sort_by_cached_key(distance);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn discord() -> Vec<Channel> {
        let directory = map(json!({"platforms": {"discord": [
            {"id": "1", "name": "general", "guild": "Nous Lab", "type": "channel"},
            {"id": "1", "name": "general", "type": "channel"},
            {"id": "2", "name": "general", "guild": "Other", "type": "channel"},
            {"id": "3", "name": "bot-home", "guild": "Nous Lab", "type": "channel"},
            {"id": "4:5", "name": "bug / topic 5", "type": "thread", "thread_id": "5"},
        ]}}));
        channels(Some(&directory), None, Platform::Discord)
    }

    fn id(found: Found<'_>) -> String {
        match found {
            Found::One(channel) => channel.id.clone(),
            Found::Several(channels) => {
                channels.iter().map(|channel| channel.id.as_str()).collect::<Vec<_>>().join("|")
            }
            Found::None => String::new(),
        }
    }

    #[test]
    fn names_are_matched_as_the_reference_does_and_a_tie_is_not_broken() {
        let channels = discord();
        let table = [
            ("3", "3"),
            ("bot-home", "3"),
            ("#BOT-home", "3"),
            ("bot", "3"),
            ("nous lab/general", "1"),
            ("Other/#general", ""),
            ("Other/general", "2"),
            ("general", "1|2"),
            ("gen", "1|2"),
            ("bug / topic 5", "4:5"),
            ("nosuch", ""),
            ("#", ""),
        ];
        for (reference, expected) in table {
            assert_eq!(id(find(&channels, Platform::Discord, reference)), expected, "{reference}");
        }
    }

    #[test]
    fn a_label_with_its_type_is_a_name_too() {
        let directory = map(json!({"platforms": {"signal": [{"id": "+1", "name": "Mum", "type": "dm"}]}}));
        let channels = channels(Some(&directory), None, Platform::Signal);
        assert_eq!(id(find(&channels, Platform::Signal, "mum (dm)")), "+1");
    }

    #[test]
    fn the_id_of_a_thread_is_taken_apart_and_any_other_id_is_the_chat_itself() {
        let channels = discord();
        assert_eq!(channels[4].chat(Platform::Discord), Chat::new("4", Some("5")));
        let channel = |id: &str| Channel { id: id.into(), ..Channel::default() };
        let jid = "491701234567@s.whatsapp.net";
        assert_eq!(channel(jid).chat(Platform::Whatsapp), Chat::new(jid, None));
        assert_eq!(channel("-100:7").chat(Platform::Telegram), Chat::new("-100", Some("7")));
        assert_eq!(channel("C0B0QV5434G:17.5").chat(Platform::Slack), Chat::new("C0B0QV5434G", Some("17.5")));
    }

    #[test]
    fn the_users_own_names_win_and_may_name_chats_that_were_never_seen() {
        let directory = map(json!({"platforms": {"whatsapp": [{"id": "a@g.us", "name": "old"}]}}));
        let aliases = map(json!({"whatsapp": {"a@g.us": "Family", "b@g.us": " Work ", "c": 5}}));
        let channels = channels(Some(&directory), Some(&aliases), Platform::Whatsapp);
        assert_eq!(id(find(&channels, Platform::Whatsapp, "family")), "a@g.us");
        assert_eq!(id(find(&channels, Platform::Whatsapp, "Work")), "b@g.us");
        assert_eq!(id(find(&channels, Platform::Whatsapp, "old")), "");
        assert_eq!(channels.len(), 2);
    }

    #[test]
    fn the_nearest_names_come_first_among_the_candidates() {
        let channels = discord();
        let near = near(&channels, "bot-hime");
        assert_eq!(near[0].id, "3");
        let listed = candidates(Platform::Discord, near);
        assert_eq!(listed.len(), 4, "each chat once");
        assert_eq!(listed[0].target, "discord:3");
        assert_eq!(listed[0].name, "Nous Lab/bot-home");
    }

    proptest! {
        #[test]
        fn what_is_found_carries_the_name_or_the_id_that_was_asked_for(
            names in prop::collection::vec("[a-c#/ ]{0,4}", 0..6), reference in "[a-c#/ 0-5]{0,5}",
        ) {
            let channels: Vec<Channel> = names.iter().enumerate()
                .map(|(at, name)| Channel { id: at.to_string(), name: name.clone(), ..Channel::default() })
                .collect();
            if let Found::One(channel) = find(&channels, Platform::Slack, &reference) {
                let fits = channel.id == reference.trim() || plain(&channel.name).starts_with(&plain(reference.trim()));
                prop_assert!(fits);
                let rivals = channels.iter().filter(|other| other.id != channel.id && plain(&other.name) == plain(&channel.name));
                prop_assert!(channel.id == reference.trim() || rivals.count() == 0);
            }
        }
    }
}
