//! Why a start or a running server failed, and what that means for the next try.
//!
//! Pure data; `lifecycle` decides with it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What a failure means for the next try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// May heal by itself.
    Transient,
    /// A retry cannot mend it: not found, not executable, exit 126/127, refused configuration.
    Permanent,
    /// A person must log in: 401.
    NeedsAuth,
}

/// Why a start or a running server failed. The text holds no secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What it means for the next try.
    pub kind: FailureKind,
    /// One sentence for a person.
    pub text: Arc<str>,
    /// Not to be tried before: what a remote server asked for (`Retry-After`), at most 1 h.
    pub wait: Option<Duration>,
}

impl Failure {
    /// May heal by itself.
    pub fn transient(text: impl Into<Arc<str>>) -> Self {
        Self { kind: FailureKind::Transient, text: text.into(), wait: None }
    }

    /// Waits for a person; `action` says for what.
    pub fn needs_auth(action: impl Into<Arc<str>>) -> Self {
        Self { kind: FailureKind::NeedsAuth, text: action.into(), wait: None }
    }

    /// The same failure, with the time that the server asked for.
    #[must_use]
    pub fn after(self, wait: Option<Duration>) -> Self {
        Self { wait, ..self }
    }

    /// Parks at once.
    pub fn permanent(text: impl Into<Arc<str>>) -> Self {
        Self { kind: FailureKind::Permanent, text: text.into(), wait: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
