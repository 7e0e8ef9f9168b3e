//! Messages of a conversation as clients see them, and which of them a call asks for.
//!
//! Pure. Promise: at most `limit` messages that a person would read, oldest first, each with a text
//! that says when it was cut.

use super::attachments;
use super::content::Content;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Longest text of one message, in characters, unless the whole text is asked for.
pub(super) const TEXT_LIMIT: usize = 2000;
/// Most bytes of text in one answer with whole texts. What is left comes with the next page.
pub(super) const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Who wrote a message. The words are those of the column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    User,
    Assistant,
    Tool,
    System,
}

impl Role {
    pub(super) const ALL: [Self; 4] = [Self::User, Self::Assistant, Self::Tool, Self::System];
    /// Those of a conversation between people and the assistant.
    pub(super) const SPOKEN: [Self; 2] = [Self::User, Self::Assistant];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
            Self::System => "system",
        }
    }

    pub(super) fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.word() == word)
    }
}

/// How much of a text is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    /// At most [`TEXT_LIMIT`] characters; messages without text are left out.
    Cut,
    /// All of it, and messages that have attachments and no text.
    Whole,
}

/// Which messages a call asks for. Both ends are ids and not part of the range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ask {
    /// At least 1.
    pub(super) limit: usize,
    pub(super) before: Option<i64>,
    pub(super) after: Option<i64>,
    /// Never empty.
    pub(super) roles: BTreeSet<Role>,
    pub(super) length: Length,
}

/// Which end of the range is answered when it holds more than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edge {
    /// The oldest, so that a reader who goes on after what it has misses nothing.
    Oldest,
    /// The newest.
    Newest,
}

impl Ask {
    /// What the reference answers: the newest messages.
    pub(super) fn newest(limit: usize) -> Self {
        Self { limit, before: None, after: None, roles: BTreeSet::from(Role::SPOKEN), length: Length::Cut }
    }

    /// Where reading begins.
    pub(super) fn edge(&self) -> Edge {
        if self.after.is_some() { Edge::Oldest } else { Edge::Newest }
    }
}

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Message {
    /// Row id as text.
    pub(super) id: String,
    /// A word of [`Role`].
    pub(super) role: String,
    /// At most [`TEXT_LIMIT`] characters, unless asked for whole.
    pub(super) content: String,
    /// Epoch seconds as the writer stored them.
    pub(super) timestamp: Value,
    /// `true` where the text was cut, else absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) truncated: Option<bool>,
    /// How many attachments it has, with whole texts and if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) attachments: Option<usize>,
}

/// The answer of `messages_read`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Page {
    pub(super) session_key: String,
    pub(super) count: usize,
    /// Of user and assistant with text, whatever was asked for.
    pub(super) total_in_session: usize,
    pub(super) messages: Vec<Message>,
    /// Whether the range goes on; absent where the reference knows no such thing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) more: Option<bool>,
}

/// One row on its way into a page.
#[derive(Debug)]
pub(super) struct Stored<'a> {
    pub(super) id: i64,
    pub(super) role: String,
    pub(super) content: &'a str,
    pub(super) timestamp: Value,
}

/// Takes rows in the order of reading, until the page is full.
#[derive(Debug)]
pub(super) struct Collector<'a> {
    ask: &'a Ask,
    messages: Vec<Message>,
    bytes: usize,
    more: bool,
}

impl<'a> Collector<'a> {
    pub(super) fn new(ask: &'a Ask) -> Self {
        Self { ask, messages: Vec::new(), bytes: 0, more: false }
    }

    /// Takes one row; breaks once another one would not fit.
    pub(super) fn take(&mut self, row: Stored<'_>) -> ControlFlow<()> {
        let content = Content::decode(row.content);
        let text = content.text();
        let found = match self.ask.length {
            Length::Cut => 0,
            Length::Whole => attachments::of(&content).len(),
        };
        if text.is_empty() && found == 0 {
            return ControlFlow::Continue(());
        }
        let longest = match self.ask.length {
            Length::Cut => text.char_indices().nth(TEXT_LIMIT).map_or(text.len(), |(end, _)| end),
            Length::Whole => text.floor_char_boundary(PAGE_BYTES),
        };
        let full = self.messages.len() == self.ask.limit || self.bytes + longest > PAGE_BYTES;
        if full && !self.messages.is_empty() {
            self.more = true;
            return ControlFlow::Break(());
        }
        self.bytes += longest;
        self.messages.push(Message {
            id: row.id.to_string(),
            role: row.role,
            content: text[..longest].to_owned(),
            timestamp: row.timestamp,
            truncated: (longest < text.len()).then_some(true),
            attachments: (found > 0).then_some(found),
        });
        ControlFlow::Continue(())
    }

