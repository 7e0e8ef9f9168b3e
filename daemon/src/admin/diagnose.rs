//! What a person asks when something is wrong: log lines, findings with one action each, memory.
//!
//! Reads only. Texts of servers are masked by the logs themselves or by the caller's mask.

use super::service::Inner;
use crate::names::ServerName;
use crate::telemetry::server_log::{Fed, LogFeed, ServerLogs};
use crate::telemetry::tail;
use hermes_proto::control as pb;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::pin::Pin;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// Lines in one chunk.
const CHUNK: usize = 512;

/// Resident memory of this process in bytes; 0 where the system does not say.
pub fn rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kib: u64 = line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0);
    kib * 1024
}

type Chunks = Pin<Box<dyn Stream<Item = Result<pb::LogChunk, Status>> + Send>>;

enum Tail {
    File(PathBuf, usize, Option<LogFeed>),
    Lines(VecDeque<String>, Option<LogFeed>),
    Feed(LogFeed),
}

/// The last lines of a log and, if asked for, what follows until the caller or the daemon ends.
pub fn tail(logs: &ServerLogs, request: &pb::TailLogsRequest, stop: CancellationToken) -> Chunks {
    let log = if request.server.is_empty() {
        logs.own()
    } else {
        logs.open(&ServerName::new(request.server.as_str()))
    };
    // Subscribed before the file is read: a line may come twice, none is missed.
    let feed = request.follow.then(|| log.subscribe());
    let state = Tail::File(log.path().to_owned(), request.lines as usize, feed);
    Box::pin(futures_util::stream::unfold(state, move |state| {
        let stop = stop.clone();
        async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => None,
                next = next_chunk(state) => next,
            }
        }
    }))
}

async fn next_chunk(state: Tail) -> Option<(Result<pb::LogChunk, Status>, Tail)> {
    let state = match state {
        Tail::File(path, n, feed) => {
            let named = path.display().to_string();
            match tokio::task::spawn_blocking(move || tail::tail_file(&path, n)).await {
                Ok(Ok(lines)) => Tail::Lines(lines.into(), feed),
                Ok(Err(error)) => {
                    let status = Status::failed_precondition(format!("{named}: {error}"));
                    return Some((Err(status), Tail::Lines(VecDeque::new(), None)));
                }
                Err(_) => return None,
            }
        }
        other => other,
    };
    match state {
        Tail::Lines(mut lines, feed) if !lines.is_empty() => {
            let lines_now = lines.drain(..lines.len().min(CHUNK)).collect();
            Some((Ok(pb::LogChunk { lines: lines_now }), Tail::Lines(lines, feed)))
        }
        Tail::Lines(_, feed) => follow(feed?).await,
        Tail::Feed(feed) => follow(feed).await,
        Tail::File(..) => None,
    }
}

async fn follow(mut feed: LogFeed) -> Option<(Result<pb::LogChunk, Status>, Tail)> {
    let line = match feed.next().await? {
        Fed::Line(line) => line.to_string(),
        Fed::Missed(n) => format!("-- {n} lines left out, this follower was too slow"),
    };
    Some((Ok(pb::LogChunk { lines: vec![line] }), Tail::Feed(feed)))
}

pub(super) fn finding(severity: pb::Severity, server: &str, message: String, hint: &str) -> pb::Finding {
    pb::Finding {
        severity: severity.into(),
        server: server.to_owned(),
        message,
        hint: hint.to_owned(),
        ..pb::Finding::default()
    }
}

/// Logs that lost lines, because the disk is full or a server wrote faster than it takes.
pub fn lost_lines(inner: &Inner) -> Vec<pb::Finding> {
    let config = inner.config.borrow().clone();
    let servers = config.servers.keys().map(|name| (name.as_str(), inner.logs.open(name)));
    std::iter::once(("", inner.logs.own()))
        .chain(servers)
        .filter(|(_, log)| log.lost() > 0)
        .map(|(server, log)| {
            let text = format!("{} log lines were lost since the start", log.lost());
            let hint = format!("see whether the disk of {} is full", log.path().display());
            finding(pb::Severity::Warning, server, text, &hint)
        })
        .collect()
}
