//! Pure: arguments of tools that a server wants to see in headers as well (`x-mcp-header`, 2026-07-28).
//!
//! Promise: only what a tool's schema names by the rules is sent, and only as the rules say; a
//! schema that breaks them is told apart, because such a tool must not be offered. May not touch: the
//! network.

use super::names;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

const KEY: &str = "x-mcp-header";

/// Largest integer that every JSON reader keeps.
const SAFE: i64 = (1 << 53) - 1;

/// One argument that goes into a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirrored {
    /// Where it is in the arguments.
    pub path: Vec<String>,
    /// `mcp-param-…`.
    pub header: HeaderName,
}

/// Why a tool that uses the annotation must not be offered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MirrorError {
    /// The annotation is no text that can be part of a header's name.
    #[error("`x-mcp-header` of `{at}` is no header name")]
    Name {
        /// The property.
        at: String,
    },
    /// Two properties want the same header.
    #[error("two properties want the header `{name}`")]
    Twice {
        /// The name.
        name: String,
    },
    /// The property's type is not string, integer or boolean.
    #[error("`x-mcp-header` stands on `{at}`, which is no string, integer or boolean")]
    Type {
        /// The property.
        at: String,
    },
    /// The annotation is somewhere a value has no fixed place.
    #[error("`x-mcp-header` stands below `{at}`, where a value has no fixed place")]
    Place {
        /// The keyword.
        at: String,
    },
}

/// What the tools of one server want in headers.
#[derive(Debug, Default)]
pub struct Mirror {
    tools: BTreeMap<String, Vec<Mirrored>>,
}

impl Mirror {
    /// Takes over what a page of `tools/list` says.
    pub fn learn(&mut self, page: &RawValue) {
        let Ok(page) = serde_json::from_str::<Value>(page.get()) else { return };
        for tool in page.get("tools").and_then(Value::as_array).into_iter().flatten() {
            let (Some(name), Some(schema)) =
                (tool.get("name").and_then(Value::as_str), tool.get("inputSchema"))
            else {
                continue;
            };
            match mirrored(schema) {
                Ok(wanted) if !wanted.is_empty() => drop(self.tools.insert(name.to_owned(), wanted)),
                // Broken ones are dropped from the list, so nobody calls them.
                Ok(_) | Err(_) => drop(self.tools.remove(name)),
            }
        }
    }

    /// The headers of one call.
    pub fn headers(&self, tool: &str, arguments: &RawValue) -> Vec<(HeaderName, HeaderValue)> {
        let Some(wanted) = self.tools.get(tool) else { return Vec::new() };
        let Ok(arguments) = serde_json::from_str::<Value>(arguments.get()) else { return Vec::new() };
        wanted
            .iter()
            .filter_map(|one| {
                let value = one.path.iter().try_fold(&arguments, |value, key| value.get(key))?;
                Some((one.header.clone(), names::value(&shown(value)?)))
            })
            .collect()
    }
}

fn shown(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(truth) => Some(truth.to_string()),
        // `42.0` is an integer too; anything outside the safe range is nobody's.
        Value::Number(number) => {
            let whole = number.as_i64().or_else(|| {
                let float =
                    number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= SAFE as f64);
                float.map(|float| float as i64)
            });
            whole.filter(|whole| whole.abs() <= SAFE).map(|whole| whole.to_string())
        }
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Why a tool with this input schema must not be offered, if so.
pub fn broken(schema: &RawValue) -> Option<String> {
    if !schema.get().contains(KEY) {
        return None;
    }
    let schema = serde_json::from_str(schema.get()).ok()?;
    mirrored(&schema).err().map(|error| error.to_string())
}

/// What a tool with this input schema wants in headers; nothing where the annotation breaks the rules.
pub fn of_schema(schema: &RawValue) -> Vec<Mirrored> {
    if !schema.get().contains(KEY) {
        return Vec::new();
    }
    serde_json::from_str(schema.get()).ok().and_then(|schema| mirrored(&schema).ok()).unwrap_or_default()
}

/// The annotated properties of a tool's input schema.
///
/// # Errors
/// [`MirrorError`]: the tool must not be offered.
pub fn mirrored(schema: &Value) -> Result<Vec<Mirrored>, MirrorError> {
    let mut found = Vec::new();
    let mut path = Vec::new();
    properties(schema, &mut path, &mut found)?;
    let mut names: Vec<&str> = found.iter().map(|one: &Mirrored| one.header.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(MirrorError::Twice { name: pair[0].to_owned() }),
        None => Ok(found),
    }
}

fn properties(schema: &Value, path: &mut Vec<String>, found: &mut Vec<Mirrored>) -> Result<(), MirrorError> {
    let Some(members) = schema.as_object() else { return Ok(()) };
    for (keyword, value) in members {
        if keyword == "properties" {
            for (name, property) in value.as_object().into_iter().flatten() {
                path.push(name.clone());
                if let Some(wanted) = property.get(KEY) {
                    found.push(annotated(wanted, property, path)?);
                }
                properties(property, path, found)?;
                path.pop();
            }
        } else if keyword != KEY && !is_data(keyword) && mentions(value) {
            return Err(MirrorError::Place { at: keyword.clone() });
        }
    }
    Ok(())
}

fn annotated(wanted: &Value, property: &Value, path: &[String]) -> Result<Mirrored, MirrorError> {
    let at = || path.join(".");
    let text = wanted.as_str().filter(|text| !text.is_empty());
    let header = text.and_then(|text| HeaderName::try_from(format!("mcp-param-{text}")).ok());
    let header = header.ok_or_else(|| MirrorError::Name { at: at() })?;
    match property.get("type").and_then(Value::as_str) {
        Some("string" | "integer" | "boolean") => Ok(Mirrored { path: path.to_vec(), header }),
        _ => Err(MirrorError::Type { at: at() }),
    }
}

/// Keywords whose value is data and no schema.
fn is_data(keyword: &str) -> bool {
    matches!(keyword, "default" | "const" | "enum" | "examples" | "description" | "title" | "required")
}

/// Whether a schema has the annotation anywhere.
fn mentions(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => {
            members.contains_key(KEY) || members.iter().any(|(key, value)| !is_data(key) && mentions(value))
        }
        Value::Array(items) => items.iter().any(mentions),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
#[path = "mirror_tests.rs"]
mod tests;
