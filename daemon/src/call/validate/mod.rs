//! Arguments against the tool's schema, before anything is sent.
//!
//! Pure. Promise: what the schema accepts passes with the same bytes; where a member only has the
//! wrong spelling (`"42"` for 42) that member is rewritten and no other; everything else is refused
//! with a text from which a model can correct itself. A schema that does not compile switches
//! validation off for its tool, with a note. Nothing is ever fetched, and a hostile pattern costs
//! bounded time. The schema is the server's own, not the repaired one (`catalog/schema`).

mod coerce;
mod explain;

pub use explain::Problem;

use crate::names::{RawTool, ServerName};
use jsonschema::PatternOptions;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// Problems listed in one refusal; a model corrects a few at a time.
const MAX_PROBLEMS: usize = 5;
/// Steps that a pattern with look-around may take on one text.
const MAX_BACKTRACKS: usize = 10_000;
/// Bytes of one compiled pattern.
const MAX_PATTERN: usize = 1 << 20;
/// Nested spellings mended in one call (a text in a list in an object …).
const MAX_ROUNDS: usize = 4;

/// The compiled schema of one tool.
#[derive(Debug)]
pub struct Validator {
    compiled: Option<jsonschema::Validator>,
    note: Option<String>,
}

/// Arguments that may be sent.
#[derive(Debug)]
pub struct Checked<'a> {
    /// What to send: the client's bytes, or a copy with some members respelled.
    pub arguments: Cow<'a, RawValue>,
    /// JSON pointers of the members that were respelled.
    pub respelled: Vec<String>,
}

/// Why arguments are refused; `Display` is the text for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", explain::refusal(problems, *more))]
pub struct InvalidArguments {
    /// The first problems, at most 5.
    pub problems: Vec<Problem>,
    /// How many more there are.
    pub more: usize,
}

impl Validator {
    /// Compiles `schema`; `None`, `null` and `true` accept every object. Never fails: see
    /// [`Self::note`]. About 30 us for ten properties.
    pub fn compile(schema: Option<&RawValue>) -> Self {
        let Some(raw) = schema else { return Self { compiled: None, note: None } };
        let off = |why: String| Self { compiled: None, note: Some(why) };
        let schema: Value = match serde_json::from_str(raw.get()) {
            Ok(Value::Null | Value::Bool(true)) => return Self { compiled: None, note: None },
            Ok(mut schema) => {
                if raw.get().contains("nullable") {
                    crate::catalog::schema::accept_null(&mut schema);
                }
                schema
            }
            Err(error) => return off(explain::shortened(&error.to_string())),
        };
        // The linear engine first. It knows no look-around, so the bounded one is the second try.
        let linear = PatternOptions::regex().size_limit(MAX_PATTERN).dfa_size_limit(MAX_PATTERN);
        let bounded = PatternOptions::fancy_regex()
            .backtrack_limit(MAX_BACKTRACKS)
            .size_limit(MAX_PATTERN)
            .dfa_size_limit(MAX_PATTERN);
        let options = || jsonschema::options().should_validate_formats(false);
        let built = options()
            .with_pattern_options(linear)
            .build(&schema)
            .or_else(|_| options().with_pattern_options(bounded).build(&schema));
        match built {
            Ok(compiled) => Self { compiled: Some(compiled), note: None },
            Err(error) => off(explain::shortened(&error.to_string())),
        }
    }

    /// Why arguments of this tool are not validated; `None`: they are.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Decides whether `arguments` may be sent; absent or `null` ones become `{}`.
    ///
    /// # Errors
    /// [`InvalidArguments`] with the problems of the arguments as they came.
    pub fn check<'a>(&self, arguments: Option<&'a RawValue>) -> Result<Checked<'a>, InvalidArguments> {
        let raw = match arguments {
            Some(raw) if raw.get() != "null" => Cow::Borrowed(raw),
            _ => Cow::Owned(RawValue::from_string("{}".to_owned()).expect("an empty object is JSON")),
        };
        let value: Value = serde_json::from_str(raw.get()).map_err(|_| explain::only(Problem::too_deep()))?;
        if !value.is_object() {
            return Err(explain::only(Problem::not_an_object(&value)));
        }
        let Some(compiled) = &self.compiled else {
            return Ok(Checked { arguments: raw, respelled: Vec::new() });
        };
        if compiled.is_valid(&value) || !real_errors(compiled, &value) {
            return Ok(Checked { arguments: raw, respelled: Vec::new() });
        }
        match coerce::respell(compiled, raw.get(), &value) {
            Some((text, respelled)) => {
                let arguments = RawValue::from_string(text).expect("a splice of JSON values is JSON");
                Ok(Checked { arguments: Cow::Owned(arguments), respelled })
            }
            None => Err(explain::invalid(compiled, &value)),
        }
    }
}

/// Whether anything but a pattern that gave up speaks against `value`.
fn real_errors(compiled: &jsonschema::Validator, value: &Value) -> bool {
    compiled.iter_errors(value).any(|error| !explain::gave_up(&error))
}

/// The validators of all tools, compiled at their first use.
#[derive(Debug, Default)]
pub struct Validators {
    by_tool: HashMap<(ServerName, RawTool), Compiled>,
    compiled: u64,
}

#[derive(Debug)]
struct Compiled {
    schema: Option<Box<RawValue>>,
    validator: Arc<Validator>,
}

impl Validators {
    /// The validator of a tool; compiled again only if its schema changed.
    pub fn get(&mut self, server: &ServerName, tool: &RawTool, schema: Option<&RawValue>) -> Arc<Validator> {
        let key = (server.clone(), tool.clone());
        if let Some(known) = self.by_tool.get(&key)
            && known.schema.as_deref().map(RawValue::get) == schema.map(RawValue::get)
        {
            return Arc::clone(&known.validator);
        }
        let validator = Arc::new(Validator::compile(schema));
        self.compiled += 1;
        let schema = schema.map(RawValue::to_owned);
        self.by_tool.insert(key, Compiled { schema, validator: Arc::clone(&validator) });
        validator
    }

    /// How many were compiled so far.
    pub fn compiled(&self) -> u64 {
        self.compiled
    }

    /// Drops the validators of tools that `keep` does not want; call it when a catalogue changed.
    pub fn retain(&mut self, mut keep: impl FnMut(&ServerName, &RawTool) -> bool) {
        self.by_tool.retain(|(server, tool), _| keep(server, tool));
    }
}

#[cfg(test)]
mod tests;
