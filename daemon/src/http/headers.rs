//! Pure: what the headers of a request say, and whether they say the same as its body.
//!
//! Sources: MCP 2025-11-25, Streamable HTTP (protocol version header) and 2026-07-28, Streamable HTTP (request
//! metadata, server validation, value encoding), with its error codes.

use super::posted::Request;
use crate::jsonrpc::era::{self, INITIALIZE_REVISIONS, PER_REQUEST};
use crate::jsonrpc::reply::{INVALID_PARAMS, METHOD_NOT_FOUND, Reply};
use crate::jsonrpc::splice;
use base64::Engine;
use hyper::StatusCode;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use serde::Deserialize;
use serde_json::{Value, json};

/// Headers and body differ (2026-07-28).
pub const HEADER_MISMATCH: i32 = -32020;
/// The client lacks something that the request needs (2026-07-28).
pub const MISSING_CAPABILITY: i32 = -32021;
/// The revision is not one of ours (2026-07-28).
pub const UNSUPPORTED_REVISION: i32 = -32022;

const REVISION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// How a request without a body says which way it is to be taken.
pub fn revision(headers: &HeaderMap) -> Option<&str> {
    headers.get(REVISION).map(|value| value.to_str().unwrap_or("?"))
}

/// Whether a request is one of the revisions without a handshake.
pub fn is_per_request(headers: &HeaderMap, request: &Request) -> bool {
    request.said.revision.is_some() || revision(headers) == Some(PER_REQUEST)
}

/// Whether the revision that a request within a session names is one of ours.
///
/// # Errors
/// A text for the client.
pub fn of_session(headers: &HeaderMap) -> Result<(), String> {
    match revision(headers) {
        None => Ok(()),
        Some(named) if era::known(named).is_some() => Ok(()),
        Some(_) => {
            Err(format!("MCP-Protocol-Version is none of {}, {PER_REQUEST}", INITIALIZE_REVISIONS.join(", ")))
        }
    }
}

/// Whether the client takes this kind of answer. No `Accept` takes everything (RFC 9110, section 12.5.1).
pub fn accepts(headers: &HeaderMap, wanted: &str) -> bool {
    let mut all = headers.get_all(ACCEPT).iter().peekable();
    let kind = wanted.split('/').next().unwrap_or_default();
    all.peek().is_none()
        || all.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).any(|item| {
            let mut parts = item.split(';').map(str::trim);
            let range = parts.next().unwrap_or_default();
            let refused = parts.any(|part| matches!(part.replace(' ', "").as_str(), "q=0" | "q=0.0"));
            let fits = range == "*/*"
                || range.eq_ignore_ascii_case(wanted)
                || range.split_once('/').is_some_and(|(a, b)| a.eq_ignore_ascii_case(kind) && b == "*");
            fits && !refused
        })
}

/// Whether the body says that it is JSON.
pub fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

/// Checks the headers of a request without a session against its body; `arguments` gives the arguments of a
/// call that its tool wants in headers too: header name and what it must say (`None`: it must not be there).
///
/// # Errors
/// The error for the client; its status is that of [`status`].
pub fn check(
    headers: &HeaderMap,
    request: &Request,
    arguments: &[(String, Option<Value>)],
) -> Result<(), Reply> {
    let Some(named) = revision(headers) else {
        return Err(mismatch("MCP-Protocol-Version is missing"));
    };
    let Some(said) = &request.said.revision else {
        return Err(incomplete("io.modelcontextprotocol/protocolVersion"));
    };
    if named != said {
        return Err(mismatch(&format!("MCP-Protocol-Version is `{named}`, the body says `{said}`")));
    }
    if said != PER_REQUEST {
        return Err(unsupported(said));
    }
    if !request.said.capabilities {
        return Err(incomplete("io.modelcontextprotocol/clientCapabilities"));
    }
    same(headers, METHOD, "Mcp-Method", &request.method)?;
    let name = match &*request.method {
        "tools/call" | "prompts/get" => request.name.as_deref(),
        "resources/read" => request.uri.as_deref(),
        _ => None,
    };
    if let Some(name) = name {
        same(headers, NAME, "Mcp-Name", name)?;
    }
    for (header, value) in arguments {
        argument(headers, header, value.as_ref())?;
    }
    Ok(())
}

