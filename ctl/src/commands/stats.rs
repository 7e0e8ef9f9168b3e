//! `stats` and `metrics`: figures of the calls since the daemon started.

use super::Context;
use crate::cli::StatsArgs;
use crate::failure::{Done, Failure};
use crate::render::table::{Table, Tone};
use crate::render::{json, text};
use hermes_proto::control as pb;
use std::fmt::Write as _;
use std::time::Duration;

/// Prints p50, p95, p99 and outcomes by server and tool.
pub(super) async fn run(cx: &Context, args: &StatsArgs) -> Result<Done, Failure> {
    let mut stats = cx.client().await?.stats().await?;
    if let Some(server) = &args.server {
        stats.servers.retain(|figures| figures.server == *server);
    }
    cx.print(|| json::of(&stats), || page(cx, &stats))?;
    Ok(Done::Well)
}

/// Prints what a scraper would get.
pub(super) async fn metrics(cx: &Context) -> Result<Done, Failure> {
    let text = cx.client().await?.metrics().await?;
    cx.print(|| serde_json::json!({ "text": text }), || text.clone())?;
    Ok(Done::Well)
}

fn page(cx: &Context, stats: &pb::StatsResponse) -> String {
    let mut table =
        Table::new(&["server", "tool", "calls", "errors", "p50", "p95", "p99", "max", "outcomes"]);
    for server in &stats.servers {
        row(&mut table, &server.server, "(all)", server.all.as_ref());
        for tool in &server.tools {
            row(&mut table, "", &tool.tool, tool.figures.as_ref());
        }
    }
    let since = text::span(Duration::from_millis(stats.since_ms));
    if table.is_empty() {
        return format!("no calls since the daemon started, {since} ago\n");
    }
    let mut out = table.render(cx.style);
    // Writing to a String cannot fail.
    let _ = writeln!(out, "counted for {since}");
    if stats.audit_dropped > 0 {
        let _ = writeln!(out, "{} audit rows were lost: the disk was too slow", stats.audit_dropped);
    }
    out
}

fn row(table: &mut Table, server: &str, tool: &str, figures: Option<&pb::Figures>) {
    let Some(figures) = figures else { return };
    let span = |micros| text::span(Duration::from_micros(micros));
    let errors = if figures.errors == 0 { Tone::Plain } else { Tone::Wary };
    let mut kinds: Vec<(&String, &u64)> = figures.outcomes.iter().filter(|(kind, _)| *kind != "ok").collect();
    kinds.sort();
    let kinds: Vec<String> = kinds.iter().map(|(kind, calls)| format!("{kind} {calls}")).collect();
    table.row([
        (server.to_owned(), Tone::Plain),
        (tool.to_owned(), Tone::Plain),
        (figures.calls.to_string(), Tone::Plain),
        (figures.errors.to_string(), errors),
        (span(figures.p50_micros), Tone::Plain),
        (span(figures.p95_micros), Tone::Plain),
        (span(figures.p99_micros), Tone::Plain),
        (span(figures.max_micros), Tone::Plain),
        (kinds.join(", "), errors),
    ]);
}
