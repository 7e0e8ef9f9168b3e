//! Prometheus metrics: what is counted, under which names, and the text of a scrape.
//!
//! Owner: [`Metrics`], cheap to clone. Promise: counting a call through a [`ToolMetrics`] touches no map and
//! formats nothing; the number of series is bounded whatever servers call their tools; names carry
//! units. Gauges that others own are filled in by a hook when somebody looks. May not touch: what it counts.

use super::metrics_labels::{ByDirection, ByKind, ByOutcome, ByPhase, ByServer, ByTool, ByVersion, Label};
use super::metrics_store::StoreCollector;
use super::metrics_traces::TraceCollector;
use super::traces::Tracer;
use crate::names::ServerName;
use crate::server::breaker::BreakerState;
use crate::server::lifecycle::Phase;
use crate::store::Store;
use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Tools counted by name; further ones of any server count as [`OTHER`].
pub const TOOL_LIMIT: usize = 5_000;
/// Kinds of outcome counted by name for one tool; further ones count as [`OTHER`].
const OUTCOME_LIMIT: usize = 32;
/// Label value of what is beyond a limit.
pub const OTHER: &str = "_other";
/// Upper bounds of the duration buckets, in seconds: from a local answer to a long job.
const DURATION_BUCKETS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0];
/// Values of the `phase` label.
const PHASES: [&str; 7] = ["stopped", "starting", "ready", "backing_off", "parked", "needs_auth", "stopping"];

/// The text formats of a scrape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text, version 0.0.4.
    Plain,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// Its `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Plain => prometheus_text::CONTENT_TYPE,
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Tokens of one sampling request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tokens {
    /// Of the prompt.
    pub input: u64,
    /// Of the answer.
    pub output: u64,
}

/// Everything hermesd counts.
#[derive(Clone)]
pub struct Metrics {
    inner: Arc<Inner>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

struct Inner {
    registry: Registry,
    families: Families,
    known: Mutex<Known>,
    refresh: OnceLock<Refresh>,
    tracer: Tracer,
}

type Refresh = Box<dyn Fn(&Metrics) + Send + Sync>;

#[derive(Default)]
struct Known {
    servers: BTreeMap<ServerName, Server>,
    tools: usize,
}

struct Server {
    metrics: ServerMetrics,
    tools: BTreeMap<Arc<str>, ToolMetrics>,
}

#[derive(Clone)]
struct Families {
    calls: Family<ByTool, Counter>,
    duration: Family<ByServer, Histogram, fn() -> Histogram>,
    breaker: Family<ByServer, Gauge>,
    restarts: Family<ByServer, Counter>,
    phase: Family<ByPhase, Gauge>,
    waiting: Family<ByServer, Gauge>,
    in_flight: Family<ByServer, Gauge>,
    events: Family<ByKind, Counter>,
    sampling_requests: Family<ByOutcome, Counter>,
    sampling_tokens: Family<ByDirection, Counter>,
    clients: Gauge,
    approvals_waiting: Gauge,
    start_time: Gauge,
    version: Family<ByVersion, Gauge>,
}

impl Families {
    fn new() -> Self {
        Self {
            calls: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS)),
            breaker: Family::default(),
            restarts: Family::default(),
            phase: Family::default(),
            waiting: Family::default(),
            in_flight: Family::default(),
            events: Family::default(),
            sampling_requests: Family::default(),
            sampling_tokens: Family::default(),
            clients: Gauge::default(),
            approvals_waiting: Gauge::default(),
            start_time: Gauge::default(),
            version: Family::default(),
        }
    }

    /// Counters get `_total` behind their names by the encoder.
    fn register(&self, to: &mut Registry) {
        to.register("hermes_calls", "Calls by outcome", self.calls.clone());
        to.register(
            "hermes_call_duration_seconds",
            "Time from a call to its outcome, waiting included",
            self.duration.clone(),
        );
        to.register("hermes_breaker_state", "0 closed, 1 half open, 2 open", self.breaker.clone());
        to.register("hermes_server_restarts", "Starts of a server after its first", self.restarts.clone());
        to.register("hermes_server_state", "1 for the phase a server is in", self.phase.clone());
        to.register("hermes_queue_waiting", "Calls that wait for a slot", self.waiting.clone());
        to.register("hermes_calls_in_flight", "Calls at the server", self.in_flight.clone());
        to.register("hermes_events", "Events of conversations and approvals", self.events.clone());
        to.register(
            "hermes_sampling_requests",
            "Sampling requests of servers by outcome",
            self.sampling_requests.clone(),
        );
        to.register("hermes_sampling_tokens", "Tokens of sampling requests", self.sampling_tokens.clone());
        to.register("hermes_clients", "Connected clients", self.clients.clone());
        to.register(
            "hermes_approvals_waiting",
            "Calls that wait for a person",
            self.approvals_waiting.clone(),
        );
        to.register("hermes_start_time_seconds", "Start of the daemon, since 1970", self.start_time.clone());
        to.register("hermes_build_info", "1, with the version as label", self.version.clone());
    }
}

