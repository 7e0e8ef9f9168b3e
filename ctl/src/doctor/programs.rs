//! The three programs: present, of one version, and the ones that a shell would start.

use super::{Daemon, Lookup, finding};
use crate::beside;
use hermes_proto::control as pb;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Our own version, which the others should have.
const OURS: &str = env!("CARGO_PKG_VERSION");

/// Looks at hermesd, hermesctl and hermes-shim.
pub(super) fn look(daemon: &Daemon, env: Lookup<'_>) -> Vec<pb::Finding> {
    let mut found = Vec::new();
    let program = beside::find("hermesd");
    let on_disk = program.as_deref().and_then(version_of);
    match (&program, &on_disk) {
        (None, _) => {
            let text = "no hermesd beside hermesctl or on PATH".to_owned();
            let hint = "install hermesd into the folder of hermesctl".to_owned();
            found.push(finding("no-hermesd", pb::Severity::Error, text, hint));
        }
        (Some(path), None) => {
            let text = format!("{} does not say its version: it cannot run here", path.display());
            let hint = "install the hermesd that belongs to this hermesctl".to_owned();
            found.push(finding("hermesd-broken", pb::Severity::Error, text, hint));
        }
        (Some(path), Some(version)) if version != OURS => {
            let text = format!("{} has version {version}, hermesctl {OURS}", path.display());
            let hint = "install both from the same release".to_owned();
            found.push(finding("hermesd-version", pb::Severity::Warning, text, hint));
        }
        (Some(_), Some(_)) => {}
    }
    if let Daemon::Runs { version, .. } = daemon {
        found.extend(running(version, on_disk.as_deref()));
    }
    found.extend(shim());
    found.extend(path(env));
    found
}

/// The daemon that runs, against what a restart would start.
fn running(version: &str, on_disk: Option<&str>) -> Option<pb::Finding> {
    match on_disk {
        Some(disk) if disk != version => {
            let text = format!("the running daemon has version {version}, the installed one {disk}");
            let hint = "restart it: `hermesctl daemon stop`, then `start`; shims stay connected".to_owned();
            Some(finding("restart-needed", pb::Severity::Warning, text, hint))
        }
        _ if version != OURS => {
            let text = format!("the running daemon has version {version}, hermesctl {OURS}");
            let hint = "use the hermesctl of the same release".to_owned();
            Some(finding("daemon-version", pb::Severity::Warning, text, hint))
        }
        _ => None,
    }
}

fn shim() -> Option<pb::Finding> {
    let own = beside::own_exe().ok()?;
    let program = beside::sibling(&own, "hermes-shim").filter(|path| path.is_file());
    let Some(program) = program else {
        let text = "hermes-shim is not beside hermesctl; hermesctl does its work with more memory".to_owned();
        let hint = format!("install it into {}", own.parent().unwrap_or(Path::new("/")).display());
        return Some(finding("shim-missing", pb::Severity::Info, text, hint));
    };
    let version = version_of(&program).unwrap_or_else(|| "an unknown version".to_owned());
    (version != OURS).then(|| {
        let text = format!("{} has version {version}, hermesctl {OURS}", program.display());
        let hint = "install all programs from the same release, then restart the MCP clients".to_owned();
        finding("shim-version", pb::Severity::Warning, text, hint)
    })
}

/// The last word of what `--version` prints; `None` when it prints nothing or fails.
fn version_of(program: &Path) -> Option<String> {
    let mut command = Command::new(program);
    let output = command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let version = text.rsplit(' ').next().unwrap_or_default();
    (output.status.success() && !version.is_empty()).then(|| version.to_owned())
}

/// What a shell starts when somebody types `hermesctl`.
fn path(env: Lookup<'_>) -> Option<pb::Finding> {
    let own = beside::own_exe().ok()?;
    let name = own.file_name()?;
    let path = env("PATH").unwrap_or_default();
    let first = env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    let same = |other: &PathBuf| fs::canonicalize(other).ok() == fs::canonicalize(&own).ok();
    let (kind, text) = match first {
        Some(first) if same(&first) => return None,
        Some(first) => {
            ("path-other", format!("a shell starts {} and not {}", first.display(), own.display()))
        }
        None => ("path", format!("{} is in no folder of PATH", own.display())),
    };
    let folder = own.parent().unwrap_or(Path::new("/")).display();
    let hint =
        format!("put it first: export PATH=\"{folder}:$PATH\"; clients are registered with the whole path");
    Some(finding(kind, pb::Severity::Info, text, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_older_than_what_is_installed_is_to_be_restarted() {
        let kind = |running, disk| super::running(running, disk).map(|found| found.kind);
        assert_eq!(kind(OURS, Some(OURS)), None);
        assert_eq!(kind(OURS, Some("99.0.0")).as_deref(), Some("restart-needed"));
        assert_eq!(kind("99.0.0", Some("99.0.0")).as_deref(), Some("daemon-version"));
        assert_eq!(kind("99.0.0", None).as_deref(), Some("daemon-version"));
    }

    #[test]
    fn a_program_that_fails_or_is_missing_has_no_version() {
        assert_eq!(version_of(Path::new("/bin/false")), None);
        assert_eq!(version_of(Path::new("/nonexistent/program")), None);
    }
}
