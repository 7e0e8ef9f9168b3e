//! The login of one remote server: what is sent with its requests, renewed when it ends.
//!
//! Owner of the login's files together with the [`login`](super::login) flow; the state is a tokio
//! mutex that is held over a renewal, which makes renewals single flight inside the daemon; the lock
//! beside the files does so between programs. Promise: a token is sent to the origin it was issued
//! for only; a refresh token is shown once; a newer login is never thrown away. Survives generations.

use super::addresses::Reach;
use super::challenge::Demand;
use super::endpoints::Plain;
use super::files::{FileError, Files, Locked, Part, Stamp, Stored};
use super::journal::{self, Left};
use super::net::{Network, Variable};
use super::record::{Age, Binding, Client, Tokens, UnixSecs, digest};
use crate::config::{HttpConfig, OauthConfig};
use crate::names::ServerName;
use crate::secret::Secret;
use crate::tasks::TaskGroup;
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;
use url::Url;

/// How long a login that is good is used before the files are looked at again: another program may
/// have replaced it.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Longest wait for another program that renews.
const LOCK_WAIT: Duration = Duration::from_secs(40);
/// How often the lock is tried meanwhile.
const LOCK_EVERY: Duration = Duration::from_millis(50);

/// Tells the rest of the daemon what must be masked: all secrets of one server, each time they change.
pub type Masks = Arc<dyn Fn(&ServerName, &[Secret]) + Send + Sync>;

/// The clock of the files, in seconds since 1970.
pub type Clock = Arc<dyn Fn() -> UnixSecs + Send + Sync>;

/// Where a server is and what may be asked on its behalf.
#[derive(Clone)]
pub struct Place {
    /// Its MCP endpoint.
    pub url: Url,
    /// Addresses that its documents may name.
    pub reach: Reach,
    /// Whether plain http is taken.
    pub plain: Plain,
    /// Makes the requests.
    pub net: Arc<dyn Network>,
}

/// What an account needs of the daemon.
#[derive(Clone)]
pub struct Around {
    /// HERMES_HOME.
    pub home: PathBuf,
    /// Renewals run here, so that no caller that goes away stops one half-way.
    pub tasks: TaskGroup,
    /// What must be masked.
    pub masks: Masks,
    /// The clock.
    pub clock: Clock,
    /// The environment, for proxies.
    pub variable: Variable,
}

/// Why there is no usable login.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// Only a person can help.
    #[error("{why}")]
    NeedsLogin {
        /// What is wrong, without the action.
        why: String,
    },
    /// Only a person can help, and only for what needs these rights.
    #[error("{why}")]
    NeedsRights {
        /// What is wrong, without the action.
        why: String,
    },
    /// Later it may work by itself.
    #[error("{why}")]
    Later {
        /// What is wrong.
        why: String,
    },
}

/// See the module documentation.
pub struct Account {
    pub(super) server: ServerName,
    pub(super) config: OauthConfig,
    pub(super) place: Place,
    pub(super) around: Around,
    state: Arc<Mutex<State>>,
    /// The header that was made after a refusal, until the server took it: refused again it proves that
    /// renewing does not help.
    pub(super) unproven: std::sync::Mutex<Option<Secret>>,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account").field("server", &self.server).finish_non_exhaustive()
    }
}

/// What is known of the login at the moment.
#[derive(Default)]
pub struct State {
    pub(super) files: Option<Files>,
    pub(super) stamp: Option<Stamp>,
    pub(super) looked: Option<Instant>,
    pub(super) tokens: Option<Tokens>,
    pub(super) client: Option<Client>,
    pub(super) metadata: Option<Map<String, Value>>,
    pub(super) binding: Option<Binding>,
    /// What the server asked for last.
    pub(super) demand: Demand,
    /// Logins for more rights in a row; see [`super::login::STEP_UPS`].
    pub(super) step_ups: u32,
    /// Digest of a refresh token that the authorization server does not take.
    pub(super) dead: Option<String>,
    /// Why there are no tokens although there are files.
    pub(super) why: Option<String>,
    /// A renewal failed that may work later; not tried again for a moment.
    pub(super) failed: Option<(Instant, String)>,
    /// The tokens could not be written; tried again with each look.
    pub(super) unsaved: bool,
}

impl Account {
    /// The account of `server`; looks at nothing yet.
    pub fn new(server: ServerName, config: &HttpConfig, place: Place, around: Around) -> Arc<Self> {
        let oauth = config.oauth.clone().unwrap_or_default();
        Arc::new(Self {
            server,
            config: oauth,
            place,
            around,
            state: Arc::default(),
            unproven: std::sync::Mutex::default(),
        })
    }

