//! The steps of the demo, in order, and what is said about each.

use super::programs;
use super::session::Session;
use super::stage::{Interrupt, Stage, signal, wait_for};
use crate::commands::{Format, put};
use crate::render::text;
use anyhow::{Context, bail, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest wait for the bundled server's tools, and for its return after it was killed.
const SERVER_WITHIN: Duration = Duration::from_secs(30);
/// How long to wait for the tools before looking at what the server does.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Exposed names of the bundled server's tools.
const ECHO: &str = "mcp_demo_echo";
const COUNT: &str = "mcp_demo_count";
const WHOAMI: &str = "mcp_demo_whoami";

/// Says what happens, unless only the figures are wanted.
struct Guide {
    format: Format,
    step: u32,
    figures: serde_json::Map<String, Value>,
}

impl Guide {
    fn step(&mut self, title: &str) -> anyhow::Result<()> {
        self.step += 1;
        self.say(&format!("\n{}. {title}", self.step))
    }

    fn say(&self, line: &str) -> anyhow::Result<()> {
        match self.format {
            Format::Text => put(&format!("{}\n", text::block(line))).map_err(unwrap_stream),
            Format::Json => Ok(()),
        }
    }

    fn figure(&mut self, name: &str, value: impl Into<Value>) {
        self.figures.insert(name.to_owned(), value.into());
    }
}

/// A closed stdout must be recognised further up.
fn unwrap_stream(failure: crate::failure::Failure) -> anyhow::Error {
    match failure {
        crate::failure::Failure::Stream(error) => error.into(),
        other => anyhow::anyhow!("{other}"),
    }
}

/// Sets the stage, tours it, clears it.
pub(super) fn run(calls: u32, format: Format) -> anyhow::Result<()> {
    let mut guide = Guide { format, step: 0, figures: serde_json::Map::new() };
    let interrupt = Interrupt::listen()?;
    let programs = programs::ready()?;
    interrupt.check()?;
    guide.say("hermesd demo: a private daemon in a temporary folder; nothing of yours is touched.")?;
    guide.step("start the daemon, with sample conversations and one MCP server behind it")?;
    let begun = Instant::now();
    let stage = Stage::set(&programs, &interrupt)?;
    let ready_ms = millis(begun.elapsed());
    guide.say(&format!("   hermesd runs as pid {} after {ready_ms} ms", stage.daemon_pid()))?;
    guide.figure("daemon_ready_ms", ready_ms);

    let (mut session, tools) = connect(&mut guide, &stage, &interrupt)?;
    conversations(&mut guide, &mut session, &tools)?;
    progress(&mut guide, &mut session)?;
    latency(&mut guide, &mut session, &programs.server, calls, &interrupt)?;
    let last_pid = recovery(&mut guide, &mut session, &interrupt)?;
    overview(&mut guide, &stage)?;

    guide.step("stop")?;
    session.close()?;
    let begun = Instant::now();
    stage.clear()?;
    ensure!(!is_running(last_pid), "the MCP server (pid {last_pid}) was left behind");
    guide.say(&format!(
        "   client, daemon and server ended in {} ms; folder removed, nothing is left",
        millis(begun.elapsed())
    ))?;
    snippet(&mut guide, &programs.hermesctl)?;
    if format == Format::Json {
        put(&format!("{:#}\n", Value::Object(guide.figures))).map_err(unwrap_stream)?;
    }
    Ok(())
}

fn connect(
    guide: &mut Guide,
    stage: &Stage,
    interrupt: &Interrupt,
) -> anyhow::Result<(Session, Vec<String>)> {
    guide.step("connect as an MCP client does: start `hermesctl mcp serve`, send `initialize`")?;
    let begun = Instant::now();
    let (mut session, hello) = Session::open(stage.shim(), interrupt).with_context(|| stage.last_words())?;
    let took = begun.elapsed();
    let (name, version) = (&hello["serverInfo"]["name"], &hello["serverInfo"]["version"]);
    guide.say(&format!(
        "   answered in {}: {} {}, protocol {}",
        us(took),
        name.as_str().unwrap_or("?"),
        version.as_str().unwrap_or("?"),
        hello["protocolVersion"].as_str().unwrap_or("?"),
    ))?;
    guide.figure("connect_us", micros(took));

    guide.step("tools/list")?;
    let end = Instant::now() + SERVER_WITHIN;
    let tools = loop {
        let tools = tool_names(&mut session)?;
        if tools.iter().any(|tool| tool == ECHO) {
            break tools;
        }
        // The session opens at once; tools of servers that are still starting are announced.
        guide.say("   the server is still starting; waiting for tools/list_changed")?;
        while !session.wait_note("notifications/tools/list_changed", LOOK_EVERY)? {
            let status: Value = admin_json(stage, &["servers", "--json"])?;
            if let Some(why) = given_up(&status) {
                let shown =
                    stage.admin(&["servers", "show", "demo"]).output().context("cannot run hermesctl")?;
                bail!("the demo server {why}\n{}", String::from_utf8_lossy(&shown.stdout).trim_end());
            }
            ensure!(Instant::now() < end, "the tools of the demo server did not come{}", stage.last_words());
        }
    };
    guide.say(&format!("   {} tools: {}", tools.len(), tools.join(" ")))?;
    guide.figure("tools", tools.len());
    Ok((session, tools))
}

/// Why no tools will come from the demo server, though it was not asked to stop.
fn given_up(servers: &Value) -> Option<String> {
    let server = servers.as_array()?.iter().find(|server| server["name"] == "demo")?;
    let phase = server["phase"].as_str()?;
    let reason = server["reason"].as_str().unwrap_or("no reason given");
    matches!(phase, "parked" | "refused" | "backing_off").then(|| format!("is {phase}: {reason}"))
}

fn admin_json(stage: &Stage, args: &[&str]) -> anyhow::Result<Value> {
    let output = stage.admin(args).output().context("cannot run hermesctl")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "hermesctl {}: {}", args.join(" "), said.trim());
    serde_json::from_slice(&output.stdout).context("hermesctl did not answer with JSON")
}

