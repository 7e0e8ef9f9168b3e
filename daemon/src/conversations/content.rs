//! The `content` column of a message: plain text, or JSON behind a marker.
//!
//! Pure. Promise: decoding never fails; what cannot be decoded is shown as it is stored.

use serde_json::Value;
use serde_json::value::RawValue;

/// Largest part, in bytes, that is always looked into.
const SMALL_PART: usize = 4096;
/// What a stored JSON content starts with.
pub(super) const JSON_MARK: &str = "\0json:";
/// The first text after everything that starts with [`JSON_MARK`]: the upper bound of a range search.
pub(super) const JSON_MARK_END: &str = "\0json;";

/// One decoded content.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Content {
    /// Plain text, also a damaged JSON content with its marker.
    Text(String),
    /// The parts of a multi-part content.
    Parts(Vec<Value>),
    /// A JSON content that is no list.
    Other(Value),
}

impl Content {
    /// Decodes one stored content.
    pub(super) fn decode(stored: &str) -> Self {
        let Some(json) = stored.strip_prefix(JSON_MARK) else { return Self::Text(stored.to_owned()) };
        match parse(json) {
            Some(Value::Array(parts)) => Self::Parts(parts),
            Some(Value::String(text)) => Self::Text(text),
            Some(other) => Self::Other(other),
            None => Self::Text(stored.to_owned()),
        }
    }

    /// The text that a person would read, empty if there is none.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => {
                let texts: Vec<String> = parts.iter().filter_map(text_part).collect();
                texts.join("\n")
            }
            Self::Other(Value::Null | Value::Bool(false)) => String::new(),
            Self::Other(Value::Object(map)) if map.is_empty() => String::new(),
            Self::Other(Value::Number(number)) if number.as_f64() == Some(0.0) => String::new(),
            Self::Other(value) => super::pyrepr::repr(value),
        }
    }
}

/// Whether `stored` has any text, without decoding the images in it: a session may hold hundreds of
/// them, megabytes each, and is counted on every read.
pub(super) fn has_text(stored: &str) -> bool {
    let Some(json) = stored.strip_prefix(JSON_MARK) else { return !stored.is_empty() };
    let Ok(parts) = serde_json::from_str::<Vec<&RawValue>>(json) else {
        return !Content::decode(stored).text().is_empty();
    };
    // A large part that never says "text" is no text part, whatever else it is.
    let worth_a_look = |part: &&RawValue| part.get().len() <= SMALL_PART || part.get().contains("\"text\"");
    let mut texts = parts.into_iter().filter(worth_a_look).filter_map(|part| text_part(&parse(part.get())?));
    // Two texts are joined by a line break, so two empty ones are not empty.
    texts.next().is_some_and(|text| !text.is_empty() || texts.next().is_some())
}

/// The text of a `text` part; other parts have none.
fn text_part(part: &Value) -> Option<String> {
    let part = part.as_object()?;
    if part.get("type").and_then(Value::as_str) != Some("text") {
        return None;
    }
    Some(match part.get("text") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => super::pyrepr::repr(other),
    })
}

/// Parses JSON as Python wrote it. Python lets half of a surrogate pair through (a text cut in the
/// middle of an emoji), which is no valid text elsewhere and becomes U+FFFD.
fn parse(json: &str) -> Option<Value> {
    match serde_json::from_str(json) {
        Ok(value) => Some(value),
        Err(_) => serde_json::from_str(&mend_surrogates(json)?).ok(),
    }
}

/// Replaces `\uXXXX` escapes of unpaired surrogates; `None` if there is none.
fn mend_surrogates(json: &str) -> Option<String> {
    let bytes = json.as_bytes();
    let mut mended = String::with_capacity(json.len());
    let (mut at, mut copied) = (0, 0);
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            at += 1;
            continue;
        }
        match (escape_at(bytes, at), escape_at(bytes, at + 6)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => at += 12,
            (Some(0xD800..=0xDFFF), _) => {
                mended.push_str(&json[copied..at]);
                mended.push_str("\\ufffd");
                at += 6;
                copied = at;
            }
            (Some(_), _) => at += 6,
            // Any other escape is two bytes long; skipping both keeps `\\u` from being read as `\u`.
            (None, _) => at += 2,
        }
    }
    if copied == 0 {
        return None;
    }
    mended.push_str(&json[copied..]);
    Some(mended)
}