    /// The state, alone. Cancel safe.
    pub(super) async fn state(&self) -> OwnedMutexGuard<State> {
        self.state.clone().lock_owned().await
    }

    pub(super) fn now(&self) -> UnixSecs {
        (self.around.clock)()
    }

    fn origin(&self) -> String {
        self.place.url.origin().ascii_serialization()
    }

    /// Reads the files again where another program may have changed them.
    pub(super) async fn look(&self, state: &mut State, when: Look) {
        let due = state.looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY);
        if when == Look::WhenDue && !due {
            return;
        }
        state.looked = Some(Instant::now());
        let (home, server, known) = (self.around.home.clone(), self.server.clone(), state.files.clone());
        let (stamp_before, first) = (state.stamp, known.is_none());
        let unsaved = state.tokens.clone().filter(|_| state.unsaved);
        let adopted = self.binding(None, self.config.client_id.as_deref().unwrap_or_default(), Vec::new());
        let read = tokio::task::spawn_blocking(move || {
            let files = known.unwrap_or_else(|| Files::of(&home, &server));
            let stamp = files.stamp();
            let changed = first || stamp != stamp_before;
            if let (Some(tokens), false) = (&unsaved, changed) {
                // Whoever holds the lock saves them, or has newer ones.
                let locked = files.try_lock().ok().flatten();
                let saved = locked.is_some() && files.write(Part::Tokens, &tokens.to_file()).is_ok();
                return (files.stamp(), files, None, saved);
            }
            let stored = changed.then(|| {
                let mut stored = files.load();
                if stored.tokens.is_some() && stored.binding.is_none() {
                    stored.binding = take_over(&files, adopted, &stored);
                }
                let left =
                    stored.tokens.as_ref().map_or(Left::Nothing, |tokens| journal::left(&files, tokens));
                (stored, left)
            });
            (stamp, files, stored, false)
        });
        let Ok((stamp, files, stored, saved)) = read.await else { return };
        state.files = Some(files);
        if saved {
            (state.unsaved, state.stamp) = (false, stamp);
        }
        if let Some((stored, left)) = stored {
            (state.stamp, state.unsaved) = (stamp, false);
            self.adopt(state, stored, left);
        }
    }

    /// Takes over what is on disk, unless it belongs elsewhere.
    fn adopt(&self, state: &mut State, stored: Stored, left: Left) {
        let Stored { tokens, client, metadata, binding } = stored;
        state.why = binding.as_ref().and_then(|binding| self.foreign(binding));
        // For another origin or client not even the old registration is of use.
        let ours = state.why.is_none();
        state.tokens = tokens.filter(|_| ours);
        state.client = client.filter(|_| ours);
        state.metadata = metadata.filter(|_| ours);
        state.binding = binding.filter(|_| ours);
        match left {
            Left::Answered(newer) if ours => {
                tracing::info!(server = %self.server, "a renewed login was not saved before; taken from its journal");
                state.tokens = Some(newer);
                state.unsaved = true;
            }
            Left::Asked if ours => {
                tracing::warn!(server = %self.server, "a renewal of the login was interrupted");
            }
            Left::Answered(_) | Left::Asked | Left::Nothing => {}
        }
        self.mask(state);
    }

    fn foreign(&self, binding: &Binding) -> Option<String> {
        let origin = self.origin();
        if binding.origin != origin {
            return Some(format!("the login is for {}, the server is at {origin} now", binding.origin));
        }
        let configured = self.config.client_id.as_ref();
        configured
            .is_some_and(|id| !binding.client_id.is_empty() && *id != binding.client_id)
            .then(|| "the login was made with another `client_id`".to_owned())
    }

    /// Tells what must be masked.
    pub(super) fn mask(&self, state: &State) {
        let mut secrets: Vec<Secret> = state.tokens.iter().flat_map(Tokens::secrets).cloned().collect();
        secrets.extend(state.client.as_ref().and_then(|client| client.secret.clone()));
        (self.around.masks)(&self.server, &secrets);
    }

    /// Who hermesd is to the authorization server.
    pub(super) fn client(&self, state: &State) -> Option<Client> {
        match &self.config.client_id {
            Some(id) => Some(Client {
                id: id.clone(),
                secret: self.config.client_secret.clone(),
                auth_method: None,
                redirect_uris: Vec::new(),
                secret_until: None,
            }),
            None => state.client.clone(),
        }
    }

    /// Waits for the lock beside the files.
    pub(super) async fn lock(&self, files: &Files) -> Result<Locked, Trouble> {
        let until = Instant::now() + LOCK_WAIT;
        loop {
            let files = files.clone();
            match tokio::task::spawn_blocking(move || files.try_lock()).await {
                Ok(Ok(Some(locked))) => return Ok(locked),
                Ok(Ok(None)) if Instant::now() < until => tokio::time::sleep(LOCK_EVERY).await,
                Ok(Ok(None)) => {
                    let why = format!("another program has been renewing the login for {LOCK_WAIT:?}");
                    return Err(Trouble::Later { why });
                }
                Ok(Err(error)) => return Err(cannot_save(&error)),
                Err(_) => return Err(Trouble::Later { why: "the daemon ends".to_owned() }),
            }
        }
    }

    /// Puts `login` in place of whatever there was, on disk and in memory. The lock must be held.
    ///
    /// # Errors
    /// [`FileError`]: what is in memory is good, what is on disk is as before or newer in parts.
    pub(super) async fn replace(
        &self,
        state: &mut State,
        login: Stored,
        raw_client: Option<Map<String, Value>>,
    ) -> Result<(), FileError> {
        let Some(files) = state.files.clone() else { return Ok(()) };
        let written = login.clone();
        let saved = tokio::task::spawn_blocking(move || {
            // The tokens last: whoever finds them finds what belongs to them.
            if let Some(client) = &raw_client {
                files.write(Part::Client, client)?;
            }
            if let Some(metadata) = &written.metadata {
                files.write(Part::Metadata, metadata)?;
            }
            if let Some(Value::Object(binding)) =
                written.binding.as_ref().and_then(|binding| serde_json::to_value(binding).ok())
            {
                files.write(Part::Binding, &binding)?;
            }
            if let Some(tokens) = &written.tokens {
                files.write(Part::Tokens, &tokens.to_file())?;
            }
            let _ = journal::end(&files);
            Ok(files.stamp())
        });
        let Stored { tokens, client, metadata, binding } = login;
        state.tokens = tokens;
        state.client = client.or(state.client.take());
        state.metadata = metadata.or(state.metadata.take());
        state.binding = binding;
        (state.why, state.dead, state.failed) = (None, None, None);
        self.mask(state);
        match saved.await {
            Ok(Ok(stamp)) => {
                (state.stamp, state.unsaved) = (stamp, false);
                Ok(())
            }
            Ok(Err(error)) => {
                state.unsaved = true;
                Err(error)
            }
            Err(_) => Ok(()),
        }
    }

    /// The binding of what is being stored now.
    pub(super) fn binding(&self, issuer: Option<String>, client_id: &str, scopes: Vec<String>) -> Binding {
        Binding {
            server: self.server.to_string(),
            origin: self.origin(),
            issuer,
            client_id: client_id.to_owned(),
            scopes,
        }
    }

    /// The age of the access token; `None`: there is none.
    pub(super) fn age(&self, state: &State) -> Option<Age> {
        state.tokens.as_ref().map(|tokens| tokens.age(self.now()))
    }
}

