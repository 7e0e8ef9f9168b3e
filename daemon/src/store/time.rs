//! Points in time as hermesd.db stores them.
//!
//! Pure: the clock comes in.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970-01-01 UTC by the machine's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UnixMs(pub i64);

impl UnixMs {
    /// `time` in milliseconds; the year 292 million and later come out as the largest value.
    pub fn at(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Self(i64::try_from(since.as_millis()).unwrap_or(i64::MAX)),
            Err(before) => {
                Self(i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX).saturating_neg())
            }
        }
    }

    /// The point `age` earlier.
    #[must_use]
    pub fn minus(self, age: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX)))
    }
}

/// A calendar day: days since 1970-01-01, in whatever time zone the quota counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub i32);
