//! The path of a call, written in one place.

pub mod result;
pub mod retry;
pub mod route;
pub mod suspended;
pub mod validate;
