//! Channels a message could go to.
