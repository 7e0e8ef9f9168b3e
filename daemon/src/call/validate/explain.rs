//! What is wrong with arguments, in words a model can act on.

use super::{InvalidArguments, MAX_PROBLEMS};
use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use serde_json::Value;

/// Characters of a value or a list shown in a text.
const MAX_SHOWN: usize = 60;
/// Characters of a message that is not ours.
const MAX_MESSAGE: usize = 200;
/// Problems looked at before counting stops.
const MAX_COUNTED: usize = 100;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where, as `options.items[2].name`; empty: the arguments as a whole.
    pub path: String,
    /// What belongs there.
    pub expected: String,
    /// What is there; empty: nothing to show.
    pub got: String,
}

impl Problem {
    pub(super) fn too_deep() -> Self {
        Self {
            path: String::new(),
            expected: "an object nested at most 128 deep".to_owned(),
            got: String::new(),
        }
    }

    pub(super) fn not_an_object(value: &Value) -> Self {
        Self { path: String::new(), expected: "an object of named arguments".to_owned(), got: shown(value) }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.path.is_empty() {
            f.write_str("the arguments: ")?;
        } else {
            write!(f, "`{}`: ", self.path)?;
        }
        write!(f, "expected {}", self.expected)?;
        if !self.got.is_empty() {
            write!(f, ", got {}", self.got)?;
        }
        Ok(())
    }
}

pub(super) fn only(problem: Problem) -> InvalidArguments {
    InvalidArguments { problems: vec![problem], more: 0 }
}

/// Whether an error only says that a pattern was too expensive to try.
pub(super) fn gave_up(error: &ValidationError<'_>) -> bool {
    matches!(
        error.kind(),
        ValidationErrorKind::BacktrackLimitExceeded { .. } | ValidationErrorKind::RegexEngineFailure { .. }
    )
}

pub(super) fn invalid(compiled: &jsonschema::Validator, value: &Value) -> InvalidArguments {
    let mut problems: Vec<Problem> = Vec::new();
    let mut more = 0;
    for error in compiled.iter_errors(value).filter(|error| !gave_up(error)).take(MAX_COUNTED) {
        let one = problem(&error);
        if problems.contains(&one) {
            continue;
        }
        if problems.len() < MAX_PROBLEMS { problems.push(one) } else { more += 1 }
    }
    InvalidArguments { problems, more }
}

pub(super) fn refusal(problems: &[Problem], more: usize) -> String {
    let mut text = "invalid arguments, the tool was not called:".to_owned();
    for problem in problems {
        text.push_str(&format!("\n- {problem}"));
    }
    if more > 0 {
        text.push_str(&format!("\n- and {more} more"));
    }
    text.push_str("\nCorrect the arguments and call again.");
    text
}

fn problem(error: &ValidationError<'_>) -> Problem {
    use ValidationErrorKind as Kind;
    let mut path = readable(error.instance_path().as_str());
    let mut got = shown(error.instance());
    let expected = match error.kind() {
        Kind::Required { property } => {
            let name = property.as_str().map_or_else(|| property.to_string(), str::to_owned);
            path = if path.is_empty() { name } else { format!("{path}.{name}") };
            got = "nothing".to_owned();
            "a value (it is required)".to_owned()
        }
        Kind::Type { kind: TypeKind::Single(kind) } => with_article(kind.as_str()),
        Kind::Type { kind: TypeKind::Multiple(kinds) } => {
            let kinds: Vec<&str> = kinds.iter().map(jsonschema::JsonType::as_str).collect();
            kinds.join(" or ")
        }
        Kind::Enum { options } => format!("one of {}", clipped(&options.to_string(), 3 * MAX_SHOWN)),
        Kind::Constant { expected_value } => clipped(&expected_value.to_string(), MAX_SHOWN),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            let names: Vec<String> =
                unexpected.iter().take(8).map(|name| format!("`{}`", clipped(name, MAX_SHOWN))).collect();
            got = names.join(", ");
            "no other arguments than the schema names".to_owned()
        }
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => alternatives(context),
        Kind::OneOfMultipleValid { .. } => "exactly one of the alternatives to fit, not several".to_owned(),
        Kind::Minimum { limit } => format!("at least {limit}"),
        Kind::Maximum { limit } => format!("at most {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("more than {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("less than {limit}"),
        Kind::MinLength { limit } => format!("at least {limit} characters"),
        Kind::MaxLength { limit } => format!("at most {limit} characters"),
        Kind::MinItems { limit } => format!("at least {limit} items"),
        Kind::MaxItems { limit } => format!("at most {limit} items"),
        Kind::UniqueItems => "items that differ from each other".to_owned(),
        Kind::Pattern { pattern } => format!("a text that matches {}", clipped(pattern, MAX_SHOWN)),
        Kind::FalseSchema => "no value".to_owned(),
        _ => clipped(&error.to_string(), MAX_MESSAGE),
    };
    Problem { path, expected, got }
}

/// The types of all alternatives, or how many there are.
fn alternatives(context: &[Vec<ValidationError<'static>>]) -> String {
    let mut kinds: Vec<&str> = Vec::new();
    for branch in context {
        let only_type = branch.iter().find_map(|error| match error.kind() {
            ValidationErrorKind::Type { kind: TypeKind::Single(kind) } => Some(kind.as_str()),
            _ => None,
        });
        match only_type {
            Some(kind) if !kinds.contains(&kind) => kinds.push(kind),
            Some(_) => {}
            None => {
                let detail = branch.first().map(|error| problem(error).to_string()).unwrap_or_default();
                return format!(
                    "one of {} alternatives to fit (the nearest: {})",
                    context.len(),
                    clipped(&detail, MAX_MESSAGE)
                );
            }
        }
    }
    kinds.join(" or ")
}

fn with_article(kind: &str) -> String {
    match kind {
        "null" => "null".to_owned(),
        "array" | "object" | "integer" => format!("an {kind}"),
        kind => format!("a {kind}"),
    }
}

/// `/a/0/b` as `a[0].b`.
fn readable(pointer: &str) -> String {
    let mut path = String::new();
    for token in pointer.split('/').skip(1) {
        let name = token.replace("~1", "/").replace("~0", "~");
        if name.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() {
            path.push_str(&format!("[{name}]"));
        } else {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&name);
        }
    }
    clipped(&path, MAX_MESSAGE)
}

/// A value with its type, short.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => format!("the boolean {value}"),
        Value::Number(_) => format!("the number {}", clipped(&value.to_string(), MAX_SHOWN)),
        Value::String(text) => format!("the string \"{}\"", clipped(text, MAX_SHOWN)),
        Value::Array(list) => format!("an array of {}", list.len()),
        Value::Object(map) => format!("an object with {} members", map.len()),
    }
}

pub(super) fn shortened(text: &str) -> String {
    clipped(text, MAX_MESSAGE)
}

fn clipped(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
