//! A histogram of durations with a bounded relative error and no setup.
//!
//! Pure. Buckets double every [`STEPS`] steps from a microsecond up; memory grows only to the longest
//! duration seen. Promise: a percentile is at most 1/16 above the true one, never below it, and never above the
//! longest duration.

use std::time::Duration;

/// Buckets between two powers of two.
const STEPS: u64 = 16;
/// Bits of [`STEPS`].
const STEP_BITS: u32 = STEPS.trailing_zeros();

/// Durations, counted in buckets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogHistogram {
    buckets: Vec<u32>,
    count: u64,
    max: Duration,
}

impl LogHistogram {
    /// Counts `duration`.
    pub fn record(&mut self, duration: Duration) {
        let index = bucket_of(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
        if index >= self.buckets.len() {
            self.buckets.resize(index + 1, 0);
        }
        self.buckets[index] = self.buckets[index].saturating_add(1);
        self.count += 1;
        self.max = self.max.max(duration);
    }

    /// Adds everything `other` counted.
    pub fn merge(&mut self, other: &Self) {
        if other.buckets.len() > self.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine = mine.saturating_add(*theirs);
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The duration that `per_mille` of 1000 do not exceed; zero if nothing was counted.
    pub fn percentile(&self, per_mille: u16) -> Duration {
        // The rank of the wanted one, from 1: rounded up, so that p99 of three is the third.
        let rank = (u128::from(self.count) * u128::from(per_mille.min(1000))).div_ceil(1000).max(1);
        let mut seen = 0_u128;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += u128::from(*count);
            if seen >= rank {
                return Duration::from_micros(top_of(index)).min(self.max);
            }
        }
        self.max
    }
}

/// The first [`STEPS`] buckets hold one microsecond each.
fn bucket_of(micros: u64) -> usize {
    let Some(power) = micros.checked_ilog2().filter(|power| *power >= STEP_BITS) else {
        return usize::try_from(micros).expect("below STEPS");
    };
    let shift = power - STEP_BITS;
    let step = (micros >> shift) - STEPS;
    usize::try_from(u64::from(shift + 1) * STEPS + step).expect("at most 61 doublings of STEPS")
}

/// The largest number of microseconds in a bucket.
fn top_of(index: usize) -> u64 {
    let index = index as u64;
    if index < STEPS {
        return index;
    }
    let shift = u32::try_from(index / STEPS - 1).expect("at most 61 doublings");
    let bottom = (STEPS + index % STEPS) << shift;
    bottom + ((1_u64 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn micros() -> impl Strategy<Value = u64> {
        prop_oneof![0_u64..100, 0_u64..10_000_000, any::<u64>()]
    }

    fn filled(all: &[u64]) -> LogHistogram {
        let mut histogram = LogHistogram::default();
        all.iter().for_each(|micros| histogram.record(Duration::from_micros(*micros)));
        histogram
    }

    proptest! {
        #[test]
        fn every_duration_lies_in_its_bucket_and_buckets_touch(micros in micros()) {
            let index = bucket_of(micros);
            prop_assert!(micros <= top_of(index));
            prop_assert!(index == 0 || micros > top_of(index - 1));
        }

        #[test]
        fn a_percentile_is_at_most_a_sixteenth_too_high(
            mut all in proptest::collection::vec(micros(), 1..200),
            per_mille in 1_u16..=1000,
        ) {
            let found = filled(&all).percentile(per_mille);
            all.sort_unstable();
            let rank = (all.len() * usize::from(per_mille)).div_ceil(1000).max(1);
            let exact = all[rank - 1];
            prop_assert!(found >= Duration::from_micros(exact));
            let most = exact.saturating_add(exact / 16 + 1);
            prop_assert!(found <= Duration::from_micros(most), "{found:?} for {exact}");
        }

        #[test]
        fn merging_is_the_same_as_counting_together(
            a in proptest::collection::vec(micros(), 0..50),
            b in proptest::collection::vec(micros(), 0..50),
        ) {
            let mut merged = filled(&a);
            merged.merge(&filled(&b));
            prop_assert_eq!(merged, filled(&[a, b].concat()));
        }
    }

    #[test]
    fn nothing_counted_is_zero() {
        assert_eq!(LogHistogram::default().percentile(500), Duration::ZERO);
    }
}
