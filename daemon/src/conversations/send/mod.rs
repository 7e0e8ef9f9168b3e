//! `messages_send`: a text to a chat on a messaging platform.
//!
//! Owner: [`Courier`], one for the daemon; each message runs as a task of its group, so that a call that
//! is dropped cannot cut a request in half. Promise: a message goes to the chat that was named and to no
//! other, at most once; the answer says whether it was delivered. May not touch: state.db but through
//! `mirror`, the credentials but in requests to their own platform.
//!
//! A call: `target` and `directory` (which chat) -> `route` (the platform's client) -> `media`, `split`
//! (what is sent) -> hermesd.db (was it sent before?) -> `deliver` (requests) -> `mirror` (the session).

mod deliver;
mod dingtalk;
mod directory;
mod discord;
mod homeassistant;
mod http;
mod markup;
mod matrix;
mod media;
mod platform;
mod problem;
mod resolve;
mod route;
mod signal;
mod slack;
mod split;
mod target;
mod telegram;
mod whatsapp;

#[cfg(test)]
use crate::chat_api;
#[cfg(test)]
mod tests;

pub(super) use problem::Problem;

use super::Conversations;
use super::mirror;
use crate::config::Config;
use crate::config::messaging::Proxies;
use crate::redact::Redactor;
use crate::store::{Begun, Keyed, SendEnd, Store, UnixMs};
use crate::tasks::TaskGroup;
use deliver::{Arrived, Delivery};
use http::Http;
use problem::{Reached, Stopped};
use resolve::{By, Resolved};
use route::Route;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use target::Chat;
use tokio::sync::{Semaphore, oneshot, watch};

/// Messages on their way at one time.
const AT_ONCE: usize = 8;
/// Messages that may wait besides.
const WAITING: usize = 64;
/// Parts of one message.
const MOST_PARTS: usize = 20;
/// Characters of a key.
const LONGEST_KEY: usize = 200;

/// What sending needs of the rest of the daemon.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// The configuration in force.
    pub config: watch::Receiver<Arc<Config>>,
    /// Masks secrets in what platforms answer.
    pub redactor: watch::Receiver<Arc<Redactor>>,
    /// Where keys are remembered.
    pub store: Store,
    /// Where messages run.
    pub tasks: TaskGroup,
    /// The user's home, for `~/` in media paths.
    pub user_home: Option<PathBuf>,
}

/// One call.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) target: String,
    pub(super) message: String,
    /// The client's key.
    pub(super) key: Option<String>,
}

/// Sends messages.
#[derive(Debug)]
pub(super) struct Courier {
    home: PathBuf,
    around: Outgoing,
    /// The clients and the proxies they were made for.
    clients: Mutex<Option<(Proxies, Http)>>,
    turns: Arc<Semaphore>,
    places: Arc<Semaphore>,
    /// Tells this daemon's messages from those of an earlier one.
    life: i64,
}

impl Courier {
    pub(super) fn new(home: &Path, around: Outgoing) -> Self {
        Self {
            home: home.to_owned(),
            around,
            clients: Mutex::new(None),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            places: Arc::new(Semaphore::new(AT_ONCE + WAITING)),
            life: i64::from_ne_bytes(random()),
        }
    }

    /// Sends one message and answers the object of the result.
    ///
    /// # Errors
    /// [`Problem`], masked.
    /// # Cancel safety
    /// Dropped, a request in flight ends by itself and no further part is sent.
    pub(super) async fn send(&self, conversations: &Conversations, ask: Ask) -> Result<Value, Problem> {
        let redactor = self.around.redactor.borrow().clone();
        let answer = self.prepared(conversations, ask, &redactor).await;
        answer.map_err(|problem| problem.masked(&|text| redactor.redact(text).into_owned()))
    }

