//! What is written down about each request: audit row, metrics, one log line at `sampling.log_level`.
//!
//! Owner: the request itself. Promise: one row, whatever way it ends; a future that is dropped leaves the
//! outcome `cancelled`. Neither the messages nor the answer are logged. May not touch: what is decided.

use super::budget::Grant;
use super::error::SamplingError;
use super::request::Facts;
use super::{Around, Asked, LARGE, METHOD};
use crate::config::{AuditArguments, SamplingLogLevel};
use crate::names::{ProfileName, ServerName};
use crate::store::{Arguments, AuditRow, Caller, Decision, UnixMs};
use crate::telemetry::metrics::Tokens;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::time::Instant;

/// The record of one request under way.
#[derive(Debug)]
pub(super) struct Record<'a> {
    around: &'a Around,
    caller: Arc<Caller>,
    server: ServerName,
    level: SamplingLogLevel,
    params: &'a RawValue,
    trace_id: String,
    at: UnixMs,
    started: Instant,
    decisions: Vec<Decision>,
    model: Option<String>,
    tokens: Option<Tokens>,
    outcome: Option<&'static str>,
}

impl<'a> Record<'a> {
    pub(super) fn begin(around: &'a Around, asked: &Asked<'a>) -> Self {
        let caller = asked.caller.as_ref().map_or_else(|| Arc::new(nobody()), |(_, caller)| caller.clone());
        Self {
            around,
            caller,
            server: asked.server.name.clone(),
            level: asked.server.sampling.log_level,
            params: asked.params,
            trace_id: asked.trace_id.to_owned(),
            at: UnixMs::at(SystemTime::now()),
            started: Instant::now(),
            decisions: Vec::new(),
            model: None,
            tokens: None,
            outcome: None,
        }
    }

    /// Notes what the limits allowed, where that is less than was asked for.
    pub(super) fn granted(&mut self, grant: &Grant, facts: &Facts) {
        self.model.clone_from(&grant.model);
        if facts.max_tokens.is_some_and(|asked| asked > grant.max_tokens.into()) {
            self.note("max_tokens", format!("cut to {}", grant.max_tokens));
        }
    }

    /// Notes who is to answer.
    pub(super) fn by(&mut self, whom: &'static str) {
        self.note("answered_by", whom);
    }

    /// Notes what the answer cost, whether or not it is passed on.
    pub(super) fn cost(&mut self, tokens: Option<Tokens>) {
        self.tokens = tokens;
    }

    /// It was answered, by this model.
    pub(super) fn finished(&mut self, outcome: &'static str, model: Option<String>) {
        self.outcome = Some(outcome);
        self.model = model.or(self.model.take());
    }

    /// It was refused or failed.
    pub(super) fn failed(&mut self, error: &SamplingError) {
        self.outcome = Some(error.kind());
        self.note("sampling", error.to_string());
    }

    fn note(&mut self, step: &'static str, said: impl Into<Cow<'static, str>>) {
        self.decisions.push(Decision { step: Cow::Borrowed(step), said: said.into() });
    }

    fn log(&self, outcome: &str) {
        let (server, trace) = (&self.server, &self.trace_id);
        let ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let model = self.model.as_deref().unwrap_or_default();
        let Tokens { input, output } = self.tokens.unwrap_or(Tokens { input: 0, output: 0 });
        let text = "sampling request";
        match self.level {
            SamplingLogLevel::Debug => {
                tracing::debug!(%server, trace, outcome, model, input, output, ms, "{text}");
            }
            SamplingLogLevel::Info => {
                tracing::info!(%server, trace, outcome, model, input, output, ms, "{text}");
            }
            SamplingLogLevel::Warning => {
                tracing::warn!(%server, trace, outcome, model, input, output, ms, "{text}");
            }
        }
    }
}

impl Drop for Record<'_> {
    /// The one place that writes: a request may end by being dropped.
    fn drop(&mut self) {
        let outcome = self.outcome.unwrap_or("cancelled");
        self.log(outcome);
        self.around.metrics.sampled(&self.server, outcome, self.tokens);
        let model = self.model.take();
        if let Some(model) = model {
            self.note("model", model);
        }
        let row = AuditRow {
            at: self.at,
            duration: self.started.elapsed(),
            caller: self.caller.clone(),
            method: Cow::Borrowed(METHOD),
            server: self.server.clone(),
            tool: None,
            arguments: Arguments::Off,
            trace_id: std::mem::take(&mut self.trace_id),
            outcome: Cow::Borrowed(outcome),
            delivery: None,
            decisions: std::mem::take(&mut self.decisions),
        };
        let how = self.around.config.borrow().daemon.audit.arguments;
        let redactor = self.around.redactor.borrow().clone();
        let store = self.around.store.clone();
        if how == AuditArguments::Off || self.params.get().len() <= LARGE {
            // A full lane is counted by the store and shown in status.
            let _ =
                store.record(AuditRow { arguments: Arguments::of(how, self.params.get(), &redactor), ..row });
        } else {
            let params = self.params.to_owned();
            tokio::task::spawn_blocking(move || {
                store.record(AuditRow { arguments: Arguments::of(how, params.get(), &redactor), ..row })
            });
        }
    }
}

/// Where it cannot be said whose call it was: the server asked by itself.
fn nobody() -> Caller {
    let (uid, pid, executable) = (None, None, None);
    Caller { uid, pid, executable, profile: ProfileName::new("default"), name: None, version: None }
}
