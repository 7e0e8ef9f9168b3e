//! The command line: what can be typed, in one tree. Decides nothing.

pub use crate::cli_calls::{AuditArgs, BenchArgs, CallArgs, EventsArgs, LogsArgs, StatsArgs, ToolsArgs};
use crate::cli_clients::{ExportArgs, ImportArgs, RegisterArgs, UnregisterArgs};
use crate::cli_mcp::{AddArgs, ConfigureArgs, RemoveArgs};
use crate::cli_service::ServiceArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::path::PathBuf;

#[cfg(test)]
#[path = "cli_tests.rs"]
mod tests;

/// Administers hermesd, and connects MCP clients to it (`mcp serve`).
///
/// Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 hermesd cannot be reached.
/// The output of --json is stable: members are only added.
#[derive(Debug, Parser)]
#[command(name = "hermesctl", version, propagate_version = true)]
pub struct Cli {
    /// Folder to use instead of $HERMES_HOME or ~/.hermes
    #[arg(long, global = true, value_name = "DIR")]
    pub home: Option<PathBuf>,
    /// Print JSON for programs instead of text for people
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show the daemon, its servers and its clients
    Status(StatusArgs),
    /// List servers, or look at and control one
    #[command(alias = "server")]
    Servers(ServersArgs),
    /// List the tools that clients see
    Tools(ToolsArgs),
    /// Call one tool, on the same road as an MCP client
    Call(CallArgs),
    /// Measure what hermesd adds to a call, against the same server without it
    Bench(BenchArgs),
    /// Show log lines of the daemon or of one server
    Logs(LogsArgs),
    /// Show who called what, when, with which outcome
    Audit(AuditArgs),
    /// Show what happened in conversations: messages, approvals
    Events(EventsArgs),
    /// Show latencies and outcomes by server and tool
    Stats(StatsArgs),
    /// Watch servers, clients, waiting calls and logs live, and act on them
    ///
    /// Keys are shown at the bottom; `?` lists all. With --json: one look, printed once.
    Top,
    /// Print all metrics in the Prometheus text format
    Metrics,
    /// Texts of servers as they were first seen or approved
    Pins(PinsArgs),
    /// Calls that wait for a person
    Approvals(ApprovalsArgs),
    /// Read config.yaml again and apply the difference
    Reload,
    /// Circuit breakers
    Breaker(BreakerArgs),
    /// MCP servers, and the stdio end for MCP clients
    Mcp(McpArgs),
    /// Check the installation and say what to do
    Doctor,
    /// Start, stop or run the daemon
    Daemon(DaemonArgs),
    /// The configuration file
    Config(ConfigArgs),
    /// Start hermesd at login, by systemd or launchd
    Service(ServiceArgs),
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Write the man pages of all commands into a folder (for packages)
    #[command(hide = true)]
    Man {
        /// The folder; made if it is not there
        dir: PathBuf,
    },
    /// Show everything at work: a private daemon, sample data, real calls; leaves nothing behind
    Demo(DemoArgs),
}

/// Options of `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Print one line and exit 1 unless everything is healthy (for monitoring)
    #[arg(long)]
    pub check: bool,
    /// Also pid, generation, transport, protocol and memory of each server
    #[arg(long, conflicts_with = "check")]
    pub wide: bool,
}

/// Options of `servers`.
#[derive(Debug, Args)]
pub struct ServersArgs {
    /// What to do with them; lists without it.
    #[command(subcommand)]
    pub action: Option<ServerAction>,
}

/// What can be done with servers.
#[derive(Debug, Subcommand)]
pub enum ServerAction {
    /// List all servers
    #[command(alias = "ls")]
    List,
    /// Show everything that is known about one server
    Show(ServerName),
    /// Start a stopped or parked server and wait until it is ready
    Start(ServerName),
    /// Stop a server and wait until no process of it is left
    Stop(ServerName),
    /// Stop, then start
    Restart(ServerName),
}

/// The name of a server.
#[derive(Debug, Args)]
pub struct ServerName {
    /// Name of the server in config.yaml
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// Options of `pins`.
#[derive(Debug, Args)]
pub struct PinsArgs {
    /// What to do; lists without it.
    #[command(subcommand)]
    pub action: Option<PinsAction>,
}

/// What can be done with pins.
#[derive(Debug, Subcommand)]
pub enum PinsAction {
    /// List what is pinned
    #[command(alias = "ls")]
    List {
        /// Only this server
        server: Option<String>,
    },
    /// Show what changed since it was pinned
    Diff {
        /// Only this server
        server: Option<String>,
    },
    /// Make the changed text of one item, or of all of a server, the one that counts
    Approve {
        /// Name of the server
        server: String,
        /// Name of the tool or prompt as its server gave it, URI of a resource, or `instructions`; all
        /// that changed without it
        name: Option<String>,
        /// Only texts of this kind
        #[arg(long, value_parser = ["tool", "prompt", "resource", "template", "instructions"])]
        kind: Option<String>,
    },
}

/// Options of `approvals`.
#[derive(Debug, Args)]
pub struct ApprovalsArgs {
    /// What to do; lists without it.
    #[command(subcommand)]
    pub action: Option<ApprovalsAction>,
}

/// What can be done with approvals.
#[derive(Debug, Subcommand)]
pub enum ApprovalsAction {
    /// List waiting calls and standing approvals
    #[command(alias = "ls")]
    List,
    /// Decide about a waiting call
    Respond {
        /// Its id, as listed
        id: String,
        /// What to do with it
        #[arg(value_enum)]
        decision: DecisionWord,
    },
    /// Take a standing approval back
    Revoke {
        /// Its number, as listed
        id: i64,
    },
}

/// A decision about a waiting call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DecisionWord {
    /// This call, once
    AllowOnce,
    /// This call and all later ones of the tool, until its schema changes
    AllowAlways,
    /// Not
    Deny,
}

