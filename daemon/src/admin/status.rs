//! The status of the daemon as one message. Reads only.

use super::service::Inner;
use super::{convert, diagnose, events};
use hermes_proto::control as pb;

/// Everything `hermesctl status` shows.
pub(super) fn whole(inner: &Inner, servers: Vec<pb::ServerStatus>) -> pb::GetStatusResponse {
    let config = inner.config.borrow().clone();
    pb::GetStatusResponse {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        uptime_ms: convert::millis(inner.started.elapsed()),
        home: inner.home.display().to_string(),
        runtime_dir: inner.runtime_dir.display().to_string(),
        config_file: config.file.display().to_string(),
        config_state: inner.reloader.state(),
        servers,
        clients: inner.clients.all().iter().map(|facts| convert::client(facts)).collect(),
        findings: config
            .findings
            .iter()
            .map(|finding| convert::finding(finding, inner.mask()))
            .chain(diagnose::lost_lines(inner))
            .chain(events::finding(inner))
            .collect(),
        conversations: inner.reloader.conversations(),
        rss_bytes: diagnose::rss_bytes(),
        events: Some(events::status(inner)),
        traces: convert::traces(inner.metrics.tracer(), inner.mask()),
        http: convert::http(&inner.http.borrow()),
    }
}
