//! One call of a client of 2026-07-28, which asks its client by ending a request and goes on with the next.
//!
//! Owner: whoever drives it: the session while a request of the client is open, [`suspended`](super::suspended)
//! between two. Promise: what the call asks becomes one `input_required` with all its open questions; an answer
//! reaches the question it was given for; a question without one is asked again. May not touch: what is asked.

use super::peer::{AskError, Asking, Feature, Peer};
use super::route::Upstream;
use super::steps::{CallPath, lock};
use super::suspended::SuspendError;
use super::{Caller, Target, ToolCall, asked};
use crate::jsonrpc::era;
use crate::jsonrpc::reply::{INTERNAL_ERROR, Reply};
use crate::jsonrpc::splice::{Members, ObjectWriter};
use crate::names::ClientId;
use crate::server::wire::questions::Unasked;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Questions of one call that may be open.
const MAX_OPEN: usize = 32;

/// Where progress of a call goes.
pub type ProgressSink = Box<dyn Fn(Box<RawValue>) + Send>;

/// The client of one request, as the call sees it.
#[derive(Debug, Clone)]
struct PerRequest {
    features: Vec<Feature>,
    to: mpsc::Sender<Question>,
    /// What the server calls its question.
    name: Option<String>,
}

/// One question of a call to its client.
#[derive(Debug)]
struct Question {
    /// What its server calls it.
    name: Option<String>,
    method: &'static str,
    params: Box<RawValue>,
    answer: oneshot::Sender<Reply>,
}

impl Peer for PerRequest {
    fn revision(&self) -> &'static str {
        era::PER_REQUEST
    }

    fn has(&self, feature: Feature) -> bool {
        self.features.contains(&feature)
    }

    // How long is waited is how long the call may be suspended: a clock that runs on while it is not polled
    // would fire the moment the answer is there.
    fn ask(&self, method: &'static str, params: &RawValue, _: Duration) -> Result<Asking, AskError> {
        let (answer, answered) = oneshot::channel();
        let question = Question { name: self.name.clone(), method, params: params.to_owned(), answer };
        self.to.try_send(question).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => AskError::Busy { open: MAX_OPEN, limit: MAX_OPEN },
            mpsc::error::TrySendError::Closed(_) => AskError::Gone,
        })?;
        Ok(Box::pin(async move { answered.await.map_err(|_| AskError::Gone) }))
    }

    fn naming(&self, name: &str) -> Option<Arc<dyn Peer>> {
        Some(Arc::new(Self { name: Some(name.to_owned()), ..self.clone() }))
    }
}

/// How a question that came with no call reaches the client of a running one. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Reach {
    peer: Arc<dyn Peer>,
    to: mpsc::Sender<BoxFuture<'static, ()>>,
}

impl Reach {
    /// Whether the call is still to be answered.
    pub fn is_open(&self) -> bool {
        !self.to.is_closed()
    }

    /// Whether both are of one call.
    pub fn is_same(&self, other: &Self) -> bool {
        self.to.same_channel(&other.to)
    }

    /// Has the call ask its client what a server asked; `caller` is that client. What the call has no room
    /// for, and what a server asked that is not configured any more, is dropped, which tells the server.
    pub fn asked(&self, (server, question): Unasked, path: Arc<CallPath>, caller: Caller) {
        let Some(config) = path.server_config(&server) else { return };
        let caller = Caller { peer: Some(self.peer.clone()), ..caller };
        let serving = Box::pin(async move { asked::serve(&path, &caller, &config, question).await });
        drop(self.to.try_send(serving));
    }
}

/// See the module documentation.
pub struct Running {
    future: Pin<Box<dyn Future<Output = Reply> + Send>>,
    asked: mpsc::Receiver<Question>,
    reach: Reach,
    /// Questions that came with no call, before and after they were first looked at.
    unasked: mpsc::Receiver<BoxFuture<'static, ()>>,
    serving: FuturesUnordered<BoxFuture<'static, ()>>,
    /// By the name under which the client answers.
    open: Vec<(String, Question)>,
    named: u32,
    sink: Arc<Mutex<Option<ProgressSink>>>,
    reason: Arc<OnceLock<String>>,
    target: Target,
    /// Digest of method, name and arguments, in hex.
    pub(super) request: String,
    /// When it lapses, once it was suspended.
    pub(super) until: Option<Instant>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("target", &self.target)
            .field("open", &self.open.len())
            .finish_non_exhaustive()
    }
}

