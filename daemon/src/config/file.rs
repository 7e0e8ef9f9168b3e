//! The YAML file as written: a tree with the line of every key and each scalar in its spelling.
//!
//! Pure. Promise: [`parse`] ends in bounded time and memory for any text (depth, nodes and bytes
//! are limited, aliases are counted at their full size), knows nothing of what keys mean, and
//! keeps `010`, `yes` and `2026-01-01` as they are spelled. May not touch: files, variables.

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};
use std::collections::HashMap;

/// Largest accepted file in bytes.
pub const MAX_BYTES: usize = 4 << 20;
/// Most values in one file, each alias counted with everything below it.
pub const MAX_NODES: usize = 100_000;
/// Deepest nesting of maps and lists.
pub const MAX_DEPTH: usize = 64;

/// Why a file cannot be used at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// Not YAML.
    #[error("line {line}, column {column}: not valid YAML: {detail}")]
    Syntax {
        /// 1-based.
        line: u32,
        /// 1-based.
        column: u32,
        /// What the parser expected.
        detail: String,
    },
    /// Not text.
    #[error("line {line}: not valid UTF-8")]
    NotUtf8 {
        /// 1-based.
        line: u32,
    },
    /// Over [`MAX_BYTES`].
    #[error("{bytes} bytes, at most {MAX_BYTES} are read")]
    TooBig {
        /// Size of the file.
        bytes: usize,
    },
    /// Over [`MAX_NODES`].
    #[error("line {line}: more than {MAX_NODES} values, aliases included")]
    TooManyNodes {
        /// Where the limit was passed.
        line: u32,
    },
    /// Over [`MAX_DEPTH`].
    #[error("line {line}: nested more than {MAX_DEPTH} deep")]
    TooDeep {
        /// Where the limit was passed.
        line: u32,
    },
    /// An alias below its own anchor.
    #[error("line {line}: an alias refers to the value that contains it")]
    SelfReference {
        /// Line of the alias.
        line: u32,
    },
    /// The top of the file is a list or a single value.
    #[error("line {line}: the file is not a mapping of keys to values")]
    NotAMapping {
        /// Line of the first value.
        line: u32,
    },
}

impl FileError {
    /// 1-based line, 0 where the whole file is meant.
    pub fn line(&self) -> u32 {
        match self {
            Self::Syntax { line, .. }
            | Self::NotUtf8 { line }
            | Self::TooManyNodes { line }
            | Self::TooDeep { line }
            | Self::SelfReference { line }
            | Self::NotAMapping { line } => *line,
            Self::TooBig { .. } => 0,
        }
    }
}

/// A value and where it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// 1-based line.
    pub line: u32,
    /// What it is.
    pub kind: Kind,
}

/// The three shapes of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Text, in its spelling.
    Scalar(Scalar),
    /// `- a` or `[a]`.
    List(Vec<Node>),
    /// `a: b` or `{a: b}`.
    Map(Map),
}

/// A scalar as spelled; quotes are removed and escapes resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scalar {
    /// The text.
    pub text: String,
    /// Whether it can stand for null.
    pub style: Style,
}

/// How a scalar was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Bare: `~` and `null` mean null.
    Plain,
    /// Quoted, block or tagged `!!str`: text whatever it says.
    Quoted,
}

/// A mapping in the order of the file; of a repeated key the last is kept, as Python does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Map {
    /// Its entries.
    pub entries: Vec<Entry>,
    /// Keys written more than once.
    pub duplicates: Vec<Duplicate>,
    /// Lines of keys that are themselves lists or maps; they have no entry.
    pub odd_keys: Vec<u32>,
}

/// One `key: value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key as spelled.
    pub key: String,
    /// 1-based line of the key.
    pub line: u32,
    /// Its value.
    pub value: Node,
}

/// A key that is written twice in one mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Duplicate {
    /// The key.
    pub key: String,
    /// Line of the earlier one.
    pub first: u32,
    /// Line of the later one, which counts.
    pub second: u32,
}

