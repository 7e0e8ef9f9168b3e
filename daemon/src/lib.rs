//! hermesd: one long-running daemon per user that owns every MCP server on a person's machine.
//!
//! Start at `boot`, which knows everybody; ARCHITECTURE.md has the path of a call, who owns what,
//! and the import arrows that `tests/e2e/boundaries.rs` checks.

pub mod admin;
pub mod after_login;
pub mod boot;
pub mod call;
pub mod catalog;
pub mod check;
pub mod claim;
pub mod cli;
pub mod config;
pub mod conversations;
pub mod doctor;
pub mod findings;
pub mod guard;
pub mod handover;
pub mod http;
pub mod jsonrpc;
pub mod learned;
pub mod loopback;
pub mod masking;
pub mod names;
pub mod observe;
mod occasions;
pub mod paths;
pub mod policy;
pub mod process;
pub mod redact;
pub mod reload;
pub mod sampling;
pub mod secret;
pub mod server;
pub mod session;
pub mod shutdown;
pub mod signals;
pub mod store;
pub mod tasks;
pub mod telemetry;
pub mod watchdog;

#[cfg(test)]
#[allow(dead_code, unreachable_pub, reason = "shared with the end-to-end tests")]
#[path = "../../tests/harness/chat_api.rs"]
mod chat_api;
