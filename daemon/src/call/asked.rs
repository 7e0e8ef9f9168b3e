//! What a server asks of the client that it works for, and who answers.
//!
//! Owner: nobody; the future runs inside the call or the session that the question is about, so that its
//! end takes the question back at the client. Promise: a client is asked only what it said that it
//! understands; everything else is declined at once, with a reason; what the server cannot know (progress
//! tokens, other clients) never passes. May touch: the caller's [`Peer`](super::peer::Peer). May not
//! touch: other clients.

use super::Caller;
use super::answer::Finish;
use super::peer::{AskError, Feature};
use super::steps::CallPath;
use crate::config::ServerConfig;
use crate::jsonrpc::depth;
use crate::jsonrpc::reply::{INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, Reply};
use crate::jsonrpc::splice::{Members, ObjectWriter};
use crate::sampling::{self, ClientFailure};
use crate::server::wire::questions::Question;
use serde_json::value::RawValue;
use std::time::Duration;

/// The longest that a person is waited for.
const PERSON: Duration = Duration::from_secs(300);

/// The longest that a client may take to tell its folders.
const ROOTS: Duration = Duration::from_secs(30);

/// What a server may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Sampling,
    Elicitation,
    Roots,
}

impl Asked {
    fn named(method: &str) -> Option<(Self, &'static str)> {
        match method {
            sampling::METHOD => Some((Self::Sampling, sampling::METHOD)),
            "elicitation/create" => Some((Self::Elicitation, "elicitation/create")),
            "roots/list" => Some((Self::Roots, "roots/list")),
            _ => None,
        }
    }
}

/// Answers one question of `server`, unless it is taken back before.
///
/// # Cancel safety
/// Dropped, the client is told that nobody waits any more, and so is the server.
pub async fn serve(path: &CallPath, caller: &Caller, server: &ServerConfig, question: Question) {
    let Question { method, params, answer: mut done } = question;
    let reply = tokio::select! {
        biased;
        () = done.closed() => return,
        reply = answer(path, caller, server, &method, params.as_deref()) => reply,
    };
    // Taken back this moment: nobody waits any more.
    let _ = done.send(reply);
}

/// Who answers what `server` asks, and what they say, as it goes to the server.
///
/// # Cancel safety
/// As [`serve`].
pub async fn answer(
    path: &CallPath,
    caller: &Caller,
    server: &ServerConfig,
    method: &str,
    params: Option<&RawValue>,
) -> Reply {
    let Some((asked, method)) = Asked::named(method) else {
        return Reply::error(METHOD_NOT_FOUND, "hermesd does not know this request");
    };
    let params = match outward(path, server, params) {
        Ok(params) => params,
        Err(reply) => return reply,
    };
    let reply = match asked {
        // It says itself who answered, and what it cost.
        Asked::Sampling => return sample(path, caller, server, &params).await,
        Asked::Elicitation => elicit(caller, method, &params).await,
        Asked::Roots => roots(caller, method, &params).await,
    };
    let outcome = match &reply {
        Reply::Result(_) => "answered",
        Reply::Error(_) => "declined",
    };
    tracing::info!(server = %server.name, client = %caller.client, method, outcome, "the server asked its client");
    reply
}

/// Sampling: by the caller's client or by the daemon's own provider, within the limits of the entry.
async fn sample(path: &CallPath, caller: &Caller, server: &ServerConfig, params: &RawValue) -> Reply {
    let tools = Members::parse(params).is_ok_and(|members| members.get("tools").is_some());
    let feature = if tools { Feature::SamplingTools } else { Feature::Sampling };
    let peer = caller.peer.as_ref().filter(|peer| peer.has(feature));
    let client = peer.map(|peer| {
        move |params: Box<RawValue>, limit: Duration| async move {
            let asking = peer.ask(sampling::METHOD, &params, limit).map_err(unasked)?;
            asking.await.map_err(unasked)
        }
    });
    let caller = Some((caller.client, caller.identity.clone()));
    let asked = sampling::Asked { server, caller, trace_id: "", params };
    path.around.sampling.create_message(asked, client).await
}

