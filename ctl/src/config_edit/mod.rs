//! Edits of config.yaml and `.env`: comments, order, templates, anchors, line ends and mode stay.
//!
//! `tree` says what a text means, `value` what is written, `edit` changes a text and proves the
//! result, `file` does that to a file under a lock, `dotenv` writes variables, `servers` knows where
//! entries are. No daemon is needed. May not touch: sockets, the terminal.

pub mod dotenv;
pub mod edit;
pub mod file;
pub mod servers;
pub mod tree;
pub mod value;

#[cfg(test)]
mod edit_tests;
#[cfg(test)]
mod file_tests;

pub use edit::{EditError, Step};
pub use file::{FileError, Lock, Written};
pub use tree::{Node, Path};
pub use value::Value;
