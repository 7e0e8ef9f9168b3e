//! Verbs about logins at remote servers.

use super::{Client, Peer, WORK, answer, failure, timed};
use crate::failure::Failure;
use hermes_proto::control as pb;
use tonic::{Request, Streaming};

/// The events of a login.
#[derive(Debug)]
pub struct Login {
    peer: Peer,
    stream: Streaming<pb::LoginEvent>,
}

impl Login {
    /// The next event; `None` after the last.
    ///
    /// # Errors
    /// As [`Client::status`].
    ///
    /// # Cancel safety
    /// Cancel safe; the login goes on in the daemon.
    pub async fn next(&mut self) -> Result<Option<pb::LoginEvent>, Failure> {
        self.stream.message().await.map_err(|status| failure(self.peer, &status))
    }
}

impl Client {
    /// Begins a login, or joins the one that is under way.
    ///
    /// # Errors
    /// As [`status`](Self::status). A login that fails is an event, not an error.
    pub async fn login(&mut self, server: &str) -> Result<Login, Failure> {
        let request = pb::LoginRequest { home: self.home.clone(), server: server.to_owned() };
        let peer = self.peer;
        Ok(Login { peer, stream: answer(self.peer, self.stub.login(Request::new(request)).await)? })
    }

    /// Finishes a login with the address that the browser was sent to.
    ///
    /// # Errors
    /// As [`status`](Self::status): no login waits, the address is of another login, the exchange failed.
    pub async fn finish_login(&mut self, server: &str, redirect_url: &str) -> Result<(), Failure> {
        let request = pb::FinishLoginRequest {
            home: self.home.clone(),
            server: server.to_owned(),
            redirect_url: redirect_url.to_owned(),
        };
        answer(self.peer, self.stub.finish_login(timed(request, WORK)).await).map(|_| ())
    }

    /// Ends a login.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn logout(&mut self, server: &str) -> Result<pb::LogoutResponse, Failure> {
        let request = pb::LogoutRequest { home: self.home.clone(), server: server.to_owned() };
        answer(self.peer, self.stub.logout(timed(request, WORK)).await)
    }
}
