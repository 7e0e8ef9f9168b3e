//! JSON with comments: read it, and add, replace or remove one member without touching another byte.
//!
//! Pure. Promise: an edit changes the bytes of that member and of its comma and nothing else: comments, order,
//! line ends and indentation stay; what was added is indented like its neighbours. May not touch: files.

use super::doc::{DocError, Edited};
use jsonc_parser::ast::{Object, ObjectProp, Value as Node};
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde_json::Value;

/// JSON as clients write it, with comments and trailing commas; nothing further of JSON5.
const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// The document as a value; an empty text is an empty object.
pub(super) fn parse(text: &str) -> Result<Value, DocError> {
    Ok(tree(text)?.map_or_else(|| Value::Object(serde_json::Map::new()), Value::from))
}

fn tree(text: &str) -> Result<Option<Node<'_>>, DocError> {
    let parsed = parse_to_ast(text, &CollectOptions::default(), &OPTIONS).map_err(|error| {
        DocError::Malformed { line: error.line_display(), what: error.kind().to_string().to_lowercase() }
    })?;
    Ok(parsed.value)
}

/// Adds `name` to the object at `path`, making what is missing of the path.
pub(super) fn insert(text: &str, path: &[&str], name: &str, value: &Value) -> Result<Edited, DocError> {
    let style = Style::of(text);
    let Some(root) = tree(text)? else {
        let whole = path.iter().rev().fold(single(name, value.clone()), |inner, key| single(key, inner));
        // Whatever stands in a text without a value is white space and comments.
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { style.line };
        return Ok(Edited(format!("{text}{gap}{}{}", style.render(&whole, ""), style.line)));
    };
    let (object, rest) = descend(&root, path)?;
    let (name, value) = match rest.split_first() {
        None => (name, value.clone()),
        Some((first, deeper)) => {
            (*first, deeper.iter().rev().fold(single(name, value.clone()), |inner, key| single(key, inner)))
        }
    };
    Ok(Edited(add(text, object, name, &value, &style)))
}

/// Gives the member `name` of the object at `path` another value.
pub(super) fn replace(text: &str, path: &[&str], name: &str, value: &Value) -> Result<Edited, DocError> {
    let root = tree(text)?.ok_or(DocError::Missing)?;
    let (object, rest) = descend(&root, path)?;
    let at = position(object, name).filter(|_| rest.is_empty()).ok_or(DocError::Missing)?;
    let prop = &object.properties[at];
    let old = prop.value.range();
    let style = Style::of(text);
    let is_block = text[object.range.start..object.range.end].contains('\n');
    let new =
        if is_block { style.render(value, indent_of(text, prop.range.start)) } else { Style::inline(value) };
    Ok(Edited(format!("{}{new}{}", &text[..old.start], &text[old.end..])))
}

/// Takes the member `name` out of the object at `path`.
pub(super) fn remove(text: &str, path: &[&str], name: &str) -> Result<Edited, DocError> {
    let root = tree(text)?.ok_or(DocError::Missing)?;
    let (object, rest) = descend(&root, path)?;
    let at = position(object, name).filter(|_| rest.is_empty()).ok_or(DocError::Missing)?;
    Ok(Edited(take(text, object, at)))
}

fn single(key: &str, value: Value) -> Value {
    Value::Object(std::iter::once((key.to_owned(), value)).collect())
}

/// The deepest object of `path` that exists, and the keys that are missing below it.
fn descend<'n, 'p, 't>(
    root: &'n Node<'t>,
    path: &'p [&'p str],
) -> Result<(&'n Object<'t>, &'p [&'p str]), DocError> {
    let mut object = root.as_object().ok_or(DocError::NotMap { key: String::new() })?;
    for (depth, key) in path.iter().enumerate() {
        let Some(at) = position(object, key) else { return Ok((object, &path[depth..])) };
        object = object.properties[at]
            .value
            .as_object()
            .ok_or_else(|| DocError::NotMap { key: (*key).to_owned() })?;
    }
    Ok((object, &[]))
}

/// The member that counts: of two with one name the last.
fn position(object: &Object<'_>, name: &str) -> Option<usize> {
    object.properties.iter().rposition(|prop| prop.name.as_str() == name)
}

fn add(text: &str, object: &Object<'_>, name: &str, value: &Value, style: &Style) -> String {
    let (open, close) = (object.range.start + 1, object.range.end - 1);
    let is_block = text[open..close].contains('\n');
    let key = Value::from(name);
    let Some(last) = object.properties.last() else {
        let outer = indent_of(text, object.range.start);
        let inner = format!("{outer}{}", style.unit);
        let rest = &text[open..close];
        let at = open + rest.trim_end().len();
        let end =
            if text[at..close].contains('\n') { String::new() } else { format!("{}{outer}", style.line) };
        let member = format!("{}{inner}{key}: {}{end}", style.line, style.render(value, &inner));
        return format!(
            "{}{member}{}",
            &text[..at],
            if end.is_empty() { &text[at..] } else { &text[close..] }
        );
    };
    let after = last.range.end;
    let comma = comma_in(text, after, close);
    if !is_block {
        let gap = if text[open..close].contains(": ") || text[open..close].contains(", ") { " " } else { "" };
        let colon = if gap.is_empty() { ":" } else { ": " };
        let value = if gap.is_empty() { value.to_string() } else { Style::inline(value) };
        let at = comma.map_or(after, |comma| comma + 1);
        let first = if comma.is_some() { "" } else { "," };
        let last = if comma.is_some() { "," } else { "" };
        return format!("{}{first}{gap}{key}{colon}{value}{last}{}", &text[..at], &text[at..]);
    }
    let indent = member_indent(text, object)
        .unwrap_or_else(|| format!("{}{}", indent_of(text, object.range.start), style.unit));
    let at = after + text[after..close].trim_end().len();
    let member = format!("{}{indent}{key}: {}", style.line, style.render(value, &indent));
    match comma {
        Some(_) => format!("{}{member},{}", &text[..at], &text[at..]),
        None => format!("{},{}{member}{}", &text[..after], &text[after..at], &text[at..]),
    }
}

