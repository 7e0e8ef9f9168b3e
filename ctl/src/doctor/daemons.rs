//! Other daemons of this user: of other homes, and those that hold nothing.

use super::{Daemon, finding};
use hermes_proto::control as pb;
use hermes_proto::endpoint::{EndpointFile, Home};

/// One process with the name of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    pid: u32,
    parent: u32,
    args: Vec<String>,
}

/// Looks at the process table; nothing where it cannot be read.
pub(super) fn look(home: &Home, daemon: &Daemon) -> Vec<pb::Finding> {
    let own = match daemon {
        Daemon::Runs { pid, .. } => Some(*pid),
        Daemon::Gone => EndpointFile::read(home).map(|file| file.pid),
    };
    others(&table(), own)
}

/// Guards are the same program with another first word, and below a daemon.
fn others(seen: &[Seen], own: Option<u32>) -> Vec<pb::Finding> {
    let runs = |process: &&Seen| {
        let verb = process.args.iter().skip(1).find(|arg| !arg.starts_with('-'));
        verb.is_none_or(|verb| verb == "run") || process.args.iter().any(|arg| arg == "run")
    };
    let daemons: Vec<&Seen> = seen.iter().filter(runs).collect();
    let others: Vec<&&Seen> = daemons
        .iter()
        .filter(|process| Some(process.pid) != own && daemons.iter().all(|other| other.pid != process.parent))
        .collect();
    if others.is_empty() {
        return Vec::new();
    }
    let named: Vec<String> = others
        .iter()
        .map(|process| {
            let home = process.args.iter().skip_while(|arg| *arg != "--home").nth(1);
            home.map_or(format!("pid {}", process.pid), |home| format!("pid {} ({home})", process.pid))
        })
        .collect();
    let text = format!("more daemons of yours run: {}", named.join(", "));
    let hint = format!("if it is not meant: kill {}", others[0].pid);
    vec![finding("more-daemons", pb::Severity::Info, text, hint)]
}

#[cfg(target_os = "linux")]
fn table() -> Vec<Seen> {
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    let uid = rustix::process::getuid().as_raw();
    let processes = fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| {
        let entry = entry.ok()?;
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        if entry.metadata().ok()?.uid() != uid {
            return None;
        }
        let exe = fs::read_link(entry.path().join("exe")).ok()?;
        let exe = exe.file_name()?.to_str()?;
        let name = exe.strip_suffix(" (deleted)").unwrap_or(exe);
        if name != "hermesd" && !name.ends_with("-hermesd") {
            return None;
        }
        let words = fs::read(entry.path().join("cmdline")).ok()?;
        let args = words.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let parent = stat.rsplit(')').next()?.split_ascii_whitespace().nth(1)?.parse().ok()?;
        Some(Seen {
            pid,
            parent,
            args: args.map(|word| String::from_utf8_lossy(word).into_owned()).collect(),
        })
    });
    processes.collect()
}

#[cfg(not(target_os = "linux"))]
fn table() -> Vec<Seen> {
    let uid = rustix::process::getuid().as_raw().to_string();
    let listed =
        std::process::Command::new("ps").args(["-xww", "-U", &uid, "-o", "pid=,ppid=,command="]).output();
    let text = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let processes = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (pid, parent) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let args: Vec<String> = words.map(str::to_owned).collect();
        let name = args.first()?.rsplit('/').next()?;
        (name == "hermesd").then_some(Seen { pid, parent, args })
    });
    processes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pid: u32, parent: u32, words: &str) -> Seen {
        Seen { pid, parent, args: words.split(' ').map(str::to_owned).collect() }
    }

    #[test]
    fn only_daemons_count_and_not_what_belongs_to_one() {
        let table = [
            seen(10, 1, "/usr/bin/hermesd run"),
            seen(11, 10, "/usr/bin/hermesd guard"),
            seen(12, 10, "/usr/bin/hermesd run"),
            seen(20, 1, "/usr/bin/hermesd run --home /other"),
            seen(30, 1, "/usr/bin/hermesd config check"),
        ];
        assert_eq!(others(&table[..3], Some(10)), []);
        let found = others(&table, Some(10));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].message, "more daemons of yours run: pid 20 (/other)");
        assert_eq!(found[0].hint, "if it is not meant: kill 20");
    }
}
