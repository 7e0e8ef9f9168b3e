//! Pure: one entry of `mcp_servers` to a [`ServerEntry`].
//!
//! Promise: reads every key, reports everything that is wrong in it at once, and an error
//! anywhere refuses this server alone. May not touch: other entries.

use super::reader::{Cx, Field, Flag, Section};
use super::{
    ApprovalPolicy, BreakerConfig, Detached, PinPolicy, ProtocolChoice, RateLimitConfig, RedactResults,
    SamplingConfig, SamplingLogLevel, SamplingPreference, ServerConfig, ServerEntry, Severity, Sharing,
    StartMode, ToolsConfig, TransportConfig,
};
use super::{file::Kind, http_entry, sharing_defaults, stdio_entry};
use crate::names::ServerName;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

/// Shortest duration that means anything here.
pub(super) const TINY: Duration = Duration::from_millis(1);
pub(super) const SECOND: Duration = Duration::from_secs(1);

/// Checks the entry in `field`, which is named `name`.
pub(super) fn check(field: &Field<'_>, name: &ServerName) -> ServerEntry {
    let first = field.cx.sink.borrow().findings.len();
    let Some(section) = field.section() else { return refused(field.cx, first, "not a mapping") };
    let enabled = section.flag("enabled", Flag::On);
    let config = read(&section, name);
    section.finish(&foreign_key);
    let mut sink = field.cx.sink.borrow_mut();
    let mut own =
        sink.findings[first..].iter_mut().filter(|finding| finding.severity == Severity::Error).peekable();
    let failed = own.peek().map(|finding| finding.message.clone());
    match (config, failed, enabled) {
        (Some(config), None, true) => ServerEntry::Enabled(Arc::new(config)),
        (Some(config), None, false) => ServerEntry::Disabled(Arc::new(config)),
        (_, failed, true) => ServerEntry::Refused { reason: failed.unwrap_or_else(|| OWN_SERVE.to_owned()) },
        (_, failed, false) => {
            // Nobody asked for this server to run: what it lacks is worth a warning only.
            own.for_each(|finding| finding.severity = Severity::Warning);
            let reason = failed.unwrap_or_else(|| OWN_SERVE.to_owned());
            ServerEntry::Refused { reason: format!("disabled, and {reason}") }
        }
    }
}

/// Why an entry that is one of our own shims is not run.
pub(super) const OWN_SERVE: &str =
    "the entry is a client of hermesd (`mcp serve`) and is never started by it";

fn refused(cx: Cx<'_>, first: usize, otherwise: &str) -> ServerEntry {
    let sink = cx.sink.borrow();
    let error = sink.findings[first..].iter().find(|finding| finding.severity == Severity::Error);
    ServerEntry::Refused { reason: error.map_or(otherwise, |finding| &finding.message).to_owned() }
}

/// Keys of other programs' files, and what they are called here.
fn foreign_key(key: &str) -> Option<&'static str> {
    Some(match key {
        "disabled" => "write `enabled: false`",
        "type" => "a `url` means HTTP, a `command` stdio; `transport: sse` for the older HTTP+SSE",
        "serverUrl" | "server_url" | "httpUrl" | "http_url" | "endpoint" | "uri" => "write `url`",
        "autoApprove" | "alwaysAllow" | "autoAllow" | "trust" => "see `approval`",
        "environment" | "envs" => "write `env`",
        "envFile" | "env_file" => "put the variables into .env and name them in `env_pass`",
        "cmd" | "program" | "exec" => "write `command`",
        "arguments" => "write `args`",
        "working_dir" | "workingDirectory" | "workdir" => "write `cwd`",
        "requestTimeout" | "callTimeout" | "tool_timeout_sec" => "write `timeout`",
        "startupTimeout" | "startup_timeout_sec" => "write `connect_timeout`",
        "includeTools" | "enabled_tools" | "allowedTools" => "write `tools: {include: [...]}`",
        "excludeTools" | "disabled_tools" => "write `tools: {exclude: [...]}`",
        "bearer_token" | "bearerToken" | "bearer_token_env_var" => {
            "write `headers: {Authorization: \"Bearer ${TOKEN}\"}`"
        }
        "elicitation" | "roots" => "always on: clients that offer it are asked",
        _ => return None,
    })
}

/// `None` where an error was reported or the entry is our own shim.
fn read(section: &Section<'_>, name: &ServerName) -> Option<ServerConfig> {
    let transport = transport(section);
    let mut config = transport.map(|transport| ServerConfig::with_transport(name.clone(), transport));
    // Without a transport the rest is still read, so that all its errors show at once.
    let mut nowhere =
        ServerConfig::with_transport(name.clone(), TransportConfig::Stdio(super::StdioConfig::command("")));
    fill(section, config.as_mut().unwrap_or(&mut nowhere));
    config
}

