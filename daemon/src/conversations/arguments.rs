//! Arguments of the ten tools: what is accepted in place of a number or a text.
//!
//! Pure. Promise: the coercions of the reference (a whole number may come as text, as a float
//! without fraction or as a truth value; a text only as text; unknown members do not matter), and
//! an error that names each wrong argument and what was expected.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The arguments of one call, with the mistakes found so far.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    members: Map<String, Value>,
    mistakes: Vec<String>,
}

/// Why arguments were refused: one sentence for each mistake.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", mistakes.join("; "))]
pub(super) struct ArgumentError {
    /// One for each wrong argument, in the order of the tool's parameters.
    pub(super) mistakes: Vec<String>,
}

/// Range and default of a whole number. Values outside are moved to the nearer end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) default: i64,
    pub(super) min: i64,
    pub(super) max: i64,
}

impl Arguments {
    /// Reads `params.arguments`; absent and null mean none.
    pub(super) fn parse(raw: Option<&RawValue>) -> Self {
        match raw.map(|raw| serde_json::from_str::<Option<Map<String, Value>>>(raw.get())) {
            None | Some(Ok(None)) => Self::default(),
            Some(Ok(Some(members))) => Self { members, mistakes: Vec::new() },
            Some(Err(_)) => {
                Self { members: Map::new(), mistakes: vec!["`arguments` must be an object".to_owned()] }
            }
        }
    }

    /// A text that must be there.
    pub(super) fn text(&mut self, name: &str) -> String {
        match self.members.get(name) {
            Some(Value::String(text)) => return text.clone(),
            Some(other) => self.mistakes.push(format!("`{name}` must be a string, got {}", shown(other))),
            None => self.mistakes.push(format!("`{name}` is required and must be a string")),
        }
        String::new()
    }

    /// A text that may be absent or null.
    pub(super) fn optional_text(&mut self, name: &str) -> Option<String> {
        match self.members.get(name) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(other) => {
                self.mistakes.push(format!("`{name}` must be a string or null, got {}", shown(other)));
                None
            }
        }
    }

    /// A whole number, moved into `range`.
    pub(super) fn whole(&mut self, name: &str, range: Range) -> i64 {
        let Some(given) = self.members.get(name) else { return range.default };
        match whole(given) {
            Some(number) => number.clamp(range.min, range.max),
            None => {
                let mistake = format!(
                    "`{name}` must be a whole number ({} to {}), got {}",
                    range.min,
                    range.max,
                    shown(given)
                );
                self.mistakes.push(mistake);
                range.default
            }
        }
    }

    /// Yes or no; absent and null mean no.
    pub(super) fn flag(&mut self, name: &str) -> bool {
        match self.members.get(name) {
            None | Some(Value::Null) => false,
            Some(given) => truth(given).unwrap_or_else(|| {
                self.mistakes.push(format!("`{name}` must be true or false, got {}", shown(given)));
                false
            }),
        }
    }

    /// The id of a message, as a text or a number; absent, null and the empty text mean none.
    pub(super) fn message_id(&mut self, name: &str) -> Option<i64> {
        let given = match self.members.get(name) {
            None | Some(Value::Null) => return None,
            Some(Value::String(text)) if text.is_empty() => return None,
            Some(given) => given,
        };
        let id = if given.is_boolean() { None } else { whole(given) };
        if id.is_none() {
            let mistake = format!(
                "`{name}` must be the id of a message, as messages_read gives it, got {}",
                shown(given)
            );
            self.mistakes.push(mistake);
        }
        id
    }

    /// Words of a list, or of a text with commas; absent, null and empty mean none.
    pub(super) fn words(&mut self, name: &str, known: &[&'static str]) -> Vec<&'static str> {
        let given: Vec<Value> = match self.members.get(name) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => items.clone(),
            Some(Value::String(text)) => {
                text.split(',').filter(|word| !word.trim().is_empty()).map(Value::from).collect()
            }
            Some(other) => vec![other.clone()],
        };
        let word = |value: &Value| {
            let text = value.as_str()?.trim();
            known.iter().copied().find(|word| word.eq_ignore_ascii_case(text))
        };
        let mut words = Vec::new();
        for value in &given {
            match word(value) {
                Some(word) => words.push(word),
                None => {
                    let known = known.join(", ");
                    self.mistakes.push(format!("`{name}` takes {known}, got {}", shown(value)));
                }
            }
        }
        words
    }

    /// Epoch seconds, as a number or a text that `read` understands; absent, null and the empty text mean none.
    pub(super) fn time(&mut self, name: &str, read: impl FnOnce(&str) -> Option<f64>) -> Option<f64> {
        let given = self.members.get(name)?;
        let time = match given {
            Value::Null => return None,
            Value::String(text) if text.trim().is_empty() => return None,
            Value::String(text) => text.trim().parse().ok().or_else(|| read(text.trim())),
            Value::Number(number) => number.as_f64(),
            Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        let time = time.filter(|time| time.is_finite());
        if time.is_none() {
            self.mistakes.push(format!(
                "`{name}` must be a time like 2026-05-17T08:00:00 or seconds since 1970, got {}",
                shown(given)
            ));
        }
        time
    }

    /// Ends reading.
    /// # Errors
    /// [`ArgumentError`] with every mistake, if there was one.
    pub(super) fn done(self) -> Result<(), ArgumentError> {
        if self.mistakes.is_empty() { Ok(()) } else { Err(ArgumentError { mistakes: self.mistakes }) }
    }
}

/// A value in an error text, cut so that a huge argument does not come back whole.
fn shown(value: &Value) -> String {
    const LONGEST: usize = 40;
    let json = value.to_string();
    match json.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &json[..end]),
        None => json,
    }
}

fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(truth) => Some(*truth),
        Value::Number(_) => whole(value).and_then(|number| match number {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }),
        Value::String(text) => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Some(true),
            "false" | "0" | "no" | "off" => Some(false),
            _ => None,
        },
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Bool(truth) => Some(i64::from(*truth)),
        Value::Number(number) => whole_text(&number.to_string()).or_else(|| whole_float(number.as_f64()?)),
        Value::String(text) => whole_text(text.trim()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Digits with an optional sign, single underscores between digits, and a fraction of zeros only.
/// What no i64 can hold becomes the nearest one: every range is narrower.
fn whole_text(text: &str) -> Option<i64> {
    let (digits, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if fraction.is_empty() || fraction.bytes().any(|byte| byte != b'0') {
        return None;
    }
    let unsigned = digits.strip_prefix(['+', '-']).unwrap_or(digits);
    if !unsigned.split('_').all(|group| !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_digit()))
    {
        return None;
    }
    let limit = if digits.starts_with('-') { i64::MIN } else { i64::MAX };
    Some(digits.replace('_', "").parse().unwrap_or(limit))
}

fn whole_float(float: f64) -> Option<i64> {
    // The cast saturates, which is right for the same reason as above.
    (float.is_finite() && float.fract() == 0.0).then_some(float as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: Range = Range { default: 50, min: 1, max: 200 };

    fn arguments(json: &str) -> Arguments {
        let raw = RawValue::from_string(json.to_owned()).unwrap();
        Arguments::parse(Some(&raw))
    }

    fn limit(json: &str) -> Result<i64, ArgumentError> {
        let mut arguments = arguments(&format!("{{\"limit\": {json}}}"));
        let limit = arguments.whole("limit", LIMIT);
        arguments.done().map(|()| limit)
    }

    #[test]
    fn whole_numbers_are_accepted_in_every_form_of_the_reference() {
        let accepted = [
            ("3", 3),
            ("\"3\"", 3),
            ("\" 3 \"", 3),
            ("\"+3\"", 3),
            ("\"1_0\"", 10),
            ("\"3.0\"", 3),
            ("3.0", 3),
            ("1e2", 100),
            ("true", 1),
            ("false", 1),
            ("-5", 1),
            ("500", 200),
            ("99999999999999999999999", 200),
            ("-99999999999999999999999", 1),
            ("1e300", 200),
        ];
        for (json, expected) in accepted {
            assert_eq!(limit(json), Ok(expected), "{json}");
        }
        assert_eq!(arguments("{}").whole("limit", LIMIT), 50);
    }

    #[test]
    fn other_values_are_refused_by_name() {
        for json in ["null", "2.7", "\"abc\"", "\"\"", "\"2.5\"", "\"1__0\"", "\"_1\"", "\"3.\"", "[3]", "{}"]
        {
            let error = limit(json).unwrap_err().to_string();
            assert!(error.starts_with("`limit` must be a whole number (1 to 200), got "), "{json}: {error}");
        }
    }

    #[test]
    fn texts_refuse_numbers_and_every_mistake_is_named() {
        let mut arguments = arguments("{\"a\": 5, \"b\": [], \"other\": 1}");
        arguments.text("a");
        arguments.text("missing");
        assert_eq!(arguments.optional_text("b"), None);
        assert_eq!(
            arguments.done().unwrap_err().to_string(),
            "`a` must be a string, got 5; `missing` is required and must be a string; \
             `b` must be a string or null, got []"
        );
    }

    #[test]
    fn absent_and_null_mean_no_arguments_and_anything_else_must_be_an_object() {
        assert!(Arguments::parse(None).done().is_ok());
        assert!(arguments("null").done().is_ok());
        assert!(arguments("[]").done().is_err());
    }

    fn mistake(arguments: Arguments) -> String {
        arguments.done().unwrap_err().to_string()
    }

    #[test]
    fn flags_are_read_as_loosely_as_numbers() {
        for (json, expected) in
            [("true", true), ("\"Yes\"", true), ("1", true), ("0.0", false), ("null", false)]
        {
            let mut given = arguments(&format!("{{\"full\": {json}}}"));
            assert_eq!((given.flag("full"), given.done().is_ok()), (expected, true), "{json}");
        }
        let mut odd = arguments("{\"full\": \"maybe\"}");
        assert!(!odd.flag("full"));
        assert_eq!(mistake(odd), "`full` must be true or false, got \"maybe\"");
    }

    #[test]
    fn message_ids_are_texts_or_numbers() {
        for (json, expected) in [("\"17\"", Some(17)), ("17", Some(17)), ("\"\"", None), ("null", None)] {
            let mut given = arguments(&format!("{{\"before\": {json}}}"));
            assert_eq!((given.message_id("before"), given.done().is_ok()), (expected, true), "{json}");
        }
        for json in ["\"newest\"", "1.5", "true", "[]"] {
            let mut odd = arguments(&format!("{{\"before\": {json}}}"));
            assert_eq!(odd.message_id("before"), None);
            assert!(mistake(odd).starts_with("`before` must be the id of a message"), "{json}");
        }
    }

    #[test]
    fn words_come_as_a_list_or_with_commas_and_unknown_ones_are_named_with_the_known() {
        let known = ["user", "tool"];
        for json in ["[\"user\", \"tool\"]", "\"User, tool\""] {
            let mut given = arguments(&format!("{{\"roles\": {json}}}"));
            assert_eq!(given.words("roles", &known), known, "{json}");
            assert!(given.done().is_ok());
        }
        for json in ["[]", "\"\"", "null"] {
            assert!(arguments(&format!("{{\"roles\": {json}}}")).words("roles", &known).is_empty());
        }
        let mut odd = arguments("{\"roles\": [\"robot\", 5]}");
        odd.words("roles", &known);
        assert_eq!(mistake(odd), "`roles` takes user, tool, got \"robot\"; `roles` takes user, tool, got 5");
    }

    #[test]
    fn times_are_numbers_or_what_the_reader_of_texts_understands() {
        let read = |text: &str| (text == "noon").then_some(7.0);
        for (json, expected) in
            [("5.5", Some(5.5)), ("\"5.5\"", Some(5.5)), ("\"noon\"", Some(7.0)), ("\" \"", None)]
        {
            let mut given = arguments(&format!("{{\"at\": {json}}}"));
            assert_eq!((given.time("at", read), given.done().is_ok()), (expected, true), "{json}");
        }
        for json in ["\"nan\"", "\"soon\"", "true"] {
            let mut odd = arguments(&format!("{{\"at\": {json}}}"));
            assert_eq!(odd.time("at", read), None, "{json}");
            assert!(mistake(odd).starts_with("`at` must be a time like"), "{json}");
        }
    }

    proptest! {
        #[test]
        fn any_integer_lands_inside_the_range(number in any::<i64>()) {
            let expected = number.clamp(1, 200);
            prop_assert_eq!(limit(&number.to_string()), Ok(expected));
            prop_assert_eq!(limit(&format!("\"{number}\"")), Ok(expected));
        }

        #[test]
        fn any_text_is_a_number_or_a_named_mistake(text in ".*") {
            let _ = limit(&Value::from(text).to_string());
        }
    }
}
