//! One HTTP request to its response: the gate first, then the body, then the session.
//!
//! Owner: nobody; runs inside the task of its connection. Promise: nothing is read or done for a request that the
//! gate refuses; an answer that is there at once is JSON, anything else a stream of events. In a session a closed
//! response can be come back to and cancels nothing (MCP 2025-11-25); without one it cancels (2026-07-28).

use super::answer::{self, Body, KEEP_ALIVE, SESSION};
use super::gate;
use super::headers;
use super::keys::{Guest, Keys};
use super::posted::{self, Kind, Posted, Request as Asked};
use super::session::{Given, HttpSession, Reader};
use super::sessions::{NoSession, Sessions, SingleKind};
use super::single::{Said, Single};
use super::streams::Waits;
use crate::jsonrpc::era::{self, PER_REQUEST};
use crate::jsonrpc::reply::{INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, Reply};
use crate::server::transport::http::mirror;
use bytes::Bytes;
use futures_util::stream;
use hermes_proto::shim::framing::DEFAULT_MAX_LINE;
use hermes_proto::shim::hello::Only;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_LENGTH, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Longest body of a request in bytes; the same as a line of a shim.
pub const MAX_BODY: usize = DEFAULT_MAX_LINE;
/// Longest time for a body to come.
const BODY_TIME: Duration = Duration::from_secs(60);
/// Bodies over this many bytes need one of [`LARGE_PLACES`], and are parsed on the blocking pool.
const LARGE: usize = 256 << 10;
/// Large bodies at once.
const LARGE_PLACES: usize = 8;
/// An answer that is not there after so long comes as a stream, so that its client sees that somebody works on it.
const AT_ONCE: Duration = Duration::from_secs(2);
/// A quiet stream gets a comment so often.
const QUIET: Duration = Duration::from_secs(15);
/// From this revision on clients understand an event without a message.
const FIRST_EVENT_FROM: &str = "2025-11-25";

/// What answers all requests of one listener.
#[derive(Debug)]
pub struct Service {
    keys: Keys,
    sessions: Arc<Sessions>,
    large: Semaphore,
}

/// The response in place of the one that was wanted.
type Refused = Box<Response<Body>>;

impl Service {
    /// A listener with these keys.
    pub fn new(keys: Keys, sessions: Arc<Sessions>) -> Self {
        Self { keys, sessions, large: Semaphore::new(LARGE_PLACES) }
    }

