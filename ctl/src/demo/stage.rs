//! The private world of the demo: a temporary home, a daemon in it, and their end.
//!
//! Promise: whatever way the demo ends (done, error, Ctrl-C), the daemon is stopped in order and
//! the folder removed. A daemon that outlives a killed demo ends after an idle minute.

use super::programs::Programs;
use anyhow::{Context, bail};
use hermes_proto::endpoint::MCP_SOCKET;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long the daemon may take until its socket accepts.
const START_WITHIN: Duration = Duration::from_secs(20);
/// How long it may take to end; above its own budget.
const STOP_WITHIN: Duration = Duration::from_secs(20);
/// The variables by which an outer hermesd or service manager could reach into the demo.
const FOREIGN: [&str; 6] =
    ["HERMES_HOME", "HERMESD_INSTANCE", "HERMES_SAFE_MODE", "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID"];

const SAMPLE: [(&str, &[u8]); 3] = [
    ("state.db", include_bytes!("../../assets/sample-home/state.db")),
    ("sessions/sessions.json", include_bytes!("../../assets/sample-home/sessions/sessions.json")),
    ("channel_directory.json", include_bytes!("../../assets/sample-home/channel_directory.json")),
];

/// The person wants out. By the time this is printed, everything was cleaned up.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(super) struct Interrupted;

/// Set once the person wants out.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes over Ctrl-C, SIGTERM and SIGHUP from now on.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
        {
            signal_hook::flag::register(signal, Arc::clone(&flag)).context("cannot listen for Ctrl-C")?;
        }
        Ok(Self(flag))
    }

    /// # Errors
    /// When the person wants out.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Interrupted.into()) } else { Ok(()) }
    }
}

/// Looks until `found` gives something or the time is over. The demo has nothing else to do.
pub(super) fn wait_for<T>(limit: Duration, mut found: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = found() {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// The temporary home and its daemon.
#[derive(Debug)]
pub(super) struct Stage {
    daemon: Option<Child>,
    folder: tempfile::TempDir,
    hermesctl: PathBuf,
}

impl Stage {
    /// Makes the home and starts the daemon; returns when it accepts clients.
    pub(super) fn set(programs: &Programs, interrupt: &Interrupt) -> anyhow::Result<Self> {
        // A fixed short place where it exists: socket paths are limited, TMPDIR is not.
        let base = if Path::new("/tmp").is_dir() { PathBuf::from("/tmp") } else { std::env::temp_dir() };
        let folder = tempfile::Builder::new()
            .prefix("hermes-demo-")
            .tempdir_in(&base)
            .with_context(|| format!("cannot make a folder in {}", base.display()))?;
        let mut stage = Self { daemon: None, folder, hermesctl: programs.hermesctl.clone() };
        stage.furnish(programs)?;
        stage.start(programs, interrupt)?;
        Ok(stage)
    }

    /// The temporary HERMES_HOME.
    pub(super) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn run_dir(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("hermesd.log")
    }

    fn furnish(&self, programs: &Programs) -> anyhow::Result<()> {
        for dir in [self.home(), self.home().join("sessions"), self.run_dir()] {
            fs::DirBuilder::new().mode(0o700).create(&dir).with_context(|| dir.display().to_string())?;
        }
        for (name, bytes) in SAMPLE {
            fs::write(self.home().join(name), bytes).with_context(|| format!("cannot write {name}"))?;
        }
        let server = programs.server.to_str().context("the path of the demo server is not UTF-8")?;
        let home = self.home();
        let home = home.to_str().context("the path of the demo's folder is not UTF-8")?;
        // JSON strings are YAML strings; `${` would be a variable.
        let [command, cwd] = [server, home].map(|text| serde_json::Value::from(text.replace("${", "$${")));
        // The person's home may not exist (containers), and is nothing of the demo's.
        let config =
            format!("mcp_servers:\n  demo:\n    command: {command}\n    cwd: {cwd}\n    start: eager\n");
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(self.home().join("config.yaml"));
        file.and_then(|mut file| file.write_all(config.as_bytes())).context("cannot write config.yaml")
    }

    fn start(&mut self, programs: &Programs, interrupt: &Interrupt) -> anyhow::Result<()> {
        let log = fs::File::create(self.log()).context("cannot make the log")?;
        let mut command = Command::new(&programs.hermesd);
        command.args(["run", "--idle-exit", "1m", "--home"]).arg(self.home());
        self.enter(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.daemon = Some(command.spawn().context("cannot start hermesd")?);
        let socket = self.run_dir().join(MCP_SOCKET);
        let outcome = wait_for(START_WITHIN, || {
            if interrupt.check().is_err() {
                return Some(interrupt.check());
            }
            let exited = self.daemon.as_mut().and_then(|daemon| daemon.try_wait().ok().flatten());
            if let Some(status) = exited {
                return Some(Err(anyhow::anyhow!("hermesd ended at once ({status}){}", self.last_words())));
            }
            UnixStream::connect(&socket).is_ok().then_some(Ok(()))
        });
        outcome.unwrap_or_else(|| bail!("hermesd does not accept clients{}", self.last_words()))
    }

    /// Puts a command into the demo's world, away from the terminal's Ctrl-C.
    fn enter(&self, command: &mut Command) {
        for name in FOREIGN {
            command.env_remove(name);
        }
        command.env("HERMESD_RUNTIME_DIR", self.run_dir()).process_group(0);
    }

    /// The shim as an MCP client would start it.
    pub(super) fn shim(&self) -> Command {
        let mut command = Command::new(&self.hermesctl);
        command.args(["mcp", "serve", "--no-spawn", "--home"]).arg(self.home());
        self.enter(&mut command);
        command
    }

    /// An admin command against the demo's daemon.
    pub(super) fn admin(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.hermesctl);
        command.args(args).arg("--home").arg(self.home());
        self.enter(&mut command);
        command
    }

    /// The pid of the daemon.
    pub(super) fn daemon_pid(&self) -> u32 {
        self.daemon.as_ref().map_or(0, Child::id)
    }

    /// The end of what the daemon wrote, for an error message.
    pub(super) fn last_words(&self) -> String {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(8)..].join("\n  ");
        if tail.is_empty() { String::new() } else { format!("; its last lines:\n  {tail}") }
    }

    /// Stops the daemon and removes the folder.
    ///
    /// # Errors
    /// When the daemon had to be killed or the folder cannot be removed.
    pub(super) fn clear(mut self) -> anyhow::Result<()> {
        let path = self.folder.path().to_owned();
        self.stop()?;
        // Closing by value tells errors that dropping would swallow.
        let folder = std::mem::replace(&mut self.folder, tempfile::TempDir::new()?);
        folder.close().with_context(|| format!("cannot remove {}", path.display()))
    }

    fn stop(&mut self) -> anyhow::Result<()> {
        let Some(mut daemon) = self.daemon.take() else { return Ok(()) };
        signal(daemon.id(), Signal::TERM);
        if wait_for(STOP_WITHIN, || daemon.try_wait().ok().flatten()).is_some() {
            return Ok(());
        }
        let _ = daemon.kill();
        let _ = daemon.wait();
        bail!("hermesd did not end within {} s and was killed", STOP_WITHIN.as_secs())
    }
}

impl Drop for Stage {
    /// Only for the ways out that are errors already; [`Stage::clear`] is the orderly one.
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// Sends a signal to a process, if it is still there.
pub(super) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}
