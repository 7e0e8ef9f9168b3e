//! Renewing a login, and what a request gets meanwhile.
//!
//! Owner: [`Account`]. Promise: one renewal at a time, whoever asks and from whichever program; before
//! it the files are read again, and a newer login there is used instead; a refusal for good ends in
//! "needs a login" once and not in a loop; a renewal that began is carried to its end.

use super::account::{Account, Look, State, Trouble, cannot_save};
use super::challenge::Demand;
use super::discover::{Discovered, discover};
use super::files::Stored;
use super::journal;
use super::record::{Age, Client, Tokens, digest};
use super::tap::{self, Keep};
use crate::config::OauthGrant;
use crate::secret::Secret;
use crate::server::transport::auth::{Auth, Next, Refusal};
use futures_util::future::BoxFuture;
use rmcp::transport::auth::{
    AuthError, ClientCredentialsConfig, InMemoryCredentialStore, OAuthTokenResponse, StoredCredentials,
};
use std::fmt;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

/// After a renewal that failed but may work later: so long calls share that failure.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Longest search for the authorization server; the request for tokens has its own limit.
const FIND_WITHIN: Duration = Duration::from_secs(40);

/// Why tokens are to be renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Because {
    /// They end.
    Age,
    /// The server refused them.
    Refused,
}

/// The account as the transport sees it.
#[derive(Clone)]
pub(super) struct Bearer(pub(super) Arc<Account>);

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Auth for Bearer {
    fn header(&self) -> BoxFuture<'_, Option<Secret>> {
        Box::pin(async move {
            let account = &self.0;
            let mut state = account.state().await;
            let fresh = account.age(&state) == Some(Age::Fresh);
            account.look(&mut state, if fresh { Look::WhenDue } else { Look::Now }).await;
            match (account.age(&state), account.config.grant) {
                (Some(Age::Fresh), _) => state.tokens.as_ref().map(Tokens::header),
                (None, OauthGrant::AuthorizationCode) => None,
                (None | Some(Age::Ending | Age::Ended), _) => {
                    let old = state.tokens.as_ref().map(Tokens::header);
                    // Whatever is wrong: the server's answer to the old token leads to `refused`.
                    account.renewed(state, Because::Age).await.ok().or(old)
                }
            }
        })
    }

    fn accepted(&self, sent: &Secret) {
        let mut unproven = self.0.unproven();
        if unproven.as_ref() == Some(sent) {
            *unproven = None;
        }
    }

    fn refused(&self, refusal: Refusal) -> BoxFuture<'_, Next> {
        Box::pin(async move {
            let account = &self.0;
            match account.after(refusal).await {
                Ok(()) => Next::Retry,
                Err(Trouble::NeedsLogin { why }) => Next::NeedsAuth { action: account.action(&why) },
                Err(Trouble::NeedsRights { why }) => Next::Forbidden { action: account.action(&why) },
                Err(Trouble::Later { why }) => Next::Later { reason: why },
            }
        })
    }
}

impl Account {
    /// One sentence with the action.
    pub(super) fn action(&self, why: &str) -> String {
        format!("{why}: run `hermesctl mcp login {}`", self.server)
    }

    fn unproven(&self) -> MutexGuard<'_, Option<Secret>> {
        self.unproven.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn after(self: &Arc<Self>, refusal: Refusal) -> Result<(), Trouble> {
        let mut state = self.state().await;
        let demand = Demand::of(&refusal.challenges);
        // Some say 403 where they mean that the token is void.
        let wants_more = refusal.status == 403 && demand.error.as_deref() != Some("invalid_token");
        self.look(&mut state, Look::Now).await;
        let current = state.tokens.as_ref().map(Tokens::header);
        if current.is_some() && current != refusal.sent {
            // Somebody renewed it, or logged in, while the request was under way.
            return Ok(());
        }
        state.demand = demand;
        if wants_more {
            let why = match state.demand.wants_more() {
                true => format!("the server wants the rights `{}`", state.demand.scopes.join(" ")),
                false => "the server says that this login may not do that (403)".to_owned(),
            };
            return Err(Trouble::NeedsRights { why });
        }
        let useless = current.is_some() && *self.unproven() == current;
        if useless {
            return Err(Trouble::NeedsLogin {
                why: "the server refuses a login that was just renewed".to_owned(),
            });
        }
        if current.is_none() && self.config.grant == OauthGrant::AuthorizationCode {
            let why = state.why.clone().unwrap_or_else(|| "the server needs a login".to_owned());
            return Err(Trouble::NeedsLogin { why });
        }
        self.renewed(state, Because::Refused).await.map(|_| ())
    }

