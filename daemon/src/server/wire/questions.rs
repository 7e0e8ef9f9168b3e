//! What a server asks on its own, on its way to the one client that it is about.
//!
//! Owner: the task of one generation keeps what is open ([`Questions`]); whoever got a [`Question`]
//! answers it. Promise: each question is answered exactly once, at once when whoever had it went away;
//! one that the server takes back ends at the client too; no client hears a question that is not provably
//! about it. May not touch: who the clients are.

use crate::config::ServerConfig;
use crate::jsonrpc::ids::IdKey;
use crate::jsonrpc::reply::{INTERNAL_ERROR, Reply};
use crate::jsonrpc::splice;
use crate::names::ServerName;
use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// Questions of one generation that may be open; further ones are declined at once.
pub const MAX_OPEN: usize = 32;

/// Questions that may wait for the one who answers them.
pub const BACKLOG: usize = 32;

/// One request of a server. Dropped, the server is told that its client is gone.
#[derive(Debug)]
pub struct Question {
    /// MCP method.
    pub method: Box<str>,
    /// Its params, raw.
    pub params: Option<Box<RawValue>>,
    /// Where the answer goes; closed when the server does not wait any more.
    pub answer: oneshot::Sender<Reply>,
}

/// A question outside of any call, and which server asks.
pub type Unasked = (ServerName, Question);

/// Whom questions of an instance are about that came with no call. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Front {
    /// The one client that the instance serves at the moment, if there is one.
    served: Arc<Mutex<Option<Served>>>,
    /// The instance's server, and who answers it where a model is wanted and no client can be meant.
    models: Option<(ServerName, Arc<dyn Models>)>,
}

/// The server of the instance, and where its client takes questions.
type Served = (ServerName, mpsc::Sender<Unasked>);

/// Answers requests for a model that are about no client in particular.
pub trait Models: std::fmt::Debug + Send + Sync {
    /// What can be answered for `server` now.
    fn offer(&self, server: &ServerConfig) -> Sampling;

    /// Takes the request, or gives it back where nothing can be answered for `server`. Returns at once.
    ///
    /// # Errors
    /// The request.
    fn take(&self, server: &ServerName, question: Question) -> Result<(), Question>;
}

/// What can be answered of requests for a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// None.
    None,
    /// Those without tools.
    Text,
    /// All.
    Tools,
}

/// Why nobody took a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Untaken {
    /// The instance serves several clients, or none.
    Nobody,
    /// Its client is gone.
    Gone,
    /// Its client has too many questions open.
    Busy,
}

impl Front {
    /// Serves nobody in particular; `models` answers `server` where a model is wanted.
    pub fn of(server: ServerName, models: Option<Arc<dyn Models>>) -> Self {
        Self { served: Arc::default(), models: models.map(|models| (server, models)) }
    }

    /// From now on the instance of `server` serves the client behind `to` alone.
    pub fn serve(&self, server: ServerName, to: mpsc::Sender<Unasked>) {
        *self.served() = Some((server, to));
    }

    /// From now on it serves nobody in particular.
    pub fn clear(&self) {
        *self.served() = None;
    }

    /// What the daemon itself can answer for a server with this configuration.
    pub(crate) fn sampling(&self, server: &ServerConfig) -> Sampling {
        self.models.as_ref().map_or(Sampling::None, |(_, models)| models.offer(server))
    }

    pub(super) fn ask(&self, question: Question) -> Result<(), Untaken> {
        let served = self.served();
        let Some((server, to)) = served.as_ref() else {
            drop(served);
            // What a model is asked shows nothing of any client but to the server that asks.
            return match &self.models {
                Some((server, models)) if &*question.method == "sampling/createMessage" => {
                    models.take(server, question).map_err(|_| Untaken::Nobody)
                }
                Some(_) | None => Err(Untaken::Nobody),
            };
        };
        to.try_send((server.clone(), question)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Untaken::Busy,
            mpsc::error::TrySendError::Closed(_) => Untaken::Gone,
        })
    }

    fn served(&self) -> MutexGuard<'_, Option<Served>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a question belongs to; its clock stands still meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tie {
    /// One request of ours.
    Request(u64),
    /// The client, and so every request that is open.
    Client,
}

/// A question that is over.
#[derive(Debug)]
pub(super) struct Settled {
    key: IdKey,
    pub(super) tie: Tie,
    /// The line for the server; `None`: it took the question back.
    pub(super) line: Option<Vec<u8>>,
}

/// The questions of one generation that have no answer yet.
#[derive(Default)]
pub(super) struct Questions {
    open: FuturesUnordered<BoxFuture<'static, Settled>>,
    taken_back: HashMap<IdKey, AbortHandle>,
}

impl std::fmt::Debug for Questions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Questions").field("open", &self.open.len()).finish()
    }
}

impl Questions {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// How many have no answer.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.open.len()).unwrap_or(u32::MAX)
    }

    /// Whether one more may be asked under this id.
    pub(super) fn takes(&self, key: &IdKey) -> bool {
        self.open.len() < MAX_OPEN && !self.taken_back.contains_key(key)
    }

    /// Waits for the answer to the question with this id.
    pub(super) fn begin(
        &mut self,
        id: Box<RawValue>,
        key: IdKey,
        tie: Tie,
        answer: oneshot::Receiver<Reply>,
    ) {
        let (abort, registration) = AbortHandle::new_pair();
        self.taken_back.insert(key.clone(), abort);
        self.open.push(Box::pin(async move {
            let line = match Abortable::new(answer, registration).await {
                Err(_) => None,
                Ok(Ok(reply)) => Some(one_line(reply).line(id.get())),
                Ok(Err(_)) => Some(Reply::error(INTERNAL_ERROR, GONE).line(id.get())),
            };
            Settled { key, tie, line }
        }));
    }

    /// The next one that is over; call it only while some are open.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Settled> {
        let settled = self.open.next().await?;
        self.taken_back.remove(&settled.key);
        Some(settled)
    }

    /// The server does not wait for the answer any more.
    pub(super) fn take_back(&mut self, key: &IdKey) {
        if let Some(abort) = self.taken_back.get(key) {
            abort.abort();
        }
    }
}

/// What a server hears when its client went away before it answered.
pub(super) const GONE: &str = "the client that this question was for is gone";

/// A pipe wants one line, whatever brought the answer.
fn one_line(reply: Reply) -> Reply {
    let flat = |raw: Box<RawValue>| match splice::one_line(raw.get()) {
        std::borrow::Cow::Borrowed(_) => raw,
        std::borrow::Cow::Owned(text) => RawValue::from_string(text).unwrap_or(raw),
    };
    match reply {
        Reply::Result(raw) => Reply::Result(flat(raw)),
        Reply::Error(raw) => Reply::Error(flat(raw)),
    }
}
