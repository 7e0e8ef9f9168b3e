//! Calls that wait for a person.
