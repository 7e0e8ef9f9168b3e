//! Who is at the other end of a Unix socket.
