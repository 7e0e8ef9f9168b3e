//! `doctor`: everything a person would check, with one action each.
//!
//! Without a daemon one is started for a trial, as a client would start it, and ends at once.

use super::{Context, config};
use crate::beside;
use crate::failure::{Done, Failure};
use crate::render::{findings, json};
use crate::shim::{self, ReachError};
use hermes_proto::control as pb;
use hermes_proto::endpoint;
use std::time::Duration;
use tokio::time::Instant;

/// How long a trial start may take.
const TRIAL_WITHIN: Duration = Duration::from_secs(20);
/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Asks the daemon; without one checks what can be checked from outside.
pub(super) async fn run(cx: &Context) -> Result<Done, Failure> {
    let (found, without) = match cx.client().await {
        Ok(mut client) => (client.doctor().await?, Done::Well),
        Err(Failure::Unreachable { message }) => (from_outside(cx, message).await, Done::Unreachable),
        Err(other) => return Err(other),
    };
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

async fn from_outside(cx: &Context, message: String) -> Vec<pb::Finding> {
    let home_exists = cx.home.path().exists();
    let finding = |severity: pb::Severity, message: String, hint: &str| pb::Finding {
        severity: severity.into(),
        message,
        hint: hint.to_owned(),
        ..Default::default()
    };
    let mut found = vec![finding(
        pb::Severity::Error,
        message,
        "start it with `hermesctl daemon start`; at login: `hermesctl service print systemd` or `launchd`",
    )];
    if beside::find("hermesd").is_none() {
        found.push(finding(
            pb::Severity::Error,
            "no hermesd beside hermesctl or on PATH".to_owned(),
            "install hermesd into the folder of hermesctl",
        ));
    } else if !config::is_usable(cx) {
        found.push(finding(
            pb::Severity::Error,
            "config.yaml has errors".to_owned(),
            "see `hermesctl config check`",
        ));
    }
    if let Some(words) = trial(cx).await {
        let message = format!("hermesd cannot run: {words}");
        found.push(finding(pb::Severity::Error, message, "mend that, then `hermesctl daemon start`"));
    }
    if !home_exists {
        let message = format!("{} does not exist yet", cx.home.path().display());
        found.push(finding(pb::Severity::Info, message, "the daemon makes it when it starts"));
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