    async fn prepared(
        &self,
        conversations: &Conversations,
        ask: Ask,
        redactor: &Redactor,
    ) -> Result<Value, Problem> {
        let crowded = Problem::Crowded { waiting: AT_ONCE + WAITING };
        let Ok(place) = self.places.clone().try_acquire_owned() else { return Err(crowded) };
        let key = checked_key(ask.key)?;
        let config = self.around.config.borrow().clone();
        let messaging = &config.messaging;
        let resolved = self.resolve(conversations, messaging, &ask.target).await?;
        let Resolved { platform, config: settings, chat, kind, by } = resolved;
        let digest = digest(platform.name(), &chat, &ask.message);
        let target = format!("{}:{}", platform.name(), chat.shown());
        let route = Route::to(platform, settings, chat, kind.as_deref())?;
        let mut load = self.load_media(&ask.message, &messaging.media_dirs).await;
        if !load.files.is_empty() && !route.takes_files() {
            let name = platform.name();
            load.warnings.push(format!("files are not sent to {name} and were left out"));
            load.files.clear();
        }
        let parts: Vec<String> = split::split(&load.text, route.limit())
            .iter()
            .filter(|piece| !piece.text.trim().is_empty())
            .map(split::Piece::render)
            .collect();
        if parts.is_empty() && load.files.is_empty() {
            return Err(Problem::NothingLeft { warnings: load.warnings });
        }
        if parts.len() > MOST_PARTS {
            return Err(Problem::TooLong { name: platform.name(), parts: parts.len(), most: MOST_PARTS });
        }
        let http = self.http(&messaging.proxies).await?;
        if self.around.tasks.stop_signal().is_cancelled() {
            return Err(Problem::Stopping);
        }
        let first = match &key {
            None => 0,
            Some(key) => match self.begin(key, digest).await? {
                Start::From(first) => first.min(parts.len()),
                Start::Sent(answer) => return Ok(answer),
            },
        };
        let mirrored = if load.text.trim().is_empty() { media::described(&load.files) } else { load.text };
        let stop = self.around.tasks.stop_signal().child_token();
        let job = Job {
            delivery: Delivery {
                route,
                http,
                parts,
                files: load.files,
                first,
                mark: hex(&random()),
                stop: stop.clone(),
                target,
            },
            platform: platform.name(),
            by,
            warnings: load.warnings.iter().map(|warning| redactor.redact(warning).into_owned()).collect(),
            text: mirrored,
            key,
            home: self.home.clone(),
            store: self.around.store.clone(),
            tasks: self.around.tasks.clone(),
        };
        let (tell, told) = oneshot::channel();
        let turns = self.turns.clone();
        self.around.tasks.spawn(async move {
            let _place = place;
            // Closed never: the courier outlives its messages.
            let _turn = turns.acquire_owned().await;
            // Whoever asked may be gone; the message is dealt with all the same.
            let _ = tell.send(job.run().await);
        });
        // Dropping this call tells the task to send no further part.
        let _guard = stop.drop_guard();
        match told.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(stopped)) => Err(Problem::Stopped(stopped)),
            Err(_) => Err(Problem::Lost),
        }
    }

    async fn load_media(&self, message: &str, folders: &[PathBuf]) -> Loaded {
        let named = media::extract(message);
        if named.paths.is_empty() {
            return Loaded { text: named.text, files: Vec::new(), warnings: Vec::new() };
        }
        let allowed = media::Allowed {
            home: self.home.clone(),
            folders: folders.to_owned(),
            user_home: self.around.user_home.clone(),
        };
        let work = self.around.tasks.spawn_blocking(move || {
            let (files, warnings) = media::load(&named, &allowed);
            Loaded { text: named.text, files, warnings }
        });
        work.await.expect("reading files does not panic")
    }

    /// The clients, made anew when the proxies have changed.
    async fn http(&self, proxies: &Proxies) -> Result<Http, Problem> {
        let known = self.clients.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((made_for, http)) = known
            && made_for == *proxies
        {
            return Ok(http);
        }
        let made_for = proxies.clone();
        let made = self.around.tasks.spawn_blocking(move || Http::new(&made_for)).await;
        let http = made.expect("making a client does not panic").map_err(|why| Problem::NoClient { why })?;
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        *clients = Some((proxies.clone(), http.clone()));
        Ok(http)
    }

    async fn begin(&self, key: &str, digest: [u8; 32]) -> Result<Start, Problem> {
        let message = Keyed { key: key.to_owned(), digest, life: self.life };
        let now = UnixMs::at(SystemTime::now());
        match self.around.store.begin_send(message, now).await.map_err(Problem::KeyNotKept)? {
            Begun::Go { from } => Ok(Start::From(from)),
            Begun::Done { answer } => {
                let mut answer: Value =
                    serde_json::from_str(&answer).unwrap_or_else(|_| json!({ "success": true }));
                answer["repeated"] = json!(true);
                Ok(Start::Sent(answer))
            }
            Begun::Running => Err(Problem::StillSending),
            Begun::Unknown => Err(Problem::KeyUnknown),
            Begun::OtherMessage => Err(Problem::OtherMessage),
        }
    }
}

