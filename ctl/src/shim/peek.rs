//! Reads just as much of a line as the shim needs, in both directions.
//!
//! Pure. Upwards: id and method. Downwards: the id behind the fixed prefix that the daemon writes
//! first. A line that cannot be read passes untouched; the daemon answers it.

use hermes_proto::shim::envelope::Envelope;

/// Lines above this size are first tried by their fixed ends, which saves parsing the body.
const SMALL: usize = 4 * 1024;
/// How the daemon begins each answer.
const PREFIX: &[u8] = br#"{"jsonrpc":"2.0","id":"#;

/// What a line from the client is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FromClient {
    /// A request, with its raw id.
    Request {
        /// The id as it was written.
        id: Box<[u8]>,
        /// Which rules hold for it when the daemon is lost.
        method: Method,
    },
    /// `notifications/cancelled`, with the raw id of the request that is given up.
    Cancelled {
        /// The id as it was written.
        id: Box<[u8]>,
    },
    /// Answers a question of the daemon, with its raw id.
    Answer {
        /// The id as it was written.
        id: Box<[u8]>,
    },
    /// White space only.
    Blank,
    /// Anything else: notifications, what does not parse.
    Other,
}

/// The methods that the shim tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// `initialize`: kept, so that a session can be opened again.
    Initialize,
    /// `tools/call`: never sent twice.
    Call,
    /// Everything else: safe to send again.
    Other,
}

impl Method {
    fn of(name: &str) -> Self {
        match name {
            "initialize" => Self::Initialize,
            "tools/call" => Self::Call,
            _ => Self::Other,
        }
    }
}

/// Looks at a line from the client.
pub(crate) fn from_client(line: &[u8]) -> FromClient {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    if line.trim_ascii().is_empty() {
        return FromClient::Blank;
    }
    if line.len() > SMALL
        && let Some((id, method)) = by_the_ends(line)
    {
        return FromClient::Request { id: id.into(), method: Method::of(method) };
    }
    let Ok(envelope) = Envelope::parse(line) else { return FromClient::Other };
    match (envelope.id, envelope.method.as_deref()) {
        (Some(id), Some(method)) => {
            FromClient::Request { id: id.get().as_bytes().into(), method: Method::of(method) }
        }
        // An array is read like an object; a batch of a client answers nothing of ours.
        (Some(id), None) if line.trim_ascii_start().starts_with(b"{") => {
            FromClient::Answer { id: id.get().as_bytes().into() }
        }
        (None, Some("notifications/cancelled")) => {
            let id = envelope.params.and_then(|params| member(params.get(), "requestId"));
            id.map_or(FromClient::Other, |id| FromClient::Cancelled { id: id.into_bytes().into() })
        }
        _ => FromClient::Other,
    }
}

