//! The task that owns one server instance's life and death.
