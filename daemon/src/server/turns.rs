//! Clients take turns at a server that serves one of them at a time (`sharing: exclusive`).
//!
//! Owner: the server's handle; it outlives generations. Promise: between two turns the server has answered
//! every call of the first, given-up ones too, or was restarted; who waits is served in order, within its
//! own limit; whom the server may ask is set with the turn. A std mutex, never held across an await.
//! May not touch: the wire.

use super::wire::questions::{Front, Unasked};
use crate::names::{ClientId, ServerName};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Calls that may wait for a turn.
pub const MAX_WAITING: usize = 256;

/// A client keeps its turn for new calls this long while others wait.
const FAIR: Duration = Duration::from_secs(30);

/// Why a call has no turn. Our state, not the server's: never charged to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TurnError {
    /// Another client had the server all the time.
    #[error("it serves one client at a time, and {holder} has had it for {waited:?}")]
    TimedOut {
        /// Who.
        holder: String,
        /// How long was waited.
        waited: Duration,
    },
    /// Too many wait.
    #[error("it serves one client at a time, now {holder}, and {waiting} calls wait already")]
    Full {
        /// Who has it.
        holder: String,
        /// How many wait.
        waiting: usize,
    },
    /// The call was made while the server waits for this client, and it takes no second one.
    #[error("it waits for an answer of this client and takes one call at a time (`max_concurrency: 1`)")]
    Nested,
}

/// Who wants a turn.
#[derive(Debug, Clone)]
pub struct Taker {
    /// The client.
    pub client: ClientId,
    /// Its name for others.
    pub label: String,
    /// Where the server's questions go meanwhile; `None`: it cannot be asked.
    pub inbox: Option<mpsc::Sender<Unasked>>,
}

/// What the server does for the client that has the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nesting {
    /// It waits for no answer of a client.
    None,
    /// It waits for its client, which makes another call: that one passes, or nothing would ever end.
    Passes,
    /// The same, where only one call may be in flight.
    Refused,
}

/// A part of a turn, for the connection until the server has answered; the turn goes on until nobody holds
/// one.
pub type Pass = Arc<Part>;

/// See [`Pass`].
#[derive(Debug)]
pub struct Part(Turns);

impl Drop for Part {
    fn drop(&mut self) {
        self.0.part_is_over();
    }
}

/// A call's own part, while somebody waits for its answer.
#[derive(Debug)]
pub struct Turn {
    pass: Pass,
    turns: Turns,
}

impl Turn {
    /// For the connection.
    pub fn pass(&self) -> Pass {
        self.pass.clone()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(held) = &mut self.turns.lock().held {
            held.calls -= 1;
        }
    }
}

#[derive(Debug)]
struct Waiter {
    taker: Taker,
    granted: oneshot::Sender<Turn>,
}

#[derive(Debug)]
struct Held {
    taker: Taker,
    since: Instant,
    /// Parts of the turn, and among them calls whose caller still waits.
    parts: usize,
    calls: usize,
}

#[derive(Debug, Default)]
struct State {
    held: Option<Held>,
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Inner {
    server: ServerName,
    state: Mutex<State>,
    front: Front,
}

/// The turns of one server. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Turns(Arc<Inner>);

impl Turns {
    /// Nobody has a turn; `front` is told who does.
    pub fn new(server: ServerName, front: Front) -> Self {
        Self(Arc::new(Inner { server, state: Mutex::default(), front }))
    }

    /// Waits for the turn of `taker`, at most until `deadline`.
    ///
    /// # Errors
    /// [`TurnError`].
    /// # Cancel safety
    /// Cancel safe: dropped, the place in the line is given up.
    pub async fn take(&self, taker: Taker, nesting: Nesting, deadline: Instant) -> Result<Turn, TurnError> {
        let asked = Instant::now();
        let mut granted = {
            let mut state = self.lock();
            if self.at_once(&mut state, &taker, nesting, asked)? {
                drop(state);
                return Ok(self.counted());
            }
            // Callers that went away hold no place.
            state.waiting.retain(|waiter| !waiter.granted.is_closed());
            if state.waiting.len() >= MAX_WAITING {
                return Err(TurnError::Full { holder: holder(&state), waiting: state.waiting.len() });
            }
            let (grant, granted) = oneshot::channel();
            state.waiting.push_back(Waiter { taker, granted: grant });
            granted
        };
        let late = || TurnError::TimedOut { holder: holder(&self.lock()), waited: asked.elapsed() };
        match tokio::time::timeout_at(deadline, &mut granted).await {
            Ok(turn) => turn.map_err(|_| late()),
            Err(_) => {
                granted.close();
                // It may have come this moment.
                granted.try_recv().map_err(|_| late())
            }
        }
    }

    /// Counts a call of `taker` in, where it need not wait.
    fn at_once(
        &self,
        state: &mut State,
        taker: &Taker,
        nesting: Nesting,
        now: Instant,
    ) -> Result<bool, TurnError> {
        let others_wait = state.waiting.iter().any(|waiter| !waiter.granted.is_closed());
        match &mut state.held {
            // A turn is passed on where it ends, so nobody waits.
            None => {
                self.begin(state, taker, now);
                Ok(true)
            }
            Some(held) if held.taker.client == taker.client => match nesting {
                Nesting::Refused if held.calls > 0 => Err(TurnError::Nested),
                Nesting::None if others_wait && now >= held.since + FAIR => Ok(false),
                Nesting::None | Nesting::Passes | Nesting::Refused => {
                    held.parts += 1;
                    held.calls += 1;
                    Ok(true)
                }
            },
            Some(_) => Ok(false),
        }
    }

