//! `daemon`: start in the background, stop, run in the foreground, or say whether it runs.

use super::{Context, Format, config, put};
use crate::beside;
use crate::cli::DaemonAction;
use crate::client::Client;
use crate::failure::{Done, Failure};
use crate::render::text;
use crate::shim::{self, Lifetime};
use hermes_proto::endpoint::{self, EndpointFile};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use tokio::time::Instant;

/// How long a start may take until the daemon answers.
const START_WITHIN: Duration = Duration::from_secs(15);
/// How long a stop may take; above the daemon's own budget.
const STOP_WITHIN: Duration = Duration::from_secs(20);
/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Does one action; says whether a daemon runs without one.
pub(super) async fn run(cx: &Context, action: Option<DaemonAction>) -> Result<Done, Failure> {
    match action {
        None => {
            let status = cx.client().await?.status().await?;
            say(cx, "running", &status)
        }
        Some(DaemonAction::Start) => start(cx).await,
        Some(DaemonAction::Stop) => stop(cx).await,
        Some(DaemonAction::Run) => {
            let mut command = Command::new(beside::find("hermesd").ok_or_else(config::no_program)?);
            command.arg("run");
            if let Some(home) = &cx.home_flag {
                command.arg("--home").arg(home);
            }
            // Only comes back when it did not work.
            Err(Failure::Stream(command.exec()))
        }
    }
}

async fn start(cx: &Context) -> Result<Done, Failure> {
    if let Ok(mut client) = cx.client().await {
        return say(cx, "already running", &client.status().await?);
    }
    let mut client = started(cx, Lifetime::UntilStopped).await?;
    say(cx, "started", &client.status().await?)
}

/// The running daemon, or one that is started now and ends when nobody has used it for a while.
///
/// # Errors
/// [`Failure`] when none runs and none can be started.
pub(super) async fn ensure(cx: &Context) -> Result<Client, Failure> {
    match cx.client().await {
        Err(Failure::Unreachable { .. }) => {
            if cx.format == Format::Text {
                put("hermesd is not running; starting it\n")?;
            }
            started(cx, Lifetime::WhileUsed).await
        }
        answer => answer,
    }
}

/// Starts a daemon and waits until it answers.
async fn started(cx: &Context, lifetime: Lifetime) -> Result<Client, Failure> {
    let mut starting =
        shim::spawn(&cx.home, lifetime).map_err(|error| Failure::refused(error.to_string()))?;
    let end = Instant::now() + START_WITHIN;
    loop {
        match cx.client().await {
            Ok(client) => return Ok(client),
            Err(Failure::Unreachable { .. }) if Instant::now() < end => {
                // A daemon that holds the lock was quicker than ours and is about to answer.
                if let Some(words) = starting.ended().filter(|_| !endpoint::is_locked(&cx.home)) {
                    return Err(Failure::Refused {
                        message: format!("hermesd ended at once: {words}"),
                        hint: "mend that, then start it again; `hermesctl doctor` checks the rest".to_owned(),
                    });
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
            Err(Failure::Unreachable { .. }) => {
                return Err(Failure::Refused {
                    message: format!("hermesd did not answer within {} s", START_WITHIN.as_secs()),
                    hint: "`hermesctl daemon run` shows what it says in the foreground".to_owned(),
                });
            }
            Err(other) => return Err(other),
        }
    }
}

async fn stop(cx: &Context) -> Result<Done, Failure> {
    let mut client = match cx.client().await {
        Ok(client) => client,
        Err(Failure::Unreachable { .. }) => {
            cx.print(
                || serde_json::json!({ "state": "not running" }),
                || "hermesd is not running\n".to_owned(),
            )?;
            return Ok(Done::Well);
        }
        Err(other) => return Err(other),
    };
    let pid = client.status().await?.pid;
    client.shutdown().await?;
    drop(client);
    let end = Instant::now() + STOP_WITHIN;
    // Another daemon may take the place (socket activation); this one must be gone.
    while runs(cx, pid).await {
        if Instant::now() >= end {
            return Err(Failure::Refused {
                message: format!("hermesd (pid {pid}) did not end within {} s", STOP_WITHIN.as_secs()),
                hint: format!("see `hermesctl logs`, or end it with `kill -9 {pid}`"),
            });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    cx.print(
        || serde_json::json!({ "state": "stopped", "pid": pid }),
        || format!("hermesd (pid {pid}) stopped\n"),
    )?;
    Ok(Done::Well)
}

/// Whether the daemon with this pid is still there.
async fn runs(cx: &Context, pid: u32) -> bool {
    if let Ok(mut client) = Client::connect(&cx.home).await
        && let Ok(status) = client.status().await
    {
        return status.pid == pid;
    }
    // The number means nothing where the daemon lives in another pid namespace; its lock does. Without
    // a file the lock is held by one that just ends or just starts.
    EndpointFile::read(&cx.home).is_none_or(|file| file.pid == pid) && endpoint::is_locked(&cx.home)
}

fn say(
    cx: &Context,
    state: &str,
    status: &hermes_proto::control::GetStatusResponse,
) -> Result<Done, Failure> {
    cx.print(
        || serde_json::json!({ "state": state, "pid": status.pid, "version": status.version }),
        || {
            let version = text::plain(&status.version);
            format!("hermesd {version} is {state} (pid {})\n", status.pid).replace("is started", "started")
        },
    )?;
    Ok(Done::Well)
}
