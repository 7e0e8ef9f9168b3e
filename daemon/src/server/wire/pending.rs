//! The requests of one generation that have no outcome yet, and their deadlines.
//!
//! Pure: `now` is a parameter. Ids are never reused within a generation
//! (MCP 2025-11-25, Requests).

use super::super::turns::Pass;
use super::questions::{Question, Tie, Untaken};
use super::{Answer, Delivery, WireError};
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// A timer that fires this much late means that the process was stopped or the machine slept.
const SUSPENDED: Duration = Duration::from_secs(5);

/// One open request.
#[derive(Debug)]
pub struct Entry {
    done: oneshot::Sender<Result<Answer, WireError>>,
    events: Option<mpsc::Sender<Box<RawValue>>>,
    asks: Option<mpsc::Sender<Question>>,
    /// Held until the server has answered.
    keep: Option<Pass>,
    /// Questions on its own stream that are open.
    asking: u32,
    /// Since when its clock stands still.
    stopped: Option<Instant>,
    accepted: Instant,
    idle: Duration,
    cap: Duration,
    idle_at: Instant,
    cap_at: Instant,
    last_progress: f64,
    cancellable: bool,
}

impl Entry {
    /// When a limit of it fires; `None` while its clock stands still.
    fn due(&self) -> Option<Instant> {
        self.stopped.is_none().then(|| self.idle_at.min(self.cap_at))
    }
}

/// Why a caller did not take a question.
#[derive(Debug)]
pub(super) enum Refused {
    /// It is not for a caller of one request.
    NotHere(Question),
    /// Its caller cannot take it.
    Untaken(Untaken),
}

/// A request that is over without an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Over {
    /// Its caller is gone.
    Abandoned,
    /// Its idle limit fired.
    Idle,
    /// Its absolute limit fired.
    Cap,
}

impl Over {
    /// What the server is told with the cancellation.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Abandoned => "the client went away or cancelled the request",
            Self::Idle => "timed out: no answer and no progress",
            Self::Cap => "timed out: absolute limit reached",
        }
    }
}

/// All open requests of one generation.
#[derive(Debug)]
pub struct Pending {
    entries: HashMap<u64, Entry>,
    next_id: u64,
    /// No deadline is before this; `None`: nothing to wait for.
    check_at: Option<Instant>,
    /// Open questions that belong to no request, and so to all.
    asking: u32,
    /// What is held for requests that were given up and that the server may still work on.
    owed: HashMap<u64, Pass>,
}

impl Default for Pending {
    fn default() -> Self {
        Self { entries: HashMap::new(), next_id: 1, check_at: None, asking: 0, owed: HashMap::new() }
    }
}

/// What a new entry needs.
#[derive(Debug)]
pub struct NewEntry {
    /// Where the outcome goes.
    pub done: oneshot::Sender<Result<Answer, WireError>>,
    /// Where progress goes, if it is wanted.
    pub events: Option<mpsc::Sender<Box<RawValue>>>,
    /// Where questions go that the server asks on its answer stream, if its caller can be asked.
    pub asks: Option<mpsc::Sender<Question>>,
    /// What is held until the server has answered, if anything is.
    pub keep: Option<Pass>,
    /// Idle limit.
    pub idle: Duration,
    /// Absolute limit.
    pub cap: Duration,
    /// `initialize` must not be cancelled (MCP 2025-11-25, Cancellation).
    pub cancellable: bool,
}

