//! Which processes exist, read from /proc and never from the daemon's own word.
//!
//! A process belongs to a test when its command line or its environment names the test's folder.
//! Linux only; elsewhere the lists are empty and the tests that need them are not compiled.

use std::fs;

/// One process as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its pid.
    pub pid: i32,
    /// Its parent.
    pub ppid: i32,
    /// When it started, in clock ticks since boot; with the pid it names one process for ever.
    pub started: u64,
    /// State letter (`Z`: zombie).
    pub state: char,
    /// Arguments joined by blanks.
    pub cmdline: String,
    /// Whether the environment has HERMESD_INSTANCE.
    pub marked: bool,
}

/// Every living process whose command line or environment contains `needle`, and every process below one.
///
/// A guard names nothing: it is found as a child. Zombies have neither line nor environment.
pub fn mentioning(needle: &str) -> Vec<Process> {
    let own = std::process::id() as i32;
    let all: Vec<(Process, String)> =
        all().into_iter().filter(|(p, _)| p.pid != own && p.state != 'Z').collect();
    let mut found: Vec<i32> = all
        .iter()
        .filter(|(p, env)| p.cmdline.contains(needle) || env.contains(needle))
        .map(|(p, _)| p.pid)
        .collect();
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        let below: Vec<i32> = all
            .iter()
            .map(|(p, _)| p)
            .filter(|p| p.ppid == pid && !found.contains(&p.pid))
            .map(|p| p.pid)
            .collect();
        found.extend(below);
    }
    all.into_iter().map(|(p, _)| p).filter(|p| found.contains(&p.pid)).collect()
}

/// Direct children of `pid`, zombies too.
pub fn children(pid: i32) -> Vec<Process> {
    all().into_iter().map(|(p, _)| p).filter(|p| p.ppid == pid).collect()
}

/// The process `pid`, if it lives (a zombie does not).
pub fn process(pid: i32) -> Option<Process> {
    read(pid).map(|(p, _)| p).filter(|p| p.state != 'Z')
}

/// Numbers of the open file descriptors of `pid`, without the one that reads the list.
pub fn open_fds(pid: i32) -> Vec<i32> {
    let list = format!("/proc/{pid}/fd");
    let number = |entry: fs::DirEntry| {
        let itself = fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == list.as_str());
        if itself { None } else { entry.file_name().to_str()?.parse().ok() }
    };
    let mut fds: Vec<i32> =
        fs::read_dir(&list).map(|dir| dir.flatten().filter_map(number).collect()).unwrap_or_default();
    fds.sort_unstable();
    fds
}

/// Resident memory of `pid` in KiB; 0 when it is gone.
pub fn rss_kib(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap_or("0");
    line.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn all() -> Vec<(Process, String)> {
    let Ok(dir) = fs::read_dir("/proc") else { return Vec::new() };
    dir.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).filter_map(read).collect()
}

fn read(pid: i32) -> Option<(Process, String)> {
    let text = |name: &str| {
        fs::read(format!("/proc/{pid}/{name}")).map(|b| String::from_utf8_lossy(&b).into_owned())
    };
    let stat = text("stat").ok()?;
    let rest = stat.rsplit_once(") ")?.1;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    let ppid = fields.next()?.parse().ok()?;
    let started = fields.nth(17)?.parse().ok()?;
    let cmdline = text("cmdline").ok()?.replace('\0', " ").trim().to_owned();
    let env = text("environ").unwrap_or_default();
    let marked = env.contains("HERMESD_INSTANCE=");
    Some((Process { pid, ppid, started, state, cmdline, marked }, env))
}
