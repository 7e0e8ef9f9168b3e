//! How answers look: text for people, JSON for programs. Decides nothing about daemons or servers.

pub mod findings;
pub mod json;
pub mod table;
pub mod text;