impl Pending {
    /// Accepts a request and gives it an id, which is its progress token too.
    pub fn insert(&mut self, new: NewEntry, now: Instant) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let entry = Entry {
            done: new.done,
            events: new.events,
            asks: new.asks,
            keep: new.keep,
            asking: 0,
            stopped: (self.asking > 0).then_some(now),
            accepted: now,
            idle: new.idle,
            cap: new.cap,
            idle_at: now + new.idle,
            cap_at: now + new.cap,
            last_progress: f64::NEG_INFINITY,
            cancellable: new.cancellable,
        };
        let due = entry.due();
        self.entries.insert(id, entry);
        self.look_at(due);
        id
    }

    fn look_at(&mut self, due: Option<Instant>) {
        self.check_at = self.check_at.into_iter().chain(due).min();
    }

    /// Hands a question over to the caller of the request on whose stream it came; the clock of the
    /// request stands still until [`settled`](Self::settled).
    ///
    /// # Errors
    /// The question back: no such request, or its caller cannot be asked; [`Untaken::Busy`] and the like.
    pub(super) fn ask(&mut self, id: u64, question: Question, now: Instant) -> Result<Tie, Refused> {
        let Some(entry) = self.entries.get_mut(&id) else { return Err(Refused::NotHere(question)) };
        let Some(asks) = &entry.asks else { return Err(Refused::NotHere(question)) };
        match asks.try_send(question) {
            Ok(()) => {
                entry.asking += 1;
                entry.stopped.get_or_insert(now);
                Ok(Tie::Request(id))
            }
            Err(mpsc::error::TrySendError::Full(_)) => Err(Refused::Untaken(Untaken::Busy)),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Refused::Untaken(Untaken::Gone)),
        }
    }

    /// The client of all requests is being asked: their clocks stand still.
    pub(super) fn stop_all(&mut self, now: Instant) {
        self.asking += 1;
        for entry in self.entries.values_mut() {
            entry.stopped.get_or_insert(now);
        }
    }

    /// A question is over: whoever waits for no other one goes on, with the silence counted anew and the
    /// absolute limit moved by the time of the stop.
    pub(super) fn settled(&mut self, tie: Tie, now: Instant) {
        match tie {
            Tie::Client => self.asking = self.asking.saturating_sub(1),
            Tie::Request(id) => {
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.asking = entry.asking.saturating_sub(1);
                }
            }
        }
        if self.asking > 0 {
            return;
        }
        let mut due = None;
        for entry in self.entries.values_mut().filter(|entry| entry.asking == 0) {
            if let Some(since) = entry.stopped.take() {
                entry.idle_at = now + entry.idle;
                entry.cap_at += now.saturating_duration_since(since);
                due = due.into_iter().chain(entry.due()).min();
            }
        }
        self.look_at(due);
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The only open request, if there is exactly one.
    pub fn only(&self) -> Option<u64> {
        if self.entries.len() == 1 { self.entries.keys().next().copied() } else { None }
    }

    /// Gives request `id` its outcome. `false`: it is not open, so this answer is a stray.
    pub fn finish(&mut self, id: u64, outcome: Result<Answer, WireError>) -> bool {
        let Some(entry) = self.entries.remove(&id) else {
            self.forgive(id);
            return false;
        };
        // The caller may have gone a moment ago; then the answer is dropped as a late one.
        let _ = entry.done.send(outcome);
        true
    }

    /// Progress for request `id`: starts its idle limit again and passes `params` on if `value` is
    /// higher than before (MCP 2025-11-25, Progress: the value must increase). `false`: not open.
    pub fn progress(&mut self, id: u64, value: f64, params: &RawValue, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(&id) else {
            return false;
        };
        entry.idle_at = now + entry.idle;
        if value > entry.last_progress {
            entry.last_progress = value;
            if let Some(events) = &entry.events {
                // Full: the caller is behind; the next value says more than this one.
                let _ = events.try_send(params.to_owned());
            }
        }
        true
    }

    /// When [`expire`](Self::expire) must be called next.
    pub fn check_at(&self) -> Option<Instant> {
        self.check_at
    }

    /// Requests that are over at `now`, with whether they may be cancelled at the server.
    ///
    /// When this comes much later than it was due, the process was stopped: every deadline moves
    /// by the gap, so that servers which slept too are not blamed.
    pub fn expire(&mut self, now: Instant) -> Vec<(u64, Over)> {
        let due = self.check_at.unwrap_or(now);
        let gap = now.saturating_duration_since(due);
        if gap > SUSPENDED {
            for entry in self.entries.values_mut() {
                // The grace lets answers that wait in the pipe be read first.
                entry.idle_at += gap + SUSPENDED;
                entry.cap_at += gap + SUSPENDED;
            }
        }
        let over = self.entries.iter().filter_map(|(id, entry)| {
            if entry.done.is_closed() {
                Some((*id, Over::Abandoned))
            } else if entry.stopped.is_some() {
                None
            } else if entry.cap_at <= now {
                Some((*id, Over::Cap))
            } else if entry.idle_at <= now {
                Some((*id, Over::Idle))
            } else {
                None
            }
        });
        let over: Vec<_> = over.collect();
        let ids: std::collections::HashSet<u64> = over.iter().map(|(id, _)| *id).collect();
        let left = self.entries.iter().filter(|(id, _)| !ids.contains(id));
        self.check_at = left.filter_map(|(_, entry)| entry.due()).min();
        over
    }

    /// Requests whose caller is gone.
    pub fn abandoned(&self) -> Vec<u64> {
        self.entries.iter().filter(|(_, entry)| entry.done.is_closed()).map(|(id, _)| *id).collect()
    }

    /// Ends request `id` with the limit that fired. Returns whether it may be cancelled upstream.
    pub fn end(&mut self, id: u64, over: &Over, delivery: Delivery, now: Instant) -> bool {
        let Some(entry) = self.entries.remove(&id) else {
            return false;
        };
        let elapsed = now.saturating_duration_since(entry.accepted);
        let error = match over {
            Over::Abandoned => None,
            Over::Idle => Some(WireError::IdleTimeout { limit: entry.idle, elapsed, delivery }),
            Over::Cap => Some(WireError::CapTimeout { limit: entry.cap, elapsed, delivery }),
        };
        if let Some(error) = error {
            let _ = entry.done.send(Err(error));
        }
        if let (Some(keep), Delivery::MaybeWritten) = (entry.keep, delivery) {
            self.owed.insert(id, keep);
        }
        entry.cancellable
    }

    /// The server owes no answer to a request that was given up.
    pub fn forgive(&mut self, id: u64) {
        self.owed.remove(&id);
    }

    /// Fails everything; `unwritten` says of an id whether no byte of it has left.
    pub fn fail_all(&mut self, unwritten: impl Fn(u64) -> bool) {
        for (id, entry) in self.entries.drain() {
            let delivery = if unwritten(id) { Delivery::NotWritten } else { Delivery::MaybeWritten };
            let _ = entry.done.send(Err(WireError::Gone { delivery }));
        }
        self.check_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(idle: u64, cap: u64) -> (NewEntry, oneshot::Receiver<Result<Answer, WireError>>) {
        let (done, outcome) = oneshot::channel();
        let secs = Duration::from_secs;
        (
            NewEntry {
                done,
                events: None,
                asks: None,
                keep: None,
                idle: secs(idle),
                cap: secs(cap),
                cancellable: true,
            },
            outcome,
        )
    }

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn progress_extends_the_idle_limit_but_never_the_cap() {
        let mut pending = Pending::default();
        let (new, _outcome) = entry(10, 25);
        let start = Instant::now();
        let id = pending.insert(new, start);
        let at = |secs| start + Duration::from_secs(secs);
        assert_eq!(pending.check_at(), Some(at(10)));
        assert!(pending.progress(id, 1.0, &raw("{}"), at(9)));
        assert_eq!(pending.expire(at(10)), []);
        assert_eq!(pending.check_at(), Some(at(19)));
        assert!(pending.progress(id, 2.0, &raw("{}"), at(18)));
        assert_eq!(pending.expire(at(19)), []);
        assert_eq!(pending.expire(at(25)), [(id, Over::Cap)]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_names_the_limit_that_fired_and_the_time_that_passed() {
        let mut pending = Pending::default();
        let (new, mut outcome) = entry(10, 100);
        let start = Instant::now();
        let id = pending.insert(new, start);
        let now = start + Duration::from_secs(10);
        let over = pending.expire(now);
        assert_eq!(over, [(id, Over::Idle)]);
        assert!(pending.end(id, &over[0].1, Delivery::MaybeWritten, now));
        let secs = Duration::from_secs(10);
        assert_eq!(
            outcome.try_recv().unwrap().unwrap_err(),
            WireError::IdleTimeout { limit: secs, elapsed: secs, delivery: Delivery::MaybeWritten }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn deadlines_move_by_the_time_the_process_was_stopped() {
        let mut pending = Pending::default();
        let (new, _outcome) = entry(10, 100);
        let start = Instant::now();
        pending.insert(new, start);
        assert_eq!(pending.expire(start + Duration::from_secs(70)), []);
        assert_eq!(pending.check_at(), Some(start + Duration::from_secs(75)));
    }

    #[tokio::test(start_paused = true)]
    async fn only_rising_progress_is_passed_on() {
        let mut pending = Pending::default();
        let (mut new, _outcome) = entry(10, 100);
        let (events, mut seen) = mpsc::channel(8);
        new.events = Some(events);
        let now = Instant::now();
        let id = pending.insert(new, now);
        for value in [0.0, 1.0, 1.0, 0.5, 2.0] {
            assert!(pending.progress(id, value, &raw(&value.to_string()), now));
        }
        let mut passed = Vec::new();
        while let Ok(params) = seen.try_recv() {
            passed.push(params.get().to_owned());
        }
        assert_eq!(passed, ["0", "1", "2"]);
        assert!(pending.finish(id, Ok(Answer::Result(raw("{}")))));
        assert!(!pending.finish(id, Ok(Answer::Result(raw("{}")))), "a second answer is a stray");
        assert!(!pending.progress(id, 9.0, &raw("{}"), now), "progress after the answer is a stray");
    }
}
