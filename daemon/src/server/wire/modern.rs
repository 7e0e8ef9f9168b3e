//! Speaking 2026-07-28 on the pipes of a server: each request says for itself who asks.
//!
//! Pure. Promise: what only the older revisions can ask (`resources/subscribe`, `logging/setLevel`, `ping`) is said in the way
//! of this one; a changed wish opens its new stream before the old one is cancelled, so that nothing falls in
//! between. Owner: the task of the pipes.

use super::inbound::{Body, Inbound};
use super::lines::{notification_line, per_request_line};
use super::remote::wishes::{Wish, Wishes};
use crate::jsonrpc::splice::{Members, ObjectWriter};
use serde_json::value::RawValue;

const DISCOVER: &str = "server/discover";
const LISTEN: &str = "subscriptions/listen";

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Modern {
    revision: &'static str,
    wishes: Wishes,
    /// The open `server/discover`.
    discovering: Option<u64>,
    /// Streams so far; each has an id of its own, which no request of ours has.
    streams: u64,
}

impl Modern {
    /// A server that was found to speak `revision`, or is about to be asked whether it does.
    pub(super) fn new(revision: &'static str) -> Self {
        Self { revision, wishes: Wishes::default(), discovering: None, streams: 0 }
    }

    /// A request that is a wish in this revision; `None`: it goes out.
    pub(super) fn wish(&mut self, method: &str, params: Option<&RawValue>) -> Option<Vec<Vec<u8>>> {
        match self.wishes.take(method, params)? {
            Wish::Stream => Some(self.listen()),
            Wish::Requests => Some(Vec::new()),
        }
    }

    /// The line of a request.
    pub(super) fn line(&mut self, id: u64, method: &str, params: Option<&RawValue>) -> Vec<u8> {
        // There is no ping; this is what every server answers.
        let method = if method == "ping" { DISCOVER } else { method };
        if method == DISCOVER {
            self.discovering = Some(id);
        }
        let with_level = self.wishes.with_level(method, params);
        per_request_line(id, method, with_level.as_deref().or(params), self.revision)
    }

    /// Looks at a message of the server; the lines that it makes necessary.
    pub(super) fn heard(&mut self, message: &Inbound) -> Vec<Vec<u8>> {
        match message {
            Inbound::Answer { id: Some(id), body: Body::Result(result), .. }
                if self.discovering == Some(*id) =>
            {
                self.discovering = None;
                // Later ones are only a sign of life.
                if self.streams > 0 {
                    return Vec::new();
                }
                self.wishes.discovered(result);
                self.listen()
            }
            _ => Vec::new(),
        }
    }

    /// A new stream for what is wanted now, and the end of the one before.
    fn listen(&mut self) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        let before = self.streams;
        if let Some(params) = self.wishes.listen() {
            self.streams += 1;
            lines.push(self.stream_line(&params));
        }
        if before > 0 {
            let mut params = ObjectWriter::default();
            params.string("requestId", &stream_id(before)).string("reason", "no longer needed");
            lines.push(notification_line("notifications/cancelled", Some(&params.finish())));
        }
        lines
    }

    fn stream_line(&self, params: &RawValue) -> Vec<u8> {
        // The line of a request with a number of ours, which is replaced: an answer to a stream is nobody's.
        let line = per_request_line(0, LISTEN, Some(params), self.revision);
        let raw: Box<RawValue> = serde_json::from_slice(&line).expect("a line of ours is JSON");
        let mut id = String::new();
        crate::jsonrpc::splice::push_string(&mut id, &stream_id(self.streams));
        let members = Members::parse(&raw).unwrap_or_default();
        members.with("id", &id).get().as_bytes().to_vec()
    }
}

fn stream_id(number: u64) -> String {
    format!("hermesd-listen-{number}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn raw(value: &Value) -> Box<RawValue> {
        RawValue::from_string(value.to_string()).unwrap()
    }

    fn lines(lines: &[Vec<u8>]) -> Vec<Value> {
        lines.iter().map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    fn discovered(modern: &mut Modern, id: u64, capabilities: Value) -> Vec<Value> {
        let body = Body::Result(raw(&json!({"capabilities": capabilities})));
        lines(&modern.heard(&Inbound::Answer { id: Some(id), null_id: false, body }))
    }

    #[test]
    fn news_are_listened_for_and_a_followed_resource_opens_a_new_stream_first() {
        let mut modern = Modern::new("2026-07-28");
        modern.line(1, DISCOVER, None);
        let first = discovered(&mut modern, 1, json!({"tools": {"listChanged": true}}));
        assert_eq!((&first[0]["method"], &first[0]["id"]), (&json!(LISTEN), &json!("hermesd-listen-1")));
        assert_eq!(first[0]["params"]["notifications"], json!({"toolsListChanged": true}));
        assert_eq!(first[0]["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        let uri = raw(&json!({"uri": "u"}));
        let next = lines(&modern.wish("resources/subscribe", Some(&uri)).unwrap());
        assert_eq!(next[0]["params"]["notifications"]["resourceSubscriptions"], json!(["u"]));
        assert_eq!(next[1]["params"]["requestId"], "hermesd-listen-1");
        assert!(modern.wish("tools/call", None).is_none());
    }

    #[test]
    fn a_server_without_news_is_not_listened_to_and_a_ping_is_a_discovery() {
        let mut modern = Modern::new("2026-07-28");
        modern.line(1, DISCOVER, None);
        assert!(discovered(&mut modern, 1, json!({"tools": {}})).is_empty());
        let line: Value = serde_json::from_slice(&modern.line(2, "ping", None)).unwrap();
        assert_eq!((&line["method"], &line["id"]), (&json!(DISCOVER), &json!(2)));
        assert!(discovered(&mut modern, 7, json!({"tools": {"listChanged": true}})).is_empty());
    }
}
