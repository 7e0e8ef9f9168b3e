//! Notices that the client ended although its pipes are still open (another process holds them).
//!
//! Linux: a pidfd in the poll set, which costs nothing while idle. Elsewhere: the parent's pid is
//! compared every few seconds.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{Pid, getppid};
use std::time::Duration;

/// The process that started the shim.
#[derive(Debug)]
pub(crate) struct Parent {
    pid: Option<Pid>,
    pidfd: Option<OwnedFd>,
}

impl Parent {
    /// Starts to watch the present parent.
    pub(crate) fn watch() -> Self {
        let pid = getppid();
        Self { pid, pidfd: pid.and_then(open) }
    }

    /// Its pid for the hello; 0 when it is outside of our namespace.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// A descriptor that becomes readable when the parent ended.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }

    /// How often [`ended`](Self::ended) must be asked when there is no descriptor.
    pub(crate) fn look_every(&self) -> Option<Duration> {
        (self.pidfd.is_none() && self.pid.is_some()).then_some(Duration::from_secs(5))
    }

    /// Whether the parent is another one now.
    pub(crate) fn ended(&self) -> bool {
        self.pid.is_some() && getppid() != self.pid
    }

    /// Stops watching.
    pub(crate) fn forget(&mut self) {
        self.pid = None;
        self.pidfd = None;
    }
}

#[cfg(target_os = "linux")]
fn open(pid: Pid) -> Option<OwnedFd> {
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn open(_pid: Pid) -> Option<OwnedFd> {
    None
}
