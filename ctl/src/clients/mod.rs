//! The configuration files of MCP clients: reading servers out of them, and writing hermesd's shim into them.
//!
//! `table` knows the clients and their files, `doc` (with `jsonc` and `tomlc`) reads and edits one file, `entry`,
//! `template`, `secret` and `identity` turn entries into hermesd's, `register` and `import` plan, `apply` writes,
//! `record` remembers how to undo. No daemon is needed. May not touch: sockets, the terminal.

pub mod apply;
pub mod copies;
pub mod doc;
pub mod entry;
pub mod export;
pub mod home;
pub mod identity;
pub mod import;
mod jsonc;
mod processes;
pub mod record;
pub mod register;
pub mod secret;
pub mod table;
pub mod template;
mod tomlc;

pub use copies::{Copy, Starts, own_copies};
pub use table::{Client, Places, Scope};
