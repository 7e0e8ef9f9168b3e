//! The ten conversation tools over Hermes Agent's files (built-in server `hermes`).

pub mod attachments;
pub mod channels;
pub mod db;
pub mod index;
pub mod messages;
pub mod tools;
