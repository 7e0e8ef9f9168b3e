//! MCP servers: one supervisor task each, from spawn to proven death.

pub mod annotations;
mod asked;
pub mod base_env;
pub(crate) mod body;
pub mod breaker;
pub mod diagnose;
pub mod environment;
pub mod failure;
pub mod gate;
pub mod handle;
pub mod handshake;
pub mod health;
pub mod instances;
pub mod launch;
pub mod learn_env;
pub mod lifecycle;
pub mod listing;
pub mod news;
pub mod osv;
pub mod pace;
pub mod package;
pub mod pages;
pub mod places;
mod problem;
pub(crate) mod refresh;
pub mod remote;
pub mod shared;
pub mod shell_query;
pub mod slots;
pub mod spawn;
pub(crate) mod starting;
pub mod status;
pub mod supervisor;
pub mod transport;
pub mod turns;
pub(crate) mod vitals;
pub mod wire;

/// The handles of all configured servers that are to be run, by name.
pub type Servers = std::collections::BTreeMap<crate::names::ServerName, handle::ServerHandle>;
