//! What a supervisor does about its server's signs of life: ends, timers, probes, refreshes, news.
//!
//! Owner: the supervisor; these are its methods around a ready server. Promise: listeners hear of a
//! listing only when its content changed; a silent server is probed before it is judged.

use super::body::Silence;
use super::handle::{NotReady, ServerFact};
use super::health::{self, Ping, Verdict};
use super::lifecycle::{Event, Failure, Phase, StopReason};
use super::listing::{ListKind, Listing, has_capability};
use super::refresh::{Changed, Refreshed};
use super::status::Exit;
use super::supervisor::Supervisor;
use super::wire::{EndReason, Fact};
use crate::config::{Sharing, TransportConfig};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;
use tracing::warn;

/// Time for the exit report after the connection broke, so that status names the exit code.
const EXIT_GRACE: Duration = Duration::from_millis(50);

impl Supervisor {
    /// The start or the running server failed for good.
    pub(super) fn fell(&mut self, failure: Failure) {
        self.dying = None;
        self.place = None;
        let starting = matches!(self.life.phase, Phase::Starting { .. });
        // Whoever waited for this start learns of it; later callers cause the next one.
        let waiters = if starting { std::mem::take(&mut self.waiters) } else { Vec::new() };
        self.feed(if starting { Event::StartFailed(failure.clone()) } else { Event::Lost(failure.clone()) });
        let retry_in = self.next_step().map(|at| at.saturating_duration_since(Instant::now()));
        for waiter in waiters {
            let (server, failure) = (self.name.clone(), failure.clone());
            let _ = waiter.send(Err(NotReady::Failed { server, failure, retry_in }));
        }
        if !self.waiters.is_empty() {
            self.feed(Event::Used);
        }
    }

    /// The connection broke: nobody may use it, but the exit report may still name the reason.
    pub(super) fn breaks(&mut self, failure: Failure) {
        self.live.send_replace(None);
        if self.dying.is_none() {
            self.dying = Some((failure, Instant::now() + EXIT_GRACE));
        }
    }

    pub(super) fn exited(&mut self, exit: Exit) {
        self.status.send_modify(|status| status.last_exit = Some(exit));
        let starting = matches!(self.life.phase, Phase::Starting { .. });
        let when = if starting { "before it was ready" } else { "while it was ready" };
        let text = format!("the server {exit} {when}");
        let permanent = starting && exit.is_permanent();
        self.fell(if permanent { Failure::permanent(text) } else { Failure::transient(text) });
    }

    pub(super) fn wire_ended(&mut self, reason: Option<EndReason>) {
        if let Some(body) = &mut self.body {
            body.ended = None;
        }
        let failure = match reason {
            Some(EndReason::Eof | EndReason::Stopped) => Failure::transient("the server closed its stdout"),
            Some(EndReason::Io(error)) => Failure::transient(format!("the connection broke: {error}")),
            Some(EndReason::NeedsAuth(action)) => Failure::needs_auth(action),
            None => Failure::transient("the connection's task panicked"),
        };
        self.breaks(failure);
    }

    pub(super) fn fact(&mut self, fact: Fact) {
        let dropped =
            self.body.as_ref().map(|body| body.wire.stats().dropped_news.swap(0, Ordering::Relaxed));
        if dropped.is_some_and(|dropped| dropped > 0) {
            self.pass_on(Fact::Missed);
        }
        self.pass_on(fact);
    }

    fn pass_on(&mut self, fact: Fact) {
        match &fact {
            Fact::ToolsChanged => self.refresh.noticed(&[ListKind::Tools]),
            Fact::ResourcesChanged => self.refresh.noticed(&[ListKind::Resources, ListKind::Templates]),
            Fact::PromptsChanged => self.refresh.noticed(&[ListKind::Prompts]),
            Fact::Log(params) => self.log.note(&format!("notification: {}", params.get())),
            // Another session may be another deployment: everything is looked at again.
            Fact::SessionRenewed | Fact::Missed => {
                let agreed = self.status.borrow().agreed.clone();
                let declared = ListKind::ALL.into_iter().filter(|kind| {
                    agreed
                        .as_ref()
                        .is_some_and(|agreed| has_capability(&agreed.capabilities, kind.capability()))
                });
                self.refresh.noticed(&declared.collect::<Vec<_>>());
            }
            Fact::Declined(method) => self.asked_nobody(method),
            Fact::ResourceUpdated(_) => {}
        }
        // Nobody subscribed is no error: the fact is for clients, and there may be none.
        let _ = self.facts.send(Arc::new(ServerFact { generation: self.life.generation, fact }));
    }

