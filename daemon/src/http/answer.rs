//! Pure: responses, and lines as events of a stream.
//!
//! Promise: a line goes out byte for byte, as a JSON body or as the `data` of one event; no response may be
//! stored by anybody.

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use std::convert::Infallible;

use crate::jsonrpc::reply::{INVALID_REQUEST, Reply};

/// The body of every response.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Keeps reverse proxies from collecting events.
const UNBUFFERED: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The session a response belongs to (2025-03-26 to 2025-11-25).
pub const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

fn response(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// No body at all.
pub fn empty(status: StatusCode) -> Response<Body> {
    response(status, Full::default().boxed_unsync())
}

/// One JSON-RPC message.
pub fn json(status: StatusCode, line: Bytes) -> Response<Body> {
    let mut response = response(status, Full::new(line).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A JSON-RPC error that belongs to no request.
pub fn refused(status: StatusCode, text: &str) -> Response<Body> {
    json(status, Reply::error(INVALID_REQUEST, text).line("null").into())
}

/// The method is not one of `allowed`.
pub fn not_allowed(allowed: &'static str, text: &str) -> Response<Body> {
    let mut response = refused(StatusCode::METHOD_NOT_ALLOWED, text);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// A token is missing or wrong (RFC 6750, section 3).
pub fn unauthorized(text: &str) -> Response<Body> {
    let mut response = refused(StatusCode::UNAUTHORIZED, text);
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"hermesd\""));
    response
}

/// A stream of events; dropping the response drops `events`.
pub fn events(events: impl stream::Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    use futures_util::StreamExt;
    let frames = events.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes)));
    let mut response = response(StatusCode::OK, StreamBody::new(frames).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(UNBUFFERED, HeaderValue::from_static("no"));
    response
}

/// The comment that keeps a quiet stream open.
pub const KEEP_ALIVE: &[u8] = b":\n\n";

/// One line as an event; an `id` makes it one to come back to.
pub fn event(id: Option<&str>, line: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(line.len() + 64);
    if let Some(id) = id {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(id.as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"event: message\ndata: ");
    out.extend_from_slice(line);
    out.extend_from_slice(b"\n\n");
    out.into()
}

/// An event without a message, so that a stream that breaks before its first message can be come back to
/// (MCP 2025-11-25, Streamable HTTP).
pub fn first_event(id: &str) -> Bytes {
    format!("id: {id}\ndata: \n\n").into()
}

/// The stream and the number in the id of an event.
pub fn event_id(text: &str) -> Option<(u64, u64)> {
    let (stream, number) = text.split_once('-')?;
    Some((stream.parse().ok()?, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_holds_the_line_and_its_id_comes_back() {
        let line = br#"{"jsonrpc":"2.0","id":1,"result":{"n":1.0}}"#;
        let expected = format!("id: 3-7\nevent: message\ndata: {}\n\n", std::str::from_utf8(line).unwrap());
        assert_eq!(event(Some("3-7"), line), expected);
        assert_eq!(event_id("3-7"), Some((3, 7)));
        for bad in ["", "3", "3-", "-7", "a-b", "3-7-1", "99999999999999999999-1"] {
            assert_eq!(event_id(bad), None, "{bad}");
        }
    }
}