    /// Renews in a task of its own: a caller that goes away must not stop it between the answer and
    /// the save.
    pub(super) async fn renewed(
        self: &Arc<Self>,
        state: OwnedMutexGuard<State>,
        because: Because,
    ) -> Result<Secret, Trouble> {
        let account = self.clone();
        let task = self.around.tasks.spawn(async move { account.renew(state, because).await });
        match task.await {
            Ok(renewed) => renewed,
            Err(_) => Err(Trouble::Later { why: "the renewal of the login was cut short".to_owned() }),
        }
    }

    async fn renew(&self, mut state: OwnedMutexGuard<State>, because: Because) -> Result<Secret, Trouble> {
        let before = state.tokens.clone();
        let files = state.files()?;
        let _locked = self.lock(&files).await?;
        // Another program may have been faster.
        self.look(&mut state, Look::Now).await;
        if let Some(tokens) = &state.tokens
            && before.as_ref().map(|old| &old.access) != Some(&tokens.access)
            && tokens.age(self.now()) == Age::Fresh
        {
            return Ok(tokens.header());
        }
        if let Some((at, why)) = &state.failed
            && at.elapsed() < AGAIN_AFTER
        {
            return Err(Trouble::Later { why: why.clone() });
        }
        let renewed = match self.config.grant {
            OauthGrant::AuthorizationCode => self.refresh(&mut state).await,
            OauthGrant::ClientCredentials => self.fetch(&mut state).await,
        };
        match &renewed {
            Ok(tokens) => {
                if because == Because::Refused {
                    *self.unproven() = Some(tokens.header());
                }
                tracing::info!(server = %self.server, "login renewed");
            }
            Err(trouble) => {
                if let Trouble::Later { why } = trouble {
                    state.failed = Some((Instant::now(), why.clone()));
                }
                tracing::warn!(server = %self.server, reason = %trouble, "login could not be renewed");
            }
        }
        renewed.map(|tokens| tokens.header())
    }

    /// By the refresh token.
    async fn refresh(&self, state: &mut State) -> Result<Tokens, Trouble> {
        let needs = |why: &str| Trouble::NeedsLogin { why: why.to_owned() };
        let tokens = state.tokens.clone().ok_or_else(|| needs("there is no login"))?;
        let refresh = tokens.refresh.clone().ok_or_else(|| needs("the login has ended"))?;
        if state.is_dead(&refresh) {
            return Err(needs("the login has ended"));
        }
        let client =
            self.client(state).ok_or_else(|| needs("the login has ended and its registration is lost"))?;
        let files = state.files()?;
        let now = self.now();
        let (begun, token) = (files.clone(), refresh.clone());
        let begun = tokio::task::spawn_blocking(move || journal::begin(&begun, &token, now)).await;
        match begun {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(cannot_save(&error)),
            Err(_) => return Err(Trouble::Later { why: "the daemon ends".to_owned() }),
        }
        let keep = self.keeper(&files, &refresh);
        let mut found = self.authority(state, keep).await?;
        let scopes = state.binding.as_ref().map(|binding| binding.scopes.clone()).unwrap_or_default();
        let asked = renew_with(&mut found, &client, &refresh, &scopes).await;
        match asked {
            Ok(()) => {
                let answer = found.tap.tokens().unwrap_or_default();
                let renewed = Tokens::of_answer(&answer, Some(&refresh), now)
                    .ok_or_else(|| Trouble::Later { why: "the answer holds no token".to_owned() })?;
                self.keep(state, &found, &client, renewed.clone(), scopes).await;
                Ok(renewed)
            }
            Err(error) => self.not_renewed(state, &found, &refresh, &error).await,
        }
    }

    /// By the client's own credentials.
    async fn fetch(&self, state: &mut State) -> Result<Tokens, Trouble> {
        let client = self.client(state).zip(self.config.client_secret.clone());
        let Some((client, secret)) = client else {
            let why = "`grant: client_credentials` needs `client_id` and `client_secret`".to_owned();
            return Err(Trouble::NeedsLogin { why });
        };
        let now = self.now();
        let mut found = self.authority(state, tap::keep_nothing()).await?;
        let scopes = match &self.config.scope {
            Some(scope) => scope.split_whitespace().map(str::to_owned).collect(),
            None => found.manager.select_initial_scopes(&[]).await,
        };
        let config = ClientCredentialsConfig::ClientSecret {
            client_id: client.id.clone(),
            client_secret: secret.expose().to_owned(),
            scopes: scopes.clone(),
            resource: Some(found.tap.resource().unwrap_or_else(|| self.place.url.to_string())),
        };
        let asked = match found.manager.validate_client_credentials_metadata(&config) {
            Ok(()) => found.manager.configure_client_credentials(&config),
            Err(error) => Err(error),
        };
        let asked = match asked {
            Ok(()) => found.manager.exchange_client_credentials(&config).await.map(|_| ()),
            Err(error) => Err(error),
        };
        let answer = found.tap.tokens().and_then(|answer| Tokens::of_answer(&answer, None, now));
        match (asked, answer) {
            (Ok(()), Some(tokens)) => {
                self.keep(state, &found, &client, tokens.clone(), scopes).await;
                Ok(tokens)
            }
            (asked, _) => {
                let why = asked.err().map_or_else(|| "no token came".to_owned(), |error| error.to_string());
                Err(match found.tap.token_error() {
                    Some(_) => Trouble::NeedsLogin { why },
                    None => Trouble::Later { why },
                })
            }
        }
    }

