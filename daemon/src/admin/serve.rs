//! Listens on control.sock.
