//! What a server of 2026-07-28 wants before it finishes a call, and who answers that.
//!
//! Promise: what it wants goes the same way as a question of an older server: to the client of this call, in
//! the form of that client's revision, or to the daemon's own provider; the request is then made again with the
//! answers and the server's own state, byte for byte; after [`ROUNDS`] rounds the call is given up. Nothing is
//! held at the server meanwhile. May not touch: the wire.

use super::asked;
use super::error::CallError;
use super::peer::Feature;
use super::{CallPath, Caller};
use crate::config::ServerConfig;
use crate::jsonrpc::era::meta;
use crate::jsonrpc::reply::Reply;
use crate::jsonrpc::splice::{Members, ObjectWriter};
use futures_util::future::join_all;
use serde_json::value::RawValue;

/// How often one call may want something.
pub(super) const ROUNDS: u32 = 10;

/// Questions of one round that are looked at.
const MAX_ASKED: usize = 32;

/// One answer that is none yet.
#[derive(Debug)]
pub(super) struct Wanted {
    asks: Vec<Ask>,
    /// `requestState`, raw.
    state: Option<Box<RawValue>>,
}

#[derive(Debug)]
struct Ask {
    name: String,
    method: String,
    params: Option<Box<RawValue>>,
}

/// What the request is made again with.
#[derive(Debug)]
pub(super) struct Given {
    responses: Option<Box<RawValue>>,
    state: Option<Box<RawValue>>,
}

impl Wanted {
    /// Reads a result; `None`: it is complete.
    pub(super) fn read(result: &RawValue) -> Option<Self> {
        // Looking for the word is far cheaper than reading a long result.
        if !result.get().contains("\"input_required\"") {
            return None;
        }
        let members = Members::parse(result).ok()?;
        if members.text("resultType").as_deref() != Some("input_required") {
            return None;
        }
        let requests =
            members.get("inputRequests").and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
        let asks = requests.iter().take(MAX_ASKED).filter_map(|(name, request)| {
            let request = Members::parse(request).ok()?;
            let method = request.text("method")?.into_owned();
            Some(Ask { name: name.to_owned(), method, params: request.get("params").map(ToOwned::to_owned) })
        });
        Some(Self { asks: asks.collect(), state: members.get("requestState").map(ToOwned::to_owned) })
    }

    /// For an error: what it wants.
    pub(super) fn methods(&self) -> String {
        let mut methods: Vec<&str> = self.asks.iter().map(|ask| ask.method.as_str()).collect();
        methods.sort_unstable();
        methods.dedup();
        if methods.is_empty() { "nothing that it names".to_owned() } else { methods.join(", ") }
    }

    /// Has everything answered.
    ///
    /// # Errors
    /// [`CallError::InputRequired`]: one of the questions has no answer, with the reason.
    /// # Cancel safety
    /// Dropped, the client is told that nobody waits.
    pub(super) async fn answered(
        self,
        path: &CallPath,
        caller: &Caller,
        server: &ServerConfig,
    ) -> Result<Given, CallError> {
        let answers = self.asks.iter().map(|ask| async move {
            // A client of the same era hears the name that the server chose.
            let peer =
                caller.peer.as_ref().map(|peer| peer.naming(&ask.name).unwrap_or_else(|| peer.clone()));
            let caller = Caller { peer, ..caller.clone() };
            asked::answer(path, &caller, server, &ask.method, ask.params.as_deref()).await
        });
        let answers = join_all(answers).await;
        let mut responses = ObjectWriter::default();
        for (ask, reply) in self.asks.iter().zip(answers) {
            match reply {
                Reply::Result(result) => drop(responses.member(&ask.name, result.get())),
                Reply::Error(error) => {
                    let why = Members::parse(&error)
                        .ok()
                        .and_then(|error| Some(error.text("message")?.into_owned()));
                    let wants = format!("{}: {}", ask.method, why.unwrap_or_default());
                    return Err(CallError::InputRequired { wants });
                }
            }
        }
        // Without questions it only wants to be asked again.
        let responses = (!self.asks.is_empty()).then(|| responses.finish());
        Ok(Given { responses, state: self.state })
    }
}

