//! Pure: when a call may be repeated.
