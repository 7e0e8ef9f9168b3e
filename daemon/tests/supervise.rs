//! Promises of a supervisor on real processes: a real MCP server, a real guard, looked at in /proc.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use hermesd::config::{ServerConfig, StdioConfig, TransportConfig};
use hermesd::guard;
use hermesd::names::ServerName;
use hermesd::secret::KnownSecrets;
use hermesd::server::base_env::BaseEnv;
use hermesd::server::diagnose::diagnose;
use hermesd::server::handle::{NotReady, ServerHandle};
use hermesd::server::lifecycle::{Phase, Starts, StopReason};
use hermesd::server::spawn::StdioLauncher;
use hermesd::server::status::{Exit, ServerStatus};
use hermesd::server::supervisor::{Known, Shared, Supervisor};
use hermesd::server::transport::ledger::Ledger;
use hermesd::server::wire::{Progress, Request, WireError};
use hermesd::tasks::{Finished, TaskGroup};
use hermesd::telemetry::redact_hook::RedactHook;
use hermesd::telemetry::server_log::{LogLimits, ServerLogs};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Once};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Far above what any step takes on a loaded machine; reached only when something is broken.
const LIMIT: Duration = Duration::from_secs(60);

struct Bench {
    _home: tempfile::TempDir,
    shared: Shared,
}

impl Bench {
    fn new() -> Self {
        static SUBREAPER: Once = Once::new();
        SUBREAPER.call_once(|| guard::become_subreaper().unwrap());
        let home = tempfile::tempdir().unwrap();
        let tasks = TaskGroup::new();
        let hook = RedactHook::new(|text: &str| text.to_owned());
        let launcher = StdioLauncher {
            base: watch::channel(Arc::new(BaseEnv::gather(
                std::env::vars_os(),
                BTreeMap::new(),
                None,
                home.path(),
            )))
            .1,
            secrets: watch::channel(Arc::new(KnownSecrets::default())).1,
            osv: Arc::new(hermesd::server::osv::Osv::new(None, home.path().join("osv-cache.json"))),
            logs: ServerLogs::start(home.path(), LogLimits::default(), hook).unwrap(),
            ledger: Ledger::new(home.path().join("children.json")),
            guard_exe: env!("CARGO_BIN_EXE_hermesd").into(),
            tasks: tasks.clone(),
        };
        let shared = Shared::new(Arc::new(launcher), tasks, Starts::Allowed);
        Self { _home: home, shared }
    }

    fn server(&self, config: &ServerConfig) -> ServerHandle {
        Supervisor::start(Arc::new(config.clone()), Known::Nothing, self.shared.clone())
    }

    async fn end(self) {
        assert_eq!(self.shared.tasks.finish(LIMIT).await, Finished::All);
    }
}

fn config(command: &str, args: &[&str]) -> ServerConfig {
    let mut stdio = StdioConfig::command(command);
    stdio.args = args.iter().map(ToString::to_string).collect();
    ServerConfig::with_transport(ServerName::new("w"), TransportConfig::Stdio(stdio))
}

