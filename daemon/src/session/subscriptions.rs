//! What one client subscribed to.