    /// The authorization server, if it is still the one that issued the login.
    async fn authority(&self, state: &State, keep: Keep) -> Result<Discovered, Trouble> {
        let found = discover(&self.place, &state.demand, state.metadata.as_ref(), keep);
        let found = tokio::time::timeout(FIND_WITHIN, found).await.map_err(|_| Trouble::Later {
            why: format!("the authorization server was not found within {} s", FIND_WITHIN.as_secs()),
        })?;
        let found = found.map_err(|error| Trouble::Later { why: error.to_string() })?;
        let bound = state.binding.as_ref().and_then(|binding| binding.issuer.as_deref());
        match (bound, found.metadata.issuer.as_deref()) {
            (Some(bound), Some(now)) if bound != now => {
                let why = format!("the login is from {bound}, the server names {now} now");
                Err(Trouble::NeedsLogin { why })
            }
            _ => Ok(found),
        }
    }

    /// Puts the answer into the journal before anybody looks at it.
    fn keeper(&self, files: &super::files::Files, refresh: &Secret) -> Keep {
        let (files, refresh, clock) = (files.clone(), refresh.clone(), self.around.clock.clone());
        let tasks = self.around.tasks.clone();
        Arc::new(move |answer| {
            let (files, refresh, now) = (files.clone(), refresh.clone(), clock());
            let written = tasks.spawn_blocking(move || journal::answered(&files, &refresh, &answer, now));
            Box::pin(async move {
                if let Ok(Err(error)) = written.await {
                    let reason = error.source.to_string();
                    tracing::warn!(file = %error.path.display(), reason, "journal of a renewal not written");
                }
            })
        })
    }

    async fn keep(
        &self,
        state: &mut State,
        found: &Discovered,
        client: &Client,
        tokens: Tokens,
        scopes: Vec<String>,
    ) {
        let issuer = found.metadata.issuer.clone();
        let login = Stored {
            tokens: Some(tokens),
            client: None,
            metadata: found.metadata.issuer.is_some().then(|| found.document()),
            binding: Some(self.binding(issuer, &client.id, scopes)),
        };
        if let Err(error) = self.replace(state, login, None).await {
            let reason = error.source.to_string();
            tracing::error!(server = %self.server, file = %error.path.display(), reason, "renewed login not saved; kept in memory and tried again");
        }
    }

    /// What a failed renewal means. The files are read once more first: a program without our lock
    /// may have used the same token up a moment ago, and what it got is good.
    async fn not_renewed(
        &self,
        state: &mut State,
        found: &Discovered,
        refresh: &Secret,
        error: &AuthError,
    ) -> Result<Tokens, Trouble> {
        let code = found.tap.token_error();
        let why = super::discover::chain(error);
        let definite =
            matches!(code.as_deref(), Some("invalid_grant" | "invalid_client" | "unauthorized_client"));
        if let Ok(files) = state.files() {
            let _ = tokio::task::spawn_blocking(move || journal::end(&files)).await;
        }
        if !definite {
            return Err(Trouble::Later { why });
        }
        self.look(state, Look::Now).await;
        if let Some(tokens) = &state.tokens
            && tokens.refresh.as_ref() != Some(refresh)
            && tokens.age(self.now()) == Age::Fresh
        {
            return Ok(tokens.clone());
        }
        state.dead = Some(digest(refresh));
        Err(Trouble::NeedsLogin { why: format!("the login has ended ({})", code.unwrap_or_default()) })
    }
}

/// The exchange itself, by the library.
async fn renew_with(
    found: &mut Discovered,
    client: &Client,
    refresh: &Secret,
    scopes: &[String],
) -> Result<(), AuthError> {
    let redirect =
        client.redirect_uris.first().cloned().unwrap_or_else(|| "http://127.0.0.1/callback".to_owned());
    found.speak_as(client, &redirect)?;
    let tokens = serde_json::json!({
        "access_token": "", "token_type": "bearer", "refresh_token": refresh.expose(),
    });
    let tokens: OAuthTokenResponse =
        serde_json::from_value(tokens).map_err(|error| AuthError::InternalError(error.to_string()))?;
    let store = InMemoryCredentialStore::new();
    let stored = StoredCredentials::new(client.id.clone(), Some(tokens), scopes.to_vec(), None);
    rmcp::transport::auth::CredentialStore::save(&store, stored).await?;
    found.manager.set_credential_store(store);
    found.manager.refresh_token().await.map(|_| ())
}