    /// Answers one request.
    ///
    /// # Cancel safety
    /// Cancel safe: a line is handed to its session whole or not at all.
    pub async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        self.try_answer(request).await.unwrap_or_else(|refused| *refused)
    }

    async fn try_answer(&self, request: Request<Incoming>) -> Result<Response<Body>, Refused> {
        let guest = gate::check(request.headers(), &self.keys).map_err(|refusal| {
            let text = refusal.to_string();
            tracing::debug!(reason = text, "refused a request over HTTP");
            Box::new(match refusal.status() {
                StatusCode::UNAUTHORIZED => answer::unauthorized(&text),
                status => answer::refused(status, &text),
            })
        })?;
        if request.uri().path() != super::PATH {
            return Err(refused(StatusCode::NOT_FOUND, "the MCP endpoint is /mcp"));
        }
        match *request.method() {
            Method::POST => self.post(request, &guest).await,
            Method::GET => self.listen(request.headers(), &guest),
            Method::DELETE => self.end(request.headers(), &guest),
            _ => Err(Box::new(answer::not_allowed("POST, GET, DELETE", "use POST, GET or DELETE"))),
        }
    }

    async fn post(&self, request: Request<Incoming>, guest: &Guest) -> Result<Response<Body>, Refused> {
        let (parts, body) = request.into_parts();
        let headers = &parts.headers;
        if !headers::is_json(headers) {
            return Err(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json"));
        }
        if !headers::accepts(headers, "application/json") || !headers::accepts(headers, "text/event-stream") {
            let text = "Accept must have application/json and text/event-stream";
            return Err(refused(StatusCode::NOT_ACCEPTABLE, text));
        }
        let posted = self.read(headers, body).await?;
        match posted.kind {
            Kind::Request(asked) if headers::is_per_request(headers, &asked) => {
                self.single(headers, guest, *asked, posted.line).await
            }
            Kind::Request(asked) if &*asked.method == "initialize" => {
                self.initialize(guest, &asked, posted.line).await
            }
            // The revisions without a handshake have no notifications that a client sends this way.
            Kind::Silent if headers::revision(headers) == Some(PER_REQUEST) => {
                Ok(answer::empty(StatusCode::ACCEPTED))
            }
            Kind::Batch(_) if headers::revision(headers) == Some(PER_REQUEST) => {
                Err(refused(StatusCode::BAD_REQUEST, "send one message in each POST"))
            }
            Kind::Silent => {
                let session = self.session(headers, guest)?;
                session.send(posted.line).await.map_err(|_| unknown_session())?;
                Ok(answer::empty(StatusCode::ACCEPTED))
            }
            Kind::Request(asked) => {
                let session = self.session(headers, guest)?;
                ask(&session, headers, &[&asked], Form::Single, posted.line).await
            }
            Kind::Batch(all) => {
                let session = self.session(headers, guest)?;
                let all: Vec<&Asked> = all.iter().collect();
                ask(&session, headers, &all, Form::Batch, posted.line).await
            }
        }
    }

    /// The whole body, and what it is.
    async fn read(&self, headers: &HeaderMap, body: Incoming) -> Result<Posted, Refused> {
        let too_large = || {
            let text = format!("the body has more than {MAX_BODY} bytes");
            refused(StatusCode::PAYLOAD_TOO_LARGE, &text)
        };
        let said = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if said.is_some_and(|bytes| bytes > MAX_BODY as u64) {
            return Err(too_large());
        }
        let may_be_large = body.size_hint().exact().is_none_or(|bytes| bytes > LARGE as u64);
        let _place = if may_be_large {
            Some(self.large.acquire().await.expect("nobody closes the semaphore"))
        } else {
            None
        };
        let collected = tokio::time::timeout(BODY_TIME, Limited::new(body, MAX_BODY).collect()).await;
        let body = match collected {
            Err(_) => return Err(refused(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large()),
            Ok(Err(_)) => return Err(refused(StatusCode::BAD_REQUEST, "the body is not whole")),
            Ok(Ok(body)) => body.to_bytes(),
        };
        let read = if body.len() > LARGE {
            let work = tokio::task::spawn_blocking(move || posted::read(&body));
            work.await.expect("reading a body does not panic")
        } else {
            posted::read(&body)
        };
        read.map_err(|line| Box::new(answer::json(StatusCode::BAD_REQUEST, line.into())))
    }

    fn session(&self, headers: &HeaderMap, guest: &Guest) -> Result<Arc<HttpSession>, Refused> {
        headers::of_session(headers).map_err(|text| refused(StatusCode::BAD_REQUEST, &text))?;
        let mut ids = headers.get_all(SESSION).iter();
        let (Some(id), None) = (ids.next(), ids.next()) else {
            let text = "one Mcp-Session-Id is needed; send initialize first, or name the revision in `_meta`";
            return Err(refused(StatusCode::BAD_REQUEST, text));
        };
        id.to_str().ok().and_then(|id| self.sessions.find(id, guest)).ok_or_else(unknown_session)
    }

    async fn initialize(
        &self,
        guest: &Guest,
        asked: &Asked,
        line: Vec<u8>,
    ) -> Result<Response<Body>, Refused> {
        let session = self.sessions.begin(guest).map_err(|error| no_session(&error))?;
        let mut response = ask(&session, &HeaderMap::new(), &[asked], Form::Single, line).await?;
        let id = HeaderValue::from_str(&session.id).expect("hexadecimal digits are a header value");
        response.headers_mut().insert(SESSION, id);
        Ok(response)
    }

    /// GET: the general stream, or one to go on with.
    fn listen(&self, headers: &HeaderMap, guest: &Guest) -> Result<Response<Body>, Refused> {
        if headers::revision(headers) == Some(PER_REQUEST) {
            return Err(Box::new(answer::not_allowed(
                "POST",
                "this revision has subscriptions/listen in place of GET",
            )));
        }
        if !headers::accepts(headers, "text/event-stream") {
            return Err(refused(StatusCode::NOT_ACCEPTABLE, "Accept must have text/event-stream"));
        }
        let session = self.session(headers, guest)?;
        let reader = match headers.get("last-event-id") {
            Some(last) => {
                let place = last.to_str().ok().and_then(answer::event_id);
                let reader = place.and_then(|(stream, number)| session.resume(stream, number));
                reader.ok_or_else(|| {
                    refused(StatusCode::BAD_REQUEST, "what followed this event is not kept any more")
                })?
            }
            None => session.general().ok_or_else(|| {
                refused(
                    StatusCode::CONFLICT,
                    "another GET of this session is open; one reader gets each message",
                )
            })?,
        };
        let first = headers.get("last-event-id").is_none().then(|| reader.event_id(0));
        let first = first.filter(|_| takes_first_event(headers)).map(|id| answer::first_event(&id));
        Ok(answer::events(session_events(first.into_iter().collect(), reader)))
    }

    /// DELETE: the client is done.
    fn end(&self, headers: &HeaderMap, guest: &Guest) -> Result<Response<Body>, Refused> {
        if headers::revision(headers) == Some(PER_REQUEST) {
            return Err(Box::new(answer::not_allowed("POST", "this revision has no sessions")));
        }
        self.session(headers, guest)?.end();
        Ok(answer::empty(StatusCode::NO_CONTENT))
    }

    /// A request that needs no session.
    async fn single(
        &self,
        headers: &HeaderMap,
        guest: &Guest,
        asked: Asked,
        line: Vec<u8>,
    ) -> Result<Response<Body>, Refused> {
        let arguments = self.wanted_in_headers(guest, &asked);
        headers::check(headers, &asked, &arguments).map_err(|reply| {
            Box::new(answer::json(StatusCode::BAD_REQUEST, reply.line(asked.id.raw()).into()))
        })?;
        if &*asked.method == "initialize" {
            // On one connection that line may begin a session of the other era; here the headers said which it is.
            let text = format!("`initialize` is no method of {PER_REQUEST}; ask `server/discover`");
            let line = Reply::error(METHOD_NOT_FOUND, &text).line(asked.id.raw());
            return Err(Box::new(answer::json(StatusCode::NOT_FOUND, line.into())));
        }
        let kind =
            if &*asked.method == "subscriptions/listen" { SingleKind::Stream } else { SingleKind::Call };
        let socket =
            self.sessions.single(guest, &asked.said.who, kind).map_err(|error| no_session(&error))?;
        let gone = || Box::new(answer::json(StatusCode::SERVICE_UNAVAILABLE, lost(asked.id.raw())));
        let mut single = Single::send(socket, line).await.map_err(|_| gone())?;
        match tokio::time::timeout(AT_ONCE, single.next()).await {
            Ok(None) => Err(gone()),
            Ok(Some(Said { line, last: true })) => Ok(answer::json(headers::status(&line), line)),
            Ok(Some(Said { line, last: false })) => Ok(answer::events(single_events(Some(line), single))),
            Err(_) => Ok(answer::events(single_events(None, single))),
        }
    }

    /// The arguments that the tool wants in headers too, by the schema its server wrote.
    fn wanted_in_headers(&self, guest: &Guest, asked: &Asked) -> Vec<(String, Option<Value>)> {
        let Some(name) = asked.name.as_deref().filter(|_| &*asked.method == "tools/call") else {
            return Vec::new();
        };
        let view = self.sessions.shared().catalog.borrow().view(&guest.profile, Only::All);
        let Some(schema) = view.tool(name).and_then(|tool| tool.schema.clone()) else { return Vec::new() };
        let mirrored = mirror::of_schema(&schema);
        if mirrored.is_empty() {
            return Vec::new();
        }
        let arguments = asked.arguments.as_deref().map(|raw| serde_json::from_str(raw.get()));
        let arguments: Value = arguments.and_then(Result::ok).unwrap_or_default();
        let at = |path: &[String]| path.iter().try_fold(&arguments, |value, key| value.get(key)).cloned();
        mirrored.iter().map(|one| (one.header.as_str().to_owned(), at(&one.path))).collect()
    }
}

/// How requests came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Single,
    Batch,
}

