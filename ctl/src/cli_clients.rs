//! The command line of `mcp import`, `export`, `register` and `unregister`. Decides nothing.

use crate::clients::Client;
use crate::clients::export::Shape;
use crate::clients::import::Conflicts;
use clap::Args;
use std::path::PathBuf;

/// Options of `mcp import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Clients (claude-desktop, claude-code, cursor, vscode, codex, windsurf, zed, gemini) or files; every client found here without it
    #[arg(value_name = "CLIENT|FILE")]
    pub sources: Vec<String>,
    /// Also the servers that this project keeps for the named clients (`.mcp.json`, `.cursor/mcp.json`, ...)
    #[arg(long, value_name = "DIR")]
    pub project: Option<PathBuf>,
    /// Only servers of these names
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub servers: Vec<String>,
    /// What to do with a server whose name another one has in config.yaml
    #[arg(long, value_enum, default_value_t = Conflicts::Skip, value_name = "WHAT")]
    pub conflicts: Conflicts,
    /// Move secrets that stand in the entries as text into `.env`
    #[arg(long, conflicts_with = "keep_secrets")]
    pub secrets_to_env: bool,
    /// Leave secrets in the entries, without asking
    #[arg(long)]
    pub keep_secrets: bool,
    /// Show what would be written, and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Write without asking
    #[arg(short, long)]
    pub yes: bool,
}

/// Options of `mcp export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Only these servers
    #[arg(value_name = "NAME")]
    pub servers: Vec<String>,
    /// In whose notation
    #[arg(long, value_enum, default_value_t = Shape::Claude, value_name = "FORMAT")]
    pub format: Shape,
}

/// Options of `mcp register`.
#[derive(Debug, Args)]
pub struct RegisterArgs {
    /// Which clients; `hermes` moves the servers of Hermes Agent to hermesd
    #[arg(value_name = "CLIENT", value_enum)]
    pub clients: Vec<Client>,
    /// Every client that is found here, but for Hermes Agent
    #[arg(long)]
    pub all: bool,
    /// The client sees the servers of this profile
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Name of the entry in the client's file
    #[arg(long, value_name = "NAME", default_value = "hermes")]
    pub name: String,
    /// In the file that this project keeps for the client, instead of the user's
    #[arg(long, value_name = "DIR")]
    pub project: Option<PathBuf>,
    /// Take out of the client's file what hermesd runs too
    #[arg(long)]
    pub replace: bool,
    /// Show what would be written, and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Write without asking
    #[arg(short, long)]
    pub yes: bool,
}

/// Options of `mcp unregister`.
#[derive(Debug, Args)]
pub struct UnregisterArgs {
    /// Which clients
    #[arg(value_name = "CLIENT", value_enum)]
    pub clients: Vec<Client>,
    /// Every client that was registered from this home
    #[arg(long)]
    pub all: bool,
    /// Name of the entry in the client's file
    #[arg(long, value_name = "NAME", default_value = "hermes")]
    pub name: String,
    /// In the file that this project keeps for the client, instead of the user's
    #[arg(long, value_name = "DIR")]
    pub project: Option<PathBuf>,
    /// Show what would be taken out, and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Write without asking
    #[arg(short, long)]
    pub yes: bool,
}
