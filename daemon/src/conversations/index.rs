//! Which conversations exist: entries of `sessions.json`, or rows of state.db in the same shape.
//!
//! Pure: text and rows come in, entries go out in their order. Promise: one odd entry never hides
//! the others.

use super::local_time;
use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::HashSet;

/// One conversation: a session key and the session behind it.
///
/// Texts are `None` where the file holds null, and empty where it holds nothing.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) session_key: String,
    pub(super) session_id: String,
    pub(super) platform: String,
    pub(super) chat_type: Option<String>,
    pub(super) display_name: Option<String>,
    pub(super) chat_name: Option<String>,
    pub(super) user_name: Option<String>,
    pub(super) chat_id: Option<String>,
    pub(super) thread_id: Option<String>,
    pub(super) created_at: Option<String>,
    pub(super) updated_at: Option<String>,
    pub(super) tokens: Tokens,
}

/// Tokens that a session used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tokens {
    pub(super) input: i64,
    pub(super) output: i64,
    pub(super) total: i64,
}

impl Tokens {
    /// The counts of a database row, which has no total.
    pub(super) fn of_row(input: i64, output: i64) -> Self {
        Self { input, output, total: input.saturating_add(output) }
    }

    /// Whether nothing was counted.
    pub(super) fn is_zero(self) -> bool {
        self == Self::default()
    }
}

/// What a session key starts with that stands for one session of state.db, with or without a chat.
pub(super) const LOCAL_KEY: &str = "session:";

/// What of a row of `sessions` decides about its place in a list. Times are epoch seconds.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Head {
    pub(super) rowid: i64,
    pub(super) session_key: String,
    pub(super) id: String,
    pub(super) source: String,
    pub(super) started_at: Option<f64>,
    pub(super) last_activity_at: Option<f64>,
    pub(super) newest_message_at: Option<f64>,
}

impl Head {
    fn recency(&self) -> Option<f64> {
        recency(self.started_at, self.last_activity_at, self.newest_message_at)
    }
}

/// The later of the noted activity, which lags, and the newest message; else the start.
fn recency(started: Option<f64>, noted: Option<f64>, newest: Option<f64>) -> Option<f64> {
    match (noted, newest) {
        (Some(noted), Some(newest)) => Some(noted.max(newest)),
        (one, other) => one.or(other),
    }
    .filter(|at| *at > 0.0)
    .or(started)
}

/// The newest session of each key, most recently used first; equal ones in the order of their start,
/// newest first.
pub(super) fn newest_of_each_key(mut heads: Vec<Head>) -> Vec<Head> {
    let started = |head: &Head| head.started_at.unwrap_or(f64::MIN);
    heads.sort_by(|a, b| started(b).total_cmp(&started(a)).then(b.rowid.cmp(&a.rowid)));
    let mut seen = HashSet::with_capacity(heads.len());
    let first: Vec<bool> = heads.iter().map(|head| seen.insert(head.session_key.as_str())).collect();
    drop(seen);
    let mut first = first.into_iter();
    heads.retain(|_| first.next() == Some(true));
    most_recent_first(&mut heads);
    heads
}

/// Sorts by recency, newest first; equal ones keep their order.
pub(super) fn most_recent_first(heads: &mut [Head]) {
    heads.sort_by(|a, b| b.recency().unwrap_or(f64::MIN).total_cmp(&a.recency().unwrap_or(f64::MIN)));
}

/// One row of `sessions`. Times are epoch seconds.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct SessionRow {
    pub(super) id: String,
    pub(super) source: String,
    pub(super) session_key: String,
    pub(super) chat_id: Option<String>,
    pub(super) chat_type: Option<String>,
    pub(super) thread_id: Option<String>,
    pub(super) display_name: Option<String>,
    pub(super) origin_json: Option<String>,
    pub(super) started_at: Option<f64>,
    pub(super) last_activity_at: Option<f64>,
    pub(super) newest_message_at: Option<f64>,
    pub(super) title: Option<String>,
    pub(super) tokens: Tokens,
}

