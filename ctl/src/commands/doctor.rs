//! `doctor`: everything a person would check, with one action each.

use super::{Context, config};
use crate::beside;
use crate::failure::{Done, Failure};
use crate::render::{findings, json};
use hermes_proto::control as pb;

/// Asks the daemon; without one checks what can be checked from outside.
pub(super) async fn run(cx: &Context) -> Result<Done, Failure> {
    let (found, without) = match cx.client().await {
        Ok(mut client) => (client.doctor().await?, Done::Well),
        Err(Failure::Unreachable { message }) => (from_outside(cx, message), Done::Unreachable),
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

fn from_outside(cx: &Context, message: String) -> Vec<pb::Finding> {
    let finding = |severity: pb::Severity, message: String, hint: &str| pb::Finding {
        severity: severity.into(),
        message,
        hint: hint.to_owned(),
        ..Default::default()
    };
    let mut found = vec![finding(
        pb::Severity::Error,
        message,
        "start it with `hermesctl daemon start`, or install it: `hermesctl service print systemd`",
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
    if !cx.home.path().exists() {
        let message = format!("{} does not exist yet", cx.home.path().display());
        found.push(finding(pb::Severity::Info, message, "the daemon makes it when it starts"));
    }
    found
}
