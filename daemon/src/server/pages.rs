//! Fetches the lists of one server, all pages of them.
//!
//! Owner: whoever holds the wire (the supervisor). Only what the server declared is asked for, and
//! "method not found" means an empty list even where it was declared. May not touch: what an item
//! means (`listing`).

use super::listing::{ListKind, NextPage, Part, Reader};
use super::wire::{Answer, Progress, Request, WireError, WireHandle};
use crate::jsonrpc::splice::{Members, ObjectWriter};
use serde_json::value::RawValue;
use tokio::time::{Duration, Instant};

/// Pages of one list.
pub const MAX_PAGES: usize = 1000;

/// JSON-RPC 2.0, section 5.1.
const METHOD_NOT_FOUND: i64 = -32601;

/// Why a list was not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// The connection gave no answer.
    #[error("{list}: {source}")]
    Wire {
        /// Which list.
        list: ListKind,
        /// Why.
        source: WireError,
    },
    /// The server answered with an error.
    #[error("{list}: the server answered error {code}: {message}")]
    Refused {
        /// Which list.
        list: ListKind,
        /// JSON-RPC code.
        code: i64,
        /// Its text, at most 300 characters.
        message: String,
    },
    /// The budget was spent before the last page.
    #[error("{list}: not complete after {pages} pages within the budget")]
    OutOfTime {
        /// Which list.
        list: ListKind,
        /// Pages read.
        pages: usize,
    },
}

/// Reads all pages of one list, until `deadline`.
///
/// # Errors
/// [`ListError`]; nothing of a list that failed half-way is used.
/// # Cancel safety
/// Dropping the future cancels the open request.
pub async fn fetch(wire: &WireHandle, list: ListKind, deadline: Instant) -> Result<Part, ListError> {
    let mut reader = Reader::new(list, MAX_PAGES);
    let mut cursor: Option<String> = None;
    let mut pages = 0;
    loop {
        let budget = deadline.saturating_duration_since(Instant::now());
        if budget.is_zero() {
            return Err(ListError::OutOfTime { list, pages });
        }
        let answer = request(wire, list.method(), cursor.as_deref(), budget).await;
        match answer.map_err(|source| ListError::Wire { list, source })? {
            Answer::Result(result) => {
                pages += 1;
                match reader.page(&result) {
                    NextPage::Cursor(next) => cursor = Some(next),
                    NextPage::End => return Ok(reader.finish()),
                }
            }
            Answer::Error(error) => {
                let (code, message) = read_error(&error);
                return match code {
                    METHOD_NOT_FOUND => Ok(reader.finish()),
                    code => Err(ListError::Refused { list, code, message }),
                };
            }
        }
    }
}

async fn request(
    wire: &WireHandle,
    method: &'static str,
    cursor: Option<&str>,
    budget: Duration,
) -> Result<Answer, WireError> {
    let params = cursor.map(|cursor| {
        let mut params = ObjectWriter::default();
        params.string("cursor", cursor);
        params.finish()
    });
    let progress = Progress::Unwanted;
    let flight =
        wire.request(Request { method: method.into(), params, idle: budget, cap: budget, progress })?;
    flight.done().await
}

/// Code and text of an error object, the text cut to what fits a status line.
pub fn read_error(error: &RawValue) -> (i64, String) {
    let members = Members::parse(error).ok();
    let code = members.as_ref().and_then(|m| m.get("code")).and_then(|raw| raw.get().parse().ok());
    let message = members.as_ref().and_then(|m| m.text("message")).unwrap_or_default();
    (code.unwrap_or(-32603), message.chars().take(300).collect())
}
