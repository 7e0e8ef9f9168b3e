//! Messages of a conversation as clients see them.
//!
//! Pure. Promise: the newest `limit` messages that a person would read, oldest first, and how many
//! there are in all, holding no more than `limit` of them at a time.

use serde::Serialize;
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Longest text of one message, in characters.
pub(super) const TEXT_LIMIT: usize = 2000;

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Message {
    /// Row id as text.
    pub(super) id: String,
    /// `user` or `assistant`.
    pub(super) role: String,
    /// At most [`TEXT_LIMIT`] characters.
    pub(super) content: String,
    /// Epoch seconds as the writer stored them.
    pub(super) timestamp: Value,
}

/// The answer of `messages_read`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Page {
    pub(super) session_key: String,
    pub(super) count: usize,
    pub(super) total_in_session: usize,
    pub(super) messages: Vec<Message>,
}

/// Collects row ids in any order: counts all, keeps the highest `limit`.
#[derive(Debug)]
pub(super) struct Tail {
    limit: usize,
    total: usize,
    highest: BinaryHeap<Reverse<i64>>,
}

impl Tail {
    /// Keeps at most `limit` ids.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, total: 0, highest: BinaryHeap::with_capacity(limit + 1) }
    }

    /// Takes one more id.
    pub(super) fn push(&mut self, id: i64) {
        self.total += 1;
        self.highest.push(Reverse(id));
        if self.highest.len() > self.limit {
            self.highest.pop();
        }
    }

    /// How many ids there were, and the highest in rising order.
    pub(super) fn finish(self) -> (usize, Vec<i64>) {
        let mut ids: Vec<i64> = self.highest.into_iter().map(|Reverse(id)| id).collect();
        ids.sort_unstable();
        (self.total, ids)
    }
}

/// Cuts to [`TEXT_LIMIT`] characters.
pub(super) fn cut(text: String) -> String {
    match text.char_indices().nth(TEXT_LIMIT) {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_are_cut_by_characters_and_not_by_bytes() {
        assert_eq!(cut("字".repeat(TEXT_LIMIT + 1)), "字".repeat(TEXT_LIMIT));
        assert_eq!(cut("a".repeat(TEXT_LIMIT)), "a".repeat(TEXT_LIMIT));
    }

    proptest! {
        #[test]
        fn the_tail_is_the_end_of_the_sorted_ids_whatever_their_order(
            ids in prop::collection::hash_set(any::<i64>(), 0..60), limit in 1usize..20,
        ) {
            let mut tail = Tail::new(limit);
            for id in &ids {
                tail.push(*id);
            }
            let mut sorted: Vec<i64> = ids.into_iter().collect();
            sorted.sort_unstable();
            let newest = sorted.split_off(sorted.len().saturating_sub(limit));
            prop_assert_eq!(tail.finish(), (sorted.len() + newest.len(), newest));
        }
    }
}
