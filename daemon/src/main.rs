//! Thin main.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before any runtime, thread or argument parser: a guard has one thread and stays small.
    if hermesd::guard::is_guard_invocation(std::env::args_os()) {
        return hermesd::guard::main();
    }
    ExitCode::SUCCESS
}
