//! Events of conversations: what becomes one, and how a page of the log is answered.
//!
//! Pure. Rows and cursors come in. Promise: an event shows what a person would see, no more; a client
//! that follows `next_cursor` sees every kept event once, in order, and is told when some are missing.

use super::content::Content;
use serde_json::{Map, Value, json};

/// Longest text of one event, in characters. What is cut is marked.
pub const TEXT_LIMIT: usize = 500;
/// What happens in conversations; the names are those of `kinds` in `events_poll`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A message.
    Message,
    /// Messages of a conversation were taken back or stored again under other ids.
    Rewritten,
    /// Events are missing from here: state.db was replaced.
    Gap,
    /// A call waits for approval.
    ApprovalRequested,
    /// It was decided.
    ApprovalResolved,
}

impl Kind {
    /// All, in the order in which they are documented.
    pub const ALL: [Self; 5] =
        [Self::Message, Self::Rewritten, Self::Gap, Self::ApprovalRequested, Self::ApprovalResolved];

    /// The word in events and filters.
    pub fn word(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Rewritten => "conversation_rewritten",
            Self::Gap => crate::store::GAP,
            Self::ApprovalRequested => "approval_requested",
            Self::ApprovalResolved => "approval_resolved",
        }
    }
}

/// Number of an event in the log. Rises by one with each event, never runs backwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor(pub u64);

impl Cursor {
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
        "type": Kind::Message.word(),
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

/// The event of a conversation whose messages were taken back or stored again under other ids.
/// `removed` of the messages that were told are gone.
pub fn of_rewrite(session_key: &str, removed: usize) -> Map<String, Value> {
    members(json!({ "type": Kind::Rewritten.word(), "session_key": session_key, "removed": removed }))
}

/// The marker that messages of any conversation may be missing before it.
pub fn of_gap(reason: &str) -> Map<String, Value> {
    members(json!({ "type": Kind::Gap.word(), "session_key": "", "reason": reason }))
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

    /// The answer of `events_wait`: the first event of `page`, or why there is none. `None`: there is
    /// nothing to tell yet.
    pub fn first(self, after_cursor: u64, page: Vec<(Cursor, Map<String, Value>)>) -> Option<Value> {
        let reset = self.position(after_cursor) == Position::Reset;
        if page.is_empty() && !reset {
            return None;
        }
        let mut answer = self.answer(after_cursor, page);
        let event = answer["events"].as_array_mut().and_then(|events| events.pop()).unwrap_or_default();
        Some(self.waited(answer, event, "reset"))
    }

    /// The answer of `events_wait` when nothing happened: `reason` says why it ends.
    pub fn nothing(self, after_cursor: u64, reason: &str) -> Value {
        self.waited(self.answer(after_cursor, Vec::new()), Value::Null, reason)
    }

    fn waited(self, answer: Value, event: Value, reason: &str) -> Value {
        let mut waited = members(json!({ "event": event }));
        if event.is_null() {
            waited.insert("reason".to_owned(), reason.into());
        }
        waited.extend(members(answer).into_iter().filter(|(name, _)| name != "events"));
        Value::Object(waited)
    }

    /// The answer of `events_poll`: `page` holds the events found from the position on, in order.
    ///
    /// A gap is marked with `gap: true`, a reset with `reset: true` and the newest cursor to go on from.
    pub fn answer(self, after_cursor: u64, page: Vec<(Cursor, Map<String, Value>)>) -> Value {
        let position = self.position(after_cursor);
        let next = match (page.last(), position) {
            (_, Position::Reset) => self.latest.0,
            (Some((last, _)), _) => last.0,
            // Or the same gap would be told again and again.
            (None, Position::Gap { from }) => from.0.saturating_sub(1),
            (None, Position::Whole { .. }) => after_cursor,
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
}

fn numbered(cursor: Cursor, event: Map<String, Value>) -> Value {
    let mut whole = Map::from_iter([("cursor".to_owned(), Value::from(cursor.0))]);
    whole.extend(event);
    Value::Object(whole)
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
        let event = of_rewrite("k", 1);
        assert_eq!(
            window(10, 20).answer(5, vec![(Cursor(10), event)]),
            json!({
                "events": [{"cursor": 10, "type": "conversation_rewritten", "session_key": "k", "removed": 1}],
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
    fn a_wait_ends_with_the_first_event_or_a_reset() {
        let event = of_rewrite("k", 2);
        assert_eq!(window(10, 20).first(20, Vec::new()), None);
        assert_eq!(
            window(10, 20).first(9, vec![(Cursor(12), event)]),
            Some(json!({
                "event": {"cursor": 12, "type": "conversation_rewritten", "session_key": "k", "removed": 2},
                "next_cursor": 12, "oldest_cursor": 10, "latest_cursor": 20,
            }))
        );
        let reset = window(10, 20).first(21, Vec::new()).unwrap();
        assert_eq!(
            (&reset["reset"], &reset["reason"], &reset["event"]),
            (&json!(true), &json!("reset"), &Value::Null)
        );
        assert_eq!(window(10, 20).nothing(20, "timeout")["reason"], json!("timeout"));
    }

    #[test]
    fn a_gap_without_an_event_is_told_once() {
        let told = window(10, 20).answer(5, Vec::new());
        assert_eq!((&told["gap"], &told["next_cursor"]), (&json!(true), &json!(9)));
        assert_eq!(window(10, 20).answer(9, Vec::new()).get("gap"), None);
    }

    proptest! {
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
    }
}
