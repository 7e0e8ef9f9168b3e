//! Fetches the lists of one server, all pages of them.
//!
//! Owner: whoever holds the wire (the supervisor). Only what the server declared is asked for, and
//! "method not found" means an empty list even where it was declared. May not touch: what an item
//! means (`listing`).

use super::listing::{ListKind, NextPage, Part, Reader};
use super::transport::http::mirror;
use super::wire::{Answer, Carrier, Progress, Request, WireError, WireHandle};
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
                    NextPage::End => return Ok(by_carrier(reader.finish(), wire.carrier())),
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

/// Without the tools whose arguments cannot be sent over HTTP as they ask for (2026-07-28).
fn by_carrier(part: Part, carrier: Carrier) -> Part {
    match carrier {
        Carrier::Pipes => part,
        Carrier::Http => part.without(|tool| mirror::broken(&tool.input_schema)),
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

#[cfg(test)]
mod tests {
    use super::super::wire::WireLimits;
    use super::super::wire::task::Wire;
    use super::*;
    use crate::names::Generation;
    use crate::tasks::TaskGroup;
    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::unix::pipe;
    use tokio::sync::mpsc;
    use tokio_util::sync::CancellationToken;

    /// A server that answers each request with what `answer` makes of the cursor.
    fn server(answer: impl Fn(Option<&str>) -> Value + Send + 'static) -> WireHandle {
        let (stdin, input) = pipe::pipe().unwrap();
        let (mut output, stdout) = pipe::pipe().unwrap();
        let tasks = TaskGroup::new();
        tasks.spawn(async move {
            let mut lines = BufReader::new(input).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let request: Value = serde_json::from_str(&line).unwrap();
                let mut reply = answer(request["params"]["cursor"].as_str());
                reply["id"] = request["id"].clone();
                output.write_all(format!("{reply}\n").as_bytes()).await.unwrap();
            }
        });
        let (facts, _) = mpsc::channel(1);
        let limits = WireLimits::default();
        Wire::start(Generation(1), (stdin, stdout), facts, limits, CancellationToken::new(), &tasks).0
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    fn page(name: &str, next: &Value) -> Value {
        json!({"result": {"tools": [{"name": name, "inputSchema": {}}], "nextCursor": next}})
    }

    #[tokio::test]
    async fn all_pages_are_read_and_an_empty_cursor_is_a_cursor() {
        let wire = server(|cursor| match cursor {
            None => page("a", &json!("")),
            Some("") => page("b", &json!("c3")),
            Some(_) => page("c", &Value::Null),
        });
        assert_eq!(fetch(&wire, ListKind::Tools, soon()).await.unwrap().len(), 3);
    }

    #[tokio::test]
    async fn method_not_found_is_an_empty_list_and_another_error_is_an_error() {
        let wire = server(|_| json!({"error": {"code": -32601, "message": "no such method"}}));
        assert!(fetch(&wire, ListKind::Prompts, soon()).await.unwrap().is_empty());
        let wire = server(|_| json!({"error": {"code": -32000, "message": "database is down"}}));
        let error = fetch(&wire, ListKind::Tools, soon()).await.unwrap_err();
        assert_eq!(error.to_string(), "tools/list: the server answered error -32000: database is down");
    }

    #[tokio::test]
    async fn a_repeated_cursor_ends_the_list() {
        let wire = server(|_| page("a", &json!("again")));
        let part = fetch(&wire, ListKind::Tools, soon()).await.unwrap();
        assert_eq!(part.len(), 1, "the second page repeats the tool and is dropped");
        let notes: Vec<String> = part.notes().iter().map(ToString::to_string).collect();
        assert!(notes.iter().any(|note| note.contains("repeats a cursor")), "{notes:?}");
    }

    #[tokio::test]
    async fn a_server_that_went_away_is_named_as_gone() {
        let (stdin, input) = pipe::pipe().unwrap();
        let (output, stdout) = pipe::pipe().unwrap();
        drop((input, output));
        let (facts, _) = mpsc::channel(1);
        let (wire, _) = Wire::start(
            Generation(1),
            (stdin, stdout),
            facts,
            WireLimits::default(),
            CancellationToken::new(),
            &TaskGroup::new(),
        );
        let error = fetch(&wire, ListKind::Tools, soon()).await.unwrap_err();
        assert!(matches!(error, ListError::Wire { source: WireError::Gone { .. }, .. }), "{error}");
    }
}
