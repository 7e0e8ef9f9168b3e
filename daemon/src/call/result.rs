//! Outcome to the answer a client gets.
