//! What shim and daemon say to each other on `mcp.sock`.
//!
//! One [`hello`] line each way, then newline-delimited JSON-RPC; lines that start with `#` are
//! control lines between the two and never reach the client. The shim ends its sending side
//! (half-close) when the client's stdin ends; the daemon then finishes the open requests, flushes
//! and closes.

pub mod envelope;
pub mod framing;
pub mod hello;
