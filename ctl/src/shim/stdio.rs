//! The client's two descriptors, read and written without ever blocking the loop for long.
//!
//! stdin and stdout may be pipes, socketpairs (some clients give those), files, terminals or
//! /dev/null, and their open file descriptions may be shared with the client itself, so O_NONBLOCK
//! is never set on them. A pipe is opened again under /proc, which gives a description of our own;
//! a socket takes MSG_DONTWAIT on each operation; everything else is polled first, then read for
//! what is there and written in pieces that a ready descriptor takes whole.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::io;

/// How one of the descriptors is used.
#[derive(Debug)]
pub(crate) enum Stdio {
    /// A pipe through a non-blocking description of our own.
    Own(OwnedFd),
    /// A socket; each operation says that it must not wait.
    Socket(BorrowedFd<'static>),
    /// Anything else; used only when poll said so.
    Shared(BorrowedFd<'static>),
}

/// Which end of a pipe to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Read,
    Write,
}

impl Stdio {
    /// The client's requests.
    pub(crate) fn stdin() -> Self {
        Self::over(rustix::stdio::stdin(), End::Read)
    }

    /// The client's answers.
    pub(crate) fn stdout() -> Self {
        Self::over(rustix::stdio::stdout(), End::Write)
    }

    fn over(fd: BorrowedFd<'static>, end: End) -> Self {
        let kind = rustix::fs::fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode));
        match kind {
            Ok(FileType::Socket) => Self::Socket(fd),
            Ok(FileType::Fifo) => open_again(end).map_or(Self::Shared(fd), Self::Own),
            _ => Self::Shared(fd),
        }
    }

    /// The descriptor to poll.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(fd) => fd.as_fd(),
            Self::Socket(fd) | Self::Shared(fd) => fd.as_fd(),
        }
    }

    /// Reads what is there. Call it only after poll reported something.
    ///
    /// # Errors
    /// `WouldBlock` when nothing was there after all.
    pub(crate) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let got = match self {
                Self::Own(fd) => rustix::io::read(fd, &mut *into),
                Self::Socket(fd) => {
                    rustix::net::recv(fd, &mut *into, RecvFlags::DONTWAIT).map(|(got, _)| got)
                }
                Self::Shared(fd) => rustix::io::read(fd, &mut *into),
            };
            match got {
                Err(Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    /// Writes as much as fits now.
    ///
    /// # Errors
    /// `WouldBlock` when nothing fits; `BrokenPipe` when the client is gone.
    pub(crate) fn write(&self, from: &[u8]) -> io::Result<usize> {
        loop {
            let wrote = match self {
                Self::Own(fd) => rustix::io::write(fd, from),
                Self::Socket(fd) => rustix::net::send(fd, from, SendFlags::DONTWAIT),
                Self::Shared(fd) => write_when_ready(fd.as_fd(), from),
            };
            match wrote {
                Err(Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }
}

/// A ready pipe takes PIPE_BUF bytes without waiting (POSIX, write).
fn write_when_ready(fd: BorrowedFd<'_>, from: &[u8]) -> Result<usize, Errno> {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    if fds[0].revents().is_empty() {
        return Err(Errno::AGAIN);
    }
    rustix::io::write(fd, &from[..from.len().min(rustix::pipe::PIPE_BUF)])
}

#[cfg(target_os = "linux")]
fn open_again(end: End) -> Option<OwnedFd> {
    let (path, access) = match end {
        End::Read => ("/proc/self/fd/0", OFlags::RDONLY),
        End::Write => ("/proc/self/fd/1", OFlags::WRONLY),
    };
    rustix::fs::open(path, access | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty()).ok()
}

/// Elsewhere opening a descriptor's path gives the shared description again.
#[cfg(not(target_os = "linux"))]
fn open_again(end: End) -> Option<OwnedFd> {
    let _ = (end, OFlags::empty(), Mode::empty());
    None
}
