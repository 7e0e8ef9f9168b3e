//! Which clients follow what one server says on its own, and what the server has to be told for it.
//!
//! Owner: the server's handle; it outlives generations, as breaker and slots do. Promise: the server
//! hears of a resource with its first follower and again with the loss of the last one; requests
//! about one resource never overtake each other; after a restart everything is told anew, and every
//! follower hears once that it may have missed something. A std mutex, never held across an await.
//! May not touch: the wire.

use super::hearer::{Audience, Hearer};
use super::listeners::Listeners;
use super::resource::{self, Follower, Resource, Telling, Told};
use crate::jsonrpc::log_level::{LogLevel, Verbosity};
use crate::names::{ClientId, ServerName};
use crate::server::wire::{Delivery, WireError};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::{Notify, oneshot};

/// Why a server does not send updates of a resource.
#[derive(Debug, Clone)]
pub enum Refusal {
    /// It answered with this error.
    Server(Arc<RawValue>),
    /// It did not answer.
    Wire(WireError),
}

/// One request that the server has to get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// `logging/setLevel`.
    Level(LogLevel),
    /// `resources/subscribe`.
    Subscribe(Arc<str>),
    /// `resources/unsubscribe`.
    Unsubscribe(Arc<str>),
}

/// What the server declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Can {
    /// `resources.subscribe`.
    pub subscribe: bool,
    /// `logging`.
    pub log: bool,
}

/// Whether a client followed the resource already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Followed {
    /// It does from now on.
    New,
    /// It did.
    Already,
}

impl Followed {
    /// Whether it is new.
    pub fn is_new(self) -> bool {
        self == Self::New
    }
}

/// Whether a follower may have missed changes before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// It has just asked.
    Now,
    /// It asked earlier: it hears once that the resource may have changed.
    Earlier,
}

#[derive(Debug, Default)]
struct Inner {
    resources: BTreeMap<Arc<str>, Resource>,
    listeners: Listeners,
}

/// The followers of one server. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Followers {
    inner: Arc<Mutex<Inner>>,
    changed: Arc<Notify>,
    own: Own,
}

/// Whether somebody else has to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    /// The resources are hermesd's.
    Yes,
    No,
}

impl Default for Followers {
    fn default() -> Self {
        Self::with(Own::No)
    }
}

impl Followers {
    /// Followers of hermesd's own resources: nobody has to be told, whoever changes one calls
    /// [`updated`](Self::updated).
    pub fn builtin() -> Self {
        Self::with(Own::Yes)
    }

