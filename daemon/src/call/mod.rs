//! The path of a call: every step between "a client asks" and "a server answers", in one place.
//!
//! Owner: nobody; the future runs inside the session that asked, so dropping the session drops the
//! call, which cancels it at the server. Promise: each call ends in exactly one [`Reply`]; every
//! way out after the breaker's permit reports to the breaker; nothing is sent twice.
//! May touch: handles of servers. May not touch: sockets, processes.

pub mod error;
pub mod result;
pub mod retry;
pub mod route;
pub mod trace;
pub mod validate;

use crate::catalog::snapshot::{Origin, Tool, View};
use crate::conversations::Conversations;
use crate::jsonrpc::reply::{INVALID_PARAMS, Reply};
use crate::names::{ClientId, RawTool, ServerName};
use crate::server::Servers;
use crate::server::breaker::Outcome;
use crate::server::handle::ServerHandle;
use crate::server::wire::{Answer, CallEvent, InFlight, Progress, Request, WireError};
use error::CallError;
use serde_json::value::RawValue;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use trace::Trace;

/// What the road needs to know of the rest of the daemon.
#[derive(Debug)]
pub struct CallPath {
    /// Handles of all servers.
    pub servers: watch::Receiver<Arc<Servers>>,
    /// The built-in server `hermes`.
    pub conversations: Conversations,
}

/// Who asks.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The client, for fair queues.
    pub client: ClientId,
    /// What it may see.
    pub view: Arc<View>,
}

/// One call as a client made it, read once.
#[derive(Debug)]
pub struct ToolCall {
    /// The exposed name.
    pub name: String,
    /// What the server gets, but for its own name of the tool and the progress token.
    pub upstream: route::Upstream,
    /// The client's progress token, raw, if it gave one.
    pub progress_token: Option<Box<RawValue>>,
    /// Where it is in a trace.
    pub trace: Trace,
    /// Set before the call's future is dropped, when the client gave a reason.
    pub cancel_reason: Arc<OnceLock<String>>,
    /// Idle limit instead of the server's own.
    pub timeout: Option<Duration>,
}

impl ToolCall {
    /// The call of a request, with the server's own limits.
    pub fn of(request: route::Request) -> Self {
        let route::Request { name, upstream, progress_token, trace } = request;
        Self { name, upstream, progress_token, trace, cancel_reason: Arc::default(), timeout: None }
    }
}

/// Takes one call along the whole road.
///
/// Refusals and failures are results with `isError`, written for a model; JSON-RPC errors are for
/// unknown tools and for errors that the server itself sent.
///
/// # Cancel safety
/// Dropping the future cancels the call at its server, with the reason in `call.cancel_reason`.
pub async fn run_call<S>(path: &CallPath, caller: &Caller, call: ToolCall, progress: &S) -> Reply
where
    S: Fn(Box<RawValue>) + Sync,
{
    let trace = &call.trace;
    // Visible and routed are one lookup: what a view hides is not in its table.
    let Some(tool) = caller.view.tool(&call.name) else {
        return route::unknown(&caller.view, &call.name);
    };
    let started = Instant::now();
    let outcome = match &tool.origin {
        Origin::Conversations { .. } => Ok(call_builtin(path, tool, &call).await),
        Origin::Server { server, raw } => call_server(path, caller, server, raw, &call, progress).await,
    };
    let elapsed = started.elapsed();
    match outcome {
        Ok(reply) => {
            tracing::debug!(tool = %tool.name, trace = trace.id(), micros = elapsed.as_micros() as u64, "call answered");
            reply
        }
        Err(error) => {
            tracing::info!(tool = %tool.name, trace = trace.id(), ms = elapsed.as_millis() as u64, reason = error.kind(), "call failed");
            error.into_reply(tool.server(), trace.id())
        }
    }
}

async fn call_builtin(path: &CallPath, tool: &Tool, call: &ToolCall) -> Reply {
    match path.conversations.call(tool.name.as_str(), call.upstream.arguments()).await {
        Ok(answer) => Reply::Result(answer.json),
        Err(unknown) => Reply::error(INVALID_PARAMS, &unknown.to_string()),
    }
}

