//! Reaches the daemon of a home, and starts one when there is none.
//!
//! Promise: nothing here waits: a connection is there at once or it is an error; a daemon that is
//! started shares nothing with the client (own session, six variables, no terminal).

use super::starting::{QUIET, Starting};
use crate::beside;
use hermes_proto::endpoint::{self, Endpoint, EndpointError, Home};
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use rustix::io::{Errno, FdFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

/// First argument of the helper that puts a daemon into a session of its own.
pub const START_DAEMON: &str = "__start-daemon";
/// What a daemon started by a shim gets of the environment, where it is set.
const PASSED: [&str; 6] = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];
/// The only variable of ours that a daemon needs; the home travels as an argument.
const RUNTIME_DIR: &str = "HERMESD_RUNTIME_DIR";
/// A daemon nobody uses ends after this long.
const IDLE_EXIT: &str = "30m";

/// Why the daemon cannot be reached or started.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    /// No folder for the sockets can be used.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// Nothing answers at the socket.
    #[error("cannot reach hermesd at {path}: {source}")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no hermesd to start.
    #[error("hermesd is not running and no hermesd was found beside hermesctl or on PATH")]
    NoProgram,
    /// hermesd could not be started.
    #[error("cannot start {program}: {source}")]
    Spawn {
        /// The program.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Connects to the shim socket of the daemon of `home`; the descriptor does not block.
///
/// # Errors
/// [`ReachError::Connect`] when nobody listens (or the backlog is full: try again),
/// [`ReachError::Endpoint`] when no folder can be used or it is not private to this user.
pub(crate) fn connect(home: &Home) -> Result<OwnedFd, ReachError> {
    let mut last = None;
    for candidate in endpoint::candidates(home, &|name| std::env::var_os(name))? {
        match connect_to(&candidate) {
            Ok(socket) => return Ok(socket),
            // The first candidate is the best guess and makes the most useful message.
            Err(error) => last = last.or(Some(error)),
        }
    }
    Err(last.expect("candidates are never empty"))
}

fn connect_to(endpoint: &Endpoint) -> Result<OwnedFd, ReachError> {
    let path = endpoint.mcp_socket();
    let connect = || -> Result<OwnedFd, Errno> {
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
        rustix::fs::fcntl_setfl(&socket, OFlags::NONBLOCK)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(&path)?)?;
        Ok(socket)
    };
    match connect() {
        // Someone else's folder could hold someone else's socket.
        Ok(socket) => endpoint::private(&endpoint.dir).map(|()| socket).map_err(ReachError::from),
        Err(errno) => Err(ReachError::Connect { path, source: errno.into() }),
    }
}

/// When a started daemon ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// After 30 minutes without a client: nobody asked for it by name.
    WhileUsed,
    /// Not by itself.
    UntilStopped,
}

/// Starts a daemon for `home` and returns without waiting for its socket. Dropping the answer
/// only means that nobody hears why it ended.
///
/// # Errors
/// [`ReachError::NoProgram`], [`ReachError::Spawn`].
pub fn spawn(home: &Home, lifetime: Lifetime) -> Result<Starting, ReachError> {
    let program = beside::find("hermesd").ok_or(ReachError::NoProgram)?;
    let failed = |source| ReachError::Spawn { program: program.clone(), source };
    let mut command = Command::new(beside::own_exe().map_err(failed)?);
    command.arg(START_DAEMON).arg(&program).arg("run");
    match lifetime {
        Lifetime::WhileUsed => command.args(["--idle-exit", IDLE_EXIT]),
        Lifetime::UntilStopped => &mut command,
    };
    let starting = prepare(&mut command, home).map_err(failed)?;
    let status = command.spawn().and_then(|mut child| child.wait()).map_err(failed)?;
    if status.success() { Ok(starting) } else { Err(failed(io::Error::other(status.to_string()))) }
}

/// A daemon that ends as soon as it has started, as a child of ours: says whether one could run.
/// Starts like any other, so that a client which comes just now is served by it.
///
/// # Errors
/// As [`spawn`].
pub fn trial(home: &Home) -> Result<(Child, Starting), ReachError> {
    let program = beside::find("hermesd").ok_or(ReachError::NoProgram)?;
    let failed = |source| ReachError::Spawn { program: program.clone(), source };
    let mut command = Command::new(&program);
    command.args(["run", "--idle-exit", "1ms"]).process_group(0);
    let starting = prepare(&mut command, home).map_err(failed)?;
    // A trial of the daemon, not of its servers: none is started.
    command.env("HERMES_SAFE_MODE", "1");
    Ok((command.spawn().map_err(failed)?, starting))
}

/// The home, environment, folder and stdio that every daemon of ours starts with.
fn prepare(command: &mut Command, home: &Home) -> io::Result<Starting> {
    if !home.is_default() {
        command.arg("--home").arg(home.path());
    }
    command.env_clear().envs(PASSED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.env(QUIET.0, QUIET.1);
    if let Some(dir) = std::env::var_os(RUNTIME_DIR).filter(|dir| !dir.is_empty()) {
        // The daemon starts in another folder.
        command.env(RUNTIME_DIR, std::path::absolute(&dir).unwrap_or_else(|_| dir.into()));
    }
    let (starting, stderr) = Starting::listen()?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).current_dir("/");
    Ok(starting)
}

/// The helper itself: a new session, then the daemon as a process that nobody waits for.
pub fn start_daemon(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(program) = args.next() else { return ExitCode::from(2) };
    if rustix::process::setsid().is_err() {
        return ExitCode::FAILURE;
    }
    match Command::new(program).args(args).process_group(0).spawn() {
        Ok(_daemon) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
