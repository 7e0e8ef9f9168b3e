//! Reads just as much of a JSON-RPC line as is needed to route it; bodies stay raw.
//!
//! Pure. Nothing here copies or re-orders a body (design: relayed traffic stays raw).

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The outer members of one JSON-RPC message, borrowed from its line.
///
/// Unknown outer members are ignored. A member given twice is an error.
#[derive(Debug, Deserialize)]
pub struct Envelope<'a> {
    /// The version as the peer wrote it, raw; `"2.0"` in every message that is one.
    #[serde(borrow, default, deserialize_with = "present")]
    pub jsonrpc: Option<&'a RawValue>,
    /// The id as the peer wrote it, raw.
    #[serde(borrow, default, deserialize_with = "present")]
    pub id: Option<&'a RawValue>,
    /// Present in requests and notifications.
    #[serde(borrow, default)]
    pub method: Option<Cow<'a, str>>,
    /// Parameters of a request or notification, raw.
    #[serde(borrow, default, deserialize_with = "present")]
    pub params: Option<&'a RawValue>,
    /// Result of a response, raw.
    #[serde(borrow, default, deserialize_with = "present")]
    pub result: Option<&'a RawValue>,
    /// Error of a response, raw.
    #[serde(borrow, default, deserialize_with = "present")]
    pub error: Option<&'a RawValue>,
}

impl<'a> Envelope<'a> {
    /// Parses one line.
    ///
    /// # Errors
    /// When the line is not one JSON object, is nested deeper than 128, or repeats an outer member.
    pub fn parse(line: &'a [u8]) -> Result<Self, serde_json::Error> {
        // serde reads a struct from an array too; `[1,2]` is nobody's answer.
        if line.trim_ascii_start().first().is_some_and(|byte| *byte == b'[') {
            return Err(serde::de::Error::custom("a message is a JSON object"));
        }
        serde_json::from_slice(line)
    }
}

/// The `id` member (a string or a number, raw) in the beginning of a message that is not whole.
///
/// Reads members of the outer object from the left; `None` when the id does not stand in `head`
/// before the first value that is cut off.
pub fn id_in(head: &[u8]) -> Option<&str> {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&head[..error.valid_up_to()]).ok()?,
    };
    let mut rest = text.trim_start().strip_prefix('{')?;
    loop {
        let (key, after) = value(rest)?;
        let (member, after) = value(after.trim_start().strip_prefix(':')?)?;
        if key == "\"id\"" {
            return (member.starts_with('"') || member.starts_with(|c: char| c == '-' || c.is_ascii_digit()))
                .then_some(member);
        }
        rest = after.trim_start().strip_prefix(',')?;
    }
}

/// The whole JSON value at the start of `text`, and what follows it.
fn value(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let raw = values.next()?.ok()?.get();
    let rest = &text[raw.len()..];
    // A number at the very end may go on behind the cut.
    (!rest.is_empty()).then_some((raw, rest))
}

/// Keeps `null` apart from an absent member.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&'a RawValue>::deserialize(from).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_no_message() {
        for line in ["[1,2]", " [\"2.0\",2,null,null,{}]", "[]"] {
            assert!(Envelope::parse(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn null_is_not_absence() {
        let line = br#"{"jsonrpc":"2.0","id":null,"result":null}"#;
        let envelope = Envelope::parse(line).unwrap();
        assert_eq!(envelope.id.unwrap().get(), "null");
        assert_eq!(envelope.result.unwrap().get(), "null");
        assert!(envelope.params.is_none() && envelope.error.is_none());
    }

    #[test]
    fn the_id_is_found_in_the_beginning_of_a_message() {
        assert_eq!(id_in(br#"{"jsonrpc":"2.0","id":5,"result":{"t":"xxxx"#), Some("5"));
        assert_eq!(id_in(br#" { "method" : "tools/call" , "id" : "a\"b" , "params":{"x"#), Some(r#""a\"b""#));
        assert_eq!(id_in(br#"{"params":{"id":7,"#), None, "not the id of the message");
        assert_eq!(id_in(br#"{"jsonrpc":"2.0","id":5"#), None, "may go on");
        assert_eq!(id_in(br#"{"id":null,"error":{}"#), None);
    }

    #[test]
    fn bodies_and_ids_are_the_bytes_that_came() {
        let line = br#"{"id":9007199254740993.0,"method":"tools\/call","params":{"b":1.0,"a":[1e3]}}"#;
        let envelope = Envelope::parse(line).unwrap();
        assert_eq!(envelope.id.unwrap().get(), "9007199254740993.0");
        assert_eq!(envelope.params.unwrap().get(), r#"{"b":1.0,"a":[1e3]}"#);
        assert_eq!(envelope.method.unwrap(), "tools/call");
    }
}
