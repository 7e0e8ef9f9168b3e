//! What one line from a client means.
//!
//! Pure. A damaged line is answered and never ends the stream (JSON-RPC 2.0, section 5.1).

use crate::jsonrpc::ids::RequestId;
use crate::jsonrpc::reply::{INVALID_REQUEST, PARSE_ERROR};
use hermes_proto::shim::envelope::Envelope;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Longest batch that is accepted (batches exist in MCP 2025-03-26 only).
const MAX_BATCH: usize = 256;

/// A message from a client.
#[derive(Debug)]
pub enum ClientMessage {
    /// Wants an answer.
    Request {
        /// Its id, to answer with.
        id: RequestId,
        /// Its method.
        method: Box<str>,
        /// Its params, raw.
        params: Option<Box<RawValue>>,
    },
    /// Wants none.
    Notification {
        /// Its method.
        method: Box<str>,
        /// Its params, raw.
        params: Option<Box<RawValue>>,
    },
    /// Answers a request of ours.
    Response {
        /// The id we chose.
        id: RequestId,
        /// `Ok(result)` or `Err(error)`.
        outcome: Result<Box<RawValue>, Box<RawValue>>,
    },
    /// Several at once.
    Batch(Vec<ClientMessage>),
    /// Not usable; answered with this error under this raw id.
    Invalid {
        /// Raw id, `null` when it cannot be told.
        id: Box<str>,
        /// JSON-RPC code.
        code: i32,
        /// What is wrong, for a person.
        message: &'static str,
    },
}

