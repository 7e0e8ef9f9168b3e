//! Events of conversations: what becomes one, and how a page of the log is answered.
//!
//! Pure: rows, cursors and the clock come in. Promise: nothing is missed, repeated or reordered,
//! whatever the writer's clock says: rows are ordered by their id, and rows that a rewrite stores
//! again under new ids are recognised. Not wired up yet: the log itself belongs to hermesd.db.

use super::content::Content;
use serde_json::{Map, Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest text of one event, in characters. What is cut is marked.
pub const TEXT_LIMIT: usize = 500;
/// How many events are kept.
pub const KEPT_EVENTS: u64 = 100_000;
/// How long an event is kept.
pub const KEPT_FOR: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How many messages of a session are remembered to recognise a rewrite.
pub const TRAIL_LIMIT: usize = 400;

/// Number of an event in the log. Rises by one with each event, never runs backwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor(pub u64);

impl Cursor {
    /// Where a new log starts: microseconds since 1970, so that a log which was lost and made anew
    /// goes on above the old one. Stays below 2^53, which every JSON reader keeps exact, until 2255.
    pub fn first(now: SystemTime) -> Self {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_micros()).unwrap_or(u64::MAX).max(1))
    }

    /// The one after this.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// One row of `messages`, as far as events need it.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageRow {
    /// Row id: the order of writing, never reused.
    pub id: i64,
    /// `user`, `assistant`, `tool`, `system`.
    pub role: String,
    /// The content column as stored.
    pub content: String,
    /// Epoch seconds by the writer's clock. Never used for order.
    pub timestamp: f64,
    /// Whether people are shown the row.
    pub shown: Shown,
}

/// Whether a row is shown to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Yes.
    Yes,
    /// It was taken back, summarised away, or is scaffold for the model.
    No,
}

/// The event of a new row under `session_key`; `None` if a person would see nothing new.
///
/// Members: type, session_key, role, content, timestamp (text of a float), message_id, and
/// `truncated: true` where the content was cut.
pub fn of_message(session_key: &str, row: &MessageRow) -> Option<Map<String, Value>> {
    if row.shown == Shown::No || !matches!(row.role.as_str(), "user" | "assistant") {
        return None;
    }
    let text = Content::decode(&row.content).text();
    if text.is_empty() {
        return None;
    }
    let cut = text.char_indices().nth(TEXT_LIMIT).map(|(end, _)| end);
    let mut event = members(json!({
        "type": "message",
        "session_key": session_key,
        "role": row.role,
        "content": &text[..cut.unwrap_or(text.len())],
        // Debug keeps the ".0" of a whole number, as the reference's text does.
        "timestamp": format!("{:?}", row.timestamp),
        "message_id": row.id.to_string(),
    }));
    if cut.is_some() {
        event.insert("truncated".to_owned(), Value::Bool(true));
    }
    Some(event)
}

/// The event of a decided approval.
pub fn of_decision(session_key: &str, approval_id: &str, decision: &str) -> Map<String, Value> {
    members(json!({
        "type": "approval_resolved", "session_key": session_key, "approval_id": approval_id, "decision": decision,
    }))
}

fn members(object: Value) -> Map<String, Value> {
    match object {
        Value::Object(members) => members,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

/// The events that the log holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The oldest one kept; one more than `latest` if there is none.
    pub oldest: Cursor,
    /// The newest one there ever was.
    pub latest: Cursor,
}

/// Where a client's cursor stands in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// Everything after it is still there, or it asked for the oldest kept.
    Whole {
        /// The first event to answer with.
        from: Cursor,
    },
    /// Events after it were dropped; what is left starts at `from`.
    Gap {
        /// The first event to answer with.
        from: Cursor,
    },
    /// It is from another log. Answered at once, also by a wait.
    Reset,
}

impl Window {
    /// Where `after_cursor` stands; 0 means the oldest event kept.
    pub fn position(self, after_cursor: u64) -> Position {
        match Cursor(after_cursor) {
            Cursor(0) => Position::Whole { from: self.oldest },
            after if after > self.latest => Position::Reset,
            after if after.next() < self.oldest => Position::Gap { from: self.oldest },
            after => Position::Whole { from: after.next() },
        }
    }

    /// The answer of `events_poll`: `page` holds the events found from the position on, in order.
    ///
    /// A gap is marked with `gap: true`, a reset with `reset: true` and the newest cursor to go on from.
    pub fn answer(self, after_cursor: u64, page: Vec<(Cursor, Map<String, Value>)>) -> Value {
        let position = self.position(after_cursor);
        let next = match (page.last(), position) {
            (_, Position::Reset) => self.latest.0,
            (Some((last, _)), _) => last.0,
            (None, _) => after_cursor,
        };
        let events: Vec<Value> = match position {
            Position::Reset => Vec::new(),
            Position::Whole { .. } | Position::Gap { .. } => {
                page.into_iter().map(|(cursor, event)| numbered(cursor, event)).collect()
            }
        };
        let mut answer = json!({
            "events": events, "next_cursor": next, "oldest_cursor": self.oldest.0, "latest_cursor": self.latest.0,
        });
        match position {
            Position::Whole { .. } => {}
            Position::Gap { .. } => answer["gap"] = Value::Bool(true),
            Position::Reset => answer["reset"] = Value::Bool(true),
        }
        answer
    }