impl State {
    /// The files; known after the first look.
    ///
    /// # Errors
    /// [`Trouble::Later`]: the look was cut short because the daemon ends.
    pub(super) fn files(&self) -> Result<Files, Trouble> {
        self.files.clone().ok_or_else(|| Trouble::Later { why: "the daemon ends".to_owned() })
    }

    /// Whether the refresh token at hand was refused for good.
    pub(super) fn is_dead(&self, refresh: &Secret) -> bool {
        self.dead.as_deref() == Some(&digest(refresh))
    }
}

/// A login of Hermes Agent says nothing about its server: from now on it belongs to this one, so that it
/// does not go elsewhere when the url is changed.
fn take_over(files: &Files, mut binding: Binding, stored: &Stored) -> Option<Binding> {
    if let (true, Some(client)) = (binding.client_id.is_empty(), &stored.client) {
        binding.client_id.clone_from(&client.id);
    }
    let issuer = stored.metadata.as_ref().and_then(|metadata| metadata.get("issuer")?.as_str());
    binding.issuer = issuer.map(str::to_owned);
    let Ok(Value::Object(file)) = serde_json::to_value(&binding) else { return None };
    // If it cannot be written the next look tries again.
    files.write(Part::Binding, &file).ok().map(|()| binding)
}

/// When to look at the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// Where the last look is long ago.
    WhenDue,
    /// In any case.
    Now,
}

/// The files cannot be written, so that nothing may be asked for that must be kept.
pub(super) fn cannot_save(error: &FileError) -> Trouble {
    let why = format!("the login cannot be kept: {} ({})", error.path.display(), error.source);
    Trouble::Later { why }
}
