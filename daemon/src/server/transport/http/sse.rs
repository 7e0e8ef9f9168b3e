//! Legacy HTTP+SSE (2024-11-05): one stream that everything comes back on.
//!
//! Promise: messages go only to an endpoint of the server's own origin; the end of the stream is the
//! end of the session and is said with its reason. May not touch: requests.

use super::answer::{self, Media};
use super::body;
use super::events::{Events, StreamError};
use super::exchange::{Heard, media, of_event};
use super::link::{Ask, Link, Login, SendError, shown};
use crate::server::wire::{Delivery, HttpRefusal};
use reqwest::header::HeaderMap;
use std::sync::Arc;
use tokio::sync::mpsc;
use url::Url;

/// Bytes of a refusal that are read.
const REFUSAL: usize = 64 * 1024;

/// Why the stream is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// The server does not offer one.
    Refused(HttpRefusal),
    /// It could not be opened.
    Failed(SendError),
    /// It was there and ended.
    Ended(String),
}

/// Opens the stream and passes on what is heard until it ends.
///
/// # Cancel safety
/// Dropping the future closes the stream.
pub(crate) async fn stream(link: Arc<Link>, heard: mpsc::Sender<Heard>) -> StreamEnd {
    let response = match link.send(&Ask::get(HeaderMap::new(), Login::Decides)).await {
        Ok(response) => response,
        Err(SendError::Redirected { status, target, advice }) => {
            let text = SendError::Redirected { status, target, advice }.to_string();
            return refused(status, text);
        }
        Err(error) => return StreamEnd::Failed(error),
    };
    let (status, kind) = (response.status().as_u16(), media(&response));
    if !response.status().is_success() || kind != Media::Events {
        let text = body::beginning(response, REFUSAL).await;
        let shown = answer::excerpt(kind, &text);
        return refused(status, format!("{shown} in place of an event stream"));
    }
    let base = response.url().clone();
    let mut events = Events::of(response, link.max_body);
    let mut endpoint = false;
    loop {
        let event = match events.next().await {
            Some(Ok(event)) => event,
            None => return StreamEnd::Ended("the server ended the event stream".to_owned()),
            Some(Err(StreamError::Broken(reason))) => {
                return StreamEnd::Ended(format!("the event stream broke: {reason}"));
            }
            Some(Err(StreamError::TooLong(bytes))) => {
                let _ = heard.send(Heard::TooLong { from: None, bytes }).await;
                return StreamEnd::Ended(format!("an event of {bytes} bytes is over the limit"));
            }
        };
        if event.kind == "endpoint" {
            // Only the first one counts: a later one would move a session that is under way.
            if !endpoint {
                match endpoint_of(&base, event.data.trim(), &link) {
                    Ok(url) => {
                        endpoint = true;
                        let _ = heard.send(Heard::Endpoint(url)).await;
                    }
                    Err(reason) => return StreamEnd::Ended(reason),
                }
            }
            continue;
        }
        for message in of_event(event).await {
            if heard.send(Heard::Message { from: None, message }).await.is_err() {
                return StreamEnd::Ended("the connection was closed".to_owned());
            }
        }
    }
}

fn refused(status: u16, text: String) -> StreamEnd {
    StreamEnd::Refused(HttpRefusal { status, text, retry_after: None, delivery: Delivery::NotWritten })
}

/// The address of the endpoint: absolute, a path, or only a query.
fn endpoint_of(base: &Url, named: &str, link: &Link) -> Result<Url, String> {
    let url = base.join(named).map_err(|_| "the server names an endpoint that is no address".to_owned())?;
    if link.owns(&url) && matches!(url.scheme(), "http" | "https") {
        Ok(url)
    } else {
        Err(format!(
            "the server names an endpoint at another origin ({}); nothing is sent there",
            shown(&url)
        ))
    }
}
