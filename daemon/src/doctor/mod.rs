//! What a person would check by hand: folders, disk, limits of the system, databases, commands, addresses,
//! logins. The same looks with and without a running daemon.
//!
//! Owner: nobody; whoever asks gets the findings of this moment. Promise: [`look`] starts no server, changes
//! nothing and takes a few seconds at most. Blocking. May not touch: running servers, the store.

mod databases;
mod machine;
mod places;
mod servers;

use crate::config::{Config, Finding, Severity};
use crate::names::ServerName;
use crate::paths::Paths;
use crate::server::base_env::BaseEnv;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::SystemTime;

/// What is looked at.
#[derive(Debug)]
pub struct Subject<'a> {
    /// Files and folders.
    pub paths: &'a Paths,
    /// The configuration in force, or as it would be.
    pub config: &'a Config,
    /// Where environments of servers come from.
    pub base: &'a BaseEnv,
    /// Servers that are known to work now: no need to look for their commands and addresses.
    pub working: &'a BTreeSet<ServerName>,
    /// Whether the daemon itself is at the other end: it looks after its own database.
    pub asked_by: AskedBy,
    /// For tokens.
    pub now: SystemTime,
}

/// Who looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskedBy {
    /// The running daemon.
    Daemon,
    /// A program that found none.
    Nobody,
}

/// One finding and the stable word for its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Lower case, words joined by `-`; never changes.
    pub kind: &'static str,
    /// What, and the one thing to do.
    pub finding: Finding,
}

impl Found {
    fn new(kind: &'static str, severity: Severity, message: String, hint: String) -> Self {
        let finding =
            Finding { severity, server: None, file: None, line: 0, key: String::new(), message, hint };
        Self { kind, finding }
    }

    fn about(mut self, server: &ServerName) -> Self {
        self.finding.server = Some(server.clone());
        self
    }

    fn at(mut self, file: &Path) -> Self {
        self.finding.file = Some(file.to_owned());
        self
    }
}

/// Looks at everything.
pub fn look(subject: &Subject<'_>) -> Vec<Found> {
    let mut found = places::look(subject.paths);
    found.extend(machine::look(subject));
    found.extend(databases::look(subject));
    found.extend(servers::look(subject));
    found
}