    /// The oldest event to keep, if `fresh` is the oldest one that is not older than [`KEPT_FOR`].
    pub fn keep_from(self, fresh: Cursor) -> Cursor {
        let by_count = Cursor((self.latest.0 + 1).saturating_sub(KEPT_EVENTS));
        self.oldest.max(by_count).max(fresh.min(self.latest.next()))
    }
}

fn numbered(cursor: Cursor, event: Map<String, Value>) -> Value {
    let mut whole = Map::from_iter([("cursor".to_owned(), Value::from(cursor.0))]);
    whole.extend(event);
    Value::Object(whole)
}

/// The last messages of one session, to tell new rows from old ones that were written again.
///
/// Hermes Agent rewrites a session by deleting its rows and inserting those that stay, with new ids
/// and new times. `T` is whatever identifies a message by what it says: role and content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trail<T> {
    known: Vec<T>,
}

impl<T> Default for Trail<T> {
    fn default() -> Self {
        Self { known: Vec::new() }
    }
}

/// What happened to the rows that were known before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// They are still there.
    Kept,
    /// Some are gone: the rows that came are, at least in part, the same messages again.
    Rewritten,
}

impl<T: PartialEq + Clone> Trail<T> {
    /// Takes the rows above the last known id, in order of their ids, and says which of them are
    /// new, by index in `rows`.
    pub fn advance(&mut self, rows: &[T], known: Known) -> Vec<usize> {
        let new = match known {
            Known::Kept => (0..rows.len()).collect(),
            Known::Rewritten => unmatched(&self.known, rows),
        };
        if known == Known::Rewritten {
            self.known.clear();
        }
        self.known.extend_from_slice(rows);
        let surplus = self.known.len().saturating_sub(TRAIL_LIMIT);
        self.known.drain(..surplus);
        new
    }
}

