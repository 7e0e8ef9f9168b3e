//! What one line from a server means.
//!
//! Pure. A line that is no JSON-RPC is noise: counted, sampled, never fatal (servers print
//! banners, spinners and log lines on stdout). Invalid UTF-8 inside a good message is replaced,
//! an escape sequence or NULs in front of one are skipped.

use crate::jsonrpc::ids::own_number;
use crate::jsonrpc::splice::{Members, ObjectWriter, text};
use hermes_proto::shim::envelope::Envelope;
use serde_json::value::RawValue;

/// Longest sample of noise that is kept, in characters.
const SAMPLE_CHARS: usize = 200;

/// A message from a server.
#[derive(Debug)]
pub enum Inbound {
    /// An answer to one of our requests.
    Answer {
        /// Our number; `None`: not one of ours.
        id: Option<u64>,
        /// Whether the id was null (a server that could not read a request).
        null_id: bool,
        /// The outcome.
        body: Body,
    },
    /// A notification.
    Notification {
        /// Its method.
        method: String,
        /// Its params.
        params: Option<Box<RawValue>>,
    },
    /// A request to us.
    Request {
        /// Its id, raw, to answer with.
        id: Box<RawValue>,
        /// Its method.
        method: String,
        /// Its params.
        params: Option<Box<RawValue>>,
    },
    /// No JSON-RPC message.
    Noise(Noise),
}

/// The body of an answer.
#[derive(Debug)]
pub enum Body {
    /// `result`.
    Result(Box<RawValue>),
    /// `error`, made usable.
    Error(Box<RawValue>),
    /// Neither.
    Neither,
}

/// A line that was no JSON-RPC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noise {
    /// What it looks like.
    pub kind: NoiseKind,
    /// Its beginning, unredacted: mask before showing.
    pub sample: String,
}

/// What noise looks like; each kind has its own advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoiseKind {
    /// Text: a banner or a log line.
    Text,
    /// `Content-Length:` framing of the language server protocol.
    ContentLength,
    /// One line of a JSON message that was printed over several lines.
    MultiLineJson,
    /// A JSON value that is no JSON-RPC message.
    OtherJson,
}

impl NoiseKind {
    /// One sentence for a person: what it is and what to do.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Text => "the server prints text on stdout (a banner or log lines); it should log to stderr",
            Self::ContentLength => {
                "the server frames messages with Content-Length headers as language servers do; MCP on stdio wants one JSON message a line"
            }
            Self::MultiLineJson => {
                "looks like a JSON message printed over several lines; MCP on stdio wants one JSON message a line"
            }
            Self::OtherJson => {
                "the server prints JSON on stdout that is no JSON-RPC message; it should log to stderr"
            }
        }
    }
}

/// Reads one line. Empty lines are `None`.
pub fn read(line: &[u8]) -> Option<Inbound> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return None;
    }
    if let Some(message) = message(line) {
        return Some(message);
    }
    let lossy = String::from_utf8_lossy(line);
    // Spinners and NUL padding come before the brace; the message behind them is good.
    if let Some(at) = lossy.find('{')
        && (at > 0 || matches!(lossy, std::borrow::Cow::Owned(_)))
        && let Some(message) = message(&lossy.as_bytes()[at..])
    {
        return Some(message);
    }
    Some(Inbound::Noise(noise(&lossy)))
}

/// Reads a whole HTTP body or the data of an event: one message, or a batch of them (2025-03-26),
/// which may be printed over several lines. Never empty unless the body is.
pub fn read_body(body: &[u8]) -> Vec<Inbound> {
    // A string cannot contain a raw newline, so this changes layout only; clients get one line.
    let is_newline = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let one_line = body
        .iter()
        .any(is_newline)
        .then(|| body.iter().map(|byte| if is_newline(byte) { b' ' } else { *byte }).collect::<Vec<u8>>());
    let body = one_line.as_deref().unwrap_or(body);
    if body.trim_ascii_start().first() == Some(&b'[')
        && let Ok(batch) = serde_json::from_slice::<Vec<&RawValue>>(body)
    {
        return batch.iter().filter_map(|message| read(message.get().as_bytes())).collect();
    }
    read(body).into_iter().collect()
}

fn message(line: &[u8]) -> Option<Inbound> {
    let envelope = Envelope::parse(line).ok()?;
    let has_body = envelope.result.is_some() || envelope.error.is_some();
    match (envelope.method, envelope.id) {
        (Some(method), Some(id)) if !has_body && id.get() != "null" => {
            let params = envelope.params.map(ToOwned::to_owned);
            Some(Inbound::Request { id: id.to_owned(), method: method.into_owned(), params })
        }
        (Some(method), _) if !has_body => Some(Inbound::Notification {
            method: method.into_owned(),
            params: envelope.params.map(ToOwned::to_owned),
        }),
        (_, Some(id)) => Some(Inbound::Answer {
            id: own_number(id),
            null_id: id.get() == "null",
            body: body(envelope.result, envelope.error),
        }),
        _ => None,
    }
}

