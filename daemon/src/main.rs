//! Thin main.
fn main() {}
