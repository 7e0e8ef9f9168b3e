//! Which process serves which client of one server: one for all, one a client, one a project root.
//!
//! Owner: the handle of the first instance. That one always exists and carries the catalogue; others
//! are made by their first use and ended when their client leaves or the place is needed.
//! Promise: never more than the limit besides the first; an instance with calls is never ended for
//! another one. A std mutex, never held across an await. May not touch: the catalogue, sessions.

use super::handle::{Apply, ServerHandle};
use super::handshake::Offer;
use super::lifecycle::StopReason;
use super::listing::Listing;
use super::shared::Shared;
use super::supervisor::{Known, Supervisor};
use super::wire::questions::Unasked;
use crate::config::{ServerConfig, StartMode};
use crate::jsonrpc::splice::{ObjectWriter, raw};
use crate::names::ClientId;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// Instances for project roots besides the first.
pub const MAX_ROOTS: usize = 16;

/// Instances for clients besides the first.
pub const MAX_CLIENTS: usize = 64;

/// Whom an instance serves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum InstanceKey {
    /// Everybody.
    Shared,
    /// One client.
    Client(ClientId),
    /// Every client that works in this folder.
    Root(PathBuf),
}

impl std::fmt::Display for InstanceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Shared => f.write_str("all clients"),
            Self::Client(client) => write!(f, "client {client}"),
            Self::Root(root) => write!(f, "{}", root.display()),
        }
    }
}

/// Every place is taken by an instance with calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{limit} instances are all in use")]
pub struct InstancesFull {
    /// Instances besides the first.
    pub limit: usize,
}

/// What an instance that serves one client is told about it.
#[derive(Debug, Clone)]
pub struct Guest {
    /// What that client can be asked.
    pub offer: Offer,
    /// Where its questions go.
    pub inbox: mpsc::Sender<Unasked>,
}

/// An instance, and whether it was made just now.
#[derive(Debug, Clone)]
pub enum Found {
    /// It was there.
    Known(ServerHandle),
    /// It is new and was told nothing yet.
    New(ServerHandle),
}

struct Extra {
    key: InstanceKey,
    handle: ServerHandle,
}

struct Inner {
    config: Arc<ServerConfig>,
    /// Least recently used first.
    extras: Vec<Extra>,
}

/// The instances besides the first, kept by its handle. Cheap to clone.
#[derive(Clone)]
pub struct Extras {
    shared: Arc<Shared>,
    inner: Arc<Mutex<Inner>>,
}

impl std::fmt::Debug for Extras {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Extras").finish_non_exhaustive()
    }
}

impl Extras {
    pub(super) fn new(config: Arc<ServerConfig>, shared: Shared) -> Self {
        let inner = Inner { config, extras: Vec::new() };
        Self { shared: Arc::new(shared), inner: Arc::new(Mutex::new(inner)) }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }
}

/// All instances of one server. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Instances {
    first: ServerHandle,
    roots: usize,
    clients: usize,
}

impl Instances {
    /// Those of the server whose first instance this is.
    pub fn of(first: &ServerHandle) -> Self {
        Self { first: first.clone(), roots: MAX_ROOTS, clients: MAX_CLIENTS }
    }

    /// As [`of`](Self::of), with at most `limit` besides the first.
    #[cfg(test)]
    pub(crate) fn limited(first: &ServerHandle, limit: usize) -> Self {
        Self { roots: limit, clients: limit, ..Self::of(first) }
    }

    /// The instance for `key`, made if need be; it starts with its first call. `guest` is what a new one
    /// is told about the client that it serves alone.
    ///
    /// # Errors
    /// [`InstancesFull`] when all places are taken by instances with calls.
    pub fn get(&self, key: &InstanceKey, guest: Option<&Guest>) -> Result<Found, InstancesFull> {
        let limit = match key {
            InstanceKey::Shared => return Ok(Found::Known(self.first.clone())),
            InstanceKey::Client(_) => self.clients,
            InstanceKey::Root(_) => self.roots,
        };
        let mut inner = self.lock();
        if let Some(at) = inner.extras.iter().position(|extra| extra.key == *key) {
            let extra = inner.extras.remove(at);
            let handle = extra.handle.clone();
            inner.extras.push(extra);
            if let Some(guest) = guest {
                // The client may be there by another connection than before.
                handle.front().serve(handle.name().clone(), guest.inbox.clone());
            }
            return Ok(Found::Known(handle));
        }
        if inner.extras.len() >= limit {
            let idle = inner.extras.iter().position(|extra| is_idle(&extra.handle));
            let at = idle.ok_or(InstancesFull { limit })?;
            self.end(inner.extras.remove(at).handle);
        }
        let handle = self.make(&inner.config, key, guest);
        inner.extras.push(Extra { key: key.clone(), handle: handle.clone() });
        Ok(Found::New(handle))
    }

