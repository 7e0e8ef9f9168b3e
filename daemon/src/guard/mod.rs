//! The guard process between the daemon and one stdio server; its folder is the only one with unsafe code.
//!
//! Owner: [`main`] is the whole life of a guard (its loop is `process::keeper`); the other
//! functions are the system calls that have no safe form elsewhere. Promise: a guard has one
//! thread, shows nothing of the server in its arguments or environment, holds no pipe of the
//! server after the start, and outlives the daemon until the server's tree is gone.
//! May not touch: the runtime, logs, config.
#![allow(unsafe_code)]

pub mod heap;

use crate::process::orders::Step;
use crate::process::{keeper, orphans};

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{io, process::ExitCode, ptr, time::Duration};

#[cfg(target_os = "linux")]
pub use crate::process::nursery::close as close_nursery;
pub use crate::process::orphans::{GuardPid, become_subreaper, reap_orphans};

/// Where a guard finds the socket to its daemon.
pub const CHANNEL_FD: RawFd = 3;

/// Whether this process was started as `hermesd guard`. `args` includes the program's name.
pub fn is_guard_invocation(mut args: impl Iterator<Item = OsString>) -> bool {
    args.nth(1).is_some_and(|verb| verb == "guard")
}

/// The whole life of a guard. Called first in the daemon's `main`, before a runtime or an
/// argument parser exists. Run by hand, without a daemon at the other end, it ends at once.
pub fn main() -> ExitCode {
    keeper::main()
}

/// The executable to start guards from: this very one, even after it was replaced on disk.
pub fn own_exe() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok(PathBuf::from("/proc/self/exe")) } else { std::env::current_exe() }
}

/// Starts `exe guard <label>` (an empty label is left out) with `fds` as its descriptors 0 to 3 and nothing else, in a session
/// of its own, all signals blocked and at their defaults, `env` as its whole environment.
///
/// # Errors
/// The system's: no such file, out of processes, memory or descriptors.
pub fn spawn_guard(
    exe: &Path,
    label: &str,
    env: &[(&str, &str)],
    fds: [BorrowedFd<'_>; 4],
) -> io::Result<GuardPid> {
    let exe = c_text(exe.as_os_str())?;
    let label = c_text(OsStr::new(&label.replace(char::is_control, "?")))?;
    let label_or_end = if label.is_empty() { ptr::null() } else { label.as_ptr() };
    let argv = [c"hermesd".as_ptr(), c"guard".as_ptr(), label_or_end, ptr::null()];
    let env = env
        .iter()
        .map(|(name, value)| c_text(OsStr::new(&format!("{name}={value}"))))
        .collect::<io::Result<Vec<_>>>()?;
    let envp: Vec<_> = env.iter().map(|entry| entry.as_ptr()).chain([ptr::null()]).collect();
    // Away from 0-3, so that no dup2 below overwrites a source that a later one needs.
    let fds: Vec<OwnedFd> =
        fds.iter().map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 10)).collect::<Result<_, _>>()?;
    let mut plan = SpawnPlan::new()?;
    for (target, source) in (0..).zip(&fds) {
        plan.dup2(source.as_raw_fd(), target)?;
    }
    orphans::adopt(|| {
        let mut pid: libc::pid_t = 0;
        // SAFETY: every pointer is to a live, terminated string or array that outlives the call.
        check(unsafe {
            let (actions, attributes) = (&raw const plan.actions, &raw const plan.attributes);
            libc::posix_spawn(
                &raw mut pid,
                exe.as_ptr(),
                actions,
                attributes,
                argv.as_ptr().cast(),
                envp.as_ptr().cast(),
            )
        })?;
        Ok(pid.cast_unsigned())
    })
}

