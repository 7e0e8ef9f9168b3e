//! Which process serves which client of one server: one for all, one a client, one a project root.
//!
//! Owner: whoever runs the server. The first instance always exists and carries the catalogue; others
//! are made by their first use and ended when their client leaves or the place is needed.
//! Promise: never more than the limit besides the first; an instance with calls is never ended for
//! another one. A std mutex, never held across an await. May not touch: the catalogue, sessions.

use super::handle::{Apply, ServerHandle};
use super::lifecycle::StopReason;
use super::listing::Listing;
use super::supervisor::{Known, Shared, Supervisor};
use crate::config::{ServerConfig, StartMode};
use crate::jsonrpc::splice::{ObjectWriter, raw};
use crate::names::ClientId;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Instances besides the first, by default.
pub const DEFAULT_LIMIT: usize = 16;

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

/// Every place is taken by an instance with calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{limit} instances are all in use")]
pub struct InstancesFull {
    /// Instances besides the first.
    pub limit: usize,
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

/// All instances of one server. Cheap to clone.
#[derive(Clone)]
pub struct Instances {
    first: ServerHandle,
    shared: Shared,
    limit: usize,
    inner: Arc<Mutex<Inner>>,
}

impl Instances {
    /// `first` runs already; at most `limit` more are made.
    pub fn new(first: ServerHandle, shared: Shared, limit: usize) -> Self {
        let inner = Inner { config: first.config(), extras: Vec::new() };
        Self { first, shared, limit: limit.max(1), inner: Arc::new(Mutex::new(inner)) }
    }

    /// The instance for `key`, made if need be; it starts with its first call.
    ///
    /// # Errors
    /// [`InstancesFull`] when all places are taken by instances with calls.
    pub fn get(&self, key: &InstanceKey) -> Result<ServerHandle, InstancesFull> {
        if *key == InstanceKey::Shared {
            return Ok(self.first.clone());
        }
        let mut inner = self.lock();
        if let Some(at) = inner.extras.iter().position(|extra| extra.key == *key) {
            let extra = inner.extras.remove(at);
            let handle = extra.handle.clone();
            inner.extras.push(extra);
            return Ok(handle);
        }
        if inner.extras.len() >= self.limit {
            let idle = inner.extras.iter().position(|extra| is_idle(&extra.handle));
            let at = idle.ok_or(InstancesFull { limit: self.limit })?;
            self.end(inner.extras.remove(at).handle);
        }
        let handle = self.make(&inner.config, key);
        inner.extras.push(Extra { key: key.clone(), handle: handle.clone() });
        Ok(handle)
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
        self.first.reconfigure(config.clone(), apply).await;
        for handle in kept {
            handle.reconfigure(config.clone(), apply).await;
        }
    }

    fn make(&self, config: &ServerConfig, key: &InstanceKey) -> ServerHandle {
        let config = Arc::new(ServerConfig { start: StartMode::Lazy, ..config.clone() });
        // The first instance knows the catalogue; this one need not be started to learn it.
        let listing = self.first.listing().borrow().clone();
        let known = Known::Current(listing.unwrap_or_else(|| Arc::new(Listing::default())));
        let roots = match key {
            InstanceKey::Root(root) => roots_of(root),
            InstanceKey::Shared | InstanceKey::Client(_) => self.shared.roots.clone(),
        };
        Supervisor::start(config, known, Shared { roots, ..self.shared.clone() })
    }

    fn end(&self, handle: ServerHandle) {
        self.shared.tasks.spawn(async move { handle.stop(StopReason::Removed).await });
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