fn body(result: Option<&RawValue>, error: Option<&RawValue>) -> Body {
    match (result, error.filter(|error| error.get() != "null")) {
        (_, Some(error)) => Body::Error(usable_error(error)),
        (Some(result), None) => Body::Result(result.to_owned()),
        (None, None) => Body::Neither,
    }
}

/// Keeps an error object that has an integer code and a text; makes one with -32603 out of
/// anything else, the original under `data`.
fn usable_error(error: &RawValue) -> Box<RawValue> {
    let members = Members::parse(error).ok();
    let message = members.as_ref().and_then(|m| m.text("message"));
    let code = members.as_ref().and_then(|m| m.get("code"));
    if message.is_some() && code.is_some_and(|code| code.get().parse::<i64>().is_ok()) {
        return error.to_owned();
    }
    let fallback = text(error);
    let message =
        message.as_deref().or(fallback.as_deref()).unwrap_or("the server sent an error without a message");
    let mut out = ObjectWriter::default();
    out.member("code", "-32603").string("message", message).member("data", error.get());
    out.finish()
}

fn noise(line: &str) -> Noise {
    let trimmed = line.trim_start();
    let lower = trimmed.get(..16).unwrap_or(trimmed).to_ascii_lowercase();
    let looks_like_member = trimmed.starts_with('"') && trimmed.contains("\":");
    let kind = if lower.starts_with("content-length:") || lower.starts_with("content-type:") {
        NoiseKind::ContentLength
    } else if serde_json::from_str::<&RawValue>(trimmed)
        .is_ok_and(|raw| raw.get().len() > 1 && !raw.get().starts_with('"'))
    {
        NoiseKind::OtherJson
    } else if matches!(trimmed.trim_end(), "{" | "}" | "}," | "[" | "]" | "],") || looks_like_member {
        NoiseKind::MultiLineJson
    } else {
        NoiseKind::Text
    };
    Noise { kind, sample: line.chars().take(SAMPLE_CHARS).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise_kind(line: &str) -> NoiseKind {
        match read(line.as_bytes()) {
            Some(Inbound::Noise(noise)) => noise.kind,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn noise_is_told_apart_by_kind() {
        assert_eq!(noise_kind("Loading model..."), NoiseKind::Text);
        assert_eq!(noise_kind("Content-Length: 52"), NoiseKind::ContentLength);
        assert_eq!(noise_kind("{"), NoiseKind::MultiLineJson);
        assert_eq!(noise_kind("  \"jsonrpc\": \"2.0\","), NoiseKind::MultiLineJson);
        assert_eq!(noise_kind("{\"level\":\"info\"}"), NoiseKind::OtherJson);
        assert_eq!(noise_kind("[1,2]"), NoiseKind::OtherJson);
        assert!(read(b"  ").is_none());
    }

    #[test]
    fn a_message_behind_an_escape_sequence_or_with_a_bad_byte_is_read() {
        for line in [
            &b"\x1b[2K{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{}}"[..],
            b"\0\0{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{\"t\":\"\x92\"}}",
            b"{\"jsonrpc\":\"2.0\",\"id\":\"4\",\"result\":{\"t\":\"\x92\"}}",
        ] {
            assert!(matches!(read(line), Some(Inbound::Answer { id: Some(4), .. })), "{line:?}");
        }
    }

    #[test]
    fn every_shape_of_error_becomes_a_usable_one() {
        for (error, code) in [
            (r#"{"code":-32042,"message":"m","data":{"a":1}}"#, -32042),
            (r#""boom""#, -32603),
            (r#"{"code":"E1","message":"m"}"#, -32603),
            (r#"{"code":1.5}"#, -32603),
        ] {
            let line = format!(r#"{{"id":1,"result":{{}},"error":{error}}}"#);
            let Some(Inbound::Answer { body: Body::Error(error), .. }) = read(line.as_bytes()) else {
                panic!("{line}");
            };
            let value: serde_json::Value = serde_json::from_str(error.get()).unwrap();
            assert_eq!(value["code"], code);
            assert!(value["message"].is_string());
        }
        let neither = read(br#"{"id":1}"#);
        assert!(matches!(neither, Some(Inbound::Answer { body: Body::Neither, .. })));
    }

    #[test]
    fn requests_notifications_and_null_ids_are_told_apart() {
        assert!(matches!(read(br#"{"id":"x","method":"ping"}"#), Some(Inbound::Request { .. })));
        assert!(matches!(
            read(br#"{"method":"notifications/whatever"}"#),
            Some(Inbound::Notification { .. })
        ));
        let null = read(br#"{"id":null,"error":{"code":1,"message":"m"}}"#);
        assert!(matches!(null, Some(Inbound::Answer { id: None, null_id: true, .. })));
    }
}
