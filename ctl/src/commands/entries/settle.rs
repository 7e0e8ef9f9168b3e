//! What a running daemon makes of a file that was just written.

use super::Context;
use crate::commands::servers;
use crate::failure::{Done, Failure};
use crate::render::{findings, json, text};
use hermes_proto::control as pb;
use serde_json::{Value, json};

/// The answer of the daemon.
#[derive(Debug)]
pub(super) enum Settled {
    /// None runs: it will read the file when it starts.
    NotRunning,
    /// It read the file again.
    Read {
        /// What it applied, and what it found.
        reload: Box<pb::ReloadResponse>,
        /// Where the server stands now; `None`: it is not there.
        server: Option<Box<pb::ServerStatus>>,
    },
}

/// Has the daemon read the files again, and waits until it did. Its watcher may have been quicker.
///
/// # Errors
/// [`Failure`] of a daemon that is there and does not answer.
pub(super) async fn settle(cx: &Context, name: &str) -> Result<Settled, Failure> {
    let mut client = match cx.client().await {
        Ok(client) => client,
        Err(Failure::Unreachable { .. }) => return Ok(Settled::NotRunning),
        Err(other) => return Err(other),
    };
    let reload = Box::new(client.reload().await?);
    let servers = client.status().await?.servers;
    let server = servers.into_iter().find(|server| server.name == name).map(Box::new);
    Ok(Settled::Read { reload, server })
}

impl Settled {
    /// Whether it is in force, or will be with the next daemon.
    pub(super) fn done(&self) -> Done {
        match self {
            Self::Read { reload, .. } if !reload.applied => Done::Badly,
            Self::Read { .. } | Self::NotRunning => Done::Well,
        }
    }

    /// One or two lines for a person.
    pub(super) fn text(&self, name: &str) -> String {
        let Self::Read { reload, server } = self else {
            return "hermesd is not running; it reads the file when it starts\n".to_owned();
        };
        if !reload.applied {
            let found = findings::render(&reload.findings);
            return format!("hermesd could not use the file and keeps what it had:\n{found}");
        }
        let Some(server) = server else {
            return format!("hermesd has taken {} out\n", text::plain(name));
        };
        let because = if server.reason.is_empty() { String::new() } else { format!(" ({})", server.reason) };
        let line = format!("hermesd has it: {name} is {}{because}", servers::state(server));
        let own: Vec<pb::Finding> =
            reload.findings.iter().filter(|finding| finding.server == name).cloned().collect();
        format!("{}\n{}", text::plain(&line), findings::render(&own))
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        match self {
            Self::NotRunning => json!({"daemon": "not running"}),
            Self::Read { reload, server } => json!({
                "daemon": if reload.applied { "applied" } else { "not applied" },
                "server": server.as_deref().map(json::of),
                "findings": json::of(&reload.findings),
            }),
        }
    }
}
