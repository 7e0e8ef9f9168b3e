//! Arguments of a tool as they are typed: JSON, `key=value` by the tool's schema, `key:=JSON`, files.
//!
//! Pure: files are read through a function.

use crate::failure::Failure;
use serde_json::{Map, Value};
use std::io;

/// How a file is read; `-` is stdin.
pub(super) type Reader<'a> = &'a dyn Fn(&str) -> io::Result<String>;

/// Whether a word can only be (a part of) the arguments.
pub(super) fn is_argument(word: &str) -> bool {
    word == "-" || word.trim_start().starts_with(['{', '[', '"', '@']) || word.contains('=')
}

/// Whether the tool's schema is needed to read these words.
pub(super) fn needs_schema(words: &[String]) -> bool {
    words.iter().any(|word| pair(word).is_some_and(|(_, _, kind)| kind == Kind::BySchema))
}

/// The arguments as one JSON object, or an empty text where there are none. A single object stays as it
/// was typed; of several words later ones win.
///
/// # Errors
/// [`Failure::Usage`] that says what is wrong with which word; [`Failure::Refused`] for a file that cannot
/// be read.
pub(super) fn build(words: &[String], schema: &Value, read: Reader<'_>) -> Result<String, Failure> {
    if let [only] = words
        && pair(only).is_none()
    {
        let text = whole(only, read)?;
        object(&text)?;
        return Ok(text);
    }
    let mut all = Map::new();
    let mut given: Vec<&str> = Vec::new();
    for word in words {
        let Some((key, value, kind)) = pair(word) else {
            all.extend(object(&whole(word, read)?)?);
            continue;
        };
        let member = match kind {
            Kind::Json => serde_json::from_str(value)
                .map_err(|error| usage(format!("`{key}:=` wants JSON: {error}")))?,
            Kind::BySchema => {
                let text = match value.strip_prefix('@') {
                    Some(file) => from_file(file, read)?,
                    None => value.to_owned(),
                };
                by_schema(key, &text, &schema["properties"][key])?
            }
        };
        // The same key again makes a list longer where there is one.
        let repeated = given.contains(&key);
        match (all.get_mut(key), member) {
            (Some(Value::Array(list)), Value::Array(more)) if repeated => list.extend(more),
            (_, member) => {
                all.insert(key.to_owned(), member);
            }
        }
        given.push(key);
    }
    Ok(if words.is_empty() { String::new() } else { Value::Object(all).to_string() })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    BySchema,
    Json,
}

/// `key=value` or `key:=JSON`; `None` for JSON, `@file` and `-`.
fn pair(word: &str) -> Option<(&str, &str, Kind)> {
    if word.trim_start().starts_with(['{', '[', '"', '@', '=']) {
        return None;
    }
    let (key, value) = word.split_once('=')?;
    Some(match key.strip_suffix(':') {
        Some(key) => (key, value, Kind::Json),
        None => (key, value, Kind::BySchema),
    })
}

fn whole(word: &str, read: Reader<'_>) -> Result<String, Failure> {
    match (word, word.strip_prefix('@')) {
        ("-", _) => from_file("-", read),
        (_, Some(file)) => from_file(file, read),
        (text, None) => Ok(text.to_owned()),
    }
}

fn from_file(file: &str, read: Reader<'_>) -> Result<String, Failure> {
    read(file).map_err(|error| Failure::refused(format!("{file}: {error}")))
}

fn object(text: &str) -> Result<Map<String, Value>, Failure> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err(usage("arguments are not a JSON object".to_owned())),
        Err(error) => Err(usage(format!("arguments are not JSON: {error}"))),
    }
}