impl Metrics {
    /// Metrics of a daemon that started at `started`; with those of `store`, where there is one.
    pub fn new(version: &str, started: SystemTime, store: Option<Store>) -> Self {
        let families = Families::new();
        let mut registry = Registry::default();
        families.register(&mut registry);
        if let Some(store) = store {
            registry.register_collector(Box::new(StoreCollector(store)));
        }
        let tracer = Tracer::default();
        registry.register_collector(Box::new(TraceCollector(tracer.clone())));
        let since = started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        families.start_time.set(i64::try_from(since).unwrap_or(i64::MAX));
        families.version.get_or_create(&ByVersion { version: Label::new(version) }).set(1);
        Self {
            inner: Arc::new(Inner {
                registry,
                families,
                known: Mutex::default(),
                refresh: OnceLock::new(),
                tracer,
            }),
        }
    }

    /// Where spans are made; their figures are among the metrics.
    pub fn tracer(&self) -> &Tracer {
        &self.inner.tracer
    }

    /// Sets what fills in the gauges before each scrape. Only the first call counts.
    pub fn set_refresh(&self, refresh: impl Fn(&Self) + Send + Sync + 'static) {
        // Boot sets it once; a second one would be a second owner of the gauges.
        let _ = self.inner.refresh.set(Box::new(refresh));
    }

