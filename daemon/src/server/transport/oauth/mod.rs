//! Logins at remote servers (`auth: oauth`): OAuth 2.1 with PKCE, by rmcp's `AuthorizationManager`.
//!
//! Owner: [`Oauth`], one for the daemon; it holds one [`account`] for each server and at most one
//! [`login`] flow for each. rmcp does discovery, registration, PKCE and the exchanges; around it are
//! the files shared with Hermes Agent, the journal of renewals, single flight, the checks of every
//! address, and a proper reader of challenges. May touch: `mcp-tokens/`, the network of logins.
//! May not touch: MCP traffic, supervisors.

pub mod account;
pub mod addresses;
pub mod answer;
pub mod callback;
pub mod challenge;
pub mod discover;
pub mod endpoints;
pub mod files;
pub mod journal;
pub mod listener;
pub mod login;
pub mod net;
pub mod record;
mod renew;
pub mod revoke;
pub mod tap;

#[cfg(test)]
mod scripted_tests;

use super::auth::{Auth, AuthSource, HeadersOnly};
use crate::config::{HttpConfig, OauthConfig};
use crate::names::ServerName;
use account::{Account, Around, Place};
use addresses::{LocalNetwork, Reach};
use callback::Stray;
use endpoints::Plain;
use listener::Brought;
use login::{Flow, LoginState};
use net::Net;
use renew::Bearer;
use revoke::{LogoutError, Revoked};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use url::Url;

/// Answers that may wait for a login: it takes one.
const ANSWERS: usize = 1;

/// Finished logins that nobody has looked at; more are dropped, because the next use starts the server too.
const FINISHED: usize = 32;

/// Why a pasted address did not finish a login.
#[derive(Debug, thiserror::Error)]
pub enum PasteError {
    /// No login of this server waits.
    #[error("no login of `{server}` is waiting")]
    NoLogin {
        /// The server.
        server: ServerName,
    },
    /// It is no answer to this login, which goes on waiting.
    #[error(transparent)]
    Stray(#[from] Stray),
    /// The login has an answer already.
    #[error("the login has an answer already")]
    Busy,
    /// It was an answer, and the login failed.
    #[error("{why}")]
    Failed {
        /// Why.
        why: String,
    },
}

/// A login at this server is not possible.
#[derive(Debug, thiserror::Error)]
#[error("the url of `{server}` cannot be used for a login")]
pub struct NoLogin {
    /// The server.
    pub server: ServerName,
}

/// All logins. Cheap to clone.
#[derive(Clone)]
pub struct Oauth {
    around: Around,
    accounts: Arc<Mutex<BTreeMap<ServerName, Known>>>,
    flows: Arc<Mutex<BTreeMap<ServerName, Pending>>>,
    finished: mpsc::Sender<ServerName>,
}

impl std::fmt::Debug for Oauth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Oauth")
    }
}

/// An account with what it was made for.
struct Known {
    url: String,
    oauth: Option<OauthConfig>,
    account: Arc<Account>,
}

/// A login under way, as others see it.
struct Pending {
    account: Arc<Account>,
    state: watch::Receiver<LoginState>,
    token: watch::Receiver<Option<Arc<str>>>,
    brought: mpsc::Sender<Brought>,
    stop: CancellationToken,
}

impl Oauth {
    /// All logins below a home, and the names of servers whose login was finished.
    pub fn new(around: Around) -> (Self, mpsc::Receiver<ServerName>) {
        let (finished, names) = mpsc::channel(FINISHED);
        (Self { around, accounts: Arc::default(), flows: Arc::default(), finished }, names)
    }

