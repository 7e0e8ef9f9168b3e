//! Logs, metrics, traces.

#[cfg(test)]
mod alerts;
pub mod escape;
pub mod export;
pub mod ids;
pub mod intake;
pub mod journal;
pub mod log_histogram;
pub mod logs;
pub mod metrics;
mod metrics_labels;
pub mod metrics_listener;
mod metrics_store;
mod metrics_traces;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod redact_hook;
pub mod rotate;
pub mod server_log;
pub mod stats;
pub mod tail;
pub mod traces;
pub mod writer;
