//! `bench`: what hermesd adds to a call, measured against the same server without it, in one run.
//!
//! The direct side is a copy of the server of its own, started by hermesd's program with the same command,
//! folder and environment, and ended afterwards. Calls of both sides alternate, so that a machine that is
//! busy for a while is busy for both.

use super::{Context, arguments, call};
use crate::beside;
use crate::cli::BenchArgs;
use crate::demo::session::Session;
use crate::demo::stage::Interrupt;
use crate::failure::{Done, Failure};
use crate::render::table::{Table, Tone};
use crate::render::text;
use hermes_proto::control as pb;
use serde_json::{Value, json};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// Calls before the first that counts: caches fill on the way.
const WARM_UP: u32 = 10;

/// Measures and prints both sides and the difference.
pub(super) async fn run(cx: &Context, args: BenchArgs) -> Result<Done, Failure> {
    let mut client = cx.client().await?;
    let tools = client.tools(&args.server, "").await?;
    let shown = client.show(&args.server).await?;
    let transport = shown.server.map(|server| server.transport).unwrap_or_default();
    if transport != "stdio" {
        return Err(Failure::Refused {
            message: format!(
                "server `{}` is reached by url: there is no copy of it to compare with",
                args.server
            ),
            hint: "`hermesctl stats` shows how long its calls take".to_owned(),
        });
    }
    let tool = choose(&tools, args.tool.as_deref(), &args.server)?;
    let schema = serde_json::from_str(&tool.input_schema_json).unwrap_or(Value::Null);
    let text = arguments::build(&args.arguments, &schema, &call::read)?;
    let arguments =
        if text.trim().is_empty() { json!({}) } else { serde_json::from_str(&text).unwrap_or(json!({})) };
    let measured = measure(cx, &args, tool, &arguments).map_err(|error| Failure::Refused {
        message: format!("{error:#}"),
        hint: format!("`hermesctl call {} {}` tries one call", args.server, tool.raw_name),
    })?;
    let (direct, through) = (Times::of(measured.direct), Times::of(measured.through));
    cx.print(|| object(&args, tool, &direct, &through), || page(cx, &args, tool, &direct, &through))?;
    Ok(Done::Well)
}

/// The tool that was named, else one that only reads and needs no arguments: it is called many times.
fn choose<'a>(tools: &'a [pb::Tool], named: Option<&str>, server: &str) -> Result<&'a pb::Tool, Failure> {
    let needs_nothing = |tool: &pb::Tool| {
        let schema: Value = serde_json::from_str(&tool.input_schema_json).unwrap_or(Value::Null);
        schema["required"].as_array().is_none_or(Vec::is_empty)
    };
    let found = match named {
        Some(name) => tools.iter().find(|tool| tool.raw_name == name || tool.name == name),
        None => tools.iter().find(|tool| tool.read_only && needs_nothing(tool)),
    };
    found.ok_or_else(|| Failure::Usage {
        message: match named {
            Some(name) => format!("server `{server}` has no visible tool `{name}`"),
            None => format!("no tool of `{server}` says that it only reads and needs no arguments: name one"),
        },
        hint: format!(
            "`hermesctl tools --server {server}` lists them; a tool that is named is called again and again"
        ),
    })
}

/// All times of both sides, in the order of the calls.
struct Measured {
    direct: Vec<Duration>,
    through: Vec<Duration>,
}

