//! Pure: when a call may be repeated.
//!
//! Promise: at most once. A call goes to a server a second time only if no byte of it was written
//! the first time, or if the server declared the tool harmless to repeat and the user said that such
//! declarations are to be believed.

use crate::catalog::snapshot::ToolHints;
use crate::server::wire::{Delivery, WireError};

/// Attempts of one call, the first included.
pub const MAX_ATTEMPTS: u32 = 2;

/// What a server says about a tool; absent means false, as MCP has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hints {
    /// `annotations.readOnlyHint`
    pub read_only: bool,
    /// `annotations.idempotentHint`
    pub idempotent: bool,
}

impl From<ToolHints> for Hints {
    fn from(hints: ToolHints) -> Self {
        Self { read_only: hints.read_only == Some(true), idempotent: hints.idempotent == Some(true) }
    }
}

/// `trust_annotations` of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Hints are text of a stranger.
    None,
    /// Hints count.
    Annotations,
}

/// What to do after an attempt without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Send it again, to a live connection.
    Repeat,
    /// Give up; the server never saw it.
    NotExecuted,
    /// Give up; nobody knows whether it was executed.
    OutcomeUnknown,
}

/// Decides after attempt number `attempts` (from 1) ended with `error`.
pub fn decide(error: &WireError, hints: Hints, trust: Trust, attempts: u32) -> Decision {
    let delivery = match error {
        WireError::Gone { delivery } => *delivery,
        // The time is used up; a second attempt would double what the caller waits for.
        WireError::IdleTimeout { delivery, .. } | WireError::CapTimeout { delivery, .. } => {
            return given_up(*delivery);
        }
        // Our own queue: asking again at once only makes it longer.
        WireError::QueueFull { .. } => return Decision::NotExecuted,
        // It was answered, so it was executed.
        WireError::Malformed | WireError::TooLong { .. } => return Decision::OutcomeUnknown,
        WireError::Unreachable { .. } => Delivery::NotWritten,
        WireError::Interrupted { .. } => Delivery::MaybeWritten,
        // The server has spoken: the same again would be refused again.
        WireError::NeedsAuth { .. } => return Decision::NotExecuted,
        WireError::Http(refusal) => {
            return match refusal.delivery {
                Delivery::NotWritten => Decision::NotExecuted,
                Delivery::MaybeWritten => Decision::OutcomeUnknown,
            };
        }
    };
    let harmless = trust == Trust::Annotations && (hints.read_only || hints.idempotent);
    if attempts < MAX_ATTEMPTS && (delivery == Delivery::NotWritten || harmless) {
        Decision::Repeat
    } else {
        given_up(delivery)
    }
}

fn given_up(delivery: Delivery) -> Decision {
    match delivery {
        Delivery::NotWritten => Decision::NotExecuted,
        Delivery::MaybeWritten => Decision::OutcomeUnknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const READ: Hints = Hints { read_only: true, idempotent: false };
    const AGAIN: Hints = Hints { read_only: false, idempotent: true };

    fn gone(delivery: Delivery) -> WireError {
        WireError::Gone { delivery }
    }

    #[test]
    fn what_was_not_written_is_repeated_once() {
        let lost = gone(Delivery::NotWritten);
        assert_eq!(decide(&lost, Hints::default(), Trust::None, 1), Decision::Repeat);
        assert_eq!(decide(&lost, Hints::default(), Trust::None, 2), Decision::NotExecuted);
    }

    #[test]
    fn what_may_have_been_written_is_repeated_only_for_trusted_harmless_tools() {
        let lost = gone(Delivery::MaybeWritten);
        for (hints, trust, decision) in [
            (Hints::default(), Trust::Annotations, Decision::OutcomeUnknown),
            (READ, Trust::None, Decision::OutcomeUnknown),
            (READ, Trust::Annotations, Decision::Repeat),
            (AGAIN, Trust::Annotations, Decision::Repeat),
        ] {
            assert_eq!(decide(&lost, hints, trust, 1), decision);
            assert_eq!(decide(&lost, hints, trust, 2), Decision::OutcomeUnknown);
        }
    }

    #[test]
    fn timeouts_full_queues_and_broken_answers_are_never_repeated() {
        let second = Duration::from_secs(1);
        for (delivery, decision) in [
            (Delivery::NotWritten, Decision::NotExecuted),
            (Delivery::MaybeWritten, Decision::OutcomeUnknown),
        ] {
            for error in [
                WireError::IdleTimeout { limit: second, elapsed: second, delivery },
                WireError::CapTimeout { limit: second, elapsed: second, delivery },
            ] {
                assert_eq!(decide(&error, READ, Trust::Annotations, 1), decision);
            }
        }
        let full = WireError::QueueFull { waiting: 1, limit: 1, unit: "requests" };
        assert_eq!(decide(&full, READ, Trust::Annotations, 1), Decision::NotExecuted);
        assert_eq!(decide(&WireError::Malformed, READ, Trust::Annotations, 1), Decision::OutcomeUnknown);
    }
}
