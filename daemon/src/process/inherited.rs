//! Descriptors that whoever started the daemon left open in it.
//!
//! Owner: `boot`, once, before anything else is opened. Promise: what a client leaked (its pipes, its
//! listening sockets) is not kept open for as long as the daemon lives; what the service manager
//! handed over on purpose stays. May not touch: descriptors that this process opened.

use rustix::stdio;
use std::os::fd::{AsRawFd, RawFd};

/// First descriptor that is no standard stream.
const FIRST: RawFd = 3;

/// Closes every descriptor from 3 on but those that `LISTEN_FDS` counts, if `LISTEN_PID` is this
/// process. Gives how many were closed. To be called while this process has one thread and has
/// opened nothing.
pub fn close_inherited(var: &dyn Fn(&str) -> Option<String>) -> usize {
    let keep = handed_over(var, std::process::id());
    open_descriptors()
        .into_iter()
        .filter(|fd| *fd >= FIRST.saturating_add(keep))
        // The descriptor of the listing itself is in the list and closed by now: EBADF, not counted.
        .filter(|fd| nix::unistd::close(*fd).is_ok())
        .count()
}

/// How many descriptors from 3 on a service manager passed to the process `pid`.
fn handed_over(var: &dyn Fn(&str) -> Option<String>, pid: u32) -> RawFd {
    let number = |name: &str| var(name).and_then(|text| text.trim().parse::<u32>().ok());
    let for_us = number("LISTEN_PID").is_none_or(|named| named == pid);
    let count = number("LISTEN_FDS").filter(|_| for_us).unwrap_or(0);
    RawFd::try_from(count).unwrap_or(0)
}

fn open_descriptors() -> Vec<RawFd> {
    let folder = if cfg!(target_os = "linux") { "/proc/self/fd" } else { "/dev/fd" };
    let standard = [stdio::stdin().as_raw_fd(), stdio::stdout().as_raw_fd(), stdio::stderr().as_raw_fd()];
    std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| !standard.contains(fd))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(fds: &str, pid: &str) -> RawFd {
        let (fds, pid) = (fds.to_owned(), pid.to_owned());
        let var = move |name: &str| match name {
            "LISTEN_FDS" => Some(fds.clone()),
            "LISTEN_PID" => Some(pid.clone()).filter(|pid| !pid.is_empty()),
            _ => None,
        };
        handed_over(&var, 42)
    }

    #[test]
    fn only_sockets_meant_for_this_process_are_kept() {
        assert_eq!(counted("2", "42"), 2);
        assert_eq!(counted("2", ""), 2, "started through a wrapper that changed the pid");
        assert_eq!(counted("2", "41"), 0);
        assert_eq!(counted("-1", "42"), 0);
        assert_eq!(counted("4294967295", "42"), 0);
        assert_eq!(handed_over(&|_| None, 42), 0);
    }
}
