//! The spans of a call: what they are called and what they say.
//!
//! Names and attributes follow OpenTelemetry's semantic conventions for MCP, version 0.1.0 of their own
//! repository; what is ours begins with `hermes.`. Promise: never arguments, results, URIs or texts of
//! errors. May not touch: what the call decides.
//!
//! ```text
//! tools/call mcp_fs_read      SERVER    from the shim's line to its answer; below the client's span
//! └ call                      INTERNAL  the road of the call
//!   ├ wait for approval       INTERNAL  only where it waits
//!   ├ wait for slot           INTERNAL
//!   ├ wait for server         INTERNAL  only where none is running
//!   └ tools/call read         CLIENT    one for each attempt; the server's parent
//! ```

use super::utility::client_method;
use super::{Caller, Target, ToolCall, result};
use crate::catalog::snapshot::{ItemKind, Tool};
use crate::config::TransportConfig;
use crate::jsonrpc::reply::Reply;
use crate::jsonrpc::splice::{self, Members};
use crate::names::RawTool;
use crate::server::handle::ServerHandle;
use crate::server::wire::Answer;
use crate::telemetry::traces::{Kind, Span, Tracer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;
use url::Url;

/// Which request of which session a call is.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Its id, as the client wrote it.
    pub id: Box<str>,
    /// The connection, unlike any other.
    pub session: Arc<str>,
    /// Negotiated MCP revision.
    pub revision: &'static str,
}

/// The span of the whole request; `item` is what it is about, if that is known.
pub(super) fn request(tracer: &Tracer, caller: &Caller, call: &ToolCall, item: Option<&Tool>) -> Span {
    let method = match call.target {
        Target::Tool => "tools/call",
        Target::Resource => "resources/read",
        Target::Subscription => "resources/subscribe",
        Target::Prompt => "prompts/get",
        Target::PromptCompletion | Target::TemplateCompletion => "completion/complete",
    };
    let named = item.filter(|item| has_name(item.kind)).map(|item| item.name.as_str());
    let mut span = tracer.begin(call.trace.origin(), Kind::Server, || titled(method, named));
    span.set("mcp.method.name", || method);
    about(&mut span, item.map(|item| item.kind), named);
    if let Some(asked) = &call.asked {
        span.set("jsonrpc.request.id", || {
            let text = serde_json::from_str::<&RawValue>(&asked.id).ok().and_then(splice::text);
            text.map_or_else(|| asked.id.to_string(), Cow::into_owned)
        });
        span.set("mcp.session.id", || asked.session.to_string());
        span.set("mcp.protocol.version", || asked.revision);
        span.set("network.transport", || "pipe");
    }
    span.set("hermes.profile", || caller.view.profile().to_string());
    if let Some(name) = &caller.identity.name {
        span.set("hermes.client.name", || name.clone());
    }
    if let Some(pid) = caller.identity.pid {
        span.set("hermes.shim.pid", || pid);
    }
    span
}

/// The request was answered with `reply`, which counts as `outcome`.
pub(super) fn answered(span: Span, outcome: &'static str, reply: &Reply) {
    match reply {
        Reply::Error(error) => refused(span, error),
        Reply::Result(_) if outcome == "ok" => span.end(),
        Reply::Result(_) => span.fail(outcome),
    }
}

/// The span of one attempt at the server.
pub(super) fn attempt(above: &Span, handle: &ServerHandle, tool: &Tool, raw: &RawTool, attempt: u32) -> Span {
    let method = match tool.kind {
        ItemKind::Utility(utility) => super::utility::server_method(utility),
        kind => client_method(kind),
    };
    let named = has_name(tool.kind).then(|| raw.as_str());
    let mut span = above.child(Kind::Client, || titled(method, named));
    span.set("mcp.method.name", || method);
    about(&mut span, Some(tool.kind), named);
    span.set("hermes.server", || handle.name().to_string());
    if attempt > 1 {
        span.set("hermes.attempt", || attempt);
    }
    if span.id().is_some() {
        if let Some(agreed) = &handle.status().borrow().agreed {
            span.set("mcp.protocol.version", || agreed.revision);
        }
        match &handle.config().transport {
            TransportConfig::Stdio(_) => span.set("network.transport", || "pipe"),
            TransportConfig::Http(http) => {
                span.set("network.transport", || "tcp");
                place(&mut span, &http.url);
            }
        }
    }
    span
}

/// The server has answered.
pub(super) fn replied(span: Span, answer: &Answer) {
    match answer {
        // Only who records has to look into the body.
        Answer::Result(body) if span.id().is_some() && result::is_error(body) => span.fail("tool_error"),
        Answer::Result(_) => span.end(),
        Answer::Error(error) => refused(span, error),
    }
}

fn refused(mut span: Span, error: &RawValue) {
    let code =
        Members::parse(error).ok().and_then(|members| members.get("code").map(|raw| raw.get().to_owned()));
    let code = code.unwrap_or_else(|| "rpc_error".to_owned());
    span.set("rpc.response.status_code", || code.clone());
    span.fail(code);
}

fn has_name(kind: ItemKind) -> bool {
    match kind {
        ItemKind::Tool | ItemKind::Utility(_) | ItemKind::Prompt => true,
        // URIs are endless, and say what was read.
        ItemKind::Resource | ItemKind::Subscription | ItemKind::Completion => false,
    }
}

fn titled(method: &'static str, name: Option<&str>) -> Cow<'static, str> {
    name.map_or(Cow::Borrowed(method), |name| format!("{method} {name}").into())
}

fn about(span: &mut Span, kind: Option<ItemKind>, name: Option<&str>) {
    span.set("rpc.system", || "jsonrpc");
    let Some(name) = name else { return };
    match kind {
        Some(ItemKind::Prompt) => span.set("gen_ai.prompt.name", || name.to_owned()),
        Some(ItemKind::Tool | ItemKind::Utility(_)) => {
            span.set("gen_ai.operation.name", || "execute_tool");
            span.set("gen_ai.tool.name", || name.to_owned());
        }
        Some(ItemKind::Resource | ItemKind::Subscription | ItemKind::Completion) | None => {}
    }
}

/// Host and port of a remote server; nothing else of its URL.
fn place(span: &mut Span, url: &str) {
    let Ok(url) = Url::parse(url) else { return };
    if let Some(host) = url.host_str() {
        span.set("server.address", || host.to_owned());
    }
    if let Some(port) = url.port_or_known_default() {
        span.set("server.port", || u32::from(port));
    }
}
