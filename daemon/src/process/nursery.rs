//! The nursery: one process of the daemon that all guards are forked from.
//!
//! A guard needs almost nothing of the daemon's executable, but starting that executable anew
//! dirties a private copy of every page with an address in it: measured 1.05 MB each, against 0.16 MB
//! for a fork. A fork is also some milliseconds faster.
//!
//! Owner: [`bear`] keeps the one nursery of this process and starts a new one when it is gone; the
//! other half, [`nurse`], is the nursery's own life. Promise: what is born has the daemon as its
//! parent, so nothing else differs from a guard that was started directly; the nursery ends with
//! the daemon's end of its channel. May block: for blocking threads only. May not touch: servers.

use super::orders::{Frames, Order, Report};
use super::orphans::{self, GuardPid};
use super::table::{self, GUARD_MARKER};
use super::{keeper, stat};
use crate::guard;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Longest wait for an answer of the nursery; normally it takes less than a millisecond.
const PATIENCE: Duration = Duration::from_secs(3);
/// Descriptors of a guard: the server's 0-2 and the channel.
const FDS: usize = 4;

/// The daemon's end.
struct Nursery {
    exe: PathBuf,
    channel: UnixStream,
    frames: Frames,
    marker: String,
    process: Option<GuardPid>,
}

static NURSERY: Mutex<Option<Nursery>> = Mutex::new(None);

/// Starts a guard with `fds` as its descriptors 0 to 3 below this process; returns it with its
/// marker. `label` becomes part of its short name. Starts the nursery when there is none.
///
/// # Errors
/// The nursery cannot be started or does not answer; it is ended then, and the next call starts another.
pub fn bear(exe: &Path, label: &str, fds: [BorrowedFd<'_>; FDS]) -> io::Result<(GuardPid, String)> {
    let mut slot = NURSERY.lock().unwrap_or_else(PoisonError::into_inner);
    let usable = slot.take().filter(|nursery| nursery.exe == exe && nursery.lives());
    let mut nursery = match usable {
        Some(nursery) => nursery,
        None => Nursery::open(exe)?,
    };
    let born = orphans::adopt(|| nursery.fork(label, fds))?;
    let marker = nursery.marker.clone();
    *slot = Some(nursery);
    Ok((born, marker))
}

/// Ends the nursery of this process, if there is one, and waits for its end. For the last step of
/// an orderly shutdown; guards that still live are not touched.
pub fn close() {
    drop(NURSERY.lock().unwrap_or_else(PoisonError::into_inner).take());
}

impl Nursery {
    fn open(exe: &Path) -> io::Result<Self> {
        let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
        let (mut channel, theirs) = UnixStream::pair()?;
        channel.set_read_timeout(Some(PATIENCE))?;
        channel.set_write_timeout(Some(PATIENCE))?;
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let marker = format!("{:032x}", u128::from_le_bytes(random));
        let fds = [null.as_fd(), null.as_fd(), null.as_fd(), theirs.as_fd()];
        let process = guard::spawn_guard(exe, "", &[(GUARD_MARKER, &marker)], fds)?;
        drop(theirs);
        channel.write_all(&Order::Nurse.encode())?;
        let mut nursery =
            Self { exe: exe.to_owned(), channel, frames: Frames::default(), marker, process: Some(process) };
        // Also keeps the first message with descriptors out of what the nursery reads as a frame.
        nursery.answer()?;
        Ok(nursery)
    }

    fn lives(&self) -> bool {
        let process: Option<stat::Process> =
            self.process.as_ref().and_then(|process| table::one(process.get()));
        process.is_some_and(|process| !process.zombie)
    }

    fn fork(&mut self, label: &str, fds: [BorrowedFd<'_>; FDS]) -> io::Result<u32> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        if !rights.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // At least one byte has to go with descriptors.
        let name = format!("guard {label}");
        let name = &name.as_bytes()[..name.len().min(15)];
        sendmsg(&self.channel, &[IoSlice::new(name)], &mut rights, SendFlags::NOSIGNAL)?;
        self.answer()
    }

    /// Pid of what the nursery just reported.
    fn answer(&mut self) -> io::Result<u32> {
        let mut chunk = [0; 64];
        loop {
            match self.frames.next_report().map_err(io::Error::other)? {
                Some(Report::Spawned { pid }) => return Ok(pid),
                Some(Report::Refused { errno, .. }) => return Err(io::Error::from_raw_os_error(errno)),
                Some(_) => return Err(io::ErrorKind::InvalidData.into()),
                None => {}
            }
            match self.channel.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.frames.push(&chunk[..read]),
            }
        }
    }
}

impl Drop for Nursery {
    fn drop(&mut self) {
        // It has no state and no children, so KILL loses nothing; the number is held until reaped.
        if let Some(process) = self.process.take() {
            if let Some(pid) = table::as_pid(process.get()) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            process.reap();
        }
    }
}

/// The life of the nursery: forks one guard for each message until the daemon is gone. Returns in
/// each forked guard too, at the end of that guard's life.
pub(super) fn nurse(channel: OwnedFd) -> ExitCode {
    let _ = rustix::thread::set_name(c"guard nursery");
    keeper::send(&channel, &Report::Spawned { pid: table::own_pid() });
    while let Some((name, fds)) = receive(&channel) {
        let report = match guard::fork_sibling() {
            Ok(None) => return hatch(channel, &name, fds).map_or(ExitCode::FAILURE, keeper::live),
            Ok(Some(pid)) => Report::Spawned { pid },
            Err(error) => Report::Refused {
                step: super::orders::Step::Fork,
                errno: error.raw_os_error().unwrap_or_default(),
            },
        };
        drop(fds);
        keeper::send(&channel, &report);
    }
    ExitCode::SUCCESS
}

/// One message: a name and exactly [`FDS`] descriptors. `None` at the end.
fn receive(channel: &OwnedFd) -> Option<(Vec<u8>, [OwnedFd; FDS])> {
    let mut name = [0; 15];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got =
        rustix::io::retry_on_intr(|| recvmsg(channel, &mut [IoSliceMut::new(&mut name)], &mut rights, flags))
            .ok()?;
    if got.bytes == 0 {
        return None;
    }
    let mut fds = Vec::new();
    for message in rights.drain() {
        if let RecvAncillaryMessage::ScmRights(list) = message {
            fds.extend(list);
        }
    }
    Some((name[..got.bytes].to_vec(), fds.try_into().ok()?))
}

/// Turns the fork into what a directly started guard is: a session of its own, descriptors 0-3.
fn hatch(mut channel: OwnedFd, name: &[u8], fds: [OwnedFd; FDS]) -> io::Result<OwnedFd> {
    rustix::process::setsid()?;
    if let Ok(name) = std::ffi::CString::new(name) {
        let _ = rustix::thread::set_name(&name);
    }
    let [stdin, stdout, stderr, lifeline] = fds;
    rustix::stdio::dup2_stdin(&stdin)?;
    rustix::stdio::dup2_stdout(&stdout)?;
    rustix::stdio::dup2_stderr(&stderr)?;
    // Over the nursery's own channel: a guard must not hold that.
    rustix::io::dup3(&lifeline, &mut channel, rustix::io::DupFlags::CLOEXEC)?;
    drop((stdin, stdout, stderr, lifeline));
    guard::close_above_channel();
    Ok(channel)
}
