//! Pure: the `hermesd:` section.
//!
//! Promise: a wrong value costs that key alone, its default is used; every error is reported.
//! May not touch: servers' entries.

use super::file::Kind;
use super::http_entry::{note_url, secret};
use super::reader::{Field, Flag, Section};
use super::server_entry::{SECOND, Utilities, approval, nonzero, set, tools};
use super::{
    AuditArguments, ConversationsMode, DaemonConfig, HttpListenConfig, ListenTokens, OtlpConfig,
    ProfileConfig, ProfileConversations, RedactionLabels, SamplingProviderConfig, url,
};
use crate::names::ProfileName;
use crate::secret::Secret;
use std::collections::BTreeMap;

/// Shortest token of the HTTP listener in bytes.
const MIN_TOKEN: usize = 16;

/// Reads the section. `mcp_servers` in it is read elsewhere.
pub(super) fn read(section: Section<'_>) -> DaemonConfig {
    let mut config = DaemonConfig::default();
    section.raw("mcp_servers");
    if let Some(profiles) = section.section("profiles") {
        for (name, field) in profiles.fields() {
            let profile = if field.node.is_null() {
                Some(ProfileConfig::default())
            } else {
                field.section().map(profile)
            };
            config.profiles.extend(profile.map(|profile| (ProfileName::new(name), profile)));
        }
    }
    let conversations =
        [("auto", ConversationsMode::Auto), ("on", ConversationsMode::On), ("off", ConversationsMode::Off)];
    set(section.get("conversations").and_then(|f| f.choice(&conversations)), &mut config.conversations);
    set(section.get("start_concurrency").and_then(|f| nonzero(&f, 256)), &mut config.start_concurrency);
    let limit =
        section.get("name_limit").and_then(|f| f.whole(24..=128)).and_then(|n| usize::try_from(n).ok());
    set(limit, &mut config.name_limit);
    config.instructions = section.flag("instructions", Flag::On);
    config.sampling_provider = section.section("sampling_provider").and_then(sampling_provider);
    config.http = section.get("http").filter(|f| !f.says_off()).and_then(|f| http(&f));
    config.metrics_listen = section.get("metrics").filter(|f| !f.says_off()).and_then(|f| metrics(&f));
    config.otlp = section.get("otlp").filter(|f| !f.says_off()).and_then(|f| otlp(&f));
    if let Some(audit) = section.section("audit") {
        let days =
            audit.get("retention_days").and_then(|f| f.whole(1..=36_500)).and_then(|n| u32::try_from(n).ok());
        set(days, &mut config.audit.retention_days);
        let arguments =
            [("hash", AuditArguments::Hash), ("off", AuditArguments::Off), ("full", AuditArguments::Full)];
        set(audit.get("arguments").and_then(|f| f.choice(&arguments)), &mut config.audit.arguments);
        audit.finish(&|_| None);
    }
    if let Some(redaction) = section.section("redaction") {
        let labels = [("plain", RedactionLabels::Plain), ("typed", RedactionLabels::Typed)];
        set(redaction.get("labels").and_then(|f| f.choice(&labels)), &mut config.redaction_labels);
        redaction.finish(&|_| None);
    }
    if let Some(builtin) = section.section("builtin") {
        set(builtin.get("approval").and_then(|f| approval(&f)), &mut config.builtin.approval);
        let timeout = builtin.get("approval_timeout").and_then(|f| f.duration(SECOND));
        set(timeout, &mut config.builtin.approval_timeout);
        builtin.finish(&|_| None);
    }
    section.finish(&|key| (key == "servers").then_some("write `mcp_servers`"));
    config
}

