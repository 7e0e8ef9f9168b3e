//! What a session does about requests that speak for themselves (2026-07-28): methods of [`Session`].
//!
//! Promise: nothing is inferred from an earlier request but who is open and what is streamed; a call that
//! asks its client ends its request with `input_required` and goes on with the next. May not touch: how the
//! answers look ([`modern`]), what streams say ([`streams`](super::streams)).

use super::batch::Batch;
use super::follow::Ears;
use super::methods::{self, Negotiated, Route};
use super::modern::{self, Heard, Keep, Opening};
use super::notices::progress_line;
use super::outbox::HARD_LIMIT;
use super::streams::{Filter, Known, MAX, Streams};
use super::subscriptions::{Agreed, Begin, Subscriptions};
use super::task::{Cancel, Finished, Session};
use crate::call::follow::Source;
use crate::call::running::{Reach, Running, request_digest};
use crate::call::{Asked, Caller, ToolCall};
use crate::jsonrpc::era;
use crate::jsonrpc::ids::{IdKey, RequestId};
use crate::jsonrpc::log_level::LogLevel;
use crate::jsonrpc::reply::{INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, Reply};
use crate::names::ClientId;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How long after its answer a request's log lines may still come.
const AFTERMATH: Duration = Duration::from_millis(500);

/// What requests that speak for themselves left behind in a session.
#[derive(Debug, Default)]
pub(super) struct Modern {
    /// Whether there was one.
    pub(super) heard: Heard,
    /// Open `subscriptions/listen`.
    pub(super) streams: Streams,
    /// Resources that streams follow.
    pub(super) followed: Subscriptions,
    /// Under which number streams follow resources: news for one stream end with it, whoever else of this
    /// client follows the same. `None`: there was no stream yet.
    follower: Option<ClientId>,
    /// Levels of log lines that open requests want, with how many want them.
    levels: BTreeMap<LogLevel, u32>,
    /// The level of a request that is over: its lines may still be on their way.
    lingering: Option<(LogLevel, Instant)>,
    /// Streams that the client had at a daemon that is gone, by raw id.
    known: BTreeSet<String>,
    /// The open calls, for questions of servers that serve this client alone; suspended ones too.
    reaches: Vec<Reach>,
    /// `clientInfo` of the last request, raw.
    client: Option<Box<RawValue>>,
}

impl Modern {
    /// Goes on after a daemon at which these streams were open.
    pub(super) fn resume(&mut self, streams: Vec<String>) {
        self.known = streams.into_iter().collect();
    }

    /// The most verbose level that an open request wants.
    pub(super) fn level(&self) -> Option<LogLevel> {
        self.levels.keys().copied().chain(self.lingering.map(|(level, _)| level)).min()
    }

    fn reach(&mut self, reach: Reach) {
        self.reaches.retain(|known| known.is_open() && !known.is_same(&reach));
        self.reaches.push(reach);
    }

    /// The one call that is open; a question that came with no call can be about no other.
    pub(super) fn only_call(&mut self) -> Option<Reach> {
        self.reaches.retain(Reach::is_open);
        match &*self.reaches {
            [reach] => Some(reach.clone()),
            _ => None,
        }
    }

    /// When lines of a request that is over are not to be expected any more.
    pub(super) fn quiet_at(&self) -> Option<std::time::Instant> {
        self.lingering.map(|(_, until)| until.into_std())
    }
}

/// What is to be done when a call is over, besides its answer.
#[derive(Debug)]
pub(super) enum After {
    /// Nothing.
    Nothing,
    /// It was a `resources/subscribe`, of this URI.
    Follows(String),
    /// It wanted log lines from this level on.
    Quiet(LogLevel),
    /// It was a `subscriptions/listen`; servers agreed to send news of these resources.
    Stream(BTreeSet<String>),
}

