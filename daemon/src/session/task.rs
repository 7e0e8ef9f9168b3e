//! One client's task: reads lines, runs its calls, writes answers.
//!
//! The only writer of its socket. When the client's side ends, open calls are finished and their
//! answers flushed before the socket closes (half-close). When the socket breaks, open calls are
//! dropped, which cancels them at their servers.

use super::Shared;
use super::announce::Announce;
use super::asks::Asks;
use super::batch::Batch;
use super::clients::{ClientFacts, Named};
pub use super::ended::Ended;
use super::ended::hung_up;
use super::follow::Ears;
use super::inbound::{self, ClientMessage};
use super::inbox::Inbox;
use super::methods::{self, Negotiated, Route};
use super::modern::{self, EraOf};
use super::outbox::Outbox;
use super::requests::{After, Modern};
use super::resume::Resumed;
use super::subscriptions::{Agreed, Subscriptions};
use crate::call::peer::Peer;
use crate::call::{Asked, Caller, Target, ToolCall};
use crate::catalog::snapshot::{Catalog, View};
use crate::jsonrpc::ids::{IdKey, RequestId};
use crate::jsonrpc::reply::{INVALID_REQUEST, Reply};
use crate::jsonrpc::splice::ObjectWriter;
use crate::names::ProfileName;
use crate::server::news::hearer::Hearer;
use crate::server::wire::questions::Unasked;
use crate::store;
use futures_util::stream::{FuturesUnordered, StreamExt};
use hermes_proto::shim::envelope;
use hermes_proto::shim::framing::{DEFAULT_MAX_LINE, Line, LineBuffer};
use hermes_proto::shim::hello::{Hello, Only};
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Lines over this many bytes are parsed on the blocking pool.
const LARGE_LINE: usize = 256 * 1024;

/// While more than this waits to be read by the client, no further request of it is taken.
const PAUSE_READING: usize = 8 * 1024 * 1024;

/// How often a client that sends no more is looked at, while its calls are still open.
const PEER_CHECK: Duration = Duration::from_millis(200);

/// While the open calls of one client hold more bytes of params than this, no further request of it
/// is taken; the pipe makes the client wait.
const CLIENT_BYTES: usize = 64 * 1024 * 1024;

/// The same for all clients together.
const TOTAL_BYTES: usize = 256 * 1024 * 1024;

/// How often a client that waits for the others' bytes looks again.
const TOTAL_CHECK: Duration = Duration::from_millis(50);

/// Calls of one client at once; further ones are refused.
const MAX_CALLS: usize = 1024;

pub(super) type CallFuture = Pin<Box<dyn Future<Output = Finished> + Send>>;

/// A call that is over; `None`: cancelled by its client, which wants no answer.
pub(super) struct Finished {
    pub(super) key: IdKey,
    pub(super) raw_id: Box<str>,
    pub(super) reply: Option<Reply>,
    pub(super) batch: Option<Batch>,
    /// Bytes of params that the call held.
    pub(super) bytes: usize,
    /// What is to be done about it besides.
    pub(super) after: After,
}

/// How a running call is cancelled.
pub(super) struct Cancel {
    pub(super) trigger: oneshot::Sender<()>,
    pub(super) reason: Arc<OnceLock<String>>,
}

/// One connected client; see the module documentation.
pub struct Session {
    pub(super) shared: Arc<Shared>,
    pub(super) facts: Arc<ClientFacts>,
    stream: UnixStream,
    pub(super) identity: Arc<store::Caller>,
    /// Random; begins every id that is ours on this connection.
    pub(super) prefix: Arc<str>,
    pub(super) profile: ProfileName,
    pub(super) only: Only,
    lines: LineBuffer,
    pub(super) outbox: Outbox,
    asks: Asks,
    pub(super) inbox: Inbox,
    pub(super) calls: FuturesUnordered<CallFuture>,
    pub(super) cancels: HashMap<IdKey, Cancel>,
    /// Bytes of params that the open calls hold.
    pub(super) held: usize,
    pub(super) state: Negotiated,
    pub(super) catalog: watch::Receiver<Arc<Catalog>>,
    pub(super) view: Arc<View>,
    pub(super) announce: Announce,
    pub(super) subscriptions: Subscriptions,
    /// What requests that speak for themselves left.
    pub(super) modern: Modern,
    pub(super) ears: Arc<dyn Hearer>,
    parsing: Option<JoinHandle<Option<ClientMessage>>>,
    client_done: bool,
}

