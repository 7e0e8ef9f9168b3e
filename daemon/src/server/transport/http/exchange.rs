//! One message to the server and what comes back for it: JSON, a stream of events, or a refusal.
//!
//! Promise: everything the server says before the answer is heard before it; a request that is
//! refused for now is sent again only when the status proves that it was not executed; a stream that
//! breaks is taken up where it stopped if the server numbered its events. May not touch: who asked.

use super::answer::{self, Media};
use super::body::{self, BodyError};
use super::events::{Event, Events, StreamError};
use super::link::{Ask, Link, Login, SendError};
use super::names;
use crate::server::wire::inbound::{self, Body, Inbound};
use crate::server::wire::{Delivery, HttpRefusal, HttpSeen, WireStats};
use bytes::Bytes;
use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;
use tokio::time::Instant;
use url::Url;

/// Bytes of a refusal that are read.
const REFUSAL: usize = 64 * 1024;

/// Longest `Retry-After` that is waited for here; longer ones are told to the caller.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a request is sent again because the server asked to wait.
const REPEATS: u32 = 2;

/// How long a stream may stay open after the answer, so that its connection can be used again.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// Wait before a stream is taken up again, when the server does not say.
const RESUME_AFTER: Duration = Duration::from_millis(500);

/// Longest wait between tries to take a stream up again.
const RESUME_CAP: Duration = Duration::from_secs(15);

/// Bodies over this many bytes are parsed on the blocking pool.
const LARGE: usize = 256 * 1024;

/// Something heard from the server, in its order.
#[derive(Debug)]
pub(crate) enum Heard {
    /// The session that an `initialize` opened; `None`: the server keeps none.
    Session(Option<HeaderValue>),
    /// A message, and the request on whose answer it came.
    Message { from: Option<u64>, message: Inbound },
    /// A message over the limit.
    TooLong { from: Option<u64>, bytes: usize },
    /// Where a legacy server wants its messages.
    Endpoint(Url),
}

/// One message to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Post {
    /// The request's id; `None`: a notification or a reply.
    pub(crate) id: Option<u64>,
    pub(crate) ask: Ask,
    /// Whether its stream may be taken up again with a GET under the same headers.
    pub(crate) resume: Resume,
    /// Whether it opens a session.
    pub(crate) opens: Opens,
}

/// Whether a broken stream may be taken up again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resume {
    /// If the server numbered its events.
    Possible,
    /// The protocol has no such thing here.
    No,
}

/// Whether a request opens a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opens {
    /// `initialize`.
    Session,
    /// Any other message.
    Nothing,
}

/// How an exchange ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The answer was heard.
    Answered,
    /// Taken, without an answer.
    Accepted,
    /// The server does not know the session; the message was not executed.
    SessionGone,
    /// Refused, or answered by something that is no message.
    Refused(HttpRefusal),
    /// No answer for another reason.
    Failed(SendError),
}

/// Carries one message over and hears what comes back.
///
/// # Cancel safety
/// Dropping the future closes the exchange's connection.
pub(crate) async fn exchange(
    link: Arc<Link>,
    stats: Arc<WireStats>,
    post: Post,
    heard: mpsc::Sender<Heard>,
) -> Ended {
    let mut repeats = 0;
    let cx = Cx { link, stats, post, heard };
    loop {
        let response = match cx.link.send(&cx.post.ask).await {
            Ok(response) => response,
            Err(error) => return cx.failed(error),
        };
        if response.status().is_success() {
            return cx.succeeded(response).await;
        }
        match cx.refused(response).await {
            Ended::Refused(refusal)
                if repeats < REPEATS
                    && refusal.delivery == Delivery::NotWritten
                    && refusal.retry_after.is_some_and(|wait| wait <= PATIENCE) =>
            {
                repeats += 1;
                cx.post.ask.written.clear();
                tokio::time::sleep(refusal.retry_after.unwrap_or_default()).await;
            }
            ended => return ended,
        }
    }
}

struct Cx {
    link: Arc<Link>,
    stats: Arc<WireStats>,
    post: Post,
    heard: mpsc::Sender<Heard>,
}

/// Whether a stream gave the answer.
enum Streamed {
    Answered,
    /// It ended or broke before; how.
    Cut(String),
}

impl Cx {
    fn failed(&self, error: SendError) -> Ended {
        match error {
            SendError::Redirected { status, .. } => {
                let refusal = HttpRefusal {
                    status,
                    text: error.to_string(),
                    retry_after: None,
                    delivery: Delivery::NotWritten,
                };
                self.seen(&refusal);
                Ended::Refused(refusal)
            }
            SendError::NeedsAuth { .. }
            | SendError::Forbidden { .. }
            | SendError::Unreachable(_)
            | SendError::Broken(_) => Ended::Failed(error),
        }
    }

