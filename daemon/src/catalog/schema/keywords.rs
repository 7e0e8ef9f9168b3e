//! Which keyword of a schema holds schemas; everything else is data and is never walked.

use serde_json::{Map, Value};

/// What stands under a keyword.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    /// One schema.
    Schema,
    /// A list of schemas, or (old `items`) one.
    List,
    /// Schemas by name; the names are data.
    Map,
    /// No schema.
    Data,
}

/// What stands under `keyword`.
pub(super) fn holds(keyword: &str) -> Holds {
    match keyword {
        "additionalProperties"
        | "unevaluatedProperties"
        | "unevaluatedItems"
        | "additionalItems"
        | "contains"
        | "propertyNames"
        | "not"
        | "if"
        | "then"
        | "else"
        | "contentSchema" => Holds::Schema,
        "items" | "prefixItems" | "anyOf" | "oneOf" | "allOf" => Holds::List,
        "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => Holds::Map,
        _ => Holds::Data,
    }
}

/// Keywords that say nothing about which values are accepted.
pub(super) fn is_annotation(keyword: &str) -> bool {
    matches!(
        keyword,
        "title"
            | "description"
            | "default"
            | "examples"
            | "example"
            | "deprecated"
            | "readOnly"
            | "writeOnly"
            | "$comment"
    ) || keyword.starts_with("x-")
}

/// Calls `visit` with each direct subschema, its keyword and its JSON pointer relative to `schema`.
pub(super) fn for_each_child(schema: &mut Map<String, Value>, visit: &mut dyn FnMut(&str, &str, &mut Value)) {
    for (keyword, value) in schema.iter_mut() {
        match (holds(keyword), value) {
            (Holds::Schema | Holds::List, one @ (Value::Object(_) | Value::Bool(_))) => {
                visit(keyword, &format!("/{keyword}"), one);
            }
            (Holds::List, Value::Array(list)) => {
                for (i, one) in list.iter_mut().enumerate() {
                    visit(keyword, &format!("/{keyword}/{i}"), one);
                }
            }
            (Holds::Map, Value::Object(map)) => {
                for (name, one) in map.iter_mut() {
                    let name = name.replace('~', "~0").replace('/', "~1");
                    visit(keyword, &format!("/{keyword}/{name}"), one);
                }
            }
            _ => {}
        }
    }
}
