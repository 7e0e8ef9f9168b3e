//! `approvals`: calls that wait for a person, and answers that stand.

use super::{Context, audit};
use crate::cli::{ApprovalsAction, DecisionWord};
use crate::failure::{Done, Failure};
use crate::render::table::{Table, Tone};
use crate::render::{json, text};
use hermes_proto::control as pb;
use std::time::Duration;

/// Does one action; lists without one.
pub(super) async fn run(cx: &Context, action: Option<ApprovalsAction>) -> Result<Done, Failure> {
    let mut client = cx.client().await?;
    match action.unwrap_or(ApprovalsAction::List) {
        ApprovalsAction::List => {
            let approvals = client.approvals().await?;
            cx.print(|| json::of(&approvals), || page(cx, &approvals))?;
        }
        ApprovalsAction::Respond { id, decision } => {
            let decision = match decision {
                DecisionWord::AllowOnce => "allow-once",
                DecisionWord::AllowAlways => "allow-always",
                DecisionWord::Deny => "deny",
            };
            let outcome = client.respond(&id, decision).await?;
            cx.print(
                || serde_json::json!({ "id": id, "decision": decision, "outcome": outcome }),
                || format!("{}\n", text::plain(&outcome)),
            )?;
        }
        ApprovalsAction::Revoke { id } => {
            let revoked = client.revoke(id).await?;
            cx.print(
                || json::of(&revoked),
                || {
                    format!(
                        "{}\n",
                        text::plain(&format!("{} {} is asked about again", revoked.server, revoked.tool))
                    )
                },
            )?;
        }
    }
    Ok(Done::Well)
}

fn page(cx: &Context, approvals: &pb::ListApprovalsResponse) -> String {
    let mut out = String::new();
    let mut waiting = Table::new(&["id", "server", "tool", "client", "asked", "expires in", "arguments"]);
    for one in &approvals.waiting {
        waiting.row([
            (one.id.clone(), Tone::Plain),
            (one.server.clone(), Tone::Plain),
            (one.tool.clone(), Tone::Plain),
            (one.client.clone(), Tone::Plain),
            (audit::when(one.created_ms), Tone::Plain),
            (text::span(Duration::from_millis(one.expires_in_ms)), Tone::Wary),
            (text::summary(&one.arguments, 120), Tone::Plain),
        ]);
    }
    if waiting.is_empty() {
        out.push_str("no call waits for approval\n");
    } else {
        out.push_str(&waiting.render(cx.style));
    }
    let mut standing = Table::new(&["standing", "server", "tool", "since", "by"]);
    for one in &approvals.standing {
        standing.row([
            (one.id.to_string(), Tone::Plain),
            (one.server.clone(), Tone::Plain),
            (one.tool.clone(), Tone::Plain),
            (audit::when(one.created_ms), Tone::Plain),
            (one.created_by.clone(), Tone::Plain),
        ]);
    }
    if !standing.is_empty() {
        out.push_str(&standing.render(cx.style));
    }
    out
}
