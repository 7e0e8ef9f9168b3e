//! The daemon's end of a guard: the server's exit, the stop order, the proof that nothing is left.
//!
//! Owner: the supervisor task of one instance. Promise: after [`Control::stop`] or
//! [`Control::wait_empty`] returned `Ok`, no process of this generation lives, also when the guard
//! itself was killed or hangs. Dropped instead, the guard sees its lifeline end and does the same
//! within its own budget; nobody learns the outcome then. May not touch: the pipes.

use super::ledger::Ledger;
use crate::guard::GuardPid;
use crate::names::ServerName;
use crate::process::container::{self, Environment};
use crate::process::orders::{ContainerOrder, Ended, Frames, Order, Report, Status};
use crate::process::sweep::{Lost, Swept, sweep};
use crate::process::table;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};

/// Least time for ending what a lost guard left, also when the budget is nearly spent.
const SWEEP_LEAST: Duration = Duration::from_secs(1);
/// Least time for stopping a container after the guard was lost.
const CONTAINER_LEAST: Duration = Duration::from_secs(5);

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Its guard was killed, and it with it; how it ended is not known.
    GuardLost,
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::GuardLost => f.write_str("its guard was killed"),
        }
    }
}

/// A stop that left nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// How the server itself ended.
    pub exit: Exit,
    /// What else was ended; name it in the log.
    pub ended: Vec<Ended>,
}

/// A stop that did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StopError {
    /// These outlived KILL (uninterruptible sleep). The guard goes on; a later stop waits again.
    #[error("server `{server}` left processes that cannot be ended: {pids:?}")]
    Survivors {
        /// The server.
        server: ServerName,
        /// What still lives.
        pids: Vec<u32>,
    },
}

/// A container client, kept for the case that its guard is lost.
pub(super) struct ContainerClient {
    pub(super) program: PathBuf,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) order: ContainerOrder,
}

/// The socket to a guard.
pub(super) struct Channel {
    stream: UnixStream,
    frames: Frames,
}

