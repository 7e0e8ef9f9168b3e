//! Pure: the headers of the protocol, and values that fit into a header.
//!
//! Source: MCP 2025-11-25 and 2026-07-28, Streamable HTTP.

use base64::Engine;
use reqwest::header::{HeaderName, HeaderValue};

/// The session a request belongs to (2025-03-26 to 2025-11-25).
pub(crate) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// The revision that was agreed on (from 2025-06-18).
pub(crate) const REVISION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// Where a broken stream goes on.
pub(crate) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// The method of the body (from 2026-07-28).
pub(crate) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// What the body is about (from 2026-07-28).
pub(crate) const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// What `Accept` says on a POST.
pub(crate) const ANY_ANSWER: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
/// What `Accept` says on a GET.
pub(crate) const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
/// What we send.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

const OPEN: &str = "=?base64?";
const CLOSE: &str = "?=";

/// `text` as a header value: as it is where that is safe, else in Base64 between marks
/// (2026-07-28, Value Encoding).
pub(crate) fn value(text: &str) -> HeaderValue {
    let plain = text.bytes().all(|byte| (0x20..0x7f).contains(&byte) || byte == b'\t')
        && text.trim_matches([' ', '\t']).len() == text.len()
        && !(text.starts_with(OPEN) && text.ends_with(CLOSE));
    let encoded;
    let text = if plain {
        text
    } else {
        encoded = format!("{OPEN}{}{CLOSE}", base64::engine::general_purpose::STANDARD.encode(text));
        &encoded
    };
    HeaderValue::from_str(text).expect("visible ASCII, spaces and tabs are a header value")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_are_encoded_as_the_specification_shows() {
        for (text, header) in [
            ("us-west1", "us-west1"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ] {
            assert_eq!(value(text), header, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_text_fits_and_comes_back(text in ".{0,80}") {
            let header = value(&text);
            let shown = header.to_str().unwrap();
            let back = match shown.strip_prefix(OPEN).and_then(|rest| rest.strip_suffix(CLOSE)) {
                Some(encoded) => String::from_utf8(base64::engine::general_purpose::STANDARD.decode(encoded).unwrap()).unwrap(),
                None => shown.to_owned(),
            };
            prop_assert_eq!(back, text);
        }
    }
}