    async fn succeeded(&self, response: Response) -> Ended {
        if self.post.opens == Opens::Session {
            let session = response.headers().get(names::SESSION).cloned();
            self.tell(Heard::Session(session)).await;
        }
        let status = response.status().as_u16();
        match media(&response) {
            Media::Events => self.events(response).await,
            Media::Html => self.page(status, Media::Html, &body::beginning(response, REFUSAL).await),
            media => match body::whole(response, self.link.max_body).await {
                Ok(bytes) => self.whole(status, media, bytes).await,
                Err(error) => self.unread(error).await,
            },
        }
    }

    /// A body that is JSON, or should be.
    async fn whole(&self, status: u16, media: Media, bytes: Bytes) -> Ended {
        if bytes.iter().all(u8::is_ascii_whitespace) || self.post.id.is_none() {
            return Ended::Accepted;
        }
        if bytes.len() <= REFUSAL
            && self.post.ask.headers.contains_key(names::SESSION)
            && answer::session_is_gone(status, &String::from_utf8_lossy(&bytes))
        {
            return Ended::SessionGone;
        }
        let mut answered = false;
        let mut messages = 0;
        for message in read(bytes.clone()).await {
            if !matches!(message, Inbound::Noise(_)) {
                messages += 1;
                answered |= self.hear(message).await;
            }
        }
        let elsewhere = status == 202 || self.post.ask.to.is_some();
        if answered {
            Ended::Answered
        } else if elsewhere {
            // Many servers say "Accepted" in words.
            Ended::Accepted
        } else if messages > 0 {
            let text = "the answer to another request came back".to_owned();
            self.odd(status, text)
        } else {
            self.page(status, media, &String::from_utf8_lossy(&bytes[..bytes.len().min(REFUSAL)]))
        }
    }

    /// A successful answer that is no message.
    fn page(&self, status: u16, media: Media, text: &str) -> Ended {
        if self.post.id.is_none() {
            // Nothing was asked; what the server shows is its own affair.
            return Ended::Accepted;
        }
        let shown = answer::excerpt(media, text);
        self.odd(status, format!("{shown} in place of an MCP message"))
    }

    fn odd(&self, status: u16, text: String) -> Ended {
        let refusal = HttpRefusal { status, text, retry_after: None, delivery: Delivery::MaybeWritten };
        self.seen(&refusal);
        Ended::Refused(refusal)
    }

    async fn unread(&self, error: BodyError) -> Ended {
        match error {
            BodyError::TooLong(bytes) => {
                self.tell(Heard::TooLong { from: self.post.id, bytes }).await;
                Ended::Answered
            }
            BodyError::Broken(reason) => Ended::Failed(SendError::Broken(reason)),
        }
    }

