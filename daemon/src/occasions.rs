//! Small tasks that carry one fact to one owner: a file changed, a variable came, nobody is there.
//!
//! Owner: `boot` spawns or awaits each. May touch: the reloader's queue. May not touch: what is reloaded.

use crate::conversations::watch::{State, WatchStatus};
use crate::reload::Reloader;
use crate::server::base_env::BaseEnv;
use crate::session::clients::Clients;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Reads the configuration again with each change of its files.
pub(crate) async fn on_change(mut changes: watch::Receiver<u64>, reloader: Reloader) {
    while changes.changed().await.is_ok() {
        reloader.reload().await;
    }
}

/// Conversations that appear are offered at once.
pub(crate) async fn on_arrival(mut status: watch::Receiver<WatchStatus>, reloader: Reloader) {
    while status.wait_for(|status| status.state == State::Missing).await.is_ok()
        && status.wait_for(|status| status.state == State::Following).await.is_ok()
    {
        reloader.poke();
    }
}

/// The user manager's variables come late; the secrets among them must be masked all the same.
pub(crate) async fn on_manager(mut base: watch::Receiver<Arc<BaseEnv>>, reloader: Reloader) {
    while base.changed().await.is_ok() {
        if !base.borrow_and_update().manager.is_empty() {
            reloader.poke();
        }
    }
}

/// Returns when no client was connected for `limit`; never without one.
pub(crate) async fn idle(clients: Clients, limit: Option<Duration>) {
    let Some(limit) = limit else { return std::future::pending().await };
    let mut empty_since = Instant::now();
    let mut look =
        tokio::time::interval((limit / 10).clamp(Duration::from_millis(50), Duration::from_secs(60)));
    loop {
        look.tick().await;
        if !clients.all().is_empty() {
            empty_since = Instant::now();
        } else if empty_since.elapsed() >= limit {
            return;
        }
    }
}
