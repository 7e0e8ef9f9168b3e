//! What servers ask of this client outside of any call, and the answers on their way.
//!
//! Owner: the session. Promise: the end of the session ends every question, and each server hears so at
//! once. May not touch: who may ask; an instance gets the sender only while it serves this client alone.

use crate::call::{CallPath, Caller, asked};
use crate::server::wire::questions::{BACKLOG, Unasked};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::sync::Arc;
use tokio::sync::mpsc;

/// The questions to one client.
#[derive(Debug)]
pub(super) struct Inbox {
    sender: mpsc::Sender<Unasked>,
    waiting: mpsc::Receiver<Unasked>,
    answering: FuturesUnordered<BoxFuture<'static, ()>>,
}

impl Default for Inbox {
    fn default() -> Self {
        let (sender, waiting) = mpsc::channel(BACKLOG);
        Self { sender, waiting, answering: FuturesUnordered::new() }
    }
}

impl Inbox {
    /// Where an instance that serves this client alone puts its questions.
    pub(super) fn sender(&self) -> mpsc::Sender<Unasked> {
        self.sender.clone()
    }

    /// The next question; answers go on meanwhile.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Unasked {
        loop {
            tokio::select! {
                biased;
                Some(()) = self.answering.next(), if !self.answering.is_empty() => {}
                Some(asked) = self.waiting.recv() => return asked,
            }
        }
    }

    /// Has a question answered for `caller`; one of a server that is not configured any more is dropped,
    /// which tells the server.
    pub(super) fn begin(&mut self, (server, question): Unasked, calls: Arc<CallPath>, caller: Caller) {
        let Some(config) = calls.server_config(&server) else { return };
        self.answering.push(Box::pin(async move {
            asked::serve(&calls, &caller, &config, question).await;
        }));
    }
}