/// Forks this process as a sibling: the child's parent is this process's parent, so the daemon owns
/// and reaps it like a guard that it started itself. `None` in the child. Nursery only: the
/// process must have one thread.
///
/// # Errors
/// Out of processes or memory.
#[cfg(target_os = "linux")]
pub(crate) fn fork_sibling() -> io::Result<Option<u32>> {
    let flags = libc::c_long::from(libc::CLONE_PARENT | libc::SIGCHLD);
    // SAFETY: as fork (no new stack, nothing shared), and with one thread no lock can be held.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match u32::try_from(pid) {
        Ok(0) => Ok(None),
        Ok(pid) => Ok(Some(pid)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Attributes and descriptor actions of one posix_spawn, freed on drop.
struct SpawnPlan {
    attributes: libc::posix_spawnattr_t,
    actions: libc::posix_spawn_file_actions_t,
}

impl SpawnPlan {
    fn new() -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        let flags = libc::POSIX_SPAWN_SETSIGMASK
            | libc::POSIX_SPAWN_SETSIGDEF
            | libc::c_int::from(libc::POSIX_SPAWN_SETSID);
        // POSIX_SPAWN_SETSID of <spawn.h>.
        #[cfg(target_os = "macos")]
        let flags = libc::POSIX_SPAWN_SETSIGMASK
            | libc::POSIX_SPAWN_SETSIGDEF
            | libc::POSIX_SPAWN_CLOEXEC_DEFAULT
            | 0x0400;
        // SAFETY: all-zero is a valid value to initialise; init runs before any use, destroy in Drop.
        unsafe {
            let mut plan = Self { attributes: std::mem::zeroed(), actions: std::mem::zeroed() };
            check(libc::posix_spawnattr_init(&raw mut plan.attributes))?;
            check(libc::posix_spawn_file_actions_init(&raw mut plan.actions))?;
            let full = full_mask();
            check(libc::posix_spawnattr_setsigmask(&raw mut plan.attributes, &raw const full))?;
            check(libc::posix_spawnattr_setsigdefault(&raw mut plan.attributes, &raw const full))?;
            check(libc::posix_spawnattr_setflags(
                &raw mut plan.attributes,
                flags.try_into().expect("the flags fit a short"),
            ))?;
            Ok(plan)
        }
    }

    fn dup2(&mut self, from: RawFd, to: RawFd) -> io::Result<()> {
        // SAFETY: `actions` was initialised by `new`.
        check(unsafe { libc::posix_spawn_file_actions_adddup2(&raw mut self.actions, from, to) })
    }
}

impl Drop for SpawnPlan {
    fn drop(&mut self) {
        // SAFETY: both were initialised by `new`; destroying is the last use.
        unsafe {
            libc::posix_spawnattr_destroy(&raw mut self.attributes);
            libc::posix_spawn_file_actions_destroy(&raw mut self.actions);
        }
    }
}

fn check(error: libc::c_int) -> io::Result<()> {
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

fn c_text(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

fn full_mask() -> libc::sigset_t {
    // SAFETY: sigfillset initialises the whole set.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        set
    }
}

/// The guard's socket to the daemon, its other descriptors above 2 closed. Guard only, first thing,
/// once: takes descriptor 3 as its own.
///
/// # Errors
/// Descriptor 3 is no open socket: somebody ran `hermesd guard` by hand.
pub(crate) fn take_channel() -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is only asked about here.
    let borrowed = unsafe { BorrowedFd::borrow_raw(CHANNEL_FD) };
    // Fails with EBADF unless the number is in use, and with ENOTSOCK unless it is a socket.
    rustix::net::sockopt::socket_type(borrowed)?;
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)?;
    // SAFETY: open (checked above) and nobody else's: a guard starts with exactly 0-3.
    let channel = unsafe { OwnedFd::from_raw_fd(CHANNEL_FD) };
    close_above_channel();
    Ok(channel)
}