impl Session {
    /// One request that speaks for itself.
    pub(super) fn modern_request(
        &mut self,
        id: RequestId,
        method: &str,
        opening: Opening,
        batch: Option<&Batch>,
    ) {
        self.introduce(&opening);
        let mut now = Negotiated { revision: Some(era::PER_REQUEST), ..Negotiated::default() };
        let (keep, route) = match method {
            "server/discover" => {
                let greeting = self.view.greeting();
                let result = modern::discovery(&methods::capabilities(greeting), &greeting.instructions);
                // Instructions are text of servers.
                (Keep::List, Route::Now(Reply::Result(self.shared.calls.masked(&result))))
            }
            "subscriptions/listen" => return self.open_stream(id, &opening.params, batch),
            "tools/list" | "resources/list" | "resources/templates/list" | "prompts/list" => {
                (Keep::List, methods::route(method, Some(&opening.params), &mut now, &self.view))
            }
            "resources/read" => {
                (Keep::Content, methods::route(method, Some(&opening.params), &mut now, &self.view))
            }
            "tools/call" | "prompts/get" | "completion/complete" => {
                (Keep::No, methods::route(method, Some(&opening.params), &mut now, &self.view))
            }
            _ => {
                let text = format!("`{method}` is no method of {} that hermesd has", era::PER_REQUEST);
                (Keep::No, Route::Now(Reply::error(METHOD_NOT_FOUND, &text)))
            }
        };
        match route {
            Route::Now(reply) => self.answer(id.raw(), &modern::answer(reply, keep), batch),
            Route::Call(call) => self.modern_call(id, call, opening, keep, batch.cloned()),
            Route::Initialized(_) | Route::LevelSet(_) | Route::Unsubscribe(_) => {
                unreachable!("no method that is routed above leads there")
            }
        }
    }

    /// Takes note of who asks, for the audit and for status.
    fn introduce(&mut self, opening: &Opening) {
        let said = |raw: &Option<Box<RawValue>>| raw.as_ref().map(|raw| raw.get().to_owned());
        let is_first = self.modern.heard == Heard::Never;
        if !is_first && said(&self.modern.client) == said(&opening.client) {
            return;
        }
        self.modern.heard = Heard::Before;
        self.modern.client.clone_from(&opening.client);
        let state = Negotiated { client: opening.client.clone(), ..Negotiated::default() };
        let (name, version) = state.client_name();
        self.name(name, version, era::PER_REQUEST);
        if is_first {
            self.remember();
        }
    }

    fn modern_call(
        &mut self,
        id: RequestId,
        mut call: ToolCall,
        opening: Opening,
        keep: Keep,
        batch: Option<Batch>,
    ) {
        if !self.is_free(&id, batch.as_ref()) {
            return;
        }
        let sink = Box::new(self.progress_sink(&call));
        let bytes = call.upstream.bytes();
        let client = self.facts.id;
        let running = match &opening.state {
            Some(state) => {
                let request = request_digest(call.target, &call.name, &call.upstream);
                match self.shared.calls.resume(state, client, &request) {
                    Ok(mut running) => {
                        running.answer(opening.responses.as_deref());
                        running
                    }
                    Err(error) => {
                        let text = format!("{error}; send the request again without it to begin anew");
                        self.answer(id.raw(), &Reply::error(INVALID_PARAMS, &text), batch.as_ref());
                        return;
                    }
                }
            }
            None => {
                call.asked = Some(Asked {
                    id: id.raw().into(),
                    session: self.prefix.clone(),
                    revision: era::PER_REQUEST,
                });
                Running::begin(self.shared.calls.clone(), self.modern_caller(), call, &opening.capabilities)
            }
        };
        self.modern.reach(running.reach());
        if opening.state.is_some() {
            // Over HTTP each request is a connection of its own.
            self.shared.calls.moved(client, &self.inbox.sender());
        }
        let (trigger, cancelled) = oneshot::channel::<()>();
        self.cancels.insert(id.key().clone(), Cancel { trigger, reason: running.reason() });
        self.quiet();
        let after = match opening.log_level {
            None => After::Nothing,
            Some(level) => {
                *self.modern.levels.entry(level).or_default() += 1;
                self.listen();
                After::Quiet(level)
            }
        };
        self.hold(bytes);
        let calls = self.shared.calls.clone();
        let (key, raw_id): (_, Box<str>) = (id.key().clone(), id.raw().into());
        self.calls.push(Box::pin(async move {
            let reply = tokio::select! {
                biased;
                Ok(()) = cancelled => None,
                reply = running.drive(&calls, client, sink) => Some(modern::answer(reply, keep)),
            };
            Finished { key, raw_id, reply, batch, bytes, after }
        }));
    }