/// Id and method of a request in one of the two usual orders of members, without parsing the body.
fn by_the_ends(line: &[u8]) -> Option<(&[u8], &str)> {
    // {"jsonrpc":"2.0","id":1,"method":"m",...
    if let Some(rest) = line.strip_prefix(PREFIX) {
        let (id, rest) = scalar(rest)?;
        let rest = rest.strip_prefix(br#","method":""#)?;
        return Some((id, plain_text(rest)?));
    }
    // {"method":"m",...,"jsonrpc":"2.0","id":1}: only numbers, whose end cannot be part of a string.
    let method = plain_text(line.strip_prefix(br#"{"method":""#)?)?;
    let body = line.trim_ascii_end().strip_suffix(b"}")?;
    let digits = body.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let (head, id) = body.split_at(body.len() - digits);
    (digits > 0 && head.ends_with(br#","jsonrpc":"2.0","id":"#)).then_some((id, method))
}

/// The string that starts here, up to its quote, when it holds no escape.
fn plain_text(rest: &[u8]) -> Option<&str> {
    let end = rest.iter().take(200).position(|b| matches!(b, b'"' | b'\\'))?;
    (rest[end] == b'"').then(|| std::str::from_utf8(&rest[..end]).ok())?
}

/// Splits a JSON number, string or literal off the front.
fn scalar(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = if text.first() == Some(&b'"') {
        let mut at = 1;
        loop {
            match text.get(at)? {
                b'\\' => at += 2,
                b'"' => break at + 1,
                _ => at += 1,
            }
        }
    } else {
        text.iter().position(|b| matches!(b, b',' | b'}' | b' '))?
    };
    (end > 0 && end <= text.len()).then(|| text.split_at(end))
}

fn member(object: &str, name: &str) -> Option<String> {
    let members: std::collections::BTreeMap<String, Box<serde_json::value::RawValue>> =
        serde_json::from_str(object).ok()?;
    members.get(name).map(|value| value.get().to_owned())
}

/// The raw id of the request that a line from the daemon answers; `None` for everything else.
pub(crate) fn answered_id(line: &[u8]) -> Option<&[u8]> {
    if let Some(rest) = line.strip_prefix(PREFIX) {
        let (id, rest) = scalar(rest)?;
        // The daemon's own requests to the client begin alike.
        return (!rest.starts_with(br#","method""#)).then_some(id);
    }
    if line.starts_with(br#"{"jsonrpc":"2.0","method""#) {
        return None;
    }
    let envelope = Envelope::parse(line).ok()?;
    match (envelope.id, envelope.method) {
        (Some(id), None) => Some(id.get().as_bytes()),
        _ => None,
    }
}

/// What a line from the daemon does to the questions that the client has to answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// A new one, with its raw id.
    Asked(Box<[u8]>),
    /// It is taken back.
    TakenBack(Box<[u8]>),
}

/// Looks at a line from the daemon that answers nothing; `None`: a notification like any other.
pub(crate) fn question(line: &[u8]) -> Option<Question> {
    // The daemon begins its questions so; everything else costs one comparison.
    if line.starts_with(br#"{"method":""#) {
        let envelope = Envelope::parse(line).ok()?;
        return Some(Question::Asked(envelope.id?.get().as_bytes().into()));
    }
    if line.starts_with(br#"{"jsonrpc":"2.0","method":"notifications/cancelled""#) {
        let envelope = Envelope::parse(line).ok()?;
        let id = member(envelope.params?.get(), "requestId")?;
        return Some(Question::TakenBack(id.into_bytes().into()));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(id: &str, method: Method) -> FromClient {
        FromClient::Request { id: id.as_bytes().into(), method }
    }

    #[test]
    fn the_ends_of_a_large_line_say_the_same_as_the_whole() {
        let pad = "x".repeat(SMALL);
        for (line, id, method) in [
            (
                format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"p":"{pad}"}}}}"#),
                "7",
                Method::Call,
            ),
            (
                format!(r#"{{"method":"tools/call","params":{{"p":"{pad}"}},"jsonrpc":"2.0","id":8}}"#),
                "8",
                Method::Call,
            ),
            (
                format!(r#"{{"jsonrpc":"2.0","id":"a\"b","method":"ping","params":{{"p":"{pad}"}}}}"#),
                r#""a\"b""#,
                Method::Other,
            ),
            (
                format!(r#"{{"params":{{"p":"{pad}"}},"id":9,"method":"initialize"}}"#),
                "9",
                Method::Initialize,
            ),
        ] {
            assert_eq!(from_client(line.as_bytes()), request(id, method), "{}", &line[..40]);
        }
    }

    #[test]
    fn text_that_looks_like_an_id_inside_a_body_is_not_one() {
        let pad = "x".repeat(SMALL);
        let line = format!(
            r#"{{"method":"tools/call","id":5,"params":{{"p":"{pad}","s":"\",\"jsonrpc\":\"2.0\",\"id\":6"}}}}"#
        );
        assert_eq!(from_client(line.as_bytes()), request("5", Method::Call));
    }

    #[test]
    fn notifications_answers_and_nonsense_are_no_requests() {
        for line in [
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            "not json",
            r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
        ] {
            assert_eq!(from_client(line.as_bytes()), FromClient::Other, "{line}");
        }
        assert_eq!(from_client(b" \r"), FromClient::Blank);
        for outcome in ["result", "error"] {
            let answer = format!(r#"{{"jsonrpc":"2.0","id":"d-1","{outcome}":{{}}}}"#);
            let id = br#""d-1""#.as_slice().into();
            assert_eq!(from_client(answer.as_bytes()), FromClient::Answer { id });
        }
        assert_eq!(
            from_client(br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3,"reason":"x"}}"#),
            FromClient::Cancelled { id: b"3".as_slice().into() }
        );
    }

    #[test]
    fn answers_are_told_from_the_daemons_own_requests() {
        assert_eq!(answered_id(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#), Some(b"1".as_slice()));
        assert_eq!(answered_id(br#"{"jsonrpc":"2.0","id":"x,}","error":{}}"#), Some(br#""x,}""#.as_slice()));
        assert_eq!(answered_id(br#"{"id":2,"result":{},"jsonrpc":"2.0"}"#), Some(b"2".as_slice()));
        assert_eq!(answered_id(br#"{"jsonrpc":"2.0","id":"d1","method":"sampling/createMessage"}"#), None);
        assert_eq!(answered_id(br#"{"jsonrpc":"2.0","method":"notifications/progress"}"#), None);
    }

    #[test]
    fn questions_of_the_daemon_are_seen_to_come_and_to_go() {
        let id = || br#""p-1""#.as_slice().into();
        let asked = br#"{"method":"elicitation/create","jsonrpc":"2.0","id":"p-1","params":{}}"#;
        assert_eq!((question(asked), answered_id(asked)), (Some(Question::Asked(id())), None));
        let back = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"p-1"}}"#;
        assert_eq!((question(back), answered_id(back)), (Some(Question::TakenBack(id())), None));
        assert_eq!(question(br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#), None);
    }

    proptest! {
        #[test]
        fn no_input_panics(line in proptest::collection::vec(any::<u8>(), 0..200), prefixed in any::<bool>()) {
            let mut text = if prefixed { PREFIX.to_vec() } else { Vec::new() };
            text.extend(line);
            let _ = (from_client(&text), answered_id(&text), by_the_ends(&text), question(&text));
        }
    }
}
