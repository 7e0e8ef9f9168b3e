//! What a supervisor says about its server: the status, and the report of its last start.
//!
//! Pure data. Owner: the supervisor writes, everybody reads. Holds no secret values: names of
//! variables only, arguments are left to the reader to mask. May not touch: processes.

use super::handshake::Agreed;
use super::health::Ping;
use super::launch::{Log, Survivors};
use super::lifecycle::Phase;
use super::listing::Listing;
use super::wire::WireStats;
use super::wire::inbound::Noise;
use crate::names::{Generation, ServerName};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How a server's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Nobody saw it: its guard was killed.
    Unseen,
}

impl Exit {
    /// Exit codes of a shell that could not run a command: a retry cannot mend them.
    pub fn is_permanent(self) -> bool {
        matches!(self, Self::Code(126 | 127))
    }

    /// Name of the signal, if it was one, e.g. `SIGKILL` or `signal 40`.
    pub fn signal_name(self) -> Option<String> {
        let Self::Signal(number) = self else { return None };
        let known = [
            (1, "SIGHUP"),
            (2, "SIGINT"),
            (3, "SIGQUIT"),
            (4, "SIGILL"),
            (6, "SIGABRT"),
            (8, "SIGFPE"),
            (9, "SIGKILL"),
            (11, "SIGSEGV"),
            (13, "SIGPIPE"),
            (14, "SIGALRM"),
            (15, "SIGTERM"),
        ];
        let name = known.iter().find(|(n, _)| *n == number).map(|(_, name)| (*name).to_owned());
        Some(name.unwrap_or_else(|| format!("signal {number}")))
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.signal_name()) {
            (_, Some(name)) => write!(f, "was ended by {name}"),
            (Self::Code(126), None) => write!(f, "exited with code 126 (found but not executable)"),
            (Self::Code(127), None) => write!(f, "exited with code 127 (command not found)"),
            (Self::Code(code), None) => write!(f, "exited with code {code}"),
            (Self::Unseen | Self::Signal(_), None) => write!(f, "ended together with its guard"),
        }
    }
}

/// How one step of a start went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepOutcome {
    /// Done.
    Done,
    /// Failed; the start ended here.
    Failed,
}

/// One step of a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// `resolve`, `gate`, `osv`, `start slot`, `spawn`, `initialize`, `tools/list`.
    pub name: &'static str,
    /// How long it took.
    pub took: Duration,
    /// What it found; for a failure, why. No secrets.
    pub detail: String,
    /// How it went.
    pub outcome: StepOutcome,
}

/// What was found out while starting one generation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The resolved command.
    pub command: Option<PathBuf>,
    /// Its arguments; mask known secrets before showing.
    pub args: Vec<String>,
    /// Its working directory.
    pub cwd: Option<PathBuf>,
    /// Folders searched for the command, in order.
    pub path_searched: Vec<PathBuf>,
    /// Names of variables that the server gets.
    pub env_passed: Vec<String>,
    /// Names of variables that were kept from it.
    pub env_dropped: Vec<String>,
    /// What a person should know.
    pub warnings: Vec<String>,
    /// The steps so far.
    pub steps: Vec<Step>,
}

/// A report that grows while others may read it. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Reporter {
    report: Arc<Mutex<Report>>,
}

impl Reporter {
    /// The report so far.
    pub fn snapshot(&self) -> Report {
        self.lock().clone()
    }

    /// Changes the facts of the report.
    pub fn edit(&self, edit: impl FnOnce(&mut Report)) {
        edit(&mut self.lock());
    }

    /// Notes a step that is done.
    pub fn done(&self, name: &'static str, took: Duration, detail: impl Into<String>) {
        self.push(Step { name, took, detail: detail.into(), outcome: StepOutcome::Done });
    }

    /// Notes the step that failed.
    pub fn failed(&self, name: &'static str, took: Duration, detail: impl Into<String>) {
        self.push(Step { name, took, detail: detail.into(), outcome: StepOutcome::Failed });
    }

    fn push(&self, step: Step) {
        self.lock().steps.push(step);
    }

