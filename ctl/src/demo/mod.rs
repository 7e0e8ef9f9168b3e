//! `demo`: the whole road at work on a machine that has nothing set up.
//!
//! A private daemon (the real hermesd) in a temporary home, a bundled MCP server behind it, and a
//! real MCP session through the real shim. Prints each step with its answer and times. Nothing of
//! the person is touched and nothing is left behind.

mod programs;
pub(crate) mod session;
pub(crate) mod stage;
mod tour;

use crate::cli::DemoArgs;
use crate::commands::Format;
use crate::failure::{Done, Failure};

/// Runs the tour; as JSON only its figures are printed, at the end.
///
/// # Errors
/// [`Failure::Refused`] with what went wrong; everything was cleaned up then too.
pub fn run(args: &DemoArgs, format: Format) -> Result<Done, Failure> {
    match tour::run(args.calls, format) {
        Ok(()) => Ok(Done::Well),
        Err(error) => Err(match error.downcast::<std::io::Error>() {
            Ok(stream) => Failure::Stream(stream),
            Err(error) => Failure::Refused { message: format!("{error:#}"), hint: hint(&error).to_owned() },
        }),
    }
}

/// What helps against the error, as far as that is known.
fn hint(error: &anyhow::Error) -> &'static str {
    if error.is::<programs::Missing>() {
        "in the source tree, `cargo run --release --bin hermesctl -- demo` builds all it needs"
    } else if error.is::<stage::Interrupted>() {
        ""
    } else {
        "run it again; if it fails the same way, please report the lines above"
    }
}
