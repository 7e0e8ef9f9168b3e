//! The resources that one client follows, by the URI it knows.
//!
//! Pure. Promise: what was let go while its request was still open is let go for good; a client
//! follows at most [`MAX`] resources, so that its resume string stays small.

use crate::call::follow::Source;
use crate::names::ServerName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Resources that one client may follow.
pub const MAX: usize = 1000;

/// Bytes of all URIs together.
const MAX_BYTES: usize = 128 * 1024;

/// What is to be done about a request to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begin {
    /// Ask the server.
    Ask,
    /// It is followed already.
    Already,
    /// Too many.
    Full,
}

/// One followed resource, as it is kept for the next daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The URI that the client knows.
    pub named: String,
    /// The server; `None`: hermesd itself.
    pub server: Option<String>,
    /// The server's own URI; absent where it is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
}

#[derive(Debug)]
struct Item {
    source: Source,
    /// Requests without an answer.
    open: u32,
    agreed: bool,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Subscriptions {
    items: BTreeMap<String, Item>,
    bytes: usize,
}

impl Subscriptions {
    /// The ones of an earlier connection; what does not fit is left out.
    pub fn restored(kept: Vec<Kept>) -> Self {
        let mut all = Self::default();
        for Kept { named, server, uri } in kept {
            let uri: Arc<str> = Arc::from(uri.as_deref().unwrap_or(&named));
            let source = Source { server: server.map(ServerName::new), uri };
            if all.begin(&named, source) == Begin::Ask {
                all.ended(&named, Agreed::Yes);
            }
        }
        all
    }

    /// What the next daemon has to know.
    pub fn keep(&self) -> Vec<Kept> {
        let agreed = self.agreed().map(|(named, source)| Kept {
            named: named.to_owned(),
            server: source.server.as_ref().map(ToString::to_string),
            uri: Some(source.uri.to_string()).filter(|uri| uri != named),
        });
        agreed.collect()
    }

    /// The client asks to follow `named`.
    pub fn begin(&mut self, named: &str, source: Source) -> Begin {
        if let Some(item) = self.items.get_mut(named) {
            if item.agreed && item.source == source {
                return Begin::Already;
            }
            item.open += 1;
            return Begin::Ask;
        }
        let bytes = named.len() + source.uri.len();
        if self.items.len() >= MAX || self.bytes + bytes > MAX_BYTES {
            return Begin::Full;
        }
        self.bytes += bytes;
        self.items.insert(named.to_owned(), Item { source, open: 1, agreed: false });
        Begin::Ask
    }

    /// A request to follow `named` is over; gives what is not to be followed any more.
    pub fn ended(&mut self, named: &str, agreed: Agreed) -> Option<Source> {
        let item = self.items.get_mut(named)?;
        item.open = item.open.saturating_sub(1);
        item.agreed |= agreed == Agreed::Yes;
        if item.agreed || item.open > 0 {
            return None;
        }
        self.remove(named)
    }

    /// The client lets `named` go; gives what is not to be followed any more.
    pub fn remove(&mut self, named: &str) -> Option<Source> {
        let item = self.items.remove(named)?;
        self.bytes -= named.len() + item.source.uri.len();
        Some(item.source)
    }

    /// Whether `named` is wanted.
    pub fn has(&self, named: &str) -> bool {
        self.items.contains_key(named)
    }

    /// Everything that servers agreed to.
    pub fn agreed(&self) -> impl Iterator<Item = (&str, &Source)> {
        let agreed = self.items.iter().filter(|(_, item)| item.agreed);
        agreed.map(|(named, item)| (named.as_str(), &item.source))
    }

    /// Takes out what is of a server that `sees` does not show.
    pub fn only_seen(&mut self, sees: impl Fn(&str) -> bool) -> Vec<Source> {
        let hidden = |item: &Item| item.source.server.as_ref().is_some_and(|server| !sees(server.as_str()));
        let names: Vec<String> =
            self.items.iter().filter(|(_, item)| hidden(item)).map(|(named, _)| named.clone()).collect();
        names.iter().filter_map(|named| self.remove(named)).collect()
    }
}

/// How a request to follow ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreed {
    /// The server sends updates.
    Yes,
    /// It does not, or nobody waits any more.
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(server: &str, uri: &str) -> Source {
        Source { server: Some(ServerName::new(server)), uri: Arc::from(uri) }
    }

    #[test]
    fn what_was_let_go_before_the_answer_stays_let_go() {
        let mut all = Subscriptions::default();
        assert_eq!(all.begin("u", source("s", "u")), Begin::Ask);
        assert_eq!(all.remove("u"), Some(source("s", "u")));
        assert_eq!(all.ended("u", Agreed::Yes), None);
        assert!(!all.has("u") && all.keep().is_empty());
    }

    #[test]
    fn a_refused_second_request_does_not_end_the_first() {
        let mut all = Subscriptions::default();
        assert_eq!(all.begin("u", source("s", "u")), Begin::Ask);
        assert_eq!(all.begin("u", source("s", "u")), Begin::Ask);
        assert_eq!(all.ended("u", Agreed::Yes), None);
        assert_eq!(all.ended("u", Agreed::No), None);
        assert_eq!(all.begin("u", source("s", "u")), Begin::Already);
        assert_eq!(all.begin("v", source("s", "v")), Begin::Ask);
        assert_eq!(all.ended("v", Agreed::No), Some(source("s", "v")));
    }

    #[test]
    fn what_is_kept_comes_back_but_for_servers_that_are_hidden_now() {
        let mut all = Subscriptions::default();
        for (named, server, uri) in [("u", "s", "u"), ("hermes://t/u", "t", "u")] {
            all.begin(named, source(server, uri));
            all.ended(named, Agreed::Yes);
        }
        let text = serde_json::to_string(&all.keep()).unwrap();
        let mut back = Subscriptions::restored(serde_json::from_str(&text).unwrap());
        assert_eq!(back.agreed().collect::<Vec<_>>(), all.agreed().collect::<Vec<_>>());
        assert_eq!(back.only_seen(|server| server == "t"), [source("s", "u")]);
        assert_eq!(back.keep().len(), 1);
    }

    #[test]
    fn there_is_a_limit_by_number_and_by_bytes() {
        let mut all = Subscriptions::default();
        for n in 0..MAX {
            assert_eq!(all.begin(&n.to_string(), source("s", "u")), Begin::Ask);
        }
        assert_eq!(all.begin("more", source("s", "u")), Begin::Full);
        let mut all = Subscriptions::default();
        assert_eq!(all.begin(&"x".repeat(MAX_BYTES), source("s", "u")), Begin::Full);
        assert_eq!(all.begin("x", source("s", "u")), Begin::Ask);
    }
}
