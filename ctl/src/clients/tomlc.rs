//! TOML: read it, and add or remove one table without touching another byte.
//!
//! Pure. Promise: a table is added as lines at the end, and removed as its own lines; comments above it stay.
//! Where servers are written as inline tables, the library that keeps formatting edits them. May not touch: files.

use super::doc::{DocError, Edited};
use serde_json::{Map, Value};
use std::ops::Range;
use toml_edit::{DocumentMut, Item, Key, TableLike};

/// The document as a value.
pub(super) fn parse(text: &str) -> Result<Value, DocError> {
    Ok(Value::Object(table(document(text)?.as_table())))
}

fn document(text: &str) -> Result<DocumentMut, DocError> {
    text.parse().map_err(|error: toml_edit::TomlError| {
        let line =
            error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        DocError::Malformed { line, what: error.message().lines().next().unwrap_or_default().to_lowercase() }
    })
}

fn table(table: &dyn TableLike) -> Map<String, Value> {
    table.iter().filter_map(|(key, item)| Some((key.to_owned(), item_value(item)?))).collect()
}

fn item_value(item: &Item) -> Option<Value> {
    match item {
        Item::None => None,
        Item::Value(found) => Some(value(found)),
        Item::Table(found) => Some(Value::Object(table(found))),
        Item::ArrayOfTables(list) => {
            Some(Value::Array(list.iter().map(|found| Value::Object(table(found))).collect()))
        }
    }
}

fn value(found: &toml_edit::Value) -> Value {
    match found {
        toml_edit::Value::String(text) => Value::from(text.value().as_str()),
        toml_edit::Value::Integer(number) => Value::from(*number.value()),
        toml_edit::Value::Float(number) => {
            // JSON has no infinity: as text it still compares.
            serde_json::Number::from_f64(*number.value())
                .map_or_else(|| Value::from(number.value().to_string()), Value::Number)
        }
        toml_edit::Value::Boolean(flag) => Value::from(*flag.value()),
        toml_edit::Value::Datetime(time) => Value::from(time.value().to_string()),
        toml_edit::Value::Array(list) => Value::Array(list.iter().map(value).collect()),
        toml_edit::Value::InlineTable(found) => Value::Object(table(found)),
    }
}

/// Adds the table `path.name`.
pub(super) fn insert(text: &str, path: &[&str], name: &str, entry: &Value) -> Result<Edited, DocError> {
    let entry = entry.as_object().ok_or(DocError::NotAsIntended)?;
    let mut document = document(text)?;
    if inline_parent(&mut document, path).is_some() {
        let parent = inline_parent(&mut document, path).ok_or(DocError::Missing)?;
        parent.insert(name, toml_edit::Value::InlineTable(inline(entry)?));
        return Ok(Edited(document.to_string()));
    }
    let line = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let header: Vec<String> =
        path.iter().copied().chain([name]).map(|key| Key::new(key).display_repr().into_owned()).collect();
    let mut added = String::new();
    if !text.is_empty() {
        added.push_str(&line.repeat(if text.ends_with('\n') { 1 } else { 2 }));
    }
    added.push_str(&format!("[{}]{line}", header.join(".")));
    for (key, entry) in entry {
        added.push_str(&format!("{} = {}{line}", Key::new(key).display_repr(), toml_value(entry)?));
    }
    Ok(Edited(format!("{text}{added}")))
}

/// Takes the table `path.name` out, with the tables below it.
pub(super) fn remove(text: &str, path: &[&str], name: &str) -> Result<Edited, DocError> {
    let wanted: Vec<&str> = path.iter().copied().chain([name]).collect();
    let own = own_lines(text, &wanted);
    if own.is_empty() {
        let mut document = document(text)?;
        let mut at: &mut dyn TableLike = document.as_table_mut();
        for key in path {
            at = at.get_mut(key).and_then(Item::as_table_like_mut).ok_or(DocError::Missing)?;
        }
        at.remove(name).ok_or(DocError::Missing)?;
        return Ok(Edited(document.to_string()));
    }
    let mut left = String::with_capacity(text.len());
    let mut at = 0;
    for range in own {
        left.push_str(&text[at..range.start]);
        at = range.end;
    }
    left.push_str(&text[at..]);
    Ok(Edited(left))
}

