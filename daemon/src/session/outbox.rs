//! The bounded queue of bytes to one client.