async fn call_server<S>(
    path: &CallPath,
    caller: &Caller,
    server: &ServerName,
    raw: &RawTool,
    call: &ToolCall,
    progress: &S,
) -> Result<Reply, CallError>
where
    S: Fn(Box<RawValue>) + Sync,
{
    let handle = path.servers.borrow().get(server).cloned().ok_or(CallError::Removed)?;
    let config = handle.config();
    let idle = call.timeout.unwrap_or(config.timeout);
    // Looked at first and taken last: an open breaker must not cost a place in the queue.
    handle.breaker().check(now())?;
    // Our own limits before the breaker's permit: a full queue must not be charged to the server.
    let _slot = handle.slots().acquire(caller.client, Instant::now() + idle).await?;
    let permit = handle.breaker().try_acquire(now())?;
    // From here on every way out reports to the breaker; dropping the permit counts as cancelled.
    let outcome = send(&handle, raw, call, idle, progress).await;
    permit.finish(breaker_outcome(&outcome, config.breaker.count_tool_errors), now());
    if matches!(outcome, Err(CallError::Wire(WireError::IdleTimeout { .. } | WireError::CapTimeout { .. }))) {
        // Slow or deaf? The supervisor finds out; this call is over either way.
        handle.check();
    }
    Ok(match outcome? {
        Answer::Result(result) => Reply::Result(result),
        Answer::Error(error) => Reply::Error(error),
    })
}

/// Makes sure of a live connection, sends, and passes progress on until the outcome is there.
async fn send<S>(
    handle: &ServerHandle,
    raw: &RawTool,
    call: &ToolCall,
    idle: Duration,
    progress: &S,
) -> Result<Answer, CallError>
where
    S: Fn(Box<RawValue>) + Sync,
{
    let wire = handle.ready(Instant::now() + idle).await?;
    let wanted = if call.progress_token.is_some() { Progress::Wanted } else { Progress::Unwanted };
    let (params, hole) = call.upstream.params(raw);
    let request = Request {
        method: "tools/call".into(),
        params: Some(params),
        idle,
        cap: handle.config().call_cap().max(idle),
        progress: wanted,
    };
    let mut sending =
        Sending { flight: Some(wire.request_with_hole(request, hole)?), reason: &call.cancel_reason };
    loop {
        match sending.next().await {
            CallEvent::Progress(params) => progress(params),
            CallEvent::Done(outcome) => return Ok(outcome?),
        }
    }
}

/// The breaker's clock.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}

/// A request under way that hands its client's reason to the server when it is dropped.
struct Sending<'a> {
    flight: Option<InFlight>,
    reason: &'a OnceLock<String>,
}

impl Sending<'_> {
    async fn next(&mut self) -> CallEvent {
        let flight = self.flight.as_mut().expect("taken only when dropped");
        let event = flight.next().await;
        if matches!(event, CallEvent::Done(_)) {
            // Over: nothing is left to cancel.
            self.reason.get_or_init(String::new);
        }
        event
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        // The wire notices a dropped flight by itself; this only adds the client's own words.
        if let (Some(flight), Some(reason)) =
            (self.flight.take(), self.reason.get().filter(|r| !r.is_empty()))
        {
            flight.cancel(reason);
        }
    }
}

fn breaker_outcome(outcome: &Result<Answer, CallError>, count_tool_errors: bool) -> Outcome {
    match outcome {
        Ok(Answer::Result(result)) if count_tool_errors && result::is_error(result) => Outcome::Failure,
        // Any answer is a sign of life.
        Ok(Answer::Result(_) | Answer::Error(_)) => Outcome::Success,
        Err(CallError::Wire(
            WireError::Gone { .. } | WireError::IdleTimeout { .. } | WireError::CapTimeout { .. },
        )) => Outcome::Failure,
        Err(CallError::NotReady(_)) => Outcome::Failure,
        Err(CallError::Wire(WireError::QueueFull { .. } | WireError::Malformed)) => Outcome::Neutral,
        Err(CallError::Removed | CallError::BreakerOpen(_) | CallError::Slot(_)) => Outcome::Neutral,
    }
}
