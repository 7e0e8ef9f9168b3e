//! The open `subscriptions/listen` of one client (2026-07-28), and what each of them hears.
//!
//! Pure but for the std mutex between the session and its ears, never held across an await. Promise: the
//! acknowledgement is the first thing a stream carries; what happens before it is said right after it; a
//! stream carries what it asked for and nothing else, under its own id; there are at most [`MAX`].

use super::follow::notification;
use crate::jsonrpc::era::meta;
use crate::jsonrpc::ids::{IdKey, RequestId};
use crate::jsonrpc::splice::{Members, ObjectWriter, push_string};
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Streams of one client.
pub const MAX: usize = 32;

/// Lists whose changes can be announced: member of the filter, notification.
pub const LISTS: [(&str, &str); 3] = [
    ("toolsListChanged", "notifications/tools/list_changed"),
    ("resourcesListChanged", "notifications/resources/list_changed"),
    ("promptsListChanged", "notifications/prompts/list_changed"),
];

/// What a client asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// In the order of [`LISTS`].
    pub lists: [bool; 3],
    /// Resources, as the client calls them.
    pub uris: BTreeSet<String>,
}

impl Filter {
    /// Reads the params of the request; `None`: there is no filter in them.
    pub fn read(params: &RawValue) -> Option<Self> {
        let params = Members::parse(params).ok()?;
        let wanted = Members::parse(params.get("notifications")?).ok()?;
        let lists = LISTS.map(|(key, _)| wanted.get(key).is_some_and(|raw| raw.get() == "true"));
        let uris = wanted.get("resourceSubscriptions").map(|raw| serde_json::from_str(raw.get()));
        Some(Self { lists, uris: uris.transpose().ok()?.unwrap_or_default() })
    }

    fn write(&self) -> Box<RawValue> {
        let mut out = ObjectWriter::default();
        for ((key, _), _) in LISTS.iter().zip(self.lists).filter(|(_, wanted)| *wanted) {
            out.member(key, "true");
        }
        if !self.uris.is_empty() {
            out.member("resourceSubscriptions", crate::jsonrpc::splice::raw(&self.uris).get());
        }
        out.finish()
    }
}

/// Whether the client knows of the stream already, from a daemon that is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// It waits for the acknowledgement.
    No,
    /// It has it, and may have missed something since.
    Yes,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// Not acknowledged; what happened meanwhile.
    Opening {
        lists: [bool; 3],
        uris: BTreeSet<String>,
    },
    Open,
}

#[derive(Debug)]
struct Stream {
    key: IdKey,
    id: Box<str>,
    filter: Filter,
    known: Known,
    state: State,
}

impl Stream {
    fn list_changed(&self, at: usize) -> Vec<u8> {
        let mut params = ObjectWriter::default();
        params.member("_meta", self.about().get());
        notification(LISTS[at].1, &params.finish())
    }

    fn updated(&self, params: &RawValue) -> Vec<u8> {
        let members = Members::parse(params).unwrap_or_default();
        let about = members.get("_meta").and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
        let params = members.with("_meta", about.with(meta::SUBSCRIPTION, &self.id).get());
        notification("notifications/resources/updated", &params)
    }

    fn about(&self) -> Box<RawValue> {
        let mut about = ObjectWriter::default();
        about.member(meta::SUBSCRIPTION, &self.id);
        about.finish()
    }
}

/// The streams of one client. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Streams {
    inner: Arc<Mutex<Vec<Stream>>>,
}

impl Streams {
    fn lock(&self) -> MutexGuard<'_, Vec<Stream>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a stream in. `false`: there are too many.
    pub fn begin(&self, id: &RequestId, filter: Filter, known: Known) -> bool {
        let mut all = self.lock();
        if all.len() >= MAX {
            return false;
        }
        let state = State::Opening { lists: [false; 3], uris: BTreeSet::new() };
        all.push(Stream { key: id.key().clone(), id: id.raw().into(), filter, known, state });
        true
    }

