//! Pure: `platforms:`, what messages are sent with.
//!
//! Promise: Hermes Agent's order holds (environment, then config.yaml, then gateway.json); whatever is
//! a credential is noted for redaction; a wrong value costs its platform alone. Keys that hermesd does
//! not use are Hermes Agent's and are not judged. May not touch: files, the network.

use super::Finding;
use super::file::{Document, Kind};
use super::reader::{Cx, Field, Section, Sink, Surroundings};
use super::{Severity, values};
use crate::secret::{KnownSecrets, Secret, name_says_secret};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Everything that sending needs to know.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Messaging {
    /// By name, lower case; those that are written or have credentials in the environment.
    pub platforms: BTreeMap<String, PlatformConfig>,
    /// Folders besides the caches of Hermes Agent from which files may be sent.
    pub media_dirs: Vec<PathBuf>,
    /// Ways out of this machine.
    pub proxies: Proxies,
}

/// One platform.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PlatformConfig {
    /// Whether messages may be sent by it. Default false, as in Hermes Agent.
    pub enabled: bool,
    /// The credential.
    pub token: Option<Secret>,
    /// Further keys by name, only those of [`EXTRA`]; some are credentials.
    pub extra: BTreeMap<String, Secret>,
    /// Where a message goes that names only the platform.
    pub home: Option<HomeChannel>,
    /// Why it cannot be used, one sentence; also a finding.
    pub problem: Option<String>,
}

/// The chat that a bare platform name means.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HomeChannel {
    /// Its id on the platform.
    pub chat_id: String,
    /// The thread in it, if one.
    pub thread_id: Option<String>,
}

/// Proxies by what they are for; each an URL that may carry credentials.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Proxies {
    /// For https addresses.
    pub https: Option<Secret>,
    /// For http addresses.
    pub http: Option<Secret>,
    /// For both, where nothing closer is set.
    pub all: Option<Secret>,
    /// For Telegram alone, before all others.
    pub telegram: Option<Secret>,
    /// Hosts that are reached without, as `NO_PROXY` lists them.
    pub none_for: Option<String>,
}

/// Keys below `extra` that mean something here.
pub const EXTRA: &[&str] = &[
    "account",
    "allow_insecure",
    "base_url",
    "bridge_port",
    "disable_link_previews",
    "homeserver",
    "http_url",
    "url",
    "webhook_url",
];

/// Platforms that hermesd sends to; the keys of others are not looked at.
pub const SENDABLE: &[&str] =
    &["telegram", "discord", "slack", "signal", "whatsapp", "matrix", "homeassistant", "dingtalk"];

/// What one source says about one platform.
#[derive(Default)]
struct Layer {
    enabled: Option<bool>,
    token: Option<Secret>,
    extra: BTreeMap<String, Secret>,
    home: Option<HomeChannel>,
    problem: Option<String>,
}

/// Reads all three sources. Answers findings and secrets beside the result.
pub(super) fn read(
    document: &Document,
    gateway: Option<&str>,
    around: &Surroundings<'_>,
) -> (Messaging, Vec<Finding>, KnownSecrets) {
    let sink = RefCell::new(Sink::default());
    let cx = Cx { around, sink: &sink, server: None };
    let mut layers = gateway.map(|text| gateway_layers(cx, text)).unwrap_or_default();
    let top = |key: &str| {
        let entry = document.root.get(key)?;
        let field = Field { cx, path: key.to_owned(), line: entry.line, node: &entry.value };
        matches!(field.node.kind, Kind::Map(_)).then(|| field.section()).flatten()
    };
    if let Some(section) = top("platforms") {
        for (name, field) in section.fields() {
            let name = name.trim().to_lowercase();
            if let Some(layer) = yaml_layer(&name, &field) {
                let base = layers.remove(&name).unwrap_or_default();
                layers.insert(name, layer.over(base));
            }
        }
    }
    let mut platforms: BTreeMap<String, PlatformConfig> =
        layers.into_iter().map(|(name, layer)| (name, layer.finish())).collect();
    let env = |name: &str| (around.env)(name).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
    environment(&mut platforms, &env);
    let telegram_proxy = top("telegram").and_then(|section| section.get("proxy_url")?.text());
    let proxies = proxies(&env, telegram_proxy);
    note_credentials(&mut sink.borrow_mut().secrets, &platforms, &proxies);
    let media_dirs = env("HERMES_MEDIA_ALLOW_DIRS").map_or_else(Vec::new, |list| {
        let folders = std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty());
        folders.map(|path| expanded(cx, &path)).collect()
    });
    let Sink { findings, secrets, .. } = sink.into_inner();
    (Messaging { platforms, media_dirs, proxies }, findings, secrets)
}

