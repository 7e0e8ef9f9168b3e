//! The daemon under test as a process.

use crate::wait::{SOON, pause, wait_some};
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Sends a signal; a process that is already gone is fine.
pub fn kill(pid: i32, signal: Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// A running daemon; dropped, it is ended with SIGTERM and waited for.
#[derive(Debug)]
pub struct Daemon {
    pub(crate) child: Child,
    pub(crate) ended: Option<ExitStatus>,
    pub(crate) log: PathBuf,
}

impl Daemon {
    /// Its pid.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Its exit status, once it has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("a child of this process");
        }
        self.ended
    }

    /// What it wrote to its terminal so far.
    pub fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        wait_some("the daemon ends", SOON, || self.exited())
    }

    /// SIGTERM and wait.
    #[track_caller]
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// `kill -9` and wait.
    pub fn kill_hard(&mut self) {
        self.signal(Signal::KILL);
        self.ended = self.child.wait().ok();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.exited().is_some() {
            return;
        }
        self.signal(Signal::TERM);
        let start = Instant::now();
        while self.exited().is_none() {
            pause(Duration::from_millis(5));
            if start.elapsed() > SOON {
                self.kill_hard();
                assert!(std::thread::panicking(), "the daemon did not end after SIGTERM");
            }
        }
    }
}
