//! The opaque resume string.
