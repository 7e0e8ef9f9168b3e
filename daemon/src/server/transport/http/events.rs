//! Server-sent events of one response, each within a limit.
//!
//! Promise: events come whole and in order, whatever the line ends and chunks are; an event over the
//! limit ends the stream with its size and is never kept. May not touch: what the events mean.

use super::client::root_of;
use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt};
use sse_stream::{Sse, SseByteStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Longest wait that a server may ask for before the stream is opened again.
const MAX_RETRY: Duration = Duration::from_secs(300);

/// Why a stream of events ended before its time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StreamError {
    /// An event is longer than allowed; bytes seen of it.
    TooLong(usize),
    /// The connection broke, or what came is no stream of events.
    Broken(String),
}

/// One event that carries something.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Its type; empty: a message.
    pub(crate) kind: String,
    /// Its data.
    pub(crate) data: String,
}

/// The events of one response.
pub(crate) struct Events {
    stream: BoxStream<'static, Result<Sse, sse_stream::Error>>,
    /// Bytes since the last event.
    unread: Arc<AtomicUsize>,
    limit: usize,
    /// The id of the last event that had one.
    pub(crate) last_id: Option<String>,
    /// How long the server wants to be left alone before the stream is opened again.
    pub(crate) retry: Option<Duration>,
}

#[derive(Debug, thiserror::Error)]
enum Chunk {
    #[error("an event is too long")]
    OverLimit,
    #[error("{0}")]
    Lost(String),
}

impl Events {
    pub(crate) fn of(response: reqwest::Response, limit: usize) -> Self {
        let unread = Arc::new(AtomicUsize::new(0));
        let seen = unread.clone();
        let chunks = futures_util::stream::unfold(Some(response), move |response| {
            let seen = seen.clone();
            async move {
                let mut response = response?;
                match response.chunk().await {
                    Ok(Some(bytes)) => {
                        let now = seen.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len();
                        // One chunk may hold the end of one event and others; only what is far over is one.
                        if now > limit.saturating_add(bytes.len()) {
                            return Some((Err(Chunk::OverLimit), None));
                        }
                        Some((Ok::<Bytes, Chunk>(bytes), Some(response)))
                    }
                    Ok(None) => None,
                    Err(error) => Some((Err(Chunk::Lost(root_of(&error))), None)),
                }
            }
        });
        let stream = SseByteStream::new(Box::pin(chunks)).boxed();
        Self { stream, unread, limit, last_id: None, retry: None }
    }

    /// The next event with data; `None`: the stream has ended.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub(crate) async fn next(&mut self) -> Option<Result<Event, StreamError>> {
        loop {
            let event = match self.stream.next().await? {
                Ok(event) => event,
                Err(_) if self.unread.load(Ordering::Relaxed) > self.limit => {
                    return Some(Err(StreamError::TooLong(self.unread.load(Ordering::Relaxed))));
                }
                Err(error) => return Some(Err(StreamError::Broken(root_of(&error)))),
            };
            self.unread.store(0, Ordering::Relaxed);
            if let Some(retry) = event.retry {
                self.retry = Some(Duration::from_millis(retry).min(MAX_RETRY));
            }
            // The last-event-id of the standard: an empty id takes it back.
            if let Some(id) = event.id {
                self.last_id = Some(id).filter(|id| !id.is_empty());
            }
            if let Some(data) = event.data.filter(|data| !data.is_empty()) {
                return Some(Ok(Event { kind: event.event.unwrap_or_default(), data }));
            }
        }
    }
}
