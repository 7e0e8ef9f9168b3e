//! How bytes reach a server.
//!
//! Each transport owns its connection to one server and nothing else; what goes over it is the
//! wire's business.

pub mod auth;
pub mod control;
pub mod http;
pub mod ledger;
pub mod oauth;
pub mod pem_key;
pub mod reaper;
pub mod refusal;
pub mod stdio;
