//! Which method is answered where.