fn unasked(error: AskError) -> ClientFailure {
    match error {
        AskError::Busy { .. } => ClientFailure::Busy,
        AskError::TimedOut { .. } => ClientFailure::TimedOut,
        AskError::Gone => ClientFailure::Gone,
    }
}

/// Elicitation, in the mode that the server wants.
async fn elicit(caller: &Caller, method: &'static str, params: &RawValue) -> Reply {
    let members = Members::parse(params).unwrap_or_default();
    let feature = match members.text("mode").as_deref() {
        None | Some("form") => Feature::Form,
        Some("url") => Feature::Url,
        Some(mode) => {
            return Reply::error(
                INVALID_PARAMS,
                &format!("hermesd does not know the elicitation mode `{mode}`"),
            );
        }
    };
    put(caller, feature, method, params, PERSON).await
}

/// The folders of the client; it has none to tell where it does not know the question.
async fn roots(caller: &Caller, method: &'static str, params: &RawValue) -> Reply {
    if caller.peer.as_ref().is_some_and(|peer| peer.has(Feature::Roots)) {
        return put(caller, Feature::Roots, method, params, ROOTS).await;
    }
    let mut none = ObjectWriter::default();
    none.member("roots", "[]");
    Reply::Result(none.finish())
}

/// Puts a question to the caller's client, where it said that it understands it.
async fn put(
    caller: &Caller,
    feature: Feature,
    method: &'static str,
    params: &RawValue,
    limit: Duration,
) -> Reply {
    let Some(peer) = caller.peer.as_ref().filter(|peer| peer.has(feature)) else {
        let text = format!("the client of this call does not support {}", word(feature));
        return Reply::error(INVALID_PARAMS, &text);
    };
    let asking = match peer.ask(method, params, limit) {
        Ok(asking) => asking,
        Err(error) => return failed(error),
    };
    match asking.await {
        Ok(reply) => reply,
        Err(error) => failed(error),
    }
}

fn failed(error: AskError) -> Reply {
    Reply::error(INTERNAL_ERROR, &error.to_string())
}

fn word(feature: Feature) -> &'static str {
    match feature {
        Feature::Form => "elicitation with forms",
        Feature::Url => "elicitation with a URL",
        Feature::Sampling => "sampling",
        Feature::SamplingTools => "sampling with tools",
        Feature::Roots | Feature::RootsNews => "roots",
    }
}

/// The params as a client may see them: without the server's progress token, which is no token of this
/// session, and with secrets masked as in a result.
///
/// # Errors
/// The answer for the server, where most clients could not read them.
fn outward(
    path: &CallPath,
    server: &ServerConfig,
    params: Option<&RawValue>,
) -> Result<Box<RawValue>, Reply> {
    let empty = ObjectWriter::default().finish();
    let params = params.filter(|params| params.get().starts_with('{')).unwrap_or(&empty);
    if depth::is_deeper(params.get(), depth::MAX_ANSWER) {
        return Err(Reply::error(INVALID_PARAMS, "the params are nested deeper than clients can read"));
    }
    let redactor = path.around.redactor.borrow().clone();
    Ok(Finish::of(server, redactor).progress(without_token(params)))
}

fn without_token(params: &RawValue) -> Box<RawValue> {
    let members = Members::parse(params).unwrap_or_default();
    match members.get("_meta").and_then(|raw| Members::parse(raw).ok()) {
        Some(meta) if meta.get("progressToken").is_some() => {
            members.with("_meta", meta.without("progressToken").get())
        }
        Some(_) | None => params.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn a_token_of_the_server_reaches_no_client_and_everything_else_does() {
        let params = raw(r#"{"messages":[],"_meta":{"progressToken":7,"x":1.0},"maxTokens":1e2}"#);
        assert_eq!(without_token(&params).get(), r#"{"messages":[],"_meta":{"x":1.0},"maxTokens":1e2}"#);
        let plain = raw(r#"{"b":1,"a":{"_meta":{"progressToken":1}}}"#);
        assert_eq!(without_token(&plain).get(), plain.get());
    }
}