    /// Everything as text, after the gauges were filled in.
    pub fn render(&self, format: Format) -> String {
        if let Some(refresh) = self.inner.refresh.get() {
            refresh(self);
        }
        let mut out = String::new();
        match format {
            Format::Plain => prometheus_text::encode(&mut out, &self.inner.registry),
            Format::OpenMetrics => text::encode(&mut out, &self.inner.registry),
        }
        .expect("writing to a String cannot fail");
        out
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The metrics of `server`; the same each time.
    pub fn server(&self, server: &ServerName) -> ServerMetrics {
        self.known().server(&self.inner.families, server).metrics.clone()
    }

    /// The metrics of a tool, by its raw name; to be kept beside the route of the tool.
    ///
    /// Beyond [`TOOL_LIMIT`] tools it is that of [`OTHER`].
    pub fn tool(&self, server: &ServerName, tool: &str) -> ToolMetrics {
        let mut known = self.known();
        let full = known.tools >= TOOL_LIMIT;
        let entry = known.server(&self.inner.families, server);
        if let Some(known) = entry.tools.get(tool) {
            return known.clone();
        }
        let name = if full { OTHER } else { tool };
        let of_server = entry.metrics.clone();
        let new = entry.tools.entry(Arc::from(name)).or_insert_with(|| ToolMetrics::new(of_server, name));
        let new = new.clone();
        known.tools += usize::from(!full);
        new
    }

    /// Drops every series of a server that is no longer configured.
    pub fn forget(&self, server: &ServerName) {
        let mut known = self.known();
        let Some(gone) = known.servers.remove(server) else { return };
        known.tools -= gone.tools.keys().filter(|tool| &***tool != OTHER).count();
        drop(known);
        gone.metrics.remove_from(&self.inner.families);
        for tool in gone.tools.values() {
            tool.remove_from(&self.inner.families);
        }
    }

    /// Counts an event: `message`, `approval_requested`, `approval_resolved`.
    pub fn event(&self, kind: &'static str) {
        self.inner.families.events.get_or_create(&ByKind { kind: Label::new(kind) }).inc();
    }

    /// Counts a sampling request of `server` and its tokens, where they are known.
    pub fn sampled(&self, server: &ServerName, outcome: &'static str, tokens: Option<Tokens>) {
        let server = Label::new(server.as_str());
        let families = &self.inner.families;
        families
            .sampling_requests
            .get_or_create(&ByOutcome { server: server.clone(), outcome: Label::new(outcome) })
            .inc();
        if let Some(Tokens { input, output }) = tokens {
            for (direction, tokens) in [("input", input), ("output", output)] {
                let labels = ByDirection { server: server.clone(), direction: Label::new(direction) };
                families.sampling_tokens.get_or_create(&labels).inc_by(tokens);
            }
        }
    }

    /// Sets the number of connected clients.
    pub fn set_clients(&self, clients: usize) {
        self.inner.families.clients.set(signed(clients));
    }

    /// Sets the number of calls that wait for a person.
    pub fn set_approvals_waiting(&self, calls: usize) {
        self.inner.families.approvals_waiting.set(signed(calls));
    }
}

impl Known {
    fn server(&mut self, families: &Families, server: &ServerName) -> &mut Server {
        self.servers.entry(server.clone()).or_insert_with(|| Server {
            metrics: ServerMetrics::new(families, server),
            tools: BTreeMap::new(),
        })
    }
}

/// The series of one server.
#[derive(Clone)]
pub struct ServerMetrics {
    labels: ByServer,
    calls: Family<ByTool, Counter>,
    duration: Histogram,
    breaker: Gauge,
    restarts: Counter,
    phases: [Gauge; PHASES.len()],
    waiting: Gauge,
    in_flight: Gauge,
}

impl fmt::Debug for ServerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerMetrics").field(&self.labels).finish()
    }
}

impl ServerMetrics {
    fn new(families: &Families, server: &ServerName) -> Self {
        let labels = ByServer { server: Label::new(server.as_str()) };
        Self {
            calls: families.calls.clone(),
            duration: families.duration.get_or_create_owned(&labels),
            breaker: families.breaker.get_or_create_owned(&labels),
            restarts: families.restarts.get_or_create_owned(&labels),
            phases: PHASES.map(|phase| families.phase.get_or_create_owned(&by_phase(&labels, phase))),
            waiting: families.waiting.get_or_create_owned(&labels),
            in_flight: families.in_flight.get_or_create_owned(&labels),
            labels,
        }
    }

    fn remove_from(&self, families: &Families) {
        families.duration.remove(&self.labels);
        families.breaker.remove(&self.labels);
        families.restarts.remove(&self.labels);
        families.waiting.remove(&self.labels);
        families.in_flight.remove(&self.labels);
        for phase in PHASES {
            families.phase.remove(&by_phase(&self.labels, phase));
        }
    }

    /// Sets the phase.
    pub fn set_phase(&self, phase: &Phase) {
        let now = match phase {
            Phase::Stopped { .. } => 0,
            Phase::Starting { .. } => 1,
            Phase::Ready { .. } => 2,
            Phase::BackingOff { .. } => 3,
            Phase::Parked { .. } => 4,
            Phase::NeedsAuth { .. } => 5,
            Phase::Stopping { .. } => 6,
        };
        for (n, gauge) in self.phases.iter().enumerate() {
            gauge.set(i64::from(n == now));
        }
    }

    /// Sets the breaker's state.
    pub fn set_breaker(&self, state: BreakerState) {
        self.breaker.set(match state {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open => 2,
        });
    }