fn same(headers: &HeaderMap, name: &str, shown: &str, body: &str) -> Result<(), Reply> {
    let value = one(headers, name, shown)?.ok_or_else(|| mismatch(&format!("{shown} is missing")))?;
    if value == body {
        return Ok(());
    }
    Err(mismatch(&format!("{shown} is `{value}`, the body says `{body}`")))
}

/// The value of a header that stands at most once, decoded.
fn one(headers: &HeaderMap, name: &str, shown: &str) -> Result<Option<String>, Reply> {
    let mut all = headers.get_all(name).iter();
    let (first, second) = (all.next(), all.next());
    let Some(value) = first else { return Ok(None) };
    let text = value.to_str().ok().filter(|_| second.is_none()).and_then(decoded);
    text.map(Some).ok_or_else(|| mismatch(&format!("{shown} has characters that a header must not have")))
}

fn decoded(text: &str) -> Option<String> {
    match text.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        None => Some(text.to_owned()),
        Some(encoded) => {
            String::from_utf8(base64::engine::general_purpose::STANDARD.decode(encoded).ok()?).ok()
        }
    }
}

fn argument(headers: &HeaderMap, name: &str, body: Option<&Value>) -> Result<(), Reply> {
    let value = one(headers, name, name)?;
    let same = match (&value, body) {
        (None, None | Some(Value::Null)) => true,
        (None, Some(_)) => return Err(mismatch(&format!("{name} is missing"))),
        (Some(_), None | Some(Value::Null)) => false,
        (Some(said), Some(Value::String(text))) => said == text,
        (Some(said), Some(Value::Bool(truth))) => *said == truth.to_string(),
        // By value: `42.0` and `42` are the same integer.
        (Some(said), Some(Value::Number(number))) => said.parse::<f64>().ok() == number.as_f64(),
        (Some(_), Some(Value::Array(_) | Value::Object(_))) => false,
    };
    if same { Ok(()) } else { Err(mismatch(&format!("{name} is not what the body says"))) }
}

fn mismatch(text: &str) -> Reply {
    Reply::error(HEADER_MISMATCH, &format!("headers and body differ: {text}"))
}

fn incomplete(key: &str) -> Reply {
    Reply::error(INVALID_PARAMS, &format!("`_meta` of the request needs `{key}`"))
}

fn unsupported(requested: &str) -> Reply {
    let error = json!({
        "code": UNSUPPORTED_REVISION,
        "message": "the protocol revision is not one that hermesd speaks this way",
        "data": { "supported": era::ALL, "requested": requested },
    });
    Reply::Error(splice::raw(&error))
}

/// The status of an answer without a session (2026-07-28): what the transport has a status for has it.
pub fn status(answer: &[u8]) -> StatusCode {
    #[derive(Deserialize)]
    struct Failed {
        error: Code,
    }
    #[derive(Deserialize)]
    struct Code {
        code: i32,
    }
    // Results are long, and end the reading at once.
    if !memchr_error(answer) {
        return StatusCode::OK;
    }
    match serde_json::from_slice::<Failed>(answer).map(|failed| failed.error.code) {
        Ok(METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        Ok(HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_REVISION) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// Whether an answer of ours may be an error: the member stands right behind the id.
fn memchr_error(answer: &[u8]) -> bool {
    let head = &answer[..answer.len().min(4096)];
    head.windows(8).any(|window| window == b"\"error\":")
}

#[cfg(test)]
#[path = "headers_tests.rs"]
mod tests;