fn transport(section: &Section<'_>) -> Option<TransportConfig> {
    let url = section.get("url");
    let command = section.get("command");
    match (url, command) {
        (Some(url), command) => {
            if command.is_some() {
                section.warn(
                    "command",
                    "both `url` and `command` are written; `url` counts".to_owned(),
                    "remove one",
                );
            }
            section.no_effect(stdio_entry::KEYS, "on a server with `url`");
            http_entry::read(section, &url).map(TransportConfig::Http)
        }
        (None, Some(command)) => {
            section.no_effect(http_entry::KEYS, "on a server with `command`");
            let transport = section.get("transport");
            let other =
                |field: &Field<'_>| field.word().is_some_and(|text| !text.eq_ignore_ascii_case("stdio"));
            if let Some(field) = transport.filter(other) {
                field.warn("`transport` has no effect without `url`".to_owned(), "remove it");
            }
            stdio_entry::read(section, &command).map(TransportConfig::Stdio)
        }
        (None, None) => {
            section.no_effect(stdio_entry::KEYS, "without `command`");
            section.no_effect(http_entry::KEYS, "without `url`");
            section.no_effect(&["transport"], "without `url`");
            section.error(
                "command",
                "the server has neither `command` nor `url`".to_owned(),
                "write one of them",
            );
            None
        }
    }
}

fn fill(section: &Section<'_>, config: &mut ServerConfig) {
    set(section.get("timeout").and_then(|f| f.duration(TINY)), &mut config.timeout);
    set(section.get("connect_timeout").and_then(|f| f.duration(TINY)), &mut config.connect_timeout);
    if let Some(tools) = section.section("tools") {
        config.tools = self::tools(tools, Utilities::Yes);
    }
    config.sampling = section.raw("sampling").map_or_else(SamplingConfig::default, |field| sampling(&field));
    let sharing = [
        ("shared", Sharing::Shared),
        ("per_client", Sharing::PerClient),
        ("per_root", Sharing::PerRoot),
        ("exclusive", Sharing::Exclusive),
    ];
    config.sharing = match &config.transport {
        TransportConfig::Stdio(stdio) => sharing_defaults::of(stdio),
        TransportConfig::Http(_) => Sharing::Shared,
    };
    set(section.get("sharing").and_then(|f| f.choice(&sharing)), &mut config.sharing);
    let start = [("lazy", StartMode::Lazy), ("eager", StartMode::Eager)];
    set(section.get("start").and_then(|f| f.choice(&start)), &mut config.start);
    config.idle_stop = section.get("idle_stop").filter(|f| !f.says_off()).and_then(|f| f.duration(SECOND));
    concurrency(section, config);
    set(section.get("protocol").and_then(|f| f.choice(&protocols())), &mut config.protocol);
    if let Some(breaker) = section.section("breaker") {
        config.breaker = self::breaker(breaker);
    }
    config.rate_limit = section.get("rate_limit").filter(|f| !f.says_off()).and_then(|f| rate_limit(&f));
    set(section.get("approval").and_then(|f| approval(&f)), &mut config.approval);
    set(section.get("approval_timeout").and_then(|f| f.duration(SECOND)), &mut config.approval_timeout);
    let redact =
        [("known", RedactResults::Known), ("off", RedactResults::Off), ("patterns", RedactResults::Patterns)];
    set(section.get("redact_results").and_then(|f| f.choice(&redact)), &mut config.redact_results);
    config.result_limit =
        section.get("result_limit").filter(|f| !f.says_off()).and_then(|f| result_limit(&f));
    let pin = [("warn", PinPolicy::Warn), ("off", PinPolicy::Off), ("block", PinPolicy::Block)];
    set(section.get("pin").and_then(|f| f.choice(&pin)), &mut config.pin);
    config.validate = section.flag("validate", Flag::On);
    config.trust_annotations = section.flag("trust_annotations", Flag::Off);
}

pub(super) fn set<T>(value: Option<T>, place: &mut T) {
    if let Some(value) = value {
        *place = value;
    }
}

fn concurrency(section: &Section<'_>, config: &mut ServerConfig) {
    let parallel = section.get("supports_parallel_tool_calls").and_then(|field| field.flag());
    let written = section.get("max_concurrency").and_then(|field| nonzero(&field, 1024));
    match (written, parallel) {
        (Some(n), _) => config.max_concurrency = n,
        (None, Some(false)) => config.max_concurrency = NonZeroU32::MIN,
        (None, Some(true) | None) => {}
    }
}

/// A number from 1 to `max`.
pub(super) fn nonzero(field: &Field<'_>, max: u32) -> Option<NonZeroU32> {
    field.whole(1..=u64::from(max)).and_then(|n| u32::try_from(n).ok()).and_then(NonZeroU32::new)
}

