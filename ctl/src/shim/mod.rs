//! `hermesctl mcp serve`: the stdio of one MCP client, pumped to and from the daemon.
//!
//! One process, one poll loop, no runtime, no threads: it starts in about a millisecond and costs
//! one or two megabytes. All state of a session is the daemon's; what is kept here is only what it
//! takes to survive a restart of the daemon ([`pump`]). stdout carries MCP and nothing else.

mod answers;
mod args;
mod daemon;
mod flow;
mod open;
mod outage;
mod parent;
mod peek;
mod pump;
mod serve;
mod starting;
mod stdio;

pub use args::{Log, ServeOptions, Spawn, quick};
pub use daemon::{Lifetime, ReachError, START_DAEMON, spawn, start_daemon, trial};
pub use serve::run;
pub use starting::Starting;
