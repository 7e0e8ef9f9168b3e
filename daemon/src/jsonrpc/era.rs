//! The protocol revisions hermesd speaks and how one is agreed on.
//!
//! Pure. Source: MCP 2025-11-25, Lifecycle, version negotiation: the server answers the requested
//! revision if it supports it, else its own latest.

/// Revisions with the initialize handshake, oldest first.
pub const INITIALIZE_REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// What hermesd asks servers for and offers clients at most.
pub const LATEST_INITIALIZE: &str = "2025-11-25";

/// The revision without a handshake.
pub const PER_REQUEST: &str = "2026-07-28";

/// All revisions hermesd speaks, newest first.
pub const ALL: [&str; 5] = [PER_REQUEST, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// Members of `_meta` by which messages speak for themselves (2026-07-28, Overview, reserved keys).
pub mod meta {
    /// Revision of a request.
    pub const REVISION: &str = "io.modelcontextprotocol/protocolVersion";
    /// Name and version of whoever asks.
    pub const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
    /// What whoever asks can be asked.
    pub const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// The least grave log lines that are wanted for a request.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// The `subscriptions/listen` that a notification belongs to.
    pub const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
    /// Name and version of whoever answers.
    pub const SERVER: &str = "io.modelcontextprotocol/serverInfo";
}

/// How a session with a peer runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// `initialize` opens a session (up to 2025-11-25).
    Initialize,
    /// Every request says for itself who asks and in which revision (from 2026-07-28).
    PerRequest,
}

/// A revision both sides know.
pub fn known(revision: &str) -> Option<&'static str> {
    INITIALIZE_REVISIONS.into_iter().find(|known| *known == revision)
}

/// What hermesd as a server answers to a client that asks for `requested`.
pub fn answer_to(requested: &str) -> &'static str {
    known(requested).unwrap_or(LATEST_INITIALIZE)
}

/// Whether a peer of this revision may send JSON-RPC batches (2025-03-26 only).
pub fn allows_batches(revision: &str) -> bool {
    revision == "2025-03-26"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_revisions_are_those_of_both_eras() {
        assert_eq!(ALL[0], PER_REQUEST);
        assert!(ALL[1..].iter().rev().eq(&INITIALIZE_REVISIONS));
    }

    #[test]
    fn a_known_revision_is_echoed_and_an_unknown_one_gets_the_latest() {
        for revision in INITIALIZE_REVISIONS {
            assert_eq!(answer_to(revision), revision);
        }
        assert_eq!(answer_to("9999-01-01"), LATEST_INITIALIZE);
        assert_eq!(answer_to(""), LATEST_INITIALIZE);
    }
}
