//! How many calls may be at one server at once, and who goes next.
//!
//! Owner: the server's handle; it outlives generations. Promise: clients take turns, a waiting call
//! that is dropped leaves the queue at once, the waiting line is bounded. A std mutex, never held
//! across an await. May not touch: the wire, the breaker.

use crate::names::ClientId;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// Calls of one client that may wait for one server. Each client has a line of its own, so that a
/// client that floods a server cannot lock the others out.
pub const MAX_WAITING: usize = 64;

/// Calls of all clients that may wait for one server.
pub const MAX_WAITING_ALL: usize = 512;

/// Clients that are remembered before old ones are looked for.
const MAX_USERS: usize = 32;

/// How long a client without calls is remembered at least.
const USER_KEPT: Duration = Duration::from_secs(10);

/// Why a call got no slot. Our state, not the server's: never charged to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SlotError {
    /// Too many calls wait already.
    #[error("{in_flight} calls in flight and {waiting} of this client waiting, which is the limit")]
    QueueFull {
        /// Calls at the server.
        in_flight: usize,
        /// Calls of this client in the line.
        waiting: usize,
    },
    /// The call's own limit for waiting was spent.
    #[error("waited {waited:?} for one of {limit} slots")]
    TimedOut {
        /// How long it waited.
        waited: Duration,
        /// Calls that may be in flight.
        limit: usize,
    },
}

/// Numbers for status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Calls at the server.
    pub in_flight: usize,
    /// Calls in the line.
    pub waiting: usize,
    /// Calls that may be in flight.
    pub limit: usize,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    grant: oneshot::Sender<Slot>,
}

#[derive(Debug)]
struct Core {
    limit: usize,
    in_flight: usize,
    waiting: usize,
    next_ticket: u64,
    lines: HashMap<ClientId, VecDeque<Waiter>>,
    /// Clients with a line, in the order of their turns.
    turns: VecDeque<ClientId>,
    last_used: Instant,
    /// Clients with calls at the server, or that had some lately.
    users: HashMap<ClientId, User>,
}

#[derive(Debug)]
struct User {
    in_flight: usize,
    last: Instant,
}

impl Core {
    /// Takes the next waiter out, if a slot is free for it.
    fn grant(&mut self) -> Option<(ClientId, Waiter)> {
        if self.in_flight >= self.limit {
            return None;
        }
        let client = self.turns.pop_front()?;
        let line = self.lines.get_mut(&client).expect("every client with a turn has a line");
        let waiter = line.pop_front().expect("lines are removed when empty");
        if line.is_empty() {
            self.lines.remove(&client);
        } else {
            self.turns.push_back(client);
        }
        self.waiting -= 1;
        self.taken(client, Instant::now());
        Some((client, waiter))
    }

    fn taken(&mut self, client: ClientId, now: Instant) {
        self.in_flight += 1;
        let user = self.users.entry(client).or_insert(User { in_flight: 0, last: now });
        user.in_flight += 1;
    }

    fn given_back(&mut self, client: ClientId, now: Instant) {
        self.in_flight -= 1;
        if let Some(user) = self.users.get_mut(&client) {
            user.in_flight -= 1;
            user.last = now;
        }
        if self.users.len() > MAX_USERS {
            self.users.retain(|_, user| user.in_flight > 0 || now < user.last + USER_KEPT);
        }
    }

    fn forget(&mut self, client: ClientId, ticket: u64) {
        let Some(line) = self.lines.get_mut(&client) else { return };
        let before = line.len();
        line.retain(|waiter| waiter.ticket != ticket);
        self.waiting -= before - line.len();
        if line.is_empty() {
            self.lines.remove(&client);
            self.turns.retain(|turn| *turn != client);
        }
    }
}

#[derive(Debug)]
struct Shared {
    core: Mutex<Core>,
    idle: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands free slots to those who wait.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let Some((client, waiter)) = self.lock().grant() else { return };
            let slot = Slot { shared: Arc::clone(self), client, armed: true };
            if let Err(mut unwanted) = waiter.grant.send(slot) {
                // The caller went away in between: take the slot back here, not in a nested drop.
                unwanted.armed = false;
                let idle = {
                    let mut core = self.lock();
                    core.given_back(client, Instant::now());
                    core.in_flight == 0 && core.waiting == 0
                };
                if idle {
                    self.idle.notify_waiters();
                }
            }
        }
    }
}