impl Given {
    /// `params` with it.
    pub(super) fn put_into(&self, params: &RawValue) -> Box<RawValue> {
        let members = Members::parse(params).unwrap_or_default();
        let mut out = ObjectWriter::with_capacity(params.get().len() + 256);
        for (name, value) in
            members.iter().filter(|(name, _)| !matches!(*name, "inputResponses" | "requestState"))
        {
            out.member(name, value.get());
        }
        for (name, value) in [("inputResponses", &self.responses), ("requestState", &self.state)] {
            if let Some(value) = value {
                out.member(name, value.get());
            }
        }
        out.finish()
    }
}

/// `params` that say what whoever answers for this call can be asked (2026-07-28, `clientCapabilities`).
pub(super) fn declaring(
    params: &RawValue,
    path: &CallPath,
    caller: &Caller,
    server: &ServerConfig,
) -> Box<RawValue> {
    let has = |feature| caller.peer.as_ref().is_some_and(|peer| peer.has(feature));
    let by_daemon = path.around.sampling.can_answer(server);
    let (form, url, sampling, tools, roots) = (
        has(Feature::Form),
        has(Feature::Url),
        server.sampling.enabled && has(Feature::Sampling),
        server.sampling.enabled && has(Feature::SamplingTools),
        has(Feature::Roots),
    );
    let mut all = ObjectWriter::default();
    if form || url {
        let mut modes = ObjectWriter::default();
        for (mode, can) in [("form", form), ("url", url)] {
            if can {
                modes.member(mode, "{}");
            }
        }
        all.member("elicitation", modes.finish().get());
    }
    if sampling || by_daemon {
        all.member("sampling", if tools || by_daemon { r#"{"tools":{}}"# } else { "{}" });
    }
    if roots {
        all.member("roots", "{}");
    }
    let members = Members::parse(params).unwrap_or_default();
    let about = members.get("_meta").and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
    members.with("_meta", about.with(meta::CAPABILITIES, all.finish().get()).get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn only_a_result_that_says_so_wants_input() {
        let wants = raw(r#"{"resultType":"input_required","requestState":"s\u0041","inputRequests":{
                "b":{"method":"roots/list"},"a":{"method":"elicitation/create","params":{}},"c":{"method":"roots/list"},"d":5}}"#);
        let wanted = Wanted::read(&wants).unwrap();
        assert_eq!(wanted.methods(), "elicitation/create, roots/list");
        assert_eq!(wanted.asks.len(), 3);
        assert_eq!(
            Wanted::read(&raw(r#"{"resultType":"input_required"}"#)).unwrap().methods(),
            "nothing that it names"
        );
        assert!(Wanted::read(&raw(r#"{"resultType":"complete","content":["input_required"]}"#)).is_none());
        assert!(Wanted::read(&raw(r#"{"content":[{"resultType":"input_required"}]}"#)).is_none());
    }

    #[test]
    fn the_state_goes_back_byte_for_byte_and_what_was_given_before_is_replaced() {
        let given =
            Given { responses: Some(raw(r#"{"a":{"action":"accept"}}"#)), state: Some(raw(r#""s\u0041""#)) };
        let params = given.put_into(&raw(r#"{"name":"t","requestState":"old","arguments":{"n":1.0}}"#));
        assert_eq!(
            params.get(),
            r#"{"name":"t","arguments":{"n":1.0},"inputResponses":{"a":{"action":"accept"}},"requestState":"s\u0041"}"#
        );
        let again = Given { responses: None, state: None }.put_into(&params);
        assert_eq!(again.get(), r#"{"name":"t","arguments":{"n":1.0}}"#);
    }
}
