//! Every session there is, and the clients of the revisions that have none.
//!
//! Owner: [`Sessions`], cheap to share; std mutexes, never across an await. Promise: a session is found only by its id and
//! the token it was made with; there are at most [`MAX_SESSIONS`], and one that is idle for [`IDLE`] ends. All
//! requests without a session that show the same token, name and capabilities are one client: what the daemon keeps for a client
//! (its own server processes, which were told its capabilities, limits, waiting approvals) must last longer than a request.

use super::keys::Guest;
use super::session::HttpSession;
use crate::names::ClientId;
use crate::session::clients::ClientFacts;
use crate::session::listener::{MAX_CLIENTS, id_prefix};
use crate::session::task::Session;
use crate::session::{self};
use crate::store;
use crate::tasks::TaskGroup;
use hermes_proto::shim::hello::{Hello, Only};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::Instant;

/// Sessions at once.
pub const MAX_SESSIONS: usize = 128;
/// A session without an open stream or a request for so long ends; its client makes a new one.
pub const IDLE: Duration = Duration::from_secs(30 * 60);
/// A client without a session that asks nothing for so long is gone.
pub const GUEST_IDLE: Duration = Duration::from_secs(5 * 60);
/// How often both are looked at.
pub const LOOK: Duration = Duration::from_secs(20);

/// Why a client gets no session.
#[derive(Debug, thiserror::Error)]
pub enum NoSession {
    /// There are too many.
    #[error("{limit} clients are connected already")]
    Busy {
        /// How many there may be.
        limit: usize,
    },
    /// The profile of its token is not in the configuration any more.
    #[error("there is no profile `{profile}` in config.yaml any more")]
    NoProfile {
        /// Its name.
        profile: String,
    },
    /// The system gives no socket pair.
    #[error("no socket pair")]
    Socket(#[source] io::Error),
}

/// See the module documentation.
#[derive(Debug)]
pub struct Sessions {
    shared: Arc<session::Shared>,
    /// Sessions and the tasks around them; told to stop with the listener.
    tasks: TaskGroup,
    table: Mutex<BTreeMap<Box<str>, Arc<HttpSession>>>,
    guests: Mutex<BTreeMap<Visitor, Known>>,
}

/// A client without a session: its token, and a digest of what it says of itself.
type Visitor = (Guest, [u8; 32]);

#[derive(Debug)]
struct Known {
    facts: Arc<ClientFacts>,
    open: usize,
    used: Instant,
}

impl Sessions {
    /// None yet.
    pub fn new(shared: Arc<session::Shared>, tasks: TaskGroup) -> Arc<Self> {
        Arc::new(Self { shared, tasks, table: Mutex::default(), guests: Mutex::default() })
    }

    /// What all sessions of the daemon share.
    pub fn shared(&self) -> &session::Shared {
        &self.shared
    }

    /// A new session for `guest`.
    ///
    /// # Errors
    /// [`NoSession`].
    pub fn begin(self: &Arc<Self>, guest: &Guest) -> Result<Arc<HttpSession>, NoSession> {
        self.admit(guest)?;
        self.make_room()?;
        let (ours, theirs) = UnixStream::pair().map_err(NoSession::Socket)?;
        let facts = self.shared.clients.enter(0, guest.profile.as_str());
        let (session, carry) = HttpSession::new(random_id().into(), guest.clone(), ours);
        tracing::debug!(client = %facts.id, profile = %guest.profile, "client connected over HTTP");
        let id = facts.id;
        let inner = self.session(guest, facts, theirs);
        let (sessions, key) = (self.clone(), session.id.clone());
        self.tasks.spawn(async move {
            tokio::join!(inner, carry);
            lock(&sessions.table).remove(&key);
            sessions.leave(id);
        });
        lock(&self.table).insert(session.id.clone(), session.clone());
        Ok(session)
    }

    /// The session of that id, if it is one of `guest`.
    pub fn find(&self, id: &str, guest: &Guest) -> Option<Arc<HttpSession>> {
        lock(&self.table).get(id).filter(|session| session.guest == *guest).cloned()
    }

    /// Runs a session that lives for one request; `who` is what its client says of itself, `kind` says whose it is. Gives our end of its socket pair; closing
    /// it ends the session and its calls.
    ///
    /// # Errors
    /// [`NoSession`].
    pub fn single(
        self: &Arc<Self>,
        guest: &Guest,
        who: &str,
        kind: SingleKind,
    ) -> Result<UnixStream, NoSession> {
        self.admit(guest)?;
        let (ours, theirs) = UnixStream::pair().map_err(NoSession::Socket)?;
        let in_use = match kind {
            SingleKind::Call => self.known((guest.clone(), Sha256::digest(who.as_bytes()).into()))?,
            SingleKind::Stream => {
                if self.shared.clients.all().len() >= MAX_CLIENTS {
                    return Err(NoSession::Busy { limit: MAX_CLIENTS });
                }
                let facts = self.shared.clients.enter(0, guest.profile.as_str());
                InUse { sessions: self.clone(), visitor: None, facts }
            }
        };
        let session = self.session(guest, in_use.facts.clone(), theirs);
        self.tasks.spawn(async move {
            session.await;
            // Not before: what a session still does must not bring a client back that is gone.
            drop(in_use);
        });
        Ok(ours)
    }

