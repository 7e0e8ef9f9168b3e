//! Messages to platforms that are made up: what is sent, to whom, how often, and what is said about it.

mod golden;
mod outcomes;
mod platforms;

use super::chat_api::{ChatApi, Recorded, Reply};
use super::*;
use crate::config::RedactionLabels;
use crate::config::messaging::{HomeChannel, Messaging, PlatformConfig};
use crate::conversations::golden_tests;
use crate::secret::{KnownSecrets, Secret};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use tempfile::TempDir;

const TOKEN: &str = "123456:very-secret-token";

/// A home, platforms that all lead to one made-up server, and the tools over both.
pub(super) struct World {
    pub(super) home: TempDir,
    pub(super) api: ChatApi,
    pub(super) conversations: Conversations,
    schema: jsonschema::Validator,
    config: watch::Sender<Arc<Config>>,
    _redactor: watch::Sender<Arc<Redactor>>,
}

impl World {
    pub(super) fn friendly() -> Self {
        Self::with(ChatApi::friendly())
    }

    pub(super) fn with(api: ChatApi) -> Self {
        let home = golden_tests::home("hermes-home");
        // hermesd.db has a folder of its own below the home.
        let (store, _) = Store::open(&home.path().join("hermesd/hermesd.db"));
        Self::over(home, api, store)
    }

    fn over(home: TempDir, api: ChatApi, store: Store) -> Self {
        let messaging = messaging(&api);
        let (config_in, config) =
            watch::channel(Arc::new(Config { messaging: Arc::new(messaging), ..Config::default() }));
        let mut known = KnownSecrets::default();
        known.insert(Secret::new(TOKEN));
        let (redactor_in, redactor) = watch::channel(Arc::new(Redactor::new(&known, RedactionLabels::Plain)));
        let outgoing = Outgoing {
            config,
            redactor,
            store,
            tasks: TaskGroup::new(),
            user_home: Some(home.path().to_owned()),
        };
        let _ = rustls::crypto::ring::default_provider().install_default();
        let conversations = Conversations::open_sending(home.path(), outgoing);
        Self { home, api, conversations, schema: output_schema(), config: config_in, _redactor: redactor_in }
    }

    /// The same home and platform, after a restart of the daemon.
    pub(super) fn restarted(self) -> Self {
        let Self { home, api, conversations, .. } = self;
        drop(conversations);
        let (store, _) = Store::open(&home.path().join("hermesd/hermesd.db"));
        Self::over(home, api, store)
    }

    /// Changes the configuration in force.
    pub(super) fn configure(&self, change: impl FnOnce(&mut Messaging)) {
        let mut messaging = Messaging::clone(&self.config.borrow().messaging);
        change(&mut messaging);
        self.config.send_replace(Arc::new(Config { messaging: Arc::new(messaging), ..Config::default() }));
    }

    pub(super) fn set_extra(&self, platform: &str, key: &str, value: &str) {
        self.configure(|messaging| {
            let config = messaging.platforms.get_mut(platform).unwrap();
            config.extra.insert(key.to_owned(), Secret::new(value));
        });
    }

    /// Calls the tool; answers the structured content and whether it is an error.
    pub(super) async fn call(&self, arguments: Value) -> (Value, bool) {
        let arguments = RawValue::from_string(arguments.to_string()).unwrap();
        let reply = self.conversations.call("messages_send", Some(&arguments)).await.unwrap();
        let result: Value = serde_json::from_str(reply.json.get()).unwrap();
        assert!(!reply.json.get().contains("very-secret-token"), "{}", reply.json);
        if let Some(structured) = result.get("structuredContent") {
            assert!(self.schema.is_valid(structured), "{structured}");
        }
        (result["structuredContent"].clone(), reply.is_error)
    }

    /// Sends a text that must arrive.
    #[track_caller]
    pub(super) fn sent<'a>(&'a self, target: &'a str, message: &'a str) -> impl Future<Output = Value> + 'a {
        let place = std::panic::Location::caller();
        async move {
            let (answer, is_error) = self.call(json!({"target": target, "message": message})).await;
            assert!(!is_error, "{place}: {target}: {answer}");
            assert_eq!(answer["success"], json!(true), "{place}");
            answer
        }
    }

    /// Sends a text that must not be answered with success.
    pub(super) async fn refused(&self, target: &str, message: &str) -> Value {
        let (answer, is_error) = self.call(json!({"target": target, "message": message})).await;
        assert!(is_error, "{target}: {answer}");
        answer
    }

    pub(super) fn write(&self, file: &str, content: &Value) {
        std::fs::write(self.home.path().join(file), content.to_string()).unwrap();
    }
}

/// What the tool says about its own answers.
fn output_schema() -> jsonschema::Validator {
    let tools = Conversations::tools();
    let tool = tools.iter().find(|tool| tool.name.as_str() == "messages_send").unwrap();
    let listed: Value = serde_json::from_str(tool.json.get()).unwrap();
    jsonschema::validator_for(&listed["outputSchema"]).unwrap()
}

/// All eight platforms, with home channels that no test names.
fn messaging(api: &ChatApi) -> Messaging {
    let url = api.url();
    let platform = |token: Option<&str>, extra: &[(&str, &str)], home: &str| PlatformConfig {
        enabled: true,
        token: token.map(Secret::new),
        extra: extra.iter().map(|(key, value)| ((*key).to_owned(), Secret::new(*value))).collect(),
        home: Some(HomeChannel { chat_id: home.to_owned(), thread_id: None }),
        problem: None,
    };
    let port = api.port().to_string();
    let webhook = format!("{url}/robot/send?access_token=abcdefgh");
    let all = [
        ("telegram", platform(Some(TOKEN), &[("base_url", &url)], "-100999")),
        ("discord", platform(Some(TOKEN), &[("base_url", &url)], "999000999")),
        ("slack", platform(Some(TOKEN), &[("base_url", &url)], "C0HOMEHOME")),
        ("signal", platform(None, &[("http_url", &url), ("account", "+19990001111")], "+19999999999")),
        ("whatsapp", platform(None, &[("bridge_port", &port)], "home@g.us")),
        ("matrix", platform(Some(TOKEN), &[("homeserver", &url)], "!home:server")),
        ("homeassistant", platform(Some(TOKEN), &[("url", &url)], "home_phone")),
        ("dingtalk", platform(None, &[("webhook_url", &webhook)], "cidHome")),
    ];
    let platforms: BTreeMap<String, PlatformConfig> =
        all.into_iter().map(|(name, config)| (name.to_owned(), config)).collect();
    Messaging { platforms, ..Messaging::default() }
}

/// The recipient that a request names, whatever the platform.
pub(super) fn recipient(request: &Recorded) -> String {
    let body = request.json();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
    let path: Vec<&str> = request.path.split(['/', '?']).collect();
    let after = |name: &str| path.iter().position(|part| *part == name).map(|at| path[at + 1].to_owned());
    if let Some(channel) = after("channels") {
        return channel;
    }
    if let Some(room) = after("rooms") {
        return room;
    }
    for key in ["chat_id", "channel", "chatId", "target"] {
        if let Some(value) = body.get(key) {
            return text(value);
        }
    }
    let params = &body["params"];
    match params.get("groupId") {
        Some(group) => format!("group:{}", text(group)),
        None if params["recipient"].is_array() => text(&params["recipient"][0]),
        None if path.contains(&"robot") => "webhook".to_owned(),
        None => panic!("no recipient in {request:?}"),
    }
}
