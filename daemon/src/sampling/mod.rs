//! Requests of servers to a model: `sampling/createMessage`, answered by a client or by the provider.
//!
//! Owner of budgets and of the way to the provider: [`Sampler`], one for the daemon; std mutexes, never held
//! across an await. Promise: every request of a server gets one reply and leaves one audit row, whatever way
//! it ends; the limits of `sampling:` hold whoever answers; dropped, it stops whatever it waits for.
//! May not touch: which client may be asked (`call` says so), sessions, processes.

mod answer;
mod budget;
mod desk;
pub mod error;
mod provider;
mod record;
mod request;

pub use desk::Desk;

use crate::config::{Config, SamplingConfig, SamplingPreference, ServerConfig};
use crate::jsonrpc::reply::Reply;
use crate::jsonrpc::splice::{Members, ObjectWriter};
use crate::names::{ClientId, ServerName};
use crate::redact::Redactor;
use crate::store::{self, Store};
use crate::telemetry::metrics::Metrics;
use answer::Answer;
use budget::{Budget, Conversation, Grant, Wanted};
use error::SamplingError;
use provider::Provider;
use record::Record;
use request::{Chat, Facts};
use serde_json::value::RawValue;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// The method.
pub const METHOD: &str = "sampling/createMessage";

/// Requests of all servers at a time.
const UNDER_WAY: usize = 64;
/// Params above this many bytes are read on the blocking pool.
const LARGE: usize = 256 * 1024;

/// What the sampler needs to know of the rest of the daemon.
#[derive(Debug)]
pub struct Around {
    /// The configuration in force.
    pub config: watch::Receiver<Arc<Config>>,
    /// Masks secrets as the configuration in force has it.
    pub redactor: watch::Receiver<Arc<Redactor>>,
    /// Where audit rows go.
    pub store: Store,
    /// Counts for Prometheus.
    pub metrics: Metrics,
}

/// One request of a server.
#[derive(Debug)]
pub struct Asked<'a> {
    /// The server that asks.
    pub server: &'a ServerConfig,
    /// The client whose call caused it, and who that is; `None`: that cannot be said.
    pub caller: Option<(ClientId, Arc<store::Caller>)>,
    /// Trace of that call; empty: none.
    pub trace_id: &'a str,
    /// `params`.
    pub params: &'a RawValue,
}

/// Why a client gave no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClientFailure {
    /// It is gone.
    #[error("it is gone")]
    Gone,
    /// It has too many questions open.
    #[error("too many questions to it are open")]
    Busy,
    /// It did not answer in time.
    #[error("it did not answer in time")]
    TimedOut,
}

/// Answers servers that want a model.
#[derive(Debug)]
pub struct Sampler {
    around: Around,
    budget: Mutex<Budget>,
    provider: Provider,
    under_way: Semaphore,
}

impl Sampler {
    /// A sampler that nobody has asked yet.
    pub fn new(around: Around) -> Self {
        let under_way = Semaphore::new(UNDER_WAY);
        Self { around, budget: Mutex::default(), provider: Provider::default(), under_way }
    }

    /// Whether the daemon itself can answer this server: a provider is configured and sampling is on.
    pub fn can_answer(&self, server: &ServerConfig) -> bool {
        server.sampling.enabled && self.around.config.borrow().daemon.sampling_provider.is_some()
    }

    /// Drops what is kept for servers that are not `configured`.
    pub fn keep_servers(&self, configured: impl Fn(&ServerName) -> bool) {
        self.budget().keep(configured);
    }

