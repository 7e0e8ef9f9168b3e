//! The outcome of a client's request, and the error codes of JSON-RPC 2.0 (section 5.1).
//!
//! Pure.

use super::splice::ObjectWriter;
use serde_json::value::RawValue;

/// The line is no JSON.
pub const PARSE_ERROR: i32 = -32700;
/// The JSON is no valid request.
pub const INVALID_REQUEST: i32 = -32600;
/// The method does not exist.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// The params are not usable; MCP also uses it for unknown tools.
pub const INVALID_PARAMS: i32 = -32602;

/// Something failed on the way.
pub const INTERNAL_ERROR: i32 = -32603;

/// No such resource, up to 2025-11-25.
pub const RESOURCE_NOT_FOUND: i32 = -32002;
/// The user has to visit an address first; 2025-11-25 only.
pub const URL_ELICITATION_REQUIRED: i32 = -32042;
/// The request needs something that the client did not declare, from 2026-07-28.
pub const MISSING_CAPABILITY: i32 = -32021;
/// The revision of a request is not one of ours, from 2026-07-28.
pub const UNSUPPORTED_REVISION: i32 = -32022;

/// The outcome of a request, as it goes to a client.
#[derive(Debug)]
pub enum Reply {
    /// `result`.
    Result(Box<RawValue>),
    /// `error`.
    Error(Box<RawValue>),
}

impl Reply {
    /// A JSON-RPC error with a text for a person.
    pub fn error(code: i32, message: &str) -> Self {
        let mut error = ObjectWriter::default();
        error.member("code", &code.to_string()).string("message", message);
        Self::Error(error.finish())
    }

    /// A JSON-RPC error with a text for a person and `data` for programs.
    pub fn error_with(code: i32, message: &str, data: &RawValue) -> Self {
        let mut error = ObjectWriter::default();
        error.member("code", &code.to_string()).string("message", message).member("data", data.get());
        Self::Error(error.finish())
    }

    /// The whole response; begins with `{"jsonrpc":"2.0","id":`, so that the shim finds the id
    /// without parsing.
    pub fn line(&self, raw_id: &str) -> Vec<u8> {
        let (key, body) = match self {
            Self::Result(body) => (",\"result\":", body.get()),
            Self::Error(body) => (",\"error\":", body.get()),
        };
        let mut line = Vec::with_capacity(raw_id.len() + body.len() + 40);
        for part in ["{\"jsonrpc\":\"2.0\",\"id\":", raw_id, key, body, "}"] {
            line.extend_from_slice(part.as_bytes());
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_follows_the_fixed_prefix() {
        let reply = Reply::Result(RawValue::from_string("{}".into()).unwrap());
        assert_eq!(reply.line("\"a\""), br#"{"jsonrpc":"2.0","id":"a","result":{}}"#);
    }
}