    /// Sets how often it was started again, as its supervisor counts.
    pub fn set_restarts(&self, restarts: u64) {
        self.restarts.inner().store(restarts, Ordering::Relaxed);
    }

    /// Sets how many calls wait for a slot and how many are at the server.
    pub fn set_calls(&self, waiting: usize, in_flight: usize) {
        self.waiting.set(signed(waiting));
        self.in_flight.set(signed(in_flight));
    }
}

/// The series of one tool.
#[derive(Clone)]
pub struct ToolMetrics {
    inner: Arc<Tool>,
}

impl fmt::Debug for ToolMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ToolMetrics").field(&self.inner.server.labels).field(&self.inner.tool).finish()
    }
}

struct Tool {
    server: ServerMetrics,
    tool: Label,
    /// Few, so that a search in order beats a map.
    outcomes: Mutex<Vec<(&'static str, Counter)>>,
}

impl ToolMetrics {
    fn new(server: ServerMetrics, tool: &str) -> Self {
        Self { inner: Arc::new(Tool { server, tool: Label::new(tool), outcomes: Mutex::default() }) }
    }

    /// Counts one call: the kind of its outcome (`ok`, `tool_error`, a kind of refusal) and how long it took.
    pub fn record(&self, outcome: &'static str, duration: Duration) {
        self.inner.server.duration.observe(duration.as_secs_f64());
        let mut outcomes = self.outcomes();
        if let Some((_, counter)) = outcomes.iter().find(|(known, _)| *known == outcome) {
            counter.inc();
            return;
        }
        let name = if outcomes.len() < OUTCOME_LIMIT { outcome } else { OTHER };
        let counter = self.inner.server.calls.get_or_create_owned(&self.labels(name));
        counter.inc();
        if name == outcome {
            outcomes.push((name, counter));
        }
    }