    /// A shared server asked for a client: from now on each client gets an instance of its own, which can
    /// ask it.
    fn asked_nobody(&mut self, method: &str) {
        let config = self.config.borrow().clone();
        let known = self.shared.habits.asks(&self.name);
        // Over HTTP it is the stream that says whom a question is about; one without a call stays one.
        let stdio = matches!(config.transport, TransportConfig::Stdio(_));
        if config.sharing == Sharing::Shared && stdio && known.is_none() {
            warn!(server = %self.name, method, "the server asks clients; each one gets an instance of its own from now on");
            self.shared.habits.learn_asks(&self.name, Some(method));
        }
    }

    pub(super) fn refreshed(&mut self, refreshed: Refreshed) {
        let mut listing = self.listing.borrow().as_deref().cloned().unwrap_or_default();
        listing.extend(refreshed.parts.iter().cloned());
        let changed = self.publish_listing(listing);
        self.refresh.finished(&refreshed, changed, Instant::now());
    }

    /// Tells others only when the content is another; notes always reach the status.
    pub(super) fn publish_listing(&mut self, listing: Listing) -> Changed {
        let listing = Arc::new(listing);
        self.status.send_modify(|status| status.listing = Some(listing.clone()));
        let same = self.listing.borrow().as_ref().is_some_and(|old| old.same_content(&listing));
        if same {
            return Changed::Nothing;
        }
        self.listing.send_replace(Some(listing));
        Changed::Something
    }

    pub(super) fn probed(&mut self, verdict: Verdict) {
        self.probe = None;
        self.probe_after = Instant::now() + health::RECONSIDER;
        match verdict {
            Verdict::Alive | Verdict::Gone => {}
            Verdict::IgnoresPing => self.set_ping(Ping::Ignored),
            // A call that came meanwhile explains the silence; look again later.
            Verdict::Deaf if self.calls_at_server() > 0 => {}
            Verdict::Deaf => {
                let each = health::PROBE_BUDGET.as_secs();
                self.fell(Failure::transient(format!(
                    "deaf: answered neither ping nor tools/list in {each} s each"
                )));
            }
        }
    }

    pub(super) fn timer(&mut self) {
        let now = Instant::now();
        if let Some((failure, at)) = &self.dying
            && *at <= now
        {
            let failure = failure.clone();
            self.fell(failure);
            return;
        }
        if self.place_until <= now {
            self.place = None;
        }
        self.feed(Event::TimerDue);
        if self.idle_stop_at().is_some_and(|at| at <= now) {
            self.feed(Event::StopAsked(StopReason::Idle));
        }
        if self.probe_at().is_some_and(|at| at <= now) {
            self.probe_now();
        }
    }

    pub(super) fn set_ping(&mut self, ping: Ping) {
        self.ping = ping;
        self.status.send_modify(|status| status.ping = ping);
    }

    pub(super) fn probe_now(&mut self) {
        let Some(wire) = self.live.borrow().clone() else { return };
        if self.probe.is_some() {
            return;
        }
        if self.calls_at_server() > 0 {
            self.probe_after = Instant::now() + health::RECONSIDER;
            return;
        }
        self.probe = Some(Box::pin(health::probe(wire, self.ping)));
    }

    pub(super) fn calls_at_server(&self) -> u32 {
        self.body.as_ref().map_or(0, |body| body.wire.stats().in_flight.load(Ordering::Relaxed))
    }

    pub(super) fn next_step(&self) -> Option<Instant> {
        self.life.next_step(&self.policy).map(Instant::from_std)
    }

    pub(super) fn timer_at(&self) -> Option<Instant> {
        let dying = self.dying.as_ref().map(|(_, at)| *at);
        let refresh = self.live.borrow().as_ref().and_then(|_| self.refresh.wake_at());
        let place = self.place.as_ref().map(|_| self.place_until);
        [self.next_step(), place, dying, refresh, self.idle_stop_at(), self.probe_at()]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn ready_since(&self) -> Option<Instant> {
        match self.life.phase {
            Phase::Ready { since } => Some(Instant::from_std(since)),
            _ => None,
        }
    }

    /// When silence has lasted long enough for a probe.
    pub(super) fn probe_at(&self) -> Option<Instant> {
        let since = self.ready_since()?;
        let asked = self.body.as_ref().is_some_and(|body| body.silence == Silence::Suspicious);
        if self.probe.is_some() || !asked {
            return None;
        }
        let heard = self.live.borrow().as_ref()?.stats().last_heard().unwrap_or(since);
        Some((heard + health::SILENCE).max(self.probe_after))
    }

    /// When the server has been unused for long enough; a call in flight postpones the look.
    pub(super) fn idle_stop_at(&self) -> Option<Instant> {
        let since = self.ready_since()?;
        let limit = self.config.borrow().idle_stop?;
        let usage = self.slots.usage();
        let last = self.slots.last_used().max(since);
        // Who follows a resource relies on the server; stopped, it would tell nobody of a change.
        let followed = self.followers.any();
        let busy = usage.in_flight > 0 || usage.waiting > 0 || self.calls_at_server() > 0 || followed;
        Some(if busy { Instant::now() + limit } else { last + limit })
    }
}
