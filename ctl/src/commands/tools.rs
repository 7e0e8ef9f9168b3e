//! `tools`: the exposed catalogue.

use super::Context;
use crate::cli::ToolsArgs;
use crate::failure::{Done, Failure};
use crate::render::json;
use crate::render::table::{Style, Table, Tone};
use crate::render::text;
use hermes_proto::control as pb;

/// Longest description in the list; `--json` has the whole.
const DESCRIPTION: usize = 100;

/// Lists the tools as clients see them.
pub(super) async fn run(cx: &Context, args: &ToolsArgs) -> Result<Done, Failure> {
    let server = args.server.as_deref().unwrap_or("");
    let profile = args.profile.as_deref().unwrap_or("");
    let tools = cx.client().await?.tools(server, profile).await?;
    cx.print(|| json::of(&tools), || list(&tools, cx.style))?;
    Ok(Done::Well)
}

/// All tools as a table, or one line that says that there is none.
pub(super) fn list(tools: &[pb::Tool], style: Style) -> String {
    if tools.is_empty() {
        return "no tools\n".to_owned();
    }
    let mut table = Table::new(&["tool", "server", "reads only", "description"]);
    for tool in tools {
        let cells = [
            tool.name.clone(),
            tool.server.clone(),
            if tool.read_only { "yes" } else { "" }.to_owned(),
            text::summary(&tool.description, DESCRIPTION),
        ];
        table.row(cells.map(|cell| (cell, Tone::Plain)));
    }
    table.render(style)
}
