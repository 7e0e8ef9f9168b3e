//! Which instance of a server serves a caller, and what follows from it.
//!
//! Owner of what is known of each client for that: [`Placement`], part of the road. Promise: a client that
//! shares an instance with nobody is the only one that hears of it (questions, log lines, resources); its
//! end ends the instance. Std mutexes, never held across an await. May not touch: processes.

use super::Caller;
use super::error::CallError;
use super::peer::Feature;
use super::steps::{CallPath, lock};
use crate::catalog::snapshot::View;
use crate::config::Sharing;
use crate::jsonrpc::log_level::Verbosity;
use crate::jsonrpc::reply::Reply;
use crate::jsonrpc::splice::{Members, ObjectWriter};
use crate::names::ClientId;
use crate::server::handle::ServerHandle;
use crate::server::handshake::Offer;
use crate::server::instances::{Found, Guest, InstanceKey};
use crate::server::news::hearer::Hearer;
use crate::server::turns::{Nesting, Taker, Turn, TurnError};
use crate::server::wire::questions::Unasked;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How long a client may take to say in which folder it works.
const ROOTS: Duration = Duration::from_secs(10);

/// What is known of clients for the choice of instances.
#[derive(Debug, Default)]
pub(super) struct Placement {
    /// The folder in which each client works; `None`: it has none to tell.
    roots: Mutex<HashMap<ClientId, Option<PathBuf>>>,
    /// Which log lines clients want.
    wishes: Mutex<HashMap<ClientId, Verbosity>>,
}

impl Placement {
    /// From now on the client wants these log lines; `None`: none.
    pub(super) fn listens(&self, client: ClientId, wish: Option<Verbosity>) {
        let mut wishes = lock(&self.wishes);
        match wish {
            Some(wish) => wishes.insert(client, wish),
            None => wishes.remove(&client),
        };
    }

    pub(super) fn forget(&self, client: ClientId) {
        lock(&self.roots).remove(&client);
        lock(&self.wishes).remove(&client);
    }
}

impl CallPath {
    /// The instance of a server that serves this caller; made if need be, started by its first call.
    ///
    /// # Errors
    /// [`CallError::Instances`]: all are in use.
    pub(super) async fn instance(
        &self,
        caller: &Caller,
        first: &ServerHandle,
    ) -> Result<ServerHandle, CallError> {
        if first.sharing() == Sharing::PerRoot && !lock(&self.placement.roots).contains_key(&caller.client) {
            let root = ask_root(caller).await;
            lock(&self.placement.roots).insert(caller.client, root);
        }
        self.instance_now(caller, first)
    }

    /// As [`instance`](Self::instance), without asking the client where it works.
    ///
    /// # Errors
    /// As there.
    pub(super) fn instance_now(
        &self,
        caller: &Caller,
        first: &ServerHandle,
    ) -> Result<ServerHandle, CallError> {
        // Who is no session (an admin command) has no state to keep apart and no end to wait for.
        let (key, guest) = match (self.key(caller.client, first), &caller.inbox) {
            (InstanceKey::Client(_), None) => (InstanceKey::Shared, None),
            (key @ InstanceKey::Client(_), Some(inbox)) => {
                let offer = Offer::of(&self.offered(caller, first));
                (key, Some(Guest { offer, inbox: inbox.clone() }))
            }
            (key @ (InstanceKey::Root(_) | InstanceKey::Shared), _) => (key, None),
        };
        Ok(match first.instances().get(&key, guest.as_ref())? {
            Found::Known(handle) => handle,
            Found::New(handle) => {
                self.listen_on(caller.client, &handle, &caller.view, caller.hearer.as_ref());
                handle
            }
        })
    }

    /// The caller's turn at a server that serves one client at a time; `None`: it is no such server.
    ///
    /// # Errors
    /// [`CallError::Turn`].
    pub(super) async fn turn(
        &self,
        caller: &Caller,
        handle: &ServerHandle,
        idle: Duration,
    ) -> Result<Option<Turn>, CallError> {
        if handle.sharing() != Sharing::Exclusive {
            return Ok(None);
        }
        let waits = handle.live().is_some_and(|wire| wire.stats().asking.load(Ordering::Relaxed) > 0);
        let nesting = match (waits, handle.slots().usage().limit) {
            (false, _) => Nesting::None,
            (true, 1) => Nesting::Refused,
            (true, _) => Nesting::Passes,
        };
        let label = match &caller.identity.name {
            Some(name) => format!("client {} (`{name}`)", caller.client),
            None => format!("client {}", caller.client),
        };
        let taker = Taker { client: caller.client, label, inbox: caller.inbox.clone() };
        let turns = handle.turns();
        let taken = turns.take(taker, nesting, Instant::now() + idle).await;
        if matches!(taken, Err(TurnError::TimedOut { .. })) && turns.is_owed_only() {
            // Nobody waits for what it still works on, if it does, and it may never say that it stopped.
            tracing::warn!(server = %handle.name(), "restarted: calls that were given up kept others from their turn");
            handle.restart_soon();
        }
        Ok(Some(taken?))
    }