    /// The instance for `key`, if there is one; its place in the order stays.
    pub fn known(&self, key: &InstanceKey) -> Option<ServerHandle> {
        match key {
            InstanceKey::Shared => Some(self.first.clone()),
            key => self.lock().extras.iter().find(|extra| extra.key == *key).map(|e| e.handle.clone()),
        }
    }

    /// Ends the instance for `key`, e.g. when its client has left; the first one stays.
    pub fn release(&self, key: &InstanceKey) {
        let mut inner = self.lock();
        if let Some(at) = inner.extras.iter().position(|extra| extra.key == *key) {
            self.end(inner.extras.remove(at).handle);
        }
    }

    /// Every instance with whom it serves, the first one first.
    pub fn all(&self) -> Vec<(InstanceKey, ServerHandle)> {
        let extras = self.lock().extras.iter().map(|e| (e.key.clone(), e.handle.clone())).collect::<Vec<_>>();
        std::iter::once((InstanceKey::Shared, self.first.clone())).chain(extras).collect()
    }

    /// Passes a new configuration to every instance; does not wait for restarts. Instances besides
    /// the first that would have to be restarted are ended: their next use starts them anew.
    pub async fn reconfigure(&self, config: Arc<ServerConfig>, apply: Apply) {
        let kept = {
            let mut inner = self.lock();
            inner.config = config.clone();
            match apply {
                Apply::Restart => {
                    for extra in inner.extras.drain(..) {
                        self.end(extra.handle);
                    }
                    Vec::new()
                }
                Apply::InPlace => inner.extras.iter().map(|extra| extra.handle.clone()).collect(),
            }
        };
        if apply == Apply::Restart {
            // Another command may be another server.
            self.first.extras.shared.habits.learn_asks(self.first.name(), None);
        }
        self.first.reconfigure(config.clone(), apply).await;
        for handle in kept {
            handle.reconfigure(lazy(&config), apply).await;
        }
    }

    fn make(&self, config: &ServerConfig, key: &InstanceKey, guest: Option<&Guest>) -> ServerHandle {
        // The first instance knows the catalogue; this one need not be started to learn it.
        let listing = self.first.listing().borrow().clone();
        let known = Known::Current(listing.unwrap_or_else(|| Arc::new(Listing::default())));
        let shared = &*self.first.extras.shared;
        let roots = match key {
            InstanceKey::Root(root) => roots_of(root),
            InstanceKey::Shared | InstanceKey::Client(_) => shared.roots.clone(),
        };
        let offer = guest.map(|guest| guest.offer.clone());
        let handle = Supervisor::start(lazy(config), known, Shared { roots, offer, ..shared.clone() });
        if let Some(guest) = guest {
            handle.front().serve(handle.name().clone(), guest.inbox.clone());
        }
        handle
    }

    fn end(&self, handle: ServerHandle) {
        self.first.extras.shared.tasks.spawn(async move { handle.stop(StopReason::Removed).await });
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.first.extras.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lazy(config: &ServerConfig) -> Arc<ServerConfig> {
    Arc::new(ServerConfig { start: StartMode::Lazy, ..config.clone() })
}

fn is_idle(handle: &ServerHandle) -> bool {
    let usage = handle.slots().usage();
    usage.in_flight == 0 && usage.waiting == 0
}

/// `roots` of a `roots/list` answer for one folder (MCP 2025-11-25, Roots: file URIs only).
fn roots_of(root: &Path) -> Arc<str> {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt;
    let mut uri = String::from("file://");
    for byte in root.as_os_str().as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                uri.push(char::from(*byte))
            }
            other => write!(uri, "%{other:02X}").expect("writing to a string succeeds"),
        }
    }
    let mut one = ObjectWriter::default();
    one.string("uri", &uri);
    if let Some(name) = root.file_name() {
        one.string("name", &name.to_string_lossy());
    }
    Arc::from(raw(&[one.finish()]).get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_odd_characters_becomes_a_legal_uri() {
        let roots = roots_of(Path::new("/home/u/my prójekt"));
        assert_eq!(&*roots, r#"[{"uri":"file:///home/u/my%20pr%C3%B3jekt","name":"my prójekt"}]"#);
    }
}