/// A whole file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Document {
    /// The top level; empty for an empty file.
    pub root: Map,
    /// Things that were read around: line and what.
    pub remarks: Vec<(u32, Remark)>,
}

/// Something in the file that has no effect here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remark {
    /// A second `---` document; only the first is read.
    SecondDocument,
    /// A tag such as `!env`, which Python's loader refuses too.
    UnknownTag,
    /// `<<:` whose value is neither a mapping nor a list of mappings.
    BadMerge,
}

impl Node {
    /// Whether the value is null: nothing, `~` or `null`, unquoted.
    pub fn is_null(&self) -> bool {
        match &self.kind {
            Kind::Scalar(Scalar { text, style: Style::Plain }) => {
                matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL")
            }
            Kind::Scalar(_) | Kind::List(_) | Kind::Map(_) => false,
        }
    }

    /// What a person would call it, with article.
    pub fn describe(&self) -> &'static str {
        match &self.kind {
            _ if self.is_null() => "nothing",
            Kind::Scalar(_) => "a single value",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a mapping",
        }
    }

    fn size(&self) -> usize {
        match &self.kind {
            Kind::Scalar(scalar) => scalar_size(&scalar.text),
            Kind::List(items) => 1 + items.iter().map(Self::size).sum::<usize>(),
            Kind::Map(map) => 1 + map.entries.iter().map(|entry| 1 + entry.value.size()).sum::<usize>(),
        }
    }

    fn depth(&self) -> usize {
        match &self.kind {
            Kind::Scalar(_) => 0,
            Kind::List(items) => 1 + items.iter().map(Self::depth).max().unwrap_or(0),
            Kind::Map(map) => 1 + map.entries.iter().map(|entry| entry.value.depth()).max().unwrap_or(0),
        }
    }
}

impl Map {
    /// The entry of `key`.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }
}

