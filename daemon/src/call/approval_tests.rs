//! The step "approval" under a paused clock.

use super::approval::{ANSWER, ApprovalError, Gated, Passed};
use super::{CallPath, Caller, Surroundings, ToolCall, route};
use crate::catalog::build::{self, Offer};
use crate::config::{ApprovalPolicy, Config, RedactionLabels, ServerConfig, StdioConfig, TransportConfig};
use crate::conversations::Conversations;
use crate::names::{ClientId, ProfileName, ServerName};
use crate::policy::approvals::{Decision, Judge};
use crate::redact::Redactor;
use crate::secret::KnownSecrets;
use crate::server::Servers;
use crate::store::{self, Store};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::stats::Stats;
use crate::telemetry::traces::Span;
use hermes_proto::shim::hello::Only;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

struct Rig {
    path: CallPath,
    config: Arc<ServerConfig>,
    caller: Caller,
    _dir: tempfile::TempDir,
}

fn rig(timeout: Duration) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let stdio = TransportConfig::Stdio(StdioConfig::command("x"));
    let mut config = ServerConfig::with_transport(ServerName::new("s"), stdio);
    config.approval = ApprovalPolicy::Always;
    config.approval_timeout = timeout;
    let config = Arc::new(config);
    let tool = RawValue::from_string(r#"{"name":"t","inputSchema":{"type":"object"}}"#.into()).unwrap();
    let offer = Offer::of_tools(config.clone(), vec![("t".into(), tool)]);
    let catalog = Arc::new(build::build(&Config::default(), &[offer], &[]));
    let view = catalog.view(&ProfileName::new("default"), Only::All);
    let (store, _) = Store::open(&dir.path().join("hermesd.db"));
    let path = CallPath::new(Surroundings {
        servers: watch::channel(Arc::new(Servers::new())).1,
        config: watch::channel(Arc::new(Config::default())).1,
        catalog: watch::channel(catalog).1,
        conversations: Conversations::open(dir.path()),
        redactor: watch::channel(Arc::new(Redactor::new(&KnownSecrets::default(), RedactionLabels::Plain))).1,
        metrics: Metrics::new("0", SystemTime::now(), None),
        stats: Stats::default(),
        stopping: CancellationToken::new(),
        store,
    });
    let identity = store::Caller {
        uid: None,
        pid: None,
        executable: None,
        profile: ProfileName::new("default"),
        name: Some("c".into()),
        version: None,
    };
    let caller = Caller { client: ClientId(1), view, identity: Arc::new(identity), hearer: None };
    Rig { path, config, caller, _dir: dir }
}

impl Rig {
    async fn ask(&self, progress: &(impl Fn(Box<RawValue>) + Sync)) -> Result<Passed, ApprovalError> {
        let params = r#"{"name":"mcp_s_t","arguments":{"a":1},"_meta":{"progressToken":"p"}}"#;
        let params = RawValue::from_string(params.into()).unwrap();
        let call = ToolCall::of(route::read(&params).unwrap());
        let tool = self.caller.view.tool("mcp_s_t").unwrap().clone();
        let gated = Gated {
            caller: &self.caller,
            config: &self.config,
            tool: &tool,
            call: &call,
            upstream: &call.upstream,
            span: &Span::none(),
        };
        self.path.approve(&gated, progress).await
    }
}

#[tokio::test(start_paused = true)]
async fn after_forty_five_seconds_the_client_is_told_to_come_back_and_redeems_the_decision_once() {
    let rig = rig(Duration::from_secs(300));
    let (steps, started) = (AtomicU32::new(0), Instant::now());
    let count = |params: Box<RawValue>| {
        assert!(params.get().contains("waiting for approval 1"));
        steps.fetch_add(1, Ordering::Relaxed);
    };
    assert_eq!(rig.ask(&count).await, Err(ApprovalError::Waiting { id: 1 }));
    assert_eq!(started.elapsed(), ANSWER);
    assert_eq!(steps.load(Ordering::Relaxed), 4);
    assert_eq!(rig.path.waiting().len(), 1);
    rig.path.respond("1", Decision::AllowOnce, Judge::Operator, "test").await.unwrap();
    assert_eq!(rig.ask(&|_| {}).await, Ok(Passed::Decided(Decision::AllowOnce)));
    assert_eq!(rig.ask(&|_| {}).await, Err(ApprovalError::Waiting { id: 2 }));
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_never_comes_lapses_with_the_servers_limit() {
    let rig = rig(Duration::from_secs(60));
    assert_eq!(rig.ask(&|_| {}).await, Err(ApprovalError::Waiting { id: 1 }));
    tokio::time::advance(Duration::from_secs(16)).await;
    assert!(rig.path.waiting().is_empty());
    assert!(rig.path.respond("1", Decision::AllowOnce, Judge::Operator, "test").await.is_err());
}