#[cfg(target_os = "linux")]
pub(crate) fn close_above_channel() {
    // SAFETY: nothing above 3 belongs to anything in this process yet.
    if unsafe { libc::syscall(libc::SYS_close_range, CHANNEL_FD + 1, libc::c_uint::MAX, 0) } == 0 {
        return;
    }
    // Before Linux 5.9.
    let open: Vec<RawFd> = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for fd in open.into_iter().filter(|fd| *fd > CHANNEL_FD) {
        // SAFETY: as above; the listing's own descriptor is closed already, a second close only fails.
        unsafe { libc::close(fd) };
    }
}

/// macOS closed everything at the spawn (POSIX_SPAWN_CLOEXEC_DEFAULT).
#[cfg(target_os = "macos")]
fn close_above_channel() {}

extern "C" fn wake_up(_: libc::c_int) {}

/// Blocks all signals of this thread and makes SIGCHLD interrupt [`wait`]. Guard only.
pub(crate) fn block_signals() {
    // SAFETY: `wake_up` does nothing and so is safe in a signal handler; the structs are initialised.
    unsafe {
        let all = full_mask();
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut());
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = wake_up as extern "C" fn(libc::c_int) as libc::sighandler_t;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGCHLD, &raw const action, ptr::null_mut());
    }
}

/// What ended a [`wait`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    /// The channel has data or its end.
    Channel,
    /// A child changed, or the time is over.
    Look,
}

/// Waits for the channel, a child or `limit`. SIGCHLD is let in only during the wait, so one that
/// arrives just before ends it at once. Guard only.
pub(crate) fn wait(channel: Option<BorrowedFd<'_>>, limit: Option<Duration>) -> Wake {
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    let fd = channel.map(|fd| fd.as_raw_fd());
    // SAFETY: the sets are initialised; the only descriptor is 3, far below FD_SETSIZE.
    unsafe {
        let mut mask = full_mask();
        libc::sigdelset(&raw mut mask, libc::SIGCHLD);
        let mut readable: libc::fd_set = std::mem::zeroed();
        libc::FD_ZERO(&raw mut readable);
        if let Some(fd) = fd {
            libc::FD_SET(fd, &raw mut readable);
        }
        let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
        let ready = libc::pselect(
            fd.map_or(0, |fd| fd + 1),
            &raw mut readable,
            ptr::null_mut(),
            ptr::null_mut(),
            limit,
            &raw const mask,
        );
        if ready > 0 { Wake::Channel } else { Wake::Look }
    }
}

/// A program, ready for exec: everything that allocates is done.
pub(crate) struct Exec {
    program: CString,
    cwd: CString,
    strings: (Vec<CString>, Vec<CString>),
}

impl Exec {
    /// Prepares `program` with `args` behind its name, `env` as the whole environment.
    ///
    /// # Errors
    /// A NUL byte in any of them.
    pub(crate) fn new(
        program: &Path,
        args: &[OsString],
        env: &[(OsString, OsString)],
        cwd: &Path,
    ) -> io::Result<Self> {
        let argv = [program.as_os_str()]
            .into_iter()
            .chain(args.iter().map(OsString::as_os_str))
            .map(c_text)
            .collect::<io::Result<_>>()?;
        let entry = |(name, value): &(OsString, OsString)| {
            let mut entry = name.clone();
            entry.push("=");
            entry.push(value);
            c_text(&entry)
        };
        let envp = env.iter().map(entry).collect::<io::Result<_>>()?;
        Ok(Self {
            program: c_text(program.as_os_str())?,
            cwd: c_text(cwd.as_os_str())?,
            strings: (argv, envp),
        })
    }