fn protocols() -> Vec<(&'static str, ProtocolChoice)> {
    let dates = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];
    let mut all = vec![("auto", ProtocolChoice::Auto), ("legacy", ProtocolChoice::Legacy)];
    all.push(("modern", ProtocolChoice::Revision("2026-07-28".to_owned())));
    all.extend(dates.map(|date| (date, ProtocolChoice::Revision(date.to_owned()))));
    all
}

/// Whether `tools` may switch the utility tools, as a server's may and a profile's may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Utilities {
    Yes,
    No,
}

/// `tools:` of a server or of a profile.
pub(super) fn tools(section: Section<'_>, utilities: Utilities) -> ToolsConfig {
    let config = ToolsConfig {
        include: section.get("include").and_then(|field| field.names()),
        exclude: section.get("exclude").and_then(|field| field.names()).unwrap_or_default(),
        resources: utilities == Utilities::No || section.flag("resources", Flag::On),
        prompts: utilities == Utilities::No || section.flag("prompts", Flag::On),
    };
    if config.include.is_some() && !config.exclude.is_empty() {
        section.warn("exclude", "`exclude` has no effect beside `include`".to_owned(), "remove one");
    }
    section.finish(&|_| None);
    config
}

fn sampling(field: &Field<'_>) -> SamplingConfig {
    let mut config = SamplingConfig::default();
    if field.node.is_null() {
        return config;
    }
    if matches!(field.node.kind, Kind::Scalar(_)) {
        config.enabled = field.flag().unwrap_or(false);
        return config;
    }
    let Some(section) = field.section() else { return config };
    let number =
        |key, range| section.get(key).and_then(|f| f.whole(range)).and_then(|n| u32::try_from(n).ok());
    let max = u64::from(u32::MAX);
    config.enabled = section.flag("enabled", Flag::On);
    config.model = section.get("model").and_then(|f| f.word());
    set(number("max_tokens_cap", 1..=max), &mut config.max_tokens_cap);
    set(section.get("timeout").and_then(|f| f.duration(SECOND)), &mut config.timeout);
    set(number("max_rpm", 1..=max), &mut config.max_rpm);
    set(number("max_tool_rounds", 0..=max), &mut config.max_tool_rounds);
    set(section.get("allowed_models").and_then(|f| f.names()), &mut config.allowed_models);
    let levels = [
        ("info", SamplingLogLevel::Info),
        ("debug", SamplingLogLevel::Debug),
        ("warning", SamplingLogLevel::Warning),
        ("warn", SamplingLogLevel::Warning),
    ];
    set(section.get("log_level").and_then(|f| f.choice(&levels)), &mut config.log_level);
    let whom = [("client", SamplingPreference::Client), ("provider", SamplingPreference::Provider)];
    set(section.get("prefer").and_then(|f| f.choice(&whom)), &mut config.prefer);
    section.finish(&|_| None);
    config
}

fn breaker(section: Section<'_>) -> BreakerConfig {
    let mut config = BreakerConfig::default();
    set(section.get("threshold").and_then(|f| nonzero(&f, 10_000)), &mut config.threshold);
    set(section.get("cooldown").and_then(|f| f.duration(TINY)), &mut config.cooldown);
    config.count_tool_errors = section.flag("count_tool_errors", Flag::Off);
    section.finish(&|_| None);
    config
}

fn rate_limit(field: &Field<'_>) -> Option<RateLimitConfig> {
    let section = field.section()?;
    let per_minute = section.get("per_minute").map(|f| nonzero(&f, 1_000_000));
    let burst = section.get("burst").map(|f| nonzero(&f, 1_000_000));
    if per_minute.is_none() {
        section.error("per_minute", "`rate_limit` has no `per_minute`".to_owned(), "e.g. `per_minute: 60`");
    }
    section.finish(&|_| None);
    let per_minute = per_minute??;
    Some(RateLimitConfig { per_minute, burst: burst.flatten().unwrap_or(per_minute) })
}

pub(super) fn approval(field: &Field<'_>) -> Option<ApprovalPolicy> {
    if matches!(field.node.kind, Kind::List(_)) {
        return field.names().map(ApprovalPolicy::Tools);
    }
    field.choice(&[
        ("never", ApprovalPolicy::Never),
        ("destructive", ApprovalPolicy::Destructive),
        ("always", ApprovalPolicy::Always),
    ])
}

fn result_limit(field: &Field<'_>) -> Option<NonZeroU64> {
    let limit = field.size().map(NonZeroU64::new);
    if limit == Some(None) {
        field.error("a limit of 0 bytes lets nothing through".to_owned(), "remove the key for no limit");
    }
    limit.flatten()
}

impl Detached {
    /// The values of `detached:`.
    pub(super) const NAMES: [(&'static str, Self); 2] = [("end", Self::End), ("keep", Self::Keep)];
}

#[cfg(test)]
#[path = "server_entry_tests.rs"]
mod tests;
