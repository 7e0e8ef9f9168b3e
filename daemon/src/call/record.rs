//! What is written down about each call: audit row, metrics, figures, one log line.
//!
//! Owner: the call itself. Promise: every call that found its tool leaves exactly one row, whatever
//! way it ends; a future that is dropped leaves the outcome `cancelled`. Never waits for a disk.
//! May not touch: what the call decides.

use super::answer::LARGE;
use super::approval::{ApprovalError, Passed};
use super::error::CallError;
use super::route::Upstream;
use super::steps::CallPath;
use super::{Caller, ToolCall, utility};
use crate::catalog::snapshot::{ItemKind, Tool};
use crate::config::AuditArguments;
use crate::names::{RawTool, ServerName};
use crate::server::wire::Delivery;
use crate::store::{Arguments, AuditRow, Decision, UnixMs};
use crate::telemetry::metrics::ToolMetrics;
use crate::telemetry::stats::ToolStats;
use crate::telemetry::traces::{Kind, Span};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::time::Instant;

/// The counters of one tool.
#[derive(Debug, Clone)]
pub(super) struct Meter {
    pub(super) metrics: ToolMetrics,
    pub(super) stats: ToolStats,
}

/// The record of one call under way.
#[derive(Debug)]
pub(super) struct Record<'a> {
    path: &'a CallPath,
    caller: &'a Caller,
    meter: Meter,
    server: ServerName,
    tool: RawTool,
    arguments: Arc<Upstream>,
    method: &'static str,
    trace_id: String,
    at: UnixMs,
    started: Instant,
    decisions: Vec<Decision>,
    outcome: Option<(&'static str, Option<Delivery>)>,
    span: Span,
}

impl<'a> Record<'a> {
    /// Begins the record of `call`, and its span below that of the request.
    pub(super) fn begin(
        path: &'a CallPath,
        caller: &'a Caller,
        tool: &Tool,
        call: &ToolCall,
        request: &Span,
    ) -> Self {
        let (server, raw) = path.names(tool);
        let mut span = request.child(Kind::Internal, || "call".into());
        span.set("hermes.server", || server.to_string());
        let method = utility::client_method(tool.kind);
        // Names and URIs of these are endless; they count together.
        let counted = match tool.kind {
            ItemKind::Tool | ItemKind::Utility(_) => raw.clone(),
            ItemKind::Resource | ItemKind::Subscription | ItemKind::Prompt | ItemKind::Completion => {
                RawTool::new(method)
            }
        };
        Self {
            path,
            caller,
            meter: path.meter(&server, &counted),
            server,
            tool: raw,
            arguments: call.upstream.clone(),
            method,
            trace_id: call.trace.id().to_owned(),
            at: UnixMs::at(SystemTime::now()),
            started: Instant::now(),
            decisions: Vec::new(),
            outcome: None,
            span,
        }
    }

    /// The span of the call, for those below it.
    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    /// Notes what a step decided.
    pub(super) fn note(&mut self, step: &'static str, said: impl Into<Cow<'static, str>>) {
        self.decisions.push(Decision { step: Cow::Borrowed(step), said: said.into() });
    }

    /// Notes what became of the gate, and who decided.
    pub(super) fn decided(&mut self, passed: &Result<Passed, ApprovalError>) {
        match passed {
            Ok(Passed::Standing) => self.note("approval", "standing"),
            Ok(Passed::Decided(decision, judge)) => {
                self.note("approval", decision.word());
                self.note("approved_by", judge.to_string());
            }
            Err(ApprovalError::Denied { by, .. }) => {
                self.note("approval", "deny");
                self.note("denied_by", by.to_string());
            }
            Ok(Passed::Free) | Err(_) => {}
        }
    }

    /// It was answered.
    pub(super) fn answered(mut self, outcome: &'static str) {
        self.outcome = Some((outcome, None));
        let micros = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        tracing::debug!(server = %self.server, tool = %self.tool, trace = self.trace_id, micros, outcome, "call answered");
    }

    /// It failed or was refused.
    pub(super) fn failed(mut self, error: &CallError) {
        self.outcome = Some((error.kind(), Some(error.delivery())));
        let ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::info!(server = %self.server, tool = %self.tool, trace = self.trace_id, ms, reason = error.kind(), "call failed");
    }
}

impl Drop for Record<'_> {
    /// The one place that writes: a call may end by being dropped, and that must be seen too.
    fn drop(&mut self) {
        let (outcome, delivery) = self.outcome.unwrap_or(("cancelled", Some(Delivery::MaybeWritten)));
        let duration = self.started.elapsed();
        self.span.set("hermes.outcome", || outcome);
        let span = std::mem::replace(&mut self.span, Span::none());
        if outcome == "ok" {
            span.end()
        } else {
            span.fail(outcome)
        }
        self.meter.metrics.record(outcome, duration);
        self.meter.stats.record(outcome, duration);
        let row = AuditRow {
            at: self.at,
            duration,
            caller: self.caller.identity.clone(),
            method: Cow::Borrowed(self.method),
            server: self.server.clone(),
            tool: Some(Arc::from(self.tool.as_str())),
            arguments: Arguments::Off,
            trace_id: std::mem::take(&mut self.trace_id),
            outcome: Cow::Borrowed(outcome),
            delivery: delivery.map(|delivery| Cow::Borrowed(word(delivery))),
            decisions: std::mem::take(&mut self.decisions),
        };
        let store = self.path.around.store.clone();
        let how = self.path.around.config.borrow().daemon.audit.arguments;
        let redactor = self.path.around.redactor.borrow().clone();
        let sent = self.arguments.clone();
        if how == AuditArguments::Off || sent.arguments_len() <= LARGE {
            // A full lane is counted by the store and shown in status.
            let _ = store
                .record(AuditRow { arguments: Arguments::of(how, sent.arguments_text(), &redactor), ..row });
        } else {
            tokio::task::spawn_blocking(move || {
                store.record(AuditRow {
                    arguments: Arguments::of(how, sent.arguments_text(), &redactor),
                    ..row
                })
            });
        }
    }
}

/// The word for a delivery, in answers and in the audit.
pub(super) fn word(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::NotWritten => "not_written",
        Delivery::MaybeWritten => "unknown",
    }
}