    /// This client, which can be asked in no way but its own.
    fn modern_caller(&self) -> Caller {
        Caller { peer: None, ..self.caller() }
    }

    /// An open request that wanted log lines is over.
    pub(super) fn no_longer_wants(&mut self, level: LogLevel) {
        if let Some(count) = self.modern.levels.get_mut(&level) {
            *count -= 1;
            if *count == 0 {
                self.modern.levels.remove(&level);
            }
        }
        // A line comes by another way than the answer, and may be a moment behind it.
        self.modern.lingering = Some((level, Instant::now() + AFTERMATH));
    }

    /// Lines of a request that is over are not wanted any more.
    pub(super) fn quiet(&mut self) {
        if self.modern.lingering.take().is_some() {
            self.listen();
        }
    }

    /// `subscriptions/listen`: asks the servers, then acknowledges what they agreed to.
    fn open_stream(&mut self, id: RequestId, params: &RawValue, batch: Option<&Batch>) {
        if !self.is_free(&id, batch) {
            return;
        }
        let Some(filter) = Filter::read(params) else {
            let text =
                "params need `notifications`, an object; `resourceSubscriptions` in it is an array of URIs";
            self.answer(id.raw(), &Reply::error(INVALID_PARAMS, text), batch);
            return;
        };
        let known = if self.modern.known.remove(id.raw()) { Known::Yes } else { Known::No };
        let uris = filter.uris.clone();
        if !self.modern.streams.begin(&id, filter, known) {
            let text = format!(
                "this client has as many open subscriptions/listen as it may, {MAX}; cancel one first"
            );
            self.answer(id.raw(), &Reply::error(INVALID_REQUEST, &text), batch);
            return;
        }
        let follower = *self.modern.follower.get_or_insert_with(|| self.shared.clients.next_id());
        let ears = Ears::of_streams(&self.outbox, &self.shared.calls, &self.modern.streams);
        let mut asked = FuturesUnordered::new();
        let mut agreed = BTreeSet::new();
        for uri in uris {
            // What the view does not show is not agreed to.
            let Some(resource) = self.view.natives().resource(&uri) else { continue };
            match self.modern.followed.begin(&uri, Source::of(&resource)) {
                Begin::Ask => {
                    let calls = self.shared.calls.clone();
                    let caller = Caller { hearer: Some(ears.clone()), ..self.modern_caller() };
                    asked.push(async move {
                        let call = ToolCall { follower: Some(follower), ..methods::following(&uri) };
                        let reply = crate::call::run_call(&calls, &caller, call, &|_| {}).await;
                        (uri, matches!(reply, Reply::Result(_)))
                    });
                }
                Begin::Already => drop(agreed.insert(uri)),
                Begin::Full => {}
            }
        }
        let (trigger, cancelled) = oneshot::channel::<()>();
        self.cancels.insert(id.key().clone(), Cancel { trigger, reason: Arc::default() });
        self.hold(0);
        let (key, raw_id): (_, Box<str>) = (id.key().clone(), id.raw().into());
        self.calls.push(Box::pin(async move {
            let all = async {
                while let Some((uri, is_agreed)) = asked.next().await {
                    if is_agreed {
                        agreed.insert(uri);
                    }
                }
            };
            tokio::select! {
                biased;
                // What was agreed so far is let go with the stream.
                Ok(()) = cancelled => {}
                () = all => {}
            }
            Finished { key, raw_id, reply: None, batch: None, bytes: 0, after: After::Stream(agreed) }
        }));
    }

