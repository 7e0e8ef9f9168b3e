//! Limits of the machine: space on the disk, file systems, inotify, descriptors.
//!
//! What the system says is asked for here, and what it means is decided by functions of numbers.

use super::{Found, Subject};
use crate::config::Severity;
use std::path::Path;

/// Below this hermesd.db and logs are about to fail.
const TOO_LITTLE: u64 = 64 << 20;
/// Below this it is time to make room.
const LITTLE: u64 = 512 << 20;
/// Descriptors for the daemon itself, for each server, and for clients.
const OWN: u64 = 64;
const EACH: u64 = 10;

/// Looks at the machine.
pub(super) fn look(subject: &Subject<'_>) -> Vec<Found> {
    let mut found = Vec::new();
    let home = existing(&subject.paths.home);
    if let Ok(disk) = rustix::fs::statvfs(home) {
        found.extend(space(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize, home));
        found.extend(inodes(disk.f_favail, disk.f_files, home));
    }
    found.extend(remote_disk(home));
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    found.extend(descriptors(limit.maximum, subject.config.servers.len() as u64));
    found.extend(inotify());
    found
}

/// The home, or what of it exists.
fn existing(home: &Path) -> &Path {
    home.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"))
}

/// Some file systems have no size at all (`total` 0); nothing is known then.
fn space(free: u64, total: u64, home: &Path) -> Option<Found> {
    let severity = match free {
        _ if total == 0 => return None,
        _ if free < TOO_LITTLE => Severity::Error,
        _ if free < LITTLE => Severity::Warning,
        _ => return None,
    };
    let text = format!("{} MiB are left on the disk of {}", free >> 20, home.display());
    let hint = "make room: approvals, audit rows and logs are lost when it is full".to_owned();
    Some(Found::new("disk-space", severity, text, hint))
}

fn inodes(free: u64, total: u64, home: &Path) -> Option<Found> {
    let text = format!("the disk of {} takes no more files", home.display());
    let hint = "remove files there: all its inodes are used".to_owned();
    (total > 0 && free == 0).then(|| Found::new("disk-files", Severity::Error, text, hint))
}

/// Without a hard limit there is nothing to run into.
fn descriptors(hard: Option<u64>, servers: u64) -> Option<Found> {
    let needed = OWN + EACH * servers + 4 * OWN;
    let hard = hard.filter(|hard| *hard < needed)?;
    let text =
        format!("only {hard} files may be open at once; {servers} servers and their clients need {needed}");
    let hint =
        format!("raise it: `ulimit -Hn {needed}` before the daemon starts, or LimitNOFILE= in its unit");
    Some(Found::new("open-files", Severity::Warning, text, hint))
}

#[cfg(target_os = "linux")]
fn remote_disk(home: &Path) -> Option<Found> {
    let kind = rustix::fs::statfs(home).ok()?.f_type;
    remote_kind(kind as u64 & 0xffff_ffff, home)
}

#[cfg(not(target_os = "linux"))]
fn remote_disk(_home: &Path) -> Option<Found> {
    None
}

/// By the magic number in statfs(2).
#[cfg(any(target_os = "linux", test))]
fn remote_kind(kind: u64, home: &Path) -> Option<Found> {
    let name = match kind {
        0x6969 => "NFS",
        0x517b | 0xfe53_4d42 | 0xff53_4d42 => "SMB",
        0x0102_1997 => "9p",
        0x6573_5546 => "FUSE",
        _ => return None,
    };
    let text = format!("{} lies on {name}, where locks and file notices are not reliable", home.display());
    let hint = "move it to a local disk and set HERMES_HOME".to_owned();
    Some(Found::new("remote-disk", Severity::Warning, text, hint))
}

#[cfg(target_os = "linux")]
fn inotify() -> Option<Found> {
    use rustix::fs::inotify;
    let limit = |name: &str| {
        std::fs::read_to_string(format!("/proc/sys/fs/inotify/{name}")).ok()?.trim().parse().ok()
    };
    let made = inotify::init(inotify::CreateFlags::CLOEXEC).map(drop);
    watching(made, limit("max_user_instances"), limit("max_user_watches"))
}

#[cfg(not(target_os = "linux"))]
fn inotify() -> Option<Found> {
    None
}

/// `made`: whether one more instance could be had just now.
#[cfg(any(target_os = "linux", test))]
fn watching(
    made: Result<(), rustix::io::Errno>,
    instances: Option<u64>,
    watches: Option<u64>,
) -> Option<Found> {
    let shown = |limit: Option<u64>| limit.map_or("unknown".to_owned(), |limit| limit.to_string());
    let (text, key, wanted) = match made {
        Err(rustix::io::Errno::MFILE) => {
            let text =
                format!("no inotify instance is left (limit {}): changes are noticed late", shown(instances));
            (text, "max_user_instances", 1024)
        }
        _ if watches.is_some_and(|limit| limit < 1024) => {
            let text = format!("only {} files may be watched for changes", shown(watches));
            (text, "max_user_watches", 65_536)
        }
        _ => return None,
    };
    let hint = format!("raise it: `sudo sysctl fs.inotify.{key}={wanted}`, and for good in /etc/sysctl.d");
    Some(Found::new("inotify", Severity::Warning, text, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(found: impl IntoIterator<Item = Found>) -> Vec<(&'static str, Severity)> {
        found.into_iter().map(|found| (found.kind, found.finding.severity)).collect()
    }

    #[test]
    fn a_disk_warns_before_it_fails() {
        let home = Path::new("/h");
        assert_eq!(kinds(space(1 << 40, 1 << 41, home)), []);
        assert_eq!(kinds(space(300 << 20, 1 << 41, home)), [("disk-space", Severity::Warning)]);
        assert_eq!(kinds(space(1 << 20, 1 << 41, home)), [("disk-space", Severity::Error)]);
        assert_eq!(kinds(space(0, 0, home)), [], "a file system without a size");
        assert_eq!(kinds(inodes(0, 1000, home)), [("disk-files", Severity::Error)]);
        assert_eq!(kinds(inodes(0, 0, home)), [], "a file system without inodes");
    }

    #[test]
    fn a_home_on_another_machine_is_named() {
        for kind in [0x6969, 0x6573_5546, 0x0102_1997, 0xff53_4d42] {
            assert_eq!(kinds(remote_kind(kind, Path::new("/h"))), [("remote-disk", Severity::Warning)]);
        }
        assert_eq!(kinds(remote_kind(0xef53, Path::new("/h"))), []);
    }

    #[test]
    fn limits_of_the_system_are_named_with_what_raises_them() {
        let full = watching(Err(rustix::io::Errno::MFILE), Some(128), Some(8192)).unwrap();
        assert!(
            full.finding.message.contains("limit 128") && full.finding.hint.contains("max_user_instances")
        );
        let few = watching(Ok(()), Some(128), Some(100)).unwrap();
        assert!(few.finding.hint.contains("max_user_watches"));
        assert_eq!(watching(Ok(()), Some(128), Some(8192)), None);
        assert_eq!(kinds(descriptors(Some(256), 3)), [("open-files", Severity::Warning)]);
        assert_eq!(kinds(descriptors(Some(4096), 3)), []);
        assert_eq!(kinds(descriptors(None, 3000)), []);
    }
}
