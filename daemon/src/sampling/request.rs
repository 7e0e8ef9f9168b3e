//! `sampling/createMessage` as the chat completion that asks a model the same.
//!
//! Pure. Promise: nothing that a model could see is dropped silently: what has no counterpart in chat
//! completions is refused. Names of tools are respelled where that API is narrower, and spelled back.
//! May not touch: limits, the network.

use super::budget::Tools;
use super::error::SamplingError;
use crate::catalog::schema;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Longest name of a function.
const NAME: usize = 64;
/// Most stop sequences that chat completions take.
const STOPS: usize = 4;

/// One request, as the provider understands it.
#[derive(Debug, Clone)]
pub(super) struct Chat {
    messages: Vec<Value>,
    functions: Vec<Value>,
    choice: Option<&'static str>,
    temperature: Option<Value>,
    stop: Vec<Value>,
    names: Names,
}

/// What limits look at, whoever answers.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// Names in `modelPreferences.hints`.
    pub(super) hints: Vec<String>,
    /// `maxTokens`.
    pub(super) max_tokens: Option<u64>,
    /// Whether tools are offered.
    pub(super) tools: Tools,
    /// Rounds of tool use at the end of the messages.
    pub(super) rounds: u32,
    /// Digest of the opening.
    pub(super) opening: [u8; 32],
}

/// How the answer's length is limited: newer models refuse the older name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// `max_tokens`.
    Old,
    /// `max_completion_tokens`.
    New,
}

impl Limit {
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Old => "max_tokens",
            Self::New => "max_completion_tokens",
        }
    }
}

/// Names of tools and what the provider calls them.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    theirs: BTreeMap<String, String>,
    ours: BTreeMap<String, String>,
}

impl Names {
    /// The provider's name for `tool`, unique.
    fn respell(&mut self, tool: &str) -> String {
        if let Some(known) = self.theirs.get(tool) {
            return known.clone();
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let plain: String = tool.chars().map(|c| if fits(c) { c } else { '_' }).take(NAME).collect();
        let plain = if plain.is_empty() { "tool".to_owned() } else { plain };
        let mut name = plain.clone();
        let mut number = 2;
        while self.ours.contains_key(&name) {
            let suffix = format!("_{number}");
            name = format!("{}{suffix}", &plain[..plain.len().min(NAME - suffix.len())]);
            number += 1;
        }
        self.ours.insert(name.clone(), tool.to_owned());
        self.theirs.insert(tool.to_owned(), name.clone());
        name
    }

    /// The server's name for what the model called.
    pub(super) fn original<'a>(&'a self, name: &'a str) -> &'a str {
        self.ours.get(name).map_or(name, String::as_str)
    }
}

fn unusable(reason: impl Into<String>) -> SamplingError {
    SamplingError::Params { reason: reason.into() }
}

impl Chat {
    /// Reads the params of a request.
    ///
    /// # Errors
    /// [`SamplingError::Params`] with the member that cannot be used.
    pub(super) fn read(params: &Value) -> Result<Self, SamplingError> {
        let said = said(params)?;
        let mut names = Names::default();
        let functions = functions(&params["tools"], &mut names)?;
        let mut messages = Vec::with_capacity(said.len() + 1);
        if let Some(system) = params["systemPrompt"].as_str().filter(|text| !text.is_empty()) {
            messages.push(json!({ "role": "system", "content": system }));
        }
        for message in said {
            let blocks = blocks(&message["content"]).ok_or_else(|| unusable("a message has no `content`"))?;
            match message["role"].as_str() {
                Some("user") => user(&blocks, &mut messages)?,
                Some("assistant") => messages.push(assistant(&blocks, &mut names)?),
                Some(_) | None => return Err(unusable("a message has no role `user` or `assistant`")),
            }
        }
        let choice = match params["toolChoice"]["mode"].as_str() {
            Some("auto") => Some("auto"),
            Some("required") => Some("required"),
            Some("none") => Some("none"),
            Some(_) => return Err(unusable("`toolChoice.mode` is none of auto, required, none")),
            None => None,
        };
        let stop = params["stopSequences"].as_array().into_iter().flatten().filter(|stop| stop.is_string());
        Ok(Self {
            messages,
            choice: choice.filter(|_| !functions.is_empty()),
            functions,
            temperature: Some(params["temperature"].clone()).filter(Value::is_number),
            stop: stop.take(STOPS).cloned().collect(),
            names,
        })
    }

