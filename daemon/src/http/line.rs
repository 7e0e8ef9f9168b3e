//! Pure: what a line of a session is, as far as its way to the client depends on it.

use crate::jsonrpc::ids::IdKey;
use crate::jsonrpc::splice::Members;
use hermes_proto::shim::envelope::{self, Envelope};
use hermes_proto::shim::framing::HEAD_BYTES;
use serde::Deserialize;
use serde_json::value::RawValue;

/// What a line is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// The answer to these requests; several in a batch.
    Answer(Vec<IdKey>),
    /// Progress under this token.
    Progress(IdKey),
    /// A question of ours under this id.
    Question(IdKey),
    /// The question under this id needs no answer any more.
    Withdrawn(IdKey),
    /// A line of a server's log.
    Log,
    /// Any other notification.
    News,
    /// For a shim, or nothing at all.
    Nothing,
}

/// What `line` is.
pub fn about(line: &[u8]) -> About {
    const ANSWER: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":";
    match line.first() {
        Some(b'{') => {}
        Some(b'[') => return batch(line),
        _ => return About::Nothing,
    }
    // Answers begin so, and a long one need not be read to its end.
    if line.starts_with(ANSWER)
        && let Some(id) = envelope::id_in(&line[..line.len().min(HEAD_BYTES)])
        && let Some(key) = serde_json::from_str::<&RawValue>(id).ok().and_then(|raw| IdKey::parse(raw).ok())
    {
        return About::Answer(vec![key]);
    }
    let Ok(message) = Envelope::parse(line) else { return About::Nothing };
    let id = message.id.and_then(|raw| IdKey::parse(raw).ok());
    let params = message.params.and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
    let key = |name| params.get(name).and_then(|raw| IdKey::parse(raw).ok());
    match (message.method.as_deref(), id) {
        (None, id) => About::Answer(id.into_iter().collect()),
        (Some(_), Some(id)) => About::Question(id),
        (Some("notifications/progress"), None) => {
            key("progressToken").map_or(About::Nothing, About::Progress)
        }
        (Some("notifications/cancelled"), None) => key("requestId").map_or(About::News, About::Withdrawn),
        (Some("notifications/message"), None) => About::Log,
        (Some(_), None) => About::News,
    }
}

fn batch(line: &[u8]) -> About {
    #[derive(Deserialize)]
    struct OnlyId<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
    }
    let items: Vec<OnlyId<'_>> = serde_json::from_slice(line).unwrap_or_default();
    About::Answer(items.iter().filter_map(|item| IdKey::parse(item.id?).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_line_is_told_apart() {
        let number = |text: &str| IdKey::Number(text.into());
        let text = |text: &str| IdKey::Text(text.into());
        for (line, kind) in [
            (r##"#resume abc"##, About::Nothing),
            (r#"{"jsonrpc":"2.0","id":7,"result":{"id":8}}"#, About::Answer(vec![number("7")])),
            (r#"{"jsonrpc":"2.0","id":null,"error":{}}"#, About::Answer(vec![])),
            (
                r#"[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":"b","error":{}}]"#,
                About::Answer(vec![number("1"), text("b")]),
            ),
            (
                r#"{"method":"elicitation/create","jsonrpc":"2.0","id":"p-1","params":{}}"#,
                About::Question(text("p-1")),
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t"}}"#,
                About::Progress(text("t")),
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"p-1"}}"#,
                About::Withdrawn(text("p-1")),
            ),
            (r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#, About::Log),
            (r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#, About::News),
        ] {
            assert_eq!(about(line.as_bytes()), kind, "{line}");
        }
        let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","result":{{}}}}"#, "x".repeat(2 * HEAD_BYTES));
        assert_eq!(about(long.as_bytes()), About::Answer(vec![text(&"x".repeat(2 * HEAD_BYTES))]));
    }
}
