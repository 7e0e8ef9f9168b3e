//! Requests on their way: what is kept of each, and how they are sent and held back.

use super::super::inbound::{Body, Inbound};
use super::super::lines::{line_with_hole, notification_line, per_request_line, request_line};
use super::RemoteWire;
use super::session::Gate;
use crate::jsonrpc::era::Era;
use crate::jsonrpc::splice::Members;
use crate::server::transport::http::body::Written;
use crate::server::transport::http::exchange::{Ended, Opens, Post, Resume, exchange};
use crate::server::transport::http::link::{Ask, SendError};
use crate::server::transport::http::names;
use crate::server::wire::HttpRefusal;
use bytes::Bytes;
use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::FuturesUnordered;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::time::Duration;
use url::Url;

/// Time for a message that has no answer to be taken.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);

/// Exchanges under way; replies to the server's own questions are dropped beyond it.
const REPLIES: usize = 64;

pub(super) type Flights = FuturesUnordered<BoxFuture<'static, (Ticket, Ended)>>;

/// Which exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ticket {
    /// A request, and the session it was sent in.
    Request { id: u64, epoch: u32 },
    /// `notifications/initialized`.
    Initialized,
    /// Another message without an answer.
    Other,
}

/// One request that has no outcome yet.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) method: Cow<'static, str>,
    pub(super) line: Bytes,
    /// Headers about this request.
    pub(super) about: HeaderMap,
    pub(super) written: Written,
    /// How often it was sent again after its session was gone.
    pub(super) resent: u32,
    abort: Option<AbortHandle>,
}

impl Open {
    /// Closes its connection.
    pub(super) fn abort(&self) {
        if let Some(abort) = &self.abort {
            abort.abort();
        }
    }
}

/// Which transport is spoken.
#[derive(Debug)]
pub(super) enum Mode {
    Streamable,
    /// HTTP+SSE; `endpoint` once the server has named it, `instead_of` the refusal that led here.
    Legacy {
        endpoint: Option<Url>,
        instead_of: Option<HttpRefusal>,
    },
}

impl Mode {
    pub(super) fn legacy(instead_of: Option<HttpRefusal>) -> Self {
        Self::Legacy { endpoint: None, instead_of }
    }

    pub(super) fn endpoint(&mut self, url: Url) {
        if let Self::Legacy { endpoint, .. } = self {
            *endpoint = Some(url);
        }
    }

    /// Whether messages can be sent.
    fn is_open(&self) -> bool {
        match self {
            Self::Streamable => true,
            Self::Legacy { endpoint, .. } => endpoint.is_some(),
        }
    }

    fn target(&self) -> Option<Url> {
        match self {
            Self::Streamable => None,
            Self::Legacy { endpoint, .. } => endpoint.clone(),
        }
    }
}

impl RemoteWire {
    /// Takes a request in and sends it as soon as the gate allows.
    pub(super) fn accept(
        &mut self,
        id: u64,
        method: Cow<'static, str>,
        params: Option<Box<RawValue>>,
        hole: Option<usize>,
    ) {
        let opens = method == "initialize";
        if opens {
            self.session.begin(params.as_deref());
        }
        let line = match (self.session.era(), &params, hole) {
            (Era::Initialize, Some(params), Some(hole)) => line_with_hole(id, &method, params, hole),
            (Era::Initialize, ..) => request_line(id, &method, params.as_deref(), !opens),
            (Era::PerRequest, ..) => {
                let levelled = self.session.wishes.with_level(&method, params.as_deref());
                let params = levelled.as_deref().or(params.as_deref());
                per_request_line(id, &method, params, self.session.revision())
            }
        };
        let about = match self.session.era() {
            Era::Initialize => HeaderMap::new(),
            Era::PerRequest => self.about(&method, params.as_deref()),
        };
        let line = Bytes::from(line);
        self.bytes += line.len();
        self.open
            .insert(id, Open { method, line, about, written: Written::default(), resent: 0, abort: None });
        if self.mode.is_open() && (opens || self.gate == Gate::Open) {
            self.launch(id)
        } else {
            self.held.push(id)
        }
    }