    /// Answers one request, by the client or by the provider, as `sampling.prefer` has it.
    ///
    /// `client` asks the client that caused the request, and waits at most as long as it is told; `None`
    /// where none may be asked. A client that was asked and refuses is not gone round.
    ///
    /// # Cancel safety
    /// Dropped, the question to the client or the request to the provider ends with it; the audit says
    /// `cancelled`.
    pub async fn create_message<F, A>(&self, asked: Asked<'_>, client: Option<F>) -> Reply
    where
        F: FnOnce(Box<RawValue>, Duration) -> A,
        A: Future<Output = Result<Reply, ClientFailure>>,
    {
        let mut record = Record::begin(&self.around, &asked);
        match self.answered(&asked, client, &mut record).await {
            Ok(reply) => reply,
            Err(error) => {
                record.failed(&error);
                error.reply()
            }
        }
    }

    async fn answered<F, A>(
        &self,
        asked: &Asked<'_>,
        client: Option<F>,
        record: &mut Record<'_>,
    ) -> Result<Reply, SamplingError>
    where
        F: FnOnce(Box<RawValue>, Duration) -> A,
        A: Future<Output = Result<Reply, ClientFailure>>,
    {
        let config = &asked.server.sampling;
        // Before anything is read: what is switched off costs nothing.
        if !config.enabled {
            return Err(SamplingError::Disabled);
        }
        let whole = self.around.config.borrow().clone();
        let provider = whole.daemon.sampling_provider.as_ref();
        let by_client = match (client, provider, config.prefer) {
            (Some(_), Some(_), SamplingPreference::Provider) | (None, Some(_), _) => None,
            (Some(client), _, _) => Some(client),
            (None, None, _) => return Err(SamplingError::Nobody),
        };
        let whom = if by_client.is_some() { Whom::Client } else { Whom::Provider };
        let read = Read::of(asked.params, whom).await?;
        let conversation = Conversation {
            server: asked.server.name.clone(),
            client: asked.caller.as_ref().map(|(client, _)| *client),
            opening: read.facts.opening,
        };
        let wanted = Wanted {
            conversation: &conversation,
            hints: &read.facts.hints,
            max_tokens: read.facts.max_tokens,
            tools: read.facts.tools,
            rounds: read.facts.rounds,
        };
        let Ok(_under_way) = self.under_way.try_acquire() else {
            return Err(SamplingError::Busy { limit: UNDER_WAY });
        };
        // A client has its own idea of what to use where nothing is configured.
        let fallback =
            provider.filter(|_| by_client.is_none()).and_then(|provider| provider.model.as_deref());
        let grant = self.budget().take(config, &wanted, fallback, now())?;
        record.granted(&grant, &read.facts);
        let limit = config.timeout;
        let work = async {
            match (by_client, provider, &read.chat) {
                (Some(client), _, _) => {
                    record.by("client");
                    let params = for_client(asked.params, &grant, config);
                    self.by_client(asked, client(params, limit), &wanted, record).await
                }
                (None, Some(provider), Some(chat)) => {
                    record.by("provider");
                    let mask = |text: &str| self.around.redactor.borrow().redact(text).into_owned();
                    let proxies = &whole.messaging.proxies;
                    let answer = self.provider.complete(provider, proxies, chat, &grant, &mask).await?;
                    self.by_provider(asked, answer, &wanted, record)
                }
                (None, _, _) => Err(SamplingError::Nobody),
            }
        };
        // Dropping the work is what stops it: the question is taken back, the connection closed.
        tokio::time::timeout(limit, work).await.unwrap_or(Err(SamplingError::TimedOut { limit }))
    }

    async fn by_client(
        &self,
        asked: &Asked<'_>,
        answering: impl Future<Output = Result<Reply, ClientFailure>>,
        wanted: &Wanted<'_>,
        record: &mut Record<'_>,
    ) -> Result<Reply, SamplingError> {
        let config = &asked.server.sampling;
        let reply = answering.await.map_err(|failure| match failure {
            ClientFailure::TimedOut => SamplingError::TimedOut { limit: config.timeout },
            ClientFailure::Gone | ClientFailure::Busy => {
                SamplingError::Client { reason: failure.to_string() }
            }
        })?;
        let Reply::Result(result) = &reply else {
            // A refusal of its user, in its own words.
            record.finished("client_refused", None);
            return Ok(reply);
        };
        let (model, used) = answer::of_client(result).ok_or(SamplingError::ClientAnswer)?;
        budget::may_answer(config, &model)?;
        self.budget().answered(config, wanted, used, now())?;
        record.finished("ok", Some(model));
        Ok(reply)
    }

    fn by_provider(
        &self,
        asked: &Asked<'_>,
        answer: Answer,
        wanted: &Wanted<'_>,
        record: &mut Record<'_>,
    ) -> Result<Reply, SamplingError> {
        record.cost(answer.tokens);
        self.budget().answered(&asked.server.sampling, wanted, answer.used, now())?;
        record.finished("ok", Some(answer.model));
        Ok(Reply::Result(answer.result))
    }

    fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request, read as far as it is needed.
struct Read {
    facts: Facts,
    /// Only for the provider.
    chat: Option<Chat>,
}

impl Read {
    async fn of(params: &RawValue, whom: Whom) -> Result<Self, SamplingError> {
        if params.get().len() <= LARGE {
            return Self::now(params, whom);
        }
        let params = params.to_owned();
        let work = tokio::task::spawn_blocking(move || Self::now(&params, whom));
        work.await.expect("reading a request does not panic")
    }

    fn now(params: &RawValue, whom: Whom) -> Result<Self, SamplingError> {
        let params = request::parse(params)?;
        let facts = Facts::of(&params);
        let chat = match whom {
            Whom::Provider => Some(Chat::read(&params)?),
            Whom::Client => None,
        };
        Ok(Self { facts, chat })
    }
}

/// Who is to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whom {
    Client,
    Provider,
}

/// The params as the client gets them: no more tokens and no other models than are allowed.
fn for_client(params: &RawValue, grant: &Grant, config: &SamplingConfig) -> Box<RawValue> {
    let Ok(members) = Members::parse(params) else { return params.to_owned() };
    let capped = members.with("maxTokens", &grant.max_tokens.to_string());
    // Where nothing is configured the hints stay what they were.
    let restricted = config.model.is_some() || !config.allowed_models.is_empty();
    let Some(model) = grant.model.as_deref().filter(|_| restricted) else { return capped };
    let mut hint = ObjectWriter::default();
    hint.string("name", model);
    let hints = format!("[{}]", hint.finish().get());
    let preferences = members.get("modelPreferences").and_then(|raw| Members::parse(raw).ok());
    let preferences = preferences.unwrap_or_default().with("hints", &hints);
    match Members::parse(&capped) {
        Ok(members) => members.with("modelPreferences", preferences.get()),
        Err(_) => capped,
    }
}

/// The clock of the limits.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}

#[cfg(test)]
#[path = "mod_tests.rs"]
mod tests;
