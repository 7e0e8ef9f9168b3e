//! `servers`: list, show, start, stop, restart.

use super::Context;
use crate::cli::ServerAction;
use crate::failure::{Done, Failure};
use crate::render::table::{Style, Table, Tone};
use crate::render::{findings, json, text};
use hermes_proto::control as pb;
use std::fmt::Write;
use std::time::Duration;

/// Does one action; lists without one.
pub(super) async fn run(cx: &Context, action: Option<ServerAction>) -> Result<Done, Failure> {
    let mut client = cx.client().await?;
    match action.unwrap_or(ServerAction::List) {
        ServerAction::List => {
            let servers = client.status().await?.servers;
            cx.print(|| json::of(&servers), || table(cx, &servers))?;
            Ok(Done::Well)
        }
        ServerAction::Show(server) => {
            let shown = client.show(&server.name).await?;
            cx.print(|| json::of(&shown), || page(cx, &shown))?;
            Ok(Done::Well)
        }
        ServerAction::Start(server) => report(cx, &client.start(&server.name).await?, pb::Phase::Ready),
        ServerAction::Stop(server) => report(cx, &client.stop(&server.name).await?, pb::Phase::Stopped),
        ServerAction::Restart(server) => report(cx, &client.restart(&server.name).await?, pb::Phase::Ready),
    }
}

/// Prints where a server stands; good when it is where it should be.
fn report(cx: &Context, server: &pb::ServerStatus, wanted: pb::Phase) -> Result<Done, Failure> {
    cx.print(
        || json::of(server),
        || {
            let because =
                if server.reason.is_empty() { String::new() } else { format!(": {}", server.reason) };
            format!("{}\n", text::plain(&format!("{} is {}{because}", server.name, state(server))))
        },
    )?;
    Ok(if server.phase == i32::from(wanted) { Done::Well } else { Done::Badly })
}

/// The state in words, the open breaker included.
pub(crate) fn state(server: &pb::ServerStatus) -> String {
    let phase = json::phase_word(server.phase).replace('_', " ");
    match breaker(server) {
        Some(breaker) => format!("{phase}, {breaker}"),
        None => phase,
    }
}

/// The breaker in words, unless it lets calls pass.
pub(crate) fn breaker(server: &pb::ServerStatus) -> Option<String> {
    let breaker = server.breaker.as_ref()?;
    match pb::BreakerState::try_from(breaker.state) {
        Ok(pb::BreakerState::Open) => {
            Some(format!("breaker open for {}", text::span(Duration::from_millis(breaker.retry_in_ms))))
        }
        Ok(pb::BreakerState::HalfOpen) => Some("breaker half open".to_owned()),
        Ok(pb::BreakerState::Closed | pb::BreakerState::Unspecified) | Err(_) => None,
    }
}

/// How a state should strike the eye.
pub(crate) fn tone(server: &pb::ServerStatus) -> Tone {
    let open =
        server.breaker.as_ref().is_some_and(|breaker| breaker.state == i32::from(pb::BreakerState::Open));
    match pb::Phase::try_from(server.phase) {
        Ok(pb::Phase::Parked | pb::Phase::NeedsAuth | pb::Phase::Refused | pb::Phase::BackingOff) => {
            Tone::Bad
        }
        _ if open => Tone::Bad,
        Ok(pb::Phase::Ready) => Tone::Good,
        Ok(pb::Phase::Starting | pb::Phase::Stopping) => Tone::Wary,
        Ok(pb::Phase::Stopped | pb::Phase::Disabled | pb::Phase::Unspecified) | Err(_) => Tone::Plain,
    }
}

/// All servers as a table, or one line that says that there is none.
pub(super) fn table(cx: &Context, servers: &[pb::ServerStatus]) -> String {
    drawn(servers, Columns::Usual, cx.style)
}

/// Which columns a table of servers has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Columns {
    /// What a person looks for first.
    Usual,
    /// Also pid, generation, transport, protocol and memory.
    All,
}

/// All servers in these columns, or one line that says that there is none.
pub(super) fn drawn(servers: &[pb::ServerStatus], columns: Columns, style: Style) -> String {
    if servers.is_empty() {
        return "no servers: add one with `hermesctl mcp add`\n".to_owned();
    }
    let more: &[&'static str] = match columns {
        Columns::Usual => &[],
        Columns::All => &["pid", "generation", "transport", "protocol", "memory", "processes"],
    };
    let usual = ["server", "state", "tools", "in flight", "restarts", "up"];
    let header: Vec<&'static str> = usual.iter().chain(more).chain(&["why"]).copied().collect();
    let mut table = Table::new(&header);
    for server in servers {
        let calls = match server.waiting {
            0 => server.in_flight.to_string(),
            waiting => format!("{} +{waiting} waiting", server.in_flight),
        };
        let up = match server.uptime_ms {
            0 => "-".to_owned(),
            ms => text::span(Duration::from_millis(ms)),
        };
        let mut why = server.reason.clone();
        if let Some(ms) = server.next_step_ms {
            let next = format!("next step in {}", text::span(Duration::from_millis(ms)));
            why = if why.is_empty() { next } else { format!("{why}; {next}") };
        }
        let mut row = vec![
            (server.name.clone(), Tone::Plain),
            (state(server), tone(server)),
            (server.tools.to_string(), Tone::Plain),
            (calls, Tone::Plain),
            (server.restarts.to_string(), Tone::Plain),
            (up, Tone::Plain),
        ];
        if columns == Columns::All {
            let runs = server.processes > 0;
            let all = [
                server.pid.map_or("-".to_owned(), |pid| pid.to_string()),
                server.generation.to_string(),
                server.transport.clone(),
                server.protocol_version.clone(),
                if runs { text::size(server.memory_bytes) } else { "-".to_owned() },
                server.processes.to_string(),
            ];
            row.extend(all.map(|cell| (cell, Tone::Plain)));
        }
        row.push((why, Tone::Plain));
        table.row(row);
    }
    table.render(style)
}

