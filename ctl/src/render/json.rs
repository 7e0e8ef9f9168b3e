//! Answers of the daemon as JSON with stable, readable members.
//!
//! The messages serialise with their field names; here enum numbers become words and embedded JSON
//! texts become JSON. Members are only added from version to version.

use hermes_proto::control as pb;
use serde::Serialize;
use serde_json::{Map, Value};

/// `message` as JSON for a program.
pub fn of<T: Serialize>(message: &T) -> Value {
    let mut value = serde_json::to_value(message).expect("generated messages serialise");
    polish(&mut value);
    value
}

fn polish(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(polish),
        Value::Object(members) => polish_members(members),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn polish_members(members: &mut Map<String, Value>) {
    let names: Vec<String> = members.keys().cloned().collect();
    for name in names {
        let Some(member) = members.get_mut(&name) else { continue };
        let number = member.as_i64().and_then(|number| i32::try_from(number).ok());
        match (name.as_str(), number) {
            ("phase", Some(number)) => *member = phase_word(number).into(),
            ("state", Some(number)) => *member = breaker_word(number).into(),
            ("step", Some(number)) => *member = login_word(number).into(),
            ("severity", Some(number)) => *member = severity_word(number).into(),
            ("input_schema_json", _) => {
                let text = member.as_str().unwrap_or_default();
                let schema = serde_json::from_str(text).unwrap_or(Value::Null);
                members.remove(&name);
                members.insert("input_schema".to_owned(), schema);
            }
            _ => polish(member),
        }
    }
}

fn word(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_lowercase()
}

/// `ready`, `backing_off`, ... ; `unknown` for a phase of a newer daemon.
pub fn phase_word(number: i32) -> String {
    pb::Phase::try_from(number).map_or("unknown".to_owned(), |phase| word(phase.as_str_name(), "PHASE_"))
}

/// `closed`, `open`, `half_open`; `unknown` for a state of a newer daemon.
pub fn breaker_word(number: i32) -> String {
    pb::BreakerState::try_from(number)
        .map_or("unknown".to_owned(), |state| word(state.as_str_name(), "BREAKER_STATE_"))
}

/// `error`, `warning`, `info`; `unknown` for a severity of a newer daemon.
pub fn severity_word(number: i32) -> String {
    pb::Severity::try_from(number)
        .map_or("unknown".to_owned(), |severity| word(severity.as_str_name(), "SEVERITY_"))
}

/// `preparing`, `waiting`, `done`, `failed`; `unknown` for a step of a newer daemon.
pub fn login_word(number: i32) -> String {
    pb::LoginStep::try_from(number)
        .map_or("unknown".to_owned(), |step| word(step.as_str_name(), "LOGIN_STEP_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_enums_become_words_and_schemas_become_json() {
        let status = pb::ServerStatus {
            name: "fs".into(),
            phase: pb::Phase::BackingOff.into(),
            breaker: Some(pb::Breaker {
                state: pb::BreakerState::HalfOpen.into(),
                failures: 3,
                retry_in_ms: 0,
            }),
            ..Default::default()
        };
        let json = of(&status);
        assert_eq!(json["phase"], "backing_off");
        assert_eq!(json["breaker"]["state"], "half_open");
        let tool = pb::Tool { input_schema_json: r#"{"type":"object"}"#.into(), ..Default::default() };
        assert_eq!(of(&tool)["input_schema"]["type"], "object");
        assert!(of(&tool).get("input_schema_json").is_none());
    }
}
