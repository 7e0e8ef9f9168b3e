//! The top of a schema: model APIs want one object there, without alternatives.

use super::refs::Refs;
use super::{NoteKind, Notes, SchemaError};
use serde_json::{Map, Value, json};

/// Branches looked at in one schema; more are read as "anything".
const MAX_BRANCHES: usize = 256;
/// Alternatives and names listed in the description.
const MAX_LISTED: usize = 8;

/// Makes `schema` one object with `type: object`, without top-level alternatives.
pub(super) fn prepare(
    schema: &mut Map<String, Value>,
    refs: &Refs,
    notes: &mut Notes,
) -> Result<(), SchemaError> {
    let mut top = Top { refs, left: MAX_BRANCHES, notes };
    top.reference(schema);
    if !refs.into_unions {
        top.unions(schema)?;
    }
    for condition in ["not", "enum", "const"] {
        if schema.shift_remove(condition).is_some() {
            top.notes.add("", NoteKind::ConditionDropped);
        }
    }
    top.object_type(schema)
}

struct Top<'a> {
    refs: &'a Refs,
    left: usize,
    notes: &'a mut Notes,
}

impl Top<'_> {
    /// A reference at the top becomes one more part of `allOf`.
    fn reference(&mut self, schema: &mut Map<String, Value>) {
        let Some(Value::String(reference)) = schema.get("$ref").cloned() else { return };
        let target = self.refs.target(&reference).and_then(Value::as_object);
        match target.filter(|map| !map.contains_key("$ref")) {
            Some(_) if self.refs.into_unions => {}
            Some(_) => {
                schema.shift_remove("$ref");
                let part = json!({ "$ref": reference });
                match schema.get_mut("allOf") {
                    Some(Value::Array(parts)) => parts.push(part),
                    _ => {
                        schema.insert("allOf".to_owned(), json!([part]));
                    }
                }
                self.notes.add("", NoteKind::RefInlined);
            }
            None => {
                schema.shift_remove("$ref");
                self.notes.add("", NoteKind::RefDropped);
            }
        }
    }

    fn unions(&mut self, schema: &mut Map<String, Value>) -> Result<(), SchemaError> {
        for keyword in ["allOf", "anyOf", "oneOf"] {
            let Some(union) = schema.shift_remove(keyword) else { continue };
            self.notes.add(&format!("/{keyword}"), NoteKind::UnionMerged);
            self.union(schema, keyword, union)?;
        }
        Ok(())
    }

    fn union(
        &mut self,
        into: &mut Map<String, Value>,
        keyword: &str,
        union: Value,
    ) -> Result<(), SchemaError> {
        let Value::Array(branches) = union else { return Ok(()) };
        let flat: Vec<Option<Map<String, Value>>> =
            branches.into_iter().map(|branch| self.flat(branch)).collect();
        let no_object = || SchemaError::NoObject { found: keyword.to_owned() };
        if keyword == "allOf" {
            for part in flat {
                absorb(into, part.ok_or_else(no_object)?);
            }
            return Ok(());
        }
        let mut possible: Vec<Map<String, Value>> = flat.into_iter().flatten().collect();
        match possible.len() {
            0 => Err(no_object()),
            1 => {
                absorb(into, possible.remove(0));
                Ok(())
            }
            _ => {
                let sentence = alternatives(keyword, &possible);
                absorb(into, join(possible));
                describe(into, sentence);
                Ok(())
            }
        }
    }

    /// A branch as one object schema without references or alternatives at its top; `None` if it
    /// accepts no object.
    fn flat(&mut self, branch: Value) -> Option<Map<String, Value>> {
        let mut map = match branch {
            Value::Object(map) => map,
            Value::Bool(false) => return None,
            _ => return Some(Map::new()),
        };
        if self.left == 0 {
            return Some(Map::new());
        }
        self.left -= 1;
        if let Some(Value::String(reference)) = map.shift_remove("$ref") {
            let target = self.refs.target(&reference).cloned().unwrap_or(Value::Bool(true));
            let target = self.flat(target)?;
            absorb(&mut map, target);
        }
        match map.shift_remove("type") {
            None => {}
            Some(Value::String(kind)) if kind == "object" => {}
            Some(Value::Array(kinds)) if kinds.iter().any(|kind| kind == "object") => {}
            Some(_) => return None,
        }
        for keyword in ["allOf", "anyOf", "oneOf"] {
            if let Some(union) = map.shift_remove(keyword) {
                self.union(&mut map, keyword, union).ok()?;
            }
        }
        Some(map)
    }

    fn object_type(&mut self, schema: &mut Map<String, Value>) -> Result<(), SchemaError> {
        match schema.get("type") {
            Some(Value::String(kind)) if kind == "object" => return Ok(()),
            Some(Value::Array(kinds)) if kinds.iter().any(|kind| kind == "object") => {
                // Arguments are always an object, so the other types never mattered.
                schema.insert("type".to_owned(), Value::from("object"));
            }
            None | Some(Value::Null) => {
                schema.shift_remove("type");
                schema.shift_insert(0, "type".to_owned(), Value::from("object"));
            }
            Some(Value::String(kind)) if kind.is_empty() => {
                schema.insert("type".to_owned(), Value::from("object"));
            }
            Some(other) => return Err(SchemaError::NoObject { found: other.to_string() }),
        }
        self.notes.add("", NoteKind::TypeAdded);
        Ok(())
    }
}

