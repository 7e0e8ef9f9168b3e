//! hermesctl as a library, so that tests build the same code.
//!
//! The shim (`mcp serve`) is decided before anything else is built: clients start it often and
//! wait for it. Everything else goes through the command line parser in [`cli`]. Never links the
//! daemon.

pub mod beside;
pub mod cli;
pub mod cli_calls;
pub mod cli_clients;
pub mod cli_mcp;
pub mod cli_service;
pub mod client;
pub mod clients;
pub mod commands;
pub mod config_edit;
pub mod demo;
pub mod doctor;
pub mod failure;
pub mod render;
pub mod shim;
#[cfg(test)]
mod testing;
pub mod top;

use clap::Parser;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Runs hermesctl with the arguments of this process.
pub fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let (name, rest) = args.split_first().map_or((None, [].as_slice()), |(name, rest)| (Some(name), rest));
    if rest.first().is_some_and(|first| first == shim::START_DAEMON) {
        return shim::start_daemon(rest.iter().skip(1).cloned());
    }
    if let Some(options) = shim::quick(rest) {
        become_small(rest);
        return shim::run(&options);
    }
    let cli = match cli::Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to stdout with code 0, errors to stderr with code 2.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let done = match name.filter(|name| is_hermes(name)) {
        Some(_) if !matches!(cli.verb, cli::Verb::Mcp(_)) => Err(failure::Failure::Usage {
            message: "started as `hermes`, hermesctl only knows `mcp`".to_owned(),
            hint: "run the same command as `hermesctl ...`".to_owned(),
        }),
        _ => commands::run(cli),
    };
    match done {
        Ok(done) => done.into(),
        Err(failure) => report(&failure),
    }
}

/// The shim as its own small program: the body of `hermes-shim`, which hermesctl turns into.
pub fn shim_main() -> ExitCode {
    let rest: Vec<OsString> = std::env::args_os().skip(1).collect();
    if rest.first().is_some_and(|first| first == shim::START_DAEMON) {
        return shim::start_daemon(rest.iter().skip(1).cloned());
    }
    if rest.first().is_some_and(|first| first == "--version") {
        // For `doctor`, which compares; a closed stdout loses it.
        let _ = writeln!(io::stdout(), "hermes-shim {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    match shim::quick(&rest) {
        Some(options) => shim::run(&options),
        None => {
            // Nobody is left to tell when stderr is closed.
            let _ = io::stderr().write_all(b"error: hermes-shim is started by `hermesctl mcp serve`\n");
            ExitCode::from(2)
        }
    }
}

/// Turns this process into `hermes-shim` when it is installed beside us: clients start many shims
/// and keep them, and that program needs a third less memory. Returns when that is not possible;
/// then this process is the shim itself, with the same code.
fn become_small(args: &[OsString]) {
    use std::os::unix::process::CommandExt;
    let beside = beside::own_exe().ok().and_then(|exe| beside::sibling(&exe, "hermes-shim"));
    if let Some(program) = beside {
        // Only returns on failure.
        let _ = std::process::Command::new(program).args(args).exec();
    }
}

fn is_hermes(name: &OsString) -> bool {
    Path::new(name).file_name().is_some_and(|name| name == "hermes")
}

fn report(failure: &failure::Failure) -> ExitCode {
    if failure.is_closed_pipe() {
        return ExitCode::SUCCESS;
    }
    let mut text = format!("error: {}\n", render::text::block(&failure.to_string()));
    if !failure.hint().is_empty() {
        text.push_str(&format!("hint: {}\n", render::text::plain(failure.hint())));
    }
    // Nobody is left to tell when stderr is closed.
    let _ = io::stderr().write_all(text.as_bytes());
    ExitCode::from(failure.code())
}
