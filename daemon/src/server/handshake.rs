//! initialize with a fresh server: revision, capabilities.
