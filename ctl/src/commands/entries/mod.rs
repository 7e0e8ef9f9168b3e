//! Verbs that write entries of config.yaml: add, remove, configure, enable, disable; list without a daemon.
//!
//! `draft` turns what was typed into an entry (pure), `add` and the others are the flows, `ask` the
//! questions to a person, `settle` what a running daemon makes of the change.

mod add;
mod ask;
mod change;
mod configure;
mod draft;
mod listing;
mod remove;
mod settle;

pub(super) use add::add;
pub(super) use change::{Switch, offer_enable, switch};
pub(super) use configure::configure;
pub(super) use listing::list;
pub(super) use remove::remove;

use super::Context;
use crate::config_edit::dotenv::DotenvError;
use crate::config_edit::{FileError, Node, file};
use crate::failure::Failure;
use std::path::PathBuf;

fn config_file(cx: &Context) -> PathBuf {
    cx.home.path().join("config.yaml")
}

fn env_file(cx: &Context) -> PathBuf {
    cx.home.path().join(".env")
}

fn tree(cx: &Context) -> Result<Node, Failure> {
    Ok(file::read_tree(&config_file(cx))?)
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        let hint = match &error {
            FileError::Edit { .. } => {
                "nothing was written; edit the file by hand, `hermesctl config check` looks it over"
            }
            FileError::Busy { .. } | FileError::Unsteady { .. } => "nothing was written; try again",
            FileError::Io { .. } | FileError::NotText { .. } | FileError::NotAFile { .. } => {
                "nothing was written"
            }
        };
        Self::Refused { message: error.to_string(), hint: hint.to_owned() }
    }
}

impl From<DotenvError> for Failure {
    fn from(error: DotenvError) -> Self {
        match error {
            DotenvError::File(error) => error.into(),
            DotenvError::Name { .. } | DotenvError::Value { .. } | DotenvError::OpenQuote { .. } => {
                Self::refused(error.to_string())
            }
        }
    }
}
