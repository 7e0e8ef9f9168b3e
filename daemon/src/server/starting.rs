//! The steps of one start, in order: prepare, wait for a start slot, launch, introduce.
//!
//! Each step is a future that the supervisor drives; only [`launch`] must not be dropped, because
//! a process may exist from its first poll on. Time spent waiting for a start slot is not charged
//! to the server. `diagnose` runs the same steps.

use super::body::Body;
use super::breaker::WasOpen;
use super::handshake::{self, Agreed, FirstWord, HandshakeError, Offer};
use super::health::Ping;
use super::launch::{Ignition, Launched, Launcher};
use super::lifecycle::{Event, Failure, Phase};
use super::listing::{ListKind, Part, has_capability};
use super::pages::{self, ListError};
use super::places::{Place, Places};
use super::status::Reporter;
use super::supervisor::{Job, Supervisor};
use super::wire::{WireError, WireHandle};
use crate::config::ServerConfig;
use crate::names::Generation;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tracing::info;

/// Ready to be launched, with a place among the starts that may run at once.
pub(crate) struct Prepared {
    pub(crate) ignition: Ignition,
    pub(crate) place: Place,
}

/// What the server said about itself, and its tools.
pub(crate) struct Introduced {
    pub(crate) agreed: Agreed,
    /// `None`: it has no tools.
    pub(crate) tools: Option<Part>,
}

/// Why an introduction failed.
pub(crate) enum IntroduceError {
    /// The connection ended; the exit of the process says more.
    Gone(Failure),
    /// The server lives but cannot be used.
    Failed(Failure),
}

/// Resolves, checks, and waits for a place. Cancel safe.
pub(crate) async fn prepare(
    launcher: Arc<dyn Launcher>,
    config: Arc<ServerConfig>,
    places: Places,
    report: Reporter,
) -> Result<Prepared, Failure> {
    let ignition = launcher.prepare(config, report.clone()).await?;
    let asked = Instant::now();
    let place = places.take().await;
    report.done("start slot", asked.elapsed(), "");
    Ok(Prepared { ignition, place })
}

/// Starts the process, within `budget`: a program on a file system that hangs must not keep the
/// supervisor. Not cancel safe before that.
pub(crate) async fn launch(
    ignition: Ignition,
    generation: Generation,
    budget: Duration,
    report: Reporter,
) -> Result<Launched, Failure> {
    let started = Instant::now();
    let launched = match tokio::time::timeout(budget, ignition(generation)).await {
        Ok(launched) => launched,
        // The program itself never ran; what waits to run it ends with the dropped future.
        Err(_) => {
            Err(Failure::transient(format!("the program was not started by the system within {budget:?}")))
        }
    };
    match &launched {
        Ok(launched) => {
            let pid = launched.pid.map(|pid| format!("pid {pid}")).unwrap_or_default();
            report.done("spawn", started.elapsed(), pid);
        }
        Err(failure) => report.failed("spawn", started.elapsed(), failure.to_string()),
    }
    launched
}

/// Handshake and tools, within `budget`.
pub(crate) async fn introduce(
    wire: WireHandle,
    config: Arc<ServerConfig>,
    offer: Offer,
    first: Arc<FirstWord>,
    budget: Duration,
    report: Reporter,
) -> Result<Introduced, IntroduceError> {
    let started = Instant::now();
    let agreed = match handshake::agree(&wire, &config.protocol, &offer, &first, budget).await {
        Ok(agreed) => agreed,
        Err(error) => {
            let error = handshake_failed(&wire, error);
            report.failed("initialize", started.elapsed(), error.text());
            return Err(error);
        }
    };
    report.done("initialize", started.elapsed(), describe(&agreed));
    if !has_capability(&agreed.capabilities, ListKind::Tools.capability()) {
        return Ok(Introduced { agreed, tools: None });
    }
    let asked = Instant::now();
    match pages::fetch(&wire, ListKind::Tools, started + budget).await {
        Ok(tools) => {
            let dropped = tools.notes().iter().filter(|note| note.problem.drops_item()).count();
            report.done("tools/list", asked.elapsed(), format!("{} tools, {dropped} dropped", tools.len()));
            Ok(Introduced { agreed, tools: Some(tools) })
        }
        Err(error) => {
            report.failed("tools/list", asked.elapsed(), error.to_string());
            let failure = Failure::transient(error.to_string());
            let failure = match &error {
                ListError::Wire { source, .. } => by_http(source, failure),
                ListError::Refused { .. } | ListError::OutOfTime { .. } => failure,
            };
            Err(match error {
                ListError::Wire { source: WireError::Gone { .. }, .. } => IntroduceError::Gone(failure),
                ListError::Wire { .. } | ListError::Refused { .. } | ListError::OutOfTime { .. } => {
                    IntroduceError::Failed(failure)
                }
            })
        }
    }
}