    /// Names of tools, to read the answer with.
    pub(super) fn names(&self) -> &Names {
        &self.names
    }

    /// The body of the request to the provider.
    pub(super) fn body(&self, model: Option<&str>, max_tokens: u32, limit: Limit) -> Vec<u8> {
        let mut body = Map::new();
        if let Some(model) = model {
            body.insert("model".into(), model.into());
        }
        body.insert("messages".into(), Value::Array(self.messages.clone()));
        body.insert(limit.key().into(), max_tokens.into());
        if let Some(temperature) = &self.temperature {
            body.insert("temperature".into(), temperature.clone());
        }
        if !self.stop.is_empty() {
            body.insert("stop".into(), Value::Array(self.stop.clone()));
        }
        if !self.functions.is_empty() {
            body.insert("tools".into(), Value::Array(self.functions.clone()));
        }
        if let Some(choice) = self.choice {
            body.insert("tool_choice".into(), choice.into());
        }
        body.insert("stream".into(), false.into());
        serde_json::to_vec(&body).expect("JSON values serialise")
    }
}

impl Facts {
    /// Reads what limits look at; whether the rest is usable, a client may see for itself.
    pub(super) fn of(params: &Value) -> Self {
        let said = params["messages"].as_array().map_or(&[][..], Vec::as_slice);
        let hints = params["modelPreferences"]["hints"].as_array().into_iter().flatten();
        let mut opening = Sha256::new();
        opening.update(said.first().map(Value::to_string).unwrap_or_default());
        opening.update([0]);
        opening.update(params["systemPrompt"].as_str().unwrap_or_default());
        Self {
            hints: hints.filter_map(|hint| hint["name"].as_str()).map(str::to_owned).collect(),
            max_tokens: whole(&params["maxTokens"]),
            tools: match params["tools"].as_array() {
                Some(tools) if !tools.is_empty() => Tools::Offered,
                Some(_) | None => Tools::None,
            },
            rounds: rounds(said),
            opening: opening.finalize().into(),
        }
    }
}

/// The params as a value.
///
/// # Errors
/// [`SamplingError::Params`]: nested too deeply.
pub(super) fn parse(params: &RawValue) -> Result<Value, SamplingError> {
    serde_json::from_str(params.get()).map_err(|_| unusable("it is nested too deeply"))
}

fn said(params: &Value) -> Result<&[Value], SamplingError> {
    let said = params["messages"].as_array().ok_or_else(|| unusable("`messages` is no list"))?;
    if said.is_empty() { Err(unusable("`messages` is empty")) } else { Ok(said) }
}

/// A number of tokens, however it is written.
fn whole(number: &Value) -> Option<u64> {
    // A negative number asks for as little as possible.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    number.as_u64().or_else(|| number.as_f64().map(|n| n as u64))
}

/// Answers with tools since the user last said something of its own.
fn rounds(said: &[Value]) -> u32 {
    let mut rounds: u32 = 0;
    for message in said.iter().rev() {
        let kinds = blocks(&message["content"]).unwrap_or_default();
        let any = |kind: &str| kinds.iter().any(|block| block["type"] == kind);
        match message["role"].as_str() {
            Some("assistant") if any("tool_use") => rounds = rounds.saturating_add(1),
            Some("user") if any("tool_result") => {}
            _ => break,
        }
    }
    rounds
}

/// One block or a list of them.
fn blocks(content: &Value) -> Option<Vec<&Value>> {
    match content {
        Value::Array(blocks) => Some(blocks.iter().collect()),
        Value::Object(_) => Some(vec![content]),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn functions(tools: &Value, names: &mut Names) -> Result<Vec<Value>, SamplingError> {
    if tools.is_null() {
        return Ok(Vec::new());
    }
    let tools = tools.as_array().ok_or_else(|| unusable("`tools` is no list"))?;
    let one = |tool: &Value| {
        let name = tool["name"].as_str().ok_or_else(|| unusable("a tool has no `name`"))?;
        let mut function = Map::new();
        function.insert("name".into(), names.respell(name).into());
        if let Some(text) = tool["description"].as_str() {
            function.insert("description".into(), text.into());
        }
        function.insert("parameters".into(), parameters(&tool["inputSchema"])?);
        Ok(json!({ "type": "function", "function": function }))
    };
    tools.iter().map(one).collect()
}

/// The schema in the form that model APIs take.
fn parameters(given: &Value) -> Result<Value, SamplingError> {
    let raw = crate::jsonrpc::splice::raw(given);
    let repaired = schema::repair(Some(&raw)).map_err(|error| unusable(error.to_string()))?;
    Ok(serde_json::from_str(repaired.schema.get()).expect("a repaired schema is JSON"))
}

/// What the user said: results of tools first, each a message of its own, then the rest.
fn user(blocks: &[&Value], out: &mut Vec<Value>) -> Result<(), SamplingError> {
    let mut rest = Vec::new();
    for block in blocks {
        if block["type"] == "tool_result" {
            let (text, seen) = result(block)?;
            let id = block["toolUseId"].as_str().ok_or_else(|| unusable("a result has no `toolUseId`"))?;
            out.push(json!({ "role": "tool", "tool_call_id": id, "content": text }));
            rest.extend(seen);
        } else {
            rest.push(part(block)?);
        }
    }
    if !rest.is_empty() {
        out.push(json!({ "role": "user", "content": content(rest) }));
    }
    Ok(())
}

/// A result of a tool as text, and what of it can only be seen or heard: messages of tools are text alone.
fn result(block: &Value) -> Result<(String, Vec<Value>), SamplingError> {
    let mut texts: Vec<String> = Vec::new();
    let mut seen = Vec::new();
    for inner in blocks(&block["content"]).unwrap_or_default() {
        match inner["type"].as_str() {
            Some("resource_link") => {
                let named = [&inner["name"], &inner["uri"]].map(|text| text.as_str().unwrap_or_default());
                texts.push(named.join(" ").trim().to_owned());
            }
            Some("resource") => match inner["resource"]["text"].as_str() {
                Some(text) => texts.push(text.to_owned()),
                None => texts.push(inner["resource"]["uri"].as_str().unwrap_or_default().to_owned()),
            },
            Some("image" | "audio") => seen.push(part(inner)?),
            _ => texts.push(inner["text"].as_str().ok_or_else(|| kind(inner))?.to_owned()),
        }
    }
    // The two say the same where a server gives both.
    if texts.is_empty() && !block["structuredContent"].is_null() {
        texts.push(block["structuredContent"].to_string());
    }
    let text = texts.join("\n");
    let text = if block["isError"] == true { format!("error: {text}") } else { text };
    Ok((text, seen))
}

fn assistant(blocks: &[&Value], names: &mut Names) -> Result<Value, SamplingError> {
    let (mut parts, mut calls) = (Vec::new(), Vec::new());
    for block in blocks {
        if block["type"] != "tool_use" {
            parts.push(part(block)?);
            continue;
        }
        let id = block["id"].as_str().ok_or_else(|| unusable("a use of a tool has no `id`"))?;
        let name = block["name"].as_str().ok_or_else(|| unusable("a use of a tool has no `name`"))?;
        let arguments = if block["input"].is_object() { block["input"].to_string() } else { "{}".to_owned() };
        let function = json!({ "name": names.respell(name), "arguments": arguments });
        calls.push(json!({ "id": id, "type": "function", "function": function }));
    }
    let content = if parts.is_empty() { Value::Null } else { content(parts) };
    let mut message = json!({ "role": "assistant", "content": content });
    if !calls.is_empty() {
        message["tool_calls"] = Value::Array(calls);
    }
    Ok(message)
}

/// Plain text where there is nothing else: not every provider knows parts.
fn content(mut parts: Vec<Value>) -> Value {
    if parts.len() == 1 && parts[0]["type"] == "text" {
        return parts[0]["text"].take();
    }
    Value::Array(parts)
}

fn part(block: &Value) -> Result<Value, SamplingError> {
    let text = |key: &str| block[key].as_str().ok_or_else(|| unusable(format!("a block has no `{key}`")));
    match block["type"].as_str() {
        Some("text") => Ok(json!({ "type": "text", "text": text("text")? })),
        Some("image") => {
            let url = format!("data:{};base64,{}", text("mimeType")?, text("data")?);
            Ok(json!({ "type": "image_url", "image_url": { "url": url } }))
        }
        Some("audio") => {
            let format = match text("mimeType")? {
                "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
                "audio/mpeg" | "audio/mp3" => "mp3",
                other => return Err(unusable(format!("audio of type `{other}` cannot be passed on"))),
            };
            Ok(json!({ "type": "input_audio", "input_audio": { "data": text("data")?, "format": format } }))
        }
        _ => Err(kind(block)),
    }
}

fn kind(block: &Value) -> SamplingError {
    let kind = block["type"].as_str().unwrap_or("none");
    unusable(format!("a block of type `{kind}` cannot be passed on here"))
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
