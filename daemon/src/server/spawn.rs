//! Runs stdio servers as child processes: resolve, gate, malware check, guard, pipes, log.
//!
//! Owner: `boot` makes one launcher for all servers. Promise: nothing is started that a gate
//! refuses; every finding reaches the report; stderr is drained for the child's whole life.
//! May touch: child processes, server logs. May not touch: phases, listings.

use super::base_env::{BaseEnv, probe_disk};
use super::environment::{self, ResolveError, Resolved};
use super::gate;
use super::launch::{Connection, Ignition, Launched, Launcher, Log, Process, Survivors};
use super::lifecycle::Failure;
use super::osv::{Osv, Verdict};
use super::status::{Exit, Reporter};
use super::transport::ledger::Ledger;
use super::transport::stdio::{self, Control, Launch, LaunchError, StopError};
use crate::config::{Detached, ServerConfig, StdioConfig, TransportConfig};
use crate::names::{Generation, ServerName};
use crate::secret::KnownSecrets;
use crate::tasks::TaskGroup;
use crate::telemetry::server_log::{ServerLog, ServerLogs, drain};
use futures_util::future::BoxFuture;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Lines of stderr kept for status.
const TAIL_LINES: usize = 20;

/// How long a start waits for the login shell's PATH; the daemon asks once, when it starts.
const SHELL_PATIENCE: Duration = Duration::from_secs(1);

/// Time for the last words on stderr to arrive after the process is gone.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What child processes need from the daemon.
pub struct StdioLauncher {
    /// What children's environments are taken from; changes with the answers of the login shell and the
    /// user manager, and closes when nothing more will come.
    pub base: watch::Receiver<Arc<BaseEnv>>,
    /// Values that arguments are searched for.
    pub secrets: watch::Receiver<Arc<KnownSecrets>>,
    /// The malware check.
    pub osv: Arc<Osv>,
    /// Logs of the servers.
    pub logs: ServerLogs,
    /// Own children on disk.
    pub ledger: Ledger,
    /// The daemon's executable, which is also the guard.
    pub guard_exe: PathBuf,
    /// For the tasks that drain stderr.
    pub tasks: TaskGroup,
}

impl Launcher for StdioLauncher {
    fn prepare(
        &self,
        config: Arc<ServerConfig>,
        report: Reporter,
    ) -> BoxFuture<'static, Result<Ignition, Failure>> {
        let base = self.base.clone();
        let secrets = self.secrets.borrow().clone();
        let osv = self.osv.clone();
        let means = Means {
            log: self.logs.open(&config.name),
            ledger: self.ledger.clone(),
            guard_exe: self.guard_exe.clone(),
            tasks: self.tasks.clone(),
        };
        Box::pin(async move {
            let stdio = match &config.transport {
                TransportConfig::Stdio(stdio) => stdio.clone(),
                TransportConfig::Http(_) => {
                    let text = "a server reached by url has no command to be run";
                    report.failed("resolve", Duration::ZERO, text);
                    return Err(Failure::permanent(text));
                }
            };
            let resolved = resolve(&stdio, base, &secrets, &report).await?;
            if stdio.osv {
                check_packages(&stdio, &osv, &report).await?;
            }
            let (server, detached) = (config.name.clone(), stdio.detached);
            let ignition: Ignition =
                Box::new(move |generation| Box::pin(start(server, detached, generation, resolved, means)));
            Ok(ignition)
        })
    }

    fn log(&self, server: &ServerName) -> Arc<dyn Log> {
        Arc::new(self.logs.open(server))
    }
}

impl Log for ServerLog {
    fn tail(&self) -> Vec<String> {
        Self::tail(self, TAIL_LINES)
    }

    fn note(&self, line: &str) {
        Self::note(self, line);
    }
}

/// What one launch takes along.
struct Means {
    log: ServerLog,
    ledger: Ledger,
    guard_exe: PathBuf,
    tasks: TaskGroup,
}

/// What looking at the command found.
type Looked = Result<(Result<(), gate::Refusal>, Resolved), ResolveError>;

/// Resolves and gates; both look at files, which may hang on a network mount.
async fn look(stdio: &StdioConfig, base: Arc<BaseEnv>) -> Looked {
    let config = stdio.clone();
    let looked = tokio::task::spawn_blocking(move || {
        let resolved = environment::resolve(&config, &base, &probe_disk)?;
        let real = std::fs::canonicalize(&resolved.program).unwrap_or_else(|_| resolved.program.clone());
        Ok((gate::check(&config, &real), resolved))
    });
    looked.await.expect("looking at files does not panic")
}

/// Looks with the login shell's PATH if it is there soon, so that a server finds the same programs
/// each time; a command that is not found is no failure while that answer may still come.
async fn look_patiently(stdio: &StdioConfig, mut base: watch::Receiver<Arc<BaseEnv>>) -> Looked {
    if !stdio.env.contains_key("PATH") {
        // Closed or late: what is known must do.
        let _ = tokio::time::timeout(SHELL_PATIENCE, base.wait_for(|base| base.login_path.is_some())).await;
    }
    loop {
        let now = base.borrow_and_update().clone();
        let looked = look(stdio, now).await;
        let missing =
            matches!(looked, Err(ResolveError::NotFound { .. } | ResolveError::ContainsSpaces { .. }));
        if !missing || base.changed().await.is_err() {
            return looked;
        }
    }
}