impl Session {
    /// A session on a socket whose hello was accepted; `prefix` is unlike that of any other connection,
    /// `lines` holds what came after the hello.
    pub fn new(
        shared: Arc<Shared>,
        facts: Arc<ClientFacts>,
        stream: UnixStream,
        hello: &Hello,
        identity: store::Caller,
        prefix: Arc<str>,
        lines: Vec<u8>,
    ) -> Self {
        let profile = ProfileName::new(hello.profile.as_str());
        let mut catalog = shared.catalog.clone();
        let view = catalog.borrow_and_update().view(&profile, hello.only);
        let resumed = hello.resume.as_deref().and_then(Resumed::open);
        let mut buffer = LineBuffer::new(DEFAULT_MAX_LINE);
        buffer.push(&lines);
        let outbox = Outbox::default();
        let ears = Ears::of(&outbox, &shared.calls);
        let mut session = Self {
            shared,
            facts,
            stream,
            identity: Arc::new(identity),
            asks: Asks::new(prefix.clone(), outbox.clone()),
            prefix,
            inbox: Inbox::default(),
            profile,
            only: hello.only,
            lines: buffer,
            outbox,
            calls: FuturesUnordered::new(),
            cancels: HashMap::new(),
            held: 0,
            state: Negotiated::default(),
            catalog,
            view,
            announce: Announce::default(),
            subscriptions: Subscriptions::default(),
            modern: Modern::default(),
            ears,
            parsing: None,
            client_done: false,
        };
        if let Some(resumed) = resumed {
            session.go_on(resumed);
        }
        session
    }

    /// Serves the client until one side ends.
    pub async fn run(mut self, stop: CancellationToken) -> Ended {
        self.take_lines();
        let ended = loop {
            if self.client_done && self.calls.is_empty() && self.parsing.is_none() && self.outbox.is_empty() {
                break Ended::ClientDone;
            }
            if self.outbox.overflowed() {
                break Ended::NotReading;
            }
            let crowded = self.held > 0 && self.shared.held.load(Ordering::Relaxed) > TOTAL_BYTES;
            let may_read = !self.client_done
                && !crowded
                && self.held < CLIENT_BYTES
                && self.parsing.is_none()
                && self.calls.len() < MAX_CALLS
                && self.outbox.bytes() < PAUSE_READING;
            let announce_at =
                self.announce.next().into_iter().chain(self.modern.quiet_at()).min().map(Instant::from_std);
            tokio::select! {
                biased;
                () = stop.cancelled() => break Ended::Stopping,
                Some(done) = self.calls.next(), if !self.calls.is_empty() => self.finished(done),
                ready = self.stream.readable(), if may_read => {
                    if ready.is_err() || self.read().is_err() {
                        break Ended::Broken;
                    }
                }
                message = parsed(&mut self.parsing), if self.parsing.is_some() => {
                    self.parsing = None;
                    self.message(message, None);
                    self.take_lines();
                }
                asked = self.inbox.next() => self.asked(asked),
                changed = self.catalog.changed() => match changed {
                    Ok(()) => self.catalog_changed(),
                    Err(_) => break Ended::Stopping,
                },
                ready = self.stream.writable(), if !self.outbox.is_empty() => {
                    if ready.is_err() {
                        break Ended::Broken;
                    }
                }
                () = self.outbox.changed() => {}
                () = tokio::time::sleep(TOTAL_CHECK), if crowded => {}
                () = async { tokio::time::sleep_until(announce_at.expect("checked")).await }, if announce_at.is_some() => {
                    self.announce_due();
                }
                // The end of its input looks the same whether the client waits for answers or is gone.
                () = tokio::time::sleep(PEER_CHECK), if self.client_done => {
                    if hung_up(&self.stream) {
                        break Ended::Broken;
                    }
                }
            }
            let stream = &self.stream;
            if self.outbox.flush(|slices| stream.try_write_vectored(slices)).is_err() {
                break Ended::Broken;
            }
            self.facts.dropped.store(self.outbox.dropped(), Ordering::Relaxed);
        };
        if ended == Ended::ClientDone {
            self.end_streams();
        }
        if matches!(ended, Ended::Stopping | Ended::ClientDone) {
            self.last_flush();
        }
        self.asks.end();
        self.forget_streams();
        self.shared.held.fetch_sub(self.held, Ordering::Relaxed);
        ended
    }

