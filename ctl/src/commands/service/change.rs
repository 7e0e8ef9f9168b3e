//! `service install` and `service uninstall`.
//!
//! Promise: what is right already stays; a file that somebody changed is kept beside the new one; nothing is
//! written when the service manager does not answer; with `--dry-run` nothing happens at all. A daemon
//! that runs outside the service makes room for it, and its clients keep their sessions.

use super::files::File;
use super::manager::{Order, give};
use super::{Place, shown};
use crate::client::Client;
use crate::commands::Context;
use crate::failure::{Done, Failure};
use hermes_proto::endpoint::{self, EndpointFile};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// How long the service may take until its daemon answers: the end of an older one is part of it.
const WITHIN: Duration = Duration::from_secs(45);
/// How long a daemon outside the service may take to end; above its own budget.
const ROOM_WITHIN: Duration = Duration::from_secs(15);
/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What was done, or would be.
#[derive(Debug, Default)]
struct Report {
    lines: Vec<String>,
    steps: Vec<Value>,
}

impl Report {
    fn add(&mut self, line: String, step: Value) {
        self.lines.push(line);
        self.steps.push(step);
    }
}

/// What is at the place of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    Same,
    Other,
}

/// Compares a file with what it should be.
///
/// # Errors
/// When a link is there (a masked unit is one) or the file cannot be read.
pub(super) fn found(file: &File) -> Result<Found, Failure> {
    let at = |error: io::Error| Failure::refused(format!("{}: {error}", file.path.display()));
    match fs::symlink_metadata(&file.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Nothing),
        Err(error) => Err(at(error)),
        Ok(meta) if !meta.is_file() => Err(Failure::Refused {
            message: format!("{} is a link or a folder, so it is not ours to change", file.path.display()),
            hint: "remove it if it is not needed (a link to /dev/null masks the unit: `systemctl --user unmask`)"
                .to_owned(),
        }),
        Ok(_) if fs::read(&file.path).map_err(at)? == file.text.as_bytes() => Ok(Found::Same),
        Ok(_) => Ok(Found::Other),
    }
}

/// Installs the files and starts the service.
pub(super) async fn install(cx: &Context, place: &Place, dry_run: bool) -> Result<Done, Failure> {
    let files = place.files(cx)?;
    let states = files.iter().map(found).collect::<Result<Vec<_>, _>>()?;
    let changed = states.iter().any(|state| *state != Found::Same);
    if !dry_run {
        place.manager.answers()?;
    }
    let mut report = Report::default();
    for (file, state) in files.iter().zip(&states) {
        if !dry_run {
            put(file, *state)?;
        }
        let name = shown(&file.path, &place.folders);
        let (line, word) = match state {
            Found::Same => (format!("{name} is up to date"), "same"),
            Found::Nothing => (format!("write {name}"), "new"),
            Found::Other => (format!("write {name}, keep the old one as {name}.old"), "changed"),
        };
        report.add(line, json!({ "do": "write", "path": file.path, "was": word }));
    }
    let before = if dry_run { None } else { outside(cx, place).await };
    let old = place.manager.state().pid;
    let runs = old.is_some();
    carry_out(&mut report, &place.manager.listen(changed), dry_run)?;
    if let Some(pid) = outside_pid(cx, place) {
        if !dry_run {
            make_room(cx, before, pid).await;
        }
        let line = format!("end the hermesd that runs outside the service (pid {pid})");
        report.add(line, json!({ "do": "end", "pid": pid }));
    }
    let agent = files[0].path.display().to_string();
    carry_out(&mut report, &place.manager.start(&agent, changed, runs), dry_run)?;
    let pid = if dry_run { None } else { Some(settled(cx, place, old.filter(|_| changed)).await?) };
    cx.print(
        || json!({ "dry_run": dry_run, "steps": report.steps, "pid": pid }),
        || {
            page(
                &report,
                dry_run,
                pid.map(|pid| format!("hermesd runs (pid {pid}), and from now on starts at login\n")),
            )
        },
    )?;
    Ok(Done::Well)
}

/// Stops the service and removes its files. Data, logs and configuration stay.
pub(super) fn uninstall(cx: &Context, place: &Place, dry_run: bool) -> Result<Done, Failure> {
    let files = place.files_of(cx, Path::new("/hermesd"))?;
    let there: Vec<&Path> =
        files.iter().map(|file| file.path.as_path()).filter(|path| path.symlink_metadata().is_ok()).collect();
    let mut report = Report::default();
    if !there.is_empty() {
        if !dry_run {
            place.manager.answers()?;
        }
        carry_out(&mut report, &place.manager.end(), dry_run)?;
        // Its files are what ends it, so they stay as long as it runs.
        if let Some(pid) = place.manager.state().pid.filter(|_| !dry_run) {
            return Err(Failure::Refused {
                message: format!("the service manager did not end hermesd (pid {pid}); its files stay"),
                hint: "`hermesctl service logs` shows what it does; try again when it is done".to_owned(),
            });
        }
        for path in there {
            if !dry_run {
                fs::remove_file(path)
                    .map_err(|error| Failure::refused(format!("{}: {error}", path.display())))?;
            }
            let name = shown(path, &place.folders);
            report.add(format!("remove {name}"), json!({ "do": "remove", "path": path }));
        }
        carry_out(&mut report, &place.manager.forget(), dry_run)?;
    }
    let last = if report.lines.is_empty() {
        "the service is not installed\n"
    } else {
        "the service is gone; configuration, data and logs stay, and the next client starts hermesd itself\n"
    };
    cx.print(
        || json!({ "dry_run": dry_run, "steps": report.steps }),
        || page(&report, dry_run, Some(last.to_owned()).filter(|_| !dry_run || report.lines.is_empty())),
    )?;
    Ok(Done::Well)
}

