//! The stream that a server may offer for what it says on its own: a GET from 2025-03-26 to 2025-11-25,
//! `subscriptions/listen` from 2026-07-28.
//!
//! Promise: it is a convenience: nothing that happens here fails a call, asks for a login or ends
//! the session. A refusal is asked about again rarely; a stream that ends is opened again for as long
//! as the connection lives, after waits that good times make short again. May not touch: requests.

use super::answer::Media;
use super::events::Events;
use super::exchange::{Heard, media, of_event};
use super::link::{Ask, Link};
use super::names;
use crate::server::wire::inbound::Inbound;
use reqwest::Method;
use reqwest::header::HeaderValue;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Until a server that offers no stream is asked again.
const REFUSED: Duration = Duration::from_secs(30 * 60);

/// First wait after a stream ended.
const FIRST: Duration = Duration::from_secs(1);

/// Longest wait after a stream ended or could not be opened.
const CAP: Duration = Duration::from_secs(60);

/// A stream that lasted this long was a good one.
const GOOD: Duration = Duration::from_secs(20);

/// Whether the stream is open now. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Opened(Arc<AtomicBool>);

impl Opened {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn open(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Listens for as long as it is polled.
///
/// # Cancel safety
/// Dropping the future closes the stream.
pub(crate) async fn listen(link: Arc<Link>, ask: Ask, heard: mpsc::Sender<Heard>, open: Opened) {
    let mut wait = FIRST;
    let mut last_id: Option<String> = None;
    loop {
        let mut ask = ask.clone();
        // Only the older revisions number events; a subscription is simply made again.
        if let (&Method::GET, Some(id)) = (&ask.method, &last_id)
            && let Ok(id) = HeaderValue::from_str(id)
        {
            ask.headers.insert(names::LAST_EVENT, id);
        }
        let pause = match link.send(&ask).await {
            Ok(response) if response.status().is_success() && media(&response) == Media::Events => {
                let opened = Instant::now();
                let mut events = Events::of(response, link.max_body);
                open.0.store(true, Ordering::Relaxed);
                let spoke = follow(&mut events, &heard).await;
                open.0.store(false, Ordering::Relaxed);
                last_id = events.last_id.clone().or(last_id);
                if spoke || opened.elapsed() >= GOOD {
                    wait = FIRST;
                }
                let pause = events.retry.unwrap_or(wait).max(Duration::from_millis(100));
                wait = (wait * 2).min(CAP);
                pause
            }
            // Not now, says a server that may have streams.
            Ok(response) if matches!(response.status().as_u16(), 429 | 500..) => CAP,
            Ok(_) => REFUSED,
            Err(_) => {
                let pause = wait;
                wait = (wait * 2).min(CAP);
                pause
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Passes on what is heard until the stream ends; whether anything was.
async fn follow(events: &mut Events, heard: &mpsc::Sender<Heard>) -> bool {
    let mut spoke = false;
    while let Some(Ok(event)) = events.next().await {
        spoke = true;
        for message in of_event(event).await {
            if matches!(message, Inbound::Answer { id: Some(0), .. }) {
                // Nothing was asked here but the stream itself.
                continue;
            }
            if heard.send(Heard::Message { from: None, message }).await.is_err() {
                return spoke;
            }
        }
    }
    spoke
}
