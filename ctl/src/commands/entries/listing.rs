//! `mcp list` where no daemon runs: what the file says.

use super::tree;
use crate::commands::{Context, put};
use crate::config_edit::servers::{self, Entry};
use crate::failure::{Done, Failure};
use crate::render::table::{Table, Tone};
use crate::render::text;
use serde_json::json;

/// Lists the entries of the file.
pub(in crate::commands) fn list(cx: &Context) -> Result<Done, Failure> {
    let tree = tree(cx)?;
    let entries = servers::all(&tree);
    cx.print(
        || entries.iter().map(member).collect(),
        || {
            if entries.is_empty() {
                return "no servers: add one with `hermesctl mcp add`\n".to_owned();
            }
            let mut table = Table::new(&["server", "transport", "tools", "status", "command or address"]);
            for entry in &entries {
                let status = if entry.is_enabled() { "enabled" } else { "disabled" };
                let cells = [
                    entry.name,
                    entry.transport(),
                    &entry.tools(),
                    status,
                    &text::summary(&entry.target(), 60),
                ];
                table.row(cells.map(|cell| (cell.to_owned(), Tone::Plain)));
            }
            table.render(cx.style)
        },
    )?;
    if cx.format == crate::commands::Format::Text {
        put("hermesd is not running: this is what config.yaml says\n")?;
    }
    Ok(Done::Well)
}

fn member(entry: &Entry<'_>) -> serde_json::Value {
    json!({
        "name": entry.name,
        "phase": if entry.is_enabled() { "stopped" } else { "disabled" },
        "reason": "hermesd is not running",
        "transport": entry.transport(),
        "filter": entry.tools(),
    })
}
