//! The last known catalogue on disk.
