//! What was learned about servers, kept in hermesd.db and at hand without waiting for it.
//!
//! Owner: `boot`. Promise: a fact is known here at once; it reaches the disk beside, and if it does
//! not it is learned again. May not touch: what the facts mean.

use crate::names::ServerName;
use crate::server::remote::Memory;
use crate::server::shared::Habits;
use crate::store::{Store, UnixMs};
use crate::tasks::TaskGroup;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// The facts kept under these names.
const TRANSPORT: &str = "transport";
const ASKS: &str = "asks_clients";

type Facts = BTreeMap<ServerName, BTreeMap<String, String>>;

/// The facts of all servers.
pub struct Learned {
    facts: Mutex<Facts>,
    store: Store,
    tasks: TaskGroup,
}

impl Learned {
    /// What the store has; nothing when it cannot be read.
    pub async fn load(store: Store, tasks: TaskGroup) -> Self {
        let all = store.load_learned().await.unwrap_or_default();
        Self { facts: Mutex::new(all), store, tasks }
    }

    /// An empty value means that nothing is known.
    fn get(&self, server: &ServerName, fact: &str) -> Option<String> {
        let facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        facts.get(server)?.get(fact).filter(|value| !value.is_empty()).cloned()
    }

    fn put(&self, server: &ServerName, fact: &'static str, value: String) {
        let mut facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        let known = facts.entry(server.clone()).or_default().insert(fact.to_owned(), value.clone());
        if known.unwrap_or_default() == value {
            return;
        }
        let (store, server) = (self.store.clone(), server.clone());
        self.tasks.spawn(async move {
            // Not kept: it is learned again after the next start.
            let _ = store.learn(server, fact, value, UnixMs::at(SystemTime::now())).await;
        });
    }
}

impl Habits for Learned {
    fn asks(&self, server: &ServerName) -> Option<String> {
        self.get(server, ASKS)
    }

    fn learn_asks(&self, server: &ServerName, method: Option<&str>) {
        self.put(server, ASKS, method.unwrap_or_default().to_owned());
    }
}

impl Memory for Learned {
    fn recall(&self, server: &ServerName) -> Option<String> {
        self.get(server, TRANSPORT)
    }

    fn learn(&self, server: &ServerName, fact: String) {
        self.put(server, TRANSPORT, fact);
    }
}