    /// An answer with an error status.
    async fn refused(&self, response: Response) -> Ended {
        let status = response.status().as_u16();
        let media = media(&response);
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| answer::retry_after(value, SystemTime::now()));
        let text = body::beginning(response, REFUSAL).await;
        if self.post.ask.headers.contains_key(names::SESSION) && answer::session_is_gone(status, &text) {
            return Ended::SessionGone;
        }
        let refusal = HttpRefusal {
            status,
            text: answer::excerpt(media, &text),
            retry_after: retry_after.filter(|_| matches!(status, 429 | 503)),
            delivery: delivery(status, retry_after.is_some()),
        };
        self.seen(&refusal);
        // The server's own error says more than its status; what is only about traffic does not.
        if !matches!(status, 401 | 403 | 429 | 503)
            && let Some(id) = self.post.id
            && let Some(Inbound::Answer { id: named, null_id, body: body @ Body::Error(_) }) =
                inbound::read(text.as_bytes())
            && (named == Some(id) || null_id || named.is_none())
        {
            self.hear(Inbound::Answer { id: Some(id), null_id: false, body }).await;
            return Ended::Answered;
        }
        Ended::Refused(refusal)
    }

    /// Reads a stream until the answer, and takes it up again when it breaks before.
    async fn events(&self, response: Response) -> Ended {
        let mut events = Events::of(response, self.link.max_body);
        let mut wait = RESUME_AFTER;
        loop {
            let reason = match self.stream(&mut events).await {
                Streamed::Answered => return Ended::Answered,
                Streamed::Cut(reason) => reason,
            };
            if self.post.id.is_none() {
                return Ended::Accepted;
            }
            let Some(id) = events.last_id.clone().filter(|_| self.post.resume == Resume::Possible) else {
                return Ended::Failed(SendError::Broken(reason));
            };
            let headers = self.post.ask.headers.clone();
            let retry = events.retry;
            loop {
                tokio::time::sleep(retry.unwrap_or(wait)).await;
                wait = (wait * 2).min(RESUME_CAP);
                match self.resumed(headers.clone(), &id).await {
                    Ok(response) => {
                        events = Events::of(response, self.link.max_body);
                        events.last_id = Some(id);
                        events.retry = retry;
                        break;
                    }
                    // The server may be coming back; the request's own limits end this.
                    Err(Some(_)) => {}
                    Err(None) => return Ended::Failed(SendError::Broken(reason)),
                }
            }
        }
    }

    /// The rest of a stream. `Err(None)`: there is none, and there will be none.
    async fn resumed(&self, mut headers: HeaderMap, id: &str) -> Result<Response, Option<SendError>> {
        headers.insert(names::LAST_EVENT, HeaderValue::from_str(id).map_err(|_| None)?);
        let response =
            self.link.send(&Ask::get(headers, Login::Reported)).await.map_err(|error| match error {
                SendError::Unreachable(_) | SendError::Broken(_) => Some(error),
                SendError::Redirected { .. } | SendError::NeedsAuth { .. } | SendError::Forbidden { .. } => {
                    None
                }
            })?;
        match (response.status().as_u16(), media(&response)) {
            (200, Media::Events) => Ok(response),
            (status @ (408 | 429 | 500..), _) => Err(Some(SendError::Broken(format!("HTTP {status}")))),
            _ => Err(None),
        }
    }

    async fn stream(&self, events: &mut Events) -> Streamed {
        loop {
            let event = match events.next().await {
                Some(Ok(event)) => event,
                None => return Streamed::Cut("the event stream ended before the answer".to_owned()),
                Some(Err(StreamError::Broken(reason))) => return Streamed::Cut(reason),
                Some(Err(StreamError::TooLong(bytes))) => {
                    // Which message it was nobody knows; on this stream it most likely is the answer.
                    self.tell(Heard::TooLong { from: self.post.id, bytes }).await;
                    return Streamed::Answered;
                }
            };
            if self.event(event).await {
                // Without the end of the body the connection could not be used again.
                let _ = tokio::time::timeout(AFTERWARDS, self.rest(events)).await;
                return Streamed::Answered;
            }
        }
    }

    async fn rest(&self, events: &mut Events) {
        while let Some(Ok(event)) = events.next().await {
            self.event(event).await;
        }
    }

    /// Whether the event was the answer.
    async fn event(&self, event: Event) -> bool {
        let mut answered = false;
        for message in of_event(event).await {
            answered |= self.hear(message).await;
        }
        answered
    }

    /// Passes a message on; whether it is the answer to this request.
    async fn hear(&self, message: Inbound) -> bool {
        let message = match (message, self.post.id) {
            // On its own exchange an error without an id can only be about this request.
            (Inbound::Answer { id: None, null_id: true, body: body @ Body::Error(_) }, Some(own)) => {
                Inbound::Answer { id: Some(own), null_id: false, body }
            }
            (message, _) => message,
        };
        let answers = matches!(&message, Inbound::Answer { id, .. } if id.is_some() && *id == self.post.id);
        self.tell(Heard::Message { from: self.post.id, message }).await;
        answers
    }

    async fn tell(&self, heard: Heard) {
        // Closed: the connection ends, and with it everything that was to be heard.
        let _ = self.heard.send(heard).await;
    }

    fn seen(&self, refusal: &HttpRefusal) {
        let seen = HttpSeen { status: refusal.status, text: refusal.text.clone(), at: Instant::now() };
        *self.stats.http.lock().expect("nothing panics while holding it") = Some(seen);
    }
}

/// What an event says; events of other types than messages say nothing.
pub(crate) async fn of_event(event: Event) -> Vec<Inbound> {
    match event.kind.as_str() {
        "" | "message" => read(Bytes::from(event.data)).await,
        _ => Vec::new(),
    }
}

pub(crate) fn media(response: &Response) -> Media {
    Media::of(response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()))
}

/// Whether a request with this status may have been executed.
fn delivery(status: u16, names_a_time: bool) -> Delivery {
    match status {
        // A timeout at a gateway, and everything that went wrong inside.
        408 | 500..=502 | 504.. => Delivery::MaybeWritten,
        // Gateways use it for connections that broke half-way, but then they name no time.
        503 if !names_a_time => Delivery::MaybeWritten,
        _ => Delivery::NotWritten,
    }
}

/// The messages in a body; large ones are read on the blocking pool.
async fn read(bytes: Bytes) -> Vec<Inbound> {
    if bytes.len() > LARGE {
        // A panic while parsing one body costs that body only.
        return tokio::task::spawn_blocking(move || inbound::read_body(&bytes)).await.unwrap_or_default();
    }
    inbound::read_body(&bytes)
}
