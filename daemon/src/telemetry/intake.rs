//! What of a server's output is kept: repeated lines are folded, floods are held back, both are counted.
//!
//! Pure: `now` comes from the caller. Promise: every line is either kept or counted in exactly one
//! [`Report`]; deciding costs one comparison, so that 10 MB/s do no harm.

use std::time::Duration;
use tokio::time::Instant;

/// How much one server may write into its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Bytes a second in the long run. Default 256 KiB.
    pub bytes_per_second: u64,
    /// Bytes at once. Default 2 MiB.
    pub burst: u64,
}

impl Default for Rate {
    fn default() -> Self {
        Self { bytes_per_second: 256 * 1024, burst: 2 * 1024 * 1024 }
    }
}

/// What a line costs besides its bytes: the timestamp and the work.
const LINE_COST: u64 = 64;

/// Lines that were not kept since the last report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// How often the last kept line came again.
    pub repeats: u64,
    /// Lines held back because there were too many.
    pub held_back: u64,
    /// Their bytes.
    pub held_back_bytes: u64,
}

impl Report {
    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The report as log lines.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let times = |n: u64| if n == 1 { "once more".to_owned() } else { format!("{n} times") };
        let repeated = (self.repeats > 0).then(|| format!("-- last line repeated {}", times(self.repeats)));
        let held_back = (self.held_back > 0).then(|| {
            let lines = if self.held_back == 1 { "line" } else { "lines" };
            format!(
                "-- {} {lines} ({} bytes) left out: too much at once",
                self.held_back, self.held_back_bytes
            )
        });
        repeated.into_iter().chain(held_back)
    }
}

/// What becomes of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Keep it, after this report.
    Keep(Report),
    /// Counted, the first since the last report: somebody should fetch the report in a while.
    FirstCounted,
    /// Counted.
    Counted,
}

/// The state of one log.
#[derive(Debug)]
pub struct Intake {
    rate: Rate,
    /// Bytes that may still be kept now.
    tokens: u64,
    filled_at: Instant,
    last: Vec<u8>,
    /// Whether `last` is a kept line; after a held-back one a repetition would mean the wrong line.
    last_kept: bool,
    /// The newest line that was held back: after a flood the last words matter most.
    last_held: Vec<u8>,
    report: Report,
}

impl Intake {
    /// An empty log at `now`.
    pub fn new(rate: Rate, now: Instant) -> Self {
        Self {
            rate,
            tokens: rate.burst,
            filled_at: now,
            last: Vec::new(),
            last_kept: false,
            last_held: Vec::new(),
            report: Report::default(),
        }
    }

    /// Decides about `line`, cut to what will be kept of it.
    pub fn admit(&mut self, line: &[u8], now: Instant) -> Admission {
        let first = self.report.is_empty();
        let counted = if first { Admission::FirstCounted } else { Admission::Counted };
        if self.last_kept && self.last == line {
            self.report.repeats += 1;
            return counted;
        }
        self.fill(now);
        let cost = line.len() as u64 + LINE_COST;
        if cost > self.tokens {
            self.report.held_back += 1;
            self.report.held_back_bytes += line.len() as u64;
            self.last_kept = false;
            self.last_held.clear();
            self.last_held.extend_from_slice(line);
            return counted;
        }
        self.tokens -= cost;
        self.last.clear();
        self.last.extend_from_slice(line);
        self.last_kept = true;
        self.last_held.clear();
        Admission::Keep(std::mem::take(&mut self.report))
    }

    /// What was counted since the last report.
    pub fn take_report(&mut self) -> Report {
        std::mem::take(&mut self.report)
    }

    /// The newest line that was held back, if no kept one came after it; given out once.
    pub fn take_last_held(&mut self) -> Option<Vec<u8>> {
        let line = std::mem::take(&mut self.last_held);
        (!line.is_empty()).then_some(line)
    }

    /// Gives a report back that could not be delivered.
    pub fn put_back(&mut self, report: Report) {
        self.report.repeats += report.repeats;
        self.report.held_back += report.held_back;
        self.report.held_back_bytes += report.held_back_bytes;
    }

