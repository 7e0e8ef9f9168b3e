//! The task that turns listings into the published catalogue.
//!
//! Owner of the catalogue: the only place that makes one. Wakes when the set of servers, one of
//! their listings, or the configuration changes; works on the blocking pool; publishes only when
//! something differs. A panic here ends the daemon (ARCHITECTURE.md).

use super::build::{self, Builtin, Offer};
use super::snapshot::Catalog;
use crate::config::Config;
use crate::server::Servers;
use crate::server::handle::ServerHandle;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

/// Makes and publishes the catalogue.
#[derive(Debug)]
pub struct Reconcile {
    /// The configuration in force.
    pub config: watch::Receiver<Arc<Config>>,
    /// The servers that are to be run.
    pub servers: watch::Receiver<Arc<Servers>>,
    /// The conversation tools on offer; empty where they are off.
    pub builtins: watch::Receiver<Arc<Vec<Builtin>>>,
    /// Questions whether this task still works; each is answered at once.
    pub beats: mpsc::Receiver<oneshot::Sender<()>>,
    /// Where the catalogue goes.
    pub publish: watch::Sender<Arc<Catalog>>,
}

impl Reconcile {
    /// Runs until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut revision = 0;
        loop {
            let servers = self.servers.borrow_and_update().clone();
            let config = self.config.borrow_and_update().clone();
            let builtins = self.builtins.borrow_and_update().clone();
            let mut listings = FuturesUnordered::new();
            let mut offers = Vec::with_capacity(servers.len());
            for handle in servers.values() {
                let mut listing = handle.listing();
                offers.extend(offer(handle, &mut listing));
                listings.push(async move {
                    // An error means that its supervisor is gone; the set of servers changes then too.
                    if listing.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                });
            }
            let built = tokio::task::spawn_blocking(move || build::build(&config, &offers, &builtins)).await;
            let catalog = built.expect("building a catalogue does not panic");
            revision += 1;
            self.publish.send_replace(Arc::new(catalog.numbered(revision)));
            // A beat is no reason to build anything.
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    changed = self.servers.changed() => if changed.is_err() { return },
                    changed = self.config.changed() => if changed.is_err() { return },
                    changed = self.builtins.changed() => if changed.is_err() { return },
                    Some(()) = listings.next(), if !listings.is_empty() => {}
                    Some(asked) = self.beats.recv() => {
                        // Whoever asked may be gone.
                        let _ = asked.send(());
                        continue;
                    }
                }
                break;
            }
        }
    }
}

fn offer(
    handle: &ServerHandle,
    listing: &mut watch::Receiver<Option<Arc<crate::server::listing::Listing>>>,
) -> Option<Offer> {
    let listing = listing.borrow_and_update().clone()?;
    let tools = listing.tools.iter().map(|tool| (tool.name.to_string(), tool.raw.clone())).collect();
    let notes = listing.notes.iter().map(ToString::to_string).collect();
    let dropped = listing.notes.iter().filter(|note| note.problem.drops_item()).count();
    Some(Offer { config: handle.config(), tools, notes, dropped: u32::try_from(dropped).unwrap_or(u32::MAX) })
}
