//! What a session does about news: of the catalogue, of resources, log lines; and the way back to all.
//!
//! Methods of [`Session`] and the [`Hearer`] it hands out. Promise: a notification carries the URI
//! that the client knows, its secrets are masked, and a client that does not read loses it.

use super::methods::Negotiated;
use super::modern::Heard;
use super::outbox::Outbox;
use super::resume::Resumed;
use super::streams::Streams;
use super::subscriptions::{Agreed, Begin, MAX, Subscriptions};
use super::task::Session;
use crate::call::CallPath;
use crate::call::follow::Source;
use crate::jsonrpc::era;
use crate::jsonrpc::log_level::Verbosity;
use crate::jsonrpc::reply::{INVALID_REQUEST, Reply};
use crate::jsonrpc::splice::{Members, ObjectWriter, push_string};
use crate::server::news::hearer::{Hearer, LogLine};
use hermes_proto::shim::hello::RESUME_PREFIX;
use serde_json::value::RawValue;
use std::sync::Arc;
use tokio::time::Instant;

/// The ears of one client.
#[derive(Debug)]
pub(super) struct Ears {
    outbox: Outbox,
    calls: Arc<CallPath>,
    /// Where news of resources go, each under the stream's own id; `None`: they go as they are.
    streams: Option<Streams>,
}

impl Ears {
    /// For what a session follows.
    pub(super) fn of(outbox: &Outbox, calls: &Arc<CallPath>) -> Arc<dyn Hearer> {
        Arc::new(Self { outbox: outbox.clone(), calls: calls.clone(), streams: None })
    }

    /// For what streams follow.
    pub(super) fn of_streams(outbox: &Outbox, calls: &Arc<CallPath>, streams: &Streams) -> Arc<dyn Hearer> {
        Arc::new(Self { outbox: outbox.clone(), calls: calls.clone(), streams: Some(streams.clone()) })
    }
}

impl Hearer for Ears {
    fn updated(&self, uri: &str, params: &RawValue) {
        let mut quoted = String::with_capacity(uri.len() + 2);
        push_string(&mut quoted, uri);
        // Masked first: the client must find its own URI again, whatever it looks like.
        let masked = self.calls.masked(params);
        let params = Members::parse(&masked).unwrap_or_default().with("uri", &quoted);
        match &self.streams {
            None => self.outbox.notify(notification("notifications/resources/updated", &params)),
            Some(streams) => {
                streams.updated(uri, &params).into_iter().for_each(|line| self.outbox.notify(line))
            }
        }
    }

    fn logged(&self, line: &LogLine) {
        let params = line.masked(|params| self.calls.masked(params));
        self.outbox.notify(notification("notifications/message", params));
    }
}

/// The line of a notification.
pub(super) fn notification(method: &str, params: &RawValue) -> Vec<u8> {
    let mut line = ObjectWriter::with_capacity(params.get().len() + 80);
    line.member("jsonrpc", "\"2.0\"").string("method", method).member("params", params.get());
    line.finish().get().as_bytes().to_vec()
}

impl Session {
    /// Goes on where an earlier connection of this client ended.
    pub(super) fn go_on(&mut self, mut resumed: Resumed) {
        self.modern.resume(std::mem::take(&mut resumed.streams));
        self.subscriptions = Subscriptions::restored(std::mem::take(&mut resumed.subscriptions));
        self.state = Negotiated::resumed(resumed);
        self.remember();
        if self.state.revision.is_none() {
            // Its requests speak for themselves; the open ones come again.
            return;
        }
        self.name_client();
        self.follow_on();
        // The catalogue may have changed while nobody could tell the client.
        let methods = self.announce.all(Instant::now().into_std());
        self.notify(&methods);
    }

    /// Hands the shim the string that brings this session back after a loss of the daemon.
    pub(super) fn remember(&self) {
        if let Some(resumed) = self.state.to_resume(self.modern.heard) {
            let resumed = resumed.following(self.subscriptions.keep()).streaming(self.modern.streams.ids());
            let word = resumed.seal();
            self.outbox.answer(format!("{RESUME_PREFIX}{word}").into_bytes());
        }
    }