    /// Starts the program as leader of its own process group, with descriptors 0-2 of this process,
    /// default signals, and KILL as its parent's last word. Guard only: the process must have one thread.
    ///
    /// # Errors
    /// The step that went wrong and the system's error number; nothing is left then.
    pub(crate) fn spawn(&self) -> Result<u32, (Step, i32)> {
        let fork_error = |error: io::Error| (Step::Fork, error.raw_os_error().unwrap_or(libc::EIO));
        let (report, failure) = report_pipe().map_err(fork_error)?;
        let pointers =
            |list: &[CString]| list.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect::<Vec<_>>();
        let (argv, envp) = (pointers(&self.strings.0), pointers(&self.strings.1));
        let guard = std::process::id();
        // SAFETY: a guard has one thread, so no lock can be held in the child.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let (step, errno) = become_server(&self.program, &self.cwd, &argv, &envp, guard);
            let mut message = [0; 5];
            message[0] = step as u8;
            message[1..].copy_from_slice(&errno.to_le_bytes());
            let _ = rustix::io::write(&failure, &message);
            // SAFETY: ends only this child; exit handlers belong to the guard.
            unsafe { libc::_exit(127) }
        }
        if pid < 0 {
            return Err(fork_error(io::Error::last_os_error()));
        }
        drop(failure);
        // Both sides set the group, so it exists for whoever runs first.
        let child = rustix::process::Pid::from_raw(pid).expect("fork gives a positive pid to the parent");
        let _ = rustix::process::setpgid(Some(child), Some(child));
        let mut message = [0; 5];
        let read = rustix::io::retry_on_intr(|| rustix::io::read(&report, &mut message)).unwrap_or(0);
        if read < message.len() {
            // The pipe closed at exec: the program runs.
            return Ok(pid.cast_unsigned());
        }
        let _ = rustix::io::retry_on_intr(|| {
            rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty())
        });
        let step = if message[0] == Step::Cwd as u8 { Step::Cwd } else { Step::Exec };
        Err((step, i32::from_le_bytes([message[1], message[2], message[3], message[4]])))
    }
}

fn report_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe()?;
    // One thread, so nothing can fork between pipe and this.
    for end in [&read, &write] {
        rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok((read, write))
}

/// The forked child's way to exec; returns only with what went wrong.
fn become_server(
    program: &CStr,
    cwd: &CStr,
    argv: &[*const libc::c_char],
    envp: &[*const libc::c_char],
    guard: u32,
) -> (Step, i32) {
    let errno = || io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    // SAFETY: only system calls on terminated strings and arrays that the parent prepared.
    unsafe {
        libc::setpgid(0, 0);
        #[cfg(target_os = "linux")]
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // The guard may have died before the line above took effect.
        if libc::getppid().cast_unsigned() != guard {
            libc::_exit(127);
        }
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        if libc::chdir(cwd.as_ptr()) != 0 {
            return (Step::Cwd, errno());
        }
        libc::execve(program.as_ptr(), argv.as_ptr(), envp.as_ptr());
        (Step::Exec, errno())
    }
}

/// Points descriptors 0-2 of this process to /dev/null, so that it holds no pipe of the server.
///
/// # Errors
/// /dev/null cannot be opened.
pub(crate) fn let_go_of_stdio() -> io::Result<()> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// macOS starts each guard directly; there is nothing to close.
#[cfg(target_os = "macos")]
pub fn close_nursery() {}

#[cfg(target_os = "macos")]
pub(crate) use mac::{mac_all_pids, mac_arguments, mac_boot_time, mac_executable, mac_process, mac_resident};

/// The process table of macOS, which has no /proc.
#[cfg(target_os = "macos")]
mod mac {
    use crate::process::stat::Process;
    use std::mem::{size_of, zeroed};
    use std::ptr;

