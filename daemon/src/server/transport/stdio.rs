//! A child below its guard: spawn, pipes, first report.
//!
//! Owner: the supervisor task that called [`launch`]. Promise: the server sees descriptors 0-2
//! only, its own process group, exactly the given environment plus its marker; a failed launch
//! leaves nothing behind. May not touch: what flows through the pipes.

pub use super::control::{Control, Exit, StopError, Stopped};
pub use super::refusal::{LaunchError, NotExecutable};

use super::control::{Channel, ContainerClient, blocking};
use super::ledger::{ContainerEntry, Entry, Identity, Ledger, LedgerError};
use super::refusal;
use crate::config::Detached;
use crate::guard::{self, GuardPid};
use crate::names::{Generation, ServerName};
use crate::process::orders::{ContainerOrder, LaunchOrder, Leavers, Order, Report};
use crate::process::sweep::{Lost, Session};
use crate::process::table::{GUARD_MARKER, INSTANCE_MARKER};
use crate::process::{container, limits};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::{Receiver, Sender};

/// Wanted size of stdin and stdout in bytes: fewer wake-ups for large messages.
#[cfg(target_os = "linux")]
const PIPE_BYTES: usize = 256 * 1024;

/// What to start.
#[derive(Clone)]
pub struct Launch {
    /// Name in the configuration.
    pub server: ServerName,
    /// Value of the marker `HERMESD_INSTANCE`; unique for each spawn on this machine, not guessable.
    pub instance: String,
    /// Which spawn of the instance.
    pub generation: Generation,
    /// Resolved path of the program.
    pub program: PathBuf,
    /// Arguments after the program's name.
    pub args: Vec<OsString>,
    /// The whole environment, without the marker.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory.
    pub cwd: PathBuf,
    /// What happens to daemons that the server starts on purpose.
    pub detached: Detached,
}

impl std::fmt::Debug for Launch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Arguments and environment may hold secrets.
        f.debug_struct("Launch")
            .field("server", &self.server)
            .field("generation", &self.generation)
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

/// A running server.
#[derive(Debug)]
pub struct Child {
    /// The server's first process, also its process group.
    pub pid: u32,
    /// Its guard, also its session.
    pub guard_pid: u32,
    /// To the server.
    pub stdin: Sender,
    /// From the server.
    pub stdout: Receiver,
    /// From the server; has to be drained for life.
    pub stderr: Receiver,
    /// Its life and death.
    pub control: Control,
}

/// What came out of starting a guard.
struct Started {
    guard: GuardPid,
    marker: String,
    identity: Identity,
    channel: std::os::unix::net::UnixStream,
    ends: [OwnedFd; 3],
}

/// Starts a server below a guard of its own and waits until its program runs.
///
/// `guard_exe` is [`guard::own_exe`] except in tests. There is no time limit here: a program on a
/// hanging file system keeps this waiting; the caller may drop it.
/// # Errors
/// [`LaunchError`]; nothing is left running.
/// # Cancel safety
/// Cancel safe: dropped half-way, the guard sees its lifeline end and ends what it started.
pub async fn launch(launch: Launch, guard_exe: &Path, ledger: &Ledger) -> Result<Child, LaunchError> {
    let Launch { server, instance, generation, program, mut args, mut env, cwd, detached } = launch;
    let leavers = match detached {
        Detached::End => Leavers::End,
        Detached::Keep => Leavers::Keep,
    };
    env.retain(|(name, _)| name != INSTANCE_MARKER && name != GUARD_MARKER);
    env.push((INSTANCE_MARKER.into(), instance.clone().into()));
    let container = container::prepare(&program, &mut args, &instance, &ledger.folder());
    let guard_error = |source| LaunchError::Guard { server: server.as_str().to_owned(), source };

    let (exe, label, marker) = (guard_exe.to_owned(), server.as_str().to_owned(), instance.clone());
    let id_folder = container.as_ref().and(Some(ledger.folder()));
    let started = blocking(move || {
        if let Some(folder) = id_folder {
            make_private(&folder)?;
        }
        start_guard(&exe, &label, &marker)
    });
    let Started { guard, marker, identity, channel, ends } = started.await.map_err(guard_error)?;

    let mut entry = Entry {
        server: server.as_str().to_owned(),
        generation: generation.0,
        instance: instance.clone(),
        guard_marker: marker,
        guard: identity,
        leader: None,
        keep_leavers: leavers == Leavers::Keep,
        container: container.as_ref().map(|order| container_entry(&program, order)),
    };
    let (pending, written) = ledger.record_pending(entry.clone()).await;
    warn_unwritten(&entry, written);

    let mut channel = Channel::new(UnixStream::from_std(channel).map_err(guard_error)?);
    let client =
        container.clone().map(|order| ContainerClient { program: program.clone(), env: env.clone(), order });
    let order = Order::Launch(Box::new(LaunchOrder {
        program: program.clone(),
        args,
        env,
        cwd: cwd.clone(),
        leavers,
        descriptors: limits::original_descriptors(),
        container,
    }));
    let report = match channel.send(&order).await {
        Ok(()) => channel.report().await,
        Err(_) => None,
    };
    drop(order);
    let pid = match report {
        Some(Report::Spawned { pid }) => pid,
        other => {
            drop(channel);
            let error = blocking(move || why_refused(other, guard, &entry.server, &program, &cwd)).await;
            let _ = ledger.forget(&instance).await;
            return Err(error);
        }
    };
    entry.leader = blocking(move || Identity::of(pid)).await;
    warn_unwritten(&entry, ledger.record(entry.clone()).await);
    pending.keep();

    let guard_pid = guard.get();
    let lost = Lost { instance, guard: guard_pid, session: Session::Held, since: identity.start, leavers };
    let control = Control::new(server.clone(), channel, guard, lost, client, ledger.clone());
    let [stdin, stdout, stderr] = ends;
    Ok(Child {
        pid,
        guard_pid,
        stdin: Sender::from_owned_fd(stdin).map_err(guard_error)?,
        stdout: Receiver::from_owned_fd(stdout).map_err(guard_error)?,
        stderr: Receiver::from_owned_fd(stderr).map_err(guard_error)?,
        control,
    })
}