/// The slots of one server. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Slots {
    shared: Arc<Shared>,
}

/// One call's place at the server; dropping it frees the place.
#[derive(Debug)]
#[must_use = "dropping the slot frees it"]
pub struct Slot {
    shared: Arc<Shared>,
    client: ClientId,
    armed: bool,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let idle = {
            let mut core = self.shared.lock();
            let now = Instant::now();
            core.given_back(self.client, now);
            core.last_used = now;
            core.in_flight == 0 && core.waiting == 0
        };
        self.shared.pass_on();
        if idle {
            self.shared.idle.notify_waiters();
        }
    }
}

/// Takes a waiting call out of the line when its future is dropped.
struct InLine<'a> {
    shared: &'a Arc<Shared>,
    client: ClientId,
    ticket: u64,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.shared.lock().forget(self.client, self.ticket);
    }
}

impl Slots {
    /// `limit` calls at once.
    pub fn new(limit: usize) -> Self {
        let core = Core {
            limit: limit.max(1),
            in_flight: 0,
            waiting: 0,
            next_ticket: 0,
            lines: HashMap::new(),
            turns: VecDeque::new(),
            last_used: Instant::now(),
            users: HashMap::new(),
        };
        Self { shared: Arc::new(Shared { core: Mutex::new(core), idle: Notify::new() }) }
    }

    /// A slot for a call of `client`; waits its turn until `deadline`.
    ///
    /// # Errors
    /// [`SlotError::QueueFull`] at once, [`SlotError::TimedOut`] at the deadline.
    /// # Cancel safety
    /// Cancel safe: dropped while waiting, the call leaves the line.
    pub async fn acquire(&self, client: ClientId, deadline: Instant) -> Result<Slot, SlotError> {
        let asked = Instant::now();
        let (grant, mut granted) = oneshot::channel();
        let ticket = {
            let mut core = self.shared.lock();
            core.last_used = asked;
            if core.in_flight < core.limit {
                core.taken(client, asked);
                return Ok(Slot { shared: Arc::clone(&self.shared), client, armed: true });
            }
            let own = core.lines.get(&client).map_or(0, VecDeque::len);
            if own >= MAX_WAITING || core.waiting >= MAX_WAITING_ALL {
                return Err(SlotError::QueueFull { in_flight: core.in_flight, waiting: own });
            }
            let ticket = core.next_ticket;
            core.next_ticket += 1;
            core.waiting += 1;
            let line = core.lines.entry(client).or_default();
            line.push_back(Waiter { ticket, grant });
            if line.len() == 1 {
                core.turns.push_back(client);
            }
            ticket
        };
        let _in_line = InLine { shared: &self.shared, client, ticket };
        match tokio::time::timeout_at(deadline, &mut granted).await {
            Ok(slot) => Ok(slot.expect("a waiter leaves the line only with its slot")),
            Err(_) => Err(SlotError::TimedOut { waited: asked.elapsed(), limit: self.usage().limit }),
        }
    }

    /// Changes the limit; calls in flight are left alone, free places are handed out.
    pub fn set_limit(&self, limit: usize) {
        self.shared.lock().limit = limit.max(1);
        self.shared.pass_on();
    }

    /// Numbers for status.
    pub fn usage(&self) -> Usage {
        let core = self.shared.lock();
        Usage { in_flight: core.in_flight, waiting: core.waiting, limit: core.limit }
    }

    /// The clients that have calls at the server, or had one less than `within` ago (at most 10 s).
    pub fn busy(&self, now: Instant, within: Duration) -> Vec<ClientId> {
        let core = self.shared.lock();
        let lately = |user: &User| user.in_flight > 0 || now < user.last + within.min(USER_KEPT);
        core.users.iter().filter(|(_, user)| lately(user)).map(|(client, _)| *client).collect()
    }

    /// When a call last came or went.
    pub fn last_used(&self) -> Instant {
        self.shared.lock().last_used
    }

