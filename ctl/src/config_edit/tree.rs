//! config.yaml as it will be read: values in their spelling, aliases and merges resolved.
//!
//! Pure. Promise: [`parse`] ends in bounded time and memory for any text, and sees a file as the
//! daemon's reader does (same parser, the last of repeated keys counts). It is what an edit is
//! compared with. May not touch: files, the text itself.

use saphyr_parser::{Event, Parser, ScalarStyle};
use std::collections::HashMap;
use std::fmt;

/// Largest accepted text in bytes; the daemon reads no more.
pub const MAX_BYTES: usize = 4 << 20;
/// Most values, each alias counted with everything below it.
const MAX_NODES: usize = 100_000;
/// Deepest nesting.
const MAX_DEPTH: usize = 64;

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// Text as spelled, quotes removed; `plain` where it had none, so that `no` may mean false.
    Scalar {
        /// The text.
        text: String,
        /// Whether it is written bare.
        plain: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// Keys and values in their order.
    Map(Vec<(String, Node)>),
}

/// Keys from the top of the file down to a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(Vec<String>);

impl Path {
    /// A path of these keys; empty means the whole file.
    pub fn of<S: Into<String>>(keys: impl IntoIterator<Item = S>) -> Self {
        Self(keys.into_iter().map(Into::into).collect())
    }

    /// One key further down.
    #[must_use]
    pub fn join(&self, key: &str) -> Self {
        let mut keys = self.0.clone();
        keys.push(key.to_owned());
        Self(keys)
    }

    /// The keys.
    pub fn keys(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

/// Why a text is no tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// Not YAML.
    #[error("line {line}, column {column}: not valid YAML: {detail}")]
    Syntax {
        /// 1-based.
        line: usize,
        /// 1-based.
        column: usize,
        /// What the parser expected.
        detail: String,
    },
    /// Too long, too deep or with too many values.
    #[error("it is larger than the {what} that hermesd reads")]
    TooBig {
        /// Which limit.
        what: String,
    },
    /// An alias below its own anchor.
    #[error("line {line}: an alias refers to the value that contains it")]
    SelfReference {
        /// 1-based.
        line: usize,
    },
    /// The top is a list or a single value.
    #[error("it is not a mapping of keys to values")]
    NotAMapping,
}

impl Node {
    /// Nothing, as an empty file has it.
    pub fn null() -> Self {
        Self::Scalar { text: String::new(), plain: true }
    }

    /// Whether it is null: nothing, `~` or `null`, bare.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// The value below `key`.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match self {
            Self::Map(entries) => entries.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            Self::Scalar { .. } | Self::List(_) => None,
        }
    }

    /// The value at `path`.
    pub fn at(&self, path: &Path) -> Option<&Node> {
        path.keys().iter().try_fold(self, |node, key| node.get(key))
    }

    /// The text of a scalar that is not null.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Scalar { text, .. } if !self.is_null() => Some(text),
            Self::Scalar { .. } | Self::List(_) | Self::Map(_) => None,
        }
    }

    /// True or false in any spelling that the daemon takes.
    pub fn boolean(&self) -> Option<bool> {
        match self.text()?.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "y" | "1" => Some(true),
            "false" | "no" | "off" | "n" | "0" => Some(false),
            _ => None,
        }
    }

    /// Texts of a list, or of a single text, as the daemon takes both.
    pub fn texts(&self) -> Vec<&str> {
        match self {
            Self::List(items) => items.iter().filter_map(Self::text).collect(),
            Self::Scalar { .. } => self.text().into_iter().collect(),
            Self::Map(_) => Vec::new(),
        }
    }

    /// Entries of a map; none for anything else.
    pub fn entries(&self) -> &[(String, Node)] {
        match self {
            Self::Map(entries) => entries,
            Self::Scalar { .. } | Self::List(_) => &[],
        }
    }

    /// Whether it says the same, whatever the order of keys.
    pub fn means(&self, other: &Self) -> bool {
        self.differences(other).is_empty()
    }

    /// Where `other` differs, one sentence each, without any value: they may be secrets. At most 20.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut out = Vec::new();
        self.compare(other, &Path(Vec::new()), &mut out);
        out.truncate(20);
        out
    }

    fn compare(&self, other: &Self, at: &Path, out: &mut Vec<String>) {
        let mut say =
            |what: &str| out.push(if at.0.is_empty() { what.to_owned() } else { format!("{at}: {what}") });
        match (self, other) {
            (Self::Map(mine), Self::Map(_)) => {
                for (key, value) in mine {
                    match other.get(key) {
                        Some(theirs) => value.compare(theirs, &at.join(key), out),
                        None => out.push(format!("{}: would be missing", at.join(key))),
                    }
                }
                for (key, _) in other.entries() {
                    if self.get(key).is_none() {
                        out.push(format!("{}: would be there", at.join(key)));
                    }
                }
            }
            (Self::List(mine), Self::List(theirs)) if mine.len() == theirs.len() => {
                for (number, (mine, theirs)) in mine.iter().zip(theirs).enumerate() {
                    mine.compare(theirs, &at.join(&number.to_string()), out);
                }
            }
            (Self::List(mine), Self::List(theirs)) => {
                say(&format!("would have {} items, not {}", theirs.len(), mine.len()));
            }
            (Self::Scalar { .. }, Self::Scalar { .. }) if self.is_null() && other.is_null() => {}
            (Self::Scalar { .. }, Self::Scalar { .. }) if self == other => {}
            _ => say("would have another value"),
        }
    }

    fn size(&self) -> usize {
        1 + match self {
            Self::Scalar { text, .. } => text.len() / 64,
            Self::List(items) => items.iter().map(Self::size).sum(),
            Self::Map(entries) => entries.iter().map(|(_, value)| 1 + value.size()).sum(),
        }
    }

    fn depth(&self) -> usize {
        match self {
            Self::Scalar { .. } => 0,
            Self::List(items) => 1 + items.iter().map(Self::depth).max().unwrap_or(0),
            Self::Map(entries) => 1 + entries.iter().map(|(_, value)| value.depth()).max().unwrap_or(0),
        }
    }
}

