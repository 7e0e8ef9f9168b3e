//! Verbs about what happened and what a person decided: audit, figures, pins, approvals.

use super::{AT_HAND, Client, Follow, Peer, answer, failure, timed};
use crate::failure::Failure;
use hermes_proto::control as pb;
use tonic::{Request, Streaming};

/// Audit rows as they come.
#[derive(Debug)]
pub struct Audit {
    peer: Peer,
    stream: Streaming<pb::AuditChunk>,
}

impl Audit {
    /// The next rows; `None` at the end.
    ///
    /// # Errors
    /// As [`Client::status`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> Result<Option<Vec<pb::AuditEntry>>, Failure> {
        Ok(self
            .stream
            .message()
            .await
            .map_err(|status| failure(self.peer, &status))?
            .map(|chunk| chunk.entries))
    }
}

/// Events as they come.
#[derive(Debug)]
pub struct Events {
    peer: Peer,
    stream: Streaming<pb::EventsChunk>,
}

impl Events {
    /// The next events; `None` at the end.
    ///
    /// # Errors
    /// As [`Client::status`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> Result<Option<pb::EventsChunk>, Failure> {
        self.stream.message().await.map_err(|status| failure(self.peer, &status))
    }
}

impl Client {
    /// Events that match `wanted`; its home and follow are filled in here.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn events(&mut self, wanted: pb::EventsRequest, follow: Follow) -> Result<Events, Failure> {
        let request = pb::EventsRequest { home: self.home.clone(), follow: follow == Follow::Yes, ..wanted };
        let peer = self.peer;
        Ok(Events { peer, stream: answer(self.peer, self.stub.events(Request::new(request)).await)? })
    }

    /// Audit rows that match `wanted`; its home and follow are filled in here.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn audit(&mut self, wanted: pb::AuditRequest, follow: Follow) -> Result<Audit, Failure> {
        let request = pb::AuditRequest { home: self.home.clone(), follow: follow == Follow::Yes, ..wanted };
        let peer = self.peer;
        Ok(Audit { peer, stream: answer(self.peer, self.stub.audit(Request::new(request)).await)? })
    }

    /// Latencies and outcomes by server and tool.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn stats(&mut self) -> Result<pb::StatsResponse, Failure> {
        let request = pb::StatsRequest { home: self.home.clone() };
        answer(self.peer, self.stub.stats(timed(request, AT_HAND)).await)
    }

    /// All metrics as text.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn metrics(&mut self) -> Result<String, Failure> {
        let request = pb::MetricsRequest { home: self.home.clone() };
        Ok(answer(self.peer, self.stub.metrics(timed(request, AT_HAND)).await)?.text)
    }

    /// Pinned texts; an empty server means all.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn pins(&mut self, server: &str, which: Which) -> Result<pb::ListPinsResponse, Failure> {
        let request = pb::ListPinsRequest {
            home: self.home.clone(),
            server: server.to_owned(),
            changed_only: which == Which::Changed,
        };
        answer(self.peer, self.stub.list_pins(timed(request, AT_HAND)).await)
    }

    /// Makes changed texts count; an empty name means all of the server. Answers the names.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn approve_pins(
        &mut self,
        server: &str,
        kind: &str,
        name: &str,
    ) -> Result<Vec<String>, Failure> {
        let request = pb::ApprovePinsRequest {
            home: self.home.clone(),
            server: server.to_owned(),
            name: name.to_owned(),
            kind: kind.to_owned(),
        };
        Ok(answer(self.peer, self.stub.approve_pins(timed(request, AT_HAND)).await)?.approved)
    }

    /// Waiting calls and standing approvals.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn approvals(&mut self) -> Result<pb::ListApprovalsResponse, Failure> {
        let request = pb::ListApprovalsRequest { home: self.home.clone() };
        answer(self.peer, self.stub.list_approvals(timed(request, AT_HAND)).await)
    }

    /// Decides about a waiting call; answers what came of it.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn respond(&mut self, id: &str, decision: &str) -> Result<String, Failure> {
        let request = pb::RespondApprovalRequest {
            home: self.home.clone(),
            id: id.to_owned(),
            decision: decision.to_owned(),
        };
        Ok(answer(self.peer, self.stub.respond_approval(timed(request, AT_HAND)).await)?.outcome)
    }

    /// Takes a standing approval back.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn revoke(&mut self, id: i64) -> Result<pb::RevokeApprovalResponse, Failure> {
        let request = pb::RevokeApprovalRequest { home: self.home.clone(), id };
        answer(self.peer, self.stub.revoke_approval(timed(request, AT_HAND)).await)
    }
}

/// Which pins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All of them.
    All,
    /// Those whose text changed since.
    Changed,
}
