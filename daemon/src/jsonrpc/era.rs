//! The protocol revisions and what changes between them.
