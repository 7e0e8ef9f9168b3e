//! The task that keeps the last known listing of every server in hermesd.db.
//!
//! Owner of the rows in `catalogue`. A listing is written when it changes and forgotten when its
//! entry leaves the configuration. State problems are logged and never block anything else.

use super::persisted::{config_digest, to_listing, to_record};
use crate::config::{Config, ServerConfig};
use crate::names::ServerName;
use crate::server::Servers;
use crate::server::listing::Listing;
use crate::server::supervisor::Known;
use crate::store::{Store, StoredCatalog, UnixMs};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long a start waits for the stored catalogues; without them servers are asked anew.
const LOAD_LIMIT: Duration = Duration::from_secs(2);

/// All stored catalogues; none when the store does not answer in time.
pub async fn load(store: &Store) -> BTreeMap<ServerName, StoredCatalog> {
    match tokio::time::timeout(LOAD_LIMIT, store.load_catalogs()).await {
        Ok(Ok(stored)) => stored,
        Ok(Err(error)) => {
            tracing::warn!(%error, "stored catalogues cannot be read; servers are asked anew");
            BTreeMap::new()
        }
        Err(_) => {
            tracing::warn!("stored catalogues are not there in time; servers are asked anew");
            BTreeMap::new()
        }
    }
}

/// What is known of a server's catalogue before it is started.
pub fn known(config: &ServerConfig, stored: &BTreeMap<ServerName, StoredCatalog>) -> Known {
    match stored.get(&config.name) {
        None => Known::Nothing,
        Some(stored) => {
            let listing = Arc::new(to_listing(&stored.record));
            if stored.record.config_digest == config_digest(config) {
                Known::Current(listing)
            } else {
                Known::Stale(listing)
            }
        }
    }
}

/// Writes changed listings; see the module documentation.
#[derive(Debug)]
pub struct Keep {
    /// The servers that are run.
    pub servers: watch::Receiver<Arc<Servers>>,
    /// The configuration, for what is gone from it.
    pub config: watch::Receiver<Arc<Config>>,
    /// Where they are kept.
    pub store: Store,
}

impl Keep {
    /// Runs until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut saved: BTreeMap<ServerName, Arc<Listing>> = BTreeMap::new();
        self.forget_gone().await;
        loop {
            let servers = self.servers.borrow_and_update().clone();
            let mut changes = FuturesUnordered::new();
            for (name, handle) in servers.iter() {
                let mut listing = handle.listing();
                let current = listing.borrow_and_update().clone();
                if let Some(current) =
                    current.filter(|now| saved.get(name).is_none_or(|old| !Arc::ptr_eq(old, now)))
                {
                    self.save(name, &handle.config(), &current).await;
                    saved.insert(name.clone(), current);
                }
                changes.push(async move {
                    if listing.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                });
            }
            saved.retain(|name, _| servers.contains_key(name));
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                changed = self.servers.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.forget_gone().await;
                }
                Some(()) = changes.next(), if !changes.is_empty() => {}
            }
        }
    }

    async fn save(&self, name: &ServerName, config: &ServerConfig, listing: &Listing) {
        let record = to_record(listing, config_digest(config));
        if let Err(error) =
            self.store.save_catalog(name.clone(), record, UnixMs::at(std::time::SystemTime::now())).await
        {
            tracing::warn!(server = %name, %error, "the catalogue is not kept");
        }
    }

    async fn forget_gone(&self) {
        let config = self.config.borrow().clone();
        // An unusable first configuration names no servers; their catalogues must not go with it.
        if config.servers.is_empty() {
            return;
        }
        for name in load(&self.store).await.into_keys().filter(|name| !config.servers.contains_key(name)) {
            if let Err(error) = self.store.forget_catalog(name.clone()).await {
                tracing::warn!(server = %name, %error, "the catalogue of a removed server stays");
            }
        }
    }
}