/// What must be the same when a client comes back with its answers, in hex.
pub fn request_digest(target: Target, name: &str, upstream: &Upstream) -> String {
    let mut digest = Sha256::new();
    for part in [format!("{target:?}").as_str(), name, upstream.arguments_text()] {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part.as_bytes());
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Running {
    /// A call of `caller`, which can be asked what `capabilities` say, and only this way. Nothing happens
    /// until it is [driven](Self::drive).
    pub fn begin(path: Arc<CallPath>, caller: Caller, call: ToolCall, capabilities: &RawValue) -> Self {
        let (to, asked) = mpsc::channel(MAX_OPEN);
        let features = Feature::declared(era::PER_REQUEST, Some(capabilities));
        let peer: Arc<dyn Peer> = Arc::new(PerRequest { features, to, name: None });
        let caller = Caller { peer: Some(peer.clone()), ..caller };
        let (reach_to, unasked) = mpsc::channel(MAX_OPEN);
        let reach = Reach { peer, to: reach_to };
        let sink: Arc<Mutex<Option<ProgressSink>>> = Arc::default();
        let (target, reason) = (call.target, call.cancel_reason.clone());
        let request = request_digest(target, &call.name, &call.upstream);
        let progress = {
            let sink = sink.clone();
            move |params| {
                if let Some(sink) = &*lock(&sink) {
                    sink(params);
                }
            }
        };
        let future = Box::pin(async move { super::run_call(&path, &caller, call, &progress).await });
        Self {
            future,
            asked,
            reach,
            unasked,
            serving: FuturesUnordered::new(),
            open: Vec::new(),
            named: 0,
            sink,
            reason,
            target,
            request,
            until: None,
        }
    }

    /// How others reach its client through it.
    pub fn reach(&self) -> Reach {
        self.reach.clone()
    }

    /// Where the client's reason for a cancellation is put.
    pub fn reason(&self) -> Arc<OnceLock<String>> {
        self.reason.clone()
    }

    /// Says why it will be dropped, unless something was said already.
    pub(super) fn because(&self, why: &str) {
        let _ = self.reason.set(why.to_owned());
    }

    /// Hands over what the client answered; names that were not asked for are ignored.
    pub fn answer(&mut self, responses: Option<&RawValue>) {
        let responses = responses.and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
        for (name, question) in std::mem::take(&mut self.open) {
            match responses.get(&name) {
                // Whoever asked may have gone meanwhile.
                Some(response) => drop(question.answer.send(Reply::Result(response.to_owned()))),
                None => self.open.push((name, question)),
            }
        }
    }

    /// Goes on until the call is answered or asks something; then it is suspended, and the answer says how to
    /// come back. `sink` gets its progress meanwhile.
    ///
    /// # Cancel safety
    /// Dropped, the call is cancelled.
    pub async fn drive(mut self, path: &CallPath, client: ClientId, sink: ProgressSink) -> Reply {
        *lock(&self.sink) = Some(sink);
        // A look at what the answers made of it, before anything is asked again.
        while let Some(Some(())) = self.serving.next().now_or_never() {}
        if let Some(reply) = (&mut self.future).now_or_never() {
            return reply;
        }
        self.open.retain(|(_, question)| !question.answer.is_closed());
        self.take_asked();
        while self.open.is_empty() {
            tokio::select! {
                biased;
                reply = &mut self.future => return reply,
                Some(()) = self.serving.next(), if !self.serving.is_empty() => {}
                Some(question) = self.asked.recv() => self.name(question),
                Some(serving) = self.unasked.recv() => self.serving.push(serving),
            }
            self.take_asked();
        }
        *lock(&self.sink) = None;
        let asks = self.requests();
        let target = self.target;
        match path.suspend(self, client) {
            Ok(state) => {
                let mut result = ObjectWriter::with_capacity(asks.get().len() + state.len() + 96);
                result
                    .string("resultType", "input_required")
                    .member("inputRequests", asks.get())
                    .string("requestState", &state);
                Reply::Result(result.finish())
            }
            Err(error) => refused(target, error),
        }
    }

    fn take_asked(&mut self) {
        while let Ok(question) = self.asked.try_recv() {
            self.name(question);
        }
    }

    /// Under the name that its server gave it, as far as that is free.
    fn name(&mut self, question: Question) {
        let is_taken = |name: &String| self.open.iter().any(|(open, _)| open == name);
        let mut name = question.name.clone();
        while name.as_ref().is_none_or(is_taken) {
            self.named += 1;
            name = Some(format!("q{}", self.named));
        }
        self.open.extend(name.map(|name| (name, question)));
    }

    /// The open questions as `inputRequests`.
    fn requests(&self) -> Box<RawValue> {
        let mut all = ObjectWriter::default();
        for (name, question) in &self.open {
            let mut one = ObjectWriter::default();
            one.string("method", question.method).member("params", question.params.get());
            all.member(name, one.finish().get());
        }
        all.finish()
    }

    #[cfg(test)]
    pub(super) fn testing(future: Pin<Box<dyn Future<Output = Reply> + Send>>, request: &str) -> Self {
        let (to, asked) = mpsc::channel(1);
        let (reach_to, unasked) = mpsc::channel(1);
        let peer: Arc<dyn Peer> = Arc::new(PerRequest { features: Vec::new(), to, name: None });
        Self {
            future,
            asked,
            reach: Reach { peer, to: reach_to },
            unasked,
            serving: FuturesUnordered::new(),
            open: Vec::new(),
            named: 0,
            sink: Arc::default(),
            reason: Arc::default(),
            target: Target::Tool,
            request: request.to_owned(),
            until: None,
        }
    }
}

/// The answer to a call that cannot be suspended.
fn refused(target: Target, error: SuspendError) -> Reply {
    let text =
        format!("{error}; answer those or let them lapse, then make this call again. It was given up.");
    if target != Target::Tool {
        return Reply::error(INTERNAL_ERROR, &text);
    }
    let mut block = ObjectWriter::default();
    block.string("type", "text").string("text", &text);
    let mut about = ObjectWriter::default();
    about.string("kind", "busy");
    let mut result = ObjectWriter::default();
    result
        .member("content", &format!("[{}]", block.finish().get()))
        .member("isError", "true")
        .member("_meta", about.finish().get());
    Reply::Result(result.finish())
}
