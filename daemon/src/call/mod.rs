//! The path of a call: every step between "a client asks" and "a server answers", in one place.
//!
//! Owner: nobody; the future runs inside the session that asked, so dropping the session drops the
//! call, which cancels it at the server. Promise: each call ends in exactly one [`Reply`]; every
//! way out after the breaker's permit reports to the breaker; nothing is sent twice.
//! May touch: handles of servers. May not touch: sockets, processes.

mod answer;
pub mod approval;
pub mod asked;
mod calendar;
pub mod conversation;
mod elicit;
pub mod error;
mod events;
pub mod follow;
mod input;
mod lapse;
pub mod peer;
pub mod permissions;
mod placement;
mod question;
mod record;
pub mod result;
pub mod retry;
pub mod route;
pub mod running;
pub mod seal;
mod sending;
mod spans;
mod steps;
pub mod suspended;
pub mod trace;
mod utility;
pub mod validate;

pub use spans::Asked;
pub use steps::{ADMIN, CallPath, Surroundings};

use crate::catalog::snapshot::{ItemKind, Origin, Tool, View};
use crate::config::BuiltinConfig;
use crate::jsonrpc::era::Era;
use crate::jsonrpc::reply::{INVALID_PARAMS, Reply};
use crate::names::ClientId;
use crate::server::breaker::{Outcome, Turn};
use crate::server::handle::ServerHandle;
use crate::server::news::hearer::Hearer;
use crate::server::wire::questions::Unasked;
use crate::server::wire::{Answer, WireError};
use crate::store;
use crate::telemetry::traces::Kind;
use answer::{Finish, Finished};
use approval::{Gated, Passed};
use error::CallError;
use input::Wanted;
use peer::Peer;
use record::Record;
use route::Upstream;
use sending::Sending;
use serde_json::value::RawValue;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use trace::Trace;

/// Who asks.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The client, for fair queues and limits.
    pub client: ClientId,
    /// What it may see, and its profile.
    pub view: Arc<View>,
    /// Who that is, for the audit.
    pub identity: Arc<store::Caller>,
    /// The client itself, where it can be asked something.
    pub peer: Option<Arc<dyn Peer>>,
    /// Where news of servers go; `None`: it wants none.
    pub hearer: Option<Arc<dyn Hearer>>,
    /// Where servers that serve this client alone put what they ask outside of a call.
    pub inbox: Option<mpsc::Sender<Unasked>>,
}

/// What a client wants to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// `tools/call`.
    Tool,
    /// `resources/read`.
    Resource,
    /// `resources/subscribe`.
    Subscription,
    /// `prompts/get`.
    Prompt,
    /// `completion/complete` for an argument of a prompt.
    PromptCompletion,
    /// `completion/complete` for a variable of a resource template.
    TemplateCompletion,
}

/// One call as a client made it, read once.
#[derive(Debug)]
pub struct ToolCall {
    /// What is used.
    pub target: Target,
    /// The exposed name, or the URI.
    pub name: String,
    /// What the server gets, but for its own name of the tool and the progress token.
    pub upstream: Arc<Upstream>,
    /// The client's progress token, raw, if it gave one.
    pub progress_token: Option<Box<RawValue>>,
    /// Where it is in a trace.
    pub trace: Trace,
    /// Which request of a session it is; `None`: it came another way.
    pub asked: Option<Asked>,
    /// Set before the call's future is dropped, when the client gave a reason.
    pub cancel_reason: Arc<OnceLock<String>>,
    /// Idle limit instead of the server's own.
    pub timeout: Option<Duration>,
    /// Under which number a subscription counts, where it is not that of the client.
    pub follower: Option<ClientId>,
}

impl ToolCall {
    /// The `tools/call` of a request, with the server's own limits.
    pub fn of(request: route::Request) -> Self {
        let route::Request { name, upstream, progress_token, trace } = request;
        let upstream = Arc::new(upstream);
        let cancel_reason = Arc::default();
        Self {
            target: Target::Tool,
            name,
            upstream,
            progress_token,
            trace,
            asked: None,
            cancel_reason,
            timeout: None,
            follower: None,
        }
    }
}

