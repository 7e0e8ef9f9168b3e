//! The gRPC service on `control.sock`: reads all status, holds handles, no logic of its own.

pub mod convert;
pub mod peer;
pub mod serve;
pub mod service;
