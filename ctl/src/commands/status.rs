//! `status`: the daemon, its servers, its clients, and what is wrong.

use super::Context;
use super::servers::{self, Columns};
use crate::cli::StatusArgs;
use crate::failure::{Done, Failure};
use crate::render::table::{Table, Tone};
use crate::render::{findings, json, text};
use hermes_proto::control as pb;
use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Shows the status; with `--check` one line and exit code 1 unless all is well.
pub(super) async fn run(cx: &Context, args: &StatusArgs) -> Result<Done, Failure> {
    let mut client = cx.client().await?;
    let status = if args.wide { client.measured_status().await? } else { client.status().await? };
    let troubles = troubles(&status);
    if args.check {
        cx.print(
            || serde_json::json!({ "ok": troubles.is_empty(), "troubles": troubles }),
            || line(&troubles),
        )?;
        return Ok(if troubles.is_empty() { Done::Well } else { Done::Badly });
    }
    let columns = if args.wide { Columns::All } else { Columns::Usual };
    cx.print(|| json::of(&status), || page(cx, &status, columns))?;
    Ok(Done::Well)
}

/// What monitoring should be told, one sentence each.
fn troubles(status: &pb::GetStatusResponse) -> Vec<String> {
    let mut out = Vec::new();
    if status.config_state != "ok" {
        out.push(format!("configuration: {}", status.config_state));
    }
    for server in &status.servers {
        if servers::tone(server) == Tone::Bad {
            let because =
                if server.reason.is_empty() { String::new() } else { format!(" ({})", server.reason) };
            out.push(format!("server `{}` is {}{because}", server.name, servers::state(server)));
        }
    }
    let errors = status.findings.iter().filter(|f| f.severity == i32::from(pb::Severity::Error));
    for finding in errors {
        let message = match (finding.server.is_empty(), finding.key.is_empty()) {
            (false, false) => format!("server `{}`: {}: {}", finding.server, finding.key, finding.message),
            (false, true) => format!("server `{}`: {}", finding.server, finding.message),
            (true, false) => format!("{}: {}", finding.key, finding.message),
            (true, true) => finding.message.clone(),
        };
        // The state of the configuration, or of a server, says why already.
        if !out.iter().any(|said| said.contains(&finding.message)) {
            out.push(message);
        }
    }
    out
}

fn line(troubles: &[String]) -> String {
    if troubles.is_empty() {
        return "ok\n".to_owned();
    }
    format!("{}\n", text::plain(&troubles.join("; ")))
}

fn page(cx: &Context, status: &pb::GetStatusResponse, columns: Columns) -> String {
    let mut out = String::new();
    let up = text::span(Duration::from_millis(status.uptime_ms));
    let mut lines = vec![
        format!(
            "hermesd {}  pid {}  up {up}  memory {}",
            status.version,
            status.pid,
            text::size(status.rss_bytes)
        ),
        format!("home           {}", status.home),
        format!("sockets        {}", status.runtime_dir),
        format!("configuration  {} ({})", status.config_file, status.config_state),
        format!("conversations  {}", status.conversations),
    ];
    lines.extend(status.events.as_ref().map(events));
    lines.extend(status.traces.as_ref().map(traces));
    lines.extend(status.http.as_ref().map(http));
    for line in lines {
        writeln!(out, "{}", text::plain(&line)).expect("writing to a string cannot fail");
    }
    out.push('\n');
    out.push_str(&servers::drawn(&status.servers, columns, cx.style));
    if !status.clients.is_empty() {
        out.push('\n');
        out.push_str(&clients(cx, &status.clients));
    }
    if !status.findings.is_empty() {
        out.push('\n');
        out.push_str(&findings::render(&status.findings));
    }
    out
}

fn events(events: &pb::EventsStatus) -> String {
    let kept = (events.latest_cursor + 1).saturating_sub(events.oldest_cursor);
    let last = match events.last_at_ms {
        0 => String::new(),
        at => format!(", last {} {}", events.last_kind, ago(at, SystemTime::now())),
    };
    format!("events         {}; {kept} kept, cursor {}{last}", events.watcher, events.latest_cursor)
}

