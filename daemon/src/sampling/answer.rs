//! A chat completion as the result of `sampling/createMessage`.
//!
//! Pure. Promise: what providers really send is understood (missing ids, text in parts, calls under another
//! finish reason); what is no answer is said to be none. May not touch: limits, the network.

use super::budget::Tools;
use super::error::ProviderError;
use super::request::Names;
use crate::jsonrpc::splice;
use crate::telemetry::metrics::Tokens;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// What the model said.
#[derive(Debug)]
pub(super) struct Answer {
    /// The result for the server.
    pub(super) result: Box<RawValue>,
    /// The model that answered, by its provider's word.
    pub(super) model: String,
    /// Whether it wants to use tools.
    pub(super) used: Tools,
    /// What it cost, where that was said.
    pub(super) tokens: Option<Tokens>,
}

/// Reads the body of a successful response; `asked` is the model that was asked for.
///
/// # Errors
/// [`ProviderError::NotChat`], [`ProviderError::Empty`].
pub(super) fn read(body: &[u8], asked: Option<&str>, names: &Names) -> Result<Answer, ProviderError> {
    let body: Value = serde_json::from_slice(body).map_err(|_| ProviderError::NotChat)?;
    let choices = body["choices"].as_array().ok_or(ProviderError::NotChat)?;
    let choice = choices.first().ok_or(ProviderError::Empty)?;
    let message = choice["message"].as_object().ok_or(ProviderError::NotChat)?;
    let text = text(message);
    let calls = calls(message, names);
    if text.is_none() && calls.is_empty() {
        return Err(ProviderError::Empty);
    }
    let used = if calls.is_empty() { Tools::None } else { Tools::Offered };
    let stop = match (used, choice["finish_reason"].as_str()) {
        (Tools::Offered, _) => "toolUse",
        (Tools::None, Some("length")) => "maxTokens",
        (Tools::None, Some("content_filter")) => "contentFilter",
        (Tools::None, Some(_) | None) => "endTurn",
    };
    let mut blocks: Vec<Value> = Vec::with_capacity(calls.len() + 1);
    // Words before a call are part of the answer; no words are not.
    blocks.extend(text.filter(|text| !text.is_empty() || calls.is_empty()).map(block));
    blocks.extend(calls);
    let model = body["model"].as_str().or(asked).unwrap_or("unknown").to_owned();
    let tokens = tokens(&body["usage"]);
    // Before 2025-11-25 the content is one block; a list is only written where it is needed.
    let content = if blocks.len() == 1 { blocks.remove(0) } else { Value::Array(blocks) };
    let mut result = json!({ "role": "assistant", "content": content, "model": model, "stopReason": stop });
    if let Some(Tokens { input, output }) = tokens {
        result["_meta"] = json!({ "hermes/usage": { "inputTokens": input, "outputTokens": output } });
    }
    Ok(Answer { result: splice::raw(&result), model, used, tokens })
}

fn block(text: String) -> Value {
    json!({ "type": "text", "text": text })
}

/// The words: plain, in parts, or those of a refusal.
fn text(message: &Map<String, Value>) -> Option<String> {
    match message.get("content") {
        Some(Value::String(text)) => return Some(text.clone()),
        Some(Value::Array(parts)) => {
            let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
            if !texts.is_empty() {
                return Some(texts.concat());
            }
        }
        _ => {}
    }
    message.get("refusal").and_then(Value::as_str).map(str::to_owned)
}

fn calls(message: &Map<String, Value>, names: &Names) -> Vec<Value> {
    let calls = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    let named = calls.filter_map(|call| call["function"]["name"].as_str().map(|name| (call, name)));
    named
        .enumerate()
        .map(|(at, (call, name))| {
            // Results are matched by it, and some providers give none.
            let id = call["id"].as_str().filter(|id| !id.is_empty());
            let id = id.map_or_else(|| format!("call_{at}"), str::to_owned);
            json!({
                "type": "tool_use",
                "id": id,
                "name": names.original(name),
                "input": input(&call["function"]["arguments"]),
            })
        })
        .collect()
}

/// The arguments; what is no JSON object is handed over under `_raw`.
fn input(arguments: &Value) -> Value {
    match arguments {
        Value::Object(_) => arguments.clone(),
        Value::String(text) if text.trim().is_empty() => json!({}),
        Value::String(text) => match serde_json::from_str::<Value>(text) {
            Ok(input @ Value::Object(_)) => input,
            Ok(_) | Err(_) => json!({ "_raw": text }),
        },
        Value::Null => json!({}),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => json!({ "_raw": arguments.to_string() }),
    }
}

fn tokens(usage: &Value) -> Option<Tokens> {
    let input = usage["prompt_tokens"].as_u64()?;
    Some(Tokens { input, output: usage["completion_tokens"].as_u64().unwrap_or(0) })
}

/// What a client answered, as far as limits look at it.
///
/// Returns the model and whether tools were used; `None`: it is no sampling result.
pub(super) fn of_client(result: &RawValue) -> Option<(String, Tools)> {
    let result: Value = serde_json::from_str(result.get()).ok()?;
    let model = result["model"].as_str()?.to_owned();
    let content = &result["content"];
    let is_use = |block: &Value| block["type"] == "tool_use";
    let used = match content {
        Value::Array(blocks) => blocks.iter().any(is_use),
        Value::Object(_) => is_use(content),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
    };
    Some((model, if used { Tools::Offered } else { Tools::None }))
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
