//! How bytes reach a server.

pub mod ledger;
pub mod stdio;
