//! What a server says on its own, on its way to the clients that want to hear it.
//!
//! Owner: [`News::run`], one task an instance, beside its supervisor. It tells each generation which
//! resources are followed and how verbose to be, and passes updates and log lines on. Promise: the
//! server is told with the first follower and with the loss of the last one, and everything again
//! after a restart. May touch: the live connection. May not touch: the process, sessions.

pub mod followers;
pub mod hearer;
mod listeners;
mod resource;

use super::handle::{ServerFact, ServerHandle};
use super::listing::Listing;
use super::slots::Slots;
use super::wire::{Answer, Fact, Progress, Request, WireError, WireHandle};
use crate::config::ServerConfig;
use crate::jsonrpc::splice::{Members, ObjectWriter};
use crate::names::{Generation, ServerName};
use followers::{Can, Followers, Refusal, Step};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use hearer::Audience;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Requests to the server that may be under way at once.
const AT_ONCE: usize = 8;

/// How long after a call its client may still be the reason of a log line.
const AFTERMATH: Duration = Duration::from_secs(1);

/// The news of one server instance; see the module documentation.
pub(super) struct News {
    name: ServerName,
    followers: Followers,
    slots: Slots,
    config: watch::Receiver<Arc<ServerConfig>>,
    live: watch::Receiver<Option<WireHandle>>,
    listing: watch::Receiver<Option<Arc<Listing>>>,
    facts: broadcast::Receiver<Arc<ServerFact>>,
}

type Asked = FuturesUnordered<BoxFuture<'static, (Step, Result<(), Refusal>)>>;

impl News {
    /// The news of `server`.
    pub(super) fn of(server: &ServerHandle) -> Self {
        Self {
            name: server.name.clone(),
            followers: server.followers.clone(),
            slots: server.slots.clone(),
            config: server.config.clone(),
            live: server.live.clone(),
            listing: server.listing.clone(),
            facts: server.facts.subscribe(),
        }
    }

    /// Runs until `stop`, or until the supervisor is gone.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut asked = Asked::new();
        let mut known: Option<Generation> = None;
        loop {
            let wire = self.live.borrow_and_update().clone().filter(|wire| !wire.is_closed());
            if let Some(wire) = &wire {
                if known != Some(wire.generation()) {
                    known = Some(wire.generation());
                    asked.clear();
                    self.followers.connected();
                }
                let can = self.can();
                while asked.len() < AT_ONCE
                    && let Some(step) = self.followers.next(can)
                {
                    let limit = self.config.borrow().timeout;
                    asked.push(Box::pin(tell(wire.clone(), step, limit)));
                }
            }
            let due = self.followers.due().map(Instant::from_std);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                changed = self.live.changed() => if changed.is_err() { return },
                Some((step, outcome)) = asked.next(), if !asked.is_empty() => {
                    if let Err(refusal) = &outcome {
                        tracing::debug!(server = %self.name, request = step.method(), ?refusal, "not agreed");
                    }
                    self.followers.done(&step, outcome);
                }
                () = self.followers.changed() => {}
                fact = self.facts.recv() => match fact {
                    Ok(fact) if matches!(fact.fact, Fact::SessionRenewed) => {
                        // What the old session was told is gone with it.
                        asked.clear();
                        self.followers.connected();
                    }
                    Ok(fact) => self.pass_on(&fact.fact),
                    Err(broadcast::error::RecvError::Lagged(_)) => self.pass_on(&Fact::Missed),
                    Err(broadcast::error::RecvError::Closed) => return,
                },
                () = async { tokio::time::sleep_until(due.expect("checked")).await }, if due.is_some() => {
                    self.followers.flush(Instant::now().into_std());
                }
            }
        }
    }

    fn can(&self) -> Can {
        let listing = self.listing.borrow();
        let capabilities = listing.as_ref().and_then(|listing| listing.capabilities.as_deref());
        capabilities.map(Can::declared).unwrap_or_default()
    }

    fn pass_on(&self, fact: &Fact) {
        let now = Instant::now();
        match fact {
            Fact::ResourceUpdated(params) => self.followers.updated(params, now.into_std()),
            Fact::Log(params) => {
                let audience = Audience::of(&self.slots.busy(now, AFTERMATH));
                self.followers.logged(&self.name, params, audience, now.into_std());
            }
            Fact::ToolsChanged
            | Fact::ResourcesChanged
            | Fact::PromptsChanged
            | Fact::Declined(_)
            | Fact::SessionRenewed => {}
            Fact::Missed => self.followers.all_updated(now.into_std()),
        }
    }
}

impl Can {
    /// By a server's `capabilities`.
    pub fn declared(capabilities: &RawValue) -> Self {
        let members = Members::parse(capabilities).unwrap_or_default();
        let resources = members.get("resources").and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
        let is_there = |raw: &RawValue| !matches!(raw.get(), "null" | "false");
        Self {
            subscribe: resources.get("subscribe").is_some_and(|raw| raw.get() == "true"),
            log: members.get("logging").is_some_and(is_there),
        }
    }
}

impl Step {
    fn method(&self) -> &'static str {
        match self {
            Self::Level(_) => "logging/setLevel",
            Self::Subscribe(_) => "resources/subscribe",
            Self::Unsubscribe(_) => "resources/unsubscribe",
        }
    }
}

async fn tell(wire: WireHandle, step: Step, limit: Duration) -> (Step, Result<(), Refusal>) {
    let mut params = ObjectWriter::default();
    match &step {
        Step::Level(level) => params.string("level", level.word()),
        Step::Subscribe(uri) | Step::Unsubscribe(uri) => params.string("uri", uri),
    };
    let request = Request {
        method: step.method().into(),
        params: Some(params.finish()),
        idle: limit,
        cap: limit,
        progress: Progress::Unwanted,
    };
    let outcome = ask(&wire, request).await;
    (step, outcome)
}

async fn ask(wire: &WireHandle, request: Request) -> Result<(), Refusal> {
    let answer: Result<Answer, WireError> = match wire.request(request) {
        Ok(flight) => flight.done().await,
        Err(error) => Err(error),
    };
    match answer {
        Ok(Answer::Result(_)) => Ok(()),
        Ok(Answer::Error(error)) => Err(Refusal::Server(Arc::from(error))),
        Err(error) => Err(Refusal::Wire(error)),
    }
}
