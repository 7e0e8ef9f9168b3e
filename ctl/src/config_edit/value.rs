//! What is written into config.yaml, and how it is spelled.
//!
//! Pure. Promise: what [`Value::block`] writes reads back as [`Value::node`] in every YAML version:
//! a text that any reader could take for something else is quoted. May not touch: files.

use super::tree::Node;
use std::fmt::Write;

/// Longest list that is kept on one line, in characters.
const ONE_LINE: usize = 72;

/// A value to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Number(i64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Value>),
    /// Keys and values in this order.
    Map(Vec<(String, Value)>),
}

impl Value {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A list of texts.
    pub fn texts<S: Into<String>>(texts: impl IntoIterator<Item = S>) -> Self {
        Self::List(texts.into_iter().map(Self::text).collect())
    }

    /// What it is when it was read again.
    pub fn node(&self) -> Node {
        let bare = |text: String| Node::Scalar { text, plain: true };
        match self {
            Self::Bool(value) => bare(value.to_string()),
            Self::Number(value) => bare(value.to_string()),
            Self::Text(text) => Node::Scalar { text: text.clone(), plain: is_plain(text) },
            Self::List(items) => Node::List(items.iter().map(Self::node).collect()),
            Self::Map(entries) => {
                Node::Map(entries.iter().map(|(key, value)| (key.clone(), value.node())).collect())
            }
        }
    }

    /// As the lines of a file of its own, each ended.
    pub fn block(&self) -> String {
        let mut out = String::new();
        match self {
            Self::Map(entries) if !entries.is_empty() => entries_at(entries, 0, &mut out),
            Self::List(items) if !self.fits() => items_at(items, 0, &mut out),
            Self::Bool(_) | Self::Number(_) | Self::Text(_) | Self::List(_) | Self::Map(_) => {
                out = format!("{}\n", self.flow());
            }
        }
        out
    }

    /// On one line.
    fn flow(&self) -> String {
        match self {
            Self::Bool(value) => value.to_string(),
            Self::Number(value) => value.to_string(),
            Self::Text(text) => spelled(text),
            Self::List(items) => format!("[{}]", items.iter().map(Self::flow).collect::<Vec<_>>().join(", ")),
            Self::Map(entries) => {
                let entries =
                    entries.iter().map(|(key, value)| format!("{}: {}", spelled(key), value.flow()));
                format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
            }
        }
    }

    fn fits(&self) -> bool {
        match self {
            Self::List(items) => {
                let flat = items.iter().all(|item| !matches!(item, Self::List(_) | Self::Map(_)));
                flat && self.flow().chars().count() <= ONE_LINE
            }
            Self::Map(entries) => entries.is_empty(),
            Self::Bool(_) | Self::Number(_) | Self::Text(_) => true,
        }
    }
}

fn entries_at(entries: &[(String, Value)], indent: usize, out: &mut String) {
    for (key, value) in entries {
        let _ = write!(out, "{:indent$}{}:", "", spelled(key));
        below(value, indent, out);
    }
}

fn items_at(items: &[Value], indent: usize, out: &mut String) {
    for item in items {
        let _ = write!(out, "{:indent$}-", "");
        below(item, indent, out);
    }
}

/// What comes after `key:` or `-`.
fn below(value: &Value, indent: usize, out: &mut String) {
    match value {
        _ if value.fits() => {
            let _ = writeln!(out, " {}", value.flow());
        }
        Value::Map(entries) => {
            out.push('\n');
            entries_at(entries, indent + 2, out);
        }
        Value::List(items) => {
            out.push('\n');
            items_at(items, indent + 2, out);
        }
        Value::Bool(_) | Value::Number(_) | Value::Text(_) => unreachable!("scalars fit on a line"),
    }
}

/// Bare or in double quotes.
fn spelled(text: &str) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control()
                || matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}') =>
            {
                let _ = write!(out, "\\U{:08X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Whether no YAML reader could take the bare text for anything but itself.
fn is_plain(text: &str) -> bool {
    let word = text.to_ascii_lowercase();
    let means_more =
        matches!(word.as_str(), "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n" | "null");
    !means_more
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._@+-".contains(&b))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::config_edit::tree;
    use proptest::prelude::*;

    /// Texts that readers stumble over, and any others.
    pub(in crate::config_edit) fn texts() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-z]{1,8}",
            "\\PC{0,12}",
            any::<String>().prop_map(|text| text.replace('\0', "")),
            prop::sample::select(vec![
                "no",
                "~",
                "",
                "010",
                "1e3",
                "12:30:45",
                "- a",
                "a: b",
                "a #b",
                "#c",
                "${VAR}",
                "%TAG",
                "@x",
                "`x`",
                "[a",
                "{b",
                "*a",
                "&a",
                "!t",
                "|",
                ">",
                "a\nb\n",
                "  lead",
                "trail  ",
                "'q'",
                "\"d\"",
                "back\\slash",
                "\u{feff}bom",
                "=",
                "2026-01-01",
                "-y",
                "---",
                "...",
                "\u{85}",
                "é",
            ])
            .prop_map(str::to_owned),
        ]
    }

    pub(in crate::config_edit) fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::Number),
            texts().prop_map(Value::Text)
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::List),
                prop::collection::btree_map(texts(), inner, 0..4)
                    .prop_map(|map| Value::Map(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(value in values()) {
            let file = Value::Map(vec![("top".to_owned(), value)]);
            let text = file.block();
            prop_assert_eq!(tree::parse(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?, file.node());
        }
    }

    #[test]
    fn an_entry_looks_as_a_person_would_write_it() {
        let entry = Value::Map(vec![
            ("command".to_owned(), Value::text("npx")),
            ("args".to_owned(), Value::texts(["-y", "@scope/server", "/data"])),
            ("env".to_owned(), Value::Map(vec![("TOKEN".to_owned(), Value::text("${TOKEN}"))])),
            ("enabled".to_owned(), Value::Bool(false)),
        ]);
        let wanted = "command: npx\nargs: [\"-y\", \"@scope/server\", /data]\nenv:\n  TOKEN: \"${TOKEN}\"\nenabled: false\n";
        assert_eq!(entry.block(), wanted);
    }
}
