//! One connected client: lines in, calls out, answers back in order.
//!
//! Owner: [`task::Session`], one task a client; its calls run inside that task, so that dropping
//! it frees everything. Promise: each request gets exactly one answer under its own id, unless the
//! client cancelled it; nothing of one client is visible to another. May touch: its socket, the
//! catalogue (read), `call`. May not touch: servers, configuration.

pub mod announce;
pub mod asks;
pub mod batch;
pub mod clients;
mod ended;
mod follow;
pub mod inbound;
mod inbox;
pub mod listener;
pub mod methods;
pub mod modern;
mod notices;
pub mod outbox;
mod requests;
pub mod resume;
pub mod streams;
pub mod subscriptions;
pub mod task;

use crate::call::CallPath;
use crate::catalog::snapshot::Catalog;
use clients::Clients;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use tokio::sync::watch;

/// What every session shares.
#[derive(Debug)]
pub struct Shared {
    /// Canonical HERMES_HOME of this daemon.
    pub home: PathBuf,
    /// The road of a call.
    pub calls: Arc<CallPath>,
    /// What clients see.
    pub catalog: watch::Receiver<Arc<Catalog>>,
    /// Everyone connected.
    pub clients: Clients,
    /// Bytes of params that all open calls hold.
    pub held: AtomicUsize,
}
