//! Questions of the daemon to one client, and what became of them.
//!
//! Owner of the open questions: [`Asks`], one for each session, cheap to clone. Promise: ids begin with the
//! random prefix of the connection and are given once, so that no answer is taken for another's; at most
//! [`MAX_OPEN`] are open; a question that nobody waits for any more is cancelled at the client; the end of
//! the session ends them all. A std mutex, never held across an await. May not touch: what is asked.

use super::outbox::Outbox;
use crate::call::peer::{AskError, Asking, Feature, Peer};
use crate::jsonrpc::ids::{IdKey, RequestId};
use crate::jsonrpc::reply::Reply;
use crate::jsonrpc::splice::ObjectWriter;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Questions to one client that may be open.
pub const MAX_OPEN: usize = 32;

/// The questions of one session.
#[derive(Debug, Clone)]
pub struct Asks {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    prefix: Arc<str>,
    outbox: Outbox,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    open: HashMap<IdKey, oneshot::Sender<Reply>>,
    revision: &'static str,
    /// What it can be asked.
    features: Vec<Feature>,
    ended: bool,
}

impl Asks {
    /// No question yet; `prefix` is that of the connection.
    pub fn new(prefix: Arc<str>, outbox: Outbox) -> Self {
        Self { inner: Arc::new(Inner { prefix, outbox, state: Mutex::default() }) }
    }

    /// What the client said in `initialize`.
    pub fn declare(&self, revision: &'static str, capabilities: Option<&RawValue>) {
        let features = Feature::declared(revision, capabilities);
        let mut state = self.lock();
        (state.revision, state.features) = (revision, features);
    }

    /// Hands an answer of the client to whoever waits for it; answers to nothing are dropped.
    pub fn answered(&self, id: &RequestId, outcome: Result<Box<RawValue>, Box<RawValue>>) {
        let waiting = self.lock().open.remove(id.key());
        if let Some(waiting) = waiting {
            // Whoever asked may have gone this moment.
            let _ = waiting.send(outcome.map_or_else(Reply::Error, Reply::Result));
        }
    }

    /// The session is over: everybody who waits is told so.
    pub fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        state.open.clear();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer for Asks {
    fn revision(&self) -> &'static str {
        self.lock().revision
    }

    fn has(&self, feature: Feature) -> bool {
        self.lock().features.contains(&feature)
    }

    fn ask(&self, method: &'static str, params: &RawValue, limit: Duration) -> Result<Asking, AskError> {
        let (answer, answered) = oneshot::channel();
        let id = {
            let mut state = self.lock();
            if state.ended {
                return Err(AskError::Gone);
            }
            if state.open.len() >= MAX_OPEN {
                return Err(AskError::Busy { open: state.open.len(), limit: MAX_OPEN });
            }
            state.last += 1;
            let id = format!("{}-{}", self.inner.prefix, state.last);
            state.open.insert(IdKey::Text(id.as_str().into()), answer);
            id
        };
        // The method comes first: what begins with an id is taken for an answer by the shim.
        let mut line = ObjectWriter::with_capacity(params.get().len() + 96);
        line.string("method", method)
            .string("jsonrpc", "2.0")
            .string("id", &id)
            .member("params", params.get());
        self.inner.outbox.answer(line.finish().get().as_bytes().to_vec());
        let open = Open { asks: self.clone(), id: Some(id) };
        Ok(Box::pin(async move {
            // The whole of it, not only the field that is set below.
            let mut open = open;
            match tokio::time::timeout(limit, answered).await {
                Err(_) => Err(AskError::TimedOut { limit }),
                Ok(outcome) => {
                    open.over();
                    outcome.map_err(|_| AskError::Gone)
                }
            }
        }))
    }
}

/// Cancels a question that nobody waits for any more (MCP 2025-11-25, Cancellation).
struct Open {
    asks: Asks,
    id: Option<String>,
}

