//! Pure: old and new configuration to a plan.
//!
//! Promise: what a server *effectively* is decides, after variables and defaults: touching the
//! file, comments, the order of keys and other servers' secrets change nothing.
//! May not touch: servers (`reconcile` acts on the plan).

use super::{Config, ServerConfig, ServerEntry};
use crate::names::ServerName;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What has to happen so that the new configuration is the one that runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Servers to run that did not run: new, enabled or mended entries.
    pub added: Vec<ServerName>,
    /// Servers to end: gone, disabled or refused entries.
    pub removed: Vec<ServerName>,
    /// Servers that stay, differently.
    pub changed: Vec<(ServerName, Change)>,
    /// Servers to leave alone.
    pub unchanged: Vec<ServerName>,
    /// Whether anything in `hermesd:` differs.
    pub daemon_changed: bool,
}

/// How a change of a running server takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// The process or connection itself is concerned: drain it and start a new generation.
    Restart,
    /// Limits, filters and policies only: takes effect with the next call, nothing restarts.
    Apply,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty() && !self.daemon_changed
    }
}

/// The servers of a configuration that are to run.
pub fn running(config: &Config) -> BTreeMap<&ServerName, &Arc<ServerConfig>> {
    let enabled = config.servers.iter().filter_map(|(name, entry)| match entry {
        ServerEntry::Enabled(server) => Some((name, server)),
        ServerEntry::Disabled(_) | ServerEntry::Refused { .. } => None,
    });
    enabled.collect()
}

/// Compares two configurations; the lists of the plan are sorted by name.
pub fn plan(old: &Config, new: &Config) -> Plan {
    let (before, after) = (running(old), running(new));
    let mut plan = Plan { daemon_changed: old.daemon != new.daemon, ..Plan::default() };
    plan.removed.extend(before.keys().filter(|name| !after.contains_key(*name)).map(|name| (*name).clone()));
    for (name, server) in after {
        match before.get(name).map(|earlier| change(earlier, server)) {
            None => plan.added.push(name.clone()),
            Some(None) => plan.unchanged.push(name.clone()),
            Some(Some(change)) => plan.changed.push((name.clone(), change)),
        }
    }
    plan
}

/// What going from `old` to `new` takes; `None` where they are the same.
pub fn change(old: &ServerConfig, new: &ServerConfig) -> Option<Change> {
    if old == new {
        return None;
    }
    // Fields that a running generation was built from. `sampling.enabled` was declared in its
    // handshake; `sharing` decides which instances exist at all.
    let same_process = old.transport == new.transport
        && old.protocol == new.protocol
        && old.sharing == new.sharing
        && old.sampling.enabled == new.sampling.enabled;
    Some(if same_process { Change::Apply } else { Change::Restart })
}

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;
