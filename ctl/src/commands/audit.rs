//! `audit`: who called what, when, with which outcome.

use super::{Context, Format, put};
use crate::cli::AuditArgs;
use crate::client::Follow;
use crate::failure::{Done, Failure};
use crate::render::{json, text};
use hermes_proto::control as pb;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Prints rows as they come; as JSON each row is an object on a line of its own.
pub(super) async fn run(cx: &Context, args: AuditArgs) -> Result<Done, Failure> {
    let wanted = pb::AuditRequest {
        server: args.server.unwrap_or_default(),
        tool: args.tool.unwrap_or_default(),
        client: args.client.unwrap_or_default(),
        profile: args.profile.unwrap_or_default(),
        outcome: args.outcome.unwrap_or_default(),
        trace_id: args.trace.unwrap_or_default(),
        since_ms: args.since.map(|since| since.before(SystemTime::now())),
        limit: args.lines,
        ..Default::default()
    };
    let follow = if args.follow { Follow::Yes } else { Follow::No };
    let mut audit = cx.client().await?.audit(wanted, follow).await?;
    while let Some(entries) = audit.next().await? {
        let mut out = String::new();
        for entry in &entries {
            match cx.format {
                Format::Json => out.push_str(&json::of(entry).to_string()),
                Format::Text => out.push_str(&line(entry)),
            }
            out.push('\n');
        }
        put(&out)?;
    }
    Ok(Done::Well)
}

/// How far back rows are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Since(Duration);

impl Since {
    fn before(self, now: SystemTime) -> i64 {
        let at = now.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(self.0);
        i64::try_from(at.as_millis()).unwrap_or(i64::MAX)
    }
}

impl std::str::FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no span of time; write 90s, 15m, 2h or 7d");
        let unit = match text.chars().last() {
            Some('s') => 1,
            Some('m') => 60,
            Some('h') => 3600,
            Some('d') => 86_400,
            _ => return Err(wrong()),
        };
        let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
        number.checked_mul(unit).map(|seconds| Self(Duration::from_secs(seconds))).ok_or_else(wrong)
    }
}

/// One row for a person: when, how long, outcome, what, who, and what the steps decided.
fn line(entry: &pb::AuditEntry) -> String {
    let took = text::span(Duration::from_micros(entry.micros));
    let tool = if entry.tool.is_empty() { &entry.method } else { &entry.tool };
    let who = match (entry.client.as_str(), entry.pid) {
        ("", Some(pid)) => format!("pid {pid}"),
        ("", None) => "unknown client".to_owned(),
        (name, Some(pid)) => format!("{name} {} (pid {pid})", entry.client_version),
        (name, None) => format!("{name} {}", entry.client_version),
    };
    let mut line = format!(
        "{}  {:<16}  {:>8}  {} {tool}  by {who}, profile {}",
        when(entry.at_ms),
        entry.outcome,
        took,
        entry.server,
        entry.profile
    );
    if !entry.executable.is_empty() {
        line.push_str(&format!(", from {}", entry.executable));
    }
    for decision in &entry.decisions {
        line.push_str(&format!("  [{}: {}]", decision.step, decision.said));
    }
    if !entry.arguments.is_empty() {
        line.push_str(&format!("  {}", text::summary(&entry.arguments, 200)));
    }
    text::plain(&line)
}

/// Local time with milliseconds.
pub(super) fn when(unix_ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(unix_ms) {
        Ok(at) => jiff::tz::TimeZone::system().to_datetime(at).strftime("%Y-%m-%d %H:%M:%S%.3f").to_string(),
        Err(_) => format!("{unix_ms} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_a_number_with_its_unit() {
        let now = UNIX_EPOCH + Duration::from_secs(10_000);
        assert_eq!("2h".parse::<Since>().unwrap().before(now), 2_800_000);
        assert_eq!("90s".parse::<Since>().unwrap().before(now), 9_910_000);
        for wrong in ["", "h", "2", "-1h", "1w", "ß"] {
            assert!(wrong.parse::<Since>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_row_cannot_act_on_the_terminal() {
        let entry = pb::AuditEntry { client: "x\x1b[2J".into(), outcome: "ok".into(), ..Default::default() };
        assert!(!line(&entry).contains('\x1b'));
    }
}
