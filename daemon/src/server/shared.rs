//! What all supervisors share, and what is learned about servers while they run.
//!
//! Owner: `boot` makes one. May not touch: any one server.

use super::handshake::{FirstWord, Offer};
use super::launch::Launcher;
use super::lifecycle::Starts;
use super::places::Places;
use super::wire::questions::Models;
use crate::names::ServerName;
use crate::tasks::TaskGroup;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What was learned about how servers behave. At hand without waiting; whether it outlives the daemon is
/// the business of whoever implements it.
pub trait Habits: Send + Sync {
    /// What `server` was seen to ask of clients; `None`: nothing.
    fn asks(&self, server: &ServerName) -> Option<String>;

    /// `server` was seen to ask clients this; `None`: it is another server now.
    fn learn_asks(&self, server: &ServerName, method: Option<&str>);
}

/// Habits that end with the daemon.
#[derive(Debug, Default)]
pub struct Forgetful(Mutex<BTreeMap<ServerName, String>>);

impl Habits for Forgetful {
    fn asks(&self, server: &ServerName) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(server).cloned()
    }

    fn learn_asks(&self, server: &ServerName, method: Option<&str>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match method {
            Some(method) => drop(all.insert(server.clone(), method.to_owned())),
            None => drop(all.remove(server)),
        }
    }
}

/// What all supervisors share.
#[derive(Clone)]
pub struct Shared {
    /// What runs servers.
    pub launcher: Arc<dyn Launcher>,
    /// Starts that may run at once.
    pub places: Places,
    /// Every task of every server; its stop signal stops all of them.
    pub tasks: TaskGroup,
    /// Time to end one server, from closing its stdin to proven death. Default 5 s.
    pub stop_budget: Duration,
    /// How long a restart waits for calls in flight. Default 30 s.
    pub drain_limit: Duration,
    /// Whether servers may be started at all.
    pub starts: Starts,
    /// What the instance answers to `roots/list`, a JSON array. Default `[]`: it has none to offer.
    pub roots: Arc<str>,
    /// What an instance declares that serves one client; `None`: what its configuration allows.
    pub offer: Option<Offer>,
    /// What earlier generations of the instances of one server taught about its era; `None`: nothing yet.
    pub first: Option<Arc<FirstWord>>,
    /// What was learned about how servers behave.
    pub habits: Arc<dyn Habits>,
    /// Who answers requests for a model that are about no client in particular; `None`: nobody.
    pub models: Option<Arc<dyn Models>>,
}

impl Shared {
    /// Default budgets and 4 starts at once.
    pub fn new(launcher: Arc<dyn Launcher>, tasks: TaskGroup, starts: Starts) -> Self {
        Self {
            launcher,
            places: Places::new(4),
            tasks,
            stop_budget: Duration::from_secs(5),
            drain_limit: Duration::from_secs(30),
            starts,
            roots: Arc::from("[]"),
            offer: None,
            first: None,
            habits: Arc::new(Forgetful::default()),
            models: None,
        }
    }

    /// Changes how many servers may start at once.
    pub fn set_places(&self, total: usize) {
        self.places.set_total(total);
    }
}
