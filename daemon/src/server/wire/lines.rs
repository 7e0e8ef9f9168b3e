//! The lines of requests to a server.
//!
//! Pure. Every request carries our id and our progress token, whatever the client chose.

use crate::jsonrpc::splice::{self, Members};
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
