//! References inside one schema: where they lead, and what they are called after a rename.

use super::keywords::{self, Holds};
use serde_json::{Map, Value};

/// Hops followed before a chain of references counts as a circle.
const MAX_HOPS: usize = 16;

/// The original schema, as references see it.
pub(super) struct Refs {
    root: Value,
    /// Other base URIs or anchors below the top: pointers cannot be told apart by walking.
    opaque: bool,
    /// Some reference points into alternatives, so these must stay where they are.
    pub(super) into_unions: bool,
    /// `unevaluatedProperties` occurs: declaring a property would change what it sees.
    pub(super) unevaluated: bool,
}

/// Where a reference leads.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Leave it.
    Keep,
    /// The same target under its new name.
    Rename(String),
    /// Nowhere in this document.
    Nowhere,
}

impl Refs {
    /// Looks through `schema` once.
    pub(super) fn of(schema: &Map<String, Value>) -> Self {
        let mut root = Value::Object(schema.clone());
        let mut found = Found::default();
        found.look(&mut root, 0);
        Self { root, opaque: found.opaque, into_unions: found.into_unions, unevaluated: found.unevaluated }
    }

    /// Whether `definitions` of `schema` is to become `$defs`.
    pub(super) fn renames(&self, schema: &Map<String, Value>) -> bool {
        !self.opaque
            && schema.get("definitions").is_some_and(Value::is_object)
            && !schema.contains_key("$defs")
    }

    /// Where `reference` leads.
    pub(super) fn fate(&self, reference: &str) -> Fate {
        if self.opaque || reference == "#" {
            return Fate::Keep;
        }
        let Some(pointer) = reference.strip_prefix('#') else { return Fate::Nowhere };
        match self.walk(pointer) {
            Some((_, renamed)) if renamed == pointer => Fate::Keep,
            Some((_, renamed)) => Fate::Rename(format!("#{renamed}")),
            None => Fate::Nowhere,
        }
    }

    /// The schema that `reference` finally points to; `None` for a circle or a dead end.
    pub(super) fn target(&self, reference: &str) -> Option<&Value> {
        let mut reference = reference;
        for _ in 0..MAX_HOPS {
            let (target, _) = self.walk(reference.strip_prefix('#')?)?;
            match target.as_object().and_then(|map| map.get("$ref")).and_then(Value::as_str) {
                Some(next) if target.as_object().is_some_and(|map| map.len() == 1) => reference = next,
                _ => return Some(target),
            }
        }
        None
    }

    /// Follows a pointer, and spells it with every renamed `definitions`.
    fn walk(&self, pointer: &str) -> Option<(&Value, String)> {
        let mut here = &self.root;
        let mut spelled = String::new();
        // What `here` is: a schema, or what a keyword holds.
        let mut place = Holds::Schema;
        if pointer.is_empty() {
            return Some((here, spelled));
        }
        for token in pointer.strip_prefix('/')?.split('/') {
            let name = decode(token)?;
            let renamed = place == Holds::Schema
                && name == "definitions"
                && here.as_object().is_some_and(|map| self.renames(map));
            spelled.push('/');
            spelled.push_str(if renamed { "$defs" } else { token });
            (here, place) = match here {
                Value::Object(map) => {
                    let next = match place {
                        Holds::Schema => keywords::holds(&name),
                        Holds::Map | Holds::List => Holds::Schema,
                        Holds::Data => Holds::Data,
                    };
                    let value = map.get(&name)?;
                    // Old `items` may be one schema in place of a list.
                    let next = if next == Holds::List && !value.is_array() { Holds::Schema } else { next };
                    (value, next)
                }
                Value::Array(list) => (
                    list.get(name.parse::<usize>().ok()?)?,
                    if place == Holds::Data { place } else { Holds::Schema },
                ),
                _ => return None,
            };
        }
        Some((here, spelled))
    }
}

/// Undoes percent encoding and the two escapes of a JSON pointer.
fn decode(token: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(token.len());
    let mut rest = token.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let pair = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&pair).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    Some(String::from_utf8(bytes).ok()?.replace("~1", "/").replace("~0", "~"))
}

#[derive(Default)]
struct Found {
    opaque: bool,
    into_unions: bool,
    unevaluated: bool,
}

impl Found {
    fn look(&mut self, value: &mut Value, depth: usize) {
        let Value::Object(schema) = value else { return };
        let has = |keyword: &str| schema.get(keyword).is_some_and(Value::is_string);
        self.opaque |= has("$anchor") || has("$dynamicAnchor") || has("$dynamicRef") || has("$recursiveRef");
        self.opaque |= depth > 0 && (has("$id") || has("id"));
        self.unevaluated |= schema.contains_key("unevaluatedProperties");
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            self.into_unions |= ["/anyOf/", "/oneOf/", "/allOf/"].iter().any(|part| reference.contains(part));
            // A reference by the document's own address is local; telling it apart needs URI rules.
            self.opaque |= !reference.starts_with('#') && has("$id");
        }
        keywords::for_each_child(schema, &mut |_, _, child| self.look(child, depth + 1));
    }
}
