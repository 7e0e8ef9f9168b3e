//! What the daemon and its guards both know about processes: the table of the system, the frames
//! between them, the ladder that ends a tree, and the life of a guard.
//!
//! Owner: each part says its own. Promise: a process is only ever signalled after its identity
//! (pid and start time) was checked. May not touch: config, sessions, the runtime.

pub mod container;
pub mod inherited;
pub mod keeper;
pub mod ladder;
pub mod limits;
#[cfg(target_os = "linux")]
pub mod nursery;
pub mod orders;
pub mod orphans;
pub mod stat;
pub mod sweep;
pub mod table;
