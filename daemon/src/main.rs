//! Thin main: everything is in the library, so that tests build the same code.

use std::process::ExitCode;

fn main() -> ExitCode {
    hermesd::boot::main()
}
