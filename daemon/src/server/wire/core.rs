//! What every connection does with a message, whatever brought it: requests find their callers,
//! news goes to the supervisor, questions of the server are answered from the instance.
//!
//! Owner: the task of one generation. Promise: each request has exactly one outcome; nothing that
//! a server makes up reaches a client. May not touch: pipes, sockets.

use super::inbound::{Body, Inbound};
use super::pending::{Pending, Refused};
use super::questions::{Question, Questions, Settled, Tie, Untaken};
use super::{Answer, Fact, WireError, WireLimits, WireStats};
use crate::jsonrpc::ids::IdKey;
use crate::jsonrpc::reply::{INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, Reply};
use crate::jsonrpc::splice::{self, Members};
use serde_json::value::RawValue;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// The part of a connection that all kinds share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) pending: Pending,
    pub(super) questions: Questions,
    pub(super) stats: Arc<WireStats>,
    pub(super) limits: WireLimits,
    facts: mpsc::Sender<Fact>,
}

impl Core {
    pub(super) fn new(facts: mpsc::Sender<Fact>, stats: Arc<WireStats>, limits: WireLimits) -> Self {
        Self { pending: Pending::default(), questions: Questions::default(), stats, limits, facts }
    }

    /// Takes one message, which came on the answer stream of request `from`, if that is known; the line
    /// to reply with at once, where the server asked something.
    pub(super) fn message(&mut self, from: Option<u64>, message: Inbound) -> Option<Vec<u8>> {
        if !matches!(message, Inbound::Noise(_)) {
            self.stats.heard(Instant::now());
        }
        match message {
            Inbound::Answer { id, null_id, body } => self.answer(id, null_id, body),
            Inbound::Notification { method, params } => self.notification(&method, params),
            Inbound::Request { id, method, params } => return self.asked(from, id, &method, params),
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
            ("notifications/cancelled", Some(params)) => return self.taken_back(&params),
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

    /// A request of the server. What is about a client goes to the one that it is provably about, or is
    /// declined; nothing is guessed and nothing broadcast.
    fn asked(
        &mut self,
        from: Option<u64>,
        id: Box<RawValue>,
        method: &str,
        params: Option<Box<RawValue>>,
    ) -> Option<Vec<u8>> {
        let reply = match method {
            "ping" => Reply::Result(splice::raw(&serde_json::Map::new())),
            // Its folder is what the instance is for.
            "roots/list" if &*self.limits.roots != "[]" => self.roots(),
            "roots/list" | "sampling/createMessage" | "elicitation/create" => {
                match self.question(from, &id, method, params) {
                    Ok(()) => return None,
                    Err(reply) => reply,
                }
            }
            _ => Reply::error(METHOD_NOT_FOUND, "method not found: hermesd does not know this request"),
        };
        Some(reply.line(id.get()))
    }

    fn roots(&self) -> Reply {
        let mut roots = splice::ObjectWriter::default();
        roots.member("roots", &self.limits.roots);
        Reply::Result(roots.finish())
    }

    /// Hands a question on; the answer for the server where nobody takes it.
    fn question(
        &mut self,
        from: Option<u64>,
        id: &RawValue,
        method: &str,
        params: Option<Box<RawValue>>,
    ) -> Result<(), Reply> {
        let key = IdKey::parse(id)
            .map_err(|_| Reply::error(INVALID_REQUEST, "a request id must be a string or a number"))?;
        if !self.questions.takes(&key) {
            return Err(Reply::error(INTERNAL_ERROR, "too many questions are open"));
        }
        let (answer, answered) = oneshot::channel();
        let question = Question { method: method.into(), params, answer };
        let now = Instant::now();
        let taken = match from {
            Some(from) => self.pending.ask(from, question, now),
            None => Err(Refused::NotHere(question)),
        };
        let taken = match taken {
            Ok(tie) => Ok(tie),
            Err(Refused::NotHere(question)) => self.limits.front.ask(question).map(|()| {
                self.pending.stop_all(now);
                Tie::Client
            }),
            Err(Refused::Untaken(why)) => Err(why),
        };
        match taken {
            Ok(tie) => {
                self.questions.begin(id.to_owned(), key, tie, answered);
                self.count_questions();
                Ok(())
            }
            Err(Untaken::Busy) => Err(Reply::error(INTERNAL_ERROR, "too many questions are open")),
            Err(Untaken::Gone) => Err(Reply::error(INTERNAL_ERROR, super::questions::GONE)),
            Err(Untaken::Nobody) if method == "roots/list" => Err(self.roots()),
            Err(Untaken::Nobody) => {
                self.fact(Fact::Declined(method.into()));
                Err(Reply::error(METHOD_NOT_FOUND, decline(method)))
            }
        }
    }

    /// A question is over: the line for the server.
    pub(super) fn settled(&mut self, settled: Settled) -> Option<Vec<u8>> {
        self.pending.settled(settled.tie, Instant::now());
        self.count_questions();
        settled.line
    }

    fn count_questions(&self) {
        self.stats.asking.store(self.questions.len(), Ordering::Relaxed);
    }

    fn taken_back(&mut self, params: &RawValue) {
        let members = Members::parse(params).ok();
        if let Some(key) =
            members.and_then(|members| members.get("requestId").and_then(|id| IdKey::parse(id).ok()))
        {
            self.questions.take_back(&key);
        }
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
        _ => "hermesd shares this server between clients and cannot tell which user to ask",
    }
}
