//! Outcome to the answer a client gets.

use crate::jsonrpc::splice::Members;
use serde_json::value::RawValue;

/// Whether a `CallToolResult` says `isError: true`.
pub fn is_error(result: &RawValue) -> bool {
    Members::parse(result).is_ok_and(|members| members.get("isError").is_some_and(|flag| flag.get() == "true"))
}
