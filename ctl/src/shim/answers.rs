//! The few messages that the shim writes itself, because no daemon is there to write them.
//!
//! Pure. Each is one line without its newline; ids are repeated as the client wrote them.

use serde_json::json;

/// JSON-RPC code of "the daemon cannot be reached or will not serve".
pub(crate) const UNAVAILABLE: i32 = -32000;
/// JSON-RPC code of a message that cannot be used as a request.
pub(crate) const INVALID_REQUEST: i32 = -32600;

/// Tells a client that the tools may have changed while no daemon was there.
pub(crate) const TOOLS_CHANGED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
/// Ends the opening of a session that the shim repeats on behalf of its client.
pub(crate) const INITIALIZED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// A JSON-RPC error for the request with the raw id `id`.
pub(crate) fn error(id: &[u8], code: i32, message: &str) -> Vec<u8> {
    with_id(id, "error", &json!({ "code": code, "message": message }))
}

/// The answer to a `tools/call` whose fate nobody knows.
pub(crate) fn outcome_unknown(id: &[u8]) -> Vec<u8> {
    let text = "outcome unknown: hermesd ended while this call was in flight. the tool may have run or not; \
                assume neither. check its effect before calling it again. hermesd is being reached again, \
                other calls work as usual.";
    // What kind of result it is, clients of 2026-07-28 want to be told; older ones do not look.
    let result = json!({
        "resultType": "complete",
        "content": [{ "type": "text", "text": text }],
        "isError": true,
        "_meta": { "hermes/delivery": "unknown", "hermes/kind": "daemon_lost" },
    });
    with_id(id, "result", &result)
}

/// Takes the daemon's question with the raw id `id` back.
pub(crate) fn taken_back(id: &[u8]) -> Vec<u8> {
    let mut line = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"#.to_vec();
    line.extend_from_slice(id);
    line.extend_from_slice(br#","reason":"hermesd ended"}}"#);
    line
}

fn with_id(id: &[u8], member: &str, body: &serde_json::Value) -> Vec<u8> {
    let mut line = br#"{"jsonrpc":"2.0","id":"#.to_vec();
    line.extend_from_slice(id);
    line.extend_from_slice(format!(r#","{member}":{body}}}"#).as_bytes());
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_one_line_of_json_with_the_clients_own_id() {
        for line in [error(br#""a b""#, UNAVAILABLE, "no\ndaemon \"x\""), outcome_unknown(br#""a b""#)] {
            assert!(!line.contains(&b'\n'));
            let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
            assert_eq!(value["id"], "a b");
        }
    }
}
