//! Pure: old and new configuration to a plan.
