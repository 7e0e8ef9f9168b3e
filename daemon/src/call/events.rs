//! The two event tools of the built-in server, as one caller may see them.
//!
//! Promise: a client hears of approvals only for tools that its profile shows.

use super::steps::CallPath;
use super::{Caller, ToolCall};
use crate::conversations::events::Kind;
use crate::conversations::events_tools;
use crate::jsonrpc::reply::Reply;
use crate::store::KeptEvent;
use serde_json::Value;

/// Answers `events_poll` and `events_wait`; `None` for every other tool.
pub(super) async fn call(path: &CallPath, caller: &Caller, name: &str, call: &ToolCall) -> Option<Reply> {
    let shown = |event: &KeptEvent| shown(caller, event);
    let (store, stopping) = (&path.around.store, &path.around.stopping);
    let reply = events_tools::call(store, name, call.upstream.arguments(), &shown, stopping).await?;
    Some(Reply::Result(reply.json))
}

fn shown(caller: &Caller, event: &KeptEvent) -> bool {
    let approval = [Kind::ApprovalRequested, Kind::ApprovalResolved].map(Kind::word);
    if !approval.contains(&event.kind.as_str()) {
        return true;
    }
    let body: Value = serde_json::from_str(&event.body).unwrap_or_default();
    let named = body["server"].as_str().zip(body["tool"].as_str());
    named.is_some_and(|(server, tool)| caller.view.tool_of(server, tool).is_some())
}
