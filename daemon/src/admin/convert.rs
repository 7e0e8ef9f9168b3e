//! Internal status to protobuf; one translation per type, no `_` arms.

use crate::catalog::snapshot::{Catalog, Origin, Tool};
use crate::config::{Finding, Severity};
use crate::config::{RemoteKind, Sharing, TransportConfig};
use crate::http::keeper::{Status, TokenPlace};
use crate::jsonrpc::splice::Members;
use crate::server::breaker::{BreakerState, Snapshot};
use crate::server::diagnose::Diagnosis;
use crate::server::handle::{NotReady, ServerHandle};
use crate::server::lifecycle::Phase;
use crate::server::status::{ServerStatus, StepOutcome};
use crate::session::clients::ClientFacts;
use crate::telemetry::traces::Tracer;
use hermes_proto::control as pb;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Masks secrets in a text.
pub type Mask<'a> = &'a dyn Fn(&str) -> String;

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The phase without its facts.
pub fn phase(phase: &Phase) -> pb::Phase {
    match phase {
        Phase::Stopped { .. } => pb::Phase::Stopped,
        Phase::Starting { .. } => pb::Phase::Starting,
        Phase::Ready { .. } => pb::Phase::Ready,
        Phase::BackingOff { .. } => pb::Phase::BackingOff,
        Phase::Parked { .. } => pb::Phase::Parked,
        Phase::NeedsAuth { .. } => pb::Phase::NeedsAuth,
        Phase::Stopping { .. } => pb::Phase::Stopping,
    }
}

/// The breaker's state.
pub fn breaker(snapshot: Snapshot) -> pb::Breaker {
    let state = match snapshot.state {
        BreakerState::Closed => pb::BreakerState::Closed,
        BreakerState::Open => pb::BreakerState::Open,
        BreakerState::HalfOpen => pb::BreakerState::HalfOpen,
    };
    pb::Breaker { state: state.into(), failures: snapshot.failures, retry_in_ms: millis(snapshot.retry_in) }
}

/// One running server.
pub fn server(handle: &ServerHandle, catalog: &Catalog, mask: Mask<'_>) -> pb::ServerStatus {
    let status = handle.status().borrow().clone();
    let now = Instant::now();
    let usage = handle.slots().usage();
    let about = catalog.notes().get(handle.name());
    let config = handle.config();
    let mut out = pb::ServerStatus {
        name: status.name.to_string(),
        phase: phase(&status.phase).into(),
        reason: mask(&status.reason()),
        next_step_ms: status.next_step.map(|at| millis(at.saturating_duration_since(now))),
        pid: status.pid,
        guard_pid: status.guard_pid,
        generation: status.generation.0,
        attempts: status.attempts,
        tools: about.map_or(0, |about| about.visible),
        hidden_tools: about.map_or(0, |about| about.hidden + about.withheld),
        in_flight: count(usage.in_flight),
        waiting: count(usage.waiting),
        uptime_ms: millis(status.uptime(now)),
        transport: transport(&config.transport).to_owned(),
        restarts: status.restarts(),
        noise_lines: status.noise_lines(),
        oversized_lines: status.oversized_lines(),
        dropped_items: about.map_or(0, |about| about.dropped.into()),
        breaker: Some(breaker(handle.breaker().snapshot(now))),
        sharing: sharing(handle.sharing()).to_owned(),
        instances: instances(handle, now),
        ..pb::ServerStatus::default()
    };
    if let Some(agreed) = &status.agreed {
        out.protocol_version = agreed.revision.to_owned();
        out.server_name = mask(&agreed.name);
        out.server_version = mask(&agreed.version);
    }
    out.notes.extend(handle.asks().filter(|_| config.sharing == Sharing::Shared).map(|method| {
        format!("it was seen to ask clients ({method}): each client has an instance of its own")
    }));
    out.notes.extend(status.notes().iter().map(|note| mask(note)));
    out.notes.extend(status.noise().map(|noise| noise.kind.advice().to_owned()));
    out.notes.extend(about.into_iter().flat_map(|about| about.warnings.iter().map(|warning| mask(warning))));
    out.notes.extend(about.into_iter().flat_map(|about| about.notes.iter().map(|note| mask(note))));
    out
}