    fn with(own: Own) -> Self {
        Self { inner: Arc::default(), changed: Arc::default(), own }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `client` hear of changes of the server's `uri`, which it calls `named`. Once is enough.
    pub fn follow(
        &self,
        client: ClientId,
        uri: &Arc<str>,
        named: &str,
        hearer: &Arc<dyn Hearer>,
        since: Since,
    ) -> Followed {
        let mut inner = self.lock();
        let resource = inner.resources.entry(uri.clone()).or_default();
        if self.own == Own::Yes {
            resource.telling = Telling::Told;
        }
        resource.telling.try_again();
        let told = matches!(resource.telling, Telling::Told);
        let is_new = !resource.clients.contains_key(&client);
        let owed = is_new && since == Since::Earlier;
        if is_new {
            let follower = Follower { named: named.into(), hearer: hearer.clone(), owed: owed && !told };
            resource.clients.insert(client, follower);
        }
        drop(inner);
        if owed && told {
            hearer.updated(named, &only_uri(uri));
        }
        self.changed.notify_one();
        if is_new { Followed::New } else { Followed::Already }
    }

    /// Ends that; the server is told when it was the last one.
    pub fn unfollow(&self, client: ClientId, uri: &str) {
        let mut inner = self.lock();
        if let Some(resource) = inner.resources.get_mut(uri) {
            resource.clients.remove(&client);
        }
        inner.tidy(self.own);
        drop(inner);
        self.changed.notify_one();
    }

    /// Has `client` see these log lines; `None`: none any more.
    pub fn listen(&self, client: ClientId, wish: Option<Verbosity>, hearer: &Arc<dyn Hearer>) {
        self.lock().listeners.set(client, wish, hearer);
        self.changed.notify_one();
    }

    /// Forgets a client that is gone.
    pub fn leave(&self, client: ClientId) {
        let mut inner = self.lock();
        inner.listeners.leave(client);
        inner.resources.values_mut().for_each(|resource| drop(resource.clients.remove(&client)));
        inner.tidy(self.own);
        drop(inner);
        self.changed.notify_one();
    }

    /// Whether a client waits for changes of a resource.
    pub fn any(&self) -> bool {
        self.lock().resources.values().any(|resource| !resource.clients.is_empty())
    }

    /// Returns once the server has agreed to send updates of `uri`.
    ///
    /// # Errors
    /// [`Refusal`]. Following goes on all the same, and is tried again with the next generation.
    /// # Cancel safety
    /// Cancel safe.
    pub async fn told(&self, uri: &str) -> Result<(), Refusal> {
        let waits = {
            let mut inner = self.lock();
            let Some(resource) = inner.resources.get_mut(uri) else { return Err(gone()) };
            match &resource.telling {
                Telling::Told => return Ok(()),
                Telling::Refused(refusal) => return Err(refusal.clone()),
                Telling::Untold | Telling::Subscribing | Telling::Unsubscribing => {
                    let (done, waits) = oneshot::channel();
                    resource.waiting.push(done);
                    waits
                }
            }
        };
        waits.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Returns after a change of what the server has to be told.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// A new generation, which knows nothing yet.
    pub(super) fn connected(&self) {
        let mut inner = self.lock();
        inner.listeners.forgotten();
        inner.resources.values_mut().for_each(Resource::forgotten);
        inner.tidy(self.own);
    }

    /// The next request for the server, if there is one; it counts as under way from now on.
    pub(super) fn next(&self, can: Can) -> Option<Step> {
        let mut inner = self.lock();
        if can.log
            && let Some(level) = inner.listeners.next()
        {
            return Some(Step::Level(level));
        }
        if !can.subscribe {
            return None;
        }
        inner.resources.iter_mut().find_map(|(uri, resource)| {
            let step: fn(Arc<str>) -> Step = match (&resource.telling, resource.clients.is_empty()) {
                (Telling::Untold, false) => Step::Subscribe,
                (Telling::Told, true) => Step::Unsubscribe,
                _ => return None,
            };
            let step = step(uri.clone());
            resource.telling = match step {
                Step::Unsubscribe(_) => Telling::Unsubscribing,
                Step::Subscribe(_) | Step::Level(_) => Telling::Subscribing,
            };
            Some(step)
        })
    }

    /// The outcome of a request of this generation.
    pub(super) fn done(&self, step: &Step, outcome: Result<(), Refusal>) {
        let mut owed: Told = Vec::new();
        let mut inner = self.lock();
        match step {
            Step::Level(level) => inner.listeners.told(*level),
            Step::Unsubscribe(uri) => {
                if let Some(resource) = inner.resources.get_mut(uri) {
                    resource.telling = Telling::Untold;
                }
            }
            Step::Subscribe(uri) => {
                if let Some(resource) = inner.resources.get_mut(uri) {
                    for follower in resource.settle(outcome) {
                        owed.push((follower.hearer, follower.named.into_string(), only_uri(uri)));
                    }
                }
            }
        }
        inner.tidy(self.own);
        drop(inner);
        tell(owed);
    }

    /// The server says that a resource changed.
    pub fn updated(&self, params: &RawValue, now: Instant) {
        let Some(uri) = resource::uri_in(params) else { return };
        let mut told: Told = Vec::new();
        let mut inner = self.lock();
        for key in resource::covering(&uri) {
            if let Some(resource) = inner.resources.get_mut(key) {
                resource.changed(key, &uri, params, now, &mut told);
            }
        }
        drop(inner);
        tell(told);
    }

    /// Anything may have changed: every follower hears so of what it follows.
    pub fn all_updated(&self, now: Instant) {
        let mut told: Told = Vec::new();
        let mut inner = self.lock();
        for (key, resource) in &mut inner.resources {
            resource.changed(key, key, &only_uri(key), now, &mut told);
        }
        drop(inner);
        tell(told);
    }

    /// Passes on the updates that had to wait.
    pub fn flush(&self, now: Instant) {
        let mut told: Told = Vec::new();
        let mut inner = self.lock();
        for (key, resource) in &mut inner.resources {
            resource.flush(key, now, &mut told);
        }
        drop(inner);
        tell(told);
    }

    /// When [`flush`](Self::flush) has something to do.
    pub fn due(&self) -> Option<Instant> {
        self.lock().resources.values().filter_map(Resource::due).min()
    }

    /// The server logged something.
    pub(super) fn logged(&self, server: &ServerName, params: &RawValue, audience: Audience, now: Instant) {
        let heard = self.lock().listeners.logged(server, params, audience, now);
        for (hearers, line) in heard {
            hearers.iter().for_each(|hearer| hearer.logged(&line));
        }
    }
}

impl Inner {
    /// Drops resources that nobody follows and the server knows nothing of.
    fn tidy(&mut self, own: Own) {
        // Of its own resources nobody has to be told that the last follower is gone.
        self.resources
            .retain(|_, resource| resource.is_needed() && (own == Own::No || !resource.clients.is_empty()));
    }
}

fn gone() -> Refusal {
    Refusal::Wire(WireError::Gone { delivery: Delivery::NotWritten })
}

fn only_uri(uri: &str) -> Box<RawValue> {
    let mut params = crate::jsonrpc::splice::ObjectWriter::default();
    params.string("uri", uri);
    params.finish()
}

/// Outside the lock: a hearer may come back to us.
fn tell(told: Told) {
    for (hearer, uri, params) in told {
        hearer.updated(&uri, &params);
    }
}

#[cfg(test)]
#[path = "followers_tests.rs"]
mod tests;