    /// The headers that say what a request is about (2026-07-28).
    fn about(&self, method: &str, params: Option<&RawValue>) -> HeaderMap {
        let mut headers = HeaderMap::from_iter([(names::METHOD, names::value(method))]);
        let members = params.and_then(|params| Members::parse(params).ok()).unwrap_or_default();
        let named = match method {
            "tools/call" | "prompts/get" => members.text("name"),
            "resources/read" => members.text("uri"),
            _ => None,
        };
        if let Some(name) = &named {
            headers.insert(names::NAME, names::value(name));
        }
        if let (Some(tool), Some(arguments), "tools/call") = (&named, members.get("arguments"), method) {
            headers.extend(self.session.mirror.headers(tool, arguments));
        }
        headers
    }

    /// Sends request `id`.
    pub(super) fn launch(&mut self, id: u64) {
        let Some(open) = self.open.get(&id) else { return };
        let opens = if open.method == "initialize" { Opens::Session } else { Opens::Nothing };
        let mut headers = match opens {
            Opens::Session => HeaderMap::new(),
            Opens::Nothing => self.session.headers(),
        };
        headers.extend(open.about.clone());
        let resume = match opens {
            Opens::Nothing if self.session.may_resume() => Resume::Possible,
            Opens::Nothing | Opens::Session => Resume::No,
        };
        let ask =
            Ask { to: self.mode.target(), ..Ask::post(open.line.clone(), headers, open.written.clone()) };
        let post = Post { id: Some(id), ask, resume, opens };
        let ticket = Ticket::Request { id, epoch: self.session.epoch() };
        let flight = exchange(self.remote.link.clone(), self.core.stats.clone(), post, self.heard_in.clone());
        let (abort, registration) = AbortHandle::new_pair();
        self.flights.push(Box::pin(async move {
            // Given up: whoever did that has settled everything.
            let ended = Abortable::new(flight, registration).await.unwrap_or(Ended::Answered);
            (ticket, ended)
        }));
        if let Some(open) = self.open.get_mut(&id) {
            open.abort = Some(abort);
        }
    }

    /// Sends what was held back, in its order.
    pub(super) fn release(&mut self) {
        if !self.mode.is_open() || self.gate != Gate::Open {
            return;
        }
        for id in std::mem::take(&mut self.held) {
            self.launch(id);
        }
    }

    pub(super) fn notify(&mut self, method: &str, params: Option<&RawValue>) {
        if self.session.era() == Era::PerRequest {
            // The protocol has none on HTTP.
            return;
        }
        let ticket = if method == "notifications/initialized" {
            // Until it has arrived a strict server refuses everything else.
            self.gate = Gate::Initialized;
            Ticket::Initialized
        } else {
            Ticket::Other
        };
        self.tell(ticket, notification_line(method, params));
    }

    /// Answers a question of the server; dropped when it asks faster than it takes answers.
    pub(super) fn reply(&mut self, line: Vec<u8>) {
        if self.flights.len() < self.open.len() + REPLIES {
            self.tell(Ticket::Other, line);
        }
    }

    fn tell(&mut self, ticket: Ticket, line: Vec<u8>) {
        let written = Written::default();
        let headers = self.session.headers();
        let ask = Ask { to: self.mode.target(), ..Ask::post(Bytes::from(line), headers, written) };
        let post = Post { id: None, ask, resume: Resume::No, opens: Opens::Nothing };
        let flight = exchange(self.remote.link.clone(), self.core.stats.clone(), post, self.heard_in.clone());
        self.flights.push(Box::pin(async move {
            let late = Ended::Failed(SendError::Broken("not taken in time".to_owned()));
            (ticket, tokio::time::timeout(TAKEN_WITHIN, flight).await.unwrap_or(late))
        }));
    }

    /// Looks at an answer before it is passed on: which tools want their arguments in headers.
    pub(super) fn learn(&mut self, from: Option<u64>, message: &Inbound) {
        if self.session.era() != Era::PerRequest {
            return;
        }
        let Inbound::Answer { body: Body::Result(result), .. } = message else { return };
        match from.and_then(|id| self.open.get(&id)).map(|open| open.method.as_ref()) {
            Some("tools/list") => self.session.mirror.learn(result),
            Some("server/discover") => self.discovered(result),
            _ => {}
        }
    }
}

/// One header.
pub(super) fn header(name: HeaderName, value: &str) -> Option<(HeaderName, HeaderValue)> {
    HeaderValue::from_str(value).ok().map(|value| (name, value))
}
