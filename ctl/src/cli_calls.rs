//! The command line of what concerns calls: tools, one call, measuring, and what happened. Decides nothing.

use crate::commands::Since;
use clap::Args;
use std::path::PathBuf;

/// Options of `tools`.
#[derive(Debug, Args)]
pub struct ToolsArgs {
    /// Only tools in whose name, title or description all these words are
    #[arg(value_name = "QUERY")]
    pub query: Vec<String>,
    /// Only the tools of this server
    #[arg(long, value_name = "NAME")]
    pub server: Option<String>,
    /// As clients with this profile see them
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
}

/// Options of `call`.
#[derive(Debug, Args)]
#[command(
    override_usage = "hermesctl call SERVER TOOL [ARGUMENT...]\n       hermesctl call EXPOSED_TOOL [ARGUMENT...]",
    after_help = "Examples:\n  hermesctl call files read_file path=/tmp/x\n  hermesctl call files read_file '{\"path\": \"/tmp/x\"}'\n  hermesctl call shots take url=https://example.org full:=true --save ."
)]
pub struct CallArgs {
    /// SERVER TOOL or EXPOSED_TOOL, then arguments: a JSON object, `key=value` (read by the tool's
    /// schema), `key=@FILE` (its text), `key:=JSON`, `@FILE` (a JSON object), or `-` (one from stdin)
    #[arg(required = true, num_args = 1.., value_name = "WORD")]
    pub words: Vec<String>,
    /// File with the arguments as a JSON object; words after it win
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Save images, sounds and binary resources of the result into this folder
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
    /// Longest time without progress, in seconds, instead of the server's own
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u32>,
    /// Call as a client with this profile
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
}

/// Options of `bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Name of a server with a command in config.yaml; a second copy of it runs meanwhile
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// The tool, which is called again and again; else one that only reads and needs no arguments
    #[arg(value_name = "TOOL")]
    pub tool: Option<String>,
    /// Its arguments, as for `call`
    #[arg(value_name = "ARGUMENT")]
    pub arguments: Vec<String>,
    /// Calls each way
    #[arg(short = 'n', long, default_value_t = 200, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub calls: u32,
}

/// Options of `logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// Name of a server; the daemon's own log without it
    #[arg(value_name = "NAME")]
    pub server: Option<String>,
    /// How many of the last lines
    #[arg(short = 'n', long, default_value_t = 50, value_name = "COUNT")]
    pub lines: u32,
    /// Go on with new lines until interrupted
    #[arg(short, long)]
    pub follow: bool,
}

/// Options of `audit`.
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Only calls of this server (`hermes`: the conversation tools)
    #[arg(long, value_name = "NAME")]
    pub server: Option<String>,
    /// Only calls of this tool, by the name its server gave it
    #[arg(long, value_name = "NAME")]
    pub tool: Option<String>,
    /// Only calls of clients that call themselves this
    #[arg(long, value_name = "NAME")]
    pub client: Option<String>,
    /// Only calls with this profile
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Only this outcome: ok, tool_error, cancelled, breaker_open, invalid_arguments, ...
    #[arg(long, value_name = "KIND")]
    pub outcome: Option<String>,
    /// Only the call with this trace id
    #[arg(long, value_name = "ID")]
    pub trace: Option<String>,
    /// Only calls of the last so long: 90s, 15m, 2h, 7d
    #[arg(long, value_name = "SPAN")]
    pub since: Option<Since>,
    /// How many of the newest rows
    #[arg(short = 'n', long, default_value_t = 50, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub lines: u32,
    /// Go on with new rows until interrupted
    #[arg(short, long)]
    pub follow: bool,
}

/// Options of `events`.
#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Only events of this conversation
    #[arg(long, value_name = "KEY")]
    pub session: Option<String>,
    /// Only this kind: message, conversation_rewritten, approval_requested, approval_resolved; may be given more than once
    #[arg(long, value_name = "KIND")]
    pub kind: Vec<String>,
    /// Everything after this cursor (0: from the oldest kept) instead of the newest
    #[arg(long, value_name = "CURSOR", conflicts_with = "lines")]
    pub since: Option<u64>,
    /// How many of the newest events
    #[arg(short = 'n', long, default_value_t = 50, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub lines: u32,
    /// Go on with new events until interrupted
    #[arg(short, long)]
    pub follow: bool,
}

/// Options of `stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Only this server
    #[arg(value_name = "NAME")]
    pub server: Option<String>,
}