/// How long ago something was, by the clock of this machine.
fn ago(unix_ms: i64, now: SystemTime) -> String {
    let at = UNIX_EPOCH + Duration::from_millis(u64::try_from(unix_ms).unwrap_or(0));
    match now.duration_since(at) {
        Ok(passed) => format!("{} ago", text::span(passed)),
        Err(_) => "just now".to_owned(),
    }
}

fn traces(export: &pb::TraceExport) -> String {
    let going = match (export.protocol.is_empty(), export.trouble.is_empty()) {
        (true, _) => "not exported".to_owned(),
        (false, false) => format!("{}, the receiver does not take them", export.protocol),
        (false, true) => export.protocol.clone(),
    };
    let figures =
        [(export.exported, "sent"), (export.waiting, "waiting"), (export.dropped + export.lost, "lost")];
    let figures: Vec<String> = figures.iter().map(|(count, what)| format!("{count} {what}")).collect();
    format!("traces         {} ({going}; spans: {})", export.endpoint, figures.join(", "))
}

fn http(listener: &pb::HttpListener) -> String {
    let how = match (listener.trouble.is_empty(), listener.token.is_empty()) {
        (false, _) => format!("not open: {}", listener.trouble),
        (true, true) => "no token is asked for".to_owned(),
        (true, false) => format!("token in {}", listener.token),
    };
    format!("http           {} ({how})", listener.url)
}

fn clients(cx: &Context, clients: &[pb::ClientStatus]) -> String {
    let mut table = Table::new(&["client", "pid", "profile", "protocol", "calls", "in flight", "connected"]);
    for client in clients {
        let name = match (client.name.is_empty(), client.version.is_empty()) {
            (true, _) => "(not initialized)".to_owned(),
            (false, true) => client.name.clone(),
            (false, false) => format!("{} {}", client.name, client.version),
        };
        let cells = [
            name,
            client.pid.to_string(),
            client.profile.clone(),
            client.protocol_version.clone(),
            client.calls.to_string(),
            client.in_flight.to_string(),
            text::span(Duration::from_millis(client.connected_ms)),
        ];
        table.row(cells.map(|cell| (cell, Tone::Plain)));
    }
    table.render(cx.style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_from_now() {
        let now = UNIX_EPOCH + Duration::from_secs(1000);
        assert_eq!([ago(940_000, now), ago(2_000_000, now)], ["1m 0s ago", "just now"]);
    }

    #[test]
    fn monitoring_hears_of_parked_servers_and_of_nothing_that_is_meant() {
        let server = |name: &str, phase: pb::Phase| pb::ServerStatus {
            name: name.into(),
            phase: phase.into(),
            reason: "exit code 127".into(),
            ..Default::default()
        };
        let mut status = pb::GetStatusResponse {
            config_state: "ok".into(),
            servers: vec![
                server("a", pb::Phase::Ready),
                server("b", pb::Phase::Stopped),
                server("c", pb::Phase::Disabled),
            ],
            ..Default::default()
        };
        assert_eq!(troubles(&status), Vec::<String>::new());
        status.servers.push(server("d", pb::Phase::Parked));
        status.config_state = "line 3, column 1: not valid YAML".into();
        let error = |message: &str| pb::Finding {
            severity: pb::Severity::Error.into(),
            key: "state.db".into(),
            message: message.into(),
            ..Default::default()
        };
        // The same error again as a finding, as the daemon sends it, and one that is nowhere else.
        status.findings = vec![error("column 1: not valid YAML"), error("readable for others")];
        assert_eq!(
            troubles(&status),
            [
                "configuration: line 3, column 1: not valid YAML",
                "server `d` is parked (exit code 127)",
                "state.db: readable for others"
            ]
        );
    }
}
