//! `demo`.

use crate::cli::DemoArgs;
use crate::failure::{Done, Failure};

/// Runs it.
pub fn run(_args: &DemoArgs) -> Result<Done, Failure> {
    Err(Failure::refused("not yet"))
}
