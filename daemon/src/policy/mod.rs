//! Pure decisions before a call: limits, approvals, pins, scan, profiles.

pub mod approvals;
pub mod limits;
pub mod pins;
pub mod profiles;
pub mod scan;
