//! Another program that is asked one question: started, read, ended with all it started.
//!
//! Owner: whoever awaits [`ask`]. Promise: when it returns nothing of the program's group is left, and
//! whoever had to be ended was told so first: a profile killed while it holds a lock would leave that
//! lock to the person's next shell. Never blocks the runtime. May not touch: what is asked.

use crate::process::orphans::{self, Awaited};
use crate::process::table;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

/// Most output that is read, in bytes; a chatty profile must not fill the memory.
const MAX_OUTPUT: usize = 1024 * 1024;

/// How long a program that answered may take to end by itself.
const BY_ITSELF: Duration = Duration::from_millis(500);

/// From TERM to HUP, and from there to KILL.
const GRACE: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 1 });

/// How often is looked whether it ended.
const LOOK: Duration = Duration::from_millis(5);

/// Runs `command` until `answer` finds what it looks for, its output ends, `limit` is over or `stop`
/// comes. Ending it may take another second and a half.
pub(super) async fn ask<T>(
    command: Command,
    limit: Duration,
    stop: &CancellationToken,
    answer: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    run(command, limit, stop, async |stdout| read_until(stdout, &answer).await).await
}

/// As [`ask`], for all that the program prints.
pub(super) async fn ask_to_end(
    command: Command,
    limit: Duration,
    stop: &CancellationToken,
) -> Option<String> {
    run(command, limit, stop, read_all).await
}

async fn run<T>(
    command: Command,
    limit: Duration,
    stop: &CancellationToken,
    read: impl AsyncFnOnce(OwnedFd) -> Option<T>,
) -> Option<T> {
    // fork and exec of a large daemon take long enough to keep them off the runtime.
    let (asked, stdout) = tokio::task::spawn_blocking(|| Asked::start(command)).await.ok()?.ok()?;
    let found = tokio::select! {
        found = tokio::time::timeout(limit, read(stdout)) => found.ok().flatten(),
        () = stop.cancelled() => None,
    };
    asked.end(if found.is_some() { BY_ITSELF } else { Duration::ZERO }).await;
    found
}

/// A child in a process group of its own, killed with its group when dropped.
struct Asked {
    child: Option<Child>,
    /// The reaper leaves our child to us meanwhile.
    awaited: Option<Awaited>,
}

impl Asked {
    fn start(mut command: Command) -> io::Result<(Self, OwnedFd)> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let awaited = Awaited::begin();
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().expect("stdout was asked to be a pipe");
        Ok((Self { child: Some(child), awaited: Some(awaited) }, stdout.into()))
    }

    async fn end(mut self, by_itself: Duration) {
        if let Some(child) = self.child.take() {
            let _ = tokio::task::spawn_blocking(move || wind_down(child, by_itself)).await;
        }
        // What the profile started came to us with the end of its shell.
        self.awaited = None;
        orphans::end_strays();
        orphans::reap_orphans();
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        // Without a wait the reaper takes it: `awaited` ends here too.
        if let Some(child) = &self.child {
            signal_group(child, Signal::KILL);
        }
    }
}

/// Ends the group of `child`. The leader is reaped last, so the group's number stays its own.
fn wind_down(mut child: Child, by_itself: Duration) {
    let leader = child.id();
    within(by_itself, || table::one(leader).is_none_or(|process| process.zombie));
    let alone = || table::all().iter().all(|process| process.pgid != leader || process.zombie);
    if !alone() {
        // TERM is what scripts tidy up on, HUP what an interactive shell obeys; a stopped one needs
        // CONT to hear either.
        // TERM twice: one that comes while a shell forks is lost to its child, for which the shell then waits.
        for (signal, grace) in [(Signal::TERM, GRACE / 2), (Signal::TERM, GRACE / 2), (Signal::HUP, GRACE)] {
            signal_group(&child, signal);
            signal_group(&child, Signal::CONT);
            if within(grace, alone) {
                break;
            }
        }
        signal_group(&child, Signal::KILL);
    }
    // After KILL this is a matter of microseconds, but it is still a wait.
    let _ = child.wait();
}

fn within(how_long: Duration, done: impl Fn() -> bool) -> bool {
    let begun = table::clock();
    loop {
        if done() {
            return true;
        }
        if table::clock() >= begun + how_long {
            return false;
        }
        table::pause(LOOK);
    }
}

fn signal_group(leader: &Child, signal: Signal) {
    if let Some(group) = Pid::from_raw(leader.id().cast_signed()) {
        let _ = kill_process_group(group, signal);
    }
}

async fn read_until<T>(stdout: OwnedFd, answer: &impl Fn(&str) -> Option<T>) -> Option<T> {
    let mut pipe = pipe::Receiver::from_owned_fd(stdout).ok()?;
    let mut output = Vec::new();
    // Not to the end: a background job of the profile may hold the pipe for ever.
    while output.len() < MAX_OUTPUT && pipe.read_buf(&mut output).await.ok()? > 0 {
        if let Some(found) = answer(&String::from_utf8_lossy(&output)) {
            return Some(found);
        }
    }
    None
}

async fn read_all(stdout: OwnedFd) -> Option<String> {
    let mut pipe = pipe::Receiver::from_owned_fd(stdout).ok()?;
    let mut output = Vec::new();
    while output.len() < MAX_OUTPUT && pipe.read_buf(&mut output).await.ok()? > 0 {}
    Some(String::from_utf8_lossy(&output).into_owned())
}
