//! One file for each verb; each asks the [`Client`] and prints the answer.
//!
//! stdout carries the answer, stderr the errors. Text of servers is escaped before it is printed.

mod approvals;
mod arguments;
mod ask;
mod audit;
mod bench;
mod breaker;
mod call;
mod config;
mod daemon;
mod doctor;
mod entries;
pub(crate) mod events;
mod export;
mod import;
mod login;
mod logs;
mod mcp;
mod pins;
mod register;
mod reload;
mod save;
pub(crate) mod servers;
mod service;
mod stats;
mod status;
mod tools;

pub use audit::Since;

use crate::cli::{Cli, McpAction, McpArgs, Verb};
use crate::client::Client;
use crate::demo;
use crate::failure::{Done, Failure};
use crate::render::table::Style;
use clap::CommandFactory;
use hermes_proto::endpoint::Home;
use serde_json::Value;
use std::io::{self, Write};
use std::path::PathBuf;

/// What every command needs.
#[derive(Debug)]
pub struct Context {
    home: Home,
    /// `--home` as it was typed, to be handed on.
    home_flag: Option<PathBuf>,
    format: Format,
    style: Style,
}

/// For whom the output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// People.
    Text,
    /// Programs.
    Json,
}

impl Context {
    async fn client(&self) -> Result<Client, Failure> {
        Client::connect(&self.home).await
    }

    /// Prints `json` or the text, as asked.
    fn print(&self, json: impl FnOnce() -> Value, text: impl FnOnce() -> String) -> Result<(), Failure> {
        match self.format {
            Format::Json => put(&format!("{:#}\n", json())),
            Format::Text => put(&text()),
        }
    }
}

/// Writes to stdout at once; a reader that went away is an error, not a panic.
pub(crate) fn put(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Runs the command.
///
/// # Errors
/// [`Failure`] with exit code, message and hint.
pub fn run(cli: Cli) -> Result<Done, Failure> {
    let format = if cli.json { Format::Json } else { Format::Text };
    // These need neither a home nor a daemon.
    match &cli.verb {
        Verb::Completions { shell } => return completions(*shell),
        Verb::Man { dir } => return man(dir),
        Verb::Demo(args) => return demo::run(args, format),
        _ => {}
    }
    let home = Home::find(cli.home.as_deref(), &|name| std::env::var_os(name))
        .map_err(|error| Failure::refused(error.to_string()))?;
    let cx = Context { home, home_flag: cli.home, format, style: Style::of_stdout() };
    // The shim brings its own loop and needs no runtime.
    let verb = match cli.verb {
        Verb::Mcp(McpArgs { action: Some(McpAction::Serve(args)) }) => return Ok(mcp::serve(&cx, args)),
        verb => verb,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(dispatch(&cx, verb))
}

async fn dispatch(cx: &Context, verb: Verb) -> Result<Done, Failure> {
    match verb {
        Verb::Status(args) => status::run(cx, &args).await,
        Verb::Servers(args) => servers::run(cx, args.action).await,
        Verb::Tools(args) => tools::run(cx, &args).await,
        Verb::Call(args) => call::run(cx, args).await,
        Verb::Bench(args) => bench::run(cx, args).await,
        Verb::Logs(args) => logs::run(cx, &args).await,
        Verb::Audit(args) => audit::run(cx, args).await,
        Verb::Events(args) => events::run(cx, args).await,
        Verb::Stats(args) => stats::run(cx, &args).await,
        Verb::Top => top(cx).await,
        Verb::Metrics => stats::metrics(cx).await,
        Verb::Pins(args) => pins::run(cx, args.action).await,
        Verb::Approvals(args) => approvals::run(cx, args.action).await,
        Verb::Reload => reload::run(cx).await,
        Verb::Breaker(args) => breaker::run(cx, args.action).await,
        Verb::Mcp(args) => mcp::run(cx, args.action).await,
        Verb::Doctor => doctor::run(cx).await,
        Verb::Daemon(args) => daemon::run(cx, args.action).await,
        Verb::Config(args) => config::run(cx, args.action),
        Verb::Service(args) => service::run(cx, args.action).await,
        Verb::Completions { shell } => completions(shell),
        Verb::Man { dir } => man(&dir),
        Verb::Demo(args) => demo::run(&args, cx.format),
    }
}

async fn top(cx: &Context) -> Result<Done, Failure> {
    match cx.format {
        Format::Text => crate::top::run(&cx.home, cx.style).await,
        Format::Json => {
            put(&format!("{:#}\n", crate::top::snapshot(&cx.home).await?))?;
            Ok(Done::Well)
        }
    }
}

fn man(dir: &std::path::Path) -> Result<Done, Failure> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(Cli::command(), dir)?;
    Ok(Done::Well)
}

fn completions(shell: clap_complete::Shell) -> Result<Done, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "hermesctl", &mut script);
    put(&String::from_utf8_lossy(&script))?;
    Ok(Done::Well)
}
