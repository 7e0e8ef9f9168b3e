//! JSON-RPC envelope work: typed ids, splices, protocol eras. Pure.

pub mod depth;
pub mod era;
pub mod ids;
pub mod log_level;
pub mod outbound;
pub mod reply;
pub mod splice;
