//! The session that a remote server keeps, and how it is opened anew when the server lost it.
//!
//! Promise: requests that meet a lost session cause one `initialize` for all of them; a server that
//! loses every session at once is not asked for ever.

use super::super::inbound::{Body, Inbound};
use super::super::lines::{notification_line, per_request_line, request_line};
use super::flight::header;
use super::wishes::Wishes;
use super::{EndReason, RemoteWire};
use crate::jsonrpc::era::{self, Era};
use crate::jsonrpc::splice::Members;
use crate::server::transport::http::body::Written;
use crate::server::transport::http::exchange::{Ended, Heard, Opens, Post, Resume, exchange};
use crate::server::transport::http::link::{Ask, Link, Login, SendError};
use crate::server::transport::http::mirror::Mirror;
use crate::server::transport::http::names;
use crate::server::wire::{Fact, WireStats};
use bytes::Bytes;
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Time to open a session anew.
const RENEWAL: Duration = Duration::from_secs(30);

/// Time for the server to hear that the session is over.
const FAREWELL: Duration = Duration::from_secs(2);

/// The id of what the connection asks for itself; ids of requests begin at 1.
const OWN_ID: u64 = 0;

const LISTEN: &str = "subscriptions/listen";

/// Whether requests may be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// Yes.
    Open,
    /// `notifications/initialized` is on its way.
    Initialized,
    /// The session is being opened anew.
    Renewing,
}

/// What was agreed with the server and what it calls the session.
#[derive(Debug, Default)]
pub(super) struct Session {
    id: Option<HeaderValue>,
    /// Counts sessions.
    epoch: u32,
    agreed: Option<(&'static str, Era)>,
    /// Params of `initialize`, for the next time.
    opening: Option<Box<RawValue>>,
    /// Sessions opened anew since a request was last answered.
    pub(super) fruitless: u32,
    /// Arguments that servers want in headers.
    pub(super) mirror: Mirror,
    /// What a server without handshake is to tell on its own.
    pub(super) wishes: Wishes,
}

/// A session that was opened anew.
#[derive(Debug)]
pub(super) struct Renewed {
    id: Option<HeaderValue>,
    revision: Option<&'static str>,
}

impl Session {
    /// `initialize` is about to be sent.
    pub(super) fn begin(&mut self, params: Option<&RawValue>) {
        (self.id, self.agreed) = (None, None);
        self.opening = params.map(ToOwned::to_owned);
    }

    pub(super) fn opened(&mut self, id: Option<HeaderValue>) {
        self.id = id;
    }

    pub(super) fn agreed(&mut self, revision: &'static str, era: Era) {
        self.agreed = Some((revision, era));
    }

    pub(super) fn era(&self) -> Era {
        self.agreed.map_or(Era::Initialize, |(_, era)| era)
    }

    pub(super) fn revision(&self) -> &'static str {
        self.agreed.map_or(era::LATEST_INITIALIZE, |(revision, _)| revision)
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(super) fn has_id(&self) -> bool {
        self.id.is_some()
    }

    /// Headers of every message in this session.
    pub(super) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some((revision, era)) = self.agreed {
            headers.extend(header(names::REVISION, revision));
            if let (Era::Initialize, Some(id)) = (era, &self.id) {
                headers.insert(names::SESSION, id.clone());
            }
        } else if let Some(id) = &self.id {
            headers.insert(names::SESSION, id.clone());
        }
        headers
    }

    /// Whether a broken stream may be taken up again.
    pub(super) fn may_resume(&self) -> bool {
        self.agreed.is_some_and(|(_, era)| era == Era::Initialize)
    }

    /// Whether a request that is given up is cancelled by a message.
    pub(super) fn is_told_of_cancellations(&self) -> bool {
        self.era() == Era::Initialize
    }
}

impl RemoteWire {
    /// Takes note of what the server offers news about.
    pub(super) fn discovered(&mut self, discovery: &RawValue) {
        self.session.wishes.discovered(discovery);
    }

    /// The request whose answer is the stream of what the server says on its own.
    pub(super) fn news(&self) -> Option<Ask> {
        let headers = self.session.headers();
        match self.session.era() {
            Era::Initialize => Some(Ask::get(headers, Login::Reported)),
            Era::PerRequest => {
                let params = self.session.wishes.listen()?;
                let line = per_request_line(OWN_ID, LISTEN, Some(&params), self.session.revision());
                let mut ask = Ask::post(Bytes::from(line), headers, Written::default());
                ask.headers.insert(names::METHOD, names::value(LISTEN));
                Some(Ask { login: Login::Reported, ..ask })
            }
        }
    }