fn profile(section: Section<'_>) -> ProfileConfig {
    let mut profile =
        ProfileConfig { servers: section.get("servers").and_then(|f| f.names()), ..ProfileConfig::default() };
    if let Some(inner) = section.section("tools") {
        profile.tools = tools(inner, Utilities::No);
    }
    set(
        section.get("names").and_then(|f| f.choice(&[("prefixed", false), ("raw", true)])),
        &mut profile.raw_names,
    );
    let conversations = [
        ("on", ProfileConversations::On),
        ("read", ProfileConversations::Read),
        ("off", ProfileConversations::Off),
    ];
    set(section.get("conversations").and_then(|f| f.choice(&conversations)), &mut profile.conversations);
    if let Some(quota) = section.section("quota") {
        profile.quota_per_day =
            quota.get("per_day").filter(|f| !f.says_off()).and_then(|f| nonzero(&f, u32::MAX));
        profile.quota_per_session =
            quota.get("per_session").filter(|f| !f.says_off()).and_then(|f| nonzero(&f, u32::MAX));
        quota.finish(&|_| None);
    }
    section.finish(&|_| None);
    profile
}

/// `sampling_provider:`, or `auxiliary.mcp:` of Hermes Agent, whose other keys mean nothing here.
pub(super) fn sampling_provider(section: Section<'_>) -> Option<SamplingProviderConfig> {
    let api_key = section.get("api_key").and_then(|f| secret(&f));
    let model = section.get("model").and_then(|f| f.word());
    let base_url = section.get("base_url").map(|f| base_url(&f));
    if base_url.is_none() {
        section.error(
            "base_url",
            "`sampling_provider` has no `base_url`".to_owned(),
            "e.g. `base_url: https://host/v1`",
        );
    }
    section.finish(&|_| None);
    Some(SamplingProviderConfig { base_url: base_url??, api_key, model })
}

/// `auxiliary.mcp` with a `base_url`; without one it names a provider of Hermes Agent.
pub(super) fn auxiliary(section: &Section<'_>) -> Option<SamplingProviderConfig> {
    let field = section.get("base_url")?;
    let text = field.text().filter(|text| !text.trim().is_empty())?;
    drop(text);
    let base_url = base_url(&field)?;
    let filled = |key| section.get(key).and_then(|f| f.text()).is_some_and(|text| !text.trim().is_empty());
    let api_key = if filled("api_key") { section.get("api_key").and_then(|f| secret(&f)) } else { None };
    let model = if filled("model") { section.get("model").and_then(|f| f.word()) } else { None };
    Some(SamplingProviderConfig { base_url, api_key, model })
}

fn base_url(field: &Field<'_>) -> Option<String> {
    let text = field.word()?;
    match url::parse(&text) {
        Ok(parts) => note_url(field.cx, &parts),
        Err(err) => {
            field.error(format!("`{}` {err}", field.name()), "write a whole address: `https://host/v1`");
            return None;
        }
    }
    Some(text.trim_end_matches('/').to_owned())
}

fn http(field: &Field<'_>) -> Option<HttpListenConfig> {
    let section = field.section()?;
    // A token that is written but cannot be used must not open the listener to everybody.
    let tokens = section.get("token").map_or(Some(ListenTokens::Generated), |f| tokens(&f));
    let listen = listen(&section, "http");
    section.finish(&|_| None);
    let (listen, tokens) = (listen?, tokens?);
    if !is_local(&listen) {
        field.error(
            format!("`{listen}` is reachable by other machines, and the token would travel in the clear"),
            "listen on 127.0.0.1, and let ssh or a proxy with TLS carry it further",
        );
        return None;
    }
    Some(HttpListenConfig { listen, tokens })
}