fn page(report: &Report, dry_run: bool, last: Option<String>) -> String {
    let front = if dry_run { "would " } else { "" };
    let line = |line: &String| {
        let plain = line.ends_with("is up to date");
        format!("{}{line}\n", if plain { "" } else { front })
    };
    report.lines.iter().map(line).chain(last).collect()
}

fn carry_out(report: &mut Report, orders: &[Order], dry_run: bool) -> Result<(), Failure> {
    for order in orders {
        if !dry_run {
            give(order)?;
        }
        report.add(format!("run {}", order.words.join(" ")), json!({ "do": "run", "command": order.words }));
    }
    Ok(())
}

/// Writes a file in one step; what somebody changed is kept beside it.
fn put(file: &File, state: Found) -> Result<(), Failure> {
    if state == Found::Same {
        return Ok(());
    }
    let at = |error: io::Error| Failure::refused(format!("{}: {error}", file.path.display()));
    let folder = file.path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).map_err(at)?;
    if state == Found::Other {
        fs::copy(&file.path, old(&file.path)).map_err(at)?;
    }
    let mut new = tempfile::NamedTempFile::new_in(folder).map_err(at)?;
    new.write_all(file.text.as_bytes()).map_err(at)?;
    // There is no secret in it, and the manager's tools read it under other names.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    new.as_file().set_permissions(mode).map_err(at)?;
    new.as_file().sync_all().map_err(at)?;
    new.persist(&file.path).map_err(|error| at(error.error))?;
    Ok(())
}

fn old(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".old");
    name.into()
}

/// Pid of the daemon of this home that the service manager did not start, without asking it.
fn outside_pid(cx: &Context, place: &Place) -> Option<u32> {
    let file = EndpointFile::read(&cx.home).filter(|_| endpoint::is_locked(&cx.home))?;
    (place.manager.state().pid != Some(file.pid)).then_some(file.pid)
}

/// A connection to that daemon, made before the service's sockets stand in the place of its own.
async fn outside(cx: &Context, place: &Place) -> Option<Client> {
    outside_pid(cx, place)?;
    let mut client = cx.client().await.ok()?;
    // Connections are made by their first use.
    client.status().await.ok()?;
    Some(client)
}

/// Ends the daemon `pid` that runs outside the service, and waits until it has let go of the home.
async fn make_room(cx: &Context, before: Option<Client>, pid: u32) {
    if let Some(mut client) = before {
        // Its answer may be lost with it.
        let _ = client.shutdown().await;
    }
    let end = Instant::now() + ROOM_WITHIN;
    let holds = || EndpointFile::read(&cx.home).is_none_or(|file| file.pid == pid);
    while endpoint::is_locked(&cx.home) && holds() && Instant::now() < end {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Waits until the service's own daemon answers: its pid. Others of this home make room; `old` is the one whose
/// restart is under way, which may still answer.
async fn settled(cx: &Context, place: &Place, old: Option<u32>) -> Result<u32, Failure> {
    let end = Instant::now() + WITHIN;
    loop {
        if let Ok(Ok(mut client)) = tokio::time::timeout(Duration::from_secs(5), cx.client()).await
            && let Ok(Ok(status)) = tokio::time::timeout(Duration::from_secs(5), client.status()).await
            && Some(status.pid) != old
        {
            let state = place.manager.state();
            if state.pid == Some(status.pid) {
                return Ok(status.pid);
            }
            // A client may have started one while the service was on its way.
            if state.pid.is_some() || state.service.as_deref() == Some("failed") {
                let _ = client.shutdown().await;
            }
        }
        if Instant::now() >= end {
            let state = place.manager.state();
            let service = place.manager.service();
            let word = state.service.unwrap_or_else(|| "unknown".to_owned());
            let why = state.result.map_or_else(String::new, |result| format!(", {result}"));
            return Err(Failure::Refused {
                message: format!("{service} is installed but its daemon does not answer ({word}{why})"),
                hint: "`hermesctl service logs` shows what it said".to_owned(),
            });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_kept_and_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = File { path: dir.path().join("a/b/x.service"), text: "new\n".to_owned() };
        assert_eq!(found(&file).unwrap(), Found::Nothing);
        put(&file, Found::Nothing).unwrap();
        assert_eq!(found(&file).unwrap(), Found::Same);
        fs::write(&file.path, "mine\n").unwrap();
        assert_eq!(found(&file).unwrap(), Found::Other);
        put(&file, Found::Other).unwrap();
        assert_eq!(fs::read_to_string(&file.path).unwrap(), "new\n");
        assert_eq!(fs::read_to_string(old(&file.path)).unwrap(), "mine\n");
        fs::remove_file(&file.path).unwrap();
        std::os::unix::fs::symlink("/dev/null", &file.path).unwrap();
        assert!(found(&file).is_err());
    }
}