fn page(cx: &Context, shown: &pb::ShowServerResponse) -> String {
    let mut out = String::new();
    if let Some(server) = &shown.server {
        out.push_str(&table(cx, std::slice::from_ref(server)));
        out.push('\n');
        facts(&mut out, server);
    }
    if let Some(detail) = &shown.detail {
        out.push_str(&describe(detail));
    }
    out
}

/// A further process of the server: whom it serves, and where it stands.
fn instance_line(instance: &pb::InstanceStatus) -> String {
    let phase = json::phase_word(instance.phase).replace('_', " ");
    let pid = instance.pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
    format!("for {}: {phase}{pid}, {} in flight", instance.serves, instance.in_flight)
}

fn facts(out: &mut String, server: &pb::ServerStatus) {
    let mut fact = |name: &str, value: String| put(out, name, &value);
    fact("transport", server.transport.clone());
    fact("protocol", server.protocol_version.clone());
    if !server.server_name.is_empty() {
        fact("program", format!("{} {}", server.server_name, server.server_version));
    }
    if let Some(pid) = server.pid {
        fact("pid", format!("{pid} (guard {})", server.guard_pid.unwrap_or_default()));
    }
    if server.sharing != "shared" && !server.sharing.is_empty() {
        fact("sharing", server.sharing.clone());
    }
    for instance in &server.instances {
        fact("instance", instance_line(instance));
    }
    fact("tools", format!("{} visible, {} hidden", server.tools, server.hidden_tools));
    let counted = [
        (server.noise_lines, "lines of noise on stdout"),
        (server.oversized_lines, "oversized lines"),
        (server.dropped_items, "unusable catalogue items"),
    ];
    for (count, what) in counted {
        if count > 0 {
            fact("dropped", format!("{count} {what}"));
        }
    }
    for note in &server.notes {
        fact("note", note.clone());
    }
}

/// Command, environment, handshake, last words: what `show` and `test` have in common.
pub(super) fn describe(detail: &pb::ServerDetail) -> String {
    let mut out = String::new();
    let command = std::iter::once(&detail.command).chain(&detail.args).cloned().collect::<Vec<_>>().join(" ");
    let rows = [
        ("command", command),
        ("folder", detail.cwd.clone()),
        ("PATH", detail.path_searched.join(":")),
        ("env passed", detail.env_passed.join(" ")),
        ("env dropped", detail.env_dropped.join(" ")),
        ("log", detail.log_file.clone()),
        ("last exit", last_exit(detail)),
        ("noise", detail.noise_kind.clone()),
        ("sample", detail.noise_sample.clone()),
    ];
    for (name, value) in rows {
        put(&mut out, name, &value);
    }
    for step in &detail.steps {
        let mark = if step.ok { "ok" } else { "FAILED" };
        let took = text::span(Duration::from_micros(step.micros));
        put(&mut out, "step", &format!("{:<14} {mark:<6} {took:>8}  {}", step.step, step.detail));
    }
    for line in &detail.stderr_tail {
        put(&mut out, "stderr", line);
    }
    out.push_str(&findings::render(&detail.findings));
    out
}

fn last_exit(detail: &pb::ServerDetail) -> String {
    match (detail.exit_code, detail.exit_signal.is_empty()) {
        (_, false) => detail.exit_signal.clone(),
        (Some(code), true) => format!("code {code}"),
        (None, true) => String::new(),
    }
}

/// One aligned fact; nothing for an empty value.
fn put(out: &mut String, name: &str, value: &str) {
    if !value.is_empty() {
        writeln!(out, "{name:<12} {}", text::plain(value)).expect("writing to a string cannot fail");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_breaker_is_said_and_shown_whatever_the_phase() {
        let server = pb::ServerStatus {
            phase: pb::Phase::Ready.into(),
            breaker: Some(pb::Breaker {
                state: pb::BreakerState::Open.into(),
                failures: 3,
                retry_in_ms: 42_000,
            }),
            ..Default::default()
        };
        assert_eq!(state(&server), "ready, breaker open for 42 s");
        assert_eq!(tone(&server), Tone::Bad);
    }

    #[test]
    fn tables_of_servers_are_as_they_were() {
        let server = |name: &str, phase: pb::Phase| pb::ServerStatus {
            name: name.into(),
            phase: phase.into(),
            transport: "stdio".into(),
            tools: 12,
            ..Default::default()
        };
        let servers = [
            pb::ServerStatus {
                pid: Some(4711),
                generation: 3,
                restarts: 2,
                in_flight: 4,
                waiting: 1,
                uptime_ms: 65_000,
                protocol_version: "2025-11-25".into(),
                memory_bytes: 50_331_648,
                processes: 3,
                ..server("filesystem", pb::Phase::Ready)
            },
            pb::ServerStatus {
                reason: "exit code 127".into(),
                next_step_ms: Some(552_000),
                ..server("broken", pb::Phase::Parked)
            },
        ];
        let golden = crate::testing::golden;
        golden("tables/servers.txt", &drawn(&servers, Columns::Usual, Style::Aligned));
        golden("tables/servers_wide.txt", &drawn(&servers, Columns::All, Style::Aligned));
    }

    #[test]
    fn last_words_of_a_server_cannot_take_over_the_terminal() {
        let detail =
            pb::ServerDetail { stderr_tail: vec!["boom\x1b]0;owned\x07".into()], ..Default::default() };
        assert_eq!(describe(&detail), "stderr       boom\\u{1b}]0;owned\\u{7}\n");
    }
}
