//! The immutable catalogue that sessions read.