/// Hands requests to a session and waits for what comes first.
async fn ask(
    session: &Arc<HttpSession>,
    headers: &HeaderMap,
    all: &[&Asked],
    form: Form,
    line: Vec<u8>,
) -> Result<Response<Body>, Refused> {
    let waits = Waits {
        ids: all.iter().map(|asked| asked.id.key().clone()).collect(),
        tokens: all.iter().filter_map(|asked| asked.token.clone()).collect(),
        may_ask: all.iter().any(|asked| asked.may_be_asked_about()),
        batch: form == Form::Batch,
    };
    let raw_id = all.first().map_or("null", |asked| asked.id.raw());
    let mut reader = session.open(waits).map_err(|same| {
        let reply = Reply::error(INVALID_REQUEST, &same.to_string());
        Box::new(answer::json(StatusCode::BAD_REQUEST, reply.line(raw_id).into()))
    })?;
    session.send(line).await.map_err(|_| unknown_session())?;
    let first = tokio::time::timeout(AT_ONCE, reader.next()).await;
    let opening = takes_first_event(headers).then(|| answer::first_event(&reader.event_id(0)));
    let given = match first {
        Ok(Some(Given { line, last: true, .. })) => {
            reader.close();
            return Ok(answer::json(StatusCode::OK, line));
        }
        Ok(None) => return Ok(answer::json(StatusCode::OK, lost(raw_id))),
        Ok(Some(given)) => Some(answer::event(Some(&given.id), &given.line)),
        Err(_) => None,
    };
    Ok(answer::events(session_events(opening.into_iter().chain(given).collect(), reader)))
}

