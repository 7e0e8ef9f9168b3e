//! `doctor` of a running daemon: what it knows already, and what it looks at now.

use super::convert;
use super::diagnose::{finding, lost_lines};
use super::service::Inner;
use crate::config::ServerEntry;
use crate::doctor::{self, AskedBy, Subject};
use crate::names::ServerName;
use crate::server::breaker::BreakerState;
use crate::server::lifecycle::Phase;
use hermes_proto::control as pb;
use std::collections::BTreeSet;
use std::time::{Instant, SystemTime};

/// `found` with the stable word for its kind.
fn kind(kind: &str, found: pb::Finding) -> pb::Finding {
    pb::Finding { kind: kind.to_owned(), ..found }
}

/// The commonest troubles, each as one sentence and one action; errors first.
///
/// # Cancel safety
/// Cancel safe.
pub(super) async fn doctor(inner: &Inner) -> Vec<pb::Finding> {
    let mut out = known(inner);
    let config = inner.config.borrow().clone();
    let base = inner.base.borrow().clone();
    let paths = inner.paths.clone();
    // What is not at rest was started: its phase says how that went.
    let handles = inner.servers.borrow().clone();
    let at_rest = |phase: &Phase| matches!(phase, Phase::Stopped { .. });
    let working: BTreeSet<ServerName> = config
        .servers
        .keys()
        .filter(|name| {
            handles.get(name.as_str()).is_some_and(|handle| !at_rest(&handle.status().borrow().phase))
        })
        .cloned()
        .collect();
    let look = tokio::task::spawn_blocking(move || {
        doctor::look(&Subject {
            paths: &paths,
            config: &config,
            base: &base,
            working: &working,
            asked_by: AskedBy::Daemon,
            now: SystemTime::now(),
        })
    });
    // It only fails when the runtime ends.
    for found in look.await.unwrap_or_default() {
        let more =
            pb::Finding { kind: found.kind.to_owned(), ..convert::finding(&found.finding, inner.mask()) };
        // Some of it is part of the configuration's findings.
        match out.iter_mut().find(|known| known.message == more.message && known.file == more.file) {
            Some(known) => known.kind = more.kind,
            None => out.push(more),
        }
    }
    out.sort_by_key(|found| found.severity);
    out
}

/// What the daemon knows without looking.
fn known(inner: &Inner) -> Vec<pb::Finding> {
    let config = inner.config.borrow().clone();
    let mask = &*inner.mask;
    let mut out: Vec<pb::Finding> =
        config.findings.iter().map(|found| kind("config", convert::finding(found, mask))).collect();
    out.extend(lost_lines(inner).into_iter().map(|found| kind("log-lines-lost", found)));
    out.extend(super::events::finding(inner).map(|found| kind("no-events", found)));
    let state = inner.reloader.state();
    if state != "ok" {
        let text =
            format!("{}: {}; the last good configuration is in force", config.file.display(), mask(&state));
        out.push(kind(
            "config-not-applied",
            finding(pb::Severity::Error, "", text, "mend the file; `hermesctl config check` shows where"),
        ));
    }
    let servers = inner.servers.borrow().clone();
    if config.servers.is_empty() {
        let text = format!("no servers are configured in {}", config.file.display());
        out.push(kind(
            "no-servers",
            finding(pb::Severity::Info, "", text, "add entries under mcp_servers, see README"),
        ));
    }
    for (name, entry) in &config.servers {
        if matches!(entry, ServerEntry::Refused { .. }) {
            continue; // its findings are in the list already
        }
        let Some(handle) = servers.get(name) else { continue };
        let status = handle.status().borrow().clone();
        let name = name.as_str();
        match &status.phase {
            Phase::Parked { failure, .. } | Phase::BackingOff { failure, .. } => {
                let text = format!("does not start: {}", mask(&failure.to_string()));
                let hint = format!("`hermesctl mcp test {name}` shows each step and the last stderr lines");
                out.push(kind("not-starting", finding(pb::Severity::Error, name, text, &hint)));
            }
            Phase::NeedsAuth { .. } => {
                let hint = format!("run `hermesctl mcp login {name}`");
                out.push(kind(
                    "login-wanted",
                    finding(pb::Severity::Error, name, "wants a login".into(), &hint),
                ));
            }
            Phase::Stopped { .. } | Phase::Starting { .. } | Phase::Ready { .. } | Phase::Stopping { .. } => {
            }
        }
        if let Some(noise) = status.noise() {
            let text = format!("{} (e.g. `{}`)", noise.kind.advice(), mask(noise.sample.trim()));
            out.push(kind(
                "noise",
                finding(
                    pb::Severity::Warning,
                    name,
                    text,
                    "hermesd skips such lines; report it to the server's authors",
                ),
            ));
        }
        if handle.breaker().snapshot(Instant::now()).state == BreakerState::Open {
            let hint = format!("`hermesctl logs {name}`, then `hermesctl breaker reset {name}`");
            out.push(kind(
                "breaker-open",
                finding(pb::Severity::Error, name, "its breaker is open: calls are refused".into(), &hint),
            ));
        }
        for warning in &status.report.snapshot().warnings {
            out.push(kind("start-warning", finding(pb::Severity::Warning, name, mask(warning), "")));
        }
        let catalog = inner.catalog.borrow().clone();
        for warning in catalog.notes().get(name).into_iter().flat_map(|about| &about.warnings) {
            let hint = format!("look at `hermesctl tools --server {name}` and `hermesctl pins diff {name}`");
            out.push(kind("catalogue", finding(pb::Severity::Warning, name, mask(warning), &hint)));
        }
        for note in catalog.notes().get(name).into_iter().flat_map(|about| &about.notes) {
            out.push(kind("catalogue", finding(pb::Severity::Info, name, mask(note), "")));
        }
    }
    out
}
