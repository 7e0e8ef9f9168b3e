//! Logs, metrics, traces.

pub mod escape;
pub mod intake;
pub mod logs;
pub mod redact_hook;
pub mod rotate;
pub mod server_log;
pub mod tail;
pub mod writer;