/// The smallest MCP server there is; `$id` is taken from our own way of writing requests.
const SERVER: &str = r#"
while read -r line; do
  id=${line#*\"id\":}; id=${id%%,*}
  case "$line" in
    *notifications/*) continue ;;
    *'"method":"initialize"'*) result='{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}' ;;
    *tools/list*) result='{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}' ;;
    *) result='{}' ;;
  esac
  echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$result}"
done
"#;

fn good() -> ServerConfig {
    config("/bin/sh", &["-c", SERVER])
}

fn deadline() -> Instant {
    Instant::now() + LIMIT
}

async fn wait(server: &ServerHandle, what: &str, condition: impl Fn(&ServerStatus) -> bool) -> ServerStatus {
    let mut status = server.status();
    let waited = tokio::time::timeout(LIMIT, status.wait_for(|status| condition(status))).await;
    waited.unwrap_or_else(|_| panic!("not reached: {what}; {:?}", *server.status().borrow())).unwrap().clone()
}

fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie has ended; it waits for its parent.
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).is_some_and(|state| state != "Z")
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[tokio::test]
async fn a_killed_server_fails_its_calls_at_once_and_comes_back() {
    let bench = Bench::new();
    let server = bench.server(&good());
    let wire = server.ready(deadline()).await.unwrap();
    let first = server.status().borrow().clone();
    assert!(!server.listing().borrow().as_ref().unwrap().tools.is_empty());
    // A request that the server cannot have answered before it is gone: it is stopped first.
    let pid = first.pid.unwrap();
    let (idle, cap, progress) = (LIMIT * 10, LIMIT * 10, Progress::Unwanted);
    let raw = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(raw, rustix::process::Signal::STOP).unwrap();
    let call = wire.request(Request { method: "ping".into(), params: None, idle, cap, progress }).unwrap();
    tokio::task::yield_now().await;
    let killed = Instant::now();
    kill(pid);
    let failed = tokio::time::timeout(LIMIT, call.done()).await.unwrap();
    let took = killed.elapsed();
    assert!(matches!(failed, Err(WireError::Gone { .. })), "{failed:?}");
    assert!(took < Duration::from_secs(1), "pending calls failed only after {took:?}");
    let status = wait(&server, "failed", |status| status.last_exit.is_some()).await;
    assert_eq!(status.last_exit, Some(Exit::Signal(9)));

    assert!(server.ready(deadline()).await.is_ok());
    let second = server.status().borrow().clone();
    assert_eq!(second.generation.0, 2);
    assert!(!lives(pid) && lives(second.pid.unwrap()));
    bench.end().await;
}

#[tokio::test]
async fn a_stop_leaves_neither_server_nor_guard() {
    let bench = Bench::new();
    let server = bench.server(&good());
    server.ready(deadline()).await.unwrap();
    let status = server.status().borrow().clone();
    server.stop(StopReason::Operator).await;
    assert!(
        !lives(status.pid.unwrap()) && !Path::new(&format!("/proc/{}", status.guard_pid.unwrap())).exists()
    );
    assert!(matches!(server.status().borrow().phase, Phase::Stopped { reason: StopReason::Operator }));
    assert!(server.ready(deadline()).await.is_ok(), "the next call starts it");
    bench.end().await;
}

#[tokio::test]
async fn a_command_that_is_not_there_parks_with_every_folder_that_was_searched() {
    let bench = Bench::new();
    let server = bench.server(&config("hermes-no-such-command", &[]));
    let status = wait(&server, "parked", |status| matches!(status.phase, Phase::Parked { .. })).await;
    assert!(status.reason().contains("hermes-no-such-command"), "{}", status.reason());
    assert!(!status.report.snapshot().path_searched.is_empty());
    assert_eq!(status.next_step, None);
    let error = server.ready(deadline()).await.unwrap_err();
    assert!(matches!(error, NotReady::Failed { retry_in: None, .. }), "{error}");
    bench.end().await;
}

#[tokio::test]
async fn a_test_says_how_the_server_ended_and_its_last_words() {
    let bench = Bench::new();
    let broken = config("/bin/sh", &["-c", "echo 'Error: no such module' >&2; echo hello; exit 3"]);
    let found = diagnose(&broken, &bench.shared).await;
    assert!(found.outcome.is_err());
    assert_eq!(found.status.last_exit, Some(Exit::Code(3)));
    let tail = found.status.stderr_tail().join("\n");
    assert!(tail.contains("Error: no such module"), "{tail}");
    let steps: Vec<&str> = found.status.report.snapshot().steps.iter().map(|step| step.name).collect();
    assert_eq!(steps[..4], ["resolve", "gate", "start slot", "spawn"]);

    let found = diagnose(&good(), &bench.shared).await;
    assert!(found.outcome.is_ok(), "{:?}", found.outcome);
    assert!(!found.listing.unwrap().tools.is_empty());
    assert!(!lives(found.status.pid.unwrap()));
    bench.end().await;
}

#[tokio::test]
async fn a_server_that_is_still_starting_is_stopped_with_the_daemon() {
    let bench = Bench::new();
    let server = bench.server(&config("/bin/sh", &["-c", "trap '' TERM; sleep 600"]));
    let status = wait(&server, "spawned", |status| status.pid.is_some()).await;
    bench.end().await;
    assert!(!lives(status.pid.unwrap()));
}
