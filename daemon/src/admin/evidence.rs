//! What happened: audit rows, figures, metrics. Reads only.

use super::convert::{micros, millis};
use super::service::Inner;
use crate::names::{ProfileName, ServerName};
use crate::store::{Arguments, AuditEntry, AuditFollow, AuditQuery, StoreError, UnixMs};
use crate::telemetry::metrics::Format;
use crate::telemetry::stats::Summary;
use hermes_proto::control as pb;
use std::pin::Pin;
use std::time::Duration;
use tokio_stream::Stream;
use tonic::Status;

/// How long rows that still gather may take to be written before they are looked for.
const FLUSH: Duration = Duration::from_secs(2);

type Chunks = Pin<Box<dyn Stream<Item = Result<pb::AuditChunk, Status>> + Send>>;

/// The newest rows that match and, if asked for, what follows until the caller or the daemon ends.
pub(super) async fn audit(inner: &Inner, request: pb::AuditRequest) -> Result<Chunks, Status> {
    // Rows of the calls that were answered a moment ago are wanted too.
    inner.store.flush(FLUSH).await;
    let query = query(&request);
    let follow = inner.store.follow_audit(query.clone());
    let mut rows = inner.store.audit(query).await.map_err(|error| refused(&error))?;
    if request.follow {
        // What came after the follower was made comes from the follower.
        rows.retain(|row| row.id <= follow.seen());
    }
    let first = Some(rows).filter(|rows| !rows.is_empty());
    let state = (first, request.follow.then_some(follow));
    let stop = inner.shutdown.clone();
    Ok(Box::pin(futures_util::stream::unfold(state, move |state| {
        let stop = stop.clone();
        async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => None,
                next = next(state) => next,
            }
        }
    })))
}

type State = (Option<Vec<AuditEntry>>, Option<AuditFollow>);

async fn next((first, follow): State) -> Option<(Result<pb::AuditChunk, Status>, State)> {
    if let Some(rows) = first {
        return Some((Ok(chunk(rows)), (None, follow)));
    }
    let mut follow = follow?;
    match follow.next().await {
        Ok(rows) => Some((Ok(chunk(rows)), (None, Some(follow)))),
        Err(StoreError::Closed) => None,
        Err(error) => Some((Err(refused(&error)), (None, None))),
    }
}

fn refused(error: &StoreError) -> Status {
    Status::aborted(format!("hermesd.db cannot be read: {error}\nhint: `hermesctl doctor` says more"))
}

fn query(request: &pb::AuditRequest) -> AuditQuery {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    AuditQuery {
        server: some(&request.server).map(ServerName::new),
        tool: some(&request.tool),
        client: some(&request.client),
        profile: some(&request.profile).map(ProfileName::new),
        outcome: some(&request.outcome),
        trace_id: some(&request.trace_id),
        since: request.since_ms.map(UnixMs),
        limit: (request.limit > 0).then_some(request.limit as usize),
        ..AuditQuery::default()
    }
}

fn chunk(rows: Vec<AuditEntry>) -> pb::AuditChunk {
    pb::AuditChunk { entries: rows.into_iter().map(entry).collect() }
}

fn entry(row: AuditEntry) -> pb::AuditEntry {
    let (arguments_hash, arguments) = match row.arguments {
        Arguments::Off => (String::new(), String::new()),
        Arguments::Hash(hash) => (hex(&hash), String::new()),
        Arguments::Full(text) => (String::new(), text),
    };
    let decisions = row.decisions.into_iter().map(|decision| pb::AuditDecision {
        step: decision.step.into_owned(),
        said: decision.said.into_owned(),
    });
    pb::AuditEntry {
        id: row.id,
        at_ms: row.at.0,
        micros: micros(row.duration),
        uid: row.caller.uid,
        pid: row.caller.pid,
        executable: row.caller.executable.unwrap_or_default(),
        profile: row.caller.profile.to_string(),
        client: row.caller.name.unwrap_or_default(),
        client_version: row.caller.version.unwrap_or_default(),
        method: row.method,
        server: row.server.to_string(),
        tool: row.tool.unwrap_or_default(),
        arguments_hash,
        arguments,
        trace_id: row.trace_id,
        outcome: row.outcome,
        delivery: row.delivery.unwrap_or_default(),
        decisions: decisions.collect(),
    }
}

/// Lower-case hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Figures of every server that was called.
pub(super) fn stats(inner: &Inner) -> pb::StatsResponse {
    let servers = inner.stats.snapshot().into_iter().map(|server| pb::ServerFigures {
        server: server.server.to_string(),
        all: Some(figures(server.all)),
        tools: server
            .tools
            .into_iter()
            .map(|(tool, summary)| pb::ToolFigures {
                tool: tool.to_string(),
                figures: Some(figures(summary)),
            })
            .collect(),
    });
    pb::StatsResponse {
        servers: servers.collect(),
        since_ms: millis(inner.started.elapsed()),
        audit_waiting: inner.store.audit_waiting() as u64,
        audit_dropped: inner.store.audit_dropped(),
    }
}

fn figures(summary: Summary) -> pb::Figures {
    pb::Figures {
        calls: summary.calls,
        errors: summary.errors(),
        p50_micros: micros(summary.p50),
        p95_micros: micros(summary.p95),
        p99_micros: micros(summary.p99),
        max_micros: micros(summary.max),
        outcomes: summary.outcomes.into_iter().map(|(kind, calls)| (kind.to_owned(), calls)).collect(),
    }
}

/// Everything counted, as a scraper would get it.
pub(super) fn metrics(inner: &Inner) -> pb::MetricsResponse {
    pb::MetricsResponse { text: inner.metrics.render(Format::Plain) }
}