/// `text` as what the schema of its key wants; what the schema does not say is JSON if it reads as JSON.
fn by_schema(key: &str, text: &str, schema: &Value) -> Result<Value, Failure> {
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ if schema["enum"].as_array().is_some_and(|all| all.iter().all(Value::is_string)) => vec!["string"],
        _ => Vec::new(),
    };
    if kinds.is_empty() {
        return Ok(serde_json::from_str(text).unwrap_or_else(|_| text.into()));
    }
    let read = |kind: &&str| -> Option<Value> {
        let json = serde_json::from_str::<Value>(text).ok();
        match *kind {
            "integer" => json.filter(|value| value.is_i64() || value.is_u64()),
            "number" => json.filter(Value::is_number),
            "boolean" => json.filter(Value::is_boolean),
            "null" => json.filter(Value::is_null),
            "object" => json.filter(Value::is_object),
            "array" => json.filter(Value::is_array).or_else(|| {
                // One item, as it would be typed alone.
                by_schema(key, text, &schema["items"]).ok().map(|item| Value::Array(vec![item]))
            }),
            _ => None,
        }
    };
    // Text is what everything can be read as, so it comes last.
    match (kinds.iter().find_map(read), kinds.contains(&"string")) {
        (Some(value), _) => Ok(value),
        (None, true) => Ok(text.into()),
        (None, false) => Err(usage(format!("`{key}` wants {}, and `{text}` is none", kinds.join(" or ")))),
    }
}

fn usage(message: String) -> Failure {
    let hint = "e.g. '{\"path\": \"/tmp\"}', path=/tmp, depth:=3, or @arguments.json".to_owned();
    Failure::Usage { message, hint }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn read(file: &str) -> io::Result<String> {
        match file {
            "args.json" => Ok(r#"{"a": 1, "b": 2}"#.to_owned()),
            "-" => Ok(r#"{"from":"stdin"}"#.to_owned()),
            "note.txt" => Ok("two\nlines".to_owned()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn built(words: &[&str]) -> Result<Value, Failure> {
        let schema = json!({"properties": {
            "path": {"type": "string"}, "depth": {"type": "integer"}, "ratio": {"type": ["number", "null"]},
            "deep": {"type": "boolean"}, "tags": {"type": "array", "items": {"type": "string"}},
            "mode": {"enum": ["1", "2"]}, "where": {"type": "object"},
        }});
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        build(&words, &schema, &read).map(|text| serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    #[test]
    fn values_become_what_the_schema_wants() {
        let words =
            ["path=12", "depth=12", "ratio=0.5", "deep=true", "tags=a", "tags=b", "mode=1", "where={}"];
        let wanted = json!({"path": "12", "depth": 12, "ratio": 0.5, "deep": true, "tags": ["a", "b"],
            "mode": "1", "where": {}});
        assert_eq!(built(&words).unwrap(), wanted);
        assert_eq!(built(&["odd=12", "other=x=y"]).unwrap(), json!({"odd": 12, "other": "x=y"}));
        assert_eq!(built(&["path:=[1]"]).unwrap(), json!({"path": [1]}), "as it is typed");
        for wrong in ["depth=x", "depth=1.5", "deep=yes", "path:=x", "where=1"] {
            assert_eq!(built(&[wrong]).unwrap_err().code(), 2, "{wrong}");
        }
    }

    #[test]
    fn files_and_later_words_count() {
        assert_eq!(built(&["@args.json", "b=3"]).unwrap(), json!({"a": 1, "b": 3}));
        assert_eq!(built(&["-"]).unwrap(), json!({"from": "stdin"}));
        assert_eq!(built(&["path=@note.txt"]).unwrap(), json!({"path": "two\nlines"}));
        assert_eq!(built(&["@missing"]).unwrap_err().code(), 1);
        assert_eq!(built(&["[1]"]).unwrap_err().code(), 2);
    }

    #[test]
    fn one_object_stays_as_it_was_typed() {
        let text = r#"{"n": 123456789012345678901234567890, "a":1e400}"#.to_owned();
        assert_eq!(build(std::slice::from_ref(&text), &Value::Null, &read).unwrap(), text);
    }

    proptest! {
        #[test]
        fn any_text_reaches_a_member_that_wants_text(text in "[^@].*|") {
            let schema = json!({"properties": {"path": {"type": "string"}}});
            let built = build(&[format!("path={text}")], &schema, &read).unwrap();
            prop_assert_eq!(serde_json::from_str::<Value>(&built).unwrap(), json!({"path": text}));
        }
    }
}
