//! The two protocols of hermesd, shared by the daemon and hermesctl.
//!
//! * [`control`]: gRPC package `hermes.control.v1` on `control.sock` (administration).
//! * [`shim`]: the hello line, line framing, envelope peek and resume string on `mcp.sock`.
//! * [`endpoint`]: where the sockets of a home are, and whether a daemon holds them.
//! * [`secrets`]: which names and values are secrets, for both sides alike.
//!
//! May not touch: MCP servers, config.yaml, any process.

pub mod endpoint;
pub mod secrets;
pub mod shim;

/// Generated from `hermes/control/v1/control.proto`; the comments there are the documentation.
pub mod control {
    #![allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub, rustdoc::all)]
    tonic::include_proto!("hermes.control.v1");
}
