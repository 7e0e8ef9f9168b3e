//! What the rest of the daemon sees of a server.
