//! The system's process table: who exists, who descends from whom, who carries a marker; and the
//! one way to signal a process without hitting a stranger.
//!
//! Owner: nobody, it only reads. Promise: [`signal`] reaches the process that was looked at or
//! nobody. May not touch: the runtime (every function may block for some milliseconds).

use super::stat::{Process, descendants};
use rustix::process::{Pid, Signal};
use std::time::Duration;

/// Environment variable that every server of the daemon carries, with a value of its own.
pub const INSTANCE_MARKER: &str = "HERMESD_INSTANCE";
/// Environment variable of a guard; its value is recorded with it.
pub const GUARD_MARKER: &str = "HERMESD_GUARD";

/// `pid` as the system calls take it; `None` for 0 and what is no pid.
pub fn as_pid(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

/// The executable of `pid`, where the system tells.
pub fn executable(pid: u32) -> Option<String> {
    #[cfg(target_os = "linux")]
    {
        let path = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        Some(path.to_string_lossy().into_owned())
    }
    #[cfg(target_os = "macos")]
    {
        crate::guard::mac_executable(pid)
    }
}

/// This process.
pub fn own_pid() -> u32 {
    std::process::id()
}

/// Time since some fixed moment, never going back: for guards, blocking threads and the reaper,
/// which live outside the runtime and its clock.
pub fn clock() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(
        now.tv_sec.cast_unsigned(),
        u32::try_from(now.tv_nsec).expect("the kernel keeps it below a second"),
    )
}

/// Waits without a runtime and without a thread's sleep: only for guards and the start-up reaper.
pub fn pause(how_long: Duration) {
    let limit = rustix::time::Timespec {
        tv_sec: how_long.as_secs().cast_signed(),
        tv_nsec: how_long.subsec_nanos().into(),
    };
    // A signal may end the wait early; every caller looks again and waits again.
    let _ = rustix::event::poll(&mut [], Some(&limit));
}

/// Everything below `root`, zombies included, `root` not. Complete once no process forks any more.
pub fn below(root: u32) -> Vec<Process> {
    system::below(root)
}

/// Direct children of `parent`, zombies included.
pub fn children(parent: u32) -> Vec<Process> {
    system::children(parent)
}

/// All processes of this machine that can be seen.
pub fn all() -> Vec<Process> {
    system::all()
}

/// The process `pid`, if there is one.
pub fn one(pid: u32) -> Option<Process> {
    system::one(pid)
}

/// Real user id of `pid`.
pub fn uid(pid: u32) -> Option<u32> {
    system::uid(pid)
}

/// Memory that `pid` holds now, in bytes; pages that it shares with others count in full.
pub fn resident(pid: u32) -> Option<u64> {
    system::resident(pid)
}

/// Names this boot of the machine; `None` when the system does not say.
pub fn boot_id() -> Option<String> {
    system::boot_id()
}

/// Whether `pid` was started with `name=value` in its environment. `false` as well when its
/// environment cannot be read: what cannot be proven is a stranger.
pub fn carries(pid: u32, name: &str, value: &str) -> bool {
    let wanted = format!("{name}={value}");
    system::environment(pid)
        .is_some_and(|env| env.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes()))
}

/// Every living process of this user with `name=value` in its environment, this one left out.
pub fn marked(name: &str, value: &str) -> Vec<Process> {
    let me = own_pid();
    all()
        .into_iter()
        .filter(|process| !process.zombie && process.pid != me && carries(process.pid, name, value))
        .collect()
}

/// Whether the same process (pid and start time) still lives; a zombie does not.
pub fn lives(pid: u32, start: u64) -> bool {
    one(pid).is_some_and(|now| now.start == start && !now.zombie)
}

/// Sends `signal` to exactly the process that `target` describes.
///
/// On Linux the process is held by a descriptor while its start time is checked once more, so a
/// reused pid is never hit. Returns whether the signal was sent.
pub fn signal(target: &Process, signal: Signal) -> bool {
    system::signal(target, signal)
}

#[cfg(target_os = "linux")]
mod system {
    use super::*;
    use rustix::process::{PidfdFlags, kill_process, pidfd_open, pidfd_send_signal};
    use std::fs;

    pub(super) fn one(pid: u32) -> Option<Process> {
        let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
        Process::parse(&String::from_utf8_lossy(&bytes))
    }

    fn pids_in(folder: &str) -> impl Iterator<Item = u32> {
        fs::read_dir(folder)
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
    }

    pub(super) fn all() -> Vec<Process> {
        pids_in("/proc").filter_map(one).collect()
    }

