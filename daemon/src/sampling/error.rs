//! Why a server does not get what it asked a model for.
//!
//! Pure. The texts go to the server that asked, which is a stranger: they name our limits and nothing of
//! what the provider said; that stands in the log.

use crate::jsonrpc::reply::{INTERNAL_ERROR, INVALID_PARAMS, Reply};
use std::time::Duration;

/// JSON-RPC code of "the user does not want it" (MCP 2025-11-25, Sampling, error handling).
const REFUSED: i32 = -1;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SamplingError {
    /// `sampling.enabled` is off.
    #[error("sampling is switched off for this server")]
    Disabled,
    /// Neither a client may be asked nor is a provider configured.
    #[error("nobody can answer: the client offers no sampling, and hermesd has no `sampling_provider`")]
    Nobody,
    /// Unusable parameters.
    #[error("the request cannot be used: {reason}")]
    Params {
        /// What is wrong, one clause.
        reason: String,
    },
    /// `sampling.max_rpm` is used up.
    #[error("{limit} sampling requests a minute are allowed; the next one in {} s", retry_after.as_secs() + 1)]
    Rate {
        /// The limit in force.
        limit: u32,
        /// When the same request would pass.
        retry_after: Duration,
    },
    /// Too many of all servers are under way.
    #[error("{limit} sampling requests are under way already")]
    Busy {
        /// The limit.
        limit: usize,
    },
    /// The configured model, or the one that answered, is not in `sampling.allowed_models`.
    #[error("the model `{model}` is not in `sampling.allowed_models`")]
    Model {
        /// Its name.
        model: String,
    },
    /// `sampling.max_tool_rounds` is 0.
    #[error("tools in sampling requests are not allowed for this server")]
    Tools,
    /// `sampling.max_tool_rounds` rounds have passed.
    #[error("{limit} rounds of tool use in one conversation are allowed")]
    Rounds {
        /// The limit.
        limit: u32,
    },
    /// Nothing came within `sampling.timeout`.
    #[error("no answer within {limit:?}")]
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// A person said no, or nobody said anything.
    #[error("the request was not approved")]
    NotApproved,
    /// The client is gone, or cannot be asked now.
    #[error("the client cannot be asked: {reason}")]
    Client {
        /// Why, one clause.
        reason: String,
    },
    /// The client's answer is no sampling result.
    #[error("the client's answer is no sampling result")]
    ClientAnswer,
    /// The provider did not answer usably.
    #[error("the model's provider {0}")]
    Provider(#[from] ProviderError),
}

/// What the provider did.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// Its address, certificates or proxy cannot be used.
    #[error("is not set up rightly")]
    Setup,
    /// No connection, or it was lost.
    #[error("cannot be reached")]
    Unreachable,
    /// It refuses our key.
    #[error("refuses the configured key (status {status})")]
    Key {
        /// 401 or 403.
        status: u16,
    },
    /// It wants fewer requests.
    #[error("is at its own rate limit")]
    Limited,
    /// Another status.
    #[error("answered with status {status}")]
    Status {
        /// It.
        status: u16,
    },
    /// More than is read.
    #[error("answered more than {limit} bytes")]
    TooLarge {
        /// What is read.
        limit: usize,
    },
    /// Not what a chat completion looks like.
    #[error("answered something that is no chat completion")]
    NotChat,
    /// A completion without a choice, or a choice without text and tools.
    #[error("answered nothing")]
    Empty,
}

impl SamplingError {
    /// Stable word for logs, audit and metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Nobody => "nobody",
            Self::Params { .. } => "invalid_params",
            Self::Rate { .. } => "rate_limit",
            Self::Busy { .. } => "busy",
            Self::Model { .. } => "model_refused",
            Self::Tools => "tools_refused",
            Self::Rounds { .. } => "tool_rounds",
            Self::TimedOut { .. } => "timeout",
            Self::NotApproved => "not_approved",
            Self::Client { .. } => "client_gone",
            Self::ClientAnswer => "client_answer",
            Self::Provider(_) => "provider_error",
        }
    }

    /// The answer to the server.
    pub fn reply(&self) -> Reply {
        let code = match self {
            Self::Disabled
            | Self::Rate { .. }
            | Self::Busy { .. }
            | Self::Model { .. }
            | Self::Rounds { .. }
            | Self::NotApproved => REFUSED,
            // What was not declared must not be asked for.
            Self::Params { .. } | Self::Tools | Self::Nobody => INVALID_PARAMS,
            Self::TimedOut { .. } | Self::Client { .. } | Self::ClientAnswer | Self::Provider(_) => {
                INTERNAL_ERROR
            }
        };
        Reply::error(code, &self.to_string())
    }
}