impl Layer {
    /// What this layer says, and where it says nothing what `base` says.
    fn over(self, mut base: Self) -> Self {
        base.extra.extend(self.extra);
        Self {
            enabled: self.enabled.or(base.enabled),
            token: self.token.or(base.token),
            extra: base.extra,
            home: self.home.or(base.home),
            problem: self.problem.or(base.problem),
        }
    }

    fn finish(self) -> PlatformConfig {
        let Self { enabled, token, extra, home, problem } = self;
        PlatformConfig { enabled: enabled.unwrap_or(false), token, extra, home, problem }
    }
}

/// The entry of `platforms:`; anything but a mapping says nothing, as in Hermes Agent.
fn yaml_layer(name: &str, field: &Field<'_>) -> Option<Layer> {
    if !matches!(field.node.kind, Kind::Map(_)) {
        return None;
    }
    let section = field.section()?;
    let enabled = section.get("enabled").and_then(|f| f.flag());
    if !SENDABLE.contains(&name) || enabled == Some(false) {
        return Some(Layer { enabled, ..Layer::default() });
    }
    let mut layer = Layer { enabled, ..Layer::default() };
    layer.token = ["token", "api_key"].into_iter().find_map(|key| scalar(&section, key, &mut layer.problem));
    if let Some(extra) = mapping(&section, "extra") {
        for key in EXTRA {
            let value = scalar(&extra, key, &mut layer.problem);
            layer.extra.extend(value.map(|value| ((*key).to_owned(), value)));
        }
    }
    if let Some(home) = mapping(&section, "home_channel") {
        let mut text = |key| scalar(&home, key, &mut layer.problem).map(|text| text.expose().to_owned());
        let (chat_id, thread_id) = (text("chat_id"), text("thread_id"));
        layer.home = chat_id.map(|chat_id| HomeChannel { chat_id, thread_id });
    }
    Some(layer)
}

fn mapping<'a>(section: &Section<'a>, key: &'static str) -> Option<Section<'a>> {
    section.get(key).filter(|field| matches!(field.node.kind, Kind::Map(_)))?.section()
}

/// A value as text; empty ones count as absent, one that lacks a variable is the platform's problem.
fn scalar(section: &Section<'_>, key: &'static str, problem: &mut Option<String>) -> Option<Secret> {
    let field = section.get(key).filter(|field| matches!(field.node.kind, Kind::Scalar(_)))?;
    let Some(text) = field.text() else {
        *problem = Some(format!("`{}` needs a variable that is not set", field.path));
        return None;
    };
    Some(text.trim()).filter(|text| !text.is_empty()).map(Secret::new)
}

fn gateway_layers(cx: Cx<'_>, text: &str) -> BTreeMap<String, Layer> {
    let parsed = serde_json::from_str::<Value>(text.trim_start_matches('\u{feff}'));
    let Ok(Value::Object(root)) = parsed else {
        let message = "gateway.json is no JSON object and is not read".to_owned();
        cx.find(
            Severity::Warning,
            0,
            "",
            message,
            "mend it, or move its `platforms` to config.yaml".to_owned(),
        );
        return BTreeMap::new();
    };
    let platforms = root.get("platforms").and_then(Value::as_object);
    let entries =
        platforms.into_iter().flatten().filter_map(|(name, value)| Some((name, value.as_object()?)));
    entries.map(|(name, entry)| (name.trim().to_lowercase(), json_layer(entry))).collect()
}

fn json_layer(entry: &Map<String, Value>) -> Layer {
    let text = |map: &Map<String, Value>, key: &str| {
        let text = match map.get(key)? {
            Value::String(text) => text.trim().to_owned(),
            Value::Number(number) => number.to_string(),
            Value::Bool(truth) => truth.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        };
        Some(text).filter(|text| !text.is_empty())
    };
    let object = |key: &str| entry.get(key).and_then(Value::as_object);
    let extra = object("extra").map_or_else(BTreeMap::new, |extra| {
        EXTRA.iter().filter_map(|key| Some(((*key).to_owned(), Secret::new(text(extra, key)?)))).collect()
    });
    Layer {
        enabled: text(entry, "enabled").and_then(|text| Some(values::boolean(&text).ok()?.value())),
        token: text(entry, "token").or_else(|| text(entry, "api_key")).map(Secret::new),
        extra,
        home: object("home_channel").and_then(|home| {
            Some(HomeChannel { chat_id: text(home, "chat_id")?, thread_id: text(home, "thread_id") })
        }),
        problem: None,
    }
}