fn take(text: &str, object: &Object<'_>, at: usize) -> String {
    let (open, close) = (object.range.start + 1, object.range.end - 1);
    let prop: &ObjectProp<'_> = &object.properties[at];
    let next = object.properties.get(at + 1).map_or(close, |next| next.range.start);
    let own_comma = comma_in(text, prop.range.end, next);
    let end = own_comma.map_or(prop.range.end, |comma| comma + 1);
    // A line that goes on with something else keeps its beginning.
    let goes_on = !text[end..next.max(end)].contains('\n') && is_first_of_line(text, prop.range.start);
    let (start, end) = match goes_on {
        true => (prop.range.start, next.max(end) - (text[end..next.max(end)].trim_start().len())),
        false => (gap_before(text, prop.range.start), end),
    };
    // The comma is cut out of what stays where it is no longer between two members; a comment between
    // the member and its comma stays too.
    let between = own_comma.map_or("", |comma| &text[prop.range.end..comma]);
    let before = match (at.checked_sub(1).map(|before| &object.properties[before]), own_comma) {
        (Some(before), None) => match comma_in(text, before.range.end, start) {
            Some(comma) => format!("{}{}", &text[..comma], &text[comma + 1..start]),
            None => text[..start].to_owned(),
        },
        _ => text[..start].to_owned(),
    };
    let is_only = object.properties.len() == 1 && text[open..start].trim().is_empty();
    let after = if is_only && between.trim().is_empty() && text[end..close].trim().is_empty() {
        &text[close..]
    } else {
        &text[end..]
    };
    let before = if is_only && after.len() == text.len() - close { text[..open].to_owned() } else { before };
    let mut kept = between.trim_end().to_owned();
    if kept.trim_start().starts_with("//") {
        kept.push('\n');
    }
    format!("{before}{kept}{after}")
}

fn is_first_of_line(text: &str, at: usize) -> bool {
    text[..at].trim_end_matches([' ', '\t']).ends_with('\n')
}

/// Where the white space before a member begins: with its line break where it has a line of its own.
fn gap_before(text: &str, start: usize) -> usize {
    let line = text[..start].trim_end_matches([' ', '\t']);
    let broken = line.strip_suffix('\n').map(|rest| rest.strip_suffix('\r').unwrap_or(rest));
    broken.unwrap_or(line).len()
}

/// Position of the comma between `from` and `to`, where only comments and white space surround it.
fn comma_in(text: &str, from: usize, to: usize) -> Option<usize> {
    let mut at = from;
    while at < to {
        let rest = &text[at..to];
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with(',') {
            return Some(at);
        } else {
            rest.chars().next().map_or(1, char::len_utf8)
        };
        at += skip;
    }
    None
}

/// White space at the beginning of the line of `at`.
fn indent_of(text: &str, at: usize) -> &str {
    let line = text[..at].rfind('\n').map_or(0, |before| before + 1);
    let rest = &text[line..];
    &rest[..rest.len() - rest.trim_start_matches([' ', '\t']).len()]
}

/// How the members of `object` are indented, if one has a line of its own.
fn member_indent(text: &str, object: &Object<'_>) -> Option<String> {
    object.properties.iter().rev().find_map(|prop| {
        let line = text[..prop.range.start].rfind('\n').map_or(0, |before| before + 1);
        let before = &text[line..prop.range.start];
        before.chars().all(|c| c == ' ' || c == '\t').then(|| before.to_owned())
    })
}

/// Line end and indentation of a document.
struct Style {
    line: &'static str,
    unit: String,
}

impl Style {
    fn of(text: &str) -> Self {
        let line = if text.contains("\r\n") { "\r\n" } else { "\n" };
        // The least indented line that is indented at all; comments of the `/** *` kind would mislead.
        let unit = text
            .lines()
            .filter(|line| line.trim_start().starts_with('"'))
            .map(|line| &line[..line.len() - line.trim_start_matches([' ', '\t']).len()])
            .filter(|indent| !indent.is_empty())
            .min_by_key(|indent| indent.len());
        Self { line, unit: unit.unwrap_or("  ").to_owned() }
    }

    /// `value` over several lines; lists of plain values stay on one.
    fn render(&self, value: &Value, indent: &str) -> String {
        match value {
            Value::Object(map) if !map.is_empty() => {
                let inner = format!("{indent}{}", self.unit);
                let members: Vec<String> = map
                    .iter()
                    .map(|(key, value)| {
                        format!("{inner}{}: {}", Value::from(key.as_str()), self.render(value, &inner))
                    })
                    .collect();
                let between = format!(",{}", self.line);
                format!("{{{line}{}{line}{indent}}}", members.join(&between), line = self.line)
            }
            other => Self::inline(other),
        }
    }

    /// `value` on one line, with spaces where people put them.
    fn inline(value: &Value) -> String {
        match value {
            Value::Object(map) if !map.is_empty() => {
                let members: Vec<String> = map
                    .iter()
                    .map(|(key, value)| format!("{}: {}", Value::from(key.as_str()), Self::inline(value)))
                    .collect();
                format!("{{ {} }}", members.join(", "))
            }
            Value::Array(list) => {
                let items: Vec<String> = list.iter().map(Self::inline).collect();
                format!("[{}]", items.join(", "))
            }
            other => other.to_string(),
        }
    }
}

#[cfg(test)]
#[path = "jsonc_tests.rs"]
mod tests;
