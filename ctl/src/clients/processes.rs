//! The processes of this user: what they were started with, and by whom.
//!
//! Promise: reads only; a process that ends in the meantime is left out. Linux reads /proc, macOS asks `ps`.
//! May not touch: processes.

/// One process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    /// Its id.
    pub(super) pid: u32,
    /// Its parent.
    pub(super) parent: u32,
    /// Its command line; on macOS cut at spaces, because `ps` joins it.
    pub(super) words: Vec<String>,
}

/// All processes that can be seen.
#[cfg(target_os = "linux")]
pub(super) fn all() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| one(entry.file_name().to_str()?.parse().ok()?)).collect()
}

#[cfg(target_os = "linux")]
fn one(pid: u32) -> Option<Process> {
    use std::os::unix::fs::MetadataExt;
    let own = rustix::process::getuid().as_raw();
    let dir = format!("/proc/{pid}");
    if std::fs::metadata(&dir).ok()?.uid() != own {
        return None;
    }
    let words = std::fs::read(format!("{dir}/cmdline")).ok()?;
    let words: Vec<String> =
        words.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    // The name of a program may hold brackets and spaces: the state follows the last bracket.
    let stat = std::fs::read_to_string(format!("{dir}/stat")).ok()?;
    let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
    Some(Process { pid, parent, words })
}

/// All processes that can be seen.
#[cfg(not(target_os = "linux"))]
pub(super) fn all() -> Vec<Process> {
    let listed = std::process::Command::new("ps").args(["-xww", "-o", "pid=,ppid=,command="]).output();
    let text = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (pid, parent) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            Some(Process { pid, parent, words: words.map(str::to_owned).collect() })
        })
        .collect()
}
