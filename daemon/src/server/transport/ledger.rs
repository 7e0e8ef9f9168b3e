//! The durable record of own children, and the start-up reaper.
