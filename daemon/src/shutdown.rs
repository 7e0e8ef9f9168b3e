//! The order in which the daemon ends.
