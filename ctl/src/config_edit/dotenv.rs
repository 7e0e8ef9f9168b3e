//! Variables of `.env`: which are there, and a text with some of them set.
//!
//! Pure but for [`write()`]. Promise: every other line stays byte for byte; what is written reads back
//! as the same value by hermesd and by Python's reader; values show in no error. May not touch:
//! config.yaml.

use super::file::{self, FileError, Lock, Privacy, Written};
use std::path::Path;

/// A variable to be set. Its value is a secret and has no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name, a [`is_name`].
    pub name: String,
    /// Its value.
    pub value: String,
}

/// Why a variable cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum DotenvError {
    /// Not letters, digits and underscores, beginning with a letter or underscore.
    #[error("`{name}` cannot be the name of a variable")]
    Name {
        /// The name.
        name: String,
    },
    /// Readers would take a part of it as a reference to another variable.
    #[error("the value of `{name}` has `${{` or a NUL byte in it, which .env cannot hold")]
    Value {
        /// The variable.
        name: String,
    },
    /// A quote somewhere above is not closed, and would be by the new line.
    #[error("an open quote in .env would swallow a new line for `{name}`; close it first")]
    OpenQuote {
        /// The variable.
        name: String,
    },
    /// The file.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Whether `name` can be the name of a variable.
pub fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// `prefix`, the name of a server and `suffix` as the name of a variable: `MCP_MY_SERVER_API_KEY`.
pub fn name_for(server: &str, suffix: &str) -> String {
    let safe = |text: &str| -> String {
        let upper =
            text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
        upper.collect()
    };
    format!("MCP_{}_{}", safe(server), safe(suffix))
}

/// Names that a `.env` text sets.
pub fn names(text: &str) -> Vec<&str> {
    assignments(text).map(|(_, name)| name).collect()
}

/// Lines that assign, with their number; lines inside quoted values of several lines are none.
fn assignments(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut open: Option<char> = None;
    text.split_inclusive('\n').enumerate().filter_map(move |(number, line)| {
        if let Some(quote) = open {
            open = (!closes(line, quote)).then_some(quote);
            return None;
        }
        let (name, rest) = assignment(line)?;
        if let Some(quote @ ('"' | '\'')) = rest.chars().next()
            && !closes(&rest[1..], quote)
            // A quote that never closes costs readers one line only.
            && later_closes(text, number, quote)
        {
            open = Some(quote);
        }
        Some((number, name))
    })
}

fn later_closes(text: &str, number: usize, quote: char) -> bool {
    text.split_inclusive('\n').skip(number + 1).any(|line| closes(line, quote))
}

fn closes(text: &str, quote: char) -> bool {
    let mut escaped = false;
    text.chars().any(|c| {
        let ends = !escaped && c == quote;
        escaped = !escaped && c == '\\';
        ends
    })
}

fn assignment(line: &str) -> Option<(&str, &str)> {
    let line = line.strip_prefix('\u{feff}').unwrap_or(line).trim_start();
    let line = line.strip_prefix("export").filter(|rest| rest.starts_with([' ', '\t'])).unwrap_or(line);
    let (name, rest) = line.split_once('=')?;
    let name = name.trim();
    is_name(name).then(|| (name, rest.trim_start_matches([' ', '\t'])))
}

/// `text` with `variables` set: the last line of a name is replaced, a new name goes to the end.
///
/// # Errors
/// [`DotenvError::Name`] and [`DotenvError::Value`].
pub fn set(text: &str, variables: &[Variable]) -> Result<String, DotenvError> {
    let mut now = text.to_owned();
    for variable in variables {
        now = set_one(&now, variable)?;
    }
    Ok(now)
}

fn set_one(text: &str, variable: &Variable) -> Result<String, DotenvError> {
    let Variable { name, value } = variable;
    if !is_name(name) {
        return Err(DotenvError::Name { name: name.clone() });
    }
    if value.contains("${") || value.contains('\0') {
        return Err(DotenvError::Value { name: name.clone() });
    }
    let wanted: Vec<&str> = {
        let mut names = names(text);
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
        names
    };
    let texts = [spelled(value, '"'), spelled(value, '\'')].map(|value| placed(text, name, &value));
    let faithful = |new: &String| names(new) == wanted;
    texts.into_iter().find(faithful).ok_or_else(|| DotenvError::OpenQuote { name: name.clone() })
}

