//! Latencies and error classes by server and tool, since the daemon started.
//!
//! Owner: [`Stats`], cheap to clone. Promise: counting a call through a [`ToolStats`] touches no map of
//! tools; memory is bounded whatever servers call their tools. May not touch: what it counts.

use super::log_histogram::LogHistogram;
use crate::names::ServerName;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Tools kept apart; further ones count together as [`OTHER`], one for each server.
pub const TOOL_LIMIT: usize = 5_000;
/// Kinds of outcome kept apart for one tool.
const OUTCOME_LIMIT: usize = 32;
/// Name of what is beyond a limit.
pub const OTHER: &str = "_other";
/// The outcome that is none of the error classes.
pub const OK: &str = "ok";

/// The figures of all tools.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    tools: Arc<Mutex<Tools>>,
}

#[derive(Debug, Default)]
struct Tools {
    by_server: BTreeMap<ServerName, BTreeMap<Arc<str>, ToolStats>>,
    count: usize,
}

/// The figures of one tool; to be kept beside its route.
#[derive(Debug, Clone, Default)]
pub struct ToolStats {
    figures: Arc<Mutex<Figures>>,
}

#[derive(Debug, Clone, Default)]
struct Figures {
    latency: LogHistogram,
    /// Few, so that a search in order beats a map.
    outcomes: Vec<(&'static str, u64)>,
}

/// Figures at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Calls.
    pub calls: u64,
    /// Half of the calls took at most this. This and the next two are at most 1/16 too high.
    pub p50: Duration,
    /// 95 of 100 calls took at most this.
    pub p95: Duration,
    /// 99 of 100 calls took at most this.
    pub p99: Duration,
    /// The longest call.
    pub max: Duration,
    /// Calls by the kind of their outcome.
    pub outcomes: BTreeMap<&'static str, u64>,
}

impl Summary {
    /// Calls whose outcome was not [`OK`].
    pub fn errors(&self) -> u64 {
        self.calls - self.outcomes.get(OK).copied().unwrap_or(0)
    }
}

/// One server at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSummary {
    /// Which.
    pub server: ServerName,
    /// All its tools together.
    pub all: Summary,
    /// Each tool by raw name, in order of names.
    pub tools: Vec<(Arc<str>, Summary)>,
}

impl Stats {
    fn tools(&self) -> MutexGuard<'_, Tools> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The figures of a tool, by its raw name; the same each time.
    pub fn tool(&self, server: &ServerName, tool: &str) -> ToolStats {
        let mut tools = self.tools();
        let full = tools.count >= TOOL_LIMIT;
        let of_server = tools.by_server.entry(server.clone()).or_default();
        if let Some(known) = of_server.get(tool) {
            return known.clone();
        }
        let name = if full { OTHER } else { tool };
        let new = of_server.entry(Arc::from(name)).or_default().clone();
        tools.count += usize::from(!full);
        new
    }

    /// Drops the figures of a server that is no longer configured.
    pub fn forget(&self, server: &ServerName) {
        let mut tools = self.tools();
        let gone = tools.by_server.remove(server).unwrap_or_default();
        tools.count -= gone.keys().filter(|tool| &***tool != OTHER).count();
    }

    /// Every server that was called, in order of names; tools that were never called are left out.
    pub fn snapshot(&self) -> Vec<ServerSummary> {
        // Copied first: summing up takes longer than calls should wait.
        let tools: Vec<_> = {
            let tools = self.tools();
            tools.by_server.iter().map(|(server, tools)| (server.clone(), tools.clone())).collect()
        };
        tools.into_iter().filter_map(|(server, tools)| summary_of(server, tools)).collect()
    }
}

fn summary_of(server: ServerName, tools: BTreeMap<Arc<str>, ToolStats>) -> Option<ServerSummary> {
    let mut all = Figures::default();
    let mut each = Vec::with_capacity(tools.len());
    for (name, tool) in tools {
        let figures = tool.figures().clone();
        if figures.latency.count() > 0 {
            all.add(&figures);
            each.push((name, figures.summary()));
        }
    }
    let called = all.latency.count() > 0;
    called.then(|| ServerSummary { server, all: all.summary(), tools: each })
}

impl ToolStats {
    fn figures(&self) -> MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one call.
    pub fn record(&self, outcome: &'static str, duration: Duration) {
        let mut figures = self.figures();
        figures.latency.record(duration);
        figures.count(outcome, 1);
    }
}

impl Figures {
    fn count(&mut self, outcome: &'static str, calls: u64) {
        let room = self.outcomes.len() < OUTCOME_LIMIT;
        match self.outcomes.iter_mut().find(|(known, _)| *known == outcome) {
            Some((_, count)) => *count += calls,
            None if room || outcome == OTHER => self.outcomes.push((outcome, calls)),
            None => self.count(OTHER, calls),
        }
    }

    fn add(&mut self, other: &Self) {
        self.latency.merge(&other.latency);
        for (outcome, calls) in &other.outcomes {
            self.count(outcome, *calls);
        }
    }

    fn summary(&self) -> Summary {
        Summary {
            calls: self.latency.count(),
            p50: self.latency.percentile(500),
            p95: self.latency.percentile(950),
            p99: self.latency.percentile(990),
            max: self.latency.max(),
            outcomes: self.outcomes.iter().copied().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ServerName {
        ServerName::new(text)
    }

    #[test]
    fn figures_are_kept_by_server_and_tool() {
        let stats = Stats::default();
        let read = stats.tool(&name("fs"), "read");
        for ms in 1..=100 {
            read.record(OK, Duration::from_millis(ms));
        }
        stats.tool(&name("fs"), "write").record("timeout", Duration::from_secs(9));
        stats.tool(&name("fs"), "never");
        stats.tool(&name("idle"), "never");
        let all = stats.snapshot();
        let [fs] = &all[..] else { panic!("{all:?}") };
        assert_eq!(fs.server, name("fs"));
        let names: Vec<&str> = fs.tools.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["read", "write"]);
        let read = &fs.tools[0].1;
        assert_eq!((read.calls, read.errors(), read.max), (100, 0, Duration::from_millis(100)));
        for (found, exact) in [(read.p50, 50), (read.p95, 95), (read.p99, 99)] {
            let exact = Duration::from_millis(exact);
            assert!(found >= exact && found <= exact * 17 / 16, "{found:?} for {exact:?}");
        }
        assert_eq!((fs.all.calls, fs.all.errors()), (101, 1));
        assert_eq!(fs.all.outcomes, BTreeMap::from([(OK, 100), ("timeout", 1)]));
        assert_eq!(fs.all.max, Duration::from_secs(9));
    }

    #[test]
    fn tools_and_outcomes_beyond_the_limits_count_together() {
        let stats = Stats::default();
        for n in 0..TOOL_LIMIT + 3 {
            stats.tool(&name("fs"), &n.to_string()).record(OK, Duration::ZERO);
        }
        let fs = &stats.snapshot()[0];
        assert_eq!(fs.tools.len(), TOOL_LIMIT + 1);
        assert_eq!(fs.tools.iter().find(|(name, _)| &**name == OTHER).unwrap().1.calls, 3);
        stats.forget(&name("fs"));
        assert!(stats.snapshot().is_empty());
        let tool = stats.tool(&name("git"), "log");
        for n in 0..OUTCOME_LIMIT + 4 {
            tool.record(Box::leak(n.to_string().into_boxed_str()), Duration::ZERO);
        }
        assert_eq!(stats.snapshot()[0].all.outcomes[OTHER], 4);
    }
}
