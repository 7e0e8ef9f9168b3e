//! JSON values as Python prints them: what the reference shows for a content that is neither text
//! nor a list of parts.
//!
//! Pure.

use serde_json::Value;
use std::fmt::Write as _;

/// The text of `str(value)` in Python.
pub(super) fn repr(value: &Value) -> String {
    if let Value::String(text) = value {
        return text.clone();
    }
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Number(number) => out.push_str(&number.to_string()),
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (index, (key, member)) in members.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_string(out, key);
                out.push_str(": ");
                write_value(out, member);
            }
            out.push('}');
        }
    }
}

fn write_string(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            c if c.is_control() => {
                write!(out, "\\x{:02x}", u32::from(c)).expect("writing to a String cannot fail");
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_print_as_python_prints_them() {
        let value =
            json!({"type": "x", "ok": true, "n": [1, 2.5, null], "s": "it's", "q": "\"'", "l": "a\nb\u{1}"});
        assert_eq!(
            repr(&value),
            r#"{'type': 'x', 'ok': True, 'n': [1, 2.5, None], 's': "it's", 'q': '"\'', 'l': 'a\nb\x01'}"#
        );
    }

    #[test]
    fn a_bare_string_has_no_quotes() {
        assert_eq!(repr(&json!("部署")), "部署");
    }
}
