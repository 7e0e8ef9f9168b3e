//! The two permission tools of the built-in server: what waits, and deciding about it.
//!
//! Promise: a client sees only calls of servers that its profile shows, with masked arguments; the
//! session whose call waits, and any process below a guard, cannot decide.

use super::steps::{ADMIN, CallPath};
use super::{Caller, ToolCall};
use crate::jsonrpc::reply::Reply;
use crate::jsonrpc::splice;
use crate::policy::approvals::{Decision, Judge};
use crate::process::table;
use serde_json::{Value, json};
use std::time::Instant as StdInstant;
use tokio::time::Instant;

/// Steps up the tree of processes before giving up.
const MAX_ANCESTORS: usize = 64;

/// Whether `name` is one of the two.
pub(super) fn is_one(name: &str) -> bool {
    matches!(name, "permissions_list_open" | "permissions_respond")
}

/// Answers `permissions_list_open` and `permissions_respond`; `None` for every other tool.
pub(super) async fn call(path: &CallPath, caller: &Caller, name: &str, call: &ToolCall) -> Option<Reply> {
    let answer = match name {
        "permissions_list_open" => Ok(list(path, caller)),
        "permissions_respond" => respond(path, caller, call).await,
        _ => return None,
    };
    Some(Reply::Result(splice::raw(&match answer {
        Ok(object) => json!({
            "content": [{ "type": "text", "text": format!("{object:#}") }],
            "structuredContent": object,
            "isError": false,
        }),
        Err(text) => {
            let object = json!({ "error": text });
            json!({
                "content": [{ "type": "text", "text": object.to_string() }],
                "structuredContent": object,
                "isError": true,
            })
        }
    })))
}

fn list(path: &CallPath, caller: &Caller) -> Value {
    let now: StdInstant = Instant::now().into_std();
    let shown = |(id, open): (u64, crate::policy::approvals::Open)| {
        caller.view.tool_of(open.bound.server.as_str(), open.bound.tool.as_str())?;
        Some(json!({
            "id": id.to_string(),
            "server": open.bound.server.as_str(),
            "tool": open.bound.tool.as_str(),
            "arguments": open.shown.arguments,
            "client": open.shown.client,
            "created_at": open.shown.created_ms as f64 / 1000.0,
            "expires_in_s": open.expires.saturating_duration_since(now).as_secs(),
        }))
    };
    let approvals: Vec<Value> = path.waiting().into_iter().filter_map(shown).collect();
    json!({ "count": approvals.len(), "approvals": approvals })
}

async fn respond(path: &CallPath, caller: &Caller, call: &ToolCall) -> Result<Value, String> {
    let arguments: Value = serde_json::from_str(call.upstream.arguments_text()).unwrap_or(Value::Null);
    let mut mistakes = Vec::new();
    let mut word = |name: &str| match &arguments[name] {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => {
            mistakes.push(format!("`{name}` is required and must be a string"));
            String::new()
        }
    };
    let (id, decision) = (word("id"), word("decision"));
    if !mistakes.is_empty() {
        return Err(format!("invalid arguments for permissions_respond: {}", mistakes.join("; ")));
    }
    let decided = Decision::named(&decision)
        .ok_or_else(|| format!("Invalid decision: {decision}. Must be allow-once, allow-always, or deny"))?;
    let visible = |(number, open): &(u64, crate::policy::approvals::Open)| {
        number.to_string() == id
            && caller.view.tool_of(open.bound.server.as_str(), open.bound.tool.as_str()).is_some()
    };
    if !path.waiting().iter().any(visible) {
        return Err(format!("Approval not found: {id}"));
    }
    if caller.identity.uid.is_none() && caller.client != ADMIN {
        return Err("approvals cannot be answered over HTTP, where nobody knows which program asks; use \
                    `hermesctl approvals respond`, or a client that is started with `hermesctl mcp serve`"
            .to_owned());
    }
    if let Some(pid) = caller.identity.pid
        && is_below_daemon(pid).await
    {
        return Err("a process below an MCP server cannot answer approvals".to_owned());
    }
    let judge = if caller.client == ADMIN { Judge::Operator } else { Judge::Client(caller.client) };
    let by = caller.identity.name.clone().unwrap_or_default();
    path.respond(&id, decided, judge, &by).await.map_err(|error| error.to_string())?;
    Ok(json!({ "resolved": true, "approval_id": id, "decision": decision }))
}

/// Whether `pid` descends from this daemon: then an MCP server started it, at whatever remove.
pub async fn is_below_daemon(pid: u32) -> bool {
    let look = move || {
        let own = table::own_pid();
        let mut at = pid;
        for _ in 0..MAX_ANCESTORS {
            match table::one(at) {
                Some(process) if process.ppid == own => return true,
                Some(process) if process.ppid > 1 => at = process.ppid,
                Some(_) => return false,
                // It ended while we looked: nobody knows where it came from.
                None => return true,
            }
        }
        true
    };
    tokio::task::spawn_blocking(look).await.unwrap_or(true)
}