/// Reads `text`; of several documents the first. An empty text is an empty map.
///
/// # Errors
/// Every [`TreeError`].
pub fn parse(text: &str) -> Result<Node, TreeError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > MAX_BYTES {
        return Err(TreeError::TooBig { what: format!("{MAX_BYTES} bytes") });
    }
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| TreeError::Syntax {
            line: error.marker().line(),
            column: error.marker().col() + 1,
            detail: error.info().to_owned(),
        })?;
        builder.event(event, span.start.line())?;
    }
    match builder.root {
        None => Ok(Node::Map(Vec::new())),
        Some(root) if root.is_null() => Ok(Node::Map(Vec::new())),
        Some(root @ Node::Map(_)) => Ok(root),
        Some(Node::Scalar { .. } | Node::List(_)) => Err(TreeError::NotAMapping),
    }
}

/// A collection that is still being filled.
struct Open {
    anchor: usize,
    items: Vec<Node>,
    is_map: bool,
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    root: Option<Node>,
    documents: usize,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, line: usize) -> Result<(), TreeError> {
        match event {
            Event::DocumentStart(_) => self.documents += 1,
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && tag.is_none();
                let node = Node::Scalar { text: text.into_owned(), plain };
                self.count(node.size())?;
                self.add(anchor, node);
            }
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned().ok_or(TreeError::SelfReference { line })?;
                self.count(node.size())?;
                self.room(node.depth())?;
                self.add(0, node);
            }
            Event::SequenceStart(anchor, _) => self.begin(anchor, false)?,
            Event::MappingStart(anchor, _) => self.begin(anchor, true)?,
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn count(&mut self, more: usize) -> Result<(), TreeError> {
        self.nodes += more;
        let over = self.nodes > MAX_NODES;
        if over { Err(TreeError::TooBig { what: format!("{MAX_NODES} values") }) } else { Ok(()) }
    }

    fn room(&self, more: usize) -> Result<(), TreeError> {
        let over = self.open.len() + more > MAX_DEPTH;
        if over { Err(TreeError::TooBig { what: format!("{MAX_DEPTH} levels") }) } else { Ok(()) }
    }

    fn begin(&mut self, anchor: usize, is_map: bool) -> Result<(), TreeError> {
        self.room(1)?;
        self.count(1)?;
        self.open.push(Open { anchor, items: Vec::new(), is_map });
        Ok(())
    }

    fn end(&mut self) {
        let open = self.open.pop().expect("the parser ends only what it began");
        let node = if open.is_map { map_of(open.items) } else { Node::List(open.items) };
        self.add(open.anchor, node);
    }

    fn add(&mut self, anchor: usize, node: Node) {
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            Some(open) => open.items.push(node),
            None if self.documents <= 1 => self.root = Some(node),
            None => {}
        }
    }
}

/// Pairs keys with values; the last of equal keys counts, merged ones fill what is not there.
fn map_of(items: Vec<Node>) -> Node {
    let mut entries: Vec<(String, Node)> = Vec::new();
    let mut merged = Vec::new();
    let mut items = items.into_iter();
    while let (Some(key), Some(value)) = (items.next(), items.next()) {
        match key {
            Node::Scalar { text, plain: true } if text == "<<" => merged.push(value),
            Node::Scalar { text, .. } => match entries.iter_mut().find(|(name, _)| *name == text) {
                Some(entry) => entry.1 = value,
                None => entries.push((text, value)),
            },
            // Keys that are lists or maps mean nothing to anyone who reads this file.
            Node::List(_) | Node::Map(_) => {}
        }
    }
    for source in merged {
        let sources = if let Node::List(items) = source { items } else { vec![source] };
        for (key, value) in sources.into_iter().flat_map(|source| source.entries().to_vec()) {
            if !entries.iter().any(|(name, _)| *name == key) {
                entries.push((key, value));
            }
        }
    }
    Node::Map(entries)
}