    /// Servers have consented to send news of `agreed` of its resources: what the client is told now. Empty:
    /// the stream is gone.
    pub fn open(&self, key: &IdKey, agreed: BTreeSet<String>) -> Vec<Vec<u8>> {
        let mut all = self.lock();
        let Some(stream) = all.iter_mut().find(|stream| stream.key == *key) else { return Vec::new() };
        stream.filter.uris = agreed;
        let State::Opening { mut lists, mut uris } = std::mem::replace(&mut stream.state, State::Open) else {
            return Vec::new();
        };
        let mut lines = Vec::new();
        match stream.known {
            Known::No => {
                let mut params = ObjectWriter::default();
                params
                    .member("_meta", stream.about().get())
                    .member("notifications", stream.filter.write().get());
                lines.push(notification("notifications/subscriptions/acknowledged", &params.finish()));
            }
            Known::Yes => {
                lists = [true; 3];
                uris = stream.filter.uris.clone();
            }
        }
        lines.extend(
            (0..LISTS.len())
                .filter(|at| lists[*at] && stream.filter.lists[*at])
                .map(|at| stream.list_changed(at)),
        );
        lines.extend(uris.intersection(&stream.filter.uris).map(|uri| stream.updated(&only_uri(uri))));
        lines
    }

    /// A list changed, by its notification: what streams are told.
    pub fn list_changed(&self, method: &str) -> Vec<Vec<u8>> {
        let Some(at) = LISTS.iter().position(|(_, known)| *known == method) else { return Vec::new() };
        let mut lines = Vec::new();
        for stream in self.lock().iter_mut().filter(|stream| stream.filter.lists[at]) {
            match &mut stream.state {
                State::Opening { lists, .. } => lists[at] = true,
                State::Open => lines.push(stream.list_changed(at)),
            }
        }
        lines
    }

    /// A resource changed; `params` name it as the client does.
    pub fn updated(&self, uri: &str, params: &RawValue) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        for stream in self.lock().iter_mut().filter(|stream| stream.filter.uris.contains(uri)) {
            match &mut stream.state {
                State::Opening { uris, .. } => drop(uris.insert(uri.to_owned())),
                State::Open => lines.push(stream.updated(params)),
            }
        }
        lines
    }

    /// Ends a stream; gives its resources that no other stream wants. `None`: there is none of this id.
    pub fn close(&self, key: &IdKey) -> Option<Vec<String>> {
        let mut all = self.lock();
        let at = all.iter().position(|stream| stream.key == *key)?;
        let gone = all.remove(at);
        let wanted = |uri: &String| all.iter().any(|stream| stream.filter.uris.contains(uri));
        Some(gone.filter.uris.into_iter().filter(|uri| !wanted(uri)).collect())
    }

    /// The resources that a stream asked for, or that were agreed to; `None`: there is no such stream.
    pub fn uris(&self, key: &IdKey) -> Option<BTreeSet<String>> {
        self.lock().iter().find(|stream| stream.key == *key).map(|stream| stream.filter.uris.clone())
    }

    /// Whether the id is taken.
    pub fn has(&self, key: &IdKey) -> bool {
        self.lock().iter().any(|stream| stream.key == *key)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Raw ids of the acknowledged ones, for the next daemon.
    pub fn ids(&self) -> Vec<String> {
        let all = self.lock();
        all.iter().filter(|stream| stream.state == State::Open).map(|stream| stream.id.to_string()).collect()
    }

    /// Ends all of them: the answer to each request, by raw id.
    pub fn end(&self) -> Vec<(Box<str>, Box<RawValue>)> {
        let ended = |stream: Stream| {
            let mut result = ObjectWriter::default();
            result.member("_meta", stream.about().get());
            (stream.id, result.finish())
        };
        self.lock().drain(..).map(ended).collect()
    }
}

