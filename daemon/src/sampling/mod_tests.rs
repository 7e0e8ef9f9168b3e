//! The sampler as `call` uses it, against a provider on this machine.

use super::*;
use crate::chat_api::{ChatApi, Reply as Said};
use crate::config::{RedactionLabels, SamplingProviderConfig, StdioConfig, TransportConfig};
use crate::secret::{KnownSecrets, Secret};
use crate::store::AuditQuery;
use crate::telemetry::metrics::Format;
use serde_json::{Value, json};
use std::time::SystemTime;

type NoClient = fn(Box<RawValue>, Duration) -> std::future::Ready<Result<Reply, ClientFailure>>;

struct Bench {
    sampler: Sampler,
    config: watch::Sender<Arc<Config>>,
    _redactor: watch::Sender<Arc<Redactor>>,
    server: ServerConfig,
    _dir: tempfile::TempDir,
}

impl Bench {
    async fn new(base_url: Option<String>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(&dir.path().join("hermesd.db"));
        let mut config = Config::default();
        config.daemon.sampling_provider = base_url.map(|base_url| SamplingProviderConfig {
            base_url,
            api_key: Some(Secret::new("key-of-the-provider")),
            model: Some("m".to_owned()),
        });
        let mut known = KnownSecrets::default();
        known.insert(Secret::new("key-of-the-provider"));
        let (config, config_out) = watch::channel(Arc::new(config));
        let redactor = Arc::new(Redactor::new(&known, RedactionLabels::Plain));
        let (redactor, redactor_out) = watch::channel(redactor);
        let metrics = Metrics::new("0", SystemTime::now(), None);
        let around = Around { config: config_out, redactor: redactor_out, store, metrics };
        let transport = TransportConfig::Stdio(StdioConfig::command("x"));
        let server = ServerConfig::with_transport(ServerName::new("s"), transport);
        Self { sampler: Sampler::new(around), config, _redactor: redactor, server, _dir: dir }
    }

    async fn ask(&self, params: &Value) -> Result<Value, (i64, String)> {
        self.ask_client(params, None::<NoClient>).await
    }

    async fn ask_client<F, A>(&self, params: &Value, client: Option<F>) -> Result<Value, (i64, String)>
    where
        F: FnOnce(Box<RawValue>, Duration) -> A,
        A: Future<Output = Result<Reply, ClientFailure>>,
    {
        let params = crate::jsonrpc::splice::raw(params);
        let asked = Asked { server: &self.server, caller: None, trace_id: "t", params: &params };
        match self.sampler.create_message(asked, client).await {
            Reply::Result(result) => Ok(serde_json::from_str(result.get()).unwrap()),
            Reply::Error(error) => {
                let error: Value = serde_json::from_str(error.get()).unwrap();
                Err((error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned()))
            }
        }
    }

    fn metrics(&self) -> String {
        self.sampler.around.metrics.render(Format::Plain)
    }
}

fn question() -> Value {
    json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": "hi" } }], "maxTokens": 10_000 })
}

