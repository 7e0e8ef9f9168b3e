//! The gRPC service on `control.sock`: reads all status, holds handles, has no logic of its own.
//!
//! Promise: texts that came from servers or the configuration are masked before they leave.
//! May not touch: processes, files but for reading logs.

mod calls;
mod consent;
pub mod convert;
pub mod diagnose;
mod doctor;
mod events;
mod evidence;
mod login;
mod memory;
pub mod peer;
pub mod serve;
pub mod service;
mod status;
mod trial;
