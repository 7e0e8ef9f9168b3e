//! Repairs of input schemas: the shapes that model APIs reject, rewritten without changing what
//! they accept.
//!
//! Pure. Promise: a schema that needs nothing comes back with the same bytes. Otherwise the same
//! arguments are accepted as before, key order and numbers are kept, and a note says what was done.
//! The exceptions are said too: alternatives at the top level cannot be kept there, so they are
//! merged into one looser object that lists the alternatives in its description, and a reference
//! that leads nowhere becomes an open schema. Arguments are always validated against the original
//! (`call/validate`), so looser is never unsafe.
//! `nullable: true` is the OpenAPI word for "or null" and is read that way.
//! Only keyword positions are touched: a *parameter* called `properties`, `required` or
//! `definitions` is data. Nothing is ever fetched.

mod keywords;
mod nested;
mod refs;
mod root;

use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt;

/// Notes kept for one schema; the rest is counted in no place, the first ones tell the story.
const MAX_NOTES: usize = 16;

/// A schema that model APIs take.
#[derive(Debug, Clone)]
pub struct Repaired {
    /// The schema to publish.
    pub schema: Box<RawValue>,
    /// What was changed, at most 16 entries; empty: the bytes are the server's own.
    pub notes: Vec<SchemaNote>,
}

/// One repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaNote {
    /// JSON pointer to the place in the original schema; empty: the top.
    pub path: String,
    /// What was done there.
    pub kind: NoteKind,
}

/// What a repair did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NoteKind {
    /// No schema was given; every object is accepted.
    Missing,
    /// `type: object` was added at the top.
    TypeAdded,
    /// `properties` was missing or no map.
    PropertiesAdded,
    /// `items` was missing from an array.
    ItemsAdded,
    /// `definitions` became `$defs`, with all references to it.
    DefinitionsRenamed,
    /// "X or null" became X with `nullable`.
    NullFolded,
    /// A list of types became `anyOf`.
    TypeListSplit,
    /// `true` or `false` became an object.
    BooleanReplaced,
    /// A required name that no property declared was declared.
    RequiredDeclared,
    /// A required name that can never be given was dropped.
    RequiredDropped,
    /// `required` was no list of names.
    RequiredMalformed,
    /// A reference at the top was replaced by what it points to.
    RefInlined,
    /// A reference that leads nowhere, or to another document, was dropped.
    RefDropped,
    /// Alternatives at the top were merged; the description lists them.
    UnionMerged,
    /// A condition at the top that model APIs reject was dropped.
    ConditionDropped,
}

/// Why a tool cannot be offered at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The schema is a text, number or list.
    #[error("the input schema is {found}, not an object")]
    NotASchema {
        /// What it is.
        found: &'static str,
    },
    /// Arguments are always an object, and the schema refuses every object.
    #[error("the input schema accepts no object (type {found})")]
    NoObject {
        /// The type it asks for.
        found: String,
    },
    /// Nested deeper than 128, the depth that is safe to walk.
    #[error("the input schema is nested deeper than 128")]
    TooDeep,
}

impl fmt::Display for SchemaNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            NoteKind::Missing => "no input schema: any object is accepted",
            NoteKind::TypeAdded => "`type: object` added",
            NoteKind::PropertiesAdded => "`properties` added",
            NoteKind::ItemsAdded => "`items` added",
            NoteKind::DefinitionsRenamed => "`definitions` renamed to `$defs`",
            NoteKind::NullFolded => "alternative `null` written as `nullable`",
            NoteKind::TypeListSplit => "list of types written as `anyOf`",
            NoteKind::BooleanReplaced => "boolean schema written as an object",
            NoteKind::RequiredDeclared => "required name declared as a property",
            NoteKind::RequiredDropped => "required name that the schema forbids dropped",
            NoteKind::RequiredMalformed => "malformed `required` dropped",
            NoteKind::RefInlined => "reference at the top replaced by its target",
            NoteKind::RefDropped => "reference that leads nowhere dropped",
            NoteKind::UnionMerged => "alternatives at the top merged into one object",
            NoteKind::ConditionDropped => "condition at the top dropped",
        };
        if self.path.is_empty() { f.write_str(what) } else { write!(f, "{what} at {}", self.path) }
    }
}

/// Repairs the input schema of one tool; `None`: the tool has none.
///
/// # Errors
/// [`SchemaError`] if no arguments object could ever be accepted; such a tool is hidden with that
/// reason, the others are not touched.
pub fn repair(raw: Option<&RawValue>) -> Result<Repaired, SchemaError> {
    let Some(raw) = raw else { return Ok(missing()) };
    let value: Value = serde_json::from_str(raw.get()).map_err(|_| SchemaError::TooDeep)?;
    let mut schema = match value {
        Value::Null | Value::Bool(true) => return Ok(missing()),
        Value::Object(map) if map.is_empty() => return Ok(missing()),
        Value::Object(map) => map,
        Value::Bool(false) => return Err(SchemaError::NoObject { found: "false".to_owned() }),
        Value::String(_) => return Err(SchemaError::NotASchema { found: "a text" }),
        Value::Number(_) => return Err(SchemaError::NotASchema { found: "a number" }),
        Value::Array(_) => return Err(SchemaError::NotASchema { found: "a list" }),
    };
    let mut notes = Notes::default();
    let refs = refs::Refs::of(&schema);
    root::prepare(&mut schema, &refs, &mut notes)?;
    nested::repair(&mut schema, &refs, &mut notes);
    if notes.0.is_empty() {
        return Ok(Repaired { schema: raw.to_owned(), notes: Vec::new() });
    }
    Ok(Repaired { schema: to_raw(&Value::Object(schema)), notes: notes.0 })
}

fn missing() -> Repaired {
    let open = serde_json::json!({ "type": "object", "properties": {} });
    let note = SchemaNote { path: String::new(), kind: NoteKind::Missing };
    Repaired { schema: to_raw(&open), notes: vec![note] }
}

fn to_raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("a JSON value has only text keys")
}

/// The notes of one schema, bounded.
#[derive(Default)]
struct Notes(Vec<SchemaNote>);

impl Notes {
    fn add(&mut self, path: &str, kind: NoteKind) {
        let note = SchemaNote { path: path.to_owned(), kind };
        if self.0.len() < MAX_NOTES && !self.0.contains(&note) {
            self.0.push(note);
        }
    }
}

#[cfg(test)]
mod tests;