    /// All process ids.
    pub(crate) fn mac_all_pids() -> Vec<u32> {
        // SAFETY: asked for the count first; the second call gets the true size of the buffer in bytes.
        unsafe {
            let count = libc::proc_listallpids(ptr::null_mut(), 0).max(0) as usize + 64;
            let mut pids = vec![0_i32; count];
            let bytes = i32::try_from(count * size_of::<i32>()).expect("far fewer processes than that");
            let found = libc::proc_listallpids(pids.as_mut_ptr().cast(), bytes).max(0) as usize;
            pids.truncate(found);
            pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0).collect()
        }
    }

    /// What `proc_pidinfo` tells of a process. SAFETY: `T` must be the C struct of `flavor`.
    unsafe fn pid_info<T>(pid: u32, flavor: i32) -> Option<T> {
        // SAFETY: a C struct of numbers may be zero; the buffer is passed with its true size.
        unsafe {
            let mut info: T = zeroed();
            let size = i32::try_from(size_of::<T>()).expect("a small struct");
            let got = libc::proc_pidinfo(pid.cast_signed(), flavor, 0, (&raw mut info).cast(), size);
            (got == size).then_some(info)
        }
    }

    /// One process and its real user id.
    pub(crate) fn mac_process(pid: u32) -> Option<(Process, u32)> {
        // SAFETY: proc_bsdinfo is the struct of this flavour.
        let info: libc::proc_bsdinfo = unsafe { pid_info(pid, libc::PROC_PIDTBSDINFO) }?;
        // SAFETY: takes a number and no memory; what is not found gives -1.
        let sid = u32::try_from(unsafe { libc::getsid(pid.cast_signed()) }).unwrap_or(0);
        let name: Vec<u8> = info.pbi_comm.iter().map(|c| c.cast_unsigned()).take_while(|c| *c != 0).collect();
        let process = Process {
            pid,
            ppid: info.pbi_ppid,
            pgid: info.pbi_pgid,
            sid,
            start: info.pbi_start_tvsec * 1_000_000 + info.pbi_start_tvusec,
            zombie: info.pbi_status == libc::SZOMB,
            name: String::from_utf8_lossy(&name).into_owned(),
        };
        Some((process, info.pbi_ruid))
    }

    /// Resident memory of a process in bytes.
    pub(crate) fn mac_resident(pid: u32) -> Option<u64> {
        // SAFETY: proc_taskinfo is the struct of this flavour.
        unsafe { pid_info::<libc::proc_taskinfo>(pid, libc::PROC_PIDTASKINFO) }
            .map(|info| info.pti_resident_size)
    }

    fn sysctl(name: &mut [i32], buffer: &mut [u8]) -> Option<usize> {
        let mut len = buffer.len();
        // SAFETY: name and buffer are passed with their true lengths; nothing is set.
        let done = unsafe {
            let out = buffer.as_mut_ptr().cast();
            libc::sysctl(name.as_mut_ptr(), name.len() as u32, out, &raw mut len, ptr::null_mut(), 0)
        };
        (done == 0).then_some(len)
    }

    /// When this machine was started, in seconds since 1970.
    pub(crate) fn mac_boot_time() -> Option<i64> {
        let mut buffer = [0; size_of::<libc::timeval>()];
        sysctl(&mut [libc::CTL_KERN, libc::KERN_BOOTTIME], &mut buffer)?;
        Some(i64::from_ne_bytes(*buffer.first_chunk::<8>()?))
    }

    /// Arguments and environment of an own process, as the kernel keeps them.
    pub(crate) fn mac_arguments(pid: u32) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 1024 * 1024];
        let len = sysctl(&mut [libc::CTL_KERN, libc::KERN_PROCARGS2, pid.cast_signed()], &mut buffer)?;
        buffer.truncate(len);
        Some(buffer)
    }

    /// Path of the executable of a process.
    pub(crate) fn mac_executable(pid: u32) -> Option<String> {
        let mut path = vec![0_u8; usize::try_from(libc::PROC_PIDPATHINFO_MAXSIZE).ok()?];
        let size = u32::try_from(path.len()).ok()?;
        // SAFETY: the buffer is passed with its true length; the call writes no more than that.
        let len = unsafe { libc::proc_pidpath(pid.cast_signed(), path.as_mut_ptr().cast(), size) };
        path.truncate(usize::try_from(len).ok().filter(|len| *len > 0)?);
        Some(String::from_utf8_lossy(&path).into_owned())
    }
}
