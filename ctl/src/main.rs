//! Thin main: everything is in the library.

fn main() -> std::process::ExitCode {
    hermesctl::main()
}