/// What is known of a key.
enum Start {
    /// Send from this part on.
    From(usize),
    /// It arrived earlier, with this answer.
    Sent(Value),
}

/// A message without its tags, and what they named.
struct Loaded {
    text: String,
    files: Vec<media::Attachment>,
    warnings: Vec<String>,
}

/// A message and what is to be done when it has arrived.
struct Job {
    delivery: Delivery,
    platform: &'static str,
    by: By,
    warnings: Vec<String>,
    /// What the session is told.
    text: String,
    key: Option<String>,
    home: PathBuf,
    store: Store,
    tasks: TaskGroup,
}

impl Job {
    async fn run(mut self) -> Result<Value, Box<Stopped>> {
        let (platform, parts) = (self.platform, self.delivery.parts.len());
        let (outcome, end) = match self.delivery.run().await {
            Ok(arrived) => {
                tracing::info!(platform, parts, "a message was sent");
                let answer = self.answer(arrived).await;
                let end = SendEnd::Done { answer: answer.to_string() };
                (Ok(answer), end)
            }
            Err(stopped) => {
                tracing::warn!(
                    platform,
                    parts,
                    sent = stopped.sent,
                    outcome = stopped.reached.word(),
                    "a message was not sent"
                );
                let end = match stopped.reached {
                    Reached::Unknown => SendEnd::Unknown { sent: stopped.sent },
                    Reached::Nothing | Reached::Partly => SendEnd::Stopped { sent: stopped.sent },
                };
                (Err(stopped), end)
            }
        };
        if let Some(key) = self.key
            && let Err(error) = self.store.end_send(key, end).await
        {
            tracing::warn!(%error, "the outcome of a message is not kept");
        }
        outcome
    }

    /// The object of a success, members in the reference's order.
    async fn answer(&self, arrived: Arrived) -> Value {
        let chat = self.delivery.route.chat().clone();
        let mut answer = Map::new();
        let mut add = |name: &str, value: Value| drop(answer.insert(name.to_owned(), value));
        add("success", json!(true));
        add("platform", json!(self.platform));
        add("chat_id", json!(chat.id));
        chat.thread.iter().for_each(|thread| add("thread_id", json!(thread)));
        arrived.ids.last().into_iter().for_each(|id| add("message_id", json!(id)));
        if self.delivery.parts.len() > 1 {
            add("parts", json!(self.delivery.parts.len()));
            add("message_ids", json!(arrived.ids));
        }
        let warnings: Vec<&String> = self.warnings.iter().chain(&arrived.warnings).collect();
        if !warnings.is_empty() {
            add("warnings", json!(warnings));
        }
        if self.by == By::HomeChannel {
            add("note", json!(format!("Sent to {} home channel (chat_id: {})", self.platform, chat.id)));
        }
        if self.mirror(&chat).await {
            add("mirrored", json!(true));
        }
        Value::Object(answer)
    }

    /// Adds the text to the session of the chat; whether it did.
    async fn mirror(&self, chat: &Chat) -> bool {
        if self.text.trim().is_empty() {
            return false;
        }
        let sent = mirror::Sent {
            platform: self.platform,
            chat_id: chat.id.clone(),
            thread_id: chat.thread.clone(),
            text: self.text.trim().to_owned(),
            at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
        };
        let home = self.home.clone();
        match self.tasks.spawn_blocking(move || mirror::write(&home, &sent)).await {
            Ok(Ok(())) => true,
            Ok(Err(mirror::MirrorError::NoSession)) | Err(_) => false,
            Ok(Err(error)) => {
                tracing::warn!(%error, "a sent message is not in its session");
                false
            }
        }
    }
}

fn checked_key(key: Option<String>) -> Result<Option<String>, Problem> {
    let Some(key) = key.filter(|key| !key.is_empty()) else { return Ok(None) };
    let length = key.chars().count();
    if length > LONGEST_KEY {
        return Err(Problem::LongKey { length, most: LONGEST_KEY });
    }
    Ok(Some(key))
}

fn digest(platform: &str, chat: &Chat, message: &str) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in [platform, &chat.id, chat.thread.as_deref().unwrap_or_default(), message] {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

fn random() -> [u8; 8] {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