    /// The account of `server`; the same as long as its address and `oauth:` are the same.
    pub fn account(&self, server: &ServerName, config: &HttpConfig) -> Result<Arc<Account>, NoLogin> {
        let url = Url::parse(&config.url).map_err(|_| NoLogin { server: server.clone() })?;
        let mut accounts = lock(&self.accounts);
        if let Some(known) = accounts.get(server)
            && known.url == config.url
            && known.oauth == config.oauth
        {
            return Ok(known.account.clone());
        }
        let local = match config.oauth.as_ref().is_some_and(|oauth| oauth.private_network) {
            true => LocalNetwork::Allowed,
            false => LocalNetwork::AsTheUrl,
        };
        let reach = Reach::new(&url, local);
        let place = Place {
            net: Arc::new(Net::new(
                url.clone(),
                reach.clone(),
                config.tls.clone(),
                self.around.variable.clone(),
            )),
            plain: if config.allow_insecure { Plain::Allowed } else { Plain::ThisMachine },
            reach,
            url,
        };
        let account = Account::new(server.clone(), config, place, self.around.clone());
        let (url, oauth) = (config.url.clone(), config.oauth.clone());
        accounts.insert(server.clone(), Known { url, oauth, account: account.clone() });
        Ok(account)
    }

    /// Begins a login, or joins the one that is under way: whoever asked first may be gone.
    ///
    /// # Errors
    /// [`NoLogin`].
    pub fn begin(
        &self,
        server: &ServerName,
        config: &HttpConfig,
    ) -> Result<watch::Receiver<LoginState>, NoLogin> {
        let account = self.account(server, config)?;
        let mut flows = lock(&self.flows);
        if let Some(pending) = flows.get(server) {
            let waits =
                !matches!(*pending.state.borrow(), LoginState::Done { .. } | LoginState::Failed { .. });
            if waits && Arc::ptr_eq(&pending.account, &account) {
                return Ok(pending.state.clone());
            }
            // For another address than the configuration names now.
            pending.stop.cancel();
        }
        let (state_in, state) = watch::channel(LoginState::Preparing);
        let (token_in, token) = watch::channel(None);
        let (brought_in, brought) = mpsc::channel(ANSWERS);
        let stop = self.around.tasks.stop_signal().child_token();
        let flow = Flow {
            account: account.clone(),
            state: state_in,
            brought_in: brought_in.clone(),
            brought,
            token: token_in,
            stop: stop.clone(),
        };
        let pending = Pending { account, state: state.clone(), token, brought: brought_in, stop };
        flows.insert(server.clone(), pending);
        let (finished, name) = (self.finished.clone(), server.clone());
        self.around.tasks.spawn(async move {
            if flow.run().await.is_ok() {
                let _ = finished.try_send(name);
            }
        });
        Ok(state)
    }

    /// Finishes a login with the address that a browser was sent to.
    ///
    /// # Errors
    /// [`PasteError`].
    /// # Cancel safety
    /// Cancel safe: a taken answer is used.
    pub async fn paste(&self, server: &ServerName, text: &str) -> Result<(), PasteError> {
        let waiting = {
            let flows = lock(&self.flows);
            flows
                .get(server)
                .and_then(|pending| Some((pending.token.borrow().clone()?, pending.brought.clone())))
        };
        let nobody = || PasteError::NoLogin { server: server.clone() };
        let (token, brought) = waiting.ok_or_else(nobody)?;
        let answer = callback::read_pasted(text, &token)?;
        let (done, outcome) = oneshot::channel();
        brought.try_send((answer, done)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => PasteError::Busy,
            mpsc::error::TrySendError::Closed(_) => nobody(),
        })?;
        match outcome.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(why)) => Err(PasteError::Failed { why }),
            Err(_) => Err(nobody()),
        }
    }

    /// Ends the login of `server`: revoked where that is possible, removed in any case.
    ///
    /// # Errors
    /// [`LogoutError`].
    pub async fn logout(&self, account: &Account) -> Result<Revoked, LogoutError> {
        if let Some(pending) = lock(&self.flows).remove(&account.server) {
            pending.stop.cancel();
        }
        account.logout().await
    }
}

impl AuthSource for Oauth {
    fn login(&self, server: &ServerName, config: &HttpConfig) -> Arc<dyn Auth> {
        match (&config.oauth, self.account(server, config)) {
            (Some(_), Ok(account)) => Arc::new(Bearer(account)),
            // A url that is none was refused with the configuration.
            (None, _) | (Some(_), Err(_)) => HeadersOnly.login(server, config),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
