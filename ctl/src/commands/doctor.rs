//! `doctor`: everything a person would check, with one action each.
//!
//! Without a daemon one is started for a trial, as a client would start it, and ends at once.

use super::{Context, config};
use crate::doctor::{self, Daemon, finding};
use crate::failure::{Done, Failure};
use crate::render::{findings, json};
use crate::shim::{self, ReachError};
use hermes_proto::control as pb;
use hermes_proto::endpoint;
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::Instant;

/// How long a trial start may take.
const TRIAL_WITHIN: Duration = Duration::from_secs(20);
/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Asks the daemon, and looks from outside; without a daemon hermesd's own looks are made by a program
/// that ends at once.
pub(super) async fn run(cx: &Context) -> Result<Done, Failure> {
    let (mut found, daemon, without) = match asked(cx).await {
        Ok((found, status)) => (found, Daemon::Runs { pid: status.pid, version: status.version }, Done::Well),
        Err(Failure::Unreachable { message }) => {
            (from_outside(cx, message).await, Daemon::Gone, Done::Unreachable)
        }
        Err(Failure::Silent { message, hint }) => {
            let silent = finding("daemon-silent", pb::Severity::Error, message, hint);
            (vec![silent], Daemon::Gone, Done::Unreachable)
        }
        // E.g. the daemon of another home, or sockets that others can reach: the rest is worth a look.
        Err(Failure::Refused { message, hint }) => {
            (vec![finding("refused", pb::Severity::Error, message, hint)], Daemon::Gone, Done::Well)
        }
        Err(other) => return Err(other),
    };
    let silent = found.iter().any(|found| found.kind == "daemon-silent");
    let outside = doctor::look(&cx.home, &daemon, &|name| std::env::var_os(name));
    // Of one that stands still the lock and the socket are no news.
    found.extend(outside.into_iter().filter(|found| !(silent && found.kind == "socket-gone")));
    let mut seen = HashSet::new();
    found.retain(|found| seen.insert((found.file.clone(), found.server.clone(), found.message.clone())));
    for found in found.iter_mut().filter(|found| found.hint.is_empty()) {
        found.hint = match (found.file.is_empty(), found.server.is_empty()) {
            (false, _) => format!("correct it in {}", found.file),
            (true, false) => format!("`hermesctl servers show {}` has the details", found.server),
            (true, true) => "`hermesctl logs` may say more".to_owned(),
        };
    }
    let text = || match found.is_empty() {
        true => "nothing found: all is well\n".to_owned(),
        false => findings::render(&found),
    };
    cx.print(|| json::of(&found), text)?;
    Ok(match without {
        Done::Well if findings::has_errors(&found) => Done::Badly,
        other => other,
    })
}

async fn asked(cx: &Context) -> Result<(Vec<pb::Finding>, pb::GetStatusResponse), Failure> {
    let mut client = cx.client().await?;
    Ok((client.doctor().await?, client.status().await?))
}

async fn from_outside(cx: &Context, message: String) -> Vec<pb::Finding> {
    let home_exists = cx.home.path().exists();
    let hint = "start it with `hermesctl daemon start`; at login: `hermesctl service install`";
    let mut found = vec![finding("daemon-gone", pb::Severity::Error, message, hint.to_owned())];
    // A home that is not there yet is not worth a look.
    let looked = if home_exists { config::looked_without_a_daemon(cx) } else { Vec::new() };
    found.extend(looked);
    if let Some(words) = trial(cx).await {
        let message = format!("hermesd cannot run: {words}");
        let hint = "mend that, then `hermesctl daemon start`".to_owned();
        found.push(finding("cannot-run", pb::Severity::Error, message, hint));
    }
    if !home_exists {
        let message = format!("{} does not exist yet", cx.home.path().display());
        let hint = "the daemon makes it when it starts".to_owned();
        found.push(finding("no-home", pb::Severity::Info, message, hint));
    }
    found
}

/// Why a daemon cannot run here; `None` when it can.
async fn trial(cx: &Context) -> Option<String> {
    let (mut child, mut starting) = match shim::trial(&cx.home) {
        Ok(started) => started,
        // Said already.
        Err(ReachError::NoProgram) => return None,
        Err(error) => return Some(error.to_string()),
    };
    let end = Instant::now() + TRIAL_WITHIN;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return None,
            Ok(Some(status)) => {
                let words = starting.ended().unwrap_or_else(|| status.to_string());
                // Another daemon was just starting: then one can run.
                return (!endpoint::is_locked(&cx.home)).then_some(words);
            }
            // It stays for a client that came just now; else it must be gone before we say anything.
            Ok(None) if serves(cx).await => return None,
            Ok(None) if Instant::now() < end => tokio::time::sleep(LOOK_EVERY).await,
            Ok(None) => {
                let _ = rustix::process::kill_process(
                    rustix::process::Pid::from_child(&child),
                    rustix::process::Signal::TERM,
                );
                return Some(format!("it was not ready within {} s", TRIAL_WITHIN.as_secs()));
            }
            Err(error) => return Some(error.to_string()),
        }
    }
}

/// Whether a daemon has a client of its own.
async fn serves(cx: &Context) -> bool {
    let Ok(mut client) = cx.client().await else { return false };
    client.status().await.is_ok_and(|status| !status.clients.is_empty())
}
