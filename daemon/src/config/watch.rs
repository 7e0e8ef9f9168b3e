//! Says when the file may have changed.