    fn last_flush(&self) {
        let stream = &self.stream;
        // Best effort: the shim tells its client about the rest.
        let _ = self.outbox.flush(|slices| stream.try_write_vectored(slices));
    }

    fn read(&mut self) -> io::Result<()> {
        match self.stream.try_read(self.lines.room()) {
            Ok(0) => {
                let rest = self.lines.rest().to_vec();
                self.client_done = true;
                if !rest.is_empty() {
                    self.message(inbound::read(&rest), None);
                }
                Ok(())
            }
            Ok(n) => {
                self.lines.filled(n);
                self.take_lines();
                Ok(())
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn take_lines(&mut self) {
        let mut lines = std::mem::replace(&mut self.lines, LineBuffer::new(0));
        while self.parsing.is_none() {
            match lines.next_line() {
                None => break,
                Some(Line::Oversized { bytes, head }) => {
                    let id = envelope::id_in(head).unwrap_or("null").to_owned();
                    let text = format!("the line has {bytes} bytes; the limit is {DEFAULT_MAX_LINE}");
                    self.outbox.answer(Reply::error(INVALID_REQUEST, &text).line(&id));
                }
                Some(Line::Full(line)) if line.len() > LARGE_LINE => {
                    let line = line.to_vec();
                    self.parsing = Some(tokio::task::spawn_blocking(move || inbound::read(&line)));
                }
                Some(Line::Full(line)) => self.message(inbound::read(line), None),
            }
        }
        self.lines = lines;
    }

    fn message(&mut self, message: Option<ClientMessage>, batch: Option<&Batch>) {
        match message {
            None => {}
            Some(ClientMessage::Request { id, method, params }) => self.request(id, &method, params, batch),
            Some(ClientMessage::Notification { method, params }) => {
                self.notification(&method, params.as_deref())
            }
            Some(ClientMessage::Response { id, outcome }) => self.asks.answered(&id, outcome),
            Some(ClientMessage::Invalid { id, code, message }) => {
                self.answer(&id, &Reply::error(code, message), batch);
            }
            Some(ClientMessage::Batch(items)) => self.batch(items),
        }
    }

    fn batch(&mut self, items: Vec<ClientMessage>) {
        if !self.state.revision.is_some_and(crate::jsonrpc::era::allows_batches) {
            let text = "batches exist in protocol revision 2025-03-26 only; send one message a line";
            self.outbox.answer(Reply::error(INVALID_REQUEST, text).line("null"));
            return;
        }
        let wants_answer = |item: &&ClientMessage| {
            matches!(item, ClientMessage::Request { .. } | ClientMessage::Invalid { .. })
        };
        let batch = Batch::of(items.iter().filter(wants_answer).count());
        for item in items {
            self.message(Some(item), Some(&batch));
        }
    }

    fn request(&mut self, id: RequestId, method: &str, params: Option<Box<RawValue>>, batch: Option<&Batch>) {
        match modern::era_of(method, params.as_deref(), self.state.revision, self.modern.heard) {
            EraOf::Session => {}
            EraOf::Itself(opening) => return self.modern_request(id, method, *opening, batch),
            EraOf::Neither(reply) => return self.answer(id.raw(), &reply, batch),
        }
        match methods::route(method, params.as_deref(), &mut self.state, &self.view) {
            Route::Now(reply) => self.answer(id.raw(), &reply, batch),
            Route::Initialized(result) => {
                // Instructions are text of servers.
                let result = self.shared.calls.masked(&result);
                self.answer(id.raw(), &Reply::Result(result), batch);
                self.name_client();
                self.remember();
                self.listen();
            }
            Route::LevelSet(reply) => {
                self.answer(id.raw(), &reply, batch);
                self.remember();
                self.listen();
            }
            Route::Unsubscribe(uri) => {
                self.stop_following(&uri);
                self.answer(id.raw(), &Reply::Result(ObjectWriter::default().finish()), batch);
            }
            Route::Call(call) if call.target == Target::Subscription => {
                match self.begin_following(&call.name) {
                    Ok(()) => self.call(id, call, batch.cloned()),
                    Err(reply) => self.answer(id.raw(), &reply, batch),
                }
            }
            Route::Call(call) => self.call(id, call, batch.cloned()),
        }
    }

    pub(super) fn answer(&self, raw_id: &str, reply: &Reply, batch: Option<&Batch>) {
        let line = reply.line(raw_id);
        match batch {
            None => self.outbox.answer(line),
            Some(batch) => {
                if let Some(all) = batch.done(Some(line)) {
                    self.outbox.answer(all);
                }
            }
        }
    }

    pub(super) fn name_client(&mut self) {
        let (name, version) = self.state.client_name();
        let revision = self.state.revision.unwrap_or_default();
        self.asks.declare(revision, self.state.capabilities.as_deref());
        self.name(name, version, revision);
    }

    /// Takes note of who the client says it is.
    pub(super) fn name(&mut self, name: String, version: String, revision: &str) {
        tracing::info!(client = %self.facts.id, name, version, revision, "client initialized");
        let said = |text: &String| (!text.is_empty()).then(|| text.clone());
        let identity = store::Caller::clone(&self.identity);
        self.identity = Arc::new(store::Caller { name: said(&name), version: said(&version), ..identity });
        *self.facts.named.lock().expect("nothing panics while holding it") =
            Named { name, version, revision: revision.to_owned() };
    }

    fn call(&mut self, id: RequestId, mut call: ToolCall, batch: Option<Batch>) {
        if !self.is_free(&id, batch.as_ref()) {
            return;
        }
        let sink = self.progress_sink(&call);
        let (trigger, cancelled) = oneshot::channel::<()>();
        let reason = call.cancel_reason.clone();
        let caller = self.caller();
        let calls = self.shared.calls.clone();
        let key = id.key().clone();
        let raw_id: Box<str> = id.raw().into();
        call.asked = Some(Asked {
            id: raw_id.clone(),
            session: self.prefix.clone(),
            revision: self.state.revision.unwrap_or_default(),
        });
        self.cancels.insert(key.clone(), Cancel { trigger, reason });
        let after = match call.target {
            Target::Subscription => After::Follows(call.name.clone()),
            _ => After::Nothing,
        };
        let bytes = call.upstream.bytes();
        self.hold(bytes);
        self.calls.push(Box::pin(async move {
            let reply = tokio::select! {
                biased;
                Ok(()) = cancelled => None,
                reply = crate::call::run_call(&calls, &caller, call, &sink) => Some(reply),
            };
            Finished { key, raw_id, reply, batch, bytes, after }
        }));
    }

    /// A question of a server that serves this client alone.
    fn asked(&mut self, asked: Unasked) {
        let (calls, caller) = (self.shared.calls.clone(), self.caller());
        match self.modern.only_call() {
            // Such a client can be asked only by the end of a request.
            Some(call) => call.asked(asked, calls, caller),
            None => self.inbox.begin(asked, calls, caller),
        }
    }

    /// This client, for a call or a question.
    pub(super) fn caller(&self) -> Caller {
        let peer: Arc<dyn Peer> = Arc::new(self.asks.clone());
        Caller {
            client: self.facts.id,
            view: self.view.clone(),
            identity: self.identity.clone(),
            peer: Some(peer),
            hearer: Some(self.ears.clone()),
            inbox: Some(self.inbox.sender()),
        }
    }

    fn finished(&mut self, done: Finished) {
        self.cancels.remove(&done.key);
        self.held -= done.bytes;
        self.shared.held.fetch_sub(done.bytes, Ordering::Relaxed);
        self.facts.in_flight.fetch_sub(1, Ordering::Relaxed);
        let agreed = matches!(done.reply, Some(Reply::Result(_)));
        match done.after {
            After::Nothing => {}
            After::Follows(uri) => self.ended_following(&uri, if agreed { Agreed::Yes } else { Agreed::No }),
            After::Quiet(level) => self.no_longer_wants(level),
            After::Stream(agreed) => return self.stream_opened(&done.key, agreed),
        }
        match (done.reply, done.batch) {
            (Some(reply), batch) => self.answer(&done.raw_id, &reply, batch.as_ref()),
            (None, Some(batch)) => {
                if let Some(all) = batch.done(None) {
                    self.outbox.answer(all);
                }
            }
            (None, None) => {}
        }
    }
}

async fn parsed(parsing: &mut Option<JoinHandle<Option<ClientMessage>>>) -> Option<ClientMessage> {
    match parsing {
        Some(handle) => handle.await.unwrap_or(None),
        None => std::future::pending().await,
    }
}