    fn lock(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One server instance as its supervisor sees it.
#[derive(Debug, Clone)]
pub struct ServerStatus {
    /// Its key in the configuration.
    pub name: ServerName,
    /// Phase with reason and times.
    pub phase: Phase,
    /// When the supervisor acts by itself; `None`: it will not.
    pub next_step: Option<Instant>,
    /// The server's own process, while it may live.
    pub pid: Option<u32>,
    /// The process that guards it.
    pub guard_pid: Option<u32>,
    /// Spawns since the daemon started.
    pub generation: Generation,
    /// Failures in a row.
    pub attempts: u32,
    /// What was agreed in the last handshake.
    pub agreed: Option<Arc<Agreed>>,
    /// How the last generation that ended by itself ended.
    pub last_exit: Option<Exit>,
    /// What the server wrote on stderr.
    pub log: Arc<dyn Log>,
    /// The report of the last start; grows while starting.
    pub report: Reporter,
    /// Processes of the last generation that outlived KILL; nothing is started before they end.
    pub survivors: Option<Survivors>,
    /// Whether it answers `ping`.
    pub ping: Ping,
    /// Counters of the last generation's connection.
    pub wire: Option<Arc<WireStats>>,
    /// The listing, for its counts and notes.
    pub listing: Option<Arc<Listing>>,
}

impl ServerStatus {
    /// Before anything happened.
    pub fn new(name: ServerName, phase: Phase, log: Arc<dyn Log>) -> Self {
        Self {
            name,
            phase,
            next_step: None,
            pid: None,
            guard_pid: None,
            generation: Generation::NONE,
            attempts: 0,
            agreed: None,
            last_exit: None,
            log,
            report: Reporter::default(),
            survivors: None,
            ping: Ping::default(),
            wire: None,
            listing: None,
        }
    }

    /// The last lines on stderr with the daemon's remarks, oldest first; mask before showing.
    pub fn stderr_tail(&self) -> Vec<String> {
        self.log.tail()
    }

    /// Spawns after the first.
    pub fn restarts(&self) -> u64 {
        self.generation.0.saturating_sub(1)
    }

    /// Why it is in this phase, one sentence.
    pub fn reason(&self) -> String {
        match &self.phase {
            Phase::Stopped { reason } | Phase::Stopping { reason, .. } => reason.to_string(),
            Phase::Starting { attempt } => match self.report.snapshot().steps.last() {
                Some(step) => format!("attempt {attempt}, after {}", step.name),
                None => format!("attempt {attempt}"),
            },
            Phase::Ready { .. } => "answers".to_owned(),
            Phase::BackingOff { failure, .. } | Phase::Parked { failure, .. } => failure.to_string(),
            Phase::NeedsAuth { failure, .. } => failure.to_string(),
        }
    }

    /// What a person should know: latches, processes that cannot be ended.
    pub fn notes(&self) -> Vec<String> {
        let ping = match self.ping {
            Ping::Asked => None,
            Ping::Ignored => Some("it does not answer ping; tools/list is asked instead".to_owned()),
        };
        let http = self.wire.as_ref().and_then(|stats| stats.last_http()).map(|seen| {
            let ago = seen.at.elapsed().as_secs();
            format!("last HTTP answer that was no success, {ago} s ago: {} {}", seen.status, seen.text)
        });
        self.survivors.iter().map(ToString::to_string).chain(ping).chain(http).collect()
    }

    /// Since the handshake; zero unless ready.
    pub fn uptime(&self, now: Instant) -> Duration {
        match self.phase {
            Phase::Ready { since } => now.saturating_duration_since(since),
            _ => Duration::ZERO,
        }
    }

    /// Lines on stdout of the last generation that were no JSON-RPC.
    pub fn noise_lines(&self) -> u64 {
        self.wire.as_ref().map_or(0, |stats| stats.noise_lines.load(Ordering::Relaxed))
    }

    /// Lines on stdout of the last generation that were over the limit.
    pub fn oversized_lines(&self) -> u64 {
        self.wire.as_ref().map_or(0, |stats| stats.oversized_lines.load(Ordering::Relaxed))
    }

    /// What the last noise looked like; the sample is unredacted.
    pub fn noise(&self) -> Option<Noise> {
        let stats = self.wire.as_ref()?;
        stats.noise.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