impl Channel {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, frames: Frames::default() }
    }

    /// The next report; `None` when the guard is gone or talks nonsense.
    ///
    /// # Cancel safety
    /// Cancel safe: what was read stays in the buffer.
    pub(super) async fn report(&mut self) -> Option<Report> {
        let mut chunk = [0; 1024];
        loop {
            match self.frames.next_report() {
                Ok(Some(report)) => return Some(report),
                Ok(None) => {}
                Err(_) => return None,
            }
            self.stream.readable().await.ok()?;
            match self.stream.try_read(&mut chunk) {
                Ok(0) => return None,
                Ok(read) => self.frames.push(&chunk[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    }

    /// Sends one order.
    ///
    /// # Errors
    /// The guard is gone.
    /// # Cancel safety
    /// Not cancel safe: a half-written order cannot be continued.
    pub(super) async fn send(&mut self, order: &Order) -> io::Result<()> {
        let frame = order.encode();
        let mut rest = frame.as_slice();
        while !rest.is_empty() {
            self.stream.writable().await?;
            match self.stream.try_write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tree {
    /// The guard has it in hand.
    Guarded,
    /// The guard said that nothing is left.
    Empty,
    /// The guard is gone and said nothing.
    Lost,
}

/// Life and death of one generation.
pub struct Control {
    pub(super) server: ServerName,
    pub(super) channel: Channel,
    /// Taken when it is reaped, which is the last thing.
    pub(super) guard: Option<GuardPid>,
    pub(super) lost: Lost,
    pub(super) container: Option<ContainerClient>,
    pub(super) ledger: Ledger,
    exit: Option<Exit>,
    tree: Tree,
    survivors: Vec<u32>,
    ended: Vec<Ended>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control")
            .field("server", &self.server)
            .field("guard", &self.guard)
            .field("exit", &self.exit)
            .finish_non_exhaustive()
    }
}

impl Control {
    pub(super) fn new(
        server: ServerName,
        channel: Channel,
        guard: GuardPid,
        lost: Lost,
        container: Option<ContainerClient>,
        ledger: Ledger,
    ) -> Self {
        let (survivors, ended) = (Vec::new(), Vec::new());
        Self {
            server,
            channel,
            guard: Some(guard),
            lost,
            container,
            ledger,
            exit: None,
            tree: Tree::Guarded,
            survivors,
            ended,
        }
    }

    /// Waits until the server's first process ended. Returns the same again when asked again.
    ///
    /// Its tree may still live: [`Control::wait_empty`] comes next, before any new generation.
    /// # Cancel safety
    /// Cancel safe.
    pub async fn exited(&mut self) -> Exit {
        loop {
            match (self.exit, self.tree) {
                (Some(exit), _) => return exit,
                (None, Tree::Lost | Tree::Empty) => return *self.exit.insert(Exit::GuardLost),
                (None, Tree::Guarded) => self.next_report().await,
            }
        }
    }

    /// Ends the server and everything below it, and proves it.
    ///
    /// The caller drops the server's stdin first. A third of the guard's share of `budget` belongs
    /// to the clean exit, then TERM, then KILL. A guard that does not answer in time is killed and
    /// its tree ended from here. May take up to 6 s longer than `budget` when that happens late and
    /// a container has to be stopped.
    /// # Errors
    /// [`StopError::Survivors`] with what outlived KILL.
    /// # Cancel safety
    /// Not cancel safe: dropped half-way nobody learns the outcome; the guard goes on by itself.
    pub async fn stop(&mut self, budget: Duration) -> Result<Stopped, StopError> {
        if self.tree == Tree::Guarded {
            let budget_ms = u32::try_from((budget * 8 / 10).as_millis()).unwrap_or(u32::MAX);
            self.survivors.clear();
            // A full socket means a guard that does not read; the deadline below finds out.
            let _ =
                timeout_at(Instant::now() + budget / 10, self.channel.send(&Order::Stop { budget_ms })).await;
        }
        self.settle(budget).await
    }

    /// Waits until nothing of the server is left, after [`Control::exited`] returned. A server
    /// that did not end yet is stopped.
    ///
    /// # Errors
    /// As for [`Control::stop`].
    /// # Cancel safety
    /// As for [`Control::stop`].
    pub async fn wait_empty(&mut self, budget: Duration) -> Result<Stopped, StopError> {
        // The guard began by itself; the order only bounds its time.
        self.stop(budget).await
    }

    async fn settle(&mut self, budget: Duration) -> Result<Stopped, StopError> {
        let begin = Instant::now();
        let patience = begin + budget * 9 / 10;
        while self.tree == Tree::Guarded && self.survivors.is_empty() {
            if timeout_at(patience, self.next_report()).await.is_err() {
                break;
            }
        }
        if self.tree == Tree::Guarded && !self.survivors.is_empty() {
            return Err(StopError::Survivors { server: self.server.clone(), pids: self.survivors.clone() });
        }
        if self.tree != Tree::Empty {
            self.kill_guard();
            let left = (begin + budget).saturating_duration_since(Instant::now()).max(SWEEP_LEAST);
            self.sweep(left).await?;
        }
        if let Some(guard) = self.guard.take() {
            blocking(move || guard.reap()).await;
        }
        if let Err(error) = self.ledger.forget(&self.lost.instance).await {
            tracing::warn!(server = %self.server, %error, "child ledger not written");
        }
        Ok(Stopped { exit: self.exit.unwrap_or(Exit::GuardLost), ended: std::mem::take(&mut self.ended) })
    }

    /// Makes sure that a guard which is deaf, mad or dead is dead. Not reaped before the sweep: its
    /// number has to stay the name of the session.
    fn kill_guard(&mut self) {
        self.tree = Tree::Lost;
        if let Some(pid) = self.guard.as_ref().and_then(|guard| table::as_pid(guard.get())) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }

    async fn sweep(&mut self, budget: Duration) -> Result<(), StopError> {
        let lost = self.lost.clone();
        let Swept { ended, survivors } = blocking(move || sweep(&lost, budget)).await;
        self.ended.extend(ended);
        if !survivors.is_empty() {
            return Err(StopError::Survivors { server: self.server.clone(), pids: survivors });
        }
        if let Some(client) = self.container.take() {
            blocking(move || {
                let env = Environment::Given(&client.env);
                container::end(
                    &client.program,
                    &env,
                    &client.order,
                    table::clock() + budget.max(CONTAINER_LEAST),
                )
            })
            .await;
        }
        self.tree = Tree::Empty;
        Ok(())
    }

    /// Takes in one report. Cancel safe.
    async fn next_report(&mut self) {
        match self.channel.report().await {
            Some(Report::Exited(Status::Code(code))) => self.exit = Some(Exit::Code(code)),
            Some(Report::Exited(Status::Signal(signal))) => self.exit = Some(Exit::Signal(signal)),
            Some(Report::Ended(list)) => self.ended.extend(list),
            Some(Report::Survivors(pids)) => self.survivors = pids,
            Some(Report::Empty) => self.tree = Tree::Empty,
            // A second start report makes no sense; neither does anything after the guard's end.
            Some(Report::Spawned { .. } | Report::Refused { .. }) | None => self.tree = Tree::Lost,
        }
    }
}

/// Runs `work` on the blocking pool.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}
