//! Why a call to a known tool has no answer of its server, and the text a model gets for it.
//!
//! Pure. Every text says what failed, whether the call may have been executed, and when a retry
//! makes sense; `_meta` says the same to programs.

use super::Target;
use super::approval::ApprovalError;
use super::validate::InvalidArguments;
use crate::jsonrpc::reply::Reply;
use crate::jsonrpc::splice::ObjectWriter;
use crate::policy::limits::LimitError;
use crate::server::breaker::Open;
use crate::server::handle::NotReady;
use crate::server::instances::InstancesFull;
use crate::server::slots::SlotError;
use crate::server::turns::TurnError;
use crate::server::wire::{Delivery, WireError};
use std::sync::Arc;
use std::time::Duration;

/// Why a call failed; one variant per step of the road.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server is no longer configured.
    #[error("the server was removed from the configuration")]
    Removed,
    /// Every instance that could serve the caller serves another one.
    #[error("{0}")]
    Instances(#[from] InstancesFull),
    /// Another client has the server.
    #[error("{0}")]
    Turn(#[from] TurnError),
    /// Its texts changed and wait for a person's approval.
    #[error("withheld: {0}")]
    Withheld(Arc<str>),
    /// The breaker refuses calls.
    #[error("cut off after {} failures in a row", .0.failures)]
    BreakerOpen(Open),
    /// A rate limit or quota is used up.
    #[error("{0}")]
    Limit(LimitError),
    /// The arguments do not fit the tool's schema.
    #[error("{0}")]
    InvalidArguments(InvalidArguments),
    /// A person has not allowed it.
    #[error("{0}")]
    Approval(ApprovalError),
    /// No slot within the limits.
    #[error("too many calls at once: {0}")]
    Slot(SlotError),
    /// No live connection.
    #[error("not reachable: {0}")]
    NotReady(NotReady),
    /// The connection gave no answer.
    #[error("{0}")]
    Wire(WireError),
    /// The server wants something from a client first (2026-07-28).
    #[error("the server asks for input before it finishes: {wants}")]
    InputRequired {
        /// Methods of what it asks for.
        wants: String,
    },
}

impl From<Open> for CallError {
    fn from(open: Open) -> Self {
        Self::BreakerOpen(open)
    }
}

impl From<LimitError> for CallError {
    fn from(error: LimitError) -> Self {
        Self::Limit(error)
    }
}

impl From<InvalidArguments> for CallError {
    fn from(error: InvalidArguments) -> Self {
        Self::InvalidArguments(error)
    }
}

impl From<ApprovalError> for CallError {
    fn from(error: ApprovalError) -> Self {
        Self::Approval(error)
    }
}

impl From<SlotError> for CallError {
    fn from(error: SlotError) -> Self {
        Self::Slot(error)
    }
}

impl From<NotReady> for CallError {
    fn from(error: NotReady) -> Self {
        Self::NotReady(error)
    }
}

impl From<WireError> for CallError {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

impl CallError {
    /// Stable word for programs, logs and metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Removed => "removed",
            Self::Withheld(_) => "withheld",
            Self::BreakerOpen(_) => "breaker_open",
            Self::Limit(error) => error.kind(),
            Self::InvalidArguments(_) => "invalid_arguments",
            Self::Approval(error) => error.kind(),
            Self::Instances(_) | Self::Turn(_) | Self::Slot(_) | Self::Wire(WireError::QueueFull { .. }) => {
                "busy"
            }
            Self::NotReady(not_ready) if not_ready.needs_auth() => "needs_auth",
            Self::NotReady(_) => "not_ready",
            Self::InputRequired { .. } => "input_required",
            Self::Wire(WireError::NeedsAuth { .. }) => "needs_auth",
            Self::Wire(WireError::Http(refusal)) if refusal.asks_to_wait() => "rate_limited",
            Self::Wire(WireError::Http(_)) => "http_error",
            Self::Wire(WireError::Unreachable { .. }) => "unreachable",
            Self::Wire(WireError::Interrupted { .. }) => "interrupted",
            Self::Wire(WireError::Gone { .. }) => "server_gone",
            Self::Wire(WireError::IdleTimeout { .. }) => "timeout_idle",
            Self::Wire(WireError::CapTimeout { .. }) => "timeout_cap",
            Self::Wire(WireError::Malformed) => "malformed_answer",
            Self::Wire(WireError::TooLong { .. }) => "answer_too_long",
        }
    }

    /// Whether the server may have acted.
    pub fn delivery(&self) -> Delivery {
        match self {
            Self::Removed
            | Self::Turn(_)
            | Self::Instances(_)
            | Self::Withheld(_)
            | Self::BreakerOpen(_)
            | Self::Limit(_)
            | Self::InvalidArguments(_)
            | Self::Approval(_)
            | Self::Slot(_)
            | Self::NotReady(_) => Delivery::NotWritten,
            Self::Wire(
                WireError::QueueFull { .. } | WireError::NeedsAuth { .. } | WireError::Unreachable { .. },
            ) => Delivery::NotWritten,
            Self::Wire(WireError::Interrupted { .. }) | Self::InputRequired { .. } => Delivery::MaybeWritten,
            Self::Wire(WireError::Http(refusal)) => refusal.delivery,
            Self::Wire(
                WireError::Gone { delivery }
                | WireError::IdleTimeout { delivery, .. }
                | WireError::CapTimeout { delivery, .. },
            ) => *delivery,
            Self::Wire(WireError::Malformed | WireError::TooLong { .. }) => Delivery::MaybeWritten,
        }
    }

    /// When a retry makes sense, where that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::BreakerOpen(open) => Some(open.retry_in),
            Self::NotReady(not_ready) => not_ready.next_step(),
            Self::Limit(error) => error.retry_after(),
            Self::Instances(_) | Self::Turn(_) | Self::Slot(_) | Self::Wire(WireError::QueueFull { .. }) => {
                Some(Duration::from_secs(1))
            }
            Self::Wire(WireError::Http(refusal)) => refusal.retry_after,
            Self::Removed
            | Self::Withheld(_)
            | Self::InvalidArguments(_)
            | Self::InputRequired { .. }
            | Self::Approval(_)
            | Self::Wire(_) => None,
        }
    }

    /// The text for a model.
    pub fn text(&self, server: &str) -> String {
        let executed = match self.delivery() {
            Delivery::NotWritten => "The call was not executed.",
            Delivery::MaybeWritten => {
                "Outcome unknown: the call may or may not have been executed; check before you repeat it."
            }
        };
        match self {
            Self::Removed => {
                format!("MCP server '{server}' was removed from the configuration. {executed} Do not retry.")
            }
            Self::Withheld(why) => format!(
                "Withheld by hermesd, MCP server '{server}': {why}. {executed} Do not retry; ask the user to look at \
                 `hermesctl pins diff {server}`."
            ),
            Self::BreakerOpen(open) => format!(
                "MCP server '{server}' is unreachable after {} consecutive failures. Auto-retry available in ~{}s. \
                 Do NOT retry this tool yet - use alternative approaches or ask the user to check the MCP server. {executed}",
                open.failures,
                whole_secs(open.retry_in)
            ),
            Self::Limit(error) => {
                let when = match error.retry_after() {
                    Some(wait) => format!("Do not retry before {} s have passed.", whole_secs(wait)),
                    None => "Do not retry in this session.".to_owned(),
                };
                format!("Call refused by hermesd: {error}. {executed} {when}")
            }
            Self::InvalidArguments(error) => {
                format!(
                    "The arguments do not fit the tool's schema: {error} {executed} Correct them and call again."
                )
            }
            Self::Approval(error) => format!(
                "This tool of MCP server '{server}' needs a person's approval. Not executed: {error}."
            ),
            Self::Instances(error) => {
                format!("MCP server '{server}' is busy: {error}. {executed} Retry when other calls are done.")
            }
            Self::Turn(error) => {
                format!("MCP server '{server}' is busy: {error}. {executed} Retry when that is over.")
            }
            Self::Slot(error) => {
                format!("MCP server '{server}' is busy: {error}. {executed} Retry when other calls are done.")
            }
            Self::InputRequired { wants } => format!(
                "MCP server '{server}' asks for input ({wants}) before it finishes this call, and hermesd cannot hand that to \
                 this client. The call is not complete. Do not repeat it unchanged."
            ),
            Self::NotReady(NotReady::Failed { failure, .. }) if self.kind() == "needs_auth" => {
                login_text(server, &failure.text, executed)
            }
            Self::Wire(WireError::NeedsAuth { action }) => login_text(server, action, executed),
            Self::Wire(WireError::Http(refusal)) => {
                let when = match refusal.retry_after {
                    Some(wait) => format!(" Do not retry before {} s have passed.", whole_secs(wait)),
                    None => String::new(),
                };
                format!("Call to MCP server '{server}' failed: {refusal}. {executed}{when}")
            }
            Self::NotReady(error) => {
                let when = match self.retry_after() {
                    Some(wait) => format!("The next start is in about {} s.", whole_secs(wait)),
                    None => "Ask the user to look at `hermesctl servers show`.".to_owned(),
                };
                format!("MCP server '{server}' is not available: {error}. {executed} {when}")
            }
            Self::Wire(error @ WireError::QueueFull { .. }) => {
                format!("MCP server '{server}' is busy: {error}. {executed} Retry in a moment.")
            }
            Self::Wire(error @ WireError::TooLong { .. }) => format!(
                "Call to MCP server '{server}' failed: {error}. Ask for less at once; do not repeat the same call."
            ),
            Self::Wire(error) => format!("Call to MCP server '{server}' failed: {error}. {executed}"),
        }
    }

    /// The whole answer; `mask` takes secrets out of what a server or a model wrote.
    pub fn into_reply(
        self,
        target: Target,
        server: &str,
        trace_id: &str,
        mask: &dyn Fn(&str) -> String,
    ) -> Reply {
        let mut meta = ObjectWriter::default();
        meta.string("kind", self.kind()).string("server", server);
        if let Some(wait) = self.retry_after() {
            meta.member("retry_after_ms", &wait.as_millis().to_string());
        }
        meta.string("delivery", super::record::word(self.delivery())).string("trace_id", trace_id);
        let text = mask(&self.text(server));
        if target != Target::Tool {
            // Only tools have results that can say "error".
            let mut error = ObjectWriter::default();
            error.member("code", "-32000").string("message", &text).member("data", meta.finish().get());
            return Reply::Error(error.finish());
        }
        let mut block = ObjectWriter::default();
        block.string("type", "text").string("text", &text);
        let mut result = ObjectWriter::default();
        result
            .member("content", &format!("[{}]", block.finish().get()))
            .member("isError", "true")
            .member("_meta", meta.finish().get());
        Reply::Result(result.finish())
    }
}

/// What a person can do, and that nobody else can.
fn login_text(server: &str, action: &str, executed: &str) -> String {
    format!("MCP server '{server}' needs a login. {executed} Do not retry; ask the user: {action}.")
}

/// Seconds, rounded up, so that a retry after them is never too early; at least 1.
fn whole_secs(wait: Duration) -> u64 {
    wait.as_millis().div_ceil(1000).max(1) as u64
}