/// The code unit of a `\uXXXX` escape that starts at `at`.
fn escape_at(bytes: &[u8], at: usize) -> Option<u16> {
    let escape = bytes.get(at..at + 6)?;
    let digits = escape.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text_of(stored: &str) -> String {
        Content::decode(stored).text()
    }

    #[test]
    fn text_parts_are_joined_by_line_breaks_and_others_have_no_text() {
        let stored = "\0json:[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"file\"},\"b\",{\"type\":\"text\",\"text\":\"c\"}]";
        assert_eq!(text_of(stored), "a\nc");
        assert_eq!(text_of("\0json:[{\"type\":\"image\",\"url\":\"u\"}]"), "");
    }

    #[test]
    fn a_damaged_json_content_is_shown_as_stored() {
        assert_eq!(text_of("\0json:{broken"), "\0json:{broken");
        assert_eq!(text_of("json:[]"), "json:[]");
    }

    #[test]
    fn a_map_reads_as_the_reference_prints_it_and_nothing_reads_as_empty() {
        assert_eq!(text_of("\0json:{\"a\": [1, null]}"), "{'a': [1, None]}");
        for empty in ["{}", "null", "false", "0", "\"\"", "[]"] {
            assert_eq!(text_of(&format!("\0json:{empty}")), "", "{empty}");
        }
    }

    #[test]
    fn looking_for_text_agrees_with_decoding_on_odd_contents() {
        let image = "A".repeat(2 * SMALL_PART);
        let odd =
            ["", "x", "\0json:{broken", "\0json:5", "\0json:\"\"", "\0json:{\"a\":1}", "\0json:[[], null]"];
        let large = [
            format!("{JSON_MARK}[{{\"type\":\"image\",\"data\":\"{image}\"}}]"),
            format!("{JSON_MARK}[{{\"type\":\"text\",\"text\":\"{image}\"}}]"),
            format!("{JSON_MARK}[{{\"type\":\"text\",\"text\":\"\\ud83d\"}}]"),
        ];
        for stored in odd.into_iter().chain(large.iter().map(String::as_str)) {
            assert_eq!(has_text(stored), !text_of(stored).is_empty(), "{stored}");
        }
    }

    #[test]
    fn half_a_surrogate_pair_becomes_the_replacement_character_and_whole_pairs_stay() {
        let stored = r#"json:[{"type":"text","text":"\\ud83d cut \ud83d, whole \ud83c\udf27"}]"#;
        assert_eq!(text_of(&format!("\0{stored}")), "\\ud83d cut \u{FFFD}, whole \u{1F327}");
    }

    fn part() -> impl Strategy<Value = Value> {
        let texts = prop_oneof![Just(String::new()), "[a字\"]{0,3}", Just("\"text\"".repeat(900))];
        (prop_oneof![Just("text"), Just("image"), Just("")], texts, any::<bool>()).prop_map(
            |(kind, text, bare)| {
                if bare { Value::from(text) } else { serde_json::json!({"type": kind, "text": text}) }
            },
        )
    }

    proptest! {
        #[test]
        fn looking_for_text_finds_what_decoding_finds(parts in prop::collection::vec(part(), 0..4)) {
            let stored = format!("{JSON_MARK}{}", Value::from(parts));
            prop_assert_eq!(has_text(&stored), !text_of(&stored).is_empty());
        }

        #[test]
        fn plain_text_comes_back_unchanged(text in "[^\0].*") {
            prop_assert_eq!(text_of(&text), text);
        }

        #[test]
        fn any_json_behind_the_mark_decodes_without_panic(text in "\\PC*") {
            let _ = text_of(&format!("{JSON_MARK}{text}"));
            let escapes = format!("{JSON_MARK}[\"\\u{text}\\ud800{text}\"]");
            let _ = text_of(&escapes);
        }
    }
}
