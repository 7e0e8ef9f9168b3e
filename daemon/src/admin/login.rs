//! Logins: begin, finish, end. The logins themselves are in `server/transport/oauth`.

use super::convert::millis;
use super::service::Inner;
use crate::catalog::snapshot::Catalog;
use crate::config::{HttpConfig, ServerConfig, ServerEntry, TransportConfig};
use crate::names::ServerName;
use crate::server::handle::ServerHandle;
use crate::server::lifecycle::Drain;
use crate::server::transport::oauth::PasteError;
use crate::server::transport::oauth::login::LoginState;
use crate::server::transport::oauth::revoke::Revoked;
use hermes_proto::control as pb;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_stream::Stream;
use tonic::Status;

/// How long the start after a login is waited for before the login is called done anyway.
const START_WAIT: Duration = Duration::from_secs(30);
/// How long the catalogue may take to show the tools of a server that just started.
const SHOWN_WAIT: Duration = Duration::from_secs(10);
/// How long the server may take to notice that its login is gone.
const LOGOUT_WAIT: Duration = Duration::from_secs(5);

/// Events of a login.
pub(super) type Events = Pin<Box<dyn Stream<Item = Result<pb::LoginEvent, Status>> + Send>>;

/// A server with `auth: oauth`, enabled or not.
fn server(inner: &Inner, name: &str) -> Result<(Arc<ServerConfig>, HttpConfig), Status> {
    let config = inner.config.borrow().clone();
    let server = match config.servers.get(name) {
        Some(ServerEntry::Enabled(server) | ServerEntry::Disabled(server)) => server.clone(),
        Some(ServerEntry::Refused { .. }) | None => {
            return Err(inner.handle(name).err().unwrap_or_else(|| Status::not_found("gone")));
        }
    };
    match &server.transport {
        TransportConfig::Http(http) if http.oauth.is_some() => {
            let http = http.clone();
            Ok((server, http))
        }
        TransportConfig::Http(_) => Err(Status::failed_precondition(format!(
            "server `{name}` is not configured for a login\nhint: write `auth: oauth` into its entry in {}",
            config.file.display()
        ))),
        TransportConfig::Stdio(_) => Err(Status::failed_precondition(format!(
            "server `{name}` is a program of this machine; only servers with a `url` have a login\nhint: give it its credentials in `env`"
        ))),
    }
}

/// Begins or joins a login.
pub(super) fn login(inner: Arc<Inner>, name: &str) -> Result<Events, Status> {
    let (server, http) = server(&inner, name)?;
    let state = inner.oauth.begin(&server.name, &http);
    let state = state.map_err(|error| Status::failed_precondition(error.to_string()))?;
    let start = Follow::Next { state, seen: None };
    let stop = inner.shutdown.clone();
    Ok(Box::pin(futures_util::stream::unfold(start, move |follow| {
        let (inner, name, stop) = (inner.clone(), server.name.clone(), stop.clone());
        async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => None,
                next = next(&inner, &name, follow) => next,
            }
        }
    })))
}

/// How far a caller has followed a login.
enum Follow {
    Next { state: watch::Receiver<LoginState>, seen: Option<LoginState> },
    Over,
}

async fn next(
    inner: &Inner,
    name: &ServerName,
    follow: Follow,
) -> Option<(Result<pb::LoginEvent, Status>, Follow)> {
    let Follow::Next { mut state, seen } = follow else { return None };
    // The login's task ends only after its last state.
    let now = state.wait_for(|now| Some(now) != seen.as_ref()).await.ok()?.clone();
    let ended = matches!(now, LoginState::Done { .. } | LoginState::Failed { .. });
    let event = event(inner, name, &now).await;
    let follow = if ended { Follow::Over } else { Follow::Next { state, seen: Some(now) } };
    Some((Ok(event), follow))
}

