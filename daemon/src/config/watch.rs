//! Says when the file may have changed.
//!
//! Owner: the task in [`Watcher::run`]. Promise: a lasting change of `config.yaml`, `.env` or gateway.json is
//! told once, when the files have come to rest; touching them tells nothing; half-written files
//! are given a moment. Whether servers differ is for `diff` to say. May touch: these files, gateway.json and
//! the folders that lead to them, for reading. May not touch: the running configuration.

use super::watch_eye::{Eye, Look};
use crate::tasks::TaskGroup;
use std::path::Path;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

/// How long the files must stay the same before a change is told.
const REST: Duration = Duration::from_millis(120);
/// How much longer files that look half-written are given.
const PATIENCE: Duration = Duration::from_secs(1);
/// Longest time that files which never come to rest are waited for.
const LIMIT: Duration = Duration::from_secs(3);
/// How often the files are read when nobody reported a change.
const POLL: Duration = Duration::from_secs(10);
/// The same where folders cannot be watched.
const POLL_BLIND: Duration = Duration::from_secs(2);

/// Watches one home.
#[derive(Debug)]
pub struct Watcher {
    /// `None` only while a look is on the blocking pool.
    eye: Option<Eye>,
    hints: mpsc::Receiver<()>,
    group: TaskGroup,
    settle: Settle,
    changes: watch::Sender<u64>,
    poll: Duration,
    next_look: Instant,
}

/// Why the task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The group was told to stop.
    Stopped,
    /// Nobody listens any more.
    Unheard,
    /// A look panicked; changes are not noticed any more.
    Blind,
}

impl Watcher {
    /// Remembers the files of `home` as they are now, so call it *before* they are loaded: what
    /// changes after this is told. Blocks for two small reads.
    ///
    /// The receiver counts changes; a missed number means nothing, only the newest state counts.
    pub fn new(home: &Path, group: &TaskGroup) -> (Self, watch::Receiver<u64>) {
        // One hint is enough: all that it says is "look".
        let (tell, hints) = mpsc::channel(1);
        let eye = Eye::new(home, move || {
            let _ = tell.try_send(());
        });
        Self::with_eye(eye, hints, group, POLL)
    }

    fn with_eye(
        mut eye: Eye,
        hints: mpsc::Receiver<()>,
        group: &TaskGroup,
        poll: Duration,
    ) -> (Self, watch::Receiver<u64>) {
        let first = eye.look();
        let (changes, heard) = watch::channel(0);
        let settle = Settle::new(first);
        let watcher = Self {
            eye: Some(eye),
            hints,
            group: group.clone(),
            settle,
            changes,
            poll,
            next_look: Instant::now() + poll,
        };
        (watcher, heard)
    }

    /// Runs [`Watcher::new`] and its task in `group`.
    pub fn start(home: &Path, group: &TaskGroup) -> watch::Receiver<u64> {
        let (watcher, heard) = Self::new(home, group);
        group.spawn(watcher.run());
        heard
    }

    /// Looks whenever something may have happened, until the group stops.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped during a look, the watch ends. Only the group runs it.
    pub async fn run(mut self) -> Ended {
        let stop = self.group.stop_signal();
        loop {
            let due = tokio::select! {
                biased; // stop wins: a busy folder must not keep the daemon alive
                () = stop.cancelled() => return Ended::Stopped,
                () = self.changes.closed() => return Ended::Unheard,
                () = sleep_until(self.next_look) => true,
                // `None` cannot last: the eye holds the sender.
                Some(()) = self.hints.recv() => false,
            };
            if !due {
                // Only ever sooner, or a chatty program could put the look off for ever.
                self.next_look = self.next_look.min(Instant::now() + REST);
                continue;
            }
            let Some(look) = self.look().await else { return Ended::Blind };
            let poll = if look.blind { POLL_BLIND.min(self.poll) } else { self.poll };
            let wait = match self.settle.step(look, Instant::now()) {
                Verdict::Same => poll,
                Verdict::Wait => REST,
                Verdict::Changed => {
                    debug!("configuration files changed");
                    self.changes.send_modify(|count| *count += 1);
                    poll
                }
            };
            self.next_look = Instant::now() + wait;
        }
    }

    async fn look(&mut self) -> Option<Look> {
        let mut eye = self.eye.take()?;
        let looked = self.group.spawn_blocking(move || {
            let look = eye.look();
            (eye, look)
        });
        match looked.await {
            Ok((eye, look)) => {
                self.eye = Some(eye);
                Some(look)
            }
            Err(err) => {
                warn!(error = %err, "configuration files are not watched any more");
                None
            }
        }
    }
}

/// What a look means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// As last told.
    Same,
    /// Different, but perhaps not finished: look again soon.
    Wait,
    /// Different and at rest.
    Changed,
}

/// Decides when a difference is worth telling. No clock, no I/O.
#[derive(Debug)]
struct Settle {
    /// What was told last.
    told: Look,
    /// A different state: since when anything is different, since when it is exactly this.
    pending: Option<(Look, Instant, Instant)>,
}

impl Settle {
    fn new(first: Look) -> Self {
        Self { told: first, pending: None }
    }

    fn step(&mut self, look: Look, now: Instant) -> Verdict {
        if look.digest == self.told.digest {
            self.pending = None;
            return Verdict::Same;
        }
        let (different_since, same_since) = match &self.pending {
            Some((pending, different, same)) if pending.digest == look.digest => (*different, *same),
            Some((_, different, _)) => (*different, now),
            None => (now, now),
        };
        let rest = if look.looks_unfinished(&self.told) { PATIENCE } else { REST };
        if now - same_since >= rest || now - different_since >= LIMIT {
            self.told = look;
            self.pending = None;
            return Verdict::Changed;
        }
        self.pending = Some((look, different_since, same_since));
        Verdict::Wait
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