async fn resolve(
    stdio: &StdioConfig,
    base: watch::Receiver<Arc<BaseEnv>>,
    secrets: &KnownSecrets,
    report: &Reporter,
) -> Result<Resolved, Failure> {
    let begun = Instant::now();
    let (gate, resolved) = match look_patiently(stdio, base).await {
        Ok(looked) => looked,
        Err(error) => {
            report.edit(|report| report.path_searched = error.searched().to_vec());
            report.failed("resolve", begun.elapsed(), error.to_string());
            return Err(Failure::permanent(error.to_string()));
        }
    };
    report.edit(|report| {
        report.command = Some(resolved.program.clone());
        report.args = stdio.args.clone();
        report.cwd = Some(resolved.cwd.clone());
        report.path_searched.clone_from(&resolved.path_searched);
        report.env_passed.clone_from(&resolved.passed);
        report.env_dropped.clone_from(&resolved.dropped);
        report.warnings.clone_from(&resolved.warnings);
        report.warnings.extend(gate::args_with_secrets(&stdio.args, secrets).into_iter().map(|at| {
            format!("args[{at}] looks like a secret; other users can read it in the process list, use env")
        }));
    });
    report.done("resolve", begun.elapsed(), resolved.program.display().to_string());
    match gate {
        Ok(()) => {
            report.done("gate", Duration::ZERO, "");
            Ok(resolved)
        }
        Err(refusal) => {
            report.failed("gate", Duration::ZERO, refusal.to_string());
            Err(Failure::permanent(refusal.to_string()))
        }
    }
}

/// Asks about every package that the command would fetch. No answer lets it pass and is noted.
async fn check_packages(stdio: &StdioConfig, osv: &Osv, report: &Reporter) -> Result<(), Failure> {
    let packages = gate::packages(stdio);
    if packages.is_empty() {
        return Ok(());
    }
    let begun = Instant::now();
    let mut names = String::new();
    for package in &packages {
        let verdict = osv.check(package, SystemTime::now()).await;
        let finding = verdict.finding(package);
        match (&verdict, finding) {
            (Verdict::Malware { .. }, finding) => {
                let text = finding.unwrap_or_else(|| format!("{package} is known malware"));
                report.failed("osv", begun.elapsed(), text.as_str());
                return Err(Failure::permanent(text));
            }
            (Verdict::Clean | Verdict::SomeVersions { .. } | Verdict::Unchecked { .. }, Some(finding)) => {
                report.edit(|report| report.warnings.push(finding));
            }
            (Verdict::Clean | Verdict::SomeVersions { .. } | Verdict::Unchecked { .. }, None) => {}
        }
        let separator = if names.is_empty() { "" } else { ", " };
        let _ = write!(names, "{separator}{package}");
    }
    report.done("osv", begun.elapsed(), names);
    Ok(())
}

async fn start(
    server: ServerName,
    detached: Detached,
    generation: Generation,
    resolved: Resolved,
    means: Means,
) -> Result<Launched, Failure> {
    let Resolved { program, args, env, cwd, .. } = resolved;
    let instance = instance(&server, generation)?;
    let launch = Launch { server: server.clone(), instance, generation, program, args, env, cwd, detached };
    let child = stdio::launch(launch, &means.guard_exe, &means.ledger).await.map_err(failure)?;
    means.log.note(&format!("started, generation {generation}, pid {}", child.pid));
    let drained = means.tasks.spawn(drain(child.stderr, means.log.clone()));
    let daemon_ends = means.tasks.stop_signal();
    let process =
        ChildProcess { control: child.control, log: means.log, drained: Some(drained), daemon_ends };
    Ok(Launched {
        pid: Some(child.pid),
        guard_pid: Some(child.guard_pid),
        connection: Connection::Pipes { stdin: child.stdin, stdout: child.stdout },
        process: Box::new(process),
    })
}

/// A marker that nobody else's process carries by chance.
fn instance(server: &ServerName, generation: Generation) -> Result<String, Failure> {
    let random = getrandom::u64()
        .map_err(|error| Failure::transient(format!("no random numbers for {server}: {error}")))?;
    Ok(format!("{}-{generation}-{random:016x}", std::process::id()))
}

fn failure(error: LaunchError) -> Failure {
    let mut text = error.to_string();
    if let Some(source) = std::error::Error::source(&error) {
        let _ = write!(text, ": {source}");
    }
    if error.is_permanent() { Failure::permanent(text) } else { Failure::transient(text) }
}

struct ChildProcess {
    control: Control,
    log: ServerLog,
    drained: Option<JoinHandle<()>>,
    daemon_ends: CancellationToken,
}

impl Process for ChildProcess {
    fn exited(&mut self) -> BoxFuture<'_, Exit> {
        Box::pin(async move {
            match self.control.exited().await {
                stdio::Exit::Code(code) => Exit::Code(code),
                stdio::Exit::Signal(signal) => Exit::Signal(signal),
                stdio::Exit::GuardLost => Exit::Unseen,
            }
        })
    }

    fn stop(&mut self, budget: Duration) -> BoxFuture<'_, Result<(), Survivors>> {
        Box::pin(async move {
            let stopped = match self.control.stop(budget).await {
                Ok(stopped) => stopped,
                Err(StopError::Survivors { pids, .. }) => return Err(Survivors { pids }),
            };
            if let Some(mut drained) = self.drained.take() {
                // A process that was told to stay may hold stderr for ever: it keeps its reader for
                // as long as the daemon lives.
                let all_read = tokio::time::timeout(LAST_WORDS, &mut drained).await.is_ok();
                if !all_read && self.daemon_ends.is_cancelled() {
                    drained.abort();
                }
            }
            self.log.note(&format!("ended: {}", stopped.exit));
            for ended in &stopped.ended {
                self.log.note(&format!("also ended: {} (pid {})", ended.name, ended.pid));
            }
            Ok(())
        })
    }
}
