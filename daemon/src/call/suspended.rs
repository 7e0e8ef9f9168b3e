//! Calls that wait for their client's answers between two requests of it (2026-07-28, Multi Round-Trip Requests).
//!
//! Owner: [`Suspended`], one for all clients; a std mutex, never held across an await. Promise: a suspended call
//! is not polled, so that its clock and its slot stand still; it comes back only for the client that made it,
//! with the same request, once; at most [`PER_CLIENT`] and [`IN_ALL`] wait, none longer than [`LIFE`]; one that
//! lapses is dropped, which declines what its server asked, cancels it there and leaves a row in the audit.
//! May not touch: what is asked, sessions.

use super::running::Running;
use super::seal::{SealKey, State};
use super::steps::{CallPath, lock};
use crate::names::ClientId;
use crate::store::UnixMs;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Suspended calls of one client.
pub const PER_CLIENT: usize = 8;

/// Suspended calls of all clients.
pub const IN_ALL: usize = 128;

/// From the first question on.
pub const LIFE: Duration = Duration::from_secs(300);

/// Why a `requestState` is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// Not one of ours, or changed.
    #[error("the requestState is not one that hermesd gave out")]
    Unreadable,
    /// Another client's.
    #[error("the requestState belongs to another client")]
    Foreign,
    /// For another request.
    #[error(
        "the requestState belongs to another request: method, name and arguments must be those of the first one"
    )]
    OtherRequest,
    /// Too late.
    #[error("the requestState lapsed {} s after the question", LIFE.as_secs())]
    Expired,
    /// Used already, or the daemon that gave it out is gone.
    #[error("the requestState was used already, or hermesd was restarted since")]
    Used,
}

/// Why a call cannot be suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SuspendError {
    /// Too many of this client.
    #[error("{PER_CLIENT} calls of this client wait for its answers already")]
    Client,
    /// Too many in all.
    #[error("{IN_ALL} calls wait for answers of clients already")]
    All,
    /// No randomness for the handle.
    #[error("the system has no randomness to seal the state with")]
    Random,
}

/// One that waits.
#[derive(Debug)]
struct Entry {
    running: Running,
    client: ClientId,
    until: Instant,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Suspended {
    table: Mutex<HashMap<String, Entry>>,
    changed: Notify,
}

impl Suspended {
    /// How many wait.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        lock(&self.table).len()
    }

    /// Puts a call aside; gives the word that brings it back.
    ///
    /// # Errors
    /// [`SuspendError`]; the call is dropped.
    pub(super) fn put(
        &self,
        key: &SealKey,
        mut running: Running,
        client: ClientId,
    ) -> Result<String, SuspendError> {
        let now = Instant::now();
        // Asked again, it does not live longer: a client that never answers must not hold it for ever.
        let until = *running.until.get_or_insert(now + LIFE);
        let mut bytes = [0u8; 16];
        getrandom::fill(&mut bytes).map_err(|_| SuspendError::Random)?;
        let handle: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let left = i64::try_from(until.saturating_duration_since(now).as_millis()).unwrap_or(0);
        let state = State {
            handle: handle.clone(),
            owner: owner(client),
            request: running.request.clone(),
            until_ms: UnixMs::at(SystemTime::now()).0 + left,
        };
        let word = key.seal(&state).map_err(|_| SuspendError::Random)?;
        let mut table = lock(&self.table);
        if table.len() >= IN_ALL {
            return Err(SuspendError::All);
        }
        if table.values().filter(|entry| entry.client == client).count() >= PER_CLIENT {
            return Err(SuspendError::Client);
        }
        table.insert(handle, Entry { running, client, until });
        drop(table);
        self.changed.notify_one();
        Ok(word)
    }

    /// Takes a call back that `word` stands for; `request` is the digest of what the client sends with it.
    ///
    /// # Errors
    /// [`StateError`]; but for [`StateError::Expired`] the call goes on waiting.
    fn take(
        &self,
        key: &SealKey,
        word: &str,
        client: ClientId,
        request: &str,
    ) -> Result<Running, StateError> {
        let state = key.open(word).ok_or(StateError::Unreadable)?;
        if state.owner != owner(client) {
            return Err(StateError::Foreign);
        }
        if state.request != request {
            return Err(StateError::OtherRequest);
        }
        if state.until_ms <= UnixMs::at(SystemTime::now()).0 {
            return Err(StateError::Expired);
        }
        let mut table = lock(&self.table);
        let is_owners = table.get(&state.handle).is_some_and(|entry| entry.client == client);
        let entry = table.remove(&state.handle).filter(|_| is_owners).ok_or(StateError::Used)?;
        Ok(entry.running)
    }

    /// Drops what a client that is gone left.
    pub(super) fn forget(&self, client: ClientId) {
        let gone = self.drain(|entry| entry.client == client, "the client is gone");
        drop(gone);
    }

