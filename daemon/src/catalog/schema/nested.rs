//! Repairs that hold at every level of a schema.

use super::keywords;
use super::refs::{Fate, Refs};
use super::{NoteKind, Notes};
use serde_json::{Map, Value, json};

/// Repairs `schema` and everything below it.
pub(super) fn repair(schema: &mut Map<String, Value>, refs: &Refs, notes: &mut Notes) {
    Walk { refs, notes }.schema(schema, "");
}

struct Walk<'a> {
    refs: &'a Refs,
    notes: &'a mut Notes,
}

impl Walk<'_> {
    fn schema(&mut self, schema: &mut Map<String, Value>, path: &str) {
        keywords::for_each_child(schema, &mut |keyword, below, child| {
            let path = format!("{path}{below}");
            match child {
                Value::Object(map) => self.schema(map, &path),
                Value::Bool(open) if wants_object(keyword, *open) => {
                    *child = if *open { json!({}) } else { json!({ "not": {} }) };
                    self.notes.add(&path, NoteKind::BooleanReplaced);
                }
                _ => {}
            }
        });
        self.definitions(schema, path);
        self.reference(schema, path);
        self.fold_null(schema, path);
        self.type_list(schema, path);
        self.shapes(schema, path);
        self.required(schema, path);
    }

    fn definitions(&mut self, schema: &mut Map<String, Value>, path: &str) {
        if !self.refs.renames(schema) {
            return;
        }
        rename_key(schema, "definitions", "$defs");
        self.notes.add(path, NoteKind::DefinitionsRenamed);
    }

    fn reference(&mut self, schema: &mut Map<String, Value>, path: &str) {
        let Some(Value::String(reference)) = schema.get_mut("$ref") else { return };
        match self.refs.fate(reference) {
            Fate::Keep => {}
            Fate::Rename(new) => *reference = new,
            Fate::Nowhere => {
                schema.shift_remove("$ref");
                self.notes.add(path, NoteKind::RefDropped);
            }
        }
    }

    /// `anyOf: [X, null]` becomes X with `nullable`.
    fn fold_null(&mut self, schema: &mut Map<String, Value>, path: &str) {
        for keyword in ["anyOf", "oneOf"] {
            let Some(Value::Array(branches)) = schema.get(keyword) else { continue };
            let plain_around = schema.keys().all(|key| key == keyword || keywords::is_annotation(key))
                && !self.refs.into_unions;
            let (nulls, rest): (Vec<&Value>, Vec<&Value>) =
                branches.iter().partition(|branch| is_null(branch));
            let [Value::Object(only)] = rest[..] else { continue };
            // In `oneOf` a value must match once: null must not be accepted by both.
            let once = keyword == "anyOf" || (nulls.len() == 1 && refuses_null(only));
            if nulls.is_empty() || !plain_around || !once {
                continue;
            }
            let mut folded = only.clone();
            folded.insert("nullable".to_owned(), Value::Bool(true));
            for (key, value) in schema.iter().filter(|(key, _)| *key != keyword) {
                folded.entry(key.clone()).or_insert_with(|| value.clone());
            }
            *schema = folded;
            self.notes.add(path, NoteKind::NullFolded);
            return;
        }
    }

    fn type_list(&mut self, schema: &mut Map<String, Value>, path: &str) {
        let Some(Value::Array(types)) = schema.get("type") else { return };
        let mut names: Vec<Value> = Vec::new();
        for name in types {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        let others: Vec<Value> = names.iter().filter(|name| *name != "null").cloned().collect();
        match (&others[..], names.len() > others.len()) {
            ([one], false) => {
                schema.insert("type".to_owned(), one.clone());
                self.notes.add(path, NoteKind::TypeListSplit);
            }
            ([one], true) => {
                let one = one.clone();
                self.nullable_type(schema, one, &names, path);
            }
            ([], true) => {
                schema.insert("type".to_owned(), Value::from("null"));
                self.notes.add(path, NoteKind::TypeListSplit);
            }
            _ => self.split_types(schema, &names, path),
        }
    }

    /// `type: [X, null]`.
    fn nullable_type(&mut self, schema: &mut Map<String, Value>, one: Value, names: &[Value], path: &str) {
        let listed = schema.get("enum").and_then(Value::as_array).map(|values| values.contains(&Value::Null));
        let conditions = ["const", "anyOf", "oneOf", "allOf", "not", "$ref", "if"];
        if conditions.iter().any(|key| schema.contains_key(*key)) {
            // `nullable` would override these, alternatives do not.
            return self.split_types(schema, names, path);
        }
        schema.insert("type".to_owned(), one);
        if listed == Some(false) {
            self.notes.add(path, NoteKind::TypeListSplit);
        } else {
            schema.insert("nullable".to_owned(), Value::Bool(true));
            self.notes.add(path, NoteKind::NullFolded);
        }
    }

    fn split_types(&mut self, schema: &mut Map<String, Value>, names: &[Value], path: &str) {
        if schema.contains_key("anyOf") || names.is_empty() {
            return;
        }
        let branches = names.iter().map(|name| {
            let mut branch = json!({ "type": name });
            // What APIs ask of an array or object they also ask of it here.
            for (of, key) in [("array", "items"), ("object", "properties")] {
                if name == of {
                    branch[key] = json!({});
                }
            }
            branch
        });
        let branches: Vec<Value> = branches.collect();
        let as_is = std::mem::take(schema);
        for (key, value) in as_is {
            if key == "type" {
                schema.insert("anyOf".to_owned(), Value::Array(branches.clone()));
            } else {
                schema.insert(key, value);
            }
        }
        self.notes.add(path, NoteKind::TypeListSplit);
    }

    /// An object has a map of properties, an array has items.
    fn shapes(&mut self, schema: &mut Map<String, Value>, path: &str) {
        let kind = schema.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let properties = schema.get("properties");
        if (kind == "object" || properties.is_some()) && !properties.is_some_and(Value::is_object) {
            schema.insert("properties".to_owned(), json!({}));
            self.notes.add(path, NoteKind::PropertiesAdded);
        }
        if kind == "array" && !schema.contains_key("items") && !schema.contains_key("prefixItems") {
            schema.insert("items".to_owned(), json!({}));
            self.notes.add(path, NoteKind::ItemsAdded);
        }
    }

    /// Every required name is declared. Dropping it instead would accept what the server refuses.
    fn required(&mut self, schema: &mut Map<String, Value>, path: &str) {
        let Some(required) = schema.get_mut("required") else { return };
        let Value::Array(names) = required else {
            schema.shift_remove("required");
            self.notes.add(path, NoteKind::RequiredMalformed);
            return;
        };
        if names.iter().any(|name| !name.is_string()) {
            names.retain(Value::is_string);
            self.notes.add(path, NoteKind::RequiredMalformed);
        }
        let names: Vec<String> = names.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let Some(Value::Object(properties)) = schema.get("properties") else { return };
        let missing: Vec<String> = names.into_iter().filter(|name| !properties.contains_key(name)).collect();
        if missing.is_empty() || self.refs.unevaluated || schema.contains_key("patternProperties") {
            return;
        }
        let rest = schema.get("additionalProperties").cloned().unwrap_or(Value::Bool(true));
        if rest == Value::Bool(false) {
            if let Some(Value::Array(names)) = schema.get_mut("required") {
                names.retain(|name| {
                    name.as_str().is_some_and(|name| !missing.iter().any(|gone| gone == name))
                });
            }
            self.notes.add(path, NoteKind::RequiredDropped);
            return;
        }
        let declared = if rest.is_object() { rest } else { json!({}) };
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            for name in missing {
                properties.insert(name, declared.clone());
            }
        }
        self.notes.add(path, NoteKind::RequiredDeclared);
    }
}

/// Where APIs ask for an object; `items: false` ("no more items") is understood as it is.
fn wants_object(keyword: &str, open: bool) -> bool {
    match keyword {
        "properties" | "prefixItems" | "anyOf" | "oneOf" | "allOf" => true,
        "items" => open,
        _ => false,
    }
}

fn is_null(branch: &Value) -> bool {
    branch.as_object().is_some_and(|map| {
        map.get("type").is_some_and(|kind| kind == "null")
            && map.keys().all(|key| key == "type" || keywords::is_annotation(key))
    })
}

fn refuses_null(schema: &Map<String, Value>) -> bool {
    let nullable = schema.get("nullable").is_some_and(|value| value == &Value::Bool(true));
    !nullable && schema.get("type").and_then(Value::as_str).is_some_and(|kind| kind != "null")
}

/// Renames a key in its place.
pub(super) fn rename_key(map: &mut Map<String, Value>, old: &str, new: &str) {
    let as_is = std::mem::take(map);
    for (key, value) in as_is {
        map.insert(if key == old { new.to_owned() } else { key }, value);
    }
}
