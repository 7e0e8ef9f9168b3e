//! The step "approval" under a paused clock.

use super::approval::{ANSWER, ApprovalError, Gated, Passed};
use super::peer::{AskError, Asking, Feature, Peer};
use super::seal::SealKey;
use super::{CallPath, Caller, Surroundings, ToolCall, route};
use crate::catalog::build::{self, Offer};
use crate::config::{ApprovalPolicy, Config, RedactionLabels, ServerConfig, StdioConfig, TransportConfig};
use crate::conversations::Conversations;
use crate::jsonrpc::reply::Reply;
use crate::names::{ClientId, ProfileName, ServerName};
use crate::policy::approvals::{Decision, Judge};
use crate::redact::Redactor;
use crate::sampling::{self, Sampler};
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
    let redactor = Arc::new(Redactor::new(&KnownSecrets::default(), RedactionLabels::Plain));
    let redactor = watch::channel(redactor).1;
    let metrics = Metrics::new("0", SystemTime::now(), None);
    let config_in_force = watch::channel(Arc::new(Config::default())).1;
    let sampling = Arc::new(Sampler::new(sampling::Around {
        config: config_in_force.clone(),
        redactor: redactor.clone(),
        store: store.clone(),
        metrics: metrics.clone(),
    }));
    let path = CallPath::new(Surroundings {
        servers: watch::channel(Arc::new(Servers::new())).1,
        config: config_in_force,
        catalog: watch::channel(catalog).1,
        conversations: Conversations::open(dir.path()),
        seal: SealKey::random().unwrap(),
        redactor,
        metrics,
        sampling,
        stats: Stats::default(),
        stopping: CancellationToken::new(),
        store,
    });
    let identity = store::Caller {
        uid: Some(1000),
        pid: None,
        executable: None,
        profile: ProfileName::new("default"),
        name: Some("c".into()),
        version: None,
    };
    let identity = Arc::new(identity);
    let caller = Caller { client: ClientId(1), view, identity, peer: None, hearer: None, inbox: None };
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
            policy: &self.config.approval,
            timeout: self.config.approval_timeout,
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
    assert_eq!(rig.ask(&|_| {}).await, Ok(Passed::Decided(Decision::AllowOnce, Judge::Operator)));
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

/// A client whose user answers after a while, or never.
#[derive(Debug)]
struct Form {
    after: Duration,
    says: &'static str,
    /// Questions that nobody waits for any more.
    dropped: Arc<AtomicU32>,
}

struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Peer for Form {
    fn revision(&self) -> &'static str {
        "2025-11-25"
    }

    fn has(&self, feature: Feature) -> bool {
        feature == Feature::Form
    }

    fn ask(&self, method: &'static str, _: &RawValue, _: Duration) -> Result<Asking, AskError> {
        assert_eq!(method, "elicitation/create");
        let (after, says, open) = (self.after, self.says, Counted(self.dropped.clone()));
        Ok(Box::pin(async move {
            let open = open;
            tokio::time::sleep(after).await;
            std::mem::forget(open);
            Ok(Reply::Result(RawValue::from_string(says.to_owned()).unwrap()))
        }))
    }
}

fn rig_with_form(after: Duration, says: &'static str) -> (Rig, Arc<AtomicU32>) {
    let (mut rig, dropped) = (rig(Duration::from_secs(300)), Arc::new(AtomicU32::new(0)));
    rig.caller.peer = Some(Arc::new(Form { after, says, dropped: dropped.clone() }));
    (rig, dropped)
}