    /// Returns once no call is in flight or waiting.
    /// # Cancel safety
    /// Cancel safe.
    pub async fn drained(&self) {
        loop {
            let notified = self.shared.idle.notified();
            let usage = self.usage();
            if usage.in_flight == 0 && usage.waiting == 0 {
                return;
            }
            notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    /// Polls each future once, so that it stands in the line.
    async fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> std::task::Poll<F::Output> {
        let mut future = Some(future);
        std::future::poll_fn(move |cx| std::task::Poll::Ready(future.take().expect("polled once").poll(cx)))
            .await
    }

    #[tokio::test(start_paused = true)]
    async fn clients_take_turns_however_many_calls_one_of_them_has() {
        let slots = Slots::new(1);
        let held = slots.acquire(ClientId(9), soon()).await.unwrap();
        let mut line = Vec::new();
        for (client, n) in [(1, 0), (1, 1), (1, 2), (2, 0), (3, 0)] {
            let slots = slots.clone();
            let mut call = Box::pin(async move {
                let slot = slots.acquire(ClientId(client), soon()).await;
                (client, n, slot)
            });
            assert!(poll_once(call.as_mut()).await.is_pending());
            line.push(call);
        }
        drop(held);
        let mut order = Vec::new();
        while !line.is_empty() {
            let mut at = 0;
            while at < line.len() {
                if let std::task::Poll::Ready((client, n, slot)) = poll_once(line[at].as_mut()).await {
                    order.push((client, n));
                    drop(slot.unwrap());
                    drop(line.remove(at));
                    at = line.len();
                }
                at += 1;
            }
        }
        assert_eq!(order, [(1, 0), (2, 0), (3, 0), (1, 1), (1, 2)]);
        assert_eq!(slots.usage(), Usage { in_flight: 0, waiting: 0, limit: 1 });
    }

    #[tokio::test(start_paused = true)]
    async fn the_line_is_bounded_and_a_waiting_call_has_its_own_limit() {
        let slots = Slots::new(1);
        let _held = slots.acquire(ClientId(1), soon()).await.unwrap();
        let mut line = Vec::new();
        for _ in 0..MAX_WAITING {
            let mut call = Box::pin(slots.acquire(ClientId(1), soon()));
            assert!(poll_once(call.as_mut()).await.is_pending());
            line.push(call);
        }
        let refused = slots.acquire(ClientId(1), soon()).await.unwrap_err();
        assert_eq!(refused, SlotError::QueueFull { in_flight: 1, waiting: 64 });
        // Another client is not locked out by it.
        let late = slots.acquire(ClientId(2), soon()).await.unwrap_err();
        assert_eq!(late, SlotError::TimedOut { waited: Duration::from_secs(5), limit: 1 });
        drop(line);
        assert_eq!(slots.usage().waiting, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn drained_returns_when_the_last_call_is_gone() {
        let slots = Slots::new(2);
        let one = slots.acquire(ClientId(1), soon()).await.unwrap();
        let mut drained = Box::pin(slots.drained());
        assert!(poll_once(drained.as_mut()).await.is_pending());
        drop(one);
        drained.await;
    }

    proptest! {
        /// Whatever comes and goes: never more in flight than the limit, and no slot is lost.
        #[test]
        fn no_slot_is_lost_and_none_is_invented(
            ops in proptest::collection::vec((0u8..4, 0usize..12, 1u64..4), 1..120),
            limit in 1usize..4,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(async {
                let slots = Slots::new(limit);
                let mut held = Vec::new();
                let mut line = Vec::new();
                for (op, at, client) in ops {
                    match op {
                        0 | 1 => {
                            let slots = slots.clone();
                            let mut call = Box::pin(async move { slots.acquire(ClientId(client), soon()).await });
                            match poll_once(call.as_mut()).await {
                                std::task::Poll::Ready(slot) => held.push(slot.unwrap()),
                                std::task::Poll::Pending => line.push(call),
                            }
                        }
                        2 if !held.is_empty() => drop(held.remove(at % held.len())),
                        3 if !line.is_empty() => drop(line.remove(at % line.len())),
                        _ => {}
                    }
                    let mut at = 0;
                    while at < line.len() {
                        match poll_once(line[at].as_mut()).await {
                            std::task::Poll::Ready(slot) => {
                                held.push(slot.unwrap());
                                drop(line.remove(at));
                            }
                            std::task::Poll::Pending => at += 1,
                        }
                    }
                    let usage = slots.usage();
                    assert_eq!(usage.in_flight, held.len());
                    assert_eq!(usage.waiting, line.len());
                    assert!(usage.in_flight <= limit);
                    assert!(line.is_empty() || usage.in_flight == limit);
                }
            });
        }
    }
}