    /// The page, oldest first, and whether the range goes on behind it.
    pub(super) fn finish(mut self) -> (Vec<Message>, bool) {
        if self.ask.edge() == Edge::Newest {
            self.messages.reverse();
        }
        (self.messages, self.more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stored(id: i64, content: &str) -> Stored<'_> {
        Stored { id, role: "user".into(), content, timestamp: Value::Null }
    }

    fn one(length: Length, content: &str) -> Option<Message> {
        let ask = Ask { length, ..Ask::newest(5) };
        let mut page = Collector::new(&ask);
        assert_eq!(page.take(stored(1, content)), ControlFlow::Continue(()));
        page.finish().0.pop()
    }

    #[test]
    fn texts_are_cut_by_characters_and_say_so() {
        let long = "字".repeat(TEXT_LIMIT + 1);
        let cut = one(Length::Cut, &long).unwrap();
        assert_eq!((cut.content, cut.truncated), ("字".repeat(TEXT_LIMIT), Some(true)));
        let fits = one(Length::Cut, &"a".repeat(TEXT_LIMIT)).unwrap();
        assert_eq!((fits.content.len(), fits.truncated), (TEXT_LIMIT, None));
        let whole = one(Length::Whole, &long).unwrap();
        assert_eq!((whole.content, whole.truncated), (long, None));
    }

    #[test]
    fn a_message_of_pictures_only_is_in_a_whole_page_and_in_no_other() {
        let picture = "\0json:[{\"type\":\"image\",\"url\":\"u\"}]";
        assert_eq!(one(Length::Cut, picture), None);
        let whole = one(Length::Whole, picture).unwrap();
        assert_eq!((whole.content.as_str(), whole.attachments), ("", Some(1)));
        assert_eq!(one(Length::Whole, ""), None);
    }

    #[test]
    fn whole_texts_end_a_page_before_it_grows_too_large_but_never_before_its_first() {
        let ask = Ask { length: Length::Whole, ..Ask::newest(5) };
        let mut page = Collector::new(&ask);
        let large = "a".repeat(PAGE_BYTES + 1);
        assert_eq!(page.take(stored(9, &large)), ControlFlow::Continue(()));
        assert_eq!(page.take(stored(8, "b")), ControlFlow::Break(()));
        let (messages, more) = page.finish();
        assert_eq!((messages.len(), messages[0].truncated, more), (1, Some(true), true));
    }

    proptest! {
        #[test]
        fn a_page_holds_the_first_texts_of_the_order_of_reading(
            texts in prop::collection::vec("[a字]{0,2}", 0..30), limit in 1usize..20, forward in any::<bool>(),
        ) {
            let ask = Ask { after: forward.then_some(0), ..Ask::newest(limit) };
            let rows: Vec<(i64, &String)> = (1..).zip(&texts).collect();
            let reading: Vec<(i64, &String)> =
                if forward { rows.clone() } else { rows.iter().rev().copied().collect() };
            let mut page = Collector::new(&ask);
            for (id, text) in &reading {
                if page.take(stored(*id, text)).is_break() {
                    break;
                }
            }
            let full: Vec<i64> = reading.iter().filter(|(_, text)| !text.is_empty()).map(|(id, _)| *id).collect();
            let mut expected: Vec<String> = full.iter().take(limit).map(i64::to_string).collect();
            if !forward {
                expected.reverse();
            }
            let (messages, more) = page.finish();
            prop_assert_eq!(messages.into_iter().map(|message| message.id).collect::<Vec<_>>(), expected);
            prop_assert_eq!(more, full.len() > limit);
        }
    }
}