fn tool_names(session: &mut Session) -> anyhow::Result<Vec<String>> {
    let (mut names, mut cursor) = (Vec::new(), None);
    loop {
        let params = cursor.map_or(json!({}), |cursor: String| json!({ "cursor": cursor }));
        let page = session.request("tools/list", params, &mut |_| {})?;
        let tools = page["tools"].as_array().context("tools/list has no tools")?;
        names.extend(tools.iter().filter_map(|tool| tool["name"].as_str()).map(str::to_owned));
        cursor = page["nextCursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            return Ok(names);
        }
    }
}

fn conversations(guide: &mut Guide, session: &mut Session, tools: &[String]) -> anyhow::Result<()> {
    ensure!(tools.iter().any(|tool| tool == "conversations_list"), "the conversation tools are not offered");
    guide.step("conversations_list {\"limit\": 3}")?;
    let result = session.call("conversations_list", json!({ "limit": 3 }), &mut |_| {})?;
    let listed: Value = serde_json::from_str(&answer(&result)?).context("the answer is no JSON")?;
    let all = listed["conversations"].as_array().context("no conversations in the answer")?;
    ensure!(!all.is_empty(), "the sample conversations are missing");
    for talk in all {
        let of = |name: &str| talk[name].as_str().unwrap_or("").to_owned();
        guide.say(&format!("   {:<9} {:<12} {}", of("platform"), of("display_name"), of("session_key")))?;
    }
    guide.figure("conversations", all.len());
    let key = all[0]["session_key"].as_str().context("a conversation without a session_key")?;
    guide.step(&format!("messages_read {{\"session_key\": \"{key}\"}}"))?;
    let result = session.call("messages_read", json!({ "session_key": key, "limit": 3 }), &mut |_| {})?;
    let read: Value = serde_json::from_str(&answer(&result)?).context("the answer is no JSON")?;
    for message in read["messages"].as_array().context("no messages in the answer")? {
        let role = message["role"].as_str().unwrap_or("?");
        let said = message["content"].as_str().unwrap_or("");
        guide.say(&format!("   {role:<10} {}", text::summary(said, 90)))?;
    }
    Ok(())
}

fn progress(guide: &mut Guide, session: &mut Session) -> anyhow::Result<()> {
    guide.step(&format!("{COUNT} {{\"to\": 5}}: a tool of the MCP server, with progress"))?;
    let mut heard = Vec::new();
    let result = session.call(COUNT, json!({ "to": 5 }), &mut |note| {
        if note["method"] == "notifications/progress" {
            heard.push(note["params"]["message"].as_str().unwrap_or("?").to_owned());
        }
    })?;
    guide.say(&format!("   progress: {}", heard.join(", ")))?;
    guide.say(&format!("   answer:   {}", answer(&result)?))?;
    ensure!(heard.len() == 5, "{} of 5 progress notifications came", heard.len());
    guide.figure("progress_notifications", heard.len());
    Ok(())
}