impl Open {
    /// Nothing is left to be cancelled.
    fn over(&mut self) {
        self.id = None;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        if self.asks.lock().open.remove(&IdKey::Text(id.as_str().into())).is_none() {
            return;
        }
        let mut params = ObjectWriter::default();
        params.string("requestId", &id).string("reason", "no longer needed");
        let mut line = ObjectWriter::default();
        line.string("jsonrpc", "2.0")
            .string("method", "notifications/cancelled")
            .member("params", params.finish().get());
        self.asks.inner.outbox.notify(line.finish().get().as_bytes().to_vec());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::IoSlice;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn asks() -> (Asks, Outbox) {
        let outbox = Outbox::default();
        (Asks::new("p".into(), outbox.clone()), outbox)
    }

    /// The lines that wait, joined.
    fn written(outbox: &Outbox) -> String {
        let mut all = Vec::new();
        let mut write = |slices: &[IoSlice<'_>]| {
            slices.iter().for_each(|slice| all.extend_from_slice(slice));
            Ok(slices.iter().map(|slice| slice.len()).sum())
        };
        outbox.flush(&mut write).unwrap();
        String::from_utf8(all).unwrap()
    }

    fn id(text: &str) -> RequestId {
        RequestId::parse(&raw(text)).unwrap()
    }

    const LIMIT: Duration = Duration::from_secs(45);

    #[tokio::test(start_paused = true)]
    async fn each_answer_reaches_its_own_question_once() {
        let (asks, outbox) = asks();
        let one = asks.ask("m", &raw(r#"{"n":1}"#), LIMIT).unwrap();
        let two = asks.ask("m", &raw("{}"), LIMIT).unwrap();
        let lines = written(&outbox);
        assert!(
            lines.starts_with(r#"{"method":"m","jsonrpc":"2.0","id":"p-1","params":{"n":1}}"#),
            "{lines}"
        );
        asks.answered(&id(r#""p-2""#), Err(raw(r#"{"code":1}"#)));
        for stray in [r#""p-2""#, r#""q-1""#, "1", r#""p-3""#] {
            asks.answered(&id(stray), Ok(raw(r#""stray""#)));
        }
        asks.answered(&id(r#""p-1""#), Ok(raw("{}")));
        assert!(matches!(two.await, Ok(Reply::Error(error)) if error.get() == r#"{"code":1}"#));
        assert!(matches!(one.await, Ok(Reply::Result(result)) if result.get() == "{}"));
        assert_eq!(written(&outbox), "");
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_nobody_waits_for_is_cancelled_at_the_client() {
        let (asks, outbox) = asks();
        drop(asks.ask("m", &raw("{}"), LIMIT).unwrap());
        assert!(
            written(&outbox).contains(r#""method":"notifications/cancelled","params":{"requestId":"p-1""#)
        );
        let late = asks.ask("m", &raw("{}"), LIMIT).unwrap();
        assert!(matches!(late.await, Err(AskError::TimedOut { limit }) if limit == LIMIT));
        assert!(written(&outbox).contains(r#""requestId":"p-2""#));
    }

    #[tokio::test(start_paused = true)]
    async fn questions_are_bounded_and_end_with_the_session() {
        let (asks, outbox) = asks();
        let mut open: Vec<Asking> =
            (0..MAX_OPEN).map(|_| asks.ask("m", &raw("{}"), LIMIT).unwrap()).collect();
        let busy = AskError::Busy { open: MAX_OPEN, limit: MAX_OPEN };
        assert_eq!(asks.ask("m", &raw("{}"), LIMIT).err(), Some(busy));
        drop(open.pop());
        asks.end();
        written(&outbox);
        for question in open {
            assert!(matches!(question.await, Err(AskError::Gone)));
        }
        assert_eq!(asks.ask("m", &raw("{}"), LIMIT).err(), Some(AskError::Gone));
        assert_eq!(written(&outbox), "");
    }

    #[test]
    fn only_what_the_client_said_in_a_revision_that_has_it_can_be_asked() {
        let (asks, _) = asks();
        for (revision, capabilities, can) in [
            ("2025-06-18", r#"{"elicitation":{}}"#, &[Feature::Form][..]),
            (
                "2025-11-25",
                r#"{"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true}}"#,
                &[Feature::Form, Feature::Url, Feature::Roots, Feature::RootsNews],
            ),
            ("2025-06-18", r#"{"elicitation":{"form":{},"url":{}}}"#, &[Feature::Form]),
            ("2025-11-25", r#"{"elicitation":{"url":{}},"roots":{}}"#, &[Feature::Url, Feature::Roots]),
            ("2025-11-25", r#"{"elicitation":true,"sampling":null}"#, &[]),
            ("2025-11-25", r#"{"sampling":{"tools":{}}}"#, &[Feature::Sampling, Feature::SamplingTools]),
            ("2025-03-26", r#"{"elicitation":{},"sampling":{"tools":{}}}"#, &[Feature::Sampling]),
        ] {
            asks.declare(revision, Some(&raw(capabilities)));
            for feature in Feature::ALL {
                assert_eq!(
                    asks.has(feature),
                    can.contains(&feature),
                    "{revision} {capabilities} {feature:?}"
                );
            }
        }
        asks.declare("2025-11-25", None);
        assert!(!asks.has(Feature::Form));
    }
}
