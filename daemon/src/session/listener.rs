//! Accepts shims, checks the peer, reads the hello.
