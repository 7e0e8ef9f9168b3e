//! Thin main of the shim's own small program; see `hermesctl::shim_main`.

fn main() -> std::process::ExitCode {
    hermesctl::shim_main()
}