/// Text of a file's bytes, without a byte order mark.
///
/// # Errors
/// [`FileError::NotUtf8`] and [`FileError::TooBig`].
pub fn decode(bytes: &[u8]) -> Result<&str, FileError> {
    if bytes.len() > MAX_BYTES {
        return Err(FileError::TooBig { bytes: bytes.len() });
    }
    let text = std::str::from_utf8(bytes).map_err(|err| {
        let line = bytes[..err.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
        FileError::NotUtf8 { line: line_number(line) }
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Reads `text` into a tree; an empty text is an empty mapping.
///
/// # Errors
/// Every [`FileError`] but `NotUtf8`; nothing of the file can be used then.
pub fn parse(text: &str) -> Result<Document, FileError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > MAX_BYTES {
        return Err(FileError::TooBig { bytes: text.len() });
    }
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|err| FileError::Syntax {
            line: line_number(err.marker().line()),
            column: line_number(err.marker().col() + 1),
            detail: err.info().to_owned(),
        })?;
        builder.event(event, span)?;
    }
    builder.finish()
}

fn line_number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Long texts count as several values, or aliases of one of them could fill the memory.
fn scalar_size(text: &str) -> usize {
    1 + text.len() / 64
}

/// A collection that is still being filled.
struct Open {
    anchor: usize,
    line: u32,
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
    remarks: Vec<(u32, Remark)>,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), FileError> {
        let line = line_number(span.start.line());
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents == 2 {
                    self.remarks.push((line, Remark::SecondDocument));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && !self.tag_says_text(tag.as_deref(), line);
                let style = if plain { Style::Plain } else { Style::Quoted };
                self.count(scalar_size(&text), line)?;
                let node = Node { line, kind: Kind::Scalar(Scalar { text: text.into_owned(), style }) };
                self.add(anchor, node);
            }
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned().ok_or(FileError::SelfReference { line })?;
                self.count(node.size(), line)?;
                if self.open.len() + node.depth() > MAX_DEPTH {
                    return Err(FileError::TooDeep { line });
                }
                self.add(0, Node { line, ..node });
            }
            Event::SequenceStart(anchor, tag) => {
                self.tag_says_text(tag.as_deref(), line);
                self.begin(anchor, line, false)?;
            }
            Event::MappingStart(anchor, tag) => {
                self.tag_says_text(tag.as_deref(), line);
                self.begin(anchor, line, true)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn tag_says_text(&mut self, tag: Option<&Tag>, line: u32) -> bool {
        let Some(tag) = tag else { return false };
        let core = tag.handle == "tag:yaml.org,2002:" || tag.handle == "!!";
        // A bare `!` is YAML's own way to say text.
        let bare = tag.handle.is_empty() && tag.suffix == "!";
        if !core && !bare {
            self.remarks.push((line, Remark::UnknownTag));
        }
        !core || tag.suffix == "str"
    }

    fn count(&mut self, more: usize, line: u32) -> Result<(), FileError> {
        self.nodes += more;
        if self.nodes > MAX_NODES { Err(FileError::TooManyNodes { line }) } else { Ok(()) }
    }

    fn begin(&mut self, anchor: usize, line: u32, is_map: bool) -> Result<(), FileError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(FileError::TooDeep { line });
        }
        self.count(1, line)?;
        self.open.push(Open { anchor, line, items: Vec::new(), is_map });
        Ok(())
    }

    fn end(&mut self) {
        let open = self.open.pop().expect("the parser ends only what it began");
        let kind = if open.is_map { Kind::Map(self.build_map(open.items)) } else { Kind::List(open.items) };
        self.add(open.anchor, Node { line: open.line, kind });
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

    /// Pairs keys with values, keeps the last of equal keys, then fills in merged ones.
    fn build_map(&mut self, items: Vec<Node>) -> Map {
        let mut map = Map::default();
        let mut merges = Vec::new();
        let mut seen: HashMap<String, usize> = HashMap::new();
        let mut items = items.into_iter();
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            let Kind::Scalar(scalar) = key.kind else {
                map.odd_keys.push(key.line);
                continue;
            };
            if scalar.style == Style::Plain && scalar.text == "<<" {
                merges.push((key.line, value));
                continue;
            }
            let entry = Entry { key: scalar.text, line: key.line, value };
            if let Some(&at) = seen.get(&entry.key) {
                let first = map.entries[at].line;
                map.duplicates.push(Duplicate { key: entry.key.clone(), first, second: entry.line });
                map.entries[at] = entry;
            } else {
                seen.insert(entry.key.clone(), map.entries.len());
                map.entries.push(entry);
            }
        }
        for (line, value) in merges {
            self.merge(&mut map, &mut seen, line, value);
        }
        map
    }

    fn merge(&mut self, map: &mut Map, seen: &mut HashMap<String, usize>, line: u32, value: Node) {
        let sources = match value.kind {
            Kind::List(items) => items,
            Kind::Scalar(_) | Kind::Map(_) => vec![value],
        };
        for source in sources {
            let Kind::Map(source) = source.kind else {
                self.remarks.push((line, Remark::BadMerge));
                continue;
            };
            for entry in source.entries {
                // Own keys and earlier sources win over later ones.
                if !seen.contains_key(&entry.key) {
                    seen.insert(entry.key.clone(), map.entries.len());
                    map.entries.push(entry);
                }
            }
        }
    }

    fn finish(self) -> Result<Document, FileError> {
        let remarks = self.remarks;
        match self.root {
            None => Ok(Document { root: Map::default(), remarks }),
            Some(node) if node.is_null() => Ok(Document { root: Map::default(), remarks }),
            Some(Node { kind: Kind::Map(root), .. }) => Ok(Document { root, remarks }),
            Some(Node { line, .. }) => Err(FileError::NotAMapping { line }),
        }
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