/// Reads one line. Empty lines are `None`.
pub fn read(line: &[u8]) -> Option<ClientMessage> {
    let start = line.iter().position(|b| !b.is_ascii_whitespace())?;
    if line[start] == b'[' {
        return Some(batch(line));
    }
    Some(match Envelope::parse(line) {
        Ok(envelope) => single(envelope),
        Err(_) => match std::str::from_utf8(line) {
            // serde_json wants valid UTF-8; a bad byte inside a string must not lose the message.
            Err(_) => return read(String::from_utf8_lossy(line).as_bytes()),
            Ok(text) if is_json(text) => no_message(text),
            Ok(_) => invalid("null", PARSE_ERROR, "the line is not valid JSON"),
        },
    })
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

/// JSON that is no message, such as one whose method is a number; its id is told where it has one.
fn no_message(text: &str) -> ClientMessage {
    #[derive(Deserialize)]
    struct OnlyId<'a> {
        #[serde(borrow)]
        id: &'a RawValue,
    }
    let id = serde_json::from_str(text).ok().and_then(|only: OnlyId<'_>| RequestId::parse(only.id).ok());
    let id = id.as_ref().map_or("null", RequestId::raw);
    invalid(id, INVALID_REQUEST, "the message is not a JSON-RPC 2.0 object")
}

fn invalid(id: &str, code: i32, message: &'static str) -> ClientMessage {
    ClientMessage::Invalid { id: id.into(), code, message }
}

fn batch(line: &[u8]) -> ClientMessage {
    let Ok(items) = serde_json::from_slice::<Vec<&RawValue>>(line) else {
        return invalid("null", PARSE_ERROR, "the line is not valid JSON");
    };
    if items.is_empty() || items.len() > MAX_BATCH {
        return invalid("null", INVALID_REQUEST, "a batch must hold 1 to 256 messages");
    }
    let read_one = |item: &RawValue| match Envelope::parse(item.get().as_bytes()) {
        Ok(envelope) => single(envelope),
        Err(_) => no_message(item.get()),
    };
    ClientMessage::Batch(items.into_iter().map(read_one).collect())
}

fn single(envelope: Envelope<'_>) -> ClientMessage {
    let params = envelope.params.filter(|params| params.get() != "null").map(ToOwned::to_owned);
    // JSON-RPC 2.0, section 4: the member must be exactly "2.0". Answers of a client are taken as they are:
    // there is nobody to complain to.
    if envelope.method.is_some() && envelope.jsonrpc.is_none_or(|version| version.get() != "\"2.0\"") {
        let id = envelope.id.and_then(|raw| RequestId::parse(raw).ok());
        let id = id.as_ref().map_or("null", RequestId::raw);
        return invalid(id, INVALID_REQUEST, "the member jsonrpc must be \"2.0\"");
    }
    match (envelope.method, envelope.id) {
        (Some(method), None) => ClientMessage::Notification { method: method.into(), params },
        (Some(method), Some(id)) => match RequestId::parse(id) {
            Ok(id) => ClientMessage::Request { id, method: method.into(), params },
            Err(_) => invalid("null", INVALID_REQUEST, "a request id must be a string or a number"),
        },
        (None, Some(raw)) => match (RequestId::parse(raw), envelope.result, envelope.error) {
            (Ok(id), _, Some(error)) => ClientMessage::Response { id, outcome: Err(error.to_owned()) },
            (Ok(id), Some(result), None) => ClientMessage::Response { id, outcome: Ok(result.to_owned()) },
            (Ok(id), None, None) => invalid(id.raw(), INVALID_REQUEST, "the message has no method"),
            (Err(_), ..) => invalid("null", INVALID_REQUEST, "the message has no method"),
        },
        (None, None) => invalid("null", INVALID_REQUEST, "the message has neither a method nor an id"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(line: &[u8]) -> (String, i32) {
        match read(line) {
            Some(ClientMessage::Invalid { id, code, .. }) => (id.into(), code),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn damaged_lines_get_the_code_the_standard_names() {
        assert_eq!(code(b"not json"), ("null".into(), PARSE_ERROR));
        assert_eq!(
            code(b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}"),
            ("null".into(), INVALID_REQUEST)
        );
        assert_eq!(
            code(b"{\"jsonrpc\":\"2.0\",\"id\":true,\"method\":\"ping\"}"),
            ("null".into(), INVALID_REQUEST)
        );
        assert_eq!(code(b"{\"id\":3}"), ("3".into(), INVALID_REQUEST));
        assert_eq!(code(b"[]"), ("null".into(), INVALID_REQUEST));
        assert_eq!(code(b"3"), ("null".into(), INVALID_REQUEST));
        assert!(read(b"   ").is_none());
    }

    #[test]
    fn what_is_no_message_is_answered_under_its_id_where_it_has_one() {
        for line in [
            r#"{"id":7,"method":"ping"}"#,
            r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#,
            r#"{"jsonrpc":2.0,"id":7,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":1}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":{},"params":"bar"}"#,
        ] {
            assert_eq!(code(line.as_bytes()), ("7".into(), INVALID_REQUEST), "{line}");
        }
        for line in [
            r#"{"method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","method":1,"params":"bar"}"#,
            r#"{"jsonrpc":"2.0","id":7,"id":8,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":1}"#,
        ] {
            assert_eq!(code(line.as_bytes()), ("null".into(), INVALID_REQUEST), "{line}");
        }
        let batch = read(br#"[{"jsonrpc":"2.0","id":"a","method":1}]"#);
        let Some(ClientMessage::Batch(items)) = batch else { panic!() };
        assert!(matches!(&items[..], [ClientMessage::Invalid { id, .. }] if &**id == "\"a\""));
    }

    #[test]
    fn requests_notifications_responses_and_batches_are_told_apart() {
        assert!(matches!(
            read(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"}"),
            Some(ClientMessage::Request { .. })
        ));
        assert!(matches!(
            read(b"{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"params\":null}"),
            Some(ClientMessage::Notification { params: None, .. })
        ));
        assert!(matches!(
            read(b"{\"id\":1,\"result\":null}"),
            Some(ClientMessage::Response { outcome: Ok(_), .. })
        ));
        assert!(matches!(
            read(b"{\"id\":1,\"error\":{}}"),
            Some(ClientMessage::Response { outcome: Err(_), .. })
        ));
        let Some(ClientMessage::Batch(items)) = read(b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"},5]")
        else {
            panic!()
        };
        assert!(matches!(&items[..], [ClientMessage::Request { .. }, ClientMessage::Invalid { .. }]));
        assert!(matches!(
            read(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\xff\"}"),
            Some(ClientMessage::Request { .. })
        ));
    }
}
