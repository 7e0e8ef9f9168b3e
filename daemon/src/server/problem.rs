//! What is wrong with a list of a server, or with one of its items, in words for status.
//!
//! Pure. Promise: one variant for each thing a person would do about it. May not touch: the items.

use super::listing::ListKind;
use crate::jsonrpc::depth;
use std::fmt;

/// Something about a list that a person should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Which list.
    pub list: ListKind,
    /// Name of the item, or its place from 1 when it has no usable name; empty: the list as a whole.
    pub item: String,
    /// What was wrong.
    pub problem: Problem,
}

/// What was wrong with an item or a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// Dropped: it is no object.
    NotAnObject,
    /// Dropped: this member is missing or no text.
    NoKey(&'static str),
    /// Dropped: the same name came before.
    Duplicate,
    /// Dropped: clients could not read the list with it.
    TooDeep,
    /// Repaired: no usable `inputSchema`, any object is accepted.
    SchemaReplaced,
    /// The list is cut off here: the result has no array under this member.
    NoArray(&'static str),
    /// The list is cut off here: the server gave the same cursor again.
    CursorRepeated,
    /// The list is cut off here: too many pages.
    TooManyPages(usize),
    /// `nextCursor` is neither text nor null: taken as the end.
    BadCursor,
    /// The list could not be read; what was known before stays.
    Unavailable(String),
    /// Dropped: it breaks a rule of its transport.
    AgainstRules(String),
}

impl Problem {
    /// Whether an item is missing from the listing because of it.
    pub fn drops_item(&self) -> bool {
        matches!(
            self,
            Self::NotAnObject | Self::NoKey(_) | Self::Duplicate | Self::TooDeep | Self::AgainstRules(_)
        )
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.list)?;
        if !self.item.is_empty() {
            write!(f, "`{}` ", self.item)?;
        }
        match &self.problem {
            Problem::NotAnObject => write!(f, "dropped, it is no object"),
            Problem::NoKey(member) => write!(f, "dropped, `{member}` is missing or no text"),
            Problem::Duplicate => write!(f, "dropped, the same name came before"),
            Problem::TooDeep => write!(f, "dropped, nested deeper than {} levels", depth::MAX_ITEM),
            Problem::SchemaReplaced => write!(f, "has no usable inputSchema; any object is accepted"),
            Problem::NoArray(member) => write!(f, "the answer has no array `{member}`"),
            Problem::CursorRepeated => write!(f, "cut off, the server repeats a cursor"),
            Problem::TooManyPages(limit) => write!(f, "cut off after {limit} pages"),
            Problem::BadCursor => write!(f, "nextCursor is no text, taken as the end"),
            Problem::Unavailable(why) => write!(f, "not read: {why}"),
            Problem::AgainstRules(why) => write!(f, "dropped, {why}"),
        }
    }
}
