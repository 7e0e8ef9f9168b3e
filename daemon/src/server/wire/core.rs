//! What every connection does with a message, whatever brought it: requests find their callers,
//! news goes to the supervisor, questions of the server are answered from the instance.
//!
//! Owner: the task of one generation. Promise: each request has exactly one outcome; nothing that
//! a server makes up reaches a client. May not touch: pipes, sockets.

use super::inbound::{Body, Inbound};
use super::pending::Pending;
use super::{Answer, Fact, WireError, WireLimits, WireStats};
use crate::jsonrpc::splice::{Members, ObjectWriter};
use serde_json::value::RawValue;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The part of a connection that all kinds share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) pending: Pending,
    pub(super) stats: Arc<WireStats>,
    pub(super) limits: WireLimits,
    facts: mpsc::Sender<Fact>,
}

impl Core {
    pub(super) fn new(facts: mpsc::Sender<Fact>, stats: Arc<WireStats>, limits: WireLimits) -> Self {
        Self { pending: Pending::default(), stats, limits, facts }
    }

    /// Takes one message; the line to reply with, where the server asked something.
    pub(super) fn message(&mut self, message: Inbound) -> Option<Vec<u8>> {
        if !matches!(message, Inbound::Noise(_)) {
            self.stats.heard(Instant::now());
        }
        match message {
            Inbound::Answer { id, null_id, body } => self.answer(id, null_id, body),
            Inbound::Notification { method, params } => self.notification(&method, params),
            Inbound::Request { id, method } => return Some(self.asked(&id, &method)),
            Inbound::Noise(noise) => {
                WireStats::count(&self.stats.noise_lines);
                *self.stats.noise.lock().expect("nothing panics while holding it") = Some(noise);
            }
        }
        None
    }

    fn answer(&mut self, id: Option<u64>, null_id: bool, body: Body) {
        // JSON-RPC 2.0, section 5: an error with a null id answers a request that could not be read.
        // With one request open it can only be that one; with more nobody knows.
        let id = if null_id && matches!(body, Body::Error(_)) { self.pending.only() } else { id };
        let outcome = match body {
            Body::Result(result) => Ok(Answer::Result(result)),
            Body::Error(error) => Ok(Answer::Error(error)),
            Body::Neither => Err(WireError::Malformed),
        };
        if !id.is_some_and(|id| self.pending.finish(id, outcome)) {
            WireStats::count(&self.stats.stray_messages);
        }
    }

    fn notification(&mut self, method: &str, params: Option<Box<RawValue>>) {
        let fact = match (method, params) {
            ("notifications/progress", Some(params)) => return self.progress(&params),
            ("notifications/tools/list_changed", _) => Fact::ToolsChanged,
            ("notifications/resources/list_changed", _) => Fact::ResourcesChanged,
            ("notifications/prompts/list_changed", _) => Fact::PromptsChanged,
            ("notifications/resources/updated", Some(params)) => Fact::ResourceUpdated(params),
            ("notifications/message", Some(params)) => Fact::Log(params),
            // Unknown notifications are the server's affair (JSON-RPC 2.0, section 4.1).
            _ => return,
        };
        self.fact(fact);
    }

    fn progress(&mut self, params: &RawValue) {
        let now = Instant::now();
        let known = Members::parse(params).ok().and_then(|members| {
            let token = crate::jsonrpc::ids::own_number(members.get("progressToken")?)?;
            let value: f64 = members.get("progress")?.get().parse().ok()?;
            Some((token, value))
        });
        // Made-up tokens and progress after the answer must not reach a client: strict ones end the session.
        if !known.is_some_and(|(token, value)| self.pending.progress(token, value, params, now)) {
            WireStats::count(&self.stats.stray_messages);
        }
    }

    /// A request of the server. Answered from the instance, whatever clients there are; nothing is
    /// guessed and nothing broadcast.
    fn asked(&mut self, id: &RawValue, method: &str) -> Vec<u8> {
        let mut reply = ObjectWriter::with_capacity(128);
        reply.member("jsonrpc", "\"2.0\"").member("id", id.get());
        match method {
            "ping" => {
                reply.member("result", "{}");
            }
            "roots/list" => {
                reply.member("result", &format!("{{\"roots\":{}}}", self.limits.roots));
            }
            _ => {
                let mut error = ObjectWriter::default();
                error.member("code", "-32601").string("message", decline(method));
                reply.member("error", error.finish().get());
            }
        }
        if matches!(method, "sampling/createMessage" | "elicitation/create") {
            self.fact(Fact::Declined(method.into()));
        }
        reply.finish().get().as_bytes().to_vec()
    }

    /// Tells the supervisor; dropped and counted when it is behind. Log lines leave room for the rest: a
    /// server that logs without end must not make itself unheard.
    pub(super) fn fact(&mut self, fact: Fact) {
        let is_log = matches!(fact, Fact::Log(_));
        let full = is_log && self.facts.capacity() <= self.facts.max_capacity() / 2;
        if full || self.facts.try_send(fact).is_err() {
            WireStats::count(&self.stats.dropped_facts);
            if !is_log {
                // Whoever reads what is queued before it sees this: the queue was full.
                WireStats::count(&self.stats.dropped_news);
            }
        }
    }

    /// An answer over the limit fails its request at once: waiting for the timeout would say the wrong
    /// thing about a call that was executed.
    pub(super) fn too_long(&mut self, id: Option<u64>, bytes: usize) {
        WireStats::count(&self.stats.oversized_lines);
        let limit = self.limits.max_line;
        tracing::warn!(bytes, limit, "a message of a server is too long and was skipped");
        if let Some(id) = id {
            self.pending.finish(id, Err(WireError::TooLong { bytes, limit }));
        }
    }

    /// Publishes how many requests are open.
    pub(super) fn count_open(&self) {
        let open = u32::try_from(self.pending.len()).unwrap_or(u32::MAX);
        self.stats.in_flight.store(open, Ordering::Relaxed);
    }
}

/// The reason a request of the server is declined with.
fn decline(method: &str) -> &'static str {
    match method {
        "sampling/createMessage" => {
            "hermesd shares this server between clients and cannot tell which one to ask for sampling"
        }
        "elicitation/create" => {
            "hermesd shares this server between clients and cannot tell which user to ask"
        }
        _ => "method not found: hermesd does not know this request",
    }
}
