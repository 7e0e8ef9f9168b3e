//! Key (shared, session, root) to supervisor.