/// The entry of a row under its own key.
pub(super) fn from_row(row: SessionRow, zone: &TimeZone) -> Entry {
    let text_of = |epoch: Option<f64>| epoch.and_then(|at| local_time::iso(at, zone)).unwrap_or_default();
    let recency = recency(row.started_at, row.last_activity_at, row.newest_message_at);
    let (created_at, updated_at) = (text_of(row.started_at), text_of(recency));
    let origin = row
        .origin_json
        .as_deref()
        .and_then(|json| serde_json::from_str::<Map<String, Value>>(json).ok())
        .filter(|origin| !origin.is_empty());
    let known = origin.is_some();
    let origin = origin.unwrap_or_default();
    let chat_name = text(&origin, "chat_name", "");
    Entry {
        session_key: row.session_key,
        session_id: row.id,
        platform: row.source,
        chat_type: filled(row.chat_type.clone())
            .or_else(|| if known { text(&origin, "chat_type", "") } else { row.chat_type }),
        display_name: Some(filled(row.display_name).or_else(|| chat_name.clone()).unwrap_or_default()),
        chat_name,
        user_name: text(&origin, "user_name", ""),
        chat_id: if known { text(&origin, "chat_id", "") } else { row.chat_id },
        thread_id: if known { text_or_null(&origin, "thread_id") } else { row.thread_id },
        created_at: Some(created_at),
        updated_at: Some(updated_at),
        tokens: row.tokens,
    }
}

/// The entry of a row as one session, whatever chat it belongs or belonged to.
pub(super) fn from_local_row(mut row: SessionRow, zone: &TimeZone) -> Entry {
    row.session_key = format!("{LOCAL_KEY}{}", row.id);
    row.display_name = filled(row.display_name).or(row.title.take());
    from_row(row, zone)
}

/// The member as text; `missing` where there is no such member, `None` where it is null.
pub(super) fn text(map: &Map<String, Value>, name: &str, missing: &str) -> Option<String> {
    match map.get(name) {
        None => Some(missing.to_owned()),
        Some(value) => plain(value),
    }
}

fn text_or_null(map: &Map<String, Value>, name: &str) -> Option<String> {
    map.get(name).and_then(plain)
}

/// A scalar as text. Some platforms number their chats, and an id is an id either way.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn filled(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// What `conversations_list` asks for. Empty texts filter nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Wanted {
    pub(super) platform: Option<String>,
    pub(super) search: Option<String>,
    pub(super) limit: usize,
    /// Epoch seconds: only what was used then or later.
    pub(super) active_since: Option<f64>,
    pub(super) local: Local,
}

/// Whether sessions without a conversation of their own are meant too: those of the command line,
/// ended ones, and those that were continued in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Local {
    Included,
    #[default]
    LeftOut,
}

/// The first entries of `heads` (most recent first) that are wanted; only those are loaded.
/// # Errors
/// As `load`.
pub(super) fn pick<E>(
    heads: &[Head],
    wanted: &Wanted,
    mut load: impl FnMut(&Head) -> Result<Option<Entry>, E>,
) -> Result<Vec<Entry>, E> {
    let search = wanted.search();
    let mut found = Vec::new();
    for head in heads {
        let recent = wanted.active_since.is_none_or(|since| head.recency().is_some_and(|at| at >= since));
        if !recent || !platform_matches(&head.source, wanted.platform.as_deref()) {
            continue;
        }
        let entry = load(head)?;
        found.extend(entry.filter(|entry| search.as_deref().is_none_or(|search| matches(entry, search))));
        if found.len() == wanted.limit {
            break;
        }
    }
    Ok(found)
}

/// Whether an entry was used at `since` or later; not if nobody knows when.
pub(super) fn used_since(entry: &Entry, since: Option<f64>, zone: &TimeZone) -> bool {
    let used = || entry.updated_at.as_deref().and_then(|text| local_time::epoch(text, zone));
    since.is_none_or(|since| used().is_some_and(|at| at >= since))
}

