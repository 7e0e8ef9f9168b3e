//! Which conversations exist.
