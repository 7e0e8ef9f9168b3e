//! Ids: the client's raw form and our own.