/// `text` with the line that sets `name`, its value spelled as `value`.
fn placed(text: &str, name: &str, value: &str) -> String {
    let line = format!("{name}={value}");
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let Some((first, after)) = lines_of(text, name) else {
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { end };
        return format!("{text}{gap}{line}{end}");
    };
    let mut out = String::new();
    for (number, old) in text.split_inclusive('\n').enumerate() {
        if number == first {
            let tail = if number + 1 == after && !old.ends_with('\n') { "" } else { end };
            out.push_str(&line);
            out.push_str(tail);
        } else if number < first || number >= after {
            out.push_str(old);
        }
    }
    out
}

/// First and past-the-end line of the assignment of `name` that counts.
fn lines_of(text: &str, name: &str) -> Option<(usize, usize)> {
    let all: Vec<(usize, &str)> = assignments(text).collect();
    let (first, _) = *all.iter().rfind(|(_, other)| *other == name)?;
    let mut after = first + 1;
    let line = text.split_inclusive('\n').nth(first)?;
    if let Some((_, rest)) = assignment(line)
        && let Some(quote @ ('"' | '\'')) = rest.chars().next()
        && !closes(&rest[1..], quote)
        && later_closes(text, first, quote)
    {
        let mut lines = text.split_inclusive('\n').skip(after);
        while lines.next().is_some_and(|line| !closes(line, quote)) {
            after += 1;
        }
        after += 1;
    }
    Some((first, after))
}

/// Bare where that is safe, else in these quotes. Line breaks have an escape in double quotes only.
fn spelled(value: &str, quote: char) -> String {
    let bare = |b: u8| b.is_ascii_alphanumeric() || b"_-./:@+,%~".contains(&b);
    if !value.is_empty() && value.bytes().all(bare) {
        return value.to_owned();
    }
    let escaped = value.replace('\\', "\\\\").replace(quote, &format!("\\{quote}"));
    let escaped = if quote == '"' { escaped.replace('\n', "\\n").replace('\r', "\\r") } else { escaped };
    format!("{quote}{escaped}{quote}")
}

/// Sets `variables` in the file, which only its owner can read afterwards.
///
/// # Errors
/// Every [`DotenvError`]; the file is as it was then.
pub fn write(lock: &Lock, path: &Path, variables: &[Variable]) -> Result<Written, DotenvError> {
    file::rewrite(lock, path, Privacy::Private, |before| {
        let text = std::str::from_utf8(before).map_err(|_| FileError::NotText { path: path.to_owned() })?;
        Ok::<_, DotenvError>(set(text, variables)?.into_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set_to(text: &str, name: &str, value: &str) -> String {
        set(text, &[Variable { name: name.into(), value: value.into() }]).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn other_lines_stay_and_the_line_that_counts_is_replaced() {
        let text = "# keys\r\nA=1\r\nexport B = old # c\r\nA=2\r\n\r\nC='x\r\nA=3\r\n'\r\n";
        assert_eq!(set_to(text, "A", "n w"), text.replace("A=2", "A=\"n w\""));
        assert_eq!(set_to(text, "B", "b"), text.replace("export B = old # c", "B=b"));
        assert_eq!(set_to(text, "C", "c"), text.replace("C='x\r\nA=3\r\n'", "C=c"));
        assert_eq!(set_to(text, "D", "d"), format!("{text}D=d\r\n"));
        assert_eq!(set_to("A=1", "B", "2"), "A=1\nB=2\n");
        assert_eq!(set_to("A=1", "A", "2"), "A=2");
        assert_eq!(set_to("A='open\nB=1\n", "B", "2"), "A='open\nB=2\n");
    }

    #[test]
    fn names_and_values_that_the_file_cannot_hold_are_refused_without_the_value() {
        let refused = |name: &str, value: &str| {
            set("", &[Variable { name: name.into(), value: value.into() }]).map(drop).unwrap_err().to_string()
        };
        assert_eq!(refused("a.b", "x"), "`a.b` cannot be the name of a variable");
        assert!(!refused("A", "topsecret${X}").contains("topsecret"));
    }

    #[test]
    fn every_server_name_gives_a_variable_name() {
        assert_eq!(name_for("my-server.x", "api key"), "MCP_MY_SERVER_X_API_KEY");
        assert!(is_name(&name_for("張 1", "")));
    }

    proptest! {
        #[test]
        fn setting_twice_is_setting_once_and_keeps_the_others(
            text in "([A-C]=[a-z\"' #]{0,6}\n|#[a-z ]{0,5}\n|\n){0,6}",
            value in "[^\0$]{0,12}",
        ) {
            let variable = Variable { name: "NEW".into(), value: value.clone() };
            let Ok(once) = set(&text, &[variable]) else { return Ok(()) };
            prop_assert!(once.starts_with(&text), "{once}");
            prop_assert_eq!(set_to(&once, "NEW", &value), once);
        }
    }
}
