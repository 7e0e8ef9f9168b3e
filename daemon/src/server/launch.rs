//! The border between a supervisor and what runs a server.
//!
//! Two traits, so that supervision is the same for every kind of server and can be tested without
//! processes. `spawn` implements them for child processes, `remote` for servers behind a URL. May not touch: phases, listings.

use super::lifecycle::Failure;
use super::status::{Exit, Reporter};
use super::wire::remote::Remote;
use crate::config::ServerConfig;
use crate::names::{Generation, ServerName};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::unix::pipe;

/// What a server is reached through.
pub enum Connection {
    /// The pipes of a child.
    Pipes {
        /// What the server reads.
        stdin: pipe::Sender,
        /// What the server writes.
        stdout: pipe::Receiver,
    },
    /// HTTP.
    Remote(Remote),
}

/// A started server. Whoever holds it owns the process until [`Process::stop`] proved its end.
pub struct Launched {
    /// The server's own process.
    pub pid: Option<u32>,
    /// The process that guards it.
    pub guard_pid: Option<u32>,
    /// How it is spoken to.
    pub connection: Connection,
    /// Its life.
    pub process: Box<dyn Process>,
}

/// Processes that outlived KILL within the budget (uninterruptible sleep).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} processes cannot be ended: {pids:?}", pids.len())]
pub struct Survivors {
    /// Their pids.
    pub pids: Vec<u32>,
}

/// The life of one server process and everything below it.
pub trait Process: Send {
    /// Returns when the server itself has ended.
    /// # Cancel safety
    /// Cancel safe; returns at once when asked again after the end.
    fn exited(&mut self) -> BoxFuture<'_, Exit>;

    /// Ends whatever is left of the server within `budget` and proves that nothing is. Its stdin
    /// must be closed before. May be asked again after an error.
    /// # Errors
    /// [`Survivors`].
    /// # Cancel safety
    /// Not cancel safe: only the supervisor awaits it.
    fn stop(&mut self, budget: Duration) -> BoxFuture<'_, Result<(), Survivors>>;
}

/// A checked and resolved server, ready to be started once. Dropping it starts nothing. The future
/// that it makes should be awaited to its end: dropped half-way, what it began ends by itself, but
/// nobody learns when.
pub type Ignition = Box<dyn FnOnce(Generation) -> BoxFuture<'static, Result<Launched, Failure>> + Send>;

/// What runs servers.
pub trait Launcher: Send + Sync {
    /// Finds the command and decides whether it may be run; every finding goes into `report`.
    /// # Errors
    /// A permanent [`Failure`] for what a retry cannot mend.
    /// # Cancel safety
    /// Cancel safe.
    fn prepare(
        &self,
        config: Arc<ServerConfig>,
        report: Reporter,
    ) -> BoxFuture<'static, Result<Ignition, Failure>>;

    /// The server's log. Its tail is kept for as long as somebody holds the log.
    fn log(&self, server: &ServerName) -> Arc<dyn Log>;
}

/// What a server wrote on stderr, and the daemon's remarks between.
pub trait Log: std::fmt::Debug + Send + Sync {
    /// The last lines, oldest first, control characters escaped.
    fn tail(&self) -> Vec<String>;

    /// Writes a remark of the daemon.
    fn note(&self, line: &str);
}
