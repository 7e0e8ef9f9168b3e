//! How many calls came each second, for the little curves of `top`.
//!
//! Pure. The clock is the daemon's own (`since_ms` of its figures), so a daemon that was started
//! anew begins a new curve.

use hermes_proto::control as pb;
use std::collections::{BTreeMap, VecDeque};

/// Points that are kept, one for each look.
pub const KEPT: usize = 120;

/// Which characters may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Glyphs {
    /// Blocks and dashes of Unicode.
    Unicode,
    /// Letters and signs that every terminal has.
    Ascii,
}

/// Calls a second, of all and of each server.
#[derive(Debug, Clone, Default)]
pub struct History {
    since_ms: u64,
    all: Series,
    servers: BTreeMap<String, Series>,
}

#[derive(Debug, Clone, Default)]
struct Series {
    calls: u64,
    rates: VecDeque<f64>,
}

impl Series {
    /// `span` in seconds; `None` for the first look, which has nothing to compare with.
    fn add(&mut self, calls: u64, span: Option<f64>) {
        if let Some(span) = span {
            let more = u32::try_from(calls.saturating_sub(self.calls)).unwrap_or(u32::MAX);
            self.rates.push_back(f64::from(more) / span);
        }
        if self.rates.len() > KEPT {
            self.rates.pop_front();
        }
        self.calls = calls;
    }
}

impl History {
    /// Takes the figures of a new look.
    pub fn add(&mut self, stats: &pb::StatsResponse) {
        if stats.since_ms < self.since_ms {
            *self = Self::default();
        }
        let passed = stats.since_ms - self.since_ms;
        let first = self.since_ms == 0;
        if passed == 0 {
            return;
        }
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        let span = (!first).then(|| f64::from(passed) / 1000.0);
        let calls = |figures: &pb::ServerFigures| figures.all.as_ref().map_or(0, |all| all.calls);
        self.all.add(stats.servers.iter().map(calls).sum(), span);
        self.servers.retain(|name, _| stats.servers.iter().any(|figures| figures.server == *name));
        for figures in &stats.servers {
            let series = self.servers.entry(figures.server.clone()).or_default();
            series.add(calls(figures), span);
        }
        self.since_ms = stats.since_ms;
    }

    /// Calls a second between the last two looks, of all servers.
    pub fn rate(&self) -> f64 {
        self.all.rates.back().copied().unwrap_or(0.0)
    }

    /// The curve of all servers in `width` characters, newest at the right.
    pub fn curve(&self, width: usize, glyphs: Glyphs) -> String {
        curve(&self.all.rates, width, glyphs)
    }

    /// The curve of one server; blank for one that was never called.
    pub fn curve_of(&self, server: &str, width: usize, glyphs: Glyphs) -> String {
        self.servers
            .get(server)
            .map_or_else(|| " ".repeat(width), |series| curve(&series.rates, width, glyphs))
    }
}

/// The newest `width` rates as heights between nothing and their own highest.
fn curve(rates: &VecDeque<f64>, width: usize, glyphs: Glyphs) -> String {
    let levels = match glyphs {
        Glyphs::Unicode => ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
        Glyphs::Ascii => ['_', '.', ':', '-', '=', '+', '*', '#'],
    };
    let shown: Vec<f64> = rates.iter().skip(rates.len().saturating_sub(width)).copied().collect();
    let highest = shown.iter().copied().fold(0.0, f64::max);
    let mut out = " ".repeat(width - shown.len());
    out.extend(shown.into_iter().map(|rate| match rate > 0.0 {
        false => ' ',
        true => {
            // A share of at most 1, so the index is at most 7.
            let share = rate / highest;
            levels
                .into_iter()
                .rev()
                .zip((0..8_u32).rev())
                .find(|(_, n)| share * 8.0 > f64::from(*n))
                .map_or(' ', |found| found.0)
        }
    }));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stats(since_ms: u64, calls: &[(&str, u64)]) -> pb::StatsResponse {
        let servers = calls.iter().map(|(server, calls)| pb::ServerFigures {
            server: (*server).to_owned(),
            all: Some(pb::Figures { calls: *calls, ..Default::default() }),
            ..Default::default()
        });
        pb::StatsResponse { servers: servers.collect(), since_ms, ..Default::default() }
    }

    #[test]
    fn a_rate_is_calls_by_the_daemons_own_clock() {
        let mut history = History::default();
        history.add(&stats(1000, &[("a", 100)]));
        assert_eq!(history.rate(), 0.0);
        history.add(&stats(3000, &[("a", 104), ("b", 2)]));
        assert_eq!(history.rate(), 3.0);
        assert_eq!(history.curve_of("a", 3, Glyphs::Ascii), "  #");
        assert_eq!(history.curve_of("b", 3, Glyphs::Ascii), "  #");
        assert_eq!(history.curve_of("never", 3, Glyphs::Ascii), "   ");
    }

    #[test]
    fn a_daemon_that_was_started_anew_begins_a_new_curve() {
        let mut history = History::default();
        history.add(&stats(1000, &[("a", 100)]));
        history.add(&stats(2000, &[("a", 150)]));
        history.add(&stats(500, &[("a", 1)]));
        assert_eq!((history.rate(), history.curve(2, Glyphs::Ascii).as_str()), (0.0, "  "));
        history.add(&stats(1500, &[("a", 2)]));
        assert_eq!((history.rate(), history.curve(2, Glyphs::Ascii).as_str()), (1.0, " #"));
    }

    #[test]
    fn the_highest_of_what_is_shown_is_full_height() {
        let rates = VecDeque::from([100.0, 0.0, 1.0, 4.0, 8.0]);
        assert_eq!(curve(&rates, 4, Glyphs::Unicode), " ▁▄█");
    }

    proptest! {
        #[test]
        fn a_curve_is_as_wide_as_asked(
            steps in proptest::collection::vec((1_u64..5000, 0_u64..1_000_000), 0..200),
            width in 0_usize..80,
        ) {
            let mut history = History::default();
            let (mut since, mut calls) = (0, 0);
            for (span, more) in steps {
                since += span;
                calls += more;
                history.add(&stats(since, &[("a", calls)]));
            }
            for glyphs in [Glyphs::Unicode, Glyphs::Ascii] {
                prop_assert_eq!(history.curve(width, glyphs).chars().count(), width);
                prop_assert_eq!(history.curve_of("a", width, glyphs).chars().count(), width);
            }
            prop_assert!(history.rate() >= 0.0 && history.all.rates.len() <= KEPT);
        }
    }
}