/// Takes one call along the whole road, and writes down how it ended.
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
    // Visible and routed are one look-up: what a view hides is not in its table.
    let found = match call.target {
        Target::Tool => caller.view.tool(&call.name).cloned(),
        Target::Resource => caller.view.natives().resource(&call.name),
        Target::Subscription => caller.view.natives().resource(&call.name).map(followed),
        Target::Prompt => caller.view.natives().prompt(&call.name),
        Target::PromptCompletion => caller.view.natives().prompt(&call.name).map(completing),
        Target::TemplateCompletion => caller.view.natives().resource(&call.name).map(completing),
    };
    let span = spans::request(path.around.metrics.tracer(), caller, &call, found.as_deref());
    let Some(tool) = found else {
        let reply = route::unknown(&caller.view, call.target, &call.name);
        spans::answered(span, "unknown", &reply);
        return reply;
    };
    let mut record = Record::begin(path, caller, &tool, &call, &span);
    match walk(path, caller, &tool, &call, &mut record, progress).await {
        Ok(Finished { reply, outcome, cut_from }) => {
            if let Some(bytes) = cut_from {
                record.note("result_limit", format!("cut from {bytes} bytes"));
            }
            record.answered(outcome);
            spans::answered(span, outcome, &reply);
            reply
        }
        Err(error) => {
            record.failed(&error);
            span.fail(error.kind());
            error.into_reply(call.target, tool.server(), call.trace.id(), &|text| path.mask(text))
        }
    }
}

/// The item as something whose arguments are being completed.
fn completing(item: Arc<Tool>) -> Arc<Tool> {
    Arc::new(Tool { kind: ItemKind::Completion, ..Tool::clone(&item) })
}

/// The item as something to hear of.
fn followed(item: Arc<Tool>) -> Arc<Tool> {
    Arc::new(Tool { kind: ItemKind::Subscription, ..Tool::clone(&item) })
}

