//! How a session ends, and whether its client is gone for good.
//!
//! Pure but for one poll of the socket, which never blocks.

use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::net::UnixStream;

/// Why a session ended, for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The client's side ended and everything was answered.
    ClientDone,
    /// The socket broke.
    Broken,
    /// The client did not read its answers.
    NotReading,
    /// The daemon stops.
    Stopping,
}

impl Ended {
    /// For the log.
    pub fn word(self) -> &'static str {
        match self {
            Self::ClientDone => "the client is done",
            Self::Broken => "the socket broke",
            Self::NotReading => "the client does not read",
            Self::Stopping => "the daemon stops",
        }
    }
}

/// Whether the peer has closed both directions of its socket, not only its sending one.
pub(super) fn hung_up(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::empty())];
    let polled = rustix::event::poll(&mut fds, Some(&Timespec::default()));
    polled.is_ok_and(|ready| ready > 0) && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}
