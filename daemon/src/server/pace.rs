//! How often something may be passed on: a burst at once, then one now and then.
//!
//! Pure: the clock comes in.

use std::time::{Duration, Instant};

/// A bucket of `burst` tokens that gains one `every` so often.
#[derive(Debug, Clone)]
pub struct Pace {
    burst: u32,
    every: Duration,
    /// When the bucket would be full again.
    full_at: Option<Instant>,
}

impl Pace {
    /// A full bucket. `burst` is at least 1.
    pub fn new(burst: u32, every: Duration) -> Self {
        Self { burst: burst.max(1), every, full_at: None }
    }

    /// Takes a token, or says when there will be one.
    ///
    /// # Errors
    /// The instant from which on a token is there, always after `now`.
    pub fn take(&mut self, now: Instant) -> Result<(), Instant> {
        let full_at = self.full_at.filter(|at| *at > now).unwrap_or(now);
        // One token is there as long as at most `burst - 1` of them are missing.
        let next = full_at.checked_sub(self.every * (self.burst - 1)).unwrap_or(now);
        if next > now {
            return Err(next);
        }
        self.full_at = Some(full_at + self.every);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_more_pass_than_the_burst_and_one_a_period(
            burst in 1u32..6, gaps in proptest::collection::vec(0u64..400, 1..80),
        ) {
            let every = Duration::from_millis(100);
            let mut pace = Pace::new(burst, every);
            let start = Instant::now();
            let (mut now, mut passed) = (start, 0u32);
            for gap in gaps {
                now += Duration::from_millis(gap);
                match pace.take(now) {
                    Ok(()) => passed += 1,
                    Err(at) => {
                        prop_assert!(at > now && at <= now + every);
                        prop_assert!(pace.clone().take(at).is_ok());
                    }
                }
                let allowed = burst + u32::try_from((now - start).as_millis() / every.as_millis()).unwrap();
                prop_assert!(passed <= allowed, "{passed} of {allowed}");
            }
        }
    }

    #[test]
    fn a_burst_passes_at_once_and_the_next_after_the_period() {
        let mut pace = Pace::new(2, Duration::from_secs(1));
        let now = Instant::now();
        assert_eq!((pace.take(now), pace.take(now)), (Ok(()), Ok(())));
        assert_eq!(pace.take(now), Err(now + Duration::from_secs(1)));
    }
}