fn only_uri(uri: &str) -> Box<RawValue> {
    let mut quoted = String::with_capacity(uri.len() + 2);
    push_string(&mut quoted, uri);
    let mut params = ObjectWriter::default();
    params.member("uri", &quoted);
    params.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn raw(value: &Value) -> Box<RawValue> {
        RawValue::from_string(value.to_string()).unwrap()
    }

    fn id(text: &str) -> RequestId {
        RequestId::parse(&RawValue::from_string(text.to_owned()).unwrap()).unwrap()
    }

    fn filter(wanted: &Value) -> Filter {
        Filter::read(&raw(&json!({ "notifications": wanted }))).unwrap()
    }

    fn said(lines: &[Vec<u8>]) -> Vec<String> {
        let one = |line: &Vec<u8>| {
            let line: Value = serde_json::from_slice(line).unwrap();
            let method = line["method"].as_str().unwrap().rsplit("notifications/").next().unwrap().to_owned();
            format!("{method} {}", line["params"]["_meta"][meta::SUBSCRIPTION])
        };
        lines.iter().map(one).collect()
    }

    #[test]
    fn a_stream_begins_with_its_acknowledgement_and_hears_only_what_it_asked_for() {
        let streams = Streams::default();
        let one = id("1");
        assert!(streams.begin(
            &one,
            filter(&json!({"toolsListChanged": true, "resourceSubscriptions": ["u", "v"]})),
            Known::No
        ));
        assert!(streams.begin(&id(r#""b""#), filter(&json!({"promptsListChanged": true})), Known::No));
        assert!(streams.list_changed(LISTS[0].1).is_empty());
        assert!(streams.updated("u", &raw(&json!({"uri": "u"}))).is_empty());
        assert!(streams.updated("v", &raw(&json!({"uri": "v"}))).is_empty());
        let lines = streams.open(one.key(), BTreeSet::from(["u".to_owned()]));
        assert_eq!(
            said(&lines),
            ["subscriptions/acknowledged 1", "tools/list_changed 1", "resources/updated 1"]
        );
        let ack: Value = serde_json::from_slice(&lines[0]).unwrap();
        assert_eq!(
            ack["params"]["notifications"],
            json!({"toolsListChanged": true, "resourceSubscriptions": ["u"]})
        );
        assert_eq!(
            said(&streams.open(id(r#""b""#).key(), BTreeSet::new())),
            [r#"subscriptions/acknowledged "b""#]
        );
        assert_eq!(said(&streams.list_changed(LISTS[0].1)), ["tools/list_changed 1"]);
        assert_eq!(said(&streams.list_changed(LISTS[2].1)), [r#"prompts/list_changed "b""#]);
        assert!(
            streams.list_changed(LISTS[1].1).is_empty() && streams.updated("v", &raw(&json!({}))).is_empty()
        );
        let line = streams.updated("u", &raw(&json!({"uri": "u", "_meta": {"x": 1}})));
        let line: Value = serde_json::from_slice(&line[0]).unwrap();
        assert_eq!(line["params"], json!({"uri": "u", "_meta": {"x": 1, meta::SUBSCRIPTION: 1}}));
        assert_eq!(streams.ids(), ["1", "\"b\""]);
    }

    #[test]
    fn a_resource_is_let_go_with_the_last_stream_that_wants_it() {
        let streams = Streams::default();
        for name in ["1", "2"] {
            streams.begin(&id(name), filter(&json!({"resourceSubscriptions": ["u"]})), Known::No);
        }
        assert_eq!(streams.close(id("1").key()), Some(vec![]));
        assert_eq!(streams.close(id("1").key()), None);
        assert_eq!(streams.close(id("2").key()), Some(vec!["u".to_owned()]));
        assert!(streams.is_empty() && streams.open(id("2").key(), BTreeSet::new()).is_empty());
    }

    #[test]
    fn a_stream_that_goes_on_hears_once_that_it_may_have_missed_something() {
        let streams = Streams::default();
        let one = id("1");
        streams.begin(
            &one,
            filter(&json!({"toolsListChanged": true, "resourceSubscriptions": ["u"]})),
            Known::Yes,
        );
        let lines = streams.open(one.key(), BTreeSet::from(["u".to_owned()]));
        assert_eq!(said(&lines), ["tools/list_changed 1", "resources/updated 1"]);
        assert_eq!(streams.end().len(), 1);
    }

    #[test]
    fn streams_are_bounded_and_a_request_without_a_filter_is_none() {
        let streams = Streams::default();
        for n in 0..MAX {
            assert!(streams.begin(&id(&n.to_string()), Filter::default(), Known::No));
        }
        assert!(!streams.begin(&id("-1"), Filter::default(), Known::No));
        for params in
            [json!({}), json!({"notifications": 5}), json!({"notifications": {"resourceSubscriptions": "u"}})]
        {
            assert_eq!(Filter::read(&raw(&params)), None, "{params}");
        }
    }
}
