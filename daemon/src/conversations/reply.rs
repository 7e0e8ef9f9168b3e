//! Answers and refusals of the ten tools, and how they become results of `tools/call`.
//!
//! Pure. Promise: a success carries the JSON as text and as the object itself; a refusal is a result
//! with `isError` and one text for the model.

use super::arguments::ArgumentError;
use super::db::DbError;
use super::send::Problem;
use crate::store::StoreError;
use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::time::Duration;

/// The result of one call.
#[derive(Debug, Clone)]
pub struct ToolReply {
    /// A `CallToolResult` without `resultType`, which only the newest revision knows.
    pub json: Box<RawValue>,
    /// Whether `json` says `isError: true`.
    pub is_error: bool,
}

/// Why a call was refused. The texts of the first group are the reference's, letter by letter.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// No such key in the index.
    #[error("Conversation not found: {session_key}")]
    NoConversation {
        /// As asked for.
        session_key: String,
    },
    /// The key of a single session, and the call does not say that it may be one.
    #[error("Conversation not found: {session_key}; a single session is read with `include_local`: true")]
    LocalNotAsked {
        /// As asked for.
        session_key: String,
    },
    /// The index has the key, but no session behind it.
    #[error("No session ID for this conversation")]
    NoSession,
    /// No such message in the conversation, or it was taken back.
    #[error("Message not found: {message_id}")]
    NoMessage {
        /// As asked for.
        message_id: String,
    },
    /// A message needs both.
    #[error("Both target and message are required")]
    NothingToSend,
    /// state.db could not be read.
    #[error("{}", database_text(.0))]
    Database(#[source] DbError),

    /// A message that was not sent, or not surely.
    #[error("{0}")]
    Unsent(Box<Problem>),

    /// The log of events could not be read.
    #[error("Event log unavailable: {0}; try again in a few seconds")]
    Events(#[source] StoreError),
    /// The arguments do not fit the tool.
    #[error("invalid arguments for {tool}: {error}")]
    Arguments {
        /// The tool that was called.
        tool: &'static str,
        /// What is wrong with them.
        error: ArgumentError,
    },
    /// Too many calls wait for the one reader.
    #[error("{waiting} conversation calls are already waiting, nothing was read; try again in a few seconds")]
    Crowded {
        /// The limit that was reached.
        waiting: usize,
    },
    /// The reader did not answer in time.
    #[error("the files of Hermes Agent did not answer within {} s; they may be on a disk that hangs", limit.as_secs())]
    Late {
        /// The limit that was reached.
        limit: Duration,
    },
    /// The reader ended in the middle of the call.
    #[error("the reader of Hermes Agent's files ended during the call; a repeat starts it again")]
    ReaderGone,
    /// No thread could be started.
    #[error("no thread for reading Hermes Agent's files: {0}")]
    NoReader(#[source] std::io::Error),
}

/// What the model reads about a database that could not be read.
fn database_text(error: &DbError) -> String {
    match error {
        DbError::Missing => "Session database unavailable".to_owned(),
        DbError::Locked(_) => {
            format!("Session database unavailable: {error}; try again in a few seconds")
        }
        DbError::Replaced => format!("Session database unavailable: {error}; try again in a few seconds"),
        DbError::Damaged(cause) | DbError::Open(cause) => {
            format!("Session database unavailable: {error} ({cause})")
        }
        DbError::Unreadable(cause) => format!("Session database unavailable: {error} ({cause})"),
        DbError::NoCopy(cause) => format!("Session database unavailable: {error} ({cause})"),
        DbError::Column(_) => format!(
            "Session database unavailable: {error}; Hermes Agent may be newer than this hermesd, or the file is not its"
        ),
        DbError::Query(cause) => format!("Failed to read messages: {cause}"),
    }
}

/// Makes the result of a call.
pub(super) fn render(answer: Result<Value, Refusal>) -> ToolReply {
    match answer {
        Ok(object) => {
            let text = pretty(&object);
            reply(CallToolResult::success(vec![ContentBlock::text(text)]), Some(object))
        }
        // The reference has no structured content either when it could not read the arguments.
        Err(refusal @ Refusal::Arguments { .. }) => {
            reply(CallToolResult::error(vec![ContentBlock::text(refusal.to_string())]), None)
        }
        Err(Refusal::Unsent(problem)) => {
            let object = Value::Object(problem.object());
            reply(CallToolResult::error(vec![ContentBlock::text(object.to_string())]), Some(object))
        }
        Err(refusal) => {
            let object = json!({ "error": refusal.to_string() });
            reply(CallToolResult::error(vec![ContentBlock::text(object.to_string())]), Some(object))
        }
    }
}

fn reply(mut result: CallToolResult, structured: Option<Value>) -> ToolReply {
    result.result_type = None;
    result.structured_content = structured;
    let json = serde_json::value::to_raw_value(&result).expect("a result of texts and JSON is JSON");
    ToolReply { json, is_error: result.is_error == Some(true) }
}

/// JSON with an indent of two, as the reference writes successes.
fn pretty(object: &Value) -> String {
    serde_json::to_string_pretty(object).expect("a JSON value is JSON")
}

/// An answer as the object that goes into the result.
pub(super) fn object(answer: &impl Serialize) -> Value {
    serde_json::to_value(answer).expect("answers have text keys and finite numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(answer: Result<Value, Refusal>) -> (Value, bool) {
        let reply = render(answer);
        (serde_json::from_str(reply.json.get()).unwrap(), reply.is_error)
    }

    #[test]
    fn a_success_has_the_same_object_as_text_and_as_structured_content() {
        let object = json!({"count": 1, "names": ["张伟"], "none": []});
        let (result, is_error) = rendered(Ok(object.clone()));
        assert!(!is_error);
        assert_eq!(result["structuredContent"], object);
        assert_eq!(
            result["content"],
            json!([{"type": "text", "text": "{\n  \"count\": 1,\n  \"names\": [\n    \"张伟\"\n  ],\n  \"none\": []\n}"}])
        );
        assert_eq!(result["isError"], json!(false));
        assert_eq!(result.get("resultType"), None);
    }

    #[test]
    fn a_refusal_is_an_error_result_and_not_a_protocol_error() {
        let (result, is_error) = rendered(Err(Refusal::NoConversation { session_key: "k\"".into() }));
        assert!(is_error);
        assert_eq!(result["isError"], json!(true));
        assert_eq!(result["structuredContent"], json!({"error": "Conversation not found: k\""}));
        assert_eq!(result["content"][0]["text"], json!("{\"error\":\"Conversation not found: k\\\"\"}"));
    }

    #[test]
    fn wrong_arguments_are_told_in_plain_text() {
        let error = ArgumentError { mistakes: vec!["`limit` must be a whole number".into()] };
        let (result, is_error) = rendered(Err(Refusal::Arguments { tool: "messages_read", error }));
        assert!(is_error);
        assert_eq!(result.get("structuredContent"), None);
        let text = "invalid arguments for messages_read: `limit` must be a whole number";
        assert_eq!(result["content"][0]["text"], json!(text));
    }
}
