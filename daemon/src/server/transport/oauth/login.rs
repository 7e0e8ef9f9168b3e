//! One login: from the server's documents to tokens on disk, with a person and a browser between.
//!
//! Owner: the task that [`Oauth::begin`](super::Oauth::begin) starts, one for each server. Promise:
//! what there was before stays until the new login is complete; each way it can end is told apart;
//! it ends in time. May not touch: servers, terminals.

use super::account::{Account, Look, Trouble};
use super::callback::Answer;
use super::discover::{DiscoverError, Discovered, chain, discover};
use super::endpoints::{self, BadEndpoint};
use super::files::{FileError, Stored};
use super::listener::{Brought, Callback};
use super::record::{Client, Tokens, client_file};
use super::renew::Because;
use super::tap;
use crate::config::OauthGrant;
use crate::secret::Secret;
use rmcp::transport::auth::AuthError;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use url::Url;

/// Longest wait for the browser. Default of `oauth.timeout`.
pub const TIMEOUT: Duration = Duration::from_secs(300);
/// Logins for rights that were asked for before and are wanted again; then a person is told that the
/// server never has enough.
pub const STEP_UPS: u32 = 2;

/// Where a login stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginState {
    /// Reading the server's documents.
    Preparing,
    /// A person must agree.
    Waiting {
        /// What the browser must open; http(s), written anew.
        url: String,
        /// Where it comes back to.
        redirect_uri: String,
        /// How long it is waited for.
        limit: Duration,
    },
    /// Complete and on disk.
    Done {
        /// What was granted.
        scopes: Vec<String>,
    },
    /// Over.
    Failed {
        /// Why.
        why: String,
        /// What to do; may be empty.
        hint: String,
    },
}

