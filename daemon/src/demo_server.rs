//! Demo server.
fn main() {}
