//! `mcp export`: the servers of config.yaml for another program. The file goes to stdout, notes to stderr.

use super::{Context, Format, put};
use crate::cli_clients::ExportArgs;
use crate::clients::{export, home};
use crate::failure::{Done, Failure};
use crate::render::text;
use serde_json::json;
use std::io::{self, Write};

/// Prints them.
pub(super) fn run(cx: &Context, args: &ExportArgs) -> Result<Done, Failure> {
    let owned = home::read(&cx.home).map_err(|error| Failure::refused(error.to_string()))?;
    let unknown = args.servers.iter().find(|name| !owned.servers.iter().any(|(known, _)| known == *name));
    if let Some(name) = unknown {
        return Err(Failure::Refused {
            message: format!("config.yaml has no server `{name}`"),
            hint: "`hermesctl mcp list` lists them".to_owned(),
        });
    }
    let wanted = |name: &String| args.servers.is_empty() || args.servers.contains(name);
    let servers: Vec<_> = owned.servers.into_iter().filter(|(name, _)| wanted(name)).collect();
    let exported = export::export(&servers, args.format);
    if cx.format == Format::Json {
        put(&format!("{:#}\n", json!({"text": exported.text, "notes": exported.notes})))?;
        return Ok(Done::Well);
    }
    put(&exported.text)?;
    for note in &exported.notes {
        // The text is out; a reader of notes that went away changes nothing.
        let _ = writeln!(io::stderr(), "note: {}", text::plain(note));
    }
    Ok(Done::Well)
}