/// The steps, each with the reason why it stands where it stands.
async fn walk<S>(
    path: &CallPath,
    caller: &Caller,
    tool: &Tool,
    call: &ToolCall,
    record: &mut Record<'_>,
    progress: &S,
) -> Result<Finished, CallError>
where
    S: Fn(Box<RawValue>) + Sync,
{
    // Known but not shown: said before anything else, because nothing the client does would help.
    if let Some(why) = &tool.withheld {
        return Err(CallError::Withheld(why.clone()));
    }
    let redactor = path.around.redactor.borrow().clone();
    let Origin::Server { server, raw } = &tool.origin else {
        // The built-in server has neither breaker nor slots, and checks its arguments itself.
        path.take_limits(caller, None)?;
        if tool.kind == ItemKind::Subscription {
            return Ok(Finish::builtin(redactor).apply(path.subscribe_own(caller, tool, call)).await);
        }
        approve_builtin(path, caller, tool, call, record, progress).await?;
        let reply = call_builtin(path, caller, tool, call).await;
        return Ok(Finish::builtin(redactor).apply(reply).await);
    };
    let handle = path.around.servers.borrow().get(server).cloned().ok_or(CallError::Removed)?;
    // Before anything that an instance has of its own: its breaker, its slots, its process.
    let handle = path.instance(caller, &handle).await?;
    let config = handle.config();
    let idle = call.timeout.unwrap_or(config.timeout);
    // Looked at first and taken last: an open breaker must cost neither quota nor a place in a queue.
    handle.breaker().check(now())?;
    // Before the arguments are looked at: a client in a loop must not cost more than this.
    path.take_limits(caller, Some(&config))?;
    // It changes nothing and holds no slot: the news come whenever the server has some.
    if tool.kind == ItemKind::Subscription {
        let reply = follow::subscribe(caller, &handle, tool, call, idle).await?;
        return Ok(Finish::of(&config, redactor).apply(reply).await);
    }
    // Before anything waits: a model corrects itself at once, and nobody is asked about nonsense.
    let (upstream, respelled) = path.validate(&config, tool, call).await?;
    respelled.into_iter().for_each(|member| record.note("validate", format!("respelled {member}")));
    // Before a slot is taken: a person may take minutes, and nobody else should wait for that.
    let (policy, timeout) = (&config.approval, config.approval_timeout);
    let gated = Gated { caller, policy, timeout, tool, call, upstream: &upstream, span: record.span() };
    let passed = path.approve(&gated, progress).await;
    record.decided(&passed);
    if let Passed::Decided(..) = passed? {
        // Time has passed: what was true before the wait is looked at again.
        path.unchanged(caller, tool)?;
        handle.breaker().check(now())?;
    }
    let finish = Finish::of(&config, redactor).linking(tool.kind, caller.view.renamed(server.as_str()));
    // Lists are known here; they need neither a slot nor the server. What waits for approval is not to
    // be had by this way round either.
    if let ItemKind::Utility(utility) = tool.kind {
        let withheld = |kind, raw: &str| caller.view.natives().withheld(kind, server.as_str(), raw);
        if let Some(why) = utility::subject(utility, &upstream).and_then(|(kind, raw)| withheld(kind, &raw)) {
            return Err(CallError::Withheld(why));
        }
        let listing = handle.listing().borrow().clone();
        let hidden = |kind, raw: &str| withheld(kind, raw).is_some();
        if let Some(reply) = utility::known(utility, listing.as_deref(), &hidden) {
            return Ok(finish.apply(reply).await);
        }
    }
    // Before a slot: those are for the calls of whoever has the turn.
    let turn = path.turn(caller, &handle, idle).await?;
    let progress = |params| progress(finish.progress(params));
    let upstream = &upstream;
    let turn = turn.as_ref();
    let mut sending =
        Sending { path, caller, handle: &handle, tool, raw, upstream, call, idle, turn, given: None };
    for round in 0.. {
        let answer = attempt(&sending, record, &progress).await?;
        // The era first: only there does the word mean that, and looking for it reads the whole result.
        let wanted = match &answer {
            Answer::Result(result) if sending.era() == Era::PerRequest => Wanted::read(result),
            Answer::Result(_) | Answer::Error(_) => None,
        };
        match wanted {
            None => return Ok(finish.apply(as_asked(tool, answer)).await),
            Some(wanted) if round >= input::ROUNDS => {
                return Err(CallError::InputRequired { wants: wanted.methods() });
            }
            // Slot and permit are given back: a person may think for minutes, and the server is done with it.
            Some(wanted) => {
                record.note("input", wanted.methods());
                sending.given = Some(wanted.answered(path, caller, &config).await?);
            }
        }
    }
    unreachable!("the rounds are bounded")
}

/// One request of a call: slot, breaker's permit, send.
async fn attempt<S>(sending: &Sending<'_>, record: &mut Record<'_>, progress: &S) -> Result<Answer, CallError>
where
    S: Fn(Box<RawValue>) + Sync,
{
    let (handle, config) = (sending.handle, sending.handle.config());
    // Our own limits before the breaker's permit: a full queue must not be charged to the server.
    let waits = record.span().child(Kind::Internal, || "wait for slot".into());
    let slot = handle.slots().acquire(sending.caller.client, Instant::now() + sending.idle).await;
    waits.settle(&slot, |_| "busy");
    let _slot = slot?;
    let permit = handle.breaker().try_acquire(now())?;
    // From here on every way out reports to the breaker; dropping the permit counts as cancelled.
    let outcome = sending.at_most_once(record, progress).await;
    let turn = permit.finish(breaker_outcome(&outcome, config.breaker.count_tool_errors), now());
    report(handle, turn, &outcome);
    outcome
}

/// The server's answer in the form in which its client asked.
fn as_asked(tool: &Tool, answer: Answer) -> Reply {
    match answer {
        Answer::Result(result) => match tool.kind {
            ItemKind::Utility(utility) => utility::rendered(utility, &result),
            ItemKind::Tool
            | ItemKind::Resource
            | ItemKind::Prompt
            | ItemKind::Completion
            | ItemKind::Subscription => Reply::Result(result),
        },
        Answer::Error(error) => utility::refused(tool.kind, error),
    }
}

