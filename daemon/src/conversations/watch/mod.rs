//! Watches state.db and carries what happens in it into the event log.
//!
//! Owner: the thread "watch-state", which has a read connection of its own; [`Watch`] is a handle. Promise:
//! a committed message is an event within milliseconds, whether Hermes Agent keeps its connection open or
//! not; nothing is missed, told twice or reordered; idle costs next to nothing; no lock and no read stays
//! open. May not touch: state.db but for reading, clients.
//!
//! A notice of the system (`eye`) or a time (`pace`) -> `follow`: is it the same file, what is new
//! (`plan`, over the queries in `rows`) -> one transaction of hermesd.db.

mod eye;
mod follow;
mod inherited;
mod keys;
mod pace;
mod plan;
mod position;
mod rows;

#[cfg(test)]
mod tests;

pub use pace::Mode;

use crate::config::{Config, ConversationsMode};
use crate::store::{Store, StoreError, UnixMs};
use crate::tasks::TaskGroup;
use crate::telemetry::metrics::Metrics;
use eye::Eye;
use follow::{Follower, LookError, Looked};
use pace::{Found, Pace};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{broadcast, oneshot, watch};

/// Changes that a slow listener may be behind; more and it is told that it missed some.
const CHANGES: usize = 1024;
/// The folder's watches are renewed at most this often.
const RENEW: Duration = Duration::from_secs(1);
/// Pause before a thread that panicked is started again.
const RESTART: Duration = Duration::from_secs(1);
/// How long boot waits for the first look.
pub const SETTLE: Duration = Duration::from_secs(2);

/// A change of conversations, for those who follow resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Something happened in this conversation.
    Session(Arc<str>),
    /// The database was replaced: anything may have changed.
    Everything,
}

/// What is known about state.db.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It was not looked at yet.
    Starting,
    /// It is not wanted: `conversations: off`.
    Off,
    /// It is followed.
    Following,
    /// There is none; it is waited for.
    Missing,
    /// It cannot be read now, or hermesd.db cannot be written; tried again.
    Trouble(String),
}

/// How the watcher is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchStatus {
    /// What is known about state.db.
    pub state: State,
    /// How changes are noticed.
    pub mode: Mode,
}

impl WatchStatus {
    /// One line for status.
    pub fn words(&self) -> String {
        let mode = match self.mode {
            Mode::Notices => "notified by the system",
            Mode::Polling => "looked at five times a second, the file system gives no notices",
            Mode::PollingUnnoticed => "looked at five times a second, changes came without a notice",
        };
        match &self.state {
            State::Starting => "starting".to_owned(),
            State::Off => "off".to_owned(),
            State::Following => format!("following state.db, {mode}"),
            State::Missing => format!("waiting for state.db, {mode}"),
            State::Trouble(why) => format!("trying again: {why}"),
        }
    }
}

/// Whether events are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// They are.
    Yes,
    /// They are not; where the file stands is noted all the same.
    No,
}

/// The watcher of one home. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Watch {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    home: PathBuf,
    store: Store,
    metrics: Metrics,
    status: watch::Sender<WatchStatus>,
    changes: broadcast::Sender<Change>,
    wanted: AtomicBool,
    stopping: AtomicBool,
    wake: SyncSender<()>,
    /// Of whoever runs the thread.
    woken: std::sync::Mutex<Receiver<()>>,
}

