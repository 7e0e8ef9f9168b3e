//! What a call may ask of the client that made it.
//!
//! Pure: the border only; `session` keeps the questions. Promise: a question goes to the one client whose
//! call it belongs to, and only if that client said that it understands it.

use crate::jsonrpc::reply::Reply;
use crate::jsonrpc::splice::Members;
use serde_json::value::RawValue;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// What a client may declare that it can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// `elicitation/create` with a form (MCP 2025-06-18 and later).
    Form,
    /// `elicitation/create` with an address to open (MCP 2025-11-25 and later).
    Url,
    /// `sampling/createMessage`.
    Sampling,
    /// The same with tools (MCP 2025-11-25 and later).
    SamplingTools,
    /// `roots/list`.
    Roots,
    /// It says when its roots change.
    RootsNews,
}

impl Feature {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Form, Self::Url, Self::Sampling, Self::SamplingTools, Self::Roots, Self::RootsNews];

    /// What a client of `revision` says that it can be asked, by its raw capabilities.
    pub fn declared(revision: &str, capabilities: Option<&RawValue>) -> Vec<Self> {
        let members = |raw: Option<&RawValue>| {
            raw.and_then(|raw| Members::parse(raw).ok()).map(|members| {
                members.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<Vec<_>>()
            })
        };
        let all = members(capabilities).unwrap_or_default();
        let of = |name: &str| all.iter().find(|(known, _)| known == name).map(|(_, raw)| &**raw);
        let mut found = Vec::new();
        if let Some(modes) = members(of("elicitation")).filter(|_| revision >= "2025-06-18") {
            // MCP 2025-11-25, Elicitation, capabilities: an empty object means forms alone.
            if modes.is_empty() || modes.iter().any(|(mode, _)| mode == "form") {
                found.push(Self::Form);
            }
            if revision >= "2025-11-25" && modes.iter().any(|(mode, _)| mode == "url") {
                found.push(Self::Url);
            }
        }
        if let Some(sampling) = members(of("sampling")) {
            found.push(Self::Sampling);
            if revision >= "2025-11-25" && sampling.iter().any(|(part, _)| part == "tools") {
                found.push(Self::SamplingTools);
            }
        }
        if let Some(roots) = members(of("roots")) {
            found.push(Self::Roots);
            if roots.iter().any(|(name, value)| name == "listChanged" && value.get() == "true") {
                found.push(Self::RootsNews);
            }
        }
        found
    }
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

    /// The same client, for the question that its server calls `name`; `None`: names do not reach the client.
    fn naming(&self, _name: &str) -> Option<Arc<dyn Peer>> {
        None
    }
}
