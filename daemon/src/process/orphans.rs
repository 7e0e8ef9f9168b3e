//! Who is waited for below this daemon, and who is only reaped.
//!
//! Owner: the daemon process, one set of numbers for all of it. Promise: a guard is reaped by its
//! [`GuardPid`] alone, everything else that lost its parent by [`reap_orphans`], and no number is
//! free for reuse while somebody still means the old process by it. May not touch: direct children
//! of other code, which share the daemon's session.

use super::table;
use rustix::process::{WaitOptions, waitpid};
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Makes this process the new parent of everything that loses its parent below it, so that a
/// killed guard's children can be found. Does nothing on macOS, which has no such thing.
///
/// # Errors
/// The system's, on kernels older than 3.4.
pub fn become_subreaper() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// Guards whose end somebody waits for; everything else that ends below us is an orphan.
static GUARDS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Held while a guard is being started: its number is not known yet and nobody may reap it. Apart
/// from the set itself, which tasks touch and which therefore is never held for long.
static SPAWNING: Mutex<()> = Mutex::new(());

fn guards() -> MutexGuard<'static, BTreeSet<u32>> {
    // A set of numbers is valid whatever panicked while it was held.
    GUARDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A started guard that is not reaped yet. Dropped without [`GuardPid::reap`], it becomes an
/// orphan that [`reap_orphans`] takes.
#[derive(Debug)]
pub struct GuardPid(u32);

impl GuardPid {
    /// Its process id; valid as long as this value lives, because nobody else reaps it.
    pub fn get(&self) -> u32 {
        self.0
    }

    /// Waits for the guard's end, which must be near, and reaps it. Blocks.
    pub fn reap(self) {
        if let Some(pid) = table::as_pid(self.0) {
            let _ = rustix::io::retry_on_intr(|| waitpid(Some(pid), WaitOptions::empty()));
        }
    }
}

impl Drop for GuardPid {
    fn drop(&mut self) {
        guards().remove(&self.0);
    }
}

/// Runs `spawn` and knows its guard before anybody can reap it, also when it dies at once.
///
/// # Errors
/// Those of `spawn`.
pub(crate) fn adopt(spawn: impl FnOnce() -> io::Result<u32>) -> io::Result<GuardPid> {
    let _no_reaping = SPAWNING.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = spawn()?;
    guards().insert(pid);
    Ok(GuardPid(pid))
}

/// Direct children in this process's own session that somebody awaits, e.g. a question to the login
/// shell.
static AWAITED: AtomicUsize = AtomicUsize::new(0);

/// Set by the daemon itself: whatever is in its session below it is its own, which is not so where
/// other code starts processes (tests).
static SESSION_IS_OURS: AtomicBool = AtomicBool::new(false);

/// Says that nothing but [`Awaited`] children is started in this process's session, so that
/// whatever else turns up there lost its parent.
pub fn claim_session() {
    SESSION_IS_OURS.store(true, Ordering::SeqCst);
}

fn session_is_free() -> bool {
    SESSION_IS_OURS.load(Ordering::SeqCst) && AWAITED.load(Ordering::SeqCst) == 0
}

/// As long as one lives, children in this process's own session are left to whoever started them.
#[derive(Debug)]
pub struct Awaited(());

impl Awaited {
    /// To be made before the child.
    pub fn begin() -> Self {
        AWAITED.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        AWAITED.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Ends what a profile of the login shell left running: it came to us when its shell went, and
/// nobody else starts anything in this session. Does nothing while somebody awaits a child there, and
/// before [`claim_session`].
pub fn end_strays() {
    let own_session = own_session();
    if !session_is_free() {
        return;
    }
    let known = guards().clone();
    for child in table::children(table::own_pid()) {
        if !child.zombie && Some(child.sid) == own_session && !known.contains(&child.pid) {
            table::signal(&child, rustix::process::Signal::KILL);
        }
    }
}

/// The session's number as the process table tells it, so that it compares with what is read there:
/// 0 where the session was begun outside this pid namespace, which `getsid` may not be asked for.
fn own_session() -> Option<u32> {
    table::one(table::own_pid()).map(|me| me.sid)
}

/// Reaps everything that ended below this process and is neither a guard that somebody waits for
/// nor, unless the session is ours and nobody awaits a child there, a direct child in this session.
///
/// To be called when SIGCHLD arrives and now and then (it does nothing while a guard is being
/// started); never waits. Returns how many were reaped.
pub fn reap_orphans() -> usize {
    let _no_spawning = match SPAWNING.try_lock() {
        Ok(held) => held,
        Err(TryLockError::Poisoned(held)) => held.into_inner(),
        Err(TryLockError::WouldBlock) => return 0,
    };
    let known = guards().clone();
    let own_session = own_session();
    let spare_session = !session_is_free();
    let orphans = table::children(table::own_pid()).into_iter().filter(|child| {
        child.zombie && !(spare_session && Some(child.sid) == own_session) && !known.contains(&child.pid)
    });
    orphans
        .filter_map(|child| table::as_pid(child.pid))
        .filter(|pid| matches!(waitpid(Some(*pid), WaitOptions::NOHANG), Ok(Some(_))))
        .count()
}