/// Why a login ended without tokens.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// No authorization server was found, or it may not be used.
    #[error(transparent)]
    Discover(#[from] DiscoverError),
    /// The authorization server takes no clients that it does not know.
    #[error("the authorization server does not register clients by itself")]
    NoRegistration,
    /// It refused to register this one.
    #[error("the authorization server did not register hermesd: {why}")]
    Registration {
        /// In its words.
        why: String,
    },
    /// The address for the browser cannot be used.
    #[error(transparent)]
    Url(#[from] BadEndpoint),
    /// The library cannot make the address.
    #[error("the address for the browser cannot be made: {why}")]
    NoUrl {
        /// In its words.
        why: String,
    },
    /// The port for the browser's way back is taken.
    #[error("port {port} on 127.0.0.1 cannot be used")]
    Port {
        /// Which; 0: any.
        port: u16,
        /// The system's word.
        #[source]
        source: std::io::Error,
    },
    /// The person or the server said no.
    #[error("the authorization server answered `{error}`{}", if description.is_empty() { String::new() } else { format!(": {description}") })]
    Refused {
        /// The code.
        error: String,
        /// In its words.
        description: String,
    },
    /// An answer of somebody else.
    #[error("the answer came from {got}, the login was begun with {wanted}")]
    OtherIssuer {
        /// Whom the answer names.
        got: String,
        /// Whom it should name.
        wanted: String,
    },
    /// Nobody came back.
    #[error("nobody finished the login in the browser within {} s", limit.as_secs())]
    TimedOut {
        /// How long it was waited for.
        limit: Duration,
    },
    /// The code bought nothing.
    #[error("the authorization server gave no tokens: {why}")]
    Exchange {
        /// In its words.
        why: String,
    },
    /// The server asks for more after each login.
    #[error("the server still wants the rights `{scopes}` after every login for them")]
    NeverEnough {
        /// What it wants.
        scopes: String,
    },
    /// The tokens cannot be written.
    #[error("the tokens cannot be saved: {}", .0.path.display())]
    Save(#[source] FileError),
    /// No tokens without a person either.
    #[error(transparent)]
    Trouble(#[from] Trouble),
    /// Another login took its place, or the daemon ends.
    #[error("the login was cancelled")]
    Cancelled,
}

impl LoginError {
    /// What to do about it; may be empty.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Discover(_) => "check `url`; a server without OAuth takes its token in `headers`",
            Self::NoRegistration | Self::Registration { .. } => {
                "register a client with the provider by hand and write its `client_id` (and `client_secret`) below `oauth:`"
            }
            Self::Port { .. } => "write another `redirect_port` below `oauth:`, or 0 for any",
            Self::Refused { .. } | Self::Exchange { .. } | Self::Cancelled => "try again",
            Self::TimedOut { .. } => {
                "try again; without a browser on this machine paste the address that it was sent to"
            }
            Self::NeverEnough { .. } => "ask the provider; `oauth.scope` names what to ask for",
            Self::Save(_) => "make room or correct the permissions of mcp-tokens/",
            Self::Url(_) | Self::NoUrl { .. } | Self::OtherIssuer { .. } => {
                "do not go on: tell whoever runs the server"
            }
            Self::Trouble(_) => "",
        }
    }
}

/// One login under way.
pub(super) struct Flow {
    pub(super) account: Arc<Account>,
    pub(super) state: watch::Sender<LoginState>,
    /// Answers of the listener and of people who paste.
    pub(super) brought_in: mpsc::Sender<Brought>,
    pub(super) brought: mpsc::Receiver<Brought>,
    /// The `state` parameter, once it is known; for those who paste.
    pub(super) token: watch::Sender<Option<Arc<str>>>,
    pub(super) stop: CancellationToken,
}

/// What a login may use again, and what it is for.
struct Before {
    client: Option<Client>,
    scopes: Vec<String>,
    demand: super::challenge::Demand,
    metadata: Option<Map<String, Value>>,
}

impl Flow {
    /// Runs the login to its end.
    pub(super) async fn run(mut self) -> Result<(), LoginError> {
        let ended = tokio::select! {
            biased;
            () = self.stop.clone().cancelled_owned() => Err(LoginError::Cancelled),
            ended = self.go() => ended,
        };
        match &ended {
            Ok(scopes) => {
                tracing::info!(server = %self.account.server, "login complete");
                self.state.send_replace(LoginState::Done { scopes: scopes.clone() });
            }
            Err(error) => {
                let why = chain(error);
                tracing::warn!(server = %self.account.server, reason = %why, "login failed");
                self.state.send_replace(LoginState::Failed { why, hint: error.hint().to_owned() });
            }
        }
        ended.map(|_| ())
    }

    async fn go(&mut self) -> Result<Vec<String>, LoginError> {
        let account = self.account.clone();
        if account.config.grant == OauthGrant::ClientCredentials {
            let mut state = account.state().await;
            account.look(&mut state, Look::Now).await;
            state.tokens = None;
            account.renewed(state, Because::Age).await?;
            let scopes = account.state().await.binding.as_ref().map(|binding| binding.scopes.clone());
            return Ok(scopes.unwrap_or_default());
        }
        let before = self.before().await?;
        let mut found =
            discover(&account.place, &before.demand, before.metadata.as_ref(), tap::keep_nothing()).await?;
        let scopes = self.scopes(&before, &found).await;
        let (callback, client, registration) = self.client(&before, &mut found, &scopes).await?;
        let redirect_uri = callback.redirect_uri();
        let asked: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let url = found.manager.get_authorization_url(&asked).await;
        let url = url.map_err(|error| LoginError::NoUrl { why: chain(&error) })?;
        let url = endpoints::endpoint("authorization endpoint", &url, account.place.plain)?;
        let token: Arc<str> = parameter(&url, "state").unwrap_or_default().into();
        self.token.send_replace(Some(token.clone()));
        let listening = self.stop.child_token();
        let _ends = listening.clone().drop_guard();
        let tasks = account.around.tasks.clone();
        tasks.spawn(callback.run(token.clone(), self.brought_in.clone(), tasks.clone(), listening));
        let limit = account.config.timeout.unwrap_or(TIMEOUT);
        self.state.send_replace(LoginState::Waiting {
            url: url.to_string(),
            redirect_uri: redirect_uri.clone(),
            limit,
        });
        let (answer, page) = match tokio::time::timeout(limit, self.brought.recv()).await {
            Ok(Some(brought)) => brought,
            Ok(None) => return Err(LoginError::Cancelled),
            Err(_) => return Err(LoginError::TimedOut { limit }),
        };
        let finished = self.finish(&mut found, answer, &token, client, registration, scopes).await;
        let told = finished.as_ref().map(|_| ()).map_err(LoginError::to_string);
        // Whoever closed the tab needs no page.
        let _ = page.send(told);
        finished
    }

    async fn before(&self) -> Result<Before, LoginError> {
        let account = &self.account;
        let mut state = account.state().await;
        account.look(&mut state, Look::Now).await;
        let wants_more = state.demand.wants_more();
        if wants_more && state.step_ups >= STEP_UPS {
            return Err(LoginError::NeverEnough { scopes: state.demand.scopes.join(" ") });
        }
        Ok(Before {
            client: state.client.clone(),
            scopes: state.binding.as_ref().map(|binding| binding.scopes.clone()).unwrap_or_default(),
            demand: state.demand.clone(),
            metadata: state.metadata.clone(),
        })
    }

    /// What to ask for: the configuration's word; for more rights, those of before and the wanted ones;
    /// else what the server says that it needs.
    async fn scopes(&self, before: &Before, found: &Discovered) -> Vec<String> {
        if let Some(scope) = &self.account.config.scope {
            return found.with_offline_access(scope.split_whitespace().map(str::to_owned).collect());
        }
        if !before.demand.wants_more() {
            return found.manager.select_initial_scopes(&[]).await;
        }
        let mut scopes = before.scopes.clone();
        for scope in &before.demand.scopes {
            if !scopes.contains(scope) {
                scopes.push(scope.clone());
            }
        }
        found.with_offline_access(scopes)
    }

    /// Who hermesd is: as configured, by its metadata document, as registered before, or registered now.
    async fn client(
        &self,
        before: &Before,
        found: &mut Discovered,
        scopes: &[String],
    ) -> Result<(Callback, Client, Option<Map<String, Value>>), LoginError> {
        let account = &self.account;
        let fixed = account.config.redirect_port;
        let known = account.config.client_id.as_ref().map(|id| Client {
            id: id.clone(),
            secret: account.config.client_secret.clone(),
            auth_method: None,
            redirect_uris: Vec::new(),
            secret_until: None,
        });
        let described = account.config.client_metadata_url.as_ref().filter(|_| {
            let supported = found.metadata.additional_fields.get("client_id_metadata_document_supported");
            supported.and_then(Value::as_bool) == Some(true)
        });
        let described = described.map(|url| Client {
            id: url.clone(),
            secret: None,
            auth_method: None,
            redirect_uris: Vec::new(),
            secret_until: None,
        });
        if let Some(client) = known.or(described) {
            let callback = bind(fixed.unwrap_or(0)).await?;
            speak_as(found, &client, &callback)?;
            return Ok((callback, client, None));
        }
        // The old registration names the old port: with the same port it is good again.
        let old_port = before
            .client
            .as_ref()
            .and_then(|client| client.redirect_uris.iter().find_map(|uri| Url::parse(uri).ok()?.port()));
        let callback = match (fixed, old_port) {
            (Some(port), _) => bind(port).await?,
            (None, Some(port)) => match bind(port).await {
                Ok(callback) => callback,
                Err(_) => bind(0).await?,
            },
            (None, None) => bind(0).await?,
        };
        let redirect_uri = callback.redirect_uri();
        let same_issuer = before.metadata.as_ref().and_then(|old| old.get("issuer")).and_then(Value::as_str)
            == found.metadata.issuer.as_deref();
        let again =
            before.client.clone().filter(|client| same_issuer && client.serves(&redirect_uri, account.now()));
        if let Some(client) = again {
            speak_as(found, &client, &callback)?;
            return Ok((callback, client, None));
        }
        let (client, registration) = self.register(found, &redirect_uri, scopes).await?;
        speak_as(found, &client, &callback)?;
        Ok((callback, client, Some(registration)))
    }

    async fn register(
        &self,
        found: &mut Discovered,
        redirect_uri: &str,
        scopes: &[String],
    ) -> Result<(Client, Map<String, Value>), LoginError> {
        if found.metadata.registration_endpoint.is_none() {
            return Err(LoginError::NoRegistration);
        }
        let name = self.account.config.client_name.as_deref().unwrap_or("Hermes Agent");
        let asked: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let registered = found.manager.register_client(name, redirect_uri, &asked).await;
        registered.map_err(|error: AuthError| LoginError::Registration { why: chain(&error) })?;
        let raw = found.tap.registration().unwrap_or_default();
        let file = client_file(&raw, redirect_uri);
        let client = Client::of_registration(&file)
            .ok_or_else(|| LoginError::Registration { why: "the answer has no client_id".to_owned() })?;
        Ok((client, file))
    }

    /// Buys the tokens and puts everything in place.
    async fn finish(
        &self,
        found: &mut Discovered,
        answer: Answer,
        token: &str,
        client: Client,
        registration: Option<Map<String, Value>>,
        asked: Vec<String>,
    ) -> Result<Vec<String>, LoginError> {
        let account = &self.account;
        let (code, issuer) = match answer {
            Answer::Code { code, issuer } => (code, issuer),
            Answer::Refused { error, description, issuer } => {
                // Not even the words of somebody else are passed on.
                other_issuer(found, issuer.as_deref())?;
                return Err(LoginError::Refused { error, description });
            }
        };
        let now = account.now();
        // Libraries may log it.
        (account.around.masks)(&account.server, &[Secret::new(code.as_str())]);
        let bought = found.manager.exchange_code_for_token_with_issuer(&code, token, issuer.as_deref()).await;
        bought.map_err(|error| match error {
            AuthError::AuthorizationServerMismatch { expected_issuer, received_issuer } => {
                LoginError::OtherIssuer { got: received_issuer, wanted: expected_issuer }
            }
            error => LoginError::Exchange { why: chain(&error) },
        })?;
        let answer = found.tap.tokens().unwrap_or_default();
        let tokens = Tokens::of_answer(&answer, None, now)
            .ok_or_else(|| LoginError::Exchange { why: "the answer holds no token".to_owned() })?;
        let granted =
            tokens.scope.as_ref().map(|scope| scope.split_whitespace().map(str::to_owned).collect());
        let granted: Vec<String> = granted.unwrap_or_else(|| asked.clone());
        let mut state = account.state().await;
        let files = state.files()?;
        let _locked = account.lock(&files).await?;
        let had = state.binding.as_ref().map(|binding| binding.scopes.clone()).unwrap_or_default();
        let again = state.demand.wants_more() && state.demand.scopes.iter().all(|scope| had.contains(scope));
        // Rights that were asked for count as asked for, or the next login would lose them.
        let mut scopes = asked;
        scopes.extend(granted.iter().filter(|scope| !scopes.contains(scope)).cloned().collect::<Vec<_>>());
        let login = Stored {
            tokens: Some(tokens),
            client: account.config.client_id.is_none().then(|| client.clone()),
            metadata: Some(found.document()),
            binding: Some(account.binding(found.metadata.issuer.clone(), &client.id, scopes)),
        };
        // A client that describes itself needs a file too, for renewals after a restart.
        let file = registration.or_else(|| described(account, &client));
        account.replace(&mut state, login, file).await.map_err(LoginError::Save)?;
        state.step_ups = if again { state.step_ups + 1 } else { 0 };
        // Served; where the metadata is stays good to know.
        (state.demand.scopes, state.demand.error) = (Vec::new(), None);
        Ok(granted)
    }
}

fn described(account: &Account, client: &Client) -> Option<Map<String, Value>> {
    let own = account.config.client_metadata_url.as_ref() == Some(&client.id);
    let mut file = Map::new();
    file.insert("client_id".into(), client.id.as_str().into());
    own.then(|| client_file(&file, "http://127.0.0.1/callback"))
}

fn other_issuer(found: &Discovered, got: Option<&str>) -> Result<(), LoginError> {
    match (got, found.metadata.issuer.as_deref()) {
        (Some(got), Some(wanted)) if got != wanted => {
            Err(LoginError::OtherIssuer { got: got.to_owned(), wanted: wanted.to_owned() })
        }
        _ => Ok(()),
    }
}

fn speak_as(found: &mut Discovered, client: &Client, callback: &Callback) -> Result<(), LoginError> {
    found.speak_as(client, &callback.redirect_uri()).map_err(|error| LoginError::NoUrl { why: chain(&error) })
}

async fn bind(port: u16) -> Result<Callback, LoginError> {
    Callback::bind(port).await.map_err(|source| LoginError::Port { port, source })
}

fn parameter(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}