impl Watch {
    /// Starts watching `home` in `group`. Until [`Watch::want`] says yes only the place of the newest
    /// message is noted, so that everything after the start counts as new.
    pub fn start(home: &Path, store: Store, metrics: Metrics, group: &TaskGroup) -> Self {
        let (wake, woken) = sync_channel(1);
        let shared = Arc::new(Shared {
            home: home.to_owned(),
            store,
            metrics,
            status: watch::Sender::new(WatchStatus { state: State::Starting, mode: Mode::Notices }),
            changes: broadcast::Sender::new(CHANGES),
            wanted: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            wake,
            woken: std::sync::Mutex::new(woken),
        });
        let stop = group.stop_signal();
        let keeper = shared.clone();
        group.spawn(async move {
            while !stop.is_cancelled() {
                let Some(mut ended) = keeper.clone().spawn() else { return };
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {
                        keeper.stopping.store(true, Ordering::Release);
                        // Full: it is going to look anyway.
                        let _ = keeper.wake.try_send(());
                        // An error means that it ended.
                        let _ = ended.await;
                        return;
                    }
                    how = &mut ended => if how.is_ok() { return },
                }
                tracing::error!("the watcher of state.db panicked; it is started again");
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(RESTART) => {}
                }
            }
        });
        Self { shared }
    }

    /// Whether events are wanted.
    pub fn want(&self, wanted: Wanted) {
        self.shared.wanted.store(wanted == Wanted::Yes, Ordering::Release);
        // Full: it is going to look anyway.
        let _ = self.shared.wake.try_send(());
    }

    /// Makes events as long as conversations are not switched off; until the configuration ends.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn obey(self, mut config: watch::Receiver<Arc<Config>>) {
        loop {
            let wanted = match config.borrow_and_update().daemon.conversations {
                ConversationsMode::Off => Wanted::No,
                ConversationsMode::Auto | ConversationsMode::On => Wanted::Yes,
            };
            self.want(wanted);
            if config.changed().await.is_err() {
                return;
            }
        }
    }

    /// How it is doing, now and from now on.
    pub fn status(&self) -> watch::Receiver<WatchStatus> {
        self.shared.status.subscribe()
    }

    /// Changes from now on; a listener that is too slow is told that it missed some.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.shared.changes.subscribe()
    }

    /// Returns after the first look, or after [`SETTLE`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn settled(&self) {
        let mut status = self.status();
        let looked = status.wait_for(|status| status.state != State::Starting);
        if tokio::time::timeout(SETTLE, looked).await.is_err() {
            tracing::warn!("state.db was not looked at yet; messages that come now may count as history");
        }
    }
}

impl Shared {
    /// Runs the thread; the receiver fails if it panics.
    fn spawn(self: Arc<Self>) -> Option<oneshot::Receiver<()>> {
        let (tell, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("watch-state".to_owned());
        let spawned = thread.spawn(move || {
            self.run();
            // Nobody may wait any more.
            let _ = tell.send(());
        });
        match spawned {
            Ok(_) => Some(ended),
            Err(error) => {
                tracing::error!(%error, "no thread to watch state.db; there will be no events");
                None
            }
        }
    }

    fn run(&self) {
        let woken = self.woken.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut eye = Eye::new(&self.home, self.wake.clone());
        let mut follower =
            Follower::new(&self.home, self.store.clone(), self.metrics.clone(), self.changes.clone());
        let mut pace = Pace::new(eye.renew(), Instant::now());
        let mut renewed = Instant::now();
        loop {
            let pause = pace.due().saturating_duration_since(Instant::now());
            // Disconnected cannot be: a sender is ours.
            if woken.recv_timeout(pause).is_ok() {
                pace.noticed(Instant::now());
            }
            if self.stopping.load(Ordering::Acquire) {
                return;
            }
            if Instant::now() < pace.due() {
                continue;
            }
            if renewed.elapsed() >= RENEW {
                // Before the look, or a change between the two would be missed.
                pace.watches(eye.renew());
                renewed = Instant::now();
            }
            let looked = self.look(&mut follower);
            let found = match &looked {
                Ok((Looked::New, _)) => Found::Change,
                Ok((Looked::Same, _)) => Found::Nothing,
                Err(LookError::Store(StoreError::Closed)) => return,
                Err(_) => Found::Trouble,
            };
            pace.looked(found, Instant::now());
            self.publish(looked.map(|(_, state)| state), pace.mode());
        }
    }

    fn look(&self, follower: &mut Follower) -> Result<(Looked, State), LookError> {
        let now = UnixMs::at(SystemTime::now());
        if !self.wanted.load(Ordering::Acquire) {
            follower.anchor(now)?;
            return Ok((Looked::Same, State::Off));
        }
        let (looked, state) = follower.look(now)?;
        if looked == Looked::Same && state == State::Following {
            // Nothing comes at this moment: time for what nobody waits for.
            follower.sweep(now)?;
        }
        Ok((looked, state))
    }

    fn publish(&self, state: Result<State, LookError>, mode: Mode) {
        let state = state.unwrap_or_else(|error| State::Trouble(error.to_string()));
        self.status.send_if_modified(|status| {
            let new = WatchStatus { state, mode };
            if *status == new {
                return false;
            }
            match &new.state {
                State::Trouble(why) => tracing::warn!(why, "no events for now"),
                State::Starting | State::Off | State::Following | State::Missing => {
                    tracing::info!(events = new.words(), "conversations");
                }
            }
            *status = new;
            true
        });
    }
}
