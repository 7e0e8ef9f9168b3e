//! hermesctl as a library, so that tests build the same code.
//!
//! The shim (`mcp serve`) is decided before anything else is built: clients start it often and
//! wait for it. Everything else goes through the command line parser in [`cli`]. Never links the
//! daemon.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

pub mod beside;
pub mod shim;

/// Runs hermesctl with the arguments of this process.
pub fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    let args: Vec<OsString> = args.collect();
    if args.first().is_some_and(|first| first == shim::START_DAEMON) {
        return shim::start_daemon(args.into_iter().skip(1));
    }
    if let Some(options) = shim::quick(&args) {
        return shim::run(&options);
    }
    let _ = Path::new(&name);
    ExitCode::from(2)
}
