//! What was learned about servers, kept in hermesd.db and at hand without waiting for it.
//!
//! Owner: `boot`. Promise: a fact is known here at once; it reaches the disk beside, and if it does
//! not it is learned again. May not touch: what the facts mean.

use crate::names::ServerName;
use crate::server::remote::Memory;
use crate::store::{Store, UnixMs};
use crate::tasks::TaskGroup;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// The fact kept under this name.
const TRANSPORT: &str = "transport";

/// The facts of all servers.
pub struct Learned {
    facts: Mutex<BTreeMap<ServerName, String>>,
    store: Store,
    tasks: TaskGroup,
}

impl Learned {
    /// What the store has; nothing when it cannot be read.
    pub async fn load(store: Store, tasks: TaskGroup) -> Self {
        let all = store.load_learned().await.unwrap_or_default();
        let facts =
            all.into_iter().filter_map(|(name, mut facts)| Some((name, facts.remove(TRANSPORT)?))).collect();
        Self { facts: Mutex::new(facts), store, tasks }
    }
}

impl Memory for Learned {
    fn recall(&self, server: &ServerName) -> Option<String> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner).get(server).cloned()
    }

    fn learn(&self, server: &ServerName, fact: String) {
        let mut facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        let known = facts.insert(server.clone(), fact.clone());
        if known.as_deref() == Some(fact.as_str()) {
            return;
        }
        let (store, server) = (self.store.clone(), server.clone());
        self.tasks.spawn(async move {
            // Not kept: it is learned again after the next start.
            let _ = store.learn(server, TRANSPORT, fact, UnixMs::at(SystemTime::now())).await;
        });
    }
}