/// `token:` as one value, as `profile: value`, or `off`.
fn tokens(field: &Field<'_>) -> Option<ListenTokens> {
    if field.says_off() {
        field.warn(
            "every program of every user of this machine can use the listener".to_owned(),
            "leave `token` out: hermesd makes one and keeps it in a private file",
        );
        return Some(ListenTokens::Open);
    }
    if !matches!(field.node.kind, Kind::Map(_)) {
        let only = [(ProfileName::new("default"), token(field)?)];
        return Some(ListenTokens::Given(only.into()));
    }
    let mut given: BTreeMap<ProfileName, Secret> = BTreeMap::new();
    for (profile, field) in field.section()?.fields() {
        let token = token(&field)?;
        if given.values().any(|known| *known == token) {
            field
                .error("two profiles have the same token".to_owned(), "the token says which profile applies");
            return None;
        }
        given.insert(ProfileName::new(profile), token);
    }
    if given.is_empty() {
        field.error("`token` has no profile".to_owned(), "e.g. `token: {default: '${HERMESD_TOKEN}'}`");
        return None;
    }
    Some(ListenTokens::Given(given))
}

fn token(field: &Field<'_>) -> Option<Secret> {
    let token = secret(field)?;
    let text = token.expose();
    if text.len() < MIN_TOKEN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        field.error(
            format!("a token has at least {MIN_TOKEN} visible ASCII characters"),
            "e.g. the output of `openssl rand -hex 32`, kept in .env",
        );
        return None;
    }
    Some(token)
}

fn metrics(field: &Field<'_>) -> Option<String> {
    let section = field.section()?;
    let listen = listen(&section, "metrics");
    section.finish(&|_| None);
    if let Some(listen) = listen.as_deref().filter(|listen| !is_local(listen)) {
        field.warn(format!("metrics on `{listen}` are readable by others"), "listen on 127.0.0.1");
    }
    listen
}

/// `listen:` as `host:port`; a bare port listens on this machine alone.
fn listen(section: &Section<'_>, of: &str) -> Option<String> {
    let hint = "e.g. `listen: 127.0.0.1:8765`";
    let Some(field) = section.get("listen") else {
        section.error("listen", format!("`{of}` has no `listen`"), hint);
        return None;
    };
    let text = field.word()?;
    let (host, port) = text.rsplit_once(':').unwrap_or(("", &text));
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    let whole = format!("{host}:{port}");
    let valid = port.parse::<u16>().is_ok()
        && url::parse(&format!("http://{whole}/")).is_ok_and(|url| url.userinfo.is_none());
    if !valid {
        field.error(format!("`{}` is not `host:port`", field.spelling()), hint);
        return None;
    }
    Some(whole)
}

fn is_local(listen: &str) -> bool {
    let host = listen.rsplit_once(':').map_or(listen, |(host, _)| host);
    url::is_loopback(host.trim_matches(['[', ']']))
}

fn otlp(field: &Field<'_>) -> Option<OtlpConfig> {
    let section = field.section()?;
    let endpoint = section.get("endpoint").map(|f| base_url(&f));
    if endpoint.is_none() {
        section.error(
            "endpoint",
            "`otlp` has no `endpoint`".to_owned(),
            "e.g. `endpoint: http://127.0.0.1:4318`",
        );
    }
    let ratio = section.get("sample_ratio").map_or(Some(1.0), |f| ratio(&f));
    section.finish(&|_| None);
    Some(OtlpConfig { endpoint: endpoint??, sample_ratio: ratio.unwrap_or(1.0) })
}

fn ratio(field: &Field<'_>) -> Option<f64> {
    let text = field.word()?;
    let (digits, factor) = match text.strip_suffix('%') {
        Some(percent) => (percent.trim(), 0.01),
        None => (text.as_str(), 1.0),
    };
    match digits.parse::<f64>().map(|n| n * factor) {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => Some(ratio),
        Ok(_) | Err(_) => {
            field.error(format!("`{}` is not a ratio", field.spelling()), "0.0 to 1.0");
            None
        }
    }
}

/// Whether the section is written at all and is no mapping.
pub(super) fn is_wrong_shape(field: &Field<'_>) -> bool {
    !field.node.is_null() && !matches!(field.node.kind, Kind::Map(_))
}

#[cfg(test)]
#[path = "daemon_section_tests.rs"]
mod tests;