impl Wanted {
    fn search(&self) -> Option<String> {
        filled(self.search.clone()).map(|search| search.to_lowercase())
    }
}

/// One line of `conversations_list`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Summary {
    session_key: String,
    session_id: String,
    platform: String,
    chat_type: Option<String>,
    display_name: Option<String>,
    chat_name: Option<String>,
    user_name: Option<String>,
    updated_at: Option<String>,
}

/// Filters, sorts by the time of the last change (newest first, ties keep their order) and cuts.
pub(super) fn list<'a>(entries: impl Iterator<Item = &'a Entry>, wanted: &Wanted) -> Vec<Summary> {
    let search = wanted.search();
    let mut found: Vec<&Entry> = entries
        .filter(|entry| platform_matches(&entry.platform, wanted.platform.as_deref()))
        .filter(|entry| search.as_deref().is_none_or(|search| matches(entry, search)))
        .collect();
    found.sort_by(|a, b| b.updated_at.as_deref().unwrap_or("").cmp(a.updated_at.as_deref().unwrap_or("")));
    found.truncate(wanted.limit);
    found.into_iter().map(Summary::from).collect()
}

/// Whether `platform` passes a filter; an absent or empty filter passes all.
pub(super) fn platform_matches(platform: &str, filter: Option<&str>) -> bool {
    filter.is_none_or(|filter| filter.is_empty() || filter.to_lowercase() == platform.to_lowercase())
}

fn matches(entry: &Entry, lower_case: &str) -> bool {
    [entry.display_name.as_deref(), entry.chat_name.as_deref(), Some(&entry.session_key)]
        .into_iter()
        .flatten()
        .any(|name| name.to_lowercase().contains(lower_case))
}

impl From<&Entry> for Summary {
    fn from(entry: &Entry) -> Self {
        let entry = entry.clone();
        Self {
            session_key: entry.session_key,
            session_id: entry.session_id,
            platform: entry.platform,
            chat_type: entry.chat_type,
            display_name: entry.display_name,
            chat_name: entry.chat_name,
            user_name: entry.user_name,
            updated_at: entry.updated_at,
        }
    }
}

/// The answer of `conversation_get`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Detail {
    session_key: String,
    session_id: String,
    platform: String,
    chat_type: Option<String>,
    display_name: Option<String>,
    user_name: Option<String>,
    chat_name: Option<String>,
    chat_id: Option<String>,
    thread_id: Option<String>,
    updated_at: Option<String>,
    created_at: Option<String>,
    input_tokens: i64,
    output_tokens: i64,
    total_tokens: i64,
}

