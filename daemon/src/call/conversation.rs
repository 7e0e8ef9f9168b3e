//! Conversations as resources (`hermes://conversations/KEY`): reading one, and telling those who follow it.
//!
//! Promise: a resource holds what `messages_read` gives; who follows one hears of each change, at a
//! bounded rate, the last one always. May not touch: state.db.

use super::ToolCall;
use super::steps::CallPath;
use crate::catalog::native::CONVERSATIONS;
use crate::catalog::snapshot::{ItemKind, Tool};
use crate::conversations::watch::Change;
use crate::jsonrpc::reply::{INVALID_PARAMS, RESOURCE_NOT_FOUND, Reply};
use crate::jsonrpc::splice;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::broadcast;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// JSON-RPC 2.0, error object: an internal error.
const INTERNAL_ERROR: i32 = -32603;

/// Answers `resources/read` and `completion/complete` of a conversation; `None` for tools.
pub(super) async fn call(path: &CallPath, tool: &Tool, call: &ToolCall) -> Option<Reply> {
    match tool.kind {
        ItemKind::Resource => Some(read(path, tool, call).await),
        // Keys are long and many; conversations_list finds them.
        ItemKind::Completion => Some(Reply::Result(splice::raw(&json!({ "completion": { "values": [] } })))),
        ItemKind::Tool | ItemKind::Utility(_) | ItemKind::Prompt | ItemKind::Subscription => None,
    }
}

async fn read(path: &CallPath, tool: &Tool, call: &ToolCall) -> Reply {
    let key = tool.name.as_str().strip_prefix(CONVERSATIONS).unwrap_or_default();
    let arguments = splice::raw(&json!({ "session_key": key }));
    let answer = match path.around.conversations.call("messages_read", Some(&arguments)).await {
        Ok(answer) => answer,
        Err(unknown) => return Reply::error(INVALID_PARAMS, &unknown.to_string()),
    };
    let result: Value = serde_json::from_str(answer.json.get()).unwrap_or_default();
    let object = &result["structuredContent"];
    if answer.is_error {
        let text = object["error"].as_str().unwrap_or("the conversation cannot be read");
        let code =
            if text.starts_with("Conversation not found") { RESOURCE_NOT_FOUND } else { INTERNAL_ERROR };
        return Reply::error(code, text);
    }
    let content = json!({ "uri": call.name, "mimeType": "application/json", "text": format!("{object:#}") });
    Reply::Result(splice::raw(&json!({ "contents": [content] })))
}

/// Tells those who follow conversations of their changes, until `stop` or the end of the watcher.
///
/// # Cancel safety
/// Cancel safe: a change that is not passed on yet is lost with it.
pub async fn tell_followers(
    calls: Arc<CallPath>,
    mut changes: broadcast::Receiver<Change>,
    stop: CancellationToken,
) {
    loop {
        let news = calls.own_news();
        let due = news.due().map(Instant::from_std);
        let change = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            change = changes.recv() => change,
            () = async { tokio::time::sleep_until(due.expect("checked")).await }, if due.is_some() => {
                news.flush(Instant::now().into_std());
                continue;
            }
        };
        let now = Instant::now().into_std();
        match change {
            Ok(Change::Session(key)) => {
                news.updated(&splice::raw(&json!({ "uri": format!("{CONVERSATIONS}{key}") })), now);
            }
            // Which ones were missed nobody knows.
            Ok(Change::Everything) | Err(broadcast::error::RecvError::Lagged(_)) => news.all_updated(now),
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}