/// `first`, then everything that `reader` reads.
fn session_events(first: Vec<Bytes>, reader: Reader) -> impl stream::Stream<Item = Bytes> + Send {
    stream::unfold((first.into_iter(), reader, false), |(mut first, mut reader, over)| async move {
        if let Some(bytes) = first.next() {
            return Some((bytes, (first, reader, over)));
        }
        if over {
            return None;
        }
        match tokio::time::timeout(QUIET, reader.next()).await {
            Err(_) => Some((Bytes::from_static(KEEP_ALIVE), (first, reader, false))),
            Ok(None) => None,
            Ok(Some(Given { id, line, last })) => {
                Some((answer::event(Some(&id), &line), (first, reader, last)))
            }
        }
    })
}

fn single_events(first: Option<Bytes>, single: Single) -> impl stream::Stream<Item = Bytes> + Send {
    stream::unfold((first, single), |(first, mut single)| async move {
        if let Some(line) = first {
            return Some((answer::event(None, &line), (None, single)));
        }
        match tokio::time::timeout(QUIET, single.next()).await {
            Err(_) => Some((Bytes::from_static(KEEP_ALIVE), (None, single))),
            Ok(said) => said.map(|said| (answer::event(None, &said.line), (None, single))),
        }
    })
}

fn takes_first_event(headers: &HeaderMap) -> bool {
    headers::revision(headers).and_then(era::known).is_some_and(|revision| revision >= FIRST_EVENT_FROM)
}

fn refused(status: StatusCode, text: &str) -> Refused {
    Box::new(answer::refused(status, text))
}

fn unknown_session() -> Refused {
    refused(StatusCode::NOT_FOUND, "there is no such session (any more); send initialize again")
}

fn no_session(error: &NoSession) -> Refused {
    let status = match error {
        NoSession::Busy { .. } | NoSession::Socket(_) => StatusCode::SERVICE_UNAVAILABLE,
        NoSession::NoProfile { .. } => StatusCode::FORBIDDEN,
    };
    refused(status, &error.to_string())
}

/// The answer when the session ended first.
fn lost(raw_id: &str) -> Bytes {
    let text = "the session ended before the answer; the outcome of the request is unknown";
    Reply::error(INTERNAL_ERROR, text).line(raw_id).into()
}
