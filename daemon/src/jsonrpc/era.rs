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
    fn a_known_revision_is_echoed_and_an_unknown_one_gets_the_latest() {
        for revision in INITIALIZE_REVISIONS {
            assert_eq!(answer_to(revision), revision);
        }
        assert_eq!(answer_to("9999-01-01"), LATEST_INITIALIZE);
        assert_eq!(answer_to(""), LATEST_INITIALIZE);
    }
}
