//! Calls in flight per server, queued fairly between clients.
