//! How far state.db was read, as it is kept in hermesd.db.
//!
//! Pure. Promise: a position that cannot be read counts as none; sessions that wait for their
//! conversation are few and wait for a limited time.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of the source in hermesd.db.
pub(super) const SOURCE: &str = "state.db";
/// Sessions that may wait for their conversation to be named.
const WAITING_LIMIT: usize = 256;
/// How long they wait, in milliseconds: the gateway names them within a second.
const WAITING_MS: i64 = 60_000;

/// See the module's words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    /// The file that was read; `None`: there was none yet.
    pub(super) file: Option<FileMark>,
    /// Every message up to this row id was told or is history.
    pub(super) through: i64,
    /// When there was no file, in milliseconds since 1970; what is written later is no history.
    pub(super) missing_since: Option<i64>,
    /// Sessions with messages that no conversation is known for.
    #[serde(default)]
    pub(super) waiting: BTreeMap<String, Waiting>,
}

/// What tells one file from another, also over a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileMark {
    /// Its inode.
    pub(super) inode: u64,
    /// When it was made, in milliseconds since 1970, where the file system knows.
    pub(super) born_ms: Option<i64>,
}

impl FileMark {
    /// Whether both can be the same file.
    pub(super) fn fits(self, other: Self) -> bool {
        let born = self.born_ms.zip(other.born_ms).is_none_or(|(one, two)| one == two);
        self.inode == other.inode && born
    }
}

/// A session that waits for its conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Waiting {
    /// Its first message.
    pub(super) from: i64,
    /// Until when it waits, in milliseconds since 1970.
    pub(super) until_ms: i64,
}

impl Position {
    /// From the text in hermesd.db.
    pub(super) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// For hermesd.db.
    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).expect("a position has text keys and whole numbers")
    }

    /// Lets `session` wait from row `from` on, if it does not already.
    pub(super) fn wait_for(&mut self, session: &str, from: i64, now_ms: i64) {
        if self.waiting.contains_key(session) {
            return;
        }
        if self.waiting.len() >= WAITING_LIMIT {
            let oldest = self.waiting.iter().min_by_key(|(_, waiting)| waiting.from);
            let oldest = oldest.map(|(session, _)| session.clone()).unwrap_or_default();
            self.waiting.remove(&oldest);
        }
        self.waiting
            .insert(session.to_owned(), Waiting { from, until_ms: now_ms.saturating_add(WAITING_MS) });
    }

    /// Gives up those whose time is over; also those that a clock set back would keep for ever.
    pub(super) fn expire(&mut self, now_ms: i64) {
        self.waiting
            .retain(|_, waiting| (now_ms..=now_ms.saturating_add(WAITING_MS)).contains(&waiting.until_ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn empty() -> Position {
        Position { file: None, through: 0, missing_since: None, waiting: BTreeMap::new() }
    }

    #[test]
    fn a_position_comes_back_as_it_was_and_nonsense_counts_as_none() {
        let mut position = empty();
        position.file = Some(FileMark { inode: u64::MAX, born_ms: None });
        position.wait_for("s", 3, 5);
        assert_eq!(Position::parse(&position.text()), Some(position));
        assert_eq!(Position::parse("row 12"), None);
    }

    #[test]
    fn the_time_of_making_counts_only_where_both_know_it() {
        let mark = |inode, born_ms| FileMark { inode, born_ms };
        assert!(mark(1, Some(5)).fits(mark(1, None)));
        assert!(!mark(1, Some(5)).fits(mark(1, Some(6))), "inodes are used again");
        assert!(!mark(1, None).fits(mark(2, None)));
    }

    proptest! {
        #[test]
        fn few_sessions_wait_and_none_for_ever(steps in prop::collection::vec((0u32..600, 0i64..200_000), 0..700)) {
            let mut position = empty();
            for (session, now) in &steps {
                position.expire(*now);
                position.wait_for(&session.to_string(), i64::from(*session), *now);
                prop_assert!(position.waiting.len() <= WAITING_LIMIT);
                prop_assert!(position.waiting.values().all(|waiting| waiting.until_ms - now <= WAITING_MS));
            }
        }
    }
}
