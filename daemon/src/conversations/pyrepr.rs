//! JSON values as Python prints them: what the reference shows for a content that is neither text
//! nor a list of parts.
//!
//! Pure.

use serde_json::{Number, Value};
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
        Value::Number(number) => write_number(out, number),
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

/// A whole number as it stands, of whatever length; others as Python's shortest form of the float.
fn write_number(out: &mut String, number: &Number) {
    let text = number.to_string();
    let whole = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    match text.parse::<f64>() {
        Ok(float) if !whole => write_float(out, float),
        _ => out.push_str(&text),
    }
}

/// Plain digits for exponents from -4 to 15, else `1e+22`, with two digits of exponent at least.
fn write_float(out: &mut String, float: f64) {
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if float.is_infinite() {
        out.push_str(if float > 0.0 { "inf" } else { "-inf" });
    } else if (-4..16).contains(&exponent) {
        write!(out, "{float:?}").expect("writing to a String cannot fail");
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(out, "{digits}e{sign}{:02}", exponent.unsigned_abs())
            .expect("writing to a String cannot fail");
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
            c if printable(c) => out.push(c),
            c => {
                match u32::from(c) {
                    code @ ..=0xFF => write!(out, "\\x{code:02x}"),
                    code @ ..=0xFFFF => write!(out, "\\u{code:04x}"),
                    code => write!(out, "\\U{code:08x}"),
                }
                .expect("writing to a String cannot fail");
            }
        }
    }
    out.push(quote);
}

/// Whether Python prints the character as it is: the categories that it escapes are those that Rust
/// escapes in debug texts. Behind another character, because in front Rust escapes marks too.
fn printable(c: char) -> bool {
    if matches!(c, '"' | '\'') {
        return true;
    }
    let mut text = [0; 5];
    text[0] = b'x';
    let end = 1 + c.encode_utf8(&mut text[1..]).len();
    let behind = std::str::from_utf8(&text[..end]).unwrap_or("x");
    behind.escape_debug().nth(1) == Some(c)
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
    fn floats_print_as_python_prints_them() {
        for (json, python) in [
            ("1e22", "1e+22"),
            ("1E5", "100000.0"),
            ("1e-7", "1e-07"),
            ("-0.0", "-0.0"),
            ("1.5e300", "1.5e+300"),
            ("123456789.125", "123456789.125"),
            ("1e15", "1000000000000000.0"),
            ("1e16", "1e+16"),
            ("0.0001", "0.0001"),
            ("0.00001", "1e-05"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
        ] {
            assert_eq!(repr(&serde_json::from_str(json).unwrap()), python, "{json}");
        }
    }

    #[test]
    fn what_cannot_be_printed_is_escaped_by_its_width() {
        let odd = json!(["\u{200b}", "\u{a0}", "\u{e0001}", "\u{301}", "字 \u{1f327}"]);
        assert_eq!(repr(&odd), "['\\u200b', '\\xa0', '\\U000e0001', '\u{301}', '字 \u{1f327}']");
    }

    #[test]
    fn a_bare_string_has_no_quotes() {
        assert_eq!(repr(&json!("部署")), "部署");
    }
}