/// The word for who shares a server.
fn sharing(sharing: Sharing) -> &'static str {
    match sharing {
        Sharing::Shared => "shared",
        Sharing::PerClient => "per_client",
        Sharing::PerRoot => "per_root",
        Sharing::Exclusive => "exclusive",
    }
}

/// The instances besides the first.
fn instances(first: &ServerHandle, now: Instant) -> Vec<pb::InstanceStatus> {
    let extras = first.instances().all().into_iter().skip(1);
    extras
        .map(|(key, handle)| {
            let status = handle.status().borrow().clone();
            pb::InstanceStatus {
                serves: key.to_string(),
                phase: phase(&status.phase).into(),
                pid: status.pid,
                generation: status.generation.0,
                in_flight: count(handle.slots().usage().in_flight),
                uptime_ms: millis(status.uptime(now)),
            }
        })
        .collect()
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The HTTP listener; `None`: off.
pub fn http(status: &Status) -> Option<pb::HttpListener> {
    match status {
        Status::Off => None,
        Status::Open { url, token } => {
            let token = match token {
                TokenPlace::File(path) => path.display().to_string(),
                TokenPlace::Config => "hermesd.http.token".to_owned(),
                TokenPlace::Nowhere => String::new(),
            };
            Some(pb::HttpListener { url: url.clone(), token, trouble: String::new() })
        }
        Status::Failed { listen, reason } => {
            Some(pb::HttpListener { url: listen.clone(), token: String::new(), trouble: reason.clone() })
        }
    }
}

/// Where traces go; `None`: nowhere.
pub fn traces(tracer: &Tracer, mask: Mask<'_>) -> Option<pb::TraceExport> {
    let status = tracer.status().borrow().clone();
    let counts = tracer.counts();
    (!status.endpoint.is_empty()).then(|| pb::TraceExport {
        endpoint: mask(&status.endpoint),
        protocol: status.protocol.to_owned(),
        sample_ratio: status.sample_ratio,
        trouble: mask(&status.trouble.unwrap_or_default()),
        exported: counts.exported,
        dropped: counts.dropped,
        lost: counts.lost,
        waiting: counts.waiting,
    })
}

/// The word for a transport.
pub fn transport(config: &TransportConfig) -> &'static str {
    match config {
        TransportConfig::Stdio(_) => "stdio",
        TransportConfig::Http(http) if http.kind == RemoteKind::Sse => "sse",
        TransportConfig::Http(_) => "http",
    }
}

/// A server that is not run, with why.
pub fn not_run(name: &str, transport: &str, phase: pb::Phase, reason: String) -> pb::ServerStatus {
    pb::ServerStatus {
        name: name.to_owned(),
        phase: phase.into(),
        reason,
        transport: transport.to_owned(),
        ..pb::ServerStatus::default()
    }
}

/// The report of a server's last start.
pub fn detail(status: &ServerStatus, log_file: String, mask: Mask<'_>) -> pb::ServerDetail {
    let report = status.report.snapshot();
    let noise = status.noise();
    let paths = |paths: &[std::path::PathBuf]| paths.iter().map(|path| path.display().to_string()).collect();
    pb::ServerDetail {
        command: report.command.map(|path| path.display().to_string()).unwrap_or_default(),
        args: report.args.iter().map(|arg| mask(arg)).collect(),
        cwd: report.cwd.map(|path| path.display().to_string()).unwrap_or_default(),
        path_searched: paths(&report.path_searched),
        env_passed: report.env_passed,
        env_dropped: report.env_dropped,
        exit_code: match status.last_exit {
            Some(crate::server::status::Exit::Code(code)) => Some(code),
            _ => None,
        },
        exit_signal: status.last_exit.and_then(crate::server::status::Exit::signal_name).unwrap_or_default(),
        stderr_tail: status.stderr_tail().iter().map(|line| mask(line)).collect(),
        noise_kind: noise.as_ref().map(|noise| noise.kind.advice().to_owned()).unwrap_or_default(),
        noise_sample: noise.map(|noise| mask(&noise.sample)).unwrap_or_default(),
        steps: report
            .steps
            .iter()
            .map(|step| pb::HandshakeStep {
                step: step.name.to_owned(),
                micros: micros(step.took),
                detail: mask(&step.detail),
                ok: step.outcome == StepOutcome::Done,
            })
            .collect(),
        log_file,
        findings: report
            .warnings
            .iter()
            .map(|warning| pb::Finding {
                severity: pb::Severity::Warning.into(),
                server: status.name.to_string(),
                message: mask(warning),
                ..pb::Finding::default()
            })
            .collect(),
    }
}