async fn event(inner: &Inner, name: &ServerName, state: &LoginState) -> pb::LoginEvent {
    let of = |step: pb::LoginStep| pb::LoginEvent { step: step.into(), ..pb::LoginEvent::default() };
    match state {
        LoginState::Preparing => of(pb::LoginStep::Preparing),
        LoginState::Waiting { url, redirect_uri, limit } => pb::LoginEvent {
            // Not masked: the person needs it whole, and it holds no secret of theirs.
            url: url.clone(),
            redirect_uri: redirect_uri.clone(),
            limit_ms: millis(*limit),
            ..of(pb::LoginStep::Waiting)
        },
        LoginState::Done { scopes } => {
            let handle = inner.servers.borrow().get(name).cloned();
            if let Some(handle) = &handle {
                // Whether it worked is in the status that follows.
                let _ = handle.start(Instant::now() + START_WAIT).await;
                shown(inner, handle).await;
            }
            pb::LoginEvent {
                scopes: scopes.clone(),
                server: handle.map(|handle| inner.status_of(&handle)),
                ..of(pb::LoginStep::Done)
            }
        }
        LoginState::Failed { why, hint } => {
            pb::LoginEvent { message: inner.mask()(why), hint: hint.clone(), ..of(pb::LoginStep::Failed) }
        }
    }
}

/// Waits until the tools that were learned a moment ago are in the catalogue that everybody sees.
async fn shown(inner: &Inner, handle: &ServerHandle) {
    let listed = handle.status().borrow().listing.as_ref().is_some_and(|listing| !listing.tools.is_empty());
    if listed {
        let mut catalog = inner.catalog.clone();
        let known = |catalog: &Arc<Catalog>| {
            let notes = catalog.notes().get(handle.name());
            notes.is_some_and(|notes| notes.visible + notes.hidden + notes.withheld > 0)
        };
        // All of them may be unusable; then there is nothing to wait for.
        let _ = tokio::time::timeout(SHOWN_WAIT, catalog.wait_for(known)).await;
    }
}

/// Finishes a login with a pasted address.
pub(super) async fn finish(
    inner: &Inner,
    request: &pb::FinishLoginRequest,
) -> Result<pb::FinishLoginResponse, Status> {
    let (server, _) = server(inner, &request.server)?;
    match inner.oauth.paste(&server.name, &request.redirect_url).await {
        Ok(()) => Ok(pb::FinishLoginResponse {}),
        Err(error @ PasteError::NoLogin { .. }) => Err(Status::failed_precondition(format!(
            "{error}\nhint: begin one with `hermesctl mcp login {}`",
            server.name
        ))),
        Err(error @ PasteError::Stray(_)) => Err(Status::invalid_argument(format!(
            "{error}\nhint: copy the whole address from the browser; the login still waits"
        ))),
        Err(error @ (PasteError::Busy | PasteError::Failed { .. })) => {
            Err(Status::failed_precondition(inner.mask()(&error.to_string())))
        }
    }
}

/// Ends a login.
pub(super) async fn logout(inner: &Inner, name: &str) -> Result<pb::LogoutResponse, Status> {
    let (server, http) = server(inner, name)?;
    let account = inner.oauth.account(&server.name, &http);
    let account = account.map_err(|error| Status::failed_precondition(error.to_string()))?;
    let revoked = inner.oauth.logout(&account).await;
    let revoked = revoked.map_err(|error| {
        let source =
            std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        Status::failed_precondition(format!("{error}{source}"))
    })?;
    let handle = inner.servers.borrow().get(name).cloned();
    if let Some(handle) = handle {
        // Its connection was opened with the login that is gone. That it then needs one is the point.
        let _ = handle.restart(Drain::Now, Instant::now() + LOGOUT_WAIT).await;
    }
    tracing::info!(server = %server.name, ?revoked, "login ended by an operator");
    let (had_login, revoked, why) = match revoked {
        Revoked::Yes => (true, true, String::new()),
        Revoked::Nothing => (false, false, String::new()),
        Revoked::No { why } => (true, false, inner.mask()(&why)),
    };
    Ok(pb::LogoutResponse { had_login, revoked, not_revoked_because: why })
}