    /// Forgets the last line: something else was written after it.
    pub fn interrupted(&mut self) {
        self.last_kept = false;
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled_at);
        let per_byte = Duration::from_secs(1).as_nanos() / u128::from(self.rate.bytes_per_second.max(1));
        let gained = passed.as_nanos() / per_byte.max(1);
        if gained > 0 {
            self.tokens =
                self.tokens.saturating_add(u64::try_from(gained).unwrap_or(u64::MAX)).min(self.rate.burst);
            self.filled_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RATE: Rate = Rate { bytes_per_second: 1000, burst: 1000 };

    #[test]
    fn a_repeated_line_is_kept_once_and_counted() {
        let now = Instant::now();
        let mut intake = Intake::new(RATE, now);
        assert_eq!(intake.admit(b"a", now), Admission::Keep(Report::default()));
        assert_eq!(intake.admit(b"a", now), Admission::FirstCounted);
        assert_eq!(intake.admit(b"a", now), Admission::Counted);
        let report = Report { repeats: 2, ..Report::default() };
        assert_eq!(intake.admit(b"b", now), Admission::Keep(report));
        assert_eq!(report.lines().collect::<Vec<_>>(), ["-- last line repeated 2 times"]);
    }

    #[test]
    fn a_flood_is_held_back_until_time_passes_and_then_reported() {
        let now = Instant::now();
        let mut intake = Intake::new(RATE, now);
        let kept = (0..100).filter(|i| matches!(intake.admit(&[*i; 36], now), Admission::Keep(_))).count();
        assert_eq!(kept, 10);
        let later = now + Duration::from_millis(100);
        let report = Report { held_back: 90, held_back_bytes: 90 * 36, ..Report::default() };
        assert_eq!(intake.admit(b"x", later), Admission::Keep(report));
        assert!(report.lines().next().unwrap().contains("90 lines (3240 bytes)"));
    }

    #[test]
    fn a_line_equal_to_a_held_back_one_does_not_count_as_a_repetition() {
        let now = Instant::now();
        let mut intake = Intake::new(Rate { bytes_per_second: 1, burst: 70 }, now);
        assert!(matches!(intake.admit(b"a", now), Admission::Keep(_)));
        intake.admit(b"b", now);
        intake.admit(b"b", now);
        intake.admit(b"a", now);
        let report = intake.take_report();
        assert_eq!((report.repeats, report.held_back), (0, 3));
        assert_eq!(intake.take_last_held().as_deref(), Some(b"a".as_slice()), "the last words");
        assert_eq!(intake.take_last_held(), None);
    }

    #[test]
    fn after_something_else_was_written_the_same_line_is_kept_again() {
        let now = Instant::now();
        let mut intake = Intake::new(RATE, now);
        intake.admit(b"a", now);
        intake.interrupted();
        assert_eq!(intake.admit(b"a", now), Admission::Keep(Report::default()));
    }

    proptest! {
        #[test]
        fn every_line_is_kept_or_counted_once_and_the_rate_holds(
            lines in proptest::collection::vec((0u8..3, 0usize..50, 0u64..200), 0..200),
        ) {
            let start = Instant::now();
            let mut now = start;
            let mut intake = Intake::new(RATE, now);
            let (mut kept, mut counted, mut bytes) = (0u64, 0u64, 0u64);
            for (byte, length, wait) in &lines {
                now += Duration::from_millis(*wait);
                if let Admission::Keep(report) = intake.admit(&vec![*byte; *length], now) {
                    kept += 1;
                    bytes += *length as u64 + LINE_COST;
                    counted += report.repeats + report.held_back;
                }
            }
            let report = intake.take_report();
            counted += report.repeats + report.held_back;
            prop_assert_eq!(kept + counted, lines.len() as u64);
            let seconds = (now - start).as_secs() + 1;
            prop_assert!(bytes <= RATE.burst + seconds * RATE.bytes_per_second);
        }
    }
}
