//! `service status` and `service logs`.

use super::change::{Found, found};
use super::manager::State;
use super::{Place, files, shown};
use crate::cli_service::ServiceManager;
use crate::commands::{Context, Format};
use crate::failure::{Done, Failure};
use crate::render::text;
use serde_json::json;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Reports files, manager and daemon; a bad answer unless it is installed and runs or waits for clients.
pub(super) async fn status(cx: &Context, place: &Place) -> Result<Done, Failure> {
    let files = place.files(cx)?;
    let states: Vec<&str> = files
        .iter()
        .map(|file| match found(file) {
            Ok(Found::Same) => "installed",
            Ok(Found::Other) => "differs",
            Ok(Found::Nothing) => "missing",
            Err(_) => "linked",
        })
        .collect();
    let reached = place.manager.answers();
    let state = place.manager.state();
    let there = states.iter().all(|state| *state != "missing");
    let lives =
        [&state.service, &state.socket].into_iter().flatten().any(|s| s == "active" || s == "running");
    cx.print(
        || {
            json!({
                "service": place.manager.service(),
                "installed": there,
                "files": files.iter().zip(&states).map(|(file, state)| json!({ "path": file.path, "state": state })).collect::<Vec<_>>(),
                "at_login": state.at_login, "service_state": state.service, "socket_state": state.socket,
                "pid": state.pid, "restarts": state.restarts, "result": state.result, "lingers": state.lingers,
                "problem": reached.as_ref().err().map(ToString::to_string),
            })
        },
        || {
            let mut out = String::new();
            for (file, state) in files.iter().zip(&states) {
                let note = match *state {
                    "differs" => "differs from what `hermesctl service install` would write",
                    "linked" => "is a link or a folder",
                    state => state,
                };
                out.push_str(&format!("{}: {note}\n", shown(&file.path, &place.folders)));
            }
            match &reached {
                Ok(()) => out.push_str(&words(&place.manager.service(), &state)),
                Err(error) => out.push_str(&format!("{}\n", text::plain(&error.to_string()))),
            }
            if !there {
                out.push_str("not installed: `hermesctl service install` does it\n");
            }
            out
        },
    )?;
    Ok(if there && lives { Done::Well } else { Done::Badly })
}

fn words(service: &str, state: &State) -> String {
    let or_unknown = |word: &Option<String>| text::plain(word.as_deref().unwrap_or("unknown"));
    let mut out = format!("{service}: {}", or_unknown(&state.service));
    if let Some(pid) = state.pid {
        out.push_str(&format!(", pid {pid}"));
    }
    if let Some(restarts) = state.restarts.filter(|count| *count > 0) {
        out.push_str(&format!(", restarted {restarts} times by the manager"));
    }
    if let Some(result) = &state.result {
        out.push_str(&format!(", last result {}", text::plain(result)));
    }
    out.push('\n');
    if state.socket.is_some() {
        out.push_str(&format!("sockets: {}\n", or_unknown(&state.socket)));
    }
    out.push_str(&format!("at login: {}\n", or_unknown(&state.at_login)));
    match state.lingers {
        Some(true) => out.push_str("runs also while you are logged out\n"),
        Some(false) => {
            out.push_str(
                "ends when you log out of your last session (`loginctl enable-linger` changes that)\n",
            );
        }
        None => {}
    }
    out
}

/// Turns into the program that shows what the manager recorded. Only comes back when it did not work.
pub(super) fn logs(cx: &Context, place: &Place, lines: u32, follow: bool) -> Result<Done, Failure> {
    let mut command = match place.system {
        ServiceManager::Systemd => {
            let mut command = Command::new("journalctl");
            // Finds the lines in the user's own journal and in one that all users share.
            command.arg(format!("--user-unit={}", place.manager.service())).arg("--no-pager");
            command.arg(format!("--lines={lines}"));
            if follow {
                command.arg("--follow");
            }
            if cx.format == Format::Json {
                command.arg("--output=json");
            }
            command
        }
        ServiceManager::Launchd => {
            let mut command = Command::new("tail");
            command.arg("-n").arg(lines.to_string());
            if follow {
                command.arg("-F");
            }
            command.arg(files::agent_log(&place.folders, &cx.home));
            command
        }
    };
    let error = command.exec();
    Err(Failure::Refused {
        message: format!("{}: {error}", command.get_program().to_string_lossy()),
        hint: "`hermesctl logs` shows the daemon's own log".to_owned(),
    })
}
