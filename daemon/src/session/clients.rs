//! Who is connected, for status. Written by sessions, read by `admin`.

use crate::names::ClientId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

/// What is known about one client.
#[derive(Debug)]
pub struct ClientFacts {
    /// Unique while the daemon runs.
    pub id: ClientId,
    /// Pid of its shim, as the kernel reports it; 0: unknown.
    pub pid: u32,
    /// Profile it asked for.
    pub profile: String,
    /// When it connected.
    pub connected: Instant,
    /// Calls without an answer yet.
    pub in_flight: AtomicU32,
    /// Calls so far.
    pub calls: AtomicU64,
    /// Notifications lost because it did not read.
    pub dropped: AtomicU64,
    /// From `initialize`; empty before it.
    pub named: Mutex<Named>,
}

/// What a client says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named {
    /// `clientInfo.name`.
    pub name: String,
    /// `clientInfo.version`.
    pub version: String,
    /// Negotiated MCP revision.
    pub revision: String,
}

/// The table of connected clients.
#[derive(Debug, Clone, Default)]
pub struct Clients {
    next: Arc<AtomicU64>,
    table: Arc<Mutex<BTreeMap<ClientId, Arc<ClientFacts>>>>,
}

impl Clients {
    /// Enters a client.
    pub fn enter(&self, pid: u32, profile: &str) -> Arc<ClientFacts> {
        let id = ClientId(self.next.fetch_add(1, Ordering::Relaxed) + 1);
        let facts = Arc::new(ClientFacts {
            id,
            pid,
            profile: profile.to_owned(),
            connected: Instant::now(),
            in_flight: AtomicU32::new(0),
            calls: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            named: Mutex::default(),
        });
        self.lock().insert(id, facts.clone());
        facts
    }

    /// A number for a caller that is no session (an admin command).
    pub fn next_id(&self) -> ClientId {
        ClientId(self.next.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Strikes a client out.
    pub fn leave(&self, id: ClientId) {
        self.lock().remove(&id);
    }

    /// Everyone, by id.
    pub fn all(&self) -> Vec<Arc<ClientFacts>> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<ClientId, Arc<ClientFacts>>> {
        self.table.lock().expect("nothing panics while holding it")
    }
}