    fn notify(&self, methods: &[&str]) {
        for method in methods {
            self.modern.streams.list_changed(method).into_iter().for_each(|line| self.outbox.notify(line));
            if self.state.revision.is_none() {
                continue;
            }
            let mut line = ObjectWriter::default();
            line.member("jsonrpc", "\"2.0\"").string("method", method);
            self.outbox.notify(line.finish().get().as_bytes().to_vec());
        }
    }

    /// Tells the client what had to wait.
    pub(super) fn announce_due(&mut self) {
        if self.modern.quiet_at().is_some_and(|at| at <= Instant::now().into_std()) {
            self.quiet();
        }
        let methods = self.announce.due(Instant::now().into_std());
        self.notify(&methods);
    }

    /// There is a new catalogue.
    pub(super) fn catalog_changed(&mut self) {
        let view = self.catalog.borrow_and_update().view(&self.profile, self.only);
        let old = std::mem::replace(&mut self.view, view);
        if self.state.revision.is_none() && self.modern.streams.is_empty() {
            return;
        }
        let methods = self.announce.changed(&old, &self.view, Instant::now().into_std());
        self.notify(&methods);
        self.follow_on();
    }

    /// Enters a subscription; `Err`: it is answered already.
    pub(super) fn begin_following(&mut self, named: &str) -> Result<(), Reply> {
        // What the view does not show is answered by the road, like any other unknown resource.
        let Some(resource) = self.view.natives().resource(named) else { return Ok(()) };
        match self.subscriptions.begin(named, Source::of(&resource)) {
            Begin::Ask => Ok(()),
            Begin::Already => Err(Reply::Result(ObjectWriter::default().finish())),
            Begin::Full => {
                let text = format!(
                    "this session follows as many resources as it may, {MAX}; unsubscribe from some first"
                );
                Err(Reply::error(INVALID_REQUEST, &text))
            }
        }
    }

    /// A request to follow is over.
    pub(super) fn ended_following(&mut self, named: &str, agreed: Agreed) {
        let known = self.subscriptions.has(named);
        if let Some(source) = self.subscriptions.ended(named, agreed) {
            self.shared.calls.unfollow(self.facts.id, self.facts.id, &source);
        } else if !known
            && !self.modern.followed.has(named)
            && let Some(resource) = self.view.natives().resource(named)
        {
            // Let go while the request was open; the server may have heard of it after that.
            self.shared.calls.unfollow(self.facts.id, self.facts.id, &Source::of(&resource));
        }
        if agreed == Agreed::Yes && known {
            self.remember();
        }
    }

    /// `resources/unsubscribe`.
    pub(super) fn stop_following(&mut self, named: &str) {
        if let Some(source) = self.subscriptions.remove(named) {
            self.shared.calls.unfollow(self.facts.id, self.facts.id, &source);
            self.remember();
        }
    }

    /// After a new catalogue or a reconnect: everything that is still seen is followed, at the servers
    /// that there are now, and nothing else.
    fn follow_on(&mut self) {
        let id = self.facts.id;
        let hidden = self.subscriptions.only_seen(|server| self.view.sees(server));
        hidden.iter().for_each(|source| self.shared.calls.unfollow(id, id, source));
        let caller = self.caller();
        for (named, source) in self.subscriptions.agreed() {
            self.shared.calls.follow_on(&caller, id, named, source);
        }
        if !hidden.is_empty() {
            self.remember();
        }
        self.streams_follow_on();
        self.listen();
    }

    /// Tells the servers in view which log lines this client wants.
    pub(super) fn listen(&self) {
        let session = self.state.revision.and_then(era::known);
        let session = session.map(|_| self.state.log_level.map_or(Verbosity::OwnCalls, Verbosity::From));
        // From 2026-07-28 on a request that names no level gets no log lines.
        let wish = match (session, self.modern.level()) {
            (Some(Verbosity::From(one)), Some(other)) => Some(Verbosity::From(one.min(other))),
            (Some(Verbosity::OwnCalls) | None, Some(level)) => Some(Verbosity::From(level)),
            (session, None) => session,
        };
        if wish.is_some() || self.modern.heard == Heard::Before {
            self.shared.calls.listen(self.facts.id, &self.view, wish, &self.ears);
        }
    }
}
