//! The ways in which one known value may be written.

use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Encoded cores shorter than this would match by chance.
const MIN_ENCODED: usize = 8;
/// A line of a value with several lines counts as a secret of its own from this length.
const MIN_LINE: usize = 16;

/// Every form of `value`, itself included.
pub(super) fn of(value: &str) -> BTreeSet<String> {
    let mut forms = BTreeSet::new();
    add_written(value, &mut forms);
    // Logs come line by line, so the lines of a key or a JSON credential must be known one by one.
    if value.contains('\n') {
        for line in
            value.lines().map(str::trim).filter(|line| line.len() >= MIN_LINE && !line.starts_with("-----"))
        {
            add_written(line, &mut forms);
        }
    }
    for skip in 0..3 {
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            if let Some(core) = base64_core(value.as_bytes(), skip, &engine) {
                forms.insert(core.replace('/', "\\/"));
                forms.insert(core);
            }
        }
    }
    forms
}

fn add_written(value: &str, forms: &mut BTreeSet<String>) {
    let escaped = json_escaped(value);
    forms.insert(value.to_owned());
    forms.insert(escaped.replace('/', "\\/"));
    forms.insert(ascii_escaped(&escaped, Case::Lower));
    forms.insert(ascii_escaped(&escaped, Case::Upper));
    forms.insert(json_escaped(&escaped));
    forms.insert(escaped);
    for safe in ["-_.~", "-_.~/", "-_.!~*'()", "-_.*", ""] {
        for case in [Case::Upper, Case::Lower] {
            let encoded = url_encoded(value, safe, case);
            forms.insert(encoded.replace("%20", "+"));
            forms.insert(encoded);
        }
    }
}

#[derive(Clone, Copy)]
enum Case {
    Upper,
    Lower,
}

fn json_escaped(value: &str) -> String {
    let quoted = serde_json::to_string(value).expect("a text is always JSON");
    quoted[1..quoted.len() - 1].to_owned()
}

/// What writers do that keep to ASCII.
fn ascii_escaped(escaped: &str, case: Case) -> String {
    let mut out = String::with_capacity(escaped.len());
    for c in escaped.chars() {
        if c.is_ascii() {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            let _ = match case {
                Case::Lower => write!(out, "\\u{unit:04x}"),
                Case::Upper => write!(out, "\\u{unit:04X}"),
            };
        }
    }
    out
}

fn url_encoded(value: &str, safe: &str, case: Case) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || safe.as_bytes().contains(&byte) {
            out.push(char::from(byte));
            continue;
        }
        let _ = match case {
            Case::Upper => write!(out, "%{byte:02X}"),
            Case::Lower => write!(out, "%{byte:02x}"),
        };
    }
    out
}

/// The characters that encode `value` wherever it stands in a longer text, if it starts `skip`
/// bytes after a border of three. Characters that mix in a neighbour's bits are left out.
fn base64_core(value: &[u8], skip: usize, engine: &impl base64::Engine) -> Option<String> {
    let mut bytes = vec![0; skip];
    bytes.extend_from_slice(value);
    let encoded = engine.encode(&bytes);
    let first = (skip * 8).div_ceil(6);
    let last = bytes.len() * 8 / 6;
    let core = encoded.get(first..last)?;
    (core.len() >= MIN_ENCODED).then(|| core.to_owned())
}
