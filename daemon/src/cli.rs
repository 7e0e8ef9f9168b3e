//! hermesd's few options. People administer it with hermesctl; service managers start it with these.

use clap::{CommandFactory, Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The daemon that owns every MCP server on this machine. Administered with `hermesctl`.
#[derive(Debug, Parser)]
#[command(name = "hermesd", version, about, disable_help_subcommand = true)]
pub struct Cli {
    /// Home shared with Hermes Agent [default: $HERMES_HOME, else ~/.hermes].
    #[arg(long, global = true, value_name = "DIR")]
    pub home: Option<PathBuf>,
    /// End after so long without a client, e.g. 30m. Servers marked eager count for nothing.
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration)]
    pub idle_exit: Option<Duration>,
    /// What to do; without a command: run.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Commands of hermesd.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run in the foreground (the default). SIGTERM or SIGINT end it in order, SIGHUP reloads.
    Run,
    /// Write the man page into a folder.
    #[command(hide = true)]
    Man {
        /// The folder; made if it is not there.
        dir: PathBuf,
    },
    /// Look at the configuration without a daemon.
    Config {
        /// What to do with it.
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Look at files, commands and addresses without a daemon; for `hermesctl doctor`.
    #[command(hide = true)]
    Doctor,
    /// Become the program of one server, with its folder and environment; for `hermesctl bench`.
    #[command(hide = true)]
    Exec {
        /// Name of the server in config.yaml.
        server: String,
    },
}

/// Commands of `hermesd config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check config.yaml and .env; exit code 1 when there are errors.
    Check {
        /// Print one JSON object in place of text.
        #[arg(long)]
        json: bool,
    },
}

fn duration(text: &str) -> Result<Duration, String> {
    crate::config::values::duration(text)
        .map_err(|_| format!("`{text}` is no duration; write e.g. 90s, 30m or 1h30m"))
}

/// Writes the man pages into a folder, for packages; needs no home.
///
/// # Errors
/// The folder cannot be made or written.
pub(crate) fn man(dir: &Path) -> std::io::Result<ExitCode> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(Cli::command(), dir)?;
    Ok(ExitCode::SUCCESS)
}