    /// Ends what was idle for too long.
    pub fn expire(&self, now: Instant) {
        let over = |since: Instant, limit| now.saturating_duration_since(since) >= limit;
        for session in lock(&self.table).values() {
            if session.idle_since().is_some_and(|since| over(since, IDLE)) {
                session.end();
            }
        }
        let gone: Vec<ClientId> = {
            let mut guests = lock(&self.guests);
            let idle = |known: &Known| known.open == 0 && over(known.used, GUEST_IDLE);
            let gone = guests.values().filter(|known| idle(known)).map(|known| known.facts.id).collect();
            guests.retain(|_, known| !idle(known));
            gone
        };
        gone.into_iter().for_each(|id| self.leave(id));
    }

    /// How many sessions there are.
    pub fn count(&self) -> usize {
        lock(&self.table).len()
    }

    /// Strikes out everybody who has no session; the listener is closed.
    pub fn close(&self) {
        let all = std::mem::take(&mut *lock(&self.guests));
        all.into_values().for_each(|known| self.leave(known.facts.id));
    }

    fn leave(&self, id: ClientId) {
        self.shared.clients.leave(id);
        self.shared.calls.forget_client(id);
    }

    fn admit(&self, guest: &Guest) -> Result<(), NoSession> {
        let profiles = self.shared.calls.profiles();
        if profiles.contains(&guest.profile) {
            return Ok(());
        }
        Err(NoSession::NoProfile { profile: guest.profile.to_string() })
    }

    fn make_room(&self) -> Result<(), NoSession> {
        if self.shared.clients.all().len() >= MAX_CLIENTS {
            return Err(NoSession::Busy { limit: MAX_CLIENTS });
        }
        let table = lock(&self.table);
        if table.len() < MAX_SESSIONS {
            return Ok(());
        }
        // Clients that never say good-bye must not shut out new ones.
        let idle = table.values().filter_map(|session| Some((session.idle_since()?, session)));
        let (_, longest) =
            idle.min_by_key(|(since, _)| *since).ok_or(NoSession::Busy { limit: MAX_SESSIONS })?;
        longest.end();
        Ok(())
    }

    fn known(self: &Arc<Self>, visitor: Visitor) -> Result<InUse, NoSession> {
        let mut guests = lock(&self.guests);
        if !guests.contains_key(&visitor) && self.shared.clients.all().len() >= MAX_CLIENTS {
            return Err(NoSession::Busy { limit: MAX_CLIENTS });
        }
        let known = guests.entry(visitor.clone()).or_insert_with(|| Known {
            facts: self.shared.clients.enter(0, visitor.0.profile.as_str()),
            open: 0,
            used: Instant::now(),
        });
        known.open += 1;
        let facts = known.facts.clone();
        Ok(InUse { sessions: self.clone(), visitor: Some(visitor), facts })
    }

    /// The daemon's side of one session, to be run.
    fn session(
        &self,
        guest: &Guest,
        facts: Arc<ClientFacts>,
        stream: UnixStream,
    ) -> impl Future<Output = ()> + Send + use<> {
        let hello = Hello {
            home: self.shared.home.display().to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            profile: guest.profile.to_string(),
            only: Only::All,
            client_pid: 0,
            resume: None,
        };
        // Nobody knows who is at the other end of a TCP connection.
        let identity = store::Caller {
            uid: None,
            pid: None,
            executable: None,
            profile: guest.profile.clone(),
            name: None,
            version: None,
        };
        let prefix = id_prefix().into();
        let session = Session::new(self.shared.clone(), facts, stream, &hello, identity, prefix, Vec::new());
        let stop = self.tasks.stop_signal();
        async move {
            let ended = session.run(stop).await;
            tracing::trace!(reason = ended.word(), "session over HTTP ended");
        }
    }
}

/// What a session for one request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SingleKind {
    /// A call; its client is everybody with the same token who says the same of itself.
    Call,
    /// A stream of news; a client of its own, so that two of them are kept apart.
    Stream,
}

/// A client without a session that is using the listener.
#[derive(Debug)]
struct InUse {
    sessions: Arc<Sessions>,
    /// `None`: it ends with this.
    visitor: Option<Visitor>,
    facts: Arc<ClientFacts>,
}

impl Drop for InUse {
    fn drop(&mut self) {
        match &self.visitor {
            None => self.sessions.leave(self.facts.id),
            Some(visitor) => {
                if let Some(known) = lock(&self.sessions.guests).get_mut(visitor) {
                    known.open = known.open.saturating_sub(1);
                    known.used = Instant::now();
                }
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// 128 random bits (MCP 2025-11-25, Session Management: globally unique and cryptographically secure).
fn random_id() -> String {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).expect("the system has randomness, or no TLS would work either");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
