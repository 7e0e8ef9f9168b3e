//! Starts a server whose login was finished, whoever began the login and wherever they are now.
//!
//! Owner: the task in [`run`]. May touch: handles. May not touch: logins.

use crate::names::ServerName;
use crate::server::Servers;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long one start is waited for; the next login is looked at then. The start itself goes on.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts each server that `logged_in` names until `stop`.
pub async fn run(
    mut logged_in: mpsc::Receiver<ServerName>,
    servers: watch::Receiver<Arc<Servers>>,
    stop: CancellationToken,
) {
    loop {
        let name = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            name = logged_in.recv() => name,
        };
        let Some(name) = name else { return };
        // A disabled server has no handle; it is started when it is enabled.
        let handle = servers.borrow().get(&name).cloned();
        if let Some(handle) = handle {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // How it went is in its status and log.
                _ = handle.start(Instant::now() + PATIENCE) => {}
            }
        }
    }
}