    /// The kernel's own child lists, one a thread; `None` on kernels built without them.
    fn child_pids(parent: u32) -> Option<Vec<u32>> {
        let mut found = Vec::new();
        for thread in pids_in(&format!("/proc/{parent}/task")) {
            match fs::read_to_string(format!("/proc/{parent}/task/{thread}/children")) {
                Ok(list) => {
                    found.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok()))
                }
                // The thread may just have ended; a missing file in a living one means no support.
                Err(_) if fs::metadata(format!("/proc/{parent}/task/{thread}/stat")).is_ok() => return None,
                Err(_) => {}
            }
        }
        Some(found)
    }

    pub(super) fn children(parent: u32) -> Vec<Process> {
        match child_pids(parent) {
            Some(pids) => pids.into_iter().filter_map(one).collect(),
            None => all().into_iter().filter(|process| process.ppid == parent).collect(),
        }
    }

    pub(super) fn below(root: u32) -> Vec<Process> {
        let mut found: Vec<Process> = Vec::new();
        let mut parents = vec![root];
        while let Some(parent) = parents.pop() {
            let Some(pids) = child_pids(parent) else { return descendants(&all(), root) };
            for pid in pids {
                if found.iter().all(|known| known.pid != pid)
                    && let Some(process) = one(pid)
                {
                    parents.push(pid);
                    found.push(process);
                }
            }
        }
        found
    }

    pub(super) fn uid(pid: u32) -> Option<u32> {
        // Not the owner of the folder: that is root for processes that are not dumpable.
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status
            .lines()
            .find_map(|line| line.strip_prefix("Uid:"))?
            .split_ascii_whitespace()
            .next()?
            .parse()
            .ok()
    }

    pub(super) fn resident(pid: u32) -> Option<u64> {
        // Sizes in pages: all, resident, shared, ...
        let sizes = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        let pages: u64 = sizes.split_ascii_whitespace().nth(1)?.parse().ok()?;
        Some(pages * rustix::param::page_size() as u64)
    }

    pub(super) fn boot_id() -> Option<String> {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(text.trim().to_owned()).filter(|id| !id.is_empty())
    }

    pub(super) fn environment(pid: u32) -> Option<Vec<u8>> {
        fs::read(format!("/proc/{pid}/environ")).ok()
    }

    pub(super) fn signal(target: &Process, signal: Signal) -> bool {
        let Some(pid) = as_pid(target.pid) else { return false };
        let same = || one(target.pid).is_some_and(|now| now.start == target.start);
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(held) => same() && pidfd_send_signal(&held, signal).is_ok(),
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
                same() && kill_process(pid, signal).is_ok()
            }
            Err(_) => false,
        }
    }
}

#[cfg(target_os = "macos")]
mod system {
    use super::*;
    use crate::guard::{mac_all_pids, mac_arguments, mac_boot_time, mac_process, mac_resident};
    use rustix::process::kill_process;

    pub(super) fn one(pid: u32) -> Option<Process> {
        mac_process(pid).map(|(process, _)| process)
    }

    pub(super) fn all() -> Vec<Process> {
        mac_all_pids().into_iter().filter_map(one).collect()
    }

    pub(super) fn children(parent: u32) -> Vec<Process> {
        all().into_iter().filter(|process| process.ppid == parent).collect()
    }

    pub(super) fn below(root: u32) -> Vec<Process> {
        descendants(&all(), root)
    }

    pub(super) fn uid(pid: u32) -> Option<u32> {
        mac_process(pid).map(|(_, uid)| uid)
    }

    pub(super) fn resident(pid: u32) -> Option<u64> {
        mac_resident(pid)
    }

    pub(super) fn boot_id() -> Option<String> {
        mac_boot_time().map(|seconds| seconds.to_string())
    }

    pub(super) fn environment(pid: u32) -> Option<Vec<u8>> {
        crate::process::stat::environment_in(&mac_arguments(pid)?).map(<[u8]>::to_vec)
    }

    pub(super) fn signal(target: &Process, signal: Signal) -> bool {
        // No descriptor holds a process here; the window between check and signal is some microseconds.
        let Some(pid) = as_pid(target.pid) else { return false };
        one(target.pid).is_some_and(|now| now.start == target.start) && kill_process(pid, signal).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_with_its_parent_and_user() {
        let me = one(own_pid()).expect("this process exists");
        assert_eq!(me.ppid, std::os::unix::process::parent_id());
        assert_eq!(uid(own_pid()), Some(rustix::process::getuid().as_raw()));
        assert!(lives(me.pid, me.start));
        assert!(!lives(me.pid, me.start + 1));
        assert!(all().iter().any(|process| process.pid == me.pid));
    }

    #[test]
    fn a_child_is_below_its_parent_until_it_is_reaped_and_a_wrong_start_time_is_never_signalled() {
        let mut child =
            std::process::Command::new("sleep").arg("600").env("TABLE_TEST_MARK", "m1").spawn().unwrap();
        let seen = children(own_pid())
            .into_iter()
            .find(|process| process.pid == child.id())
            .expect("listed as a child");
        assert!(below(own_pid()).iter().any(|process| process.pid == child.id()));
        // Between fork and exec a child still shows its parent's environment.
        let limit = std::time::Instant::now() + Duration::from_secs(20);
        while !carries(child.id(), "TABLE_TEST_MARK", "m1") {
            assert!(std::time::Instant::now() < limit, "the marker never showed");
            pause(Duration::from_millis(2));
        }
        assert!(!carries(child.id(), "TABLE_TEST_MARK", "m"));
        let stranger = Process { start: seen.start + 1, ..seen.clone() };
        assert!(!signal(&stranger, Signal::KILL));
        assert!(child.try_wait().unwrap().is_none());
        assert!(signal(&seen, Signal::KILL));
        child.wait().unwrap();
        assert!(!lives(seen.pid, seen.start));
    }
}
