//! Why a request has no answer, and what is known of a remote server's refusals.
//!
//! One variant for each thing a caller would do about it.

use std::time::Duration;
use tokio::time::Instant;

/// Whether the server may have acted on a request. Decides if a repeat is safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// No byte of it reached the pipe.
    NotWritten,
    /// Some or all of it did.
    MaybeWritten,
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The server ended, or its connection did.
    #[error("the server ended during the request")]
    Gone {
        /// Whether it may have acted.
        delivery: Delivery,
    },
    /// Nothing was heard for longer than the idle limit.
    #[error("no answer and no progress for {limit:?} (waited {elapsed:?} in all)")]
    IdleTimeout {
        /// The limit that fired.
        limit: Duration,
        /// Since the request was accepted.
        elapsed: Duration,
        /// Whether it may have acted.
        delivery: Delivery,
    },
    /// The absolute limit was reached although the server reported progress.
    #[error("no answer within the absolute limit of {limit:?} (waited {elapsed:?})")]
    CapTimeout {
        /// The limit that fired.
        limit: Duration,
        /// Since the request was accepted.
        elapsed: Duration,
        /// Whether it may have acted.
        delivery: Delivery,
    },
    /// The server does not read fast enough; nothing was written.
    #[error("the server does not read fast enough: {waiting} {unit} wait to be written, limit {limit}")]
    QueueFull {
        /// How much waits.
        waiting: usize,
        /// The limit.
        limit: usize,
        /// What is counted: `requests` or `bytes`.
        unit: &'static str,
    },
    /// The answer was longer than a line may be; its content is gone.
    #[error("the answer has {bytes} bytes, the limit is {limit}; the request was executed")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The answer had neither a result nor an error.
    #[error("the server's answer has neither a result nor an error")]
    Malformed,
    /// A remote server answered with an HTTP status, or a page, in place of a message.
    #[error("{0}")]
    Http(HttpRefusal),
    /// A remote server wants a login.
    #[error("the server wants a login: {action}")]
    NeedsAuth {
        /// What a person can do.
        action: String,
    },
    /// No connection to a remote server could be made; nothing was sent.
    #[error("no connection: {reason}")]
    Unreachable {
        /// The system's words.
        reason: String,
    },
    /// The connection broke after the request was sent.
    #[error("the connection broke: {reason}")]
    Interrupted {
        /// The system's words.
        reason: String,
    },
}

/// An HTTP answer that is no message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRefusal {
    /// Its status.
    pub status: u16,
    /// What it says, in a few words; from the server, so mask before showing.
    pub text: String,
    /// When the server wants to be asked again, at most [`MAX_RETRY_AFTER`](crate::server::transport::http::answer::MAX_RETRY_AFTER).
    pub retry_after: Option<Duration>,
    /// Whether it may have acted all the same.
    pub delivery: Delivery,
}

impl HttpRefusal {
    /// Whether the server is well and wants to be asked later.
    pub fn asks_to_wait(&self) -> bool {
        self.status == 429 || self.retry_after.is_some()
    }
}

impl std::fmt::Display for HttpRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the server answered HTTP {}", self.status)?;
        if !self.text.is_empty() {
            write!(f, ": {}", self.text)?;
        }
        Ok(())
    }
}

/// An HTTP answer that a person should know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSeen {
    /// Its status.
    pub status: u16,
    /// What it said; from the server, so mask before showing.
    pub text: String,
    /// When.
    pub at: Instant,
}