/// Indices of `rows` outside a longest common subsequence with `known`.
fn unmatched<T: PartialEq>(known: &[T], rows: &[T]) -> Vec<usize> {
    let width = rows.len() + 1;
    // longest[i * width + j]: the longest common subsequence of known[i..] and rows[j..].
    let mut longest = vec![0_u32; (known.len() + 1) * width];
    for i in (0..known.len()).rev() {
        for j in (0..rows.len()).rev() {
            longest[i * width + j] = if known[i] == rows[j] {
                longest[(i + 1) * width + j + 1] + 1
            } else {
                longest[(i + 1) * width + j].max(longest[i * width + j + 1])
            };
        }
    }
    let (mut i, mut new) = (0, Vec::new());
    for j in 0..rows.len() {
        // Skip known rows as long as that costs no match.
        while i < known.len() && known[i] != rows[j] && longest[(i + 1) * width + j] == longest[i * width + j]
        {
            i += 1;
        }
        if i < known.len() && known[i] == rows[j] {
            i += 1;
        } else {
            new.push(j);
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(role: &str, content: &str) -> MessageRow {
        MessageRow {
            id: 7,
            role: role.into(),
            content: content.into(),
            timestamp: 1_779_000_033.0,
            shown: Shown::Yes,
        }
    }

    fn window(oldest: u64, latest: u64) -> Window {
        Window { oldest: Cursor(oldest), latest: Cursor(latest) }
    }

    #[test]
    fn a_message_becomes_the_event_of_the_reference() {
        assert_eq!(
            Value::Object(of_message("k", &row("user", "你好")).unwrap()),
            json!({
                "type": "message", "session_key": "k", "role": "user", "content": "你好",
                "timestamp": "1779000033.0", "message_id": "7",
            })
        );
    }

    #[test]
    fn what_nobody_would_see_is_no_event() {
        let hidden = MessageRow { shown: Shown::No, ..row("user", "x") };
        let image_only = row("user", "\0json:[{\"type\":\"image\",\"url\":\"u\"}]");
        for row in [hidden, image_only, row("tool", "x"), row("system", "x"), row("assistant", "")] {
            assert_eq!(of_message("k", &row), None, "{row:?}");
        }
    }

    #[test]
    fn a_cut_text_is_marked() {
        let event = of_message("k", &row("user", &"字".repeat(TEXT_LIMIT + 1))).unwrap();
        assert_eq!(event["content"], json!("字".repeat(TEXT_LIMIT)));
        assert_eq!(event["truncated"], json!(true));
        assert!(!of_message("k", &row("user", &"字".repeat(TEXT_LIMIT))).unwrap().contains_key("truncated"));
    }

    #[test]
    fn positions_tell_gaps_and_other_logs_apart() {
        let log = window(10, 20);
        assert_eq!(log.position(0), Position::Whole { from: Cursor(10) });
        assert_eq!(log.position(9), Position::Whole { from: Cursor(10) });
        assert_eq!(log.position(8), Position::Gap { from: Cursor(10) });
        assert_eq!(log.position(20), Position::Whole { from: Cursor(21) });
        assert_eq!(log.position(21), Position::Reset);
    }

    #[test]
    fn answers_say_where_the_log_begins_and_ends_and_where_to_go_on() {
        let event = of_decision("k", "a1", "deny");
        assert_eq!(
            window(10, 20).answer(5, vec![(Cursor(10), event)]),
            json!({
                "events": [{"cursor": 10, "type": "approval_resolved", "session_key": "k", "approval_id": "a1", "decision": "deny"}],
                "next_cursor": 10, "oldest_cursor": 10, "latest_cursor": 20, "gap": true,
            })
        );
        assert_eq!(
            window(10, 20).answer(99, Vec::new()),
            json!({"events": [], "next_cursor": 20, "oldest_cursor": 10, "latest_cursor": 20, "reset": true})
        );
        assert_eq!(window(10, 20).answer(20, Vec::new())["next_cursor"], json!(20));
    }

    #[test]
    fn a_new_log_goes_on_above_the_old_one() {
        let day = UNIX_EPOCH + Duration::from_secs(1_779_000_000);
        let busy_day_later = Cursor(Cursor::first(day).0 + 1_000_000);
        assert!(Cursor::first(day + Duration::from_secs(86_400)) > busy_day_later);
        assert!(Cursor::first(day).0 < 1 << 53);
        assert_eq!(Cursor::first(UNIX_EPOCH - Duration::from_secs(1)), Cursor(1));
    }

    #[test]
    fn undo_and_retry_and_a_summary_bring_only_what_is_new() {
        let mut trail = Trail::default();
        assert_eq!(trail.advance(&["a", "b", "a", "c"], Known::Kept), [0, 1, 2, 3]);
        assert_eq!(trail.advance(&["a", "b"], Known::Rewritten), Vec::<usize>::new());
        assert_eq!(trail.advance(&["a", "b", "a", "d"], Known::Rewritten), [2, 3]);
        assert_eq!(trail.advance(&["summary", "a", "d", "e"], Known::Rewritten), [0, 3]);
        assert_eq!(trail.advance(&["e"], Known::Kept), [0], "the same words said again are a new message");
    }

    proptest! {
        #[test]
        fn a_rewrite_that_keeps_some_rows_and_adds_others_brings_exactly_the_others(
            kept in prop::collection::vec((0u16..500, any::<bool>()), 0..60), added in prop::collection::vec(500u16..900, 0..20),
        ) {
            let mut trail = Trail::default();
            let known: Vec<u16> = kept.iter().map(|(row, _)| *row).collect();
            trail.advance(&known, Known::Kept);
            let mut rows: Vec<u16> = kept.iter().filter(|(_, stays)| *stays).map(|(row, _)| *row).collect();
            let first_added = rows.len();
            rows.extend(&added);
            prop_assert_eq!(trail.advance(&rows, Known::Rewritten), (first_added..rows.len()).collect::<Vec<_>>());
        }

        #[test]
        fn following_next_cursor_sees_each_kept_event_once_in_order(
            oldest in 1u64..1000, count in 0u64..50, after in 0u64..1100, limit in 1u64..9,
        ) {
            let log = window(oldest, oldest + count - 1);
            let (mut after, mut seen) = (after, Vec::new());
            let expected = match log.position(after) {
                Position::Reset => Vec::new(),
                Position::Whole { from } | Position::Gap { from } => (from.0..oldest + count).collect(),
            };
            loop {
                let page: Vec<_> = match log.position(after) {
                    Position::Reset => Vec::new(),
                    Position::Whole { from } | Position::Gap { from } => (from.0..oldest + count)
                        .take(usize::try_from(limit).unwrap())
                        .map(|cursor| (Cursor(cursor), Map::new()))
                        .collect(),
                };
                seen.extend(page.iter().map(|(cursor, _)| cursor.0));
                if page.is_empty() {
                    break;
                }
                after = log.answer(after, page)["next_cursor"].as_u64().unwrap();
            }
            prop_assert_eq!(seen, expected);
        }

        #[test]
        fn what_is_kept_is_bounded_and_never_grows_backwards(
            oldest in 1u64..300_000, count in 1u64..300_000, fresh in 0u64..700_000,
        ) {
            let log = window(oldest, oldest + count - 1);
            let keep = log.keep_from(Cursor(fresh));
            prop_assert!(keep >= log.oldest && keep <= log.latest.next());
            prop_assert!(log.latest.0 + 1 - keep.0 <= KEPT_EVENTS);
        }
    }
}