    fn outcomes(&self) -> MutexGuard<'_, Vec<(&'static str, Counter)>> {
        self.inner.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn labels(&self, outcome: &str) -> ByTool {
        ByTool {
            server: self.inner.server.labels.server.clone(),
            tool: self.inner.tool.clone(),
            outcome: Label::new(outcome),
        }
    }

    fn remove_from(&self, families: &Families) {
        for (outcome, _) in self.outcomes().drain(..) {
            families.calls.remove(&self.labels(outcome));
        }
        families.calls.remove(&self.labels(OTHER));
    }
}

fn by_phase(labels: &ByServer, phase: &str) -> ByPhase {
    ByPhase { server: labels.server.clone(), phase: Label::new(phase) }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

// The counter's own number is set from outside, so its type is part of what is relied on.
const _: fn(&Counter) -> &AtomicU64 = Counter::inner;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::lifecycle::StopReason;

    fn metrics() -> Metrics {
        Metrics::new("1.2.3", UNIX_EPOCH + Duration::from_secs(1_700_000_000), None)
    }

    fn fs() -> ServerName {
        ServerName::new("fs")
    }

    #[track_caller]
    fn has(metrics: &Metrics, line: &str) {
        let text = metrics.render(Format::Plain);
        assert!(text.lines().any(|known| known == line), "no `{line}` in\n{text}");
    }

    #[test]
    fn calls_are_counted_by_outcome_and_timed_by_server() {
        let metrics = metrics();
        let read = metrics.tool(&fs(), "read");
        read.record("ok", Duration::from_millis(4));
        read.record("ok", Duration::from_millis(40));
        metrics.tool(&fs(), "read").record("timeout", Duration::from_secs(400));
        has(&metrics, r#"hermes_calls_total{server="fs",tool="read",outcome="ok"} 2"#);
        has(&metrics, r#"hermes_calls_total{server="fs",tool="read",outcome="timeout"} 1"#);
        has(&metrics, r#"hermes_call_duration_seconds_bucket{server="fs",le="0.005"} 1"#);
        has(&metrics, r#"hermes_call_duration_seconds_bucket{server="fs",le="+Inf"} 3"#);
        has(&metrics, r#"hermes_call_duration_seconds_count{server="fs"} 3"#);
    }

    #[test]
    fn a_server_is_in_one_phase_and_its_gauges_follow() {
        let metrics = metrics();
        let server = metrics.server(&fs());
        server.set_phase(&Phase::Starting { attempt: 1 });
        server.set_phase(&Phase::Stopped { reason: StopReason::Operator });
        server.set_breaker(BreakerState::Open);
        server.set_restarts(4);
        server.set_calls(2, 16);
        has(&metrics, r#"hermes_server_state{server="fs",phase="stopped"} 1"#);
        has(&metrics, r#"hermes_server_state{server="fs",phase="starting"} 0"#);
        has(&metrics, r#"hermes_breaker_state{server="fs"} 2"#);
        has(&metrics, r#"hermes_server_restarts_total{server="fs"} 4"#);
        has(&metrics, r#"hermes_queue_waiting{server="fs"} 2"#);
        has(&metrics, r#"hermes_calls_in_flight{server="fs"} 16"#);
    }

    #[test]
    fn the_rest_is_counted_too_and_the_hook_runs_before_each_scrape() {
        let metrics = metrics();
        metrics.set_refresh(|metrics| metrics.set_clients(3));
        metrics.event("message");
        metrics.sampled(&fs(), "ok", Some(Tokens { input: 10, output: 2 }));
        metrics.sampled(&fs(), "rate_limited", None);
        metrics.set_approvals_waiting(1);
        has(&metrics, "hermes_clients 3");
        has(&metrics, "hermes_approvals_waiting 1");
        has(&metrics, r#"hermes_events_total{kind="message"} 1"#);
        has(&metrics, r#"hermes_sampling_requests_total{server="fs",outcome="rate_limited"} 1"#);
        has(&metrics, r#"hermes_sampling_tokens_total{server="fs",direction="output"} 2"#);
        has(&metrics, "hermes_start_time_seconds 1700000000");
        has(&metrics, r#"hermes_build_info{version="1.2.3"} 1"#);
    }

    #[test]
    fn a_forgotten_server_leaves_no_series() {
        let metrics = metrics();
        metrics.tool(&fs(), "read").record("ok", Duration::ZERO);
        metrics.tool(&ServerName::new("git"), "log").record("ok", Duration::ZERO);
        metrics.forget(&fs());
        let text = metrics.render(Format::Plain);
        assert!(!text.contains("\"fs\"") && text.contains("\"git\""), "{text}");
        metrics.tool(&fs(), "read").record("ok", Duration::ZERO);
        has(&metrics, r#"hermes_calls_total{server="fs",tool="read",outcome="ok"} 1"#);
    }

    #[test]
    fn too_many_tools_and_outcomes_share_one_series() {
        let metrics = metrics();
        for n in 0..TOOL_LIMIT + 10 {
            metrics.tool(&fs(), &n.to_string()).record("ok", Duration::ZERO);
        }
        has(&metrics, r#"hermes_calls_total{server="fs",tool="_other",outcome="ok"} 10"#);
        metrics.forget(&fs());
        let tool = metrics.tool(&fs(), "again");
        for n in 0..OUTCOME_LIMIT + 5 {
            tool.record(Box::leak(n.to_string().into_boxed_str()), Duration::ZERO);
        }
        has(&metrics, r#"hermes_calls_total{server="fs",tool="again",outcome="_other"} 5"#);
    }

    #[test]
    fn hostile_names_cannot_forge_a_series() {
        let metrics = metrics();
        metrics.tool(&fs(), "a\"} 1\nforged{x=\"\\").record("ok", Duration::ZERO);
        for format in [Format::Plain, Format::OpenMetrics] {
            let text = metrics.render(format);
            assert!(!text.lines().any(|line| line.starts_with("forged")), "{text}");
            assert!(text.contains(r#"tool="a\"} 1\nforged{x=\"\\""#), "{text}");
        }
        assert!(metrics.render(Format::OpenMetrics).ends_with("# EOF\n"));
    }
}
