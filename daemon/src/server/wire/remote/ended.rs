//! What the end of an exchange means for its request and for the connection.

use super::super::{EndReason, HttpRefusal, WireError};
use super::RemoteWire;
use super::flight::{Mode, Ticket};
use super::session::Gate;
use crate::config::RemoteKind;
use crate::jsonrpc::era::Era;
use crate::server::transport::http::exchange::Ended;
use crate::server::transport::http::link::SendError;
use crate::server::transport::http::sse::StreamEnd;
use crate::server::wire::Delivery;

/// How often one request is sent again because its session was gone.
const RESENDS: u32 = 8;

/// Sessions opened in a row that did not last for one answer.
const FRUITLESS: u32 = 2;

impl RemoteWire {
    pub(super) fn ended(&mut self, ticket: Ticket, ended: Ended) {
        match ticket {
            Ticket::Request { id, epoch } => self.request_ended(id, epoch, ended),
            Ticket::Initialized => {
                if self.gate == Gate::Initialized {
                    self.gate = Gate::Open;
                }
                self.release();
                self.listen();
            }
            Ticket::Other => {}
        }
    }

    fn request_ended(&mut self, id: u64, epoch: u32, ended: Ended) {
        let Some(open) = self.open.get_mut(&id) else { return };
        match ended {
            Ended::Answered => {
                self.session.fruitless = 0;
                if open.method == "initialize" && self.remote.kind == RemoteKind::Auto {
                    (self.remote.learned)(RemoteKind::Streamable);
                }
                let discovered = open.method == "server/discover";
                self.finish_with(id, Err(WireError::Malformed));
                if discovered {
                    self.listen();
                }
            }
            // The answer comes on another stream, if there is one.
            Ended::Accepted if matches!(self.mode, Mode::Legacy { .. }) || self.listening.is_open() => {}
            Ended::Accepted => {
                let text = "no body where an answer was due".to_owned();
                let refusal =
                    HttpRefusal { status: 202, text, retry_after: None, delivery: Delivery::MaybeWritten };
                self.finish_with(id, Err(WireError::Http(refusal)));
            }
            Ended::SessionGone => {
                open.written.clear();
                open.resent += 1;
                if open.resent > RESENDS || self.session.fruitless >= FRUITLESS {
                    let text = "the server forgets every session at once".to_owned();
                    self.ending = Some(EndReason::Io(text.clone()));
                    let delivery = Delivery::NotWritten;
                    let refusal = HttpRefusal { status: 404, text, retry_after: None, delivery };
                    self.finish_with(id, Err(WireError::Http(refusal)));
                } else if epoch < self.session.epoch() && self.gate == Gate::Open {
                    self.launch(id);
                } else {
                    self.held.push(id);
                    if self.gate != Gate::Initialized {
                        self.renew();
                    }
                }
            }
            Ended::Refused(refusal) => self.refused(id, refusal),
            Ended::Failed(SendError::Unreachable(reason)) => {
                // Nobody is there; once nothing is open any more there is nothing to keep.
                self.ending = Some(EndReason::Io(reason.clone()));
                self.finish_with(id, Err(WireError::Unreachable { reason }));
            }
            Ended::Failed(SendError::NeedsAuth { action }) => {
                self.ending = Some(EndReason::NeedsAuth(action.clone()));
                self.finish_with(id, Err(WireError::NeedsAuth { action }));
            }
            Ended::Failed(SendError::Forbidden { action }) => {
                self.finish_with(id, Err(WireError::NeedsAuth { action }));
            }
            Ended::Failed(error @ (SendError::Broken(_) | SendError::Redirected { .. })) => {
                let reason = error.to_string();
                self.finish_with(id, Err(WireError::Interrupted { reason }));
            }
        }
    }

    /// Gives a request its outcome if it has none yet, and drops what is left of it.
    fn finish_with(&mut self, id: u64, outcome: Result<super::super::Answer, WireError>) {
        self.core.pending.finish(id, outcome);
        self.forget(id);
    }

    fn refused(&mut self, id: u64, refusal: HttpRefusal) {
        let opening = self.open.get(&id).is_some_and(|open| open.method == "initialize");
        let is_old = matches!(refusal.status, 400 | 404 | 405);
        if opening
            && is_old
            && self.remote.kind == RemoteKind::Auto
            && matches!(self.mode, Mode::Streamable)
            && self.session.era() == Era::Initialize
        {
            // MCP 2025-11-25, Transports, backwards compatibility: the address may be an old server's.
            if let Some(open) = self.open.get(&id) {
                open.written.clear();
            }
            self.mode = Mode::legacy(Some(refusal));
            self.held.push(id);
            self.open_stream();
            return;
        }
        if matches!(self.mode, Mode::Legacy { .. }) && matches!(refusal.status, 404 | 410) {
            // Its session is in the address that it gave; only a new stream brings another.
            self.ending = Some(EndReason::Io(format!("the server lost the session: {refusal}")));
        }
        self.finish_with(id, Err(WireError::Http(refusal)));
    }

    /// The one stream of a legacy server is over, and the session with it.
    pub(super) fn stream_ended(&mut self, end: StreamEnd) -> EndReason {
        let Mode::Legacy { endpoint, instead_of } = &self.mode else {
            return EndReason::Io("a stream ended that nobody opened".to_owned());
        };
        if endpoint.is_some() {
            return match end {
                StreamEnd::Ended(reason) => EndReason::Io(reason),
                StreamEnd::Refused(refusal) => EndReason::Io(refusal.to_string()),
                StreamEnd::Failed(SendError::NeedsAuth { action }) => EndReason::NeedsAuth(action),
                StreamEnd::Failed(error) => EndReason::Io(error.to_string()),
            };
        }
        let error = match (end, instead_of.clone()) {
            (StreamEnd::Failed(SendError::NeedsAuth { action }), _) => WireError::NeedsAuth { action },
            // Neither transport is there: the first refusal is about the address that a person wrote.
            (end, Some(first)) => {
                let second = match end {
                    StreamEnd::Refused(refusal) => refusal.to_string(),
                    StreamEnd::Failed(error) => error.to_string(),
                    StreamEnd::Ended(reason) => reason,
                };
                let text = format!("{} (and as a legacy SSE server: {second})", first.text);
                WireError::Http(HttpRefusal { text, ..first })
            }
            (StreamEnd::Refused(refusal), None) => WireError::Http(refusal),
            (StreamEnd::Failed(SendError::Unreachable(reason)), None) => WireError::Unreachable { reason },
            (StreamEnd::Failed(error), None) => WireError::Interrupted { reason: error.to_string() },
            (StreamEnd::Ended(reason), None) => WireError::Interrupted { reason },
        };
        // What waits is the handshake; it was never sent.
        for id in std::mem::take(&mut self.held) {
            self.core.pending.finish(id, Err(error.clone()));
        }
        match error {
            WireError::NeedsAuth { action } => EndReason::NeedsAuth(action),
            error => {
                (self.remote.learned)(RemoteKind::Auto);
                EndReason::Io(error.to_string())
            }
        }
    }
}
