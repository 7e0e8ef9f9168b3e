//! `reload`: config.yaml again, and what came of it.

use super::Context;
use crate::failure::{Done, Failure};
use crate::render::{findings, json, text};
use hermes_proto::control as pb;

/// Reloads; exit code 1 when the file is unusable and the last good one stays.
pub(super) async fn run(cx: &Context) -> Result<Done, Failure> {
    let answer = cx.client().await?.reload().await?;
    cx.print(|| json::of(&answer), || page(&answer))?;
    Ok(if answer.applied { Done::Well } else { Done::Badly })
}

fn page(answer: &pb::ReloadResponse) -> String {
    let mut out = String::new();
    for (what, names) in
        [("added", &answer.added), ("removed", &answer.removed), ("changed", &answer.changed)]
    {
        if !names.is_empty() {
            out.push_str(&format!("{what:<8} {}\n", text::plain(&names.join(" "))));
        }
    }
    if answer.applied {
        out.push_str(&format!("{} servers unchanged and not touched\n", answer.unchanged));
    } else {
        out.push_str("not applied: the last good configuration stays in use\n");
    }
    out.push_str(&findings::render(&answer.findings));
    out
}
