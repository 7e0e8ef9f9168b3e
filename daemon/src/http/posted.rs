//! Pure: what the body of a POST is, as far as its answer depends on it.
//!
//! Promise: the line that goes to the session is the body with its line breaks turned into spaces, which
//! stand between tokens only: a string of JSON has none. Everything else stays byte for byte.

use crate::jsonrpc::ids::{IdKey, RequestId};
use crate::jsonrpc::reply::{INVALID_REQUEST, PARSE_ERROR, Reply};
use crate::jsonrpc::splice::{self, Members};
use crate::session::inbound::{self, ClientMessage};
use serde_json::value::RawValue;

/// The member of `_meta` in which a request names its revision (2026-07-28).
pub const REVISION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
/// The member of `_meta` in which it names its client (2026-07-28).
const CLIENT_KEY: &str = "io.modelcontextprotocol/clientInfo";
/// The member of `_meta` in which it names what its client can do (2026-07-28).
pub const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";

/// A body that can be used.
#[derive(Debug)]
pub struct Posted {
    /// The line for the session, without its end.
    pub line: Vec<u8>,
    /// What it is.
    pub kind: Kind,
}

/// What a body is.
#[derive(Debug)]
pub enum Kind {
    /// One request.
    Request(Box<Request>),
    /// Several messages with at least one request (2025-03-26).
    Batch(Vec<Request>),
    /// Notifications and answers: nothing comes back.
    Silent,
}

/// One request, as far as its answer depends on it.
#[derive(Debug)]
pub struct Request {
    /// Its id.
    pub id: RequestId,
    /// Its method.
    pub method: Box<str>,
    /// `params._meta.progressToken`.
    pub token: Option<IdKey>,
    /// `params.name`.
    pub name: Option<String>,
    /// `params.uri`.
    pub uri: Option<String>,
    /// `params.arguments`, kept only where the request is a call of a tool.
    pub arguments: Option<Box<RawValue>>,
    /// What `params._meta` says of the client.
    pub said: Said,
}

/// What a request says of its client in `_meta` (2026-07-28).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    /// The revision it names.
    pub revision: Option<String>,
    /// It names its capabilities.
    pub capabilities: bool,
    /// Its name and capabilities as they stand there: who says the same is taken for the same client.
    pub who: String,
}

impl Request {
    fn of(id: RequestId, method: Box<str>, params: Option<&RawValue>) -> Self {
        let params = params.and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
        let meta = params.get("_meta").and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
        let said = |key| meta.get(key).map_or("", RawValue::get);
        let text = |key| params.text(key).map(std::borrow::Cow::into_owned);
        Self {
            token: meta.get("progressToken").and_then(|raw| IdKey::parse(raw).ok()),
            name: text("name"),
            uri: text("uri"),
            arguments: params.get("arguments").filter(|_| &*method == "tools/call").map(ToOwned::to_owned),
            said: Said {
                revision: meta.text(REVISION_KEY).map(std::borrow::Cow::into_owned),
                capabilities: meta.get(CAPABILITIES_KEY).is_some_and(|raw| raw.get().starts_with('{')),
                who: format!("{} {}", said(CLIENT_KEY), said(CAPABILITIES_KEY)),
            },
            id,
            method,
        }
    }

    /// Whether the server may ask the client something before it answers.
    pub fn may_be_asked_about(&self) -> bool {
        matches!(&*self.method, "tools/call" | "resources/read" | "prompts/get" | "completion/complete")
    }
}

/// Reads a body.
///
/// # Errors
/// The answer, a whole JSON-RPC message, where the body is no message.
pub fn read(body: &[u8]) -> Result<Posted, Vec<u8>> {
    let Ok(text) = std::str::from_utf8(body) else {
        return Err(Reply::error(PARSE_ERROR, "the body is not UTF-8").line("null"));
    };
    let kind = match inbound::read(body) {
        None => return Err(Reply::error(INVALID_REQUEST, "the body is empty").line("null")),
        Some(ClientMessage::Invalid { id, code, message }) => {
            return Err(Reply::error(code, message).line(&id));
        }
        Some(ClientMessage::Request { id, method, params }) => {
            Kind::Request(Box::new(Request::of(id, method, params.as_deref())))
        }
        Some(ClientMessage::Notification { .. } | ClientMessage::Response { .. }) => Kind::Silent,
        Some(ClientMessage::Batch(items)) => batch(items),
    };
    Ok(Posted { line: splice::one_line(text).into_owned().into_bytes(), kind })
}

fn batch(items: Vec<ClientMessage>) -> Kind {
    let mut requests = Vec::new();
    let mut answered = false;
    for item in items {
        match item {
            ClientMessage::Request { id, method, params } => {
                requests.push(Request::of(id, method, params.as_deref()));
            }
            // Comes back as an error without a request of ours to wait for.
            ClientMessage::Invalid { .. } | ClientMessage::Batch(_) => answered = true,
            ClientMessage::Notification { .. } | ClientMessage::Response { .. } => {}
        }
    }
    if requests.is_empty() && !answered { Kind::Silent } else { Kind::Batch(requests) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(body: &str) -> Request {
        match read(body.as_bytes()).unwrap().kind {
            Kind::Request(request) => *request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_the_answer_depends_on_is_found() {
        let one = request(
            r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"t","arguments":{"x":1.0},
               "_meta":{"progressToken":7,"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
        );
        assert_eq!((one.id.raw(), one.name.as_deref(), one.uri.as_deref()), ("\"a\"", Some("t"), None));
        assert_eq!(one.token, Some(IdKey::Number("7".into())));
        assert_eq!((one.said.revision.as_deref(), one.said.capabilities), (Some("2026-07-28"), false));
        assert_eq!(one.arguments.unwrap().get(), r#"{"x":1.0}"#);
        let bare = request(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        assert_eq!((bare.said.revision, bare.token), (None, None));
    }

    #[test]
    fn notifications_and_answers_have_no_answer() {
        for silent in [
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":"p-1","result":{}}"#,
            r#"[{"jsonrpc":"2.0","method":"notifications/initialized"}]"#,
        ] {
            assert!(matches!(read(silent.as_bytes()).unwrap().kind, Kind::Silent), "{silent}");
        }
        for (bad, code) in [("", "-32600"), ("{", "-32700"), ("{}", "-32600"), ("\u{1}", "-32700")] {
            let said = String::from_utf8(read(bad.as_bytes()).unwrap_err()).unwrap();
            assert!(said.contains(code), "{bad}: {said}");
        }
        assert!(read(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}").is_err());
        // A line break inside a string is no JSON and must not become some.
        assert!(read(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\nb\"}").is_err());
    }

    proptest! {
        #[test]
        fn the_line_differs_from_the_body_in_line_breaks_only(text in ".{0,40}", breaks in "[\r\n ]{0,4}") {
            let text = serde_json::to_string(&text).unwrap();
            let body = format!("{{{breaks}\"jsonrpc\":\"2.0\",\"id\":{text},{breaks}\"method\":\"m\"{breaks}}}");
            let posted = read(body.as_bytes()).unwrap();
            prop_assert_eq!(posted.line.len(), body.len());
            prop_assert!(!posted.line.contains(&b'\n') && !posted.line.contains(&b'\r'));
            let same = posted.line.iter().zip(body.bytes()).all(|(a, b)| *a == b || b == b'\n' || b == b'\r');
            prop_assert!(same);
        }
    }
}
