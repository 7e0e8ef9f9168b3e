//! The lines of requests to a server.
//!
//! Pure. Every request carries our id and our progress token, whatever the client chose.

use crate::jsonrpc::era::meta;
use crate::jsonrpc::splice::{self, Members, ObjectWriter};
use serde_json::value::RawValue;

/// The line of one request, with our id and, but for `initialize`, our progress token.
pub(super) fn request_line(id: u64, method: &str, params: Option<&RawValue>, with_token: bool) -> Vec<u8> {
    use std::fmt::Write as _;
    let room = params.map_or(0, |p| p.get().len()) + method.len() + 96;
    let mut line = String::with_capacity(room);
    let _ = write!(line, "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":");
    splice::push_string(&mut line, method);
    let params =
        if with_token { Some(with_progress_token(params, id)) } else { params.map(ToOwned::to_owned) };
    if let Some(params) = params {
        line.push_str(",\"params\":");
        line.push_str(&splice::one_line(params.get()));
    }
    line.push('}');
    line.into_bytes()
}

/// The line of one request that says for itself who asks and in which revision (2026-07-28, `_meta`).
pub(super) fn per_request_line(id: u64, method: &str, params: Option<&RawValue>, revision: &str) -> Vec<u8> {
    let members = params.and_then(|params| Members::parse(params).ok()).unwrap_or_default();
    let about = members.get("_meta").and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
    let mut quoted = String::new();
    splice::push_string(&mut quoted, revision);
    let mut info = ObjectWriter::default();
    info.string("name", "hermesd").string("version", env!("CARGO_PKG_VERSION"));
    let mut out = ObjectWriter::with_capacity(256);
    let ours = ["progressToken", meta::REVISION, meta::CLIENT, meta::CAPABILITIES];
    for (name, value) in about.iter().filter(|(name, _)| !ours.contains(name)) {
        out.member(name, value.get());
    }
    // A call says what its client can be asked; nobody answers for what the daemon asks by itself.
    let can = about.get(meta::CAPABILITIES).map_or("{}", RawValue::get);
    out.member("progressToken", &id.to_string())
        .member(meta::REVISION, &quoted)
        .member(meta::CLIENT, info.finish().get())
        .member(meta::CAPABILITIES, can);
    let params = members.with("_meta", out.finish().get());
    request_line(id, method, Some(&params), false)
}

/// The line of one request whose params have the one-digit place of our token at `hole`.
pub(super) fn line_with_hole(id: u64, method: &str, params: &RawValue, hole: usize) -> Vec<u8> {
    use std::fmt::Write as _;
    let params = splice::one_line(params.get());
    let mut line = String::with_capacity(params.len() + method.len() + 112);
    let _ = write!(line, "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":");
    splice::push_string(&mut line, method);
    line.push_str(",\"params\":");
    let _ = write!(line, "{}{id}{}}}", &params[..hole], &params[hole + 1..]);
    line.into_bytes()
}

/// `params` with `_meta.progressToken` set to `token`, everything else as it is.
fn with_progress_token(params: Option<&RawValue>, token: u64) -> Box<RawValue> {
    let token = token.to_string();
    let members = params.and_then(|params| Members::parse(params).ok()).unwrap_or_default();
    let meta = members.get("_meta").and_then(|meta| Members::parse(meta).ok()).unwrap_or_default();
    members.with("_meta", meta.with("progressToken", &token).get())
}

/// The line of one notification.
pub(super) fn notification_line(method: &str, params: Option<&RawValue>) -> Vec<u8> {
    let mut line = ObjectWriter::with_capacity(96);
    line.member("jsonrpc", "\"2.0\"").string("method", method);
    if let Some(params) = params {
        line.member("params", &splice::one_line(params.get()));
    }
    line.finish().get().as_bytes().to_vec()
}

/// The params of `notifications/cancelled`.
pub(super) fn cancelled(id: u64, reason: &str) -> Box<RawValue> {
    let mut params = ObjectWriter::default();
    params.member("requestId", &id.to_string()).string("reason", reason);
    params.finish()
}
