//! Logs, metrics, traces.

pub mod logs;
