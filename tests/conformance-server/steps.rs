//! Pure: what a tool or prompt comes to with what is given so far: its result, or what it needs first.
//!
//! Names and texts are those that the conformance suite looks for.

use crate::lists;
use rmcp::ErrorData;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What the client has given so far.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// Its answers, by key.
    pub(crate) responses: BTreeMap<String, Value>,
    /// The state of the round before.
    pub(crate) state: Option<String>,
}

/// A question to the client.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) method: &'static str,
    pub(crate) params: Value,
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Step {
    /// The result.
    Done(Value),
    /// These questions first.
    Needs {
        /// By key.
        wanted: Vec<(String, Wanted)>,
        /// To be given back with the answers.
        state: Option<String>,
    },
}

/// A result of one text.
pub(crate) fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

/// A failed result.
pub(crate) fn failed(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }], "isError": true })
}

fn form(message: &str, properties: Value, required: &[&str]) -> Wanted {
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    Wanted {
        method: "elicitation/create",
        params: json!({ "mode": "form", "message": message, "requestedSchema": schema }),
    }
}

fn sample(prompt: &str, most: u32) -> Wanted {
    let message = json!({ "role": "user", "content": { "type": "text", "text": prompt } });
    Wanted { method: "sampling/createMessage", params: json!({ "messages": [message], "maxTokens": most }) }
}

fn roots() -> Wanted {
    Wanted { method: "roots/list", params: json!({}) }
}

fn name_form(message: &str) -> Wanted {
    form(message, json!({ "name": { "type": "string" } }), &["name"])
}

/// Asks until every key has a usable answer; then `done` makes the result of them.
fn once(
    given: &Given,
    state: Option<&str>,
    wanted: Vec<(&str, Wanted)>,
    done: impl FnOnce(&dyn Fn(&str) -> Value) -> Value,
) -> Result<Step, ErrorData> {
    if let (Some(expected), Some(came)) = (state, &given.state)
        && expected != came
    {
        return Err(ErrorData::invalid_params("requestState is not what was given out", None));
    }
    let answered = |key: &str| given.responses.get(key).is_some_and(Value::is_object);
    let restated = state.is_none() || given.state.is_some();
    if restated && wanted.iter().all(|(key, _)| answered(key)) {
        return Ok(Step::Done(done(&|key| given.responses[key].clone())));
    }
    let wanted = wanted.into_iter().map(|(key, one)| (key.to_owned(), one)).collect();
    Ok(Step::Needs { wanted, state: state.map(ToOwned::to_owned) })
}

/// What `name` comes to; `can` says which requests the client answers.
///
/// # Errors
/// It does not exist, or the state is not its own.
pub(crate) fn step(
    name: &str,
    arguments: &Value,
    given: &Given,
    can: &dyn Fn(&str) -> bool,
) -> Result<Step, ErrorData> {
    if let Some(result) = lists::plain(name, arguments) {
        return Ok(Step::Done(result));
    }
    let argument = |key: &str| arguments[key].as_str().unwrap_or_default().to_owned();
    match name {
        "test_sampling" => once(given, None, vec![("llm", sample(&argument("prompt"), 100))], |of| {
            text(&format!("LLM response: {}", of("llm")["content"]["text"].as_str().unwrap_or_default()))
        }),
        "test_elicitation" | "test_streaming_elicitation" => {
            let properties = json!({
                "username": { "type": "string", "description": "User's response" },
                "email": { "type": "string", "description": "User's email address" },
            });
            let question = form(&argument("message"), properties, &["username", "email"]);
            once(given, None, vec![("user", question)], |of| text(&format!("User response: {}", of("user"))))
        }
        "test_elicitation_sep1034_defaults" => {
            let question = form("Please check these values", lists::defaults(), &[]);
            once(given, None, vec![("values", question)], completed)
        }
        "test_elicitation_sep1330_enums" => {
            let question = form("Please choose", lists::choices(), &[]);
            once(given, None, vec![("values", question)], completed)
        }
        "test_missing_capability" => {
            once(given, None, vec![("llm", sample("anything", 10))], |_| text("the client has sampling"))
        }
        "test_input_required_result_elicitation" => {
            once(given, None, vec![("user_name", name_form("What is your name?"))], |of| {
                text(&format!("Hello, {}!", of("user_name")["content"]["name"].as_str().unwrap_or_default()))
            })
        }
        "test_input_required_result_sampling" => once(
            given,
            None,
            vec![("capital_question", sample("What is the capital of France?", 100))],
            |of| text(of("capital_question")["content"]["text"].as_str().unwrap_or_default()),
        ),
        "test_input_required_result_list_roots" => once(given, None, vec![("client_roots", roots())], |of| {
            text(&of("client_roots")["roots"].to_string())
        }),
        "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => {
            let question = form("Please confirm", json!({ "ok": { "type": "boolean" } }), &["ok"]);
            once(given, Some("state-of-one-round"), vec![("confirm", question)], |_| text("state-ok"))
        }
        "test_input_required_result_multiple_inputs" => {
            let wanted = vec![
                ("user_name", name_form("What is your name?")),
                ("greeting", sample("Generate a greeting", 50)),
                ("client_roots", roots()),
            ];
            once(given, Some("state-of-three-questions"), wanted, |of| {
                let all = ["user_name", "greeting", "client_roots"].map(|key| of(key).to_string());
                text(&all.join("; "))
            })
        }
        "test_input_required_result_multi_round" => rounds(given),
        "test_input_required_result_capabilities" => {
            let all = [("name", name_form("What is your name?")), ("llm", sample("Say something", 50))];
            let wanted: Vec<(&str, Wanted)> = all.into_iter().filter(|(_, one)| can(one.method)).collect();
            once(given, None, wanted, |_| text("as far as the client can"))
        }
        "test_input_required_result_prompt" => {
            let properties = json!({ "context": { "type": "string" } });
            let question = form("What context should the prompt use?", properties, &["context"]);
            once(given, None, vec![("user_context", question)], |of| {
                let said = of("user_context")["content"]["context"].as_str().unwrap_or_default().to_owned();
                json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": format!("Context: {said}") } }] })
            })
        }
        _ => Err(ErrorData::invalid_params(format!("there is no `{name}`"), None)),
    }
}

fn completed(of: &dyn Fn(&str) -> Value) -> Value {
    let answer = of("values");
    let action = answer["action"].as_str().unwrap_or_default();
    text(&format!("Elicitation completed: action={action}, content={}", answer["content"]))
}

/// Two questions, the second after the answer to the first.
fn rounds(given: &Given) -> Result<Step, ErrorData> {
    const FIRST: &str = "state-before-step1";
    const SECOND: &str = "state-before-step2";
    let question = |key: &str, message: &str, field: &str, state: &str| Step::Needs {
        wanted: vec![(key.to_owned(), form(message, json!({ field: { "type": "string" } }), &[field]))],
        state: Some(state.to_owned()),
    };
    let first = || question("step1", "Step 1: What is your name?", "name", FIRST);
    let second = || question("step2", "Step 2: What is your favorite color?", "color", SECOND);
    let answered = |key: &str| given.responses.get(key).is_some_and(Value::is_object);
    match given.state.as_deref() {
        None => Ok(first()),
        Some(FIRST) => Ok(if answered("step1") { second() } else { first() }),
        Some(SECOND) => Ok(if answered("step2") { Step::Done(text("all steps done")) } else { second() }),
        Some(_) => Err(ErrorData::invalid_params("requestState is not what was given out", None)),
    }
}