impl From<Entry> for Detail {
    fn from(entry: Entry) -> Self {
        Self {
            session_key: entry.session_key,
            session_id: entry.session_id,
            platform: entry.platform,
            chat_type: entry.chat_type,
            display_name: entry.display_name,
            user_name: entry.user_name,
            chat_name: entry.chat_name,
            chat_id: entry.chat_id,
            thread_id: entry.thread_id,
            updated_at: entry.updated_at,
            created_at: entry.created_at,
            input_tokens: entry.tokens.input,
            output_tokens: entry.tokens.output,
            total_tokens: entry.tokens.total,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entries(json: &Value) -> Vec<Entry> {
        super::super::sessions_file::parse(&json.to_string())
    }

    fn keys(summaries: &[Summary]) -> Vec<&str> {
        summaries.iter().map(|summary| summary.session_key.as_str()).collect()
    }

    fn wanted(limit: usize) -> Wanted {
        Wanted { limit, ..Wanted::default() }
    }

    #[test]
    fn null_names_stay_null_and_do_not_disturb_a_search() {
        let found = entries(&serde_json::json!({
            "k1": {"display_name": null, "origin": {"chat_name": null}},
            "k2": {"display_name": "Ana", "origin": null},
        }));
        let hit = list(found.iter(), &Wanted { search: Some("ANA".into()), ..wanted(9) });
        assert_eq!(keys(&hit), ["k2"]);
        assert_eq!(keys(&list(found.iter(), &Wanted { search: Some("k1".into()), ..wanted(9) })), ["k1"]);
        assert_eq!(found[0].display_name, None);
    }

    #[test]
    fn the_newest_session_of_a_key_stands_for_it() {
        let head = |rowid, key: &str, started_at, noted| Head {
            rowid,
            session_key: key.into(),
            started_at: Some(started_at),
            last_activity_at: noted,
            ..Head::default()
        };
        let heads =
            vec![head(1, "k", 10.0, Some(99.0)), head(2, "k", 20.0, None), head(3, "l", 5.0, Some(50.0))];
        let found = newest_of_each_key(heads);
        assert_eq!(found.iter().map(|head| head.rowid).collect::<Vec<_>>(), [3, 2]);
    }

    #[test]
    fn only_what_is_answered_is_loaded() {
        let heads: Vec<Head> = (0..1000)
            .map(|rowid| Head {
                rowid,
                source: "t".into(),
                started_at: Some(1000.0 - rowid as f64),
                ..Head::default()
            })
            .collect();
        let mut loaded = 0;
        let one = entries(&serde_json::json!({"k": {"platform": "t"}})).remove(0);
        let mut load = |_: &Head| {
            loaded += 1;
            Ok::<_, ()>(Some(one.clone()))
        };
        assert_eq!(pick(&heads, &wanted(5), &mut load).unwrap().len(), 5);
        let since = Wanted { active_since: Some(998.0), ..wanted(50) };
        assert_eq!(pick(&heads, &since, &mut load).unwrap().len(), 3);
        assert_eq!(
            pick(&heads, &Wanted { platform: Some("u".into()), ..wanted(5) }, &mut load).unwrap().len(),
            0
        );
        assert_eq!(loaded, 8);
    }

    #[test]
    fn entries_used_before_or_nobody_knows_when_are_left_out() {
        let found = entries(&serde_json::json!({
            "old": {"updated_at": "2026-05-17T06:42:28"}, "new": {"updated_at": "2026-05-17T06:42:29.5"},
            "odd": {"updated_at": "yesterday"}, "none": {"platform": "t"},
        }));
        let keys = |since| {
            let left = found.iter().filter(|entry| used_since(entry, since, &TimeZone::UTC));
            left.map(|entry| entry.session_key.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(keys(Some(1_779_000_149.0)), ["new"]);
        assert_eq!(keys(None).len(), 4);
    }

    #[test]
    fn recency_is_the_later_of_noted_activity_and_newest_message_else_the_start() {
        let of = |noted, newest| recency(Some(1.0), noted, newest);
        assert_eq!(of(Some(5.0), Some(9.0)), Some(9.0));
        assert_eq!(of(Some(9.0), Some(5.0)), Some(9.0));
        assert_eq!(of(None, Some(5.0)), Some(5.0));
        assert_eq!(of(Some(5.0), None), Some(5.0));
        assert_eq!(of(None, None), Some(1.0));
    }

    proptest! {
        #[test]
        fn a_list_is_sorted_newest_first_within_the_limit_and_ties_keep_their_order(
            days in prop::collection::vec(1u8..5, 0..30), limit in 1usize..40,
        ) {
            let members: Map<String, Value> = days.iter().enumerate()
                .map(|(at, day)| (format!("k{at:02}"), serde_json::json!({"updated_at": format!("2026-01-0{day}")})))
                .collect();
            let listed = list(entries(&Value::Object(members)).iter(), &wanted(limit));
            prop_assert_eq!(listed.len(), days.len().min(limit));
            for pair in listed.windows(2) {
                let later_first = pair[0].updated_at > pair[1].updated_at;
                let tie_in_order = pair[0].updated_at == pair[1].updated_at && pair[0].session_key < pair[1].session_key;
                prop_assert!(later_first || tie_in_order);
            }
        }
    }
}
