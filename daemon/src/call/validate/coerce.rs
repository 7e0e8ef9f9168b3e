//! Respelling: `"42"` where a number belongs, `"true"`, `"null"`, one value where a list belongs.
//!
//! Led by the validator's own complaints, so that a member is touched only if it is wrong as it is,
//! at any depth. The text around it keeps its bytes.

use super::MAX_ROUNDS;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError};
use serde::de::{Deserializer as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;

/// The arguments with every misspelled member put right, and where; `None` if they stay invalid.
pub(super) fn respell(
    compiled: &jsonschema::Validator,
    raw: &str,
    value: &Value,
) -> Option<(String, Vec<String>)> {
    let mut value = value.clone();
    let mut text = raw.to_owned();
    let mut paths = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let changes = complaints(compiled, &value);
        if changes.is_empty() {
            return None;
        }
        for (path, wanted) in changes {
            let place = value.pointer_mut(&path)?;
            let Some(new) = wanted.iter().find_map(|kind| as_type(place, *kind)) else { continue };
            *place = new;
            let at = locate(&text, &path)?;
            text.replace_range(at, &serde_json::to_string(place).ok()?);
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        if paths.is_empty() {
            return None;
        }
        if compiled.is_valid(&value) {
            return Some((text, paths));
        }
    }
    None
}

/// Every place whose type is wrong, with the types that would be right there.
fn complaints(compiled: &jsonschema::Validator, value: &Value) -> BTreeMap<String, Vec<JsonType>> {
    let mut places: BTreeMap<String, Vec<JsonType>> = BTreeMap::new();
    for error in compiled.iter_errors(value) {
        collect(&error, &mut places);
    }
    // The top is an object already.
    places.remove("");
    places
}

fn collect(error: &ValidationError<'_>, places: &mut BTreeMap<String, Vec<JsonType>>) {
    match error.kind() {
        ValidationErrorKind::Type { kind } => {
            let wanted: Vec<JsonType> = match kind {
                TypeKind::Single(one) => vec![*one],
                TypeKind::Multiple(many) => many.iter().collect(),
            };
            let place = places.entry(error.instance_path().as_str().to_owned()).or_default();
            for kind in wanted {
                if !place.contains(&kind) {
                    place.push(kind);
                }
            }
            // Null last of what fits exactly, a list last of all: "null" is the only text for null,
            // and anything fits into a list.
            place.sort_by_key(|kind| (*kind == JsonType::Array, *kind == JsonType::Null));
        }
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            context.iter().flatten().for_each(|inner| collect(inner, places));
        }
        _ => {}
    }
}

/// `value` as `kind`, if it is a mere spelling of it.
fn as_type(value: &Value, kind: JsonType) -> Option<Value> {
    let text = value.as_str();
    match kind {
        JsonType::Null => text.filter(|text| text.trim().eq_ignore_ascii_case("null")).map(|_| Value::Null),
        JsonType::Boolean => match text?.trim().to_ascii_lowercase().as_str() {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            _ => None,
        },
        JsonType::Integer => number(text?).filter(|number| number.is_i64() || number.is_u64()),
        JsonType::Number => number(text?),
        JsonType::Array => match value {
            Value::String(text) => {
                parsed(text).filter(Value::is_array).or_else(|| Some(Value::from(vec![value.clone()])))
            }
            Value::Number(_) | Value::Bool(_) => Some(Value::from(vec![value.clone()])),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        },
        JsonType::Object => parsed(text?).filter(Value::is_object),
        JsonType::String => None,
    }
}

fn number(text: &str) -> Option<Value> {
    parsed(text).filter(Value::is_number)
}

fn parsed(text: &str) -> Option<Value> {
    serde_json::from_str(text.trim()).ok()
}

/// Where the value at a JSON pointer stands in `text`, in bytes.
fn locate(text: &str, pointer: &str) -> Option<std::ops::Range<usize>> {
    let mut at = 0..text.len();
    for token in pointer.strip_prefix('/')?.split('/') {
        let name = token.replace("~1", "/").replace("~0", "~");
        let inside = &text[at.clone()];
        let child = child(inside, &name)?;
        let offset = child.as_ptr() as usize - text.as_ptr() as usize;
        at = offset..offset + child.len();
    }
    Some(at)
}

/// The raw text of a member or element; of a repeated member the last, as parsers see it.
fn child<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    serde_json::Deserializer::from_str(text).deserialize_any(Find(name)).ok().flatten()
}

struct Find<'n>(&'n str);

impl<'t> Visitor<'t> for Find<'_> {
    type Value = Option<&'t str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some((name, value)) = map.next_entry::<String, &'t RawValue>()? {
            if name == self.0 {
                found = Some(value.get());
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'t>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let wanted: Option<usize> = self.0.parse().ok();
        let mut found = None;
        let mut at = 0;
        while let Some(value) = list.next_element::<&'t RawValue>()? {
            if wanted == Some(at) {
                found = Some(value.get());
            }
            at += 1;
        }
        Ok(found)
    }
}