    /// Opens the session anew, once for everybody who waits.
    pub(super) fn renew(&mut self) {
        if self.renewal.is_some() {
            return;
        }
        self.gate = Gate::Renewing;
        self.listening.set(None);
        let line = request_line(OWN_ID, "initialize", self.session.opening.as_deref(), false);
        let renewal = renew(self.remote.link.clone(), self.core.stats.clone(), Bytes::from(line));
        self.renewal = Some(Box::pin(async move {
            tokio::time::timeout(RENEWAL, renewal)
                .await
                .unwrap_or_else(|_| Err(lost(format!("no answer to initialize within {RENEWAL:?}"))))
        }));
    }

    pub(super) fn renewed(&mut self, renewed: Renewed) {
        tracing::info!(
            at = self.remote.link.shown(),
            "the server had forgotten the session; a new one is open"
        );
        self.session.epoch += 1;
        self.session.fruitless += 1;
        self.session.opened(renewed.id);
        if let Some(revision) = renewed.revision {
            self.session.agreed(revision, Era::Initialize);
        }
        self.gate = Gate::Open;
        self.core.fact(Fact::SessionRenewed);
        self.release();
        self.listen();
    }
}

async fn renew(link: Arc<Link>, stats: Arc<WireStats>, line: Bytes) -> Result<Renewed, EndReason> {
    let (heard_in, mut heard) = mpsc::channel(16);
    let ask = Ask::post(line, HeaderMap::new(), Written::default());
    let post = Post { id: Some(OWN_ID), ask, resume: Resume::No, opens: Opens::Session };
    let opening = exchange(link.clone(), stats.clone(), post, heard_in);
    tokio::pin!(opening);
    let mut renewed = Renewed { id: None, revision: None };
    let mut answered = false;
    let mut note = |heard: Heard, answered: &mut bool| match heard {
        Heard::Session(id) => renewed.id = id,
        Heard::Message {
            message: Inbound::Answer { id: Some(OWN_ID), body: Body::Result(result), .. },
            ..
        } => {
            let offered = Members::parse(&result).ok();
            renewed.revision = offered.and_then(|members| era::known(&members.text("protocolVersion")?));
            *answered = true;
        }
        Heard::Message { .. } | Heard::TooLong { .. } | Heard::Endpoint(_) => {}
    };
    let ended = loop {
        tokio::select! {
            biased;
            Some(heard) = heard.recv() => note(heard, &mut answered),
            ended = &mut opening => break ended,
        }
    };
    while let Ok(heard) = heard.try_recv() {
        note(heard, &mut answered);
    }
    match ended {
        Ended::Answered if answered => {}
        Ended::Failed(SendError::NeedsAuth { action } | SendError::Forbidden { action }) => {
            return Err(EndReason::NeedsAuth(action));
        }
        Ended::Failed(error) => return Err(lost(error.to_string())),
        Ended::Refused(refusal) => return Err(lost(refusal.to_string())),
        Ended::Answered | Ended::Accepted | Ended::SessionGone => {
            return Err(lost("initialize was not answered with a result".to_owned()));
        }
    }
    let mut headers = HeaderMap::new();
    headers.extend(renewed.id.clone().map(|id| (names::SESSION, id)));
    headers.extend(renewed.revision.and_then(|revision| header(names::REVISION, revision)));
    let ask = Ask::post(
        Bytes::from(notification_line("notifications/initialized", None)),
        headers,
        Written::default(),
    );
    let (quiet, _) = mpsc::channel(1);
    // Whatever it says: the requests that follow will show whether the session is good.
    exchange(link, stats, Post { id: None, ask, resume: Resume::No, opens: Opens::Nothing }, quiet).await;
    Ok(renewed)
}

fn lost(reason: String) -> EndReason {
    EndReason::Io(format!("the server lost the session and opened no other: {reason}"))
}

/// Tells the server that the session is over. Any answer is good, and so is none.
pub(super) async fn close(link: &Link, headers: HeaderMap) {
    let ask = Ask { method: Method::DELETE, ..Ask::get(headers, Login::Reported) };
    let _ = tokio::time::timeout(FAREWELL, link.send(&ask)).await;
}