/// The parent of the servers where it is an inline table, into which no `[a.b]` may add.
fn inline_parent<'d>(document: &'d mut DocumentMut, path: &[&str]) -> Option<&'d mut toml_edit::InlineTable> {
    let mut item = document.as_item_mut();
    for key in path {
        item = item.as_table_like_mut()?.get_mut(key)?;
    }
    item.as_inline_table_mut()
}

fn inline(entry: &Map<String, Value>) -> Result<toml_edit::InlineTable, DocError> {
    entry.iter().map(|(key, value)| Ok((key.as_str(), toml_value(value)?))).collect()
}

fn toml_value(value: &Value) -> Result<toml_edit::Value, DocError> {
    Ok(match value {
        Value::String(text) => text.as_str().into(),
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.into(),
            (None, Some(float)) => float.into(),
            (None, None) => return Err(DocError::NotAsIntended),
        },
        Value::Array(list) => {
            let list: Result<toml_edit::Array, DocError> = list.iter().map(toml_value).collect();
            list?.into()
        }
        Value::Object(map) => inline(map)?.into(),
        Value::Null => return Err(DocError::NotAsIntended),
    })
}

/// The lines of `[wanted]` and of the tables below it: from each header to what belongs to the next one
/// (its comments and the empty lines above them stay).
fn own_lines(text: &str, wanted: &[&str]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut open: Option<usize> = None;
    // Where the comments and empty lines above the line that is looked at begin.
    let mut gap = 0;
    let mut string: Option<&str> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        let (start, end) = (at, at + line.len());
        at = end;
        if string.is_some() {
            string = still_open(line, string);
            gap = end;
            continue;
        }
        let plain = trimmed.is_empty() || trimmed.starts_with('#');
        if trimmed.starts_with('[') {
            let is_own = header(trimmed).is_some_and(|keys| {
                keys.len() >= wanted.len() && keys.iter().zip(wanted).all(|(key, want)| key == want)
            });
            match (open, is_own) {
                (Some(from), false) => {
                    found.push(from..gap);
                    open = None;
                }
                // The first one goes with the empty line above it, as it came.
                (None, true) => open = Some(start),
                (Some(_), true) | (None, false) => {}
            }
        } else if !plain {
            string = still_open(line, None);
        }
        if !plain {
            gap = end;
        }
    }
    if let Some(from) = open {
        found.push(from..gap.max(from));
    }
    for range in &mut found {
        let before = &text[..range.start];
        let blank = before.strip_suffix("\r\n").or_else(|| before.strip_suffix('\n')).unwrap_or(before);
        if blank.len() < before.len() && (blank.ends_with('\n') || blank.is_empty()) {
            range.start = blank.len();
        }
    }
    found
}

/// The keys of a table header.
fn header(line: &str) -> Option<Vec<String>> {
    let inner = line.strip_prefix('[')?;
    if inner.starts_with('[') {
        return None;
    }
    // A comment may follow, and a quoted key may hold a bracket: the longest prefix that is a key counts.
    inner.rmatch_indices(']').find_map(|(end, _)| {
        Some(Key::parse(&inner[..end]).ok()?.iter().map(|key| key.get().to_owned()).collect())
    })
}

/// Whether a multi-line string or list is open after `line`. Lists are followed only as far as strings: a
/// line that begins with `[` inside a list is no header, because no key fits it.
fn still_open<'t>(line: &str, open: Option<&'t str>) -> Option<&'t str> {
    let mut open = open;
    let mut rest = line;
    loop {
        match open {
            Some(mark) => match rest.find(mark) {
                Some(at) => {
                    rest = &rest[at + 3..];
                    open = None;
                }
                None => return open,
            },
            None => {
                let (at, mark) = ["\"\"\"", "'''"]
                    .into_iter()
                    .filter_map(|mark| Some((rest.find(mark)?, mark)))
                    .min_by_key(|(at, _)| *at)?;
                rest = &rest[at + 3..];
                open = Some(mark);
            }
        }
    }
}

#[cfg(test)]
#[path = "tomlc_tests.rs"]
mod tests;
