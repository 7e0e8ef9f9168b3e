//! The last stretch of a call: a live connection, one request, and what is heard until its outcome.
//!
//! Promise: nothing is sent twice that could be executed twice; progress and the server's questions reach
//! the caller before the outcome does. May touch: the handle of one server.

use super::error::CallError;
use super::input::{self, Given};
use super::record::Record;
use super::retry::{self, Decision, Trust};
use super::route::Upstream;
use super::{CallPath, Caller, ToolCall, asked, spans, utility};
use crate::catalog::snapshot::Tool;
use crate::jsonrpc::era::Era;
use crate::names::RawTool;
use crate::server::handle::ServerHandle;
use crate::server::turns::Turn;
use crate::server::wire::{Answer, CallEvent, InFlight, Progress, Request, WireHandle};
use crate::telemetry::traces::{Kind, Span};
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::value::RawValue;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::time::Instant;

/// One call on its last stretch.
pub(super) struct Sending<'a> {
    pub(super) path: &'a CallPath,
    pub(super) caller: &'a Caller,
    pub(super) handle: &'a ServerHandle,
    pub(super) tool: &'a Tool,
    pub(super) raw: &'a RawTool,
    pub(super) upstream: &'a Upstream,
    pub(super) call: &'a ToolCall,
    pub(super) idle: Duration,
    /// Where clients take turns: that of the caller.
    pub(super) turn: Option<&'a Turn>,
    /// What the server asked for in the round before.
    pub(super) given: Option<Given>,
}

impl Sending<'_> {
    /// Sends, and once more where that cannot execute anything twice.
    pub(super) async fn at_most_once<S>(
        &self,
        record: &mut Record<'_>,
        progress: &S,
    ) -> Result<Answer, CallError>
    where
        S: Fn(Box<RawValue>) + Sync,
    {
        let trust = if self.handle.config().trust_annotations { Trust::Annotations } else { Trust::None };
        let mut attempts = 1;
        loop {
            match self.once(record.span(), attempts, progress).await {
                Err(CallError::Wire(error)) => {
                    match retry::decide(&error, self.tool.hints.into(), trust, attempts) {
                        Decision::Repeat => record.note("repeat", error.to_string()),
                        Decision::NotExecuted | Decision::OutcomeUnknown => return Err(error.into()),
                    }
                }
                other => return other,
            }
            attempts += 1;
        }
    }

    /// The era of the server, as far as it is known.
    pub(super) fn era(&self) -> Era {
        self.handle.status().borrow().agreed.as_ref().map_or(Era::Initialize, |agreed| agreed.era)
    }

    /// Makes sure of a live connection, sends, and passes progress on until the outcome is there.
    async fn once<S>(&self, span: &Span, attempt: u32, progress: &S) -> Result<Answer, CallError>
    where
        S: Fn(Box<RawValue>) + Sync,
    {
        let wire = self.wire(span).await?;
        let span = spans::attempt(span, self.handle, self.tool, self.raw, attempt);
        let outcome = self.sent(&wire, &span, progress).await;
        match &outcome {
            Ok(answer) => spans::replied(span, answer),
            Err(error) => span.fail(error.kind()),
        }
        outcome
    }

    /// A live connection; the wait for one shows in the trace.
    async fn wire(&self, span: &Span) -> Result<WireHandle, CallError> {
        if let Some(wire) = self.handle.live() {
            return Ok(wire);
        }
        let waits = span.child(Kind::Internal, || "wait for server".into());
        let wire = self.handle.ready(Instant::now() + self.idle).await;
        waits.settle(&wire, |_| "not_ready");
        Ok(wire?)
    }

    async fn sent<S>(&self, wire: &WireHandle, span: &Span, progress: &S) -> Result<Answer, CallError>
    where
        S: Fn(Box<RawValue>) + Sync,
    {
        let wanted = if self.call.progress_token.is_some() { Progress::Wanted } else { Progress::Unwanted };
        let trace = &self.call.trace;
        let sent = utility::asked(self.tool, self.raw, self.upstream, trace, &trace.header(span));
        let (params, hole) = match self.era() {
            Era::Initialize => (sent.params, sent.hole),
            // The wire reads these params anyway.
            Era::PerRequest => {
                let params = input::declaring(&sent.params, self.path, self.caller, &self.handle.config());
                (self.given.as_ref().map_or_else(|| params.clone(), |given| given.put_into(&params)), None)
            }
        };
        let request = Request {
            method: sent.method.into(),
            params: Some(params),
            idle: self.idle,
            cap: self.handle.config().call_cap().max(self.idle),
            progress: wanted,
        };
        let flight = wire.call(request, hole, self.turn.map(Turn::pass))?;
        let mut flying = Flying { flight: Some(flight), reason: &self.call.cancel_reason };
        let config = self.handle.config();
        // With the call they end, and the client hears that nobody waits for its answers any more.
        let mut answering = FuturesUnordered::new();
        loop {
            let event = tokio::select! {
                // What is declined at once is so before the outcome, which ends every question.
                biased;
                Some(()) = answering.next(), if !answering.is_empty() => continue,
                event = flying.next() => event,
            };
            match event {
                CallEvent::Progress(params) => progress(params),
                CallEvent::Asked(question) => {
                    answering.push(asked::serve(self.path, self.caller, &config, question));
                }
                CallEvent::Done(outcome) => return Ok(outcome?),
            }
        }
    }
}

/// A request under way that hands its client's reason to the server when it is dropped.
struct Flying<'a> {
    flight: Option<InFlight>,
    reason: &'a OnceLock<String>,
}

impl Flying<'_> {
    async fn next(&mut self) -> CallEvent {
        let flight = self.flight.as_mut().expect("nobody asks after the end");
        let event = flight.next().await;
        if matches!(event, CallEvent::Done(_)) {
            // Over: nothing is left to cancel.
            self.flight = None;
        }
        event
    }
}

impl Drop for Flying<'_> {
    fn drop(&mut self) {
        // The wire notices a dropped flight by itself; this only adds the client's own words.
        if let (Some(flight), Some(reason)) =
            (self.flight.take(), self.reason.get().filter(|r| !r.is_empty()))
        {
            flight.cancel(reason);
        }
    }
}
