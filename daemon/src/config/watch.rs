//! Says when the file may have changed.

/// Placeholder.
#[derive(Debug)]
pub struct Watcher;