/// What a test of a server found.
pub fn diagnosis(diagnosis: &Diagnosis, log_file: String, mask: Mask<'_>) -> pb::TestServerResponse {
    let message = match &diagnosis.outcome {
        Ok(()) => "ready".to_owned(),
        Err(error) => mask(&error.to_string()),
    };
    let listed = diagnosis.listing.iter().flat_map(|listing| &listing.tools);
    let tools = listed.map(|item| pb::Tool {
        server: diagnosis.status.name.to_string(),
        raw_name: item.name.to_string(),
        title: item.title.clone().unwrap_or_default(),
        description: item.description.clone().unwrap_or_default(),
        input_schema_json: item.input_schema.get().to_owned(),
        read_only: item.annotations.read_only == Some(true),
        ..pb::Tool::default()
    });
    pb::TestServerResponse {
        ok: diagnosis.outcome.is_ok(),
        message,
        detail: Some(detail(&diagnosis.status, log_file, mask)),
        tools: tools.collect(),
        total_ms: millis(diagnosis.total),
        needs_auth: diagnosis.outcome.as_ref().is_err_and(NotReady::needs_auth),
        warnings: Vec::new(),
    }
}

/// One connected client.
pub fn client(facts: &ClientFacts) -> pb::ClientStatus {
    let named = facts.named.lock().expect("nothing panics while holding it").clone();
    pb::ClientStatus {
        id: facts.id.0,
        pid: facts.pid,
        name: named.name,
        version: named.version,
        protocol_version: named.revision,
        profile: facts.profile.clone(),
        in_flight: facts.in_flight.load(Ordering::Relaxed),
        connected_ms: millis(facts.connected.elapsed()),
        calls: facts.calls.load(Ordering::Relaxed),
        dropped_notifications: facts.dropped.load(Ordering::Relaxed),
    }
}

/// One finding.
pub fn finding(finding: &Finding, mask: Mask<'_>) -> pb::Finding {
    let severity = match finding.severity {
        Severity::Error => pb::Severity::Error,
        Severity::Warning => pb::Severity::Warning,
        Severity::Info => pb::Severity::Info,
    };
    pb::Finding {
        severity: severity.into(),
        server: finding.server.as_ref().map(ToString::to_string).unwrap_or_default(),
        file: finding.file.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
        line: finding.line,
        key: finding.key.clone(),
        message: mask(&finding.message),
        hint: mask(&finding.hint),
        ..pb::Finding::default()
    }
}

/// One tool of the catalogue.
pub fn tool(tool: &Tool) -> pb::Tool {
    let members = Members::parse(&tool.json).unwrap_or_default();
    let text = |key| members.text(key).map(std::borrow::Cow::into_owned).unwrap_or_default();
    let raw_name = match &tool.origin {
        Origin::Server { raw, .. } => raw.to_string(),
        Origin::Conversations { .. } => tool.name.to_string(),
    };
    let annotations = members.get("annotations").and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
    pb::Tool {
        name: tool.name.to_string(),
        server: tool.server().to_owned(),
        raw_name,
        title: text("title"),
        description: text("description"),
        input_schema_json: members.get("inputSchema").map(|raw| raw.get().to_owned()).unwrap_or_default(),
        read_only: annotations.get("readOnlyHint").is_some_and(|hint| hint.get() == "true"),
        warnings: Vec::new(),
    }
}