/// Step "approval" of the conversation tools, as `hermesd.builtin` has it.
async fn approve_builtin<S>(
    path: &CallPath,
    caller: &Caller,
    tool: &Tool,
    call: &ToolCall,
    record: &mut Record<'_>,
    progress: &S,
) -> Result<(), CallError>
where
    S: Fn(Box<RawValue>) + Sync,
{
    // Looking at approvals and deciding them cannot wait for an approval.
    if permissions::is_one(tool.name.as_str()) {
        return Ok(());
    }
    let config = path.around.config.borrow().clone();
    let BuiltinConfig { approval: policy, approval_timeout: timeout } = &config.daemon.builtin;
    let upstream = &call.upstream;
    let gated = Gated { caller, policy, timeout: *timeout, tool, call, upstream, span: record.span() };
    let passed = path.approve(&gated, progress).await;
    record.decided(&passed);
    if let Passed::Decided(..) = passed? {
        path.unchanged(caller, tool)?;
    }
    Ok(())
}

async fn call_builtin(path: &CallPath, caller: &Caller, tool: &Tool, call: &ToolCall) -> Reply {
    if let Some(reply) = conversation::call(path, tool, call).await {
        return reply;
    }
    if let Some(reply) = permissions::call(path, caller, tool.name.as_str(), call).await {
        return reply;
    }
    if let Some(reply) = events::call(path, caller, tool.name.as_str(), call).await {
        return reply;
    }
    match path.around.conversations.call(tool.name.as_str(), call.upstream.arguments()).await {
        Ok(answer) => Reply::Result(answer.json),
        Err(unknown) => Reply::error(INVALID_PARAMS, &unknown.to_string()),
    }
}

/// Says what the breaker did, and has a silent server looked at.
fn report(handle: &ServerHandle, turn: Turn, outcome: &Result<Answer, CallError>) {
    match turn {
        Turn::Opened { failures } => tracing::warn!(server = %handle.name(), failures, "breaker opened"),
        Turn::Closed => tracing::info!(server = %handle.name(), "breaker closed"),
        Turn::None => {}
    }
    if let Err(CallError::Wire(WireError::IdleTimeout { .. } | WireError::CapTimeout { .. })) = outcome {
        handle.check();
    }
}

/// The breaker's clock.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}

fn breaker_outcome(outcome: &Result<Answer, CallError>, count_tool_errors: bool) -> Outcome {
    match outcome {
        Ok(Answer::Result(result)) if count_tool_errors && result::is_error(result) => Outcome::Failure,
        // Any answer is a sign of life.
        Ok(Answer::Result(_) | Answer::Error(_)) | Err(CallError::Wire(WireError::TooLong { .. })) => {
            Outcome::Success
        }
        Err(CallError::Wire(
            WireError::Gone { .. }
            | WireError::IdleTimeout { .. }
            | WireError::CapTimeout { .. }
            | WireError::Unreachable { .. }
            | WireError::Interrupted { .. },
        )) => Outcome::Failure,
        // A server that asks to wait, or for a login, works.
        Err(CallError::Wire(WireError::Http(refusal))) if refusal.asks_to_wait() => Outcome::Neutral,
        Err(CallError::Wire(WireError::Http(_))) => Outcome::Failure,
        Err(CallError::NotReady(not_ready)) if not_ready.needs_auth() => Outcome::Neutral,
        Err(CallError::NotReady(_)) => Outcome::Failure,
        Err(CallError::Wire(
            WireError::QueueFull { .. } | WireError::Malformed | WireError::NeedsAuth { .. },
        )) => Outcome::Neutral,
        Err(
            CallError::Removed
            | CallError::Turn(_)
            | CallError::Instances(_)
            | CallError::Withheld(_)
            | CallError::BreakerOpen(_)
            | CallError::Limit(_)
            | CallError::InvalidArguments(_)
            | CallError::Approval(_)
            | CallError::Slot(_)
            | CallError::InputRequired { .. },
        ) => Outcome::Neutral,
    }
}

#[cfg(test)]
mod approval_tests;