    fn key(&self, client: ClientId, first: &ServerHandle) -> InstanceKey {
        match first.sharing() {
            Sharing::Shared | Sharing::Exclusive => InstanceKey::Shared,
            Sharing::PerClient => InstanceKey::Client(client),
            Sharing::PerRoot => {
                let root = lock(&self.placement.roots).get(&client).cloned().flatten();
                root.map_or(InstanceKey::Shared, InstanceKey::Root)
            }
        }
    }

    /// The instance that serves this client now, if there is one.
    pub(super) fn placed(&self, client: ClientId, first: &ServerHandle) -> Option<ServerHandle> {
        first.instances().known(&self.key(client, first))
    }

    fn listen_on(
        &self,
        client: ClientId,
        handle: &ServerHandle,
        view: &View,
        hearer: Option<&Arc<dyn Hearer>>,
    ) {
        let wish = lock(&self.placement.wishes).get(&client).copied();
        if let (Some(wish), Some(hearer)) = (wish, hearer) {
            let wish = Some(wish).filter(|_| view.sees(handle.name().as_str()));
            handle.followers().listen(client, wish, hearer);
        }
    }

    /// What a server is told that it can ask, where its instance serves one client: what that client
    /// said, and sampling also where hermesd has a model itself.
    fn offered(&self, caller: &Caller, server: &ServerHandle) -> Box<RawValue> {
        let has = |feature| caller.peer.as_ref().is_some_and(|peer| peer.has(feature));
        let mut all = ObjectWriter::default();
        if has(Feature::Roots) {
            all.member("roots", if has(Feature::RootsNews) { r#"{"listChanged":true}"# } else { "{}" });
        }
        let config = server.config();
        let own = self.around.sampling.can_answer(&config);
        if own || (has(Feature::Sampling) && config.sampling.enabled) {
            all.member("sampling", if own || has(Feature::SamplingTools) { r#"{"tools":{}}"# } else { "{}" });
        }
        let modes = match (has(Feature::Form), has(Feature::Url)) {
            (true, true) => Some(r#"{"form":{},"url":{}}"#),
            // An empty object means the same, and is all that revision 2025-06-18 knows.
            (true, false) => Some("{}"),
            (false, true) => Some(r#"{"url":{}}"#),
            (false, false) => None,
        };
        if let Some(modes) = modes {
            all.member("elicitation", modes);
        }
        all.finish()
    }

    /// A call of the client goes on over another connection: questions of the servers that serve it alone go there.
    pub fn moved(&self, client: ClientId, inbox: &mpsc::Sender<Unasked>) {
        for first in self.around.servers.borrow().values() {
            if let Some(handle) = first.instances().known(&InstanceKey::Client(client)) {
                handle.front().serve(handle.name().clone(), inbox.clone());
            }
            first.turns().moved(client, inbox);
        }
    }

    /// The client works elsewhere now: instances that serve it alone hear so, and the next call of a server
    /// with one instance a folder asks again.
    pub fn roots_changed(&self, client: ClientId) {
        lock(&self.placement.roots).remove(&client);
        for first in self.around.servers.borrow().values() {
            let alone = first.instances().known(&InstanceKey::Client(client));
            if let Some(wire) = alone.and_then(|handle| handle.live()) {
                // One that is stopped asks anew when it starts.
                let _ = wire.notify("notifications/roots/list_changed", None);
            }
        }
    }

    /// Ends the instances that served this client alone.
    pub(super) fn release(&self, client: ClientId) {
        self.placement.forget(client);
        for first in self.around.servers.borrow().values() {
            first.instances().release(&InstanceKey::Client(client));
        }
    }
}

/// The first folder that the client names; `None`: it has none to tell.
async fn ask_root(caller: &Caller) -> Option<PathBuf> {
    let peer = caller.peer.as_ref().filter(|peer| peer.has(Feature::Roots))?;
    let asking = peer.ask("roots/list", &ObjectWriter::default().finish(), ROOTS).ok()?;
    match asking.await {
        Ok(Reply::Result(result)) => first_root(&result),
        Ok(Reply::Error(_)) | Err(_) => None,
    }
}

/// The folder of the first file URI in the answer to `roots/list` (MCP 2025-11-25, Roots).
fn first_root(result: &RawValue) -> Option<PathBuf> {
    let members = Members::parse(result).ok()?;
    let roots: Vec<&RawValue> = serde_json::from_str(members.get("roots")?.get()).ok()?;
    roots.iter().find_map(|root| {
        let uri = url::Url::parse(&Members::parse(root).ok()?.text("uri")?).ok()?;
        uri.to_file_path().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_folder_of_the_client_counts_and_other_addresses_do_not() {
        let root = |text: &str| first_root(&RawValue::from_string(text.to_owned()).unwrap());
        assert_eq!(
            root(
                r#"{"roots":[{"uri":"https://h/x"},{"uri":"file:///home/u/a%20b","name":"n"},{"uri":"file:///c"}]}"#
            ),
            Some(PathBuf::from("/home/u/a b"))
        );
        for none in [r#"{"roots":[]}"#, "{}", r#"{"roots":[{"uri":"relative"},5]}"#, "[]"] {
            assert_eq!(root(none), None, "{none}");
        }
    }
}
