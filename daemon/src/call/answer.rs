//! What a server answered, on its way to the client: links mended, secrets masked, length limited.
//!
//! Promise: without renamed URIs, secrets to look for and `result_limit` an answer is handed on as it is,
//! unparsed; long ones are worked on away from the runtime's thread. Order: masked first, so that a
//! cut never leaves half a secret. May not touch: servers.

use super::result;
use crate::catalog::links::{self, Place};
use crate::catalog::snapshot::ItemKind;
use crate::catalog::uris::Renamed;
use crate::config::{RedactResults, ServerConfig};
use crate::jsonrpc::depth;
use crate::jsonrpc::reply::{INTERNAL_ERROR, Reply};
use crate::redact::{Redactor, Scope};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::num::NonZeroU64;
use std::sync::Arc;

/// Longer bodies are worked on on the blocking pool.
pub(super) const LARGE: usize = 256 * 1024;

/// What is done to answers of one server.
#[derive(Debug, Clone)]
pub(super) struct Finish {
    pub(super) redactor: Arc<Redactor>,
    pub(super) redact: RedactResults,
    pub(super) limit: Option<NonZeroU64>,
    /// URIs that clients call otherwise, and where they may stand.
    pub(super) links: Option<(Place, Arc<Renamed>)>,
}

/// An answer that may go to the client.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) reply: Reply,
    /// It says `isError`, or is an error of the protocol.
    pub(super) outcome: &'static str,
    /// Bytes before it was cut.
    pub(super) cut_from: Option<usize>,
}

impl Finish {
    /// As the configuration of `server` has it.
    pub(super) fn of(server: &ServerConfig, redactor: Arc<Redactor>) -> Self {
        Self { redactor, redact: server.redact_results, limit: server.result_limit, links: None }
    }

    /// With the names under which clients know this server's URIs, where any differ.
    pub(super) fn linking(self, kind: ItemKind, names: Option<&Arc<Renamed>>) -> Self {
        let place = match kind {
            ItemKind::Tool => Some(Place::Content),
            ItemKind::Resource => Some(Place::Contents),
            ItemKind::Prompt => Some(Place::Messages),
            // Their texts are hermesd's, and name what the server's own tools take.
            ItemKind::Utility(_) | ItemKind::Completion | ItemKind::Subscription => None,
        };
        Self { links: place.zip(names.cloned()), ..self }
    }

    /// For the built-in server, which has no keys of its own: the defaults.
    pub(super) fn builtin(redactor: Arc<Redactor>) -> Self {
        Self { redactor, redact: RedactResults::default(), limit: None, links: None }
    }

    /// Masks and cuts `reply`.
    pub(super) async fn apply(self, reply: Reply) -> Finished {
        let (Reply::Result(body) | Reply::Error(body)) = &reply;
        if body.get().len() <= LARGE {
            return self.now(reply);
        }
        let work = tokio::task::spawn_blocking(move || self.now(reply));
        work.await.expect("masking and cutting a text does not panic")
    }

    fn now(&self, reply: Reply) -> Finished {
        match readable(reply) {
            Reply::Error(body) => Finished {
                reply: Reply::Error(masked(&self.redactor, body, Scope::Patterns)),
                outcome: "rpc_error",
                cut_from: None,
            },
            Reply::Result(body) => {
                let links = self.links.as_ref();
                let linked = links.and_then(|(place, names)| links::renamed(&body, *place, names));
                let body = linked.unwrap_or(body);
                let failed = result::is_error(&body);
                let body = match self.scope(failed) {
                    Some(scope) => masked(&self.redactor, body, scope),
                    None => body,
                };
                let cut = self.limit.and_then(|limit| result::cut(&body, limit));
                let outcome = if failed { "tool_error" } else { "ok" };
                match cut {
                    Some(cut) => {
                        Finished { reply: Reply::Result(cut.result), outcome, cut_from: Some(cut.was) }
                    }
                    None => Finished { reply: Reply::Result(body), outcome, cut_from: None },
                }
            }
        }
    }