    /// The client is there by another connection than before: if it has the turn, questions go to `inbox`.
    pub fn moved(&self, client: ClientId, inbox: &mpsc::Sender<Unasked>) {
        let mut state = self.lock();
        if let Some(held) = state.held.as_mut().filter(|held| held.taker.client == client) {
            held.taker.inbox = Some(inbox.clone());
            self.0.front.serve(self.0.server.clone(), inbox.clone());
        }
    }

    /// Whether all that keeps the turn from ending are calls that everybody has given up.
    pub fn is_owed_only(&self) -> bool {
        self.lock().held.as_ref().is_some_and(|held| held.calls == 0)
    }

    /// A turn with one call begins.
    fn begin(&self, state: &mut State, taker: &Taker, now: Instant) {
        match &taker.inbox {
            Some(inbox) => self.0.front.serve(self.0.server.clone(), inbox.clone()),
            None => self.0.front.clear(),
        }
        state.held = Some(Held { taker: taker.clone(), since: now, parts: 1, calls: 1 });
    }

    /// A call that was counted in.
    fn counted(&self) -> Turn {
        Turn { pass: Arc::new(Part(self.clone())), turns: self.clone() }
    }

    fn part_is_over(&self) {
        let next = {
            let mut state = self.lock();
            let Some(held) = &mut state.held else { return };
            held.parts -= 1;
            if held.parts > 0 {
                return;
            }
            state.held = None;
            self.0.front.clear();
            self.next_turn(&mut state)
        };
        // Outside of the lock: a call that went away meanwhile gives its part back here.
        for granted in next {
            drop(granted.send(self.counted()));
        }
    }

    /// The turn of whoever waits longest begins, with all calls of that client.
    fn next_turn(&self, state: &mut State) -> Vec<oneshot::Sender<Turn>> {
        state.waiting.retain(|waiter| !waiter.granted.is_closed());
        let Some(first) = state.waiting.pop_front() else { return Vec::new() };
        self.begin(state, &first.taker, Instant::now());
        let mut granted = vec![first.granted];
        let mut others = VecDeque::with_capacity(state.waiting.len());
        for waiter in std::mem::take(&mut state.waiting) {
            match &mut state.held {
                Some(held) if held.taker.client == waiter.taker.client => {
                    held.parts += 1;
                    held.calls += 1;
                    granted.push(waiter.granted);
                }
                Some(_) | None => others.push_back(waiter),
            }
        }
        state.waiting = others;
        granted
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn holder(state: &State) -> String {
    state.held.as_ref().map_or_else(|| "nobody".to_owned(), |held| held.taker.label.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns() -> Turns {
        Turns::new(ServerName::new("s"), Front::default())
    }

    fn taker(client: u64) -> Taker {
        Taker { client: ClientId(client), label: format!("client {client}"), inbox: None }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_ends_when_the_server_has_answered_what_its_callers_gave_up_too() {
        let turns = turns();
        let one = turns.take(taker(1), Nesting::None, soon()).await.unwrap();
        let again = turns.take(taker(1), Nesting::None, soon()).await.unwrap();
        let error = turns.take(taker(2), Nesting::None, soon()).await.unwrap_err();
        let waited = Duration::from_secs(10);
        assert_eq!(error, TurnError::TimedOut { holder: "client 1".to_owned(), waited });
        let at_server = again.pass();
        drop((one, again));
        assert!(turns.is_owed_only());
        let next = turns.take(taker(2), Nesting::None, soon());
        tokio::pin!(next);
        assert!(tokio::time::timeout(Duration::from_secs(5), &mut next).await.is_err());
        drop(at_server);
        drop(next.await.unwrap());
        drop(turns.take(taker(3), Nesting::None, soon()).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_longest_comes_next_and_who_went_away_holds_nobody_up() {
        let turns = turns();
        let one = turns.take(taker(1), Nesting::None, soon()).await.unwrap();
        let mut gone = Box::pin(turns.take(taker(2), Nesting::None, soon()));
        let mut third = Box::pin(turns.take(taker(3), Nesting::None, soon()));
        let mut fourth = Box::pin(turns.take(taker(4), Nesting::None, soon()));
        for waiting in [&mut gone, &mut third, &mut fourth] {
            assert!(futures_util::poll!(waiting).is_pending());
        }
        drop(gone);
        drop(one);
        let third = third.await.unwrap();
        assert!(futures_util::poll!(&mut fourth).is_pending());
        drop(third);
        fourth.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_nested_call_passes_where_another_would_wait_and_is_refused_where_it_cannot() {
        let turns = turns();
        let _one = turns.take(taker(1), Nesting::None, soon()).await.unwrap();
        let mut two = Box::pin(turns.take(taker(2), Nesting::None, Instant::now() + FAIR * 9));
        assert!(futures_util::poll!(&mut two).is_pending());
        tokio::time::advance(FAIR).await;
        let own = turns.take(taker(1), Nesting::None, soon()).await;
        assert!(matches!(own, Err(TurnError::TimedOut { .. })), "it is the other's turn next: {own:?}");
        drop(turns.take(taker(1), Nesting::Passes, soon()).await.unwrap());
        assert_eq!(turns.take(taker(1), Nesting::Refused, soon()).await.unwrap_err(), TurnError::Nested);
    }
}
