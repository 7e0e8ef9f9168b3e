//! The only reader of state.db.
