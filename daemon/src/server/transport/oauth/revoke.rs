//! Ending a login: the authorization server is told, then the files go.
//!
//! Owner: [`Account`]. Promise: the files are gone whatever the authorization server says; what it
//! said is reported.

use super::account::{Account, Look, State, Trouble};
use super::endpoints;
use super::files::FileError;
use super::net::Redirects;
use super::record::Client;
use crate::secret::Secret;
use base64::Engine as _;
use std::time::Duration;
use url::form_urlencoded;

/// Longest wait for the authorization server, both tokens together.
const LIMIT: Duration = Duration::from_secs(15);

/// What became of the tokens at the authorization server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Revoked {
    /// It knows that they are void.
    Yes,
    /// There was no login.
    Nothing,
    /// It offers no way, or did not do it; they stay good there until they end.
    No {
        /// Why.
        why: String,
    },
}

/// Why the files are still there.
#[derive(Debug, thiserror::Error)]
pub enum LogoutError {
    /// They cannot be removed.
    #[error("{} cannot be removed", .0.path.display())]
    Remove(#[source] FileError),
    /// They are in use.
    #[error(transparent)]
    Busy(#[from] Trouble),
}

impl Account {
    /// Revokes what can be revoked and removes the files.
    ///
    /// # Errors
    /// [`LogoutError`].
    pub(super) async fn logout(&self) -> Result<Revoked, LogoutError> {
        let mut state = self.state().await;
        self.look(&mut state, Look::Now).await;
        let files = state.files()?;
        let _locked = self.lock(&files).await?;
        let revoked = match tokio::time::timeout(LIMIT, self.revoke(&state)).await {
            Ok(revoked) => revoked,
            Err(_) => Revoked::No { why: format!("no answer within {} s", LIMIT.as_secs()) },
        };
        let removed = tokio::task::spawn_blocking(move || files.remove()).await;
        let removed = removed.unwrap_or(Ok(()));
        let keep = state.files.take();
        *state = State { files: keep, ..State::default() };
        removed.map_err(LogoutError::Remove)?;
        Ok(revoked)
    }

    async fn revoke(&self, state: &State) -> Revoked {
        let Some(tokens) = &state.tokens else { return Revoked::Nothing };
        let no = |why: String| Revoked::No { why };
        let endpoint = state.metadata.as_ref().and_then(|meta| meta.get("revocation_endpoint")?.as_str());
        let Some(endpoint) = endpoint else {
            return no("the authorization server offers no way to revoke".to_owned());
        };
        let url = match endpoints::endpoint("revocation endpoint", endpoint, self.place.plain) {
            Ok(url) => url,
            Err(error) => return no(error.to_string()),
        };
        let Some(client) = self.client(state) else { return no("the registration is lost".to_owned()) };
        // The refresh token first: with it goes the whole grant.
        let all = tokens.refresh.iter().map(|token| (token, "refresh_token"));
        for (token, kind) in all.chain([(&tokens.access, "access_token")]) {
            if let Err(why) = self.revoke_one(url.as_str(), &client, state, token, kind).await {
                return no(why);
            }
        }
        Revoked::Yes
    }

    async fn revoke_one(
        &self,
        url: &str,
        client: &Client,
        state: &State,
        token: &Secret,
        kind: &str,
    ) -> Result<(), String> {
        let request = request(url, client, state, token, kind)?;
        let answer =
            self.place.net.send(request, Redirects::Stop).await.map_err(|error| error.to_string())?;
        if answer.status().is_success() {
            return Ok(());
        }
        Err(format!("the authorization server answered {}", answer.status().as_u16()))
    }
}

fn request(
    url: &str,
    client: &Client,
    state: &State,
    token: &Secret,
    kind: &str,
) -> Result<hyper::Request<Vec<u8>>, String> {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("token", token.expose()).append_pair("token_type_hint", kind);
    let mut request = hyper::Request::post(url).header("content-type", "application/x-www-form-urlencoded");
    match &client.secret {
        Some(secret) if by_header(client, state) => {
            let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            let pair = format!("{}:{}", encode(&client.id), encode(secret.expose()));
            let pair = base64::engine::general_purpose::STANDARD.encode(pair);
            request = request.header("authorization", format!("Basic {pair}"));
        }
        Some(secret) => {
            form.append_pair("client_id", &client.id).append_pair("client_secret", secret.expose());
        }
        None => {
            form.append_pair("client_id", &client.id);
        }
    }
    request.body(form.finish().into_bytes()).map_err(|error| error.to_string())
}

/// Whether the client proves itself in the header: as registered, else unless only the body is offered.
fn by_header(client: &Client, state: &State) -> bool {
    if let Some(method) = &client.auth_method {
        return method == "client_secret_basic";
    }
    let name = "revocation_endpoint_auth_methods_supported";
    let offered = state.metadata.as_ref().and_then(|meta| meta.get(name)?.as_array());
    offered.is_none_or(|all| all.iter().any(|method| method.as_str() == Some("client_secret_basic")))
}
