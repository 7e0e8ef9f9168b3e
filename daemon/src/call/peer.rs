//! What a call may ask of the client that made it.
//!
//! Pure: the border only; `session` keeps the questions. Promise: a question goes to the one client whose
//! call it belongs to, and only if that client said that it understands it.

use crate::jsonrpc::reply::Reply;
use serde_json::value::RawValue;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// What a client may declare that it can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// `elicitation/create` with a form (MCP 2025-06-18 and later).
    Form,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// Too many questions are open.
    #[error("{open} questions to this client are open, the limit is {limit}")]
    Busy {
        /// How many.
        open: usize,
        /// At most.
        limit: usize,
    },
    /// It did not answer.
    #[error("the client did not answer within {limit:?}")]
    TimedOut {
        /// How long was waited.
        limit: Duration,
    },
    /// It is gone, or began a new session.
    #[error("the client is gone")]
    Gone,
}

/// A question on its way. Dropped before it is answered, the client is told that nobody waits any more.
pub type Asking = Pin<Box<dyn Future<Output = Result<Reply, AskError>> + Send>>;

/// The client of a session.
pub trait Peer: fmt::Debug + Send + Sync {
    /// Negotiated MCP revision.
    fn revision(&self) -> &'static str;

    /// Whether the client declared that it can be asked this.
    fn has(&self, feature: Feature) -> bool;

    /// Asks the client; at most `limit` is waited. What it answers is a stranger's text.
    ///
    /// # Errors
    /// [`AskError`], also from the future.
    fn ask(&self, method: &'static str, params: &RawValue, limit: Duration) -> Result<Asking, AskError>;
}