impl IntroduceError {
    fn text(&self) -> String {
        match self {
            Self::Gone(failure) | Self::Failed(failure) => failure.to_string(),
        }
    }
}

fn handshake_failed(wire: &WireHandle, error: HandshakeError) -> IntroduceError {
    let mut text = error.to_string();
    // A server that talks but not MCP is the commonest reason; say so in the same sentence.
    let noise = wire.stats().noise.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(noise) = noise {
        text = format!("{text}; {}", noise.kind.advice());
    }
    let failure = if error.is_permanent() { Failure::permanent(text) } else { Failure::transient(text) };
    let failure = match &error {
        HandshakeError::Wire(error) => by_http(error, failure),
        _ => failure,
    };
    match error {
        HandshakeError::Wire(WireError::Gone { .. }) => IntroduceError::Gone(failure),
        _ => IntroduceError::Failed(failure),
    }
}

/// What an answer of a remote server means for the next try.
fn by_http(error: &WireError, failure: Failure) -> Failure {
    match error {
        WireError::NeedsAuth { action } => Failure::needs_auth(action.as_str()),
        // The address must be written differently; asking again leads to the same place.
        WireError::Http(refusal) if matches!(refusal.status, 300..400) => Failure::permanent(failure.text),
        WireError::Http(refusal) => failure.after(refusal.retry_after),
        WireError::Gone { .. }
        | WireError::IdleTimeout { .. }
        | WireError::CapTimeout { .. }
        | WireError::QueueFull { .. }
        | WireError::TooLong { .. }
        | WireError::Malformed
        | WireError::Unreachable { .. }
        | WireError::Interrupted { .. } => failure,
    }
}

fn describe(agreed: &Agreed) -> String {
    let name = if agreed.name.is_empty() { "unnamed" } else { &agreed.name };
    format!("{name} {}, protocol {}", agreed.version, agreed.revision)
}

impl Supervisor {
    pub(super) fn launched(&mut self, launched: Result<Launched, Failure>) {
        match launched {
            Ok(launched) => {
                let (body, wire) = Body::start(launched, self.life.generation, &self.shared, &self.front);
                info!(server = %self.name, generation = %self.life.generation, pid = body.pid, "server started");
                self.status.send_modify(|status| {
                    status.pid = body.pid;
                    status.guard_pid = body.guard_pid;
                    status.wire = Some(wire.stats().clone());
                });
                self.body = Some(body);
                match self.ending.take() {
                    // A stop was asked for while the process came up.
                    Some(order) => self.end_body(order),
                    None => {
                        let (config, report) =
                            (self.config.borrow().clone(), self.status.borrow().report.clone());
                        let own = self.shared.offer.clone();
                        let offer = own.unwrap_or_else(|| Offer::by_config(&config, &self.shared.roots));
                        let offer = offer.and_sampling(self.front.sampling(&config));
                        let introducing =
                            introduce(wire, config, offer, self.first.clone(), self.budget, report);
                        self.job = Some(Job::Introducing(Box::pin(introducing)));
                    }
                }
            }
            Err(failure) => match self.ending.take() {
                Some(_) => self.ended(),
                None => self.fell(failure),
            },
        }
    }

    pub(super) fn introduced(&mut self, introduced: Introduced) {
        self.place = None;
        let Some(body) = &self.body else { return };
        let wire = body.wire.clone();
        let agreed = Arc::new(introduced.agreed);
        let mut listing = self.listing.borrow().as_deref().cloned().unwrap_or_default();
        listing.capabilities = Some(agreed.capabilities.clone());
        listing.instructions.clone_from(&agreed.instructions);
        listing.only_declared();
        listing.extend(introduced.tools);
        self.publish_listing(listing);
        self.status.send_modify(|status| status.agreed = Some(agreed.clone()));
        self.set_ping(Ping::default());
        self.probe_after = Instant::now();
        self.feed(Event::Started);
        if matches!(self.life.phase, Phase::Ready { .. }) {
            if self.breaker.reconnected() == WasOpen::Yes {
                info!(server = %self.name, "breaker closed");
            }
            self.refresh.rest_of(&agreed.capabilities, &wire);
            self.live.send_replace(Some(wire));
        }
    }
}