    /// Takes out what matches. Dropped by the caller, not under the lock: a dropped call runs code of others.
    fn drain(&self, which: impl Fn(&Entry) -> bool, why: &str) -> Vec<Running> {
        let mut table = lock(&self.table);
        let handles: Vec<String> =
            table.iter().filter(|(_, entry)| which(entry)).map(|(handle, _)| handle.clone()).collect();
        let entries: Vec<Entry> = handles.iter().filter_map(|handle| table.remove(handle)).collect();
        drop(table);
        let running = entries.into_iter().map(|entry| entry.running);
        running.inspect(|running| running.because(why)).collect()
    }
}

/// What the sealed state calls a client.
fn owner(client: ClientId) -> String {
    format!("client {client}")
}

impl CallPath {
    /// Puts a call of `client` aside; gives the word that brings it back.
    ///
    /// # Errors
    /// [`SuspendError`]; the call is dropped.
    pub(super) fn suspend(&self, running: Running, client: ClientId) -> Result<String, SuspendError> {
        self.suspended.put(&self.around.seal, running, client)
    }

    /// Takes a call of `client` back that `word` stands for; `request` is the digest of what came with it.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn resume(&self, word: &str, client: ClientId, request: &str) -> Result<Running, StateError> {
        self.suspended.take(&self.around.seal, word, client, request)
    }

    /// Ends suspended calls whose time is over, until `stop`; then all of them.
    pub async fn keep_suspended(self: Arc<Self>, stop: CancellationToken) {
        let suspended = &self.suspended;
        loop {
            let next = lock(&suspended.table).values().map(|entry| entry.until).min();
            let due = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => {
                    drop(suspended.drain(|_| true, "hermesd stops"));
                    return;
                }
                () = suspended.changed.notified() => {}
                () = due => {}
            }
            let now = Instant::now();
            let late = suspended.drain(|entry| entry.until <= now, "its client did not answer in time");
            if !late.is_empty() {
                tracing::info!(calls = late.len(), "suspended calls lapsed: their clients did not answer");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::reply::Reply;
    use serde_json::value::RawValue;
    use tokio::sync::oneshot;

    fn suspended() -> (Suspended, SealKey) {
        (Suspended::default(), SealKey::random().unwrap())
    }

    fn call() -> (Running, oneshot::Receiver<()>) {
        let (alive, ended) = oneshot::channel();
        let future = Box::pin(async move {
            let _alive: oneshot::Sender<()> = alive;
            std::future::pending::<Reply>().await
        });
        (Running::testing(future, "r"), ended)
    }

    const CLIENT: ClientId = ClientId(1);

    #[tokio::test(start_paused = true)]
    async fn a_call_comes_back_once_for_its_own_client_and_request() {
        let (all, key) = suspended();
        let word = all.put(&key, call().0, CLIENT).unwrap();
        let error = |word: &str, client, request: &str| all.take(&key, word, client, request).err();
        assert_eq!(error("nonsense", CLIENT, "r"), Some(StateError::Unreadable));
        assert_eq!(error(&word, ClientId(2), "r"), Some(StateError::Foreign));
        assert_eq!(error(&word, CLIENT, "other"), Some(StateError::OtherRequest));
        assert_eq!(error(&word, CLIENT, "r"), None);
        assert_eq!(error(&word, CLIENT, "r"), Some(StateError::Used));
        assert_eq!(
            Suspended::default().take(&suspended().1, &word, CLIENT, "r").err(),
            Some(StateError::Unreadable)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn suspended_calls_are_bounded_for_each_client_and_in_all() {
        let (all, key) = suspended();
        for _ in 0..PER_CLIENT {
            all.put(&key, call().0, CLIENT).unwrap();
        }
        assert_eq!(all.put(&key, call().0, CLIENT).err(), Some(SuspendError::Client));
        for n in PER_CLIENT..IN_ALL {
            all.put(&key, call().0, ClientId(100 + n as u64)).unwrap();
        }
        assert_eq!(all.put(&key, call().0, ClientId(2)).err(), Some(SuspendError::All));
        all.forget(CLIENT);
        assert_eq!(all.waiting(), IN_ALL - PER_CLIENT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_asked_again_does_not_live_longer() {
        let (all, key) = suspended();
        let (running, mut ended) = call();
        let word = all.put(&key, running, CLIENT).unwrap();
        tokio::time::advance(LIFE / 2).await;
        let running = all.take(&key, &word, CLIENT, "r").unwrap();
        all.put(&key, running, CLIENT).unwrap();
        let now = Instant::now();
        assert!(all.drain(|entry| entry.until <= now, "").is_empty());
        tokio::time::advance(LIFE / 2).await;
        let now = Instant::now();
        drop(all.drain(|entry| entry.until <= now, ""));
        assert!(ended.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Closed));
    }

    #[test]
    fn a_state_says_nothing_to_its_client() {
        let (all, key) = suspended();
        let word = all.put(&key, call().0, CLIENT).unwrap();
        assert!(!word.contains("client") && RawValue::from_string(format!("\"{word}\"")).is_ok());
    }
}