    /// Every server has answered.
    pub(super) fn stream_opened(&mut self, key: &IdKey, agreed: BTreeSet<String>) {
        let wanted = self.modern.streams.uris(key).unwrap_or_default();
        for uri in wanted {
            let how = if agreed.contains(&uri) { Agreed::Yes } else { Agreed::No };
            if let Some(source) = self.modern.followed.ended(&uri, how) {
                self.stream_lets_go(&source);
            }
        }
        for line in self.modern.streams.open(key, agreed) {
            self.outbox.notify(line);
        }
        self.remember();
    }

    /// The client does not want a stream any more; nothing happens where it is none.
    pub(super) fn close_stream(&mut self, key: &IdKey) {
        let Some(uris) = self.modern.streams.close(key) else { return };
        for uri in uris {
            if let Some(source) = self.modern.followed.remove(&uri) {
                self.stream_lets_go(&source);
            }
        }
        self.remember();
    }

    fn stream_lets_go(&self, source: &Source) {
        if let Some(follower) = self.modern.follower {
            self.shared.calls.unfollow(self.facts.id, follower, source);
        }
    }

    /// After a new catalogue: streams follow what is still seen, at the servers that there are now.
    pub(super) fn streams_follow_on(&mut self) {
        let Some(follower) = self.modern.follower else { return };
        for source in self.modern.followed.only_seen(|server| self.view.sees(server)) {
            self.shared.calls.unfollow(self.facts.id, follower, &source);
        }
        let ears = Ears::of_streams(&self.outbox, &self.shared.calls, &self.modern.streams);
        let caller = Caller { hearer: Some(ears), ..self.modern_caller() };
        for (named, source) in self.modern.followed.agreed() {
            self.shared.calls.follow_on(&caller, follower, named, source);
        }
    }

    /// The session is over: nobody hears of what its streams followed.
    pub(super) fn forget_streams(&self) {
        if let Some(follower) = self.modern.follower {
            self.shared.calls.forget_client(follower);
        }
    }

    /// The session ends in order: the answer to each open stream.
    pub(super) fn end_streams(&self) {
        for (id, result) in self.modern.streams.end() {
            self.answer(&id, &modern::answer(Reply::Result(result), Keep::No), None);
        }
    }

    /// Whether a request of this id may begin; it is answered otherwise.
    pub(super) fn is_free(&self, id: &RequestId, batch: Option<&Batch>) -> bool {
        if self.cancels.contains_key(id.key()) || self.modern.streams.has(id.key()) {
            let text = "a request with this id is still open; ids must not be reused within a session";
            self.answer(id.raw(), &Reply::error(INVALID_REQUEST, text), batch);
            return false;
        }
        // Over it the loop ends the session.
        self.outbox.bytes() <= HARD_LIMIT
    }

    /// A call with so many bytes of params begins.
    pub(super) fn hold(&mut self, bytes: usize) {
        self.held += bytes;
        self.shared.held.fetch_add(bytes, Ordering::Relaxed);
        self.facts.calls.fetch_add(1, Ordering::Relaxed);
        self.facts.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// Where progress of a call goes: under the token that the client gave, if it gave one.
    pub(super) fn progress_sink(&self, call: &ToolCall) -> impl Fn(Box<RawValue>) + Send + Sync + use<> {
        let (token, outbox) = (call.progress_token.clone(), self.outbox.clone());
        move |params| {
            if let Some(line) = token.as_deref().and_then(|token| progress_line(&params, token)) {
                outbox.notify(line);
            }
        }
    }
}
