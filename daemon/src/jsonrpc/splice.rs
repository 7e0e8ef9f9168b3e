//! Rewrites single members of a raw object and leaves every other byte of a body alone.
//!
//! Pure. An object that must change is rebuilt from its raw members in their order, so unknown
//! members, number spellings and key order survive (design: splices, never `Value`).

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// The members of one object, in order, values raw.
#[derive(Debug, Default, Clone)]
pub struct Members<'a> {
    entries: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'a> Members<'a> {
    /// Reads `raw` as an object.
    ///
    /// # Errors
    /// When `raw` is not an object.
    pub fn parse(raw: &'a RawValue) -> Result<Self, serde_json::Error> {
        let mut from = serde_json::Deserializer::from_str(raw.get());
        from.deserialize_map(MembersVisitor)
    }

    /// The last member called `key` (what most parsers would use).
    pub fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.entries.iter().rev().find(|(name, _)| name == key).map(|(_, value)| *value)
    }

    /// The member called `key` when it is a string.
    pub fn text(&self, key: &str) -> Option<Cow<'a, str>> {
        text(self.get(key)?)
    }

    /// Members in the order in which they stand.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.entries.iter().map(|(name, value)| (name.as_ref(), *value))
    }

    /// A name that stands twice, if there is one.
    pub fn duplicate(&self) -> Option<&str> {
        let mut seen: Vec<&str> = self.entries.iter().map(|(name, _)| name.as_ref()).collect();
        seen.sort_unstable();
        seen.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
    }

    /// The object again, with member `key` set to `value`: in its place when it is there (once),
    /// else at the end.
    pub fn with(&self, key: &str, value: &str) -> Box<RawValue> {
        let mut out = ObjectWriter::with_capacity(value.len() + 64);
        let mut placed = false;
        for (name, old) in self.iter() {
            if name != key {
                out.member(name, old.get());
            } else if !placed {
                out.member(name, value);
                placed = true;
            }
        }
        if !placed {
            out.member(key, value);
        }
        out.finish()
    }

    /// The object again, without member `key`.
    pub fn without(&self, key: &str) -> Box<RawValue> {
        let mut out = ObjectWriter::default();
        for (name, value) in self.iter().filter(|(name, _)| *name != key) {
            out.member(name, value.get());
        }
        out.finish()
    }
}

/// `raw` as text when it is a JSON string.
pub fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(serde::Deserialize)]
    struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Borrowed<'_>>(raw.get()).ok().map(|text| text.0)
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::with_capacity(8);
        while let Some(Key(name)) = map.next_key()? {
            entries.push((name, map.next_value()?));
        }
        Ok(Members { entries })
    }
}

/// A key, borrowed when it has no escapes.
#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// Writes one object from raw parts.
#[derive(Debug, Default)]
pub struct ObjectWriter {
    text: String,
}

impl ObjectWriter {
    /// A writer with room for `bytes`.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { text: String::with_capacity(bytes) }
    }

    /// Adds a member; `value` must be JSON.
    pub fn member(&mut self, key: &str, value: &str) -> &mut Self {
        self.text.push(if self.text.is_empty() { '{' } else { ',' });
        push_string(&mut self.text, key);
        self.text.push(':');
        self.text.push_str(value);
        self
    }

    /// Adds a member whose value is text.
    pub fn string(&mut self, key: &str, value: &str) -> &mut Self {
        let mut quoted = String::with_capacity(value.len() + 2);
        push_string(&mut quoted, value);
        self.member(key, &quoted)
    }

    /// The finished object.
    pub fn finish(self) -> Box<RawValue> {
        let text = if self.text.is_empty() { "{}".to_owned() } else { self.text + "}" };
        RawValue::from_string(text).expect("members are valid JSON")
    }
}

/// Appends `text` to `out` as a JSON string.
pub fn push_string(out: &mut String, text: &str) {
    let plain = text.bytes().all(|b| b >= 0x20 && b != b'"' && b != b'\\');
    if plain {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&serde_json::to_string(text).expect("text always serialises"));
    }
}

/// Any serialisable value as raw JSON.
pub fn raw<T: serde::Serialize + ?Sized>(value: &T) -> Box<RawValue> {
    serde_json::value::to_raw_value(value)
        .expect("values made of text, numbers and maps with text keys serialise")
}

/// `raw` on one line: JSON allows newlines between tokens, the stdio transport does not
/// (MCP 2025-11-25, Transports, stdio). Strings cannot contain raw newlines, so replacing them by
/// spaces changes nothing but layout.
pub fn one_line(raw: &str) -> Cow<'_, str> {
    if raw.bytes().any(|b| b == b'\n' || b == b'\r') {
        Cow::Owned(raw.replace(['\n', '\r'], " "))
    } else {
        Cow::Borrowed(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn a_splice_changes_one_member_and_no_other_byte() {
        let raw = members(r#"{"z":1.0,"name":"a","big":12345678901234567890,"n":{"b":1,"a":2}}"#);
        let spliced = Members::parse(&raw).unwrap().with("name", r#""b""#);
        assert_eq!(spliced.get(), r#"{"z":1.0,"name":"b","big":12345678901234567890,"n":{"b":1,"a":2}}"#);
        let added = Members::parse(&raw).unwrap().with("_meta", "{}");
        assert!(added.get().ends_with(r#","_meta":{}}"#));
    }

    #[test]
    fn a_member_given_twice_is_found_and_written_once() {
        let raw = members(r#"{"a":1,"b":2,"a":3}"#);
        let members = Members::parse(&raw).unwrap();
        assert_eq!(members.duplicate(), Some("a"));
        assert_eq!(members.get("a").unwrap().get(), "3");
        assert_eq!(members.with("a", "9").get(), r#"{"a":9,"b":2}"#);
    }

    #[test]
    fn keys_with_escapes_survive() {
        let raw = members("{\"q\\\"\\u0000\":1}");
        assert_eq!(Members::parse(&raw).unwrap().with("x", "2").get(), "{\"q\\\"\\u0000\":1,\"x\":2}");
        assert_eq!(ObjectWriter::default().finish().get(), "{}");
    }
}