fn measure(cx: &Context, args: &BenchArgs, tool: &pb::Tool, arguments: &Value) -> anyhow::Result<Measured> {
    let interrupt = Interrupt::listen()?;
    let home = cx.home.path();
    let mut shim = Command::new(beside::own_exe()?);
    shim.args(["mcp", "serve", "--no-spawn", "--home"]).arg(home);
    let (mut through, _) = Session::open(shim, &interrupt)?;
    // First through hermesd: what it refuses to start is not started here either.
    once(&mut through, &tool.name, arguments)?;
    let hermesd =
        beside::find("hermesd").ok_or_else(|| anyhow::anyhow!("no hermesd beside hermesctl or on PATH"))?;
    let mut copy = Command::new(hermesd);
    copy.args(["exec", &args.server, "--home"]).arg(home).process_group(0);
    let (mut direct, _) = Session::open(copy, &interrupt)?;
    let group = rustix::process::Pid::from_raw(i32::try_from(direct.pid())?);
    let measured = alternate(&mut direct, &mut through, args.calls, tool, arguments);
    // Whatever it answered: nothing of the copy stays, what it started included.
    let _ = direct.close();
    if let Some(group) = group {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = through.close();
    measured
}

fn alternate(
    direct: &mut Session,
    through: &mut Session,
    calls: u32,
    tool: &pb::Tool,
    arguments: &Value,
) -> anyhow::Result<Measured> {
    let mut measured = Measured { direct: Vec::new(), through: Vec::new() };
    for turn in 0..calls + WARM_UP {
        let (a, b);
        // Neither side is always the one that finds the caches cold.
        if turn % 2 == 0 {
            a = once(direct, &tool.raw_name, arguments)?;
            b = once(through, &tool.name, arguments)?;
        } else {
            b = once(through, &tool.name, arguments)?;
            a = once(direct, &tool.raw_name, arguments)?;
        }
        if turn >= WARM_UP {
            measured.direct.push(a);
            measured.through.push(b);
        }
    }
    Ok(measured)
}

fn once(session: &mut Session, tool: &str, arguments: &Value) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let params = json!({ "name": tool, "arguments": arguments });
    let result = session.request("tools/call", params, &mut |_| {})?;
    let took = begun.elapsed();
    let said = || text::summary(result["content"][0]["text"].as_str().unwrap_or("no reason"), 200);
    anyhow::ensure!(result["isError"] != true, "{tool} failed: {}", said());
    Ok(took)
}

/// What is shown of one side, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Times {
    p50: u64,
    p99: u64,
}

impl Times {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        // Nearest rank: a value that was measured.
        let at = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100).max(1) - 1;
            times.get(rank).map_or(0, |span| u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
        };
        Self { p50: at(50), p99: at(99) }
    }
}

fn object(args: &BenchArgs, tool: &pb::Tool, direct: &Times, through: &Times) -> Value {
    let side = |times: &Times| json!({ "p50_us": times.p50, "p99_us": times.p99 });
    let added = |a: u64, b: u64| i128::from(b) - i128::from(a);
    json!({
        "server": args.server,
        "tool": tool.raw_name,
        "calls": args.calls,
        "direct": side(direct),
        "through": side(through),
        "added": {
            "p50_us": i64::try_from(added(direct.p50, through.p50)).unwrap_or(i64::MAX),
            "p99_us": i64::try_from(added(direct.p99, through.p99)).unwrap_or(i64::MAX),
        },
    })
}

fn page(cx: &Context, args: &BenchArgs, tool: &pb::Tool, direct: &Times, through: &Times) -> String {
    let span = |us: u64| text::span(Duration::from_micros(us));
    let added = |a: u64, b: u64| match b.checked_sub(a) {
        Some(more) => format!("+{}", span(more)),
        None => format!("-{}", span(a - b)),
    };
    let mut table = Table::new(&["way", "p50", "p99"]);
    let rows = [
        ["direct".to_owned(), span(direct.p50), span(direct.p99)],
        ["through hermesd".to_owned(), span(through.p50), span(through.p99)],
        ["added".to_owned(), added(direct.p50, through.p50), added(direct.p99, through.p99)],
    ];
    for row in rows {
        table.row(row.map(|cell| (cell, Tone::Plain)));
    }
    let name = text::plain(&format!("{} {}", args.server, tool.raw_name));
    format!(
        "{} calls of {name} each way, in turns; direct: a copy of the server of its own, same command, ended now\n{}",
        args.calls,
        table.render(cx.style)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_tool_that_reads_is_chosen_unasked() {
        let tool = |name: &str, read_only, schema: &str| pb::Tool {
            name: format!("mcp_s_{name}"),
            raw_name: name.into(),
            read_only,
            input_schema_json: schema.into(),
            ..Default::default()
        };
        let tools = [
            tool("write", false, "{}"),
            tool("read", true, r#"{"required":["path"]}"#),
            tool("list", true, r#"{"required":[]}"#),
        ];
        let name =
            |named| choose(&tools, named, "s").map(|tool| tool.raw_name.as_str()).map_err(|e| e.code());
        assert_eq!(name(None), Ok("list"));
        assert_eq!(name(Some("write")), Ok("write"));
        assert_eq!(name(Some("mcp_s_read")), Ok("read"));
        assert_eq!(name(Some("absent")), Err(2));
        assert_eq!(choose(&tools[..2], None, "s").unwrap_err().code(), 2);
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let times = |list: &[u64]| Times::of(list.iter().map(|us| Duration::from_micros(*us)).collect());
        assert_eq!(times(&[3, 1, 2]), Times { p50: 2, p99: 3 });
        assert_eq!(times(&[]), Times { p50: 0, p99: 0 });
    }
}