#[tokio::test(start_paused = true)]
async fn the_users_answer_ends_the_wait_and_progress_goes_on_until_then() {
    let says = r#"{"action":"accept","content":{"decision":"allow-once"}}"#;
    let (rig, dropped) = rig_with_form(Duration::from_secs(25), says);
    let steps = AtomicU32::new(0);
    let count = |_| {
        steps.fetch_add(1, Ordering::Relaxed);
    };
    assert_eq!(rig.ask(&count).await, Ok(Passed::Decided(Decision::AllowOnce, Judge::User)));
    assert_eq!((steps.load(Ordering::Relaxed), dropped.load(Ordering::Relaxed)), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_user_who_does_not_answer_is_not_asked_for_longer_than_the_call_waits() {
    let (rig, dropped) = rig_with_form(Duration::from_secs(3600), "{}");
    let started = Instant::now();
    assert_eq!(rig.ask(&|_| {}).await, Err(ApprovalError::Waiting { id: 1 }));
    assert_eq!((started.elapsed(), dropped.load(Ordering::Relaxed)), (ANSWER, 1));
    rig.path.respond("1", Decision::AllowOnce, Judge::Operator, "test").await.unwrap();
    assert_eq!(rig.ask(&|_| {}).await, Ok(Passed::Decided(Decision::AllowOnce, Judge::Operator)));
}

#[tokio::test(start_paused = true)]
async fn a_useless_answer_leaves_the_call_waiting_for_others() {
    let (rig, _) = rig_with_form(Duration::from_secs(1), r#"{"action":"accept"}"#);
    assert_eq!(rig.ask(&|_| {}).await, Err(ApprovalError::Waiting { id: 1 }));
    let (rig, _) = rig_with_form(Duration::from_secs(1), r#"{"action":"cancel"}"#);
    let started = Instant::now();
    assert_eq!(rig.ask(&|_| {}).await, Err(ApprovalError::Waiting { id: 1 }));
    assert_eq!((started.elapsed().as_secs(), rig.path.waiting().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_identical_call_goes_on_waiting_when_the_other_is_taken_back() {
    let rig = rig(Duration::from_secs(300));
    let other = tokio::time::timeout(Duration::from_secs(5), rig.ask(&|_| {}));
    let (taken_back, answer) = tokio::join!(other, async {
        let asking = rig.ask(&|_| {});
        let deciding = async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            rig.path.respond("1", Decision::AllowOnce, Judge::Operator, "test").await
        };
        tokio::join!(asking, deciding)
    });
    assert!(taken_back.is_err());
    assert_eq!(answer, (Ok(Passed::Decided(Decision::AllowOnce, Judge::Operator)), Ok("allowed")));
    assert!(tokio::time::timeout(Duration::from_secs(5), rig.ask(&|_| {})).await.is_err());
    assert!(rig.path.waiting().is_empty());
}

/// Kind, number and decision of the approval events, in order.
async fn told(rig: &Rig) -> Vec<String> {
    let page = rig.path.around.store.newest_events(100, crate::store::EventFilter::default()).await.unwrap();
    let bodies =
        page.events.iter().map(|event| serde_json::from_str::<serde_json::Value>(&event.body).unwrap());
    bodies
        .map(|body| {
            format!("{} {} {}", body["type"].as_str().unwrap(), body["approval_id"], body["decision"])
        })
        .collect()
}

#[tokio::test]
async fn a_call_that_waits_when_the_daemon_ends_is_told_to_come_back_and_its_end_is_told_to_all() {
    let rig = rig(Duration::from_secs(300));
    rig.path.around.stopping.cancel();
    let error = rig.ask(&|_| {}).await.unwrap_err();
    assert_eq!(error, ApprovalError::Ending { id: 1 });
    let Rig { path, config, caller, _dir } = rig;
    let path = Arc::new(path);
    let stop = CancellationToken::new();
    stop.cancel();
    path.clone().keep_approvals(stop).await;
    let rig = Rig { path: Arc::into_inner(path).expect("the keeper has ended"), config, caller, _dir };
    assert_eq!(told(&rig).await, ["approval_requested \"1\" null", "approval_resolved \"1\" \"expired\""]);
}

#[tokio::test]
async fn the_next_daemon_tells_the_end_of_what_was_left_and_goes_on_with_the_numbers() {
    let rig = rig(Duration::from_secs(300));
    {
        let waits = rig.ask(&|_| {});
        tokio::pin!(waits);
        let listed = async {
            while told(&rig).await.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = &mut waits => panic!("nobody decided"),
            () = listed => {}
        }
        // As a daemon that starts over the same log sees it.
        rig.path.resume_approvals().await;
    }
    assert_eq!(told(&rig).await, ["approval_requested \"1\" null", "approval_resolved \"1\" \"expired\""]);
    rig.path.around.stopping.cancel();
    assert_eq!(rig.ask(&|_| {}).await.unwrap_err(), ApprovalError::Ending { id: 2 });
}