    /// How much of a result is masked. The text of a failure is an error, where secrets of any kind
    /// turn up; only `off` leaves that alone too.
    fn scope(&self, failed: bool) -> Option<Scope> {
        let scope = match (self.redact, failed) {
            (RedactResults::Off, _) => None,
            (RedactResults::Known, false) => Some(Scope::Known),
            (RedactResults::Known, true) | (RedactResults::Patterns, _) => Some(Scope::Patterns),
        };
        scope.filter(|scope| self.redactor.masks(*scope))
    }

    /// The params of a progress notification, which carry text of the server too.
    pub(super) fn progress(&self, params: Box<RawValue>) -> Box<RawValue> {
        match self.scope(false) {
            Some(scope) => masked(&self.redactor, params, scope),
            None => params,
        }
    }
}

/// An answer that most clients could not read would cost them their session; it costs its call instead.
fn readable(reply: Reply) -> Reply {
    match &reply {
        Reply::Result(body) if depth::is_deeper(body.get(), depth::MAX_ANSWER) => {
            let text = format!(
                "the answer is nested deeper than {} levels, which clients cannot read; the call was executed",
                depth::MAX_ANSWER
            );
            Reply::error(INTERNAL_ERROR, &text)
        }
        Reply::Result(_) | Reply::Error(_) => reply,
    }
}

fn masked(redactor: &Redactor, body: Box<RawValue>, scope: Scope) -> Box<RawValue> {
    match redactor.redact_json(body.get(), scope) {
        Cow::Borrowed(_) => body,
        Cow::Owned(text) => RawValue::from_string(text).expect("masking keeps valid JSON valid"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RedactionLabels;
    use crate::secret::{KnownSecrets, Secret};

    fn finish(redact: RedactResults, limit: Option<u64>) -> Finish {
        let mut known = KnownSecrets::default();
        known.insert(Secret::new("hunter2-hunter2"));
        let redactor = Arc::new(Redactor::new(&known, RedactionLabels::Plain));
        Finish { redactor, redact, limit: limit.and_then(NonZeroU64::new), links: None }
    }

    fn result(text: &str) -> Reply {
        Reply::Result(RawValue::from_string(text.into()).unwrap())
    }

    fn body(reply: &Reply) -> &str {
        let (Reply::Result(body) | Reply::Error(body)) = reply;
        body.get()
    }

    const BOTH: &str = r#"{"content":[{"type":"text","text":"hunter2-hunter2 ghp_abcdefghijklmnopqrst"}]}"#;

    #[test]
    fn results_are_masked_as_far_as_the_key_says() {
        let known = finish(RedactResults::Known, None).now(result(BOTH));
        assert!(body(&known.reply).contains("[REDACTED] ghp_abc"), "{}", body(&known.reply));
        let patterns = finish(RedactResults::Patterns, None).now(result(BOTH));
        assert!(!body(&patterns.reply).contains("ghp_abc"));
        let off = finish(RedactResults::Off, None).now(result(BOTH));
        assert_eq!((body(&off.reply), off.outcome), (BOTH, "ok"));
    }

    #[test]
    fn failures_are_masked_by_patterns_unless_switched_off() {
        let failed = BOTH.replace("]}", r#"],"isError":true}"#);
        let known = finish(RedactResults::Known, None).now(result(&failed));
        assert_eq!(known.outcome, "tool_error");
        assert!(!body(&known.reply).contains("ghp_abc"));
        assert_eq!(body(&finish(RedactResults::Off, None).now(result(&failed)).reply), failed);
        let error = RawValue::from_string(r#"{"code":1,"message":"hunter2-hunter2"}"#.into()).unwrap();
        let error = finish(RedactResults::Off, None).now(Reply::Error(error));
        assert_eq!(
            (body(&error.reply), error.outcome),
            (r#"{"code":1,"message":"[REDACTED]"}"#, "rpc_error")
        );
    }

    #[tokio::test]
    async fn a_long_result_is_masked_before_it_is_cut() {
        let text = format!("{}hunter2-hunter2{}", "x ".repeat(LARGE), " y".repeat(LARGE));
        let long = format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#);
        let done = finish(RedactResults::Known, Some(2000)).apply(result(&long)).await;
        assert!(done.cut_from.is_some_and(|was| was > 4 * LARGE));
        assert!(body(&done.reply).len() < 3000 && !body(&done.reply).contains("hunter2"));
    }
}
