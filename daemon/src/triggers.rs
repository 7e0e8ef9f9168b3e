//! What makes the daemon read its configuration again by itself.
//!
//! Owner: `boot`, which runs one task for each. Promise: each ends when its source does; what happens
//! in a reload is `reload`'s business. May not touch: the configuration.

use crate::conversations::watch::{State, WatchStatus};
use crate::reload::Reloader;
use crate::server::base_env::BaseEnv;
use std::sync::Arc;
use tokio::sync::watch;

/// The file, or what it is made of, changed on disk.
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
