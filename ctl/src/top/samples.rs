//! A daemon with something of everything, for the tests of the screen.

use super::state::Snapshot;
use hermes_proto::control as pb;

/// A waiting call.
pub(super) fn approval(id: &str, server: &str, tool: &str) -> pb::Approval {
    pb::Approval {
        id: id.into(),
        server: server.into(),
        tool: tool.into(),
        arguments: r#"{"path":"/home/u/notes.txt","mode":"0644","because":"it was asked for"}"#.into(),
        client: "claude-ai 1.2".into(),
        profile: "default".into(),
        created_ms: 1_796_000_000_000,
        expires_in_ms: 243_000,
    }
}

fn server(name: &str, phase: pb::Phase, memory_mib: u64) -> pb::ServerStatus {
    pb::ServerStatus {
        name: name.into(),
        phase: phase.into(),
        generation: 1,
        tools: 12,
        transport: "stdio".into(),
        breaker: Some(pb::Breaker { state: pb::BreakerState::Closed.into(), ..Default::default() }),
        memory_bytes: memory_mib * 1024 * 1024,
        processes: u32::from(memory_mib > 0) * 3,
        ..Default::default()
    }
}

fn figures(server: &str, calls: u64, errors: u64, p50_micros: u64) -> pb::ServerFigures {
    let all = pb::Figures {
        calls,
        errors,
        p50_micros,
        p95_micros: p50_micros * 7,
        p99_micros: p50_micros * 20,
        max_micros: p50_micros * 90,
        ..Default::default()
    };
    pb::ServerFigures { server: server.into(), all: Some(all), tools: Vec::new() }
}

/// Four servers, two clients, one waiting call.
pub(super) fn snapshot() -> Snapshot {
    let parked = pb::ServerStatus {
        reason: "exit code 127".into(),
        next_step_ms: Some(552_000),
        attempts: 5,
        ..server("broken", pb::Phase::Parked, 0)
    };
    let open = pb::ServerStatus {
        breaker: Some(pb::Breaker { state: pb::BreakerState::Open.into(), failures: 3, retry_in_ms: 42_000 }),
        generation: 4,
        restarts: 3,
        notes: vec!["tool `x` was left out: its schema is no object".into()],
        ..server("github", pb::Phase::Ready, 96)
    };
    let busy = pb::ServerStatus {
        in_flight: 12,
        waiting: 3,
        uptime_ms: 7_500_000,
        pid: Some(4711),
        guard_pid: Some(4710),
        ..server("filesystem", pb::Phase::Ready, 48)
    };
    let client = |name: &str, pid| pb::ClientStatus {
        name: name.into(),
        version: "1.2".into(),
        pid,
        profile: "default".into(),
        protocol_version: "2025-11-25".into(),
        calls: 311,
        in_flight: 1,
        connected_ms: 61_000,
        ..Default::default()
    };
    Snapshot {
        status: pb::GetStatusResponse {
            version: "0.1.0".into(),
            pid: 4242,
            uptime_ms: 7_512_000,
            rss_bytes: 12_900_000,
            config_state: "ok".into(),
            servers: vec![parked, busy, open, server("notes", pb::Phase::Stopped, 0)],
            clients: vec![client("claude-ai", 900), client("cursor", 901)],
            ..Default::default()
        },
        stats: pb::StatsResponse {
            servers: vec![figures("filesystem", 1200, 7, 850), figures("github", 31, 9, 240_000)],
            since_ms: 7_512_000,
            ..Default::default()
        },
        approvals: pb::ListApprovalsResponse {
            waiting: vec![approval("7", "filesystem", "write_file")],
            ..Default::default()
        },
    }
}