fn latency(
    guide: &mut Guide,
    session: &mut Session,
    server: &std::path::Path,
    calls: u32,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    guide.step(&format!("latency of {calls} calls of `echo`, one after the other"))?;
    let (mut direct, _) = Session::open(Command::new(server), interrupt)?;
    let arguments = json!({ "text": "x".repeat(100) });
    let ways = [
        ("direct", direct.measure("echo", &arguments, calls)?),
        ("through hermesd", session.measure(ECHO, &arguments, calls)?),
    ];
    direct.close()?;
    for (way, times) in &ways {
        let (p50, p99) = (percentile(times, 50), percentile(times, 99));
        guide.say(&format!("   {way:<16} p50 {:>8}   p99 {:>8}", us(p50), us(p99)))?;
        let name = way.replace(' ', "_");
        guide.figure(&format!("latency_{name}_us"), json!({ "p50": micros(p50), "p99": micros(p99) }));
    }
    let added = percentile(&ways[1].1, 50).saturating_sub(percentile(&ways[0].1, 50));
    guide.say(&format!("   hermesd adds {} to a call, on this machine, now", us(added)))
}

fn recovery(guide: &mut Guide, session: &mut Session, interrupt: &Interrupt) -> anyhow::Result<u32> {
    let before = whoami(session)?.map_err(|said| anyhow::anyhow!("{WHOAMI} failed: {said}"))?;
    guide.step(&format!("kill -9 {before}: the MCP server dies; the next calls show what a client sees"))?;
    let begun = Instant::now();
    signal(before, Signal::KILL);
    let (mut first_error, end) = (None, begun + SERVER_WITHIN);
    let after = loop {
        match whoami(session)? {
            Ok(pid) if pid != before => break pid,
            // Still answered by the old one: the signal is on its way.
            Ok(_) => {}
            Err(said) if first_error.is_none() => {
                guide.say(&format!("   first: {}", text::summary(&said, 160)))?;
                first_error = Some(said);
            }
            Err(_) => {}
        }
        ensure!(Instant::now() < end, "the server did not come back");
        interrupt.check()?;
        wait_for(Duration::from_millis(100), || None::<()>);
    };
    let took = begun.elapsed();
    guide
        .say(&format!("   then:  a new server (pid {after}) answers, {} after the kill", text::span(took)))?;
    guide.figure("recovered_ms", millis(took));
    Ok(after)
}

/// The pid of the server that answers, or what the call said instead.
fn whoami(session: &mut Session) -> anyhow::Result<Result<u32, String>> {
    let result = session.call(WHOAMI, json!({}), &mut |_| {})?;
    let said = first_text(&result);
    if result["isError"] == true {
        return Ok(Err(said));
    }
    let pid = said.strip_prefix("pid ").and_then(|rest| rest.split(',').next()?.parse().ok());
    Ok(Ok(pid.with_context(|| format!("unexpected answer of {WHOAMI}: {said}"))?))
}

fn overview(guide: &mut Guide, stage: &Stage) -> anyhow::Result<()> {
    guide.step("hermesctl servers")?;
    let output = stage.admin(&["servers"]).output().context("cannot run hermesctl")?;
    ensure!(output.status.success(), "hermesctl servers: {}", String::from_utf8_lossy(&output.stderr).trim());
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        guide.say(&format!("   {line}"))?;
    }
    Ok(())
}

fn snippet(guide: &mut Guide, hermesctl: &std::path::Path) -> anyhow::Result<()> {
    let entry = json!({ "mcpServers": { "hermes": {
        "command": hermesctl.to_string_lossy(), "args": ["mcp", "serve"],
    } } });
    guide.say(
        "\nto use it, put this into claude_desktop_config.json (any MCP client takes the same command):\n",
    )?;
    guide.say(&format!("{entry:#}"))?;
    guide.figure("snippet", entry);
    Ok(())
}

/// The text of a result that must not be an error.
fn answer(result: &Value) -> anyhow::Result<String> {
    let text = first_text(result);
    ensure!(result["isError"] != true, "the call failed: {text}");
    Ok(text)
}

fn first_text(result: &Value) -> String {
    result["content"][0]["text"].as_str().unwrap_or("").to_owned()
}

fn is_running(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

/// The nearest-rank percentile of sorted times.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

fn us(span: Duration) -> String {
    format!("{} us", micros(span))
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_failed_ends_the_tour_and_one_that_starts_does_not() {
        let servers = |phase: &str| json!([{ "name": "demo", "phase": phase, "reason": "exit code 1" }]);
        assert_eq!(given_up(&servers("parked")).as_deref(), Some("is parked: exit code 1"));
        assert_eq!(given_up(&servers("backing_off")).as_deref(), Some("is backing_off: exit code 1"));
        assert_eq!(given_up(&servers("starting")), None);
        assert_eq!(given_up(&json!([])), None);
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_micros).collect();
        assert_eq!(percentile(&times, 50), Duration::from_micros(100));
        assert_eq!(percentile(&times, 99), Duration::from_micros(198));
        assert_eq!(percentile(&times[..1], 99), Duration::from_micros(1));
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }
}