/// Waits for the end of a guard that started nothing, and names the cause. Blocks.
fn why_refused(
    report: Option<Report>,
    guard: GuardPid,
    server: &str,
    program: &Path,
    cwd: &Path,
) -> LaunchError {
    // Its channel is closed and it reports a refusal, or nothing, only right before its end.
    guard.reap();
    match report {
        Some(Report::Refused { step, errno }) => refusal::of_errno(step, errno, program, cwd),
        _ => LaunchError::GuardLost { server: server.to_owned() },
    }
}

fn container_entry(program: &Path, order: &ContainerOrder) -> ContainerEntry {
    ContainerEntry {
        program: program.to_owned(),
        globals: order.globals.iter().map(|option| option.to_string_lossy().into_owned()).collect(),
        cidfile: order.cidfile.clone(),
        after: order.after,
    }
}

/// The guard cleans up without the ledger too; a full disk must not keep servers from starting.
fn warn_unwritten(entry: &Entry, written: Result<(), LedgerError>) {
    if let Err(error) = written {
        tracing::warn!(server = %entry.server, %error, "child ledger not written");
    }
}

fn make_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Creates the pipes and the lifeline and starts the guard on them. Blocks for about a millisecond.
fn start_guard(exe: &Path, label: &str, marker: &str) -> io::Result<Started> {
    let (stdin_theirs, stdin) = pipe()?;
    let (stdout, stdout_theirs) = pipe()?;
    let (stderr, stderr_theirs) = pipe()?;
    #[cfg(target_os = "linux")]
    for end in [&stdin, &stdout] {
        // Refused when the user's share of pipe memory is used up; the default size works too.
        let _ = rustix::pipe::fcntl_setpipe_size(end, PIPE_BYTES);
    }
    let (channel, channel_theirs) = std::os::unix::net::UnixStream::pair()?;
    channel.set_nonblocking(true)?;
    let fds = [stdin_theirs.as_fd(), stdout_theirs.as_fd(), stderr_theirs.as_fd(), channel_theirs.as_fd()];
    let (guard, marker) = bear_guard(exe, label, marker, fds)?;
    // It cannot be gone: nobody but us reaps it.
    let identity = Identity::of(guard.get()).ok_or(io::ErrorKind::NotFound)?;
    Ok(Started { guard, marker, identity, channel, ends: [stdin, stdout, stderr] })
}

/// A new guard and its marker.
fn bear_guard(
    exe: &Path,
    label: &str,
    marker: &str,
    fds: [BorrowedFd<'_>; 4],
) -> io::Result<(GuardPid, String)> {
    #[cfg(target_os = "linux")]
    match crate::process::nursery::bear(exe, label, fds) {
        Ok(born) => return Ok(born),
        // A killed nursery, or a kernel that forbids it: a guard can always be started directly.
        Err(error) => tracing::debug!(%error, "guard not born in the nursery"),
    }
    Ok((guard::spawn_guard(exe, label, &[(GUARD_MARKER, marker)], fds)?, marker.to_owned()))
}

/// Read and write end, neither inherited by any program.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    #[cfg(target_os = "linux")]
    let ends = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    #[cfg(target_os = "macos")]
    let ends = {
        let ends = rustix::pipe::pipe()?;
        // Guards are spawned with "close on exec unless named"; this covers everybody else.
        rustix::io::fcntl_setfd(&ends.0, rustix::io::FdFlags::CLOEXEC)?;
        rustix::io::fcntl_setfd(&ends.1, rustix::io::FdFlags::CLOEXEC)?;
        ends
    };
    Ok(ends)
}
