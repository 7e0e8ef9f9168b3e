//! Calls whose server waits for its client.