/// Adds the conditions of `part` to `into`. What cannot stand beside what is there is left out:
/// the outcome may accept more than both, never less.
fn absorb(into: &mut Map<String, Value>, part: Map<String, Value>) {
    const CLOSING: [&str; 3] = ["additionalProperties", "unevaluatedProperties", "patternProperties"];
    let alone = !into.contains_key("properties") && !CLOSING.iter().any(|key| into.contains_key(*key));
    let first_condition = !into.contains_key("if");
    for (key, value) in part {
        match (key.as_str(), value) {
            ("properties", Value::Object(more)) => {
                let all = into.entry("properties").or_insert_with(|| json!({}));
                let Value::Object(all) = all else { continue };
                for (name, schema) in more {
                    add_property(all, name, schema, "allOf");
                }
            }
            ("required", Value::Array(more)) => {
                let all = into.entry("required").or_insert_with(|| json!([]));
                let Value::Array(all) = all else { continue };
                for name in more {
                    if !all.contains(&name) {
                        all.push(name);
                    }
                }
            }
            // References point to the top's own; a branch's are not reachable any more.
            ("$defs" | "definitions" | "type" | "$schema" | "$id", _) => {}
            (key, value) if CLOSING.contains(&key) => {
                if alone {
                    into.insert(key.to_owned(), value);
                }
            }
            ("if" | "then" | "else", value) => {
                if first_condition {
                    into.insert(key, value);
                }
            }
            (_, value) => {
                into.entry(key).or_insert(value);
            }
        }
    }
}

fn add_property(all: &mut Map<String, Value>, name: String, schema: Value, keyword: &str) {
    match all.get_mut(&name) {
        None => {
            all.insert(name, schema);
        }
        Some(there) if *there == schema => {}
        Some(there) => {
            if let Some(Value::Array(list)) =
                there.as_object_mut().filter(|map| map.len() == 1).and_then(|map| map.get_mut(keyword))
            {
                if !list.contains(&schema) {
                    list.push(schema);
                }
            } else {
                *there = json!({ keyword: [there.take(), schema] });
            }
        }
    }
}

/// One schema that accepts what any of `branches` accepts, for the properties they declare.
fn join(branches: Vec<Map<String, Value>>) -> Map<String, Value> {
    let closed =
        branches.iter().all(|branch| branch.get("additionalProperties") == Some(&Value::Bool(false)));
    let mut required: Option<Vec<Value>> = None;
    let mut properties = Map::new();
    for mut branch in branches {
        let names = match branch.shift_remove("required") {
            Some(Value::Array(names)) => names,
            _ => Vec::new(),
        };
        required = Some(match required {
            None => names,
            Some(common) => common.into_iter().filter(|name| names.contains(name)).collect(),
        });
        if let Some(Value::Object(own)) = branch.shift_remove("properties") {
            for (name, schema) in own {
                add_property(&mut properties, name, schema, "anyOf");
            }
        }
    }
    let mut joined = Map::new();
    joined.insert("properties".to_owned(), Value::Object(properties));
    if let Some(required) = required.filter(|names| !names.is_empty()) {
        joined.insert("required".to_owned(), Value::Array(required));
    }
    if closed {
        joined.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    joined
}

/// A sentence for the model that says what the merge lost.
fn alternatives(keyword: &str, branches: &[Map<String, Value>]) -> Option<String> {
    let sets: Vec<String> = branches.iter().take(MAX_LISTED).map(argument_set).collect();
    if sets.iter().all(|set| *set == sets[0]) {
        return None;
    }
    let more = if branches.len() > MAX_LISTED { " or another" } else { "" };
    let count = if keyword == "oneOf" { "exactly" } else { "at least" };
    Some(format!("Give {count} one of these sets of arguments: {}{more}.", sets.join(" or ")))
}

fn argument_set(branch: &Map<String, Value>) -> String {
    let properties = branch.get("properties").and_then(Value::as_object);
    let required: Vec<&str> = branch
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let names: Vec<&str> = if required.is_empty() {
        properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
    } else {
        required
    };
    let listed = names.iter().take(MAX_LISTED).map(|name| {
        match properties.and_then(|all| all.get(*name)).and_then(|schema| schema.get("const")) {
            Some(value) => format!("{name}={value}"),
            None => (*name).to_owned(),
        }
    });
    format!("{{{}}}", listed.collect::<Vec<_>>().join(", "))
}

fn describe(schema: &mut Map<String, Value>, sentence: Option<String>) {
    let Some(sentence) = sentence else { return };
    let text = match schema.get("description").and_then(Value::as_str) {
        Some(text) if !text.is_empty() => format!("{text}\n\n{sentence}"),
        _ => sentence,
    };
    schema.insert("description".to_owned(), Value::String(text));
}