fn completion(message: Value) -> Said {
    Said::ok(json!({ "model": "m-1", "choices": [{ "message": message, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 12, "completion_tokens": 3 } }))
}

#[tokio::test]
async fn the_provider_is_asked_within_the_limits_and_what_it_cost_is_counted() {
    let api = ChatApi::start(|_, _| completion(json!({ "content": "hello" })));
    let bench = Bench::new(Some(format!("{}/v1/", api.url()))).await;
    let answer = bench.ask(&question()).await.unwrap();
    assert_eq!((&answer["content"]["text"], &answer["model"]), (&json!("hello"), &json!("m-1")));
    let request = &api.requests()[0];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/chat/completions"));
    assert_eq!(request.header("authorization"), Some("Bearer key-of-the-provider"));
    assert_eq!((&request.json()["model"], &request.json()["max_tokens"]), (&json!("m"), &json!(4096)));
    let metrics = bench.metrics();
    for line in [
        r#"hermes_sampling_requests_total{server="s",outcome="ok"} 1"#,
        r#"hermes_sampling_tokens_total{server="s",direction="input"} 12"#,
        r#"hermes_sampling_tokens_total{server="s",direction="output"} 3"#,
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    let store = &bench.sampler.around.store;
    store.flush(Duration::from_secs(60)).await;
    let rows = store.audit(AuditQuery::default()).await.unwrap();
    let row = &rows[0];
    assert_eq!((row.method.as_ref(), row.outcome.as_ref()), (METHOD, "ok"));
    let said: Vec<String> = row.decisions.iter().map(|d| format!("{} {}", d.step, d.said)).collect();
    assert_eq!(said, ["max_tokens cut to 4096", "answered_by provider", "model m-1"]);
}

#[tokio::test]
async fn a_limit_of_time_cuts_the_request_off_at_the_provider() {
    let api = ChatApi::start(|_, _| Said::Hold);
    let mut bench = Bench::new(Some(api.url())).await;
    bench.server.sampling.timeout = Duration::from_millis(200);
    let (code, text) = bench.ask(&question()).await.unwrap_err();
    assert_eq!((code, text.as_str()), (-32603, "no answer within 200ms"));
    tokio::task::spawn_blocking(move || api.wait_for_hang_up()).await.unwrap();
}

#[tokio::test]
async fn a_provider_that_fails_is_described_without_its_words() {
    let api = ChatApi::start(|number, _| match number {
        0 => Said::status(401, json!({ "error": "bad key key-of-the-provider of org 7" })),
        1 => Said::status(429, json!({})),
        2 => Said::status(503, json!({})),
        3 => Said::Cut,
        4 => Said::ok(json!({ "choices": [] })),
        _ => Said::status(302, json!({})),
    });
    let bench = Bench::new(Some(api.url())).await;
    for text in [
        "the model's provider refuses the configured key (status 401)",
        "the model's provider is at its own rate limit",
        "the model's provider answered with status 503",
        "the model's provider cannot be reached",
        "the model's provider answered nothing",
        "the model's provider answered with status 302",
    ] {
        assert_eq!(bench.ask(&question()).await.unwrap_err().1, text);
    }
    assert_eq!(api.requests().len(), 6, "nothing was asked twice");
}

#[tokio::test]
async fn a_model_that_wants_the_newer_name_of_the_limit_gets_it() {
    let api = ChatApi::start(|_, request| match request.json()["max_tokens"] {
        Value::Null => completion(json!({ "content": "hello" })),
        _ => Said::status(
            400,
            json!({ "error": { "message": "'max_tokens' is not supported, use 'max_completion_tokens'" } }),
        ),
    });
    let bench = Bench::new(Some(api.url())).await;
    for _ in 0..2 {
        assert!(bench.ask(&question()).await.is_ok());
    }
    assert_eq!(api.requests().len(), 3, "it is remembered");
}

#[tokio::test]
async fn limits_hold_for_the_provider() {
    let api = ChatApi::start(|_, _| {
        completion(json!({ "tool_calls": [{ "id": "c", "function": { "name": "t", "arguments": "{}" } }] }))
    });
    let mut bench = Bench::new(Some(api.url())).await;
    let mut with_tools = question();
    with_tools["tools"] = json!([{ "name": "t" }]);
    bench.server.sampling.max_tool_rounds = 1;
    assert_eq!(bench.ask(&with_tools).await.unwrap()["stopReason"], "toolUse");
    assert!(bench.ask(&with_tools).await.unwrap_err().1.contains("1 rounds of tool use"));
    bench.server.sampling.max_tool_rounds = 0;
    assert!(bench.ask(&with_tools).await.unwrap_err().1.contains("tools in sampling"));
    bench.server.sampling.allowed_models = vec!["other".to_owned()];
    assert!(bench.ask(&question()).await.unwrap_err().1.contains("`m` is not in"));
    bench.server.sampling.allowed_models.clear();
    bench.server.sampling.max_rpm = 2;
    assert!(bench.ask(&question()).await.unwrap_err().1.contains("2 sampling requests a minute"));
    bench.server.sampling.enabled = false;
    assert_eq!(bench.ask(&question()).await.unwrap_err().0, -1);
    assert_eq!(api.requests().len(), 2, "what is refused never leaves");
    assert!(!bench.sampler.can_answer(&bench.server));
}

#[tokio::test]
async fn a_client_is_asked_within_the_same_limits() {
    let mut bench = Bench::new(None).await;
    bench.server.sampling.allowed_models = vec!["good".to_owned()];
    bench.server.sampling.max_tokens_cap = 50;
    bench.server.sampling.timeout = Duration::from_secs(7);
    let answering = |model: &'static str| {
        move |params: Box<RawValue>, limit: Duration| async move {
            let params: Value = serde_json::from_str(params.get()).unwrap();
            assert_eq!((&params["maxTokens"], limit), (&json!(50), Duration::from_secs(7)));
            assert_eq!(
                params["modelPreferences"],
                json!({ "speedPriority": 1, "hints": [{ "name": "good" }] })
            );
            let said =
                json!({ "role": "assistant", "model": model, "content": { "type": "text", "text": "x" } });
            Ok(Reply::Result(crate::jsonrpc::splice::raw(&said)))
        }
    };
    let mut params = question();
    params["modelPreferences"] = json!({ "speedPriority": 1, "hints": [{ "name": "evil" }] });
    assert_eq!(bench.ask_client(&params, Some(answering("good"))).await.unwrap()["model"], "good");
    assert!(
        bench.ask_client(&params, Some(answering("evil"))).await.unwrap_err().1.contains("`evil` is not in")
    );
    let refusing = |_: Box<RawValue>, _: Duration| async { Ok(Reply::error(-1, "User said no")) };
    assert_eq!(bench.ask_client(&params, Some(refusing)).await.unwrap_err(), (-1, "User said no".to_owned()));
    assert!(bench.ask(&params).await.unwrap_err().1.starts_with("nobody can answer"));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_says_nothing_is_not_waited_for_longer_than_the_limit() {
    let bench = Bench::new(None).await;
    let silent = |_: Box<RawValue>, _: Duration| std::future::pending();
    let begun = Instant::now();
    assert_eq!(bench.ask_client(&question(), Some(silent)).await.unwrap_err().1, "no answer within 30s");
    assert_eq!(begun.elapsed(), Duration::from_secs(30));
    assert!(bench.metrics().contains(r#"outcome="timeout"} 1"#));
}

#[tokio::test]
async fn who_is_asked_first_is_configured() {
    let api = ChatApi::start(|_, _| completion(json!({ "content": "provider" })));
    let mut bench = Bench::new(Some(api.url())).await;
    let client = |_: Box<RawValue>, _: Duration| async {
        let said =
            json!({ "role": "assistant", "model": "c", "content": { "type": "text", "text": "client" } });
        Ok(Reply::Result(crate::jsonrpc::splice::raw(&said)))
    };
    assert_eq!(bench.ask_client(&question(), Some(client)).await.unwrap()["content"]["text"], "client");
    bench.server.sampling.prefer = SamplingPreference::Provider;
    assert_eq!(bench.ask_client(&question(), Some(client)).await.unwrap()["content"]["text"], "provider");
    bench.config.send_replace(Arc::new(Config::default()));
    assert_eq!(bench.ask_client(&question(), Some(client)).await.unwrap()["content"]["text"], "client");
}
