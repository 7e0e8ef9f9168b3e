//! Raw file to `Config`, all errors at once.