/// The variables of Hermes Agent, which beat both files.
fn environment(platforms: &mut BTreeMap<String, PlatformConfig>, env: &dyn Fn(&str) -> Option<String>) {
    let mut enable = |name: &str, token: Option<String>, extra: &[(&str, Option<String>)]| {
        let entry = platforms.entry(name.to_owned()).or_default();
        entry.enabled = true;
        entry.problem = None;
        entry.token = token.map(Secret::new).or(entry.token.take());
        for (key, value) in extra {
            entry.extra.extend(value.clone().map(|value| ((*key).to_owned(), Secret::new(value))));
        }
    };
    for (name, variable) in [("telegram", "TELEGRAM_BOT_TOKEN"), ("discord", "DISCORD_BOT_TOKEN")] {
        if let Some(token) = env(variable) {
            enable(name, Some(token), &[]);
        }
    }
    if let (Some(url), Some(account)) = (env("SIGNAL_HTTP_URL"), env("SIGNAL_ACCOUNT")) {
        enable("signal", None, &[("http_url", Some(url)), ("account", Some(account))]);
    }
    if let Some(token) = env("MATRIX_ACCESS_TOKEN") {
        enable("matrix", Some(token), &[("homeserver", env("MATRIX_HOMESERVER"))]);
    }
    if let Some(token) = env("HASS_TOKEN") {
        enable("homeassistant", Some(token), &[("url", env("HASS_URL"))]);
    }
    if let Some(url) = env("DINGTALK_WEBHOOK_URL") {
        enable("dingtalk", None, &[("webhook_url", Some(url))]);
    }
    // An explicit `enabled: false` of Slack stays; the token alone does not turn it on again.
    if let Some(token) = env("SLACK_BOT_TOKEN") {
        let is_new = !platforms.contains_key("slack");
        let entry = platforms.entry("slack".to_owned()).or_default();
        entry.enabled |= is_new;
        entry.token = Some(Secret::new(token));
    }
    match env("WHATSAPP_ENABLED").and_then(|text| values::boolean(&text).ok()) {
        Some(spelled) if spelled.value() => {
            platforms.entry("whatsapp".to_owned()).or_default().enabled = true
        }
        Some(_) => platforms.entry("whatsapp".to_owned()).or_default().enabled = false,
        None => {}
    }
    for (name, entry) in platforms {
        let upper = name.to_uppercase();
        let names = [format!("{upper}_HOME_CHANNEL"), format!("{upper}_HOME_ROOM")];
        let set = names.iter().find_map(|name| Some((name, env(name)?)));
        if let Some((variable, chat_id)) = set {
            entry.home = Some(HomeChannel { chat_id, thread_id: env(&format!("{variable}_THREAD_ID")) });
        }
    }
}

fn proxies(env: &dyn Fn(&str) -> Option<String>, telegram: Option<String>) -> Proxies {
    // Lower case first, as curl and Python have it.
    let either = |name: &str| env(&name.to_lowercase()).or_else(|| env(name));
    Proxies {
        https: either("HTTPS_PROXY").map(Secret::new),
        http: either("HTTP_PROXY").map(Secret::new),
        all: either("ALL_PROXY").map(Secret::new),
        telegram: env("TELEGRAM_PROXY").or(telegram.filter(|url| !url.trim().is_empty())).map(Secret::new),
        none_for: either("NO_PROXY"),
    }
}

fn note_credentials(
    secrets: &mut KnownSecrets,
    platforms: &BTreeMap<String, PlatformConfig>,
    proxies: &Proxies,
) {
    for entry in platforms.values() {
        entry.token.iter().for_each(|token| secrets.insert(token.clone()));
        entry.extra.values().for_each(|value| note_address(secrets, value.expose()));
    }
    let all = [&proxies.https, &proxies.http, &proxies.all, &proxies.telegram];
    all.into_iter().flatten().for_each(|proxy| note_address(secrets, proxy.expose()));
}

/// Password and secret parameters of an address, e.g. the `access_token` of a webhook.
fn note_address(secrets: &mut KnownSecrets, text: &str) {
    let Ok(url) = ::url::Url::parse(text) else { return };
    if let Some(password) = url.password() {
        secrets.insert(Secret::new(super::url::percent_decode(password)));
    }
    for (name, value) in url.query_pairs().filter(|(name, _)| name_says_secret(name)) {
        secrets.note(&name, &value);
    }
}

fn expanded(cx: Cx<'_>, path: &Path) -> PathBuf {
    PathBuf::from(cx.expand_home(&path.to_string_lossy()))
}

#[cfg(test)]
#[path = "messaging_tests.rs"]
mod tests;
