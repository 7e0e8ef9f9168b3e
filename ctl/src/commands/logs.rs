//! `logs`: the last lines of a log, and with `-f` what follows.

use super::{Context, Format, put};
use crate::cli::LogsArgs;
use crate::client::Follow;
use crate::failure::{Done, Failure};
use crate::render::text;

/// Prints lines as they come; as JSON each line is an object of its own.
pub(super) async fn run(cx: &Context, args: &LogsArgs) -> Result<Done, Failure> {
    let follow = if args.follow { Follow::Yes } else { Follow::No };
    let server = args.server.as_deref().unwrap_or("");
    let mut client = cx.client().await?;
    let mut logs = client.logs(server, args.lines, follow).await?;
    while let Some(lines) = logs.next().await? {
        let mut out = String::new();
        for line in lines {
            match cx.format {
                Format::Json => out.push_str(&serde_json::json!({ "line": line }).to_string()),
                Format::Text => out.push_str(&text::plain(&line)),
            }
            out.push('\n');
        }
        put(&out)?;
    }
    Ok(Done::Well)
}
