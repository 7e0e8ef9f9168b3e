//! Opens, closes and reopens the listener as `hermesd.http` says.
//!
//! Owner: the task in [`Keeper::run`]. Promise: a section that did not change keeps its listener and all its sessions; a
//! changed one ends them, since tokens and address may be void; an address that cannot be bound is tried again
//! every [`RETRY`] and leaves everything else running. May not touch: the configuration.

use super::connections::Connections;
use super::keys::{self, Keys, TOKEN_FILE};
use super::service::Service;
use super::sessions::{LOOK, Sessions};
use crate::config::{Config, HttpListenConfig, ListenTokens};
use crate::secret::Secret;
use crate::session;
use crate::tasks::TaskGroup;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Pause before an address is tried again.
pub const RETRY: Duration = Duration::from_secs(5);

/// How long sessions may take to end when the section changes.
const CLOSE_BUDGET: Duration = Duration::from_secs(1);

/// What is to be known of the listener.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Status {
    /// There is none.
    #[default]
    Off,
    /// It is open.
    Open {
        /// Where clients send their requests.
        url: String,
        /// Where the token is: a file, `hermesd.http.token`, or nowhere.
        token: TokenPlace,
    },
    /// It cannot be opened.
    Failed {
        /// What was written.
        listen: String,
        /// Why not.
        reason: String,
    },
}

/// Where a person finds the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenPlace {
    /// In this file.
    File(PathBuf),
    /// In the configuration.
    Config,
    /// No token is asked for.
    Nowhere,
}

/// The task; see the module documentation.
pub struct Keeper {
    /// The configuration in force.
    pub config: watch::Receiver<Arc<Config>>,
    /// What sessions share.
    pub shared: Arc<session::Shared>,
    /// `$HERMES_HOME/hermesd`, for the generated token.
    pub folder: PathBuf,
    /// Called with a token before anybody can use it, so that it is masked everywhere.
    pub masks: Box<dyn Fn(Secret) + Send + Sync>,
    /// What status shows.
    pub status: watch::Sender<Status>,
    /// Accepts; stops before the sessions do.
    pub accepting: TaskGroup,
    /// Sessions and connections.
    pub sessions: TaskGroup,
}

/// An open listener.
struct Listening {
    accepting: TaskGroup,
    tasks: TaskGroup,
    sessions: Arc<Sessions>,
}

impl Keeper {
    /// Runs until `accepting` is told to stop.
    pub async fn run(mut self) {
        let stop = self.accepting.stop_signal();
        let mut applied: Option<HttpListenConfig> = None;
        let mut listening: Option<Listening> = None;
        loop {
            let wanted = self.config.borrow_and_update().daemon.http.clone();
            if wanted != applied {
                if let Some(old) = listening.take() {
                    old.close().await;
                }
                applied = wanted;
            }
            if let (Some(wanted), None) = (&applied, &listening) {
                listening = self.open(wanted).await;
            } else if applied.is_none() {
                self.tell(Status::Off);
            }
            let pause = if applied.is_some() && listening.is_none() { RETRY } else { LOOK };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                changed = self.config.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(pause), if applied.is_some() => {
                    if let Some(listening) = &listening {
                        listening.sessions.expire(Instant::now());
                    }
                }
            }
        }
    }

    async fn open(&self, wanted: &HttpListenConfig) -> Option<Listening> {
        let failed = |reason: String| {
            self.tell(Status::Failed { listen: wanted.listen.clone(), reason });
            None
        };
        let (keys, token) = match &wanted.tokens {
            ListenTokens::Open => (Keys::Open, TokenPlace::Nowhere),
            ListenTokens::Given(tokens) => (Keys::of(tokens.clone()), TokenPlace::Config),
            ListenTokens::Generated => {
                let folder = self.folder.clone();
                let made = tokio::task::spawn_blocking(move || keys::generated(&folder)).await;
                let token = match made.expect("reading a small file does not panic") {
                    Ok(token) => token,
                    Err(error) => return failed(format!("the file of the token: {error}")),
                };
                (self.masks)(token.clone());
                let only = [(keys::Guest::anybody().profile, token)];
                (Keys::of(only), TokenPlace::File(self.folder.join(TOKEN_FILE)))
            }
        };
        let connections = match Connections::bind(&wanted.listen).await {
            Ok(connections) => connections,
            Err(error) => return failed(error.to_string()),
        };
        let url = format!("http://{}{}", connections.address(), super::PATH);
        let (accepting, tasks) = (self.accepting.child(), self.sessions.child());
        let sessions = Sessions::new(self.shared.clone(), tasks.clone());
        let service = Arc::new(Service::new(keys, sessions.clone()));
        accepting.spawn(connections.run(service, tasks.clone(), accepting.stop_signal()));
        self.tell(Status::Open { url, token });
        Some(Listening { accepting, tasks, sessions })
    }

    fn tell(&self, status: Status) {
        let changed = self.status.send_if_modified(|told| {
            let changed = *told != status;
            told.clone_from(&status);
            changed
        });
        if !changed {
            return;
        }
        match status {
            Status::Off => tracing::info!("the HTTP listener is closed"),
            Status::Open { url, .. } => tracing::info!(url, "MCP is served over HTTP"),
            Status::Failed { listen, reason } => {
                tracing::error!(listen, reason, "the HTTP listener cannot be opened")
            }
        }
    }
}

impl Listening {
    async fn close(self) {
        self.accepting.finish(CLOSE_BUDGET).await;
        self.tasks.finish(CLOSE_BUDGET).await;
        self.sessions.close();
    }
}
