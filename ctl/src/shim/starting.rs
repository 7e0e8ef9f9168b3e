//! A daemon that was just started: whether it ended at once, and what it said then.
//!
//! Its stderr is a pipe to us; a daemon started with `HERMESD_STDERR=off` writes nothing there
//! unless it fails. Promise: nothing here waits; a pipe that nobody reads any more costs the
//! daemon nothing, as it ignores errors of stderr.

use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use rustix::io::{Errno, FdFlags};
use rustix::pipe::pipe;
use std::io;

/// Tells a daemon that its stderr is only for the reason why it cannot run.
pub(super) const QUIET: (&str, &str) = ("HERMESD_STDERR", "off");
/// Bytes of its words that are kept.
const KEPT: usize = 16 * 1024;

/// The end of the pipe that hears a daemon's last words.
#[derive(Debug)]
pub struct Starting {
    stderr: OwnedFd,
    heard: Vec<u8>,
}

impl Starting {
    /// A pipe: the listener, and what becomes the daemon's stderr.
    pub(super) fn listen() -> io::Result<(Self, OwnedFd)> {
        let (stderr, theirs) = pipe()?;
        for end in [&stderr, &theirs] {
            rustix::io::fcntl_setfd(end, FdFlags::CLOEXEC)?;
        }
        rustix::fs::fcntl_setfl(&stderr, OFlags::NONBLOCK)?;
        Ok((Self { stderr, heard: Vec::new() }, theirs))
    }

    /// The reason that a daemon gave which has ended; `None` while it lives.
    pub fn ended(&mut self) -> Option<String> {
        let mut room = [0; 1024];
        loop {
            match rustix::io::read(&self.stderr, &mut room) {
                Ok(0) => return Some(reason(&String::from_utf8_lossy(&self.heard))),
                Ok(n) => {
                    self.heard.extend_from_slice(&room[..n]);
                    // The reason comes last.
                    let over = self.heard.len().saturating_sub(KEPT);
                    self.heard.drain(..over);
                }
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }
}

/// The reason in what a daemon wrote: from its last `error: ` on, else its last line.
fn reason(heard: &str) -> String {
    let error = heard.match_indices("error: ").filter(|(at, _)| *at == 0 || heard[..*at].ends_with('\n'));
    let words = match error.last() {
        Some((at, prefix)) => &heard[at + prefix.len()..],
        None => heard.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("without a word"),
    };
    words.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_last_error_or_the_last_line() {
        assert_eq!(reason("a log line\nerror: /h/run is a file\n"), "/h/run is a file");
        assert_eq!(reason("error: two\nlines\n"), "two\nlines");
        assert_eq!(reason("thread panicked\n\n"), "thread panicked");
        assert_eq!(reason(""), "without a word");
    }

    #[test]
    fn a_living_daemon_has_not_ended_and_an_ended_one_said_why() {
        let (mut starting, theirs) = Starting::listen().unwrap();
        assert_eq!(starting.ended(), None);
        rustix::io::write(&theirs, b"error: no\n").unwrap();
        assert_eq!(starting.ended(), None);
        drop(theirs);
        assert_eq!(starting.ended().as_deref(), Some("no"));
    }
}