/// Options of `breaker`.
#[derive(Debug, Args)]
pub struct BreakerArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: BreakerAction,
}

/// What can be done with a breaker.
#[derive(Debug, Subcommand)]
pub enum BreakerAction {
    /// Let calls of a server pass again at once
    Reset(ServerName),
}

/// Options of `mcp`.
#[derive(Debug, Args)]
pub struct McpArgs {
    /// What to do; lists without it.
    #[command(subcommand)]
    pub action: Option<McpAction>,
}

/// The `mcp` verbs.
#[derive(Debug, Subcommand)]
pub enum McpAction {
    /// Add a server: connects to it, shows its tools, writes it into config.yaml
    Add(Box<AddArgs>),
    /// Remove a server from config.yaml, and its login
    #[command(alias = "rm")]
    Remove(RemoveArgs),
    /// List all servers; without a running hermesd, what config.yaml says
    #[command(alias = "ls")]
    List,
    /// Connect to a server, also a disabled one, and report each step
    Test(ServerName),
    /// Choose which tools of a server clients see
    #[command(alias = "config")]
    Configure(ConfigureArgs),
    /// Have a server run again
    Enable(ServerName),
    /// Keep a server in config.yaml, but do not run it
    Disable(ServerName),
    /// Log in at a server with `auth: oauth`, in a browser here or anywhere
    Login(LoginArgs),
    /// End the login at a server: revoked there where that is possible, removed here
    Logout(ServerName),
    /// Take servers over from the files of MCP clients into config.yaml
    Import(ImportArgs),
    /// Print the servers of config.yaml in the notation of a client, without secrets
    Export(ExportArgs),
    /// Write hermesd into the file of an MCP client
    Register(RegisterArgs),
    /// Take hermesd out of the file of an MCP client, byte for byte where it did not change since
    Unregister(UnregisterArgs),
    /// Speak MCP on stdin and stdout: this is what an MCP client starts
    Serve(ServeArgs),
}

/// Options of `mcp login`.
#[derive(Debug, Args)]
pub struct LoginArgs {
    /// Name of the server in config.yaml
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Only print the address
    #[arg(long)]
    pub no_browser: bool,
    /// Read the address that the browser was sent to from stdin, also when that is no terminal
    #[arg(long)]
    pub paste: bool,
    /// Finish a login that waits, begun here or in another terminal, with the address that the browser was sent to
    #[arg(long, value_name = "URL", conflicts_with_all = ["no_browser", "paste"])]
    pub redirect_url: Option<String>,
}

/// Options of `mcp serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Which view of the servers
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub profile: String,
    /// Offer only a part
    #[arg(long, value_enum)]
    pub only: Option<Part>,
    /// Log to stderr
    #[arg(short, long)]
    pub verbose: bool,
    /// Never start a daemon
    #[arg(long)]
    pub no_spawn: bool,
    /// Accepted for compatibility; the daemon decides about hooks
    #[arg(long, hide = true)]
    pub accept_hooks: bool,
}

/// A part of the offer.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Part {
    /// The ten conversation tools
    Conversations,
    /// The tools of the configured servers
    Servers,
}

/// Options of `daemon`.
#[derive(Debug, Args)]
pub struct DaemonArgs {
    /// What to do; says whether it runs without it.
    #[command(subcommand)]
    pub action: Option<DaemonAction>,
}

/// What can be done with the daemon.
#[derive(Debug, Clone, Copy, Subcommand)]
pub enum DaemonAction {
    /// Start it in the background and wait until it answers
    Start,
    /// End it in order and wait until it is gone
    Stop,
    /// Run it in the foreground
    Run,
}

/// Options of `config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: ConfigAction,
}

/// What can be done with the configuration.
#[derive(Debug, Clone, Copy, Subcommand)]
pub enum ConfigAction {
    /// Report all errors and warnings of config.yaml; needs no running daemon
    Check,
}

/// Options of `demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Calls for each latency measurement
    #[arg(long, default_value_t = 200, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub calls: u32,
}
