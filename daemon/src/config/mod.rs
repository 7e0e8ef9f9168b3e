//! The configuration as the rest of the daemon sees it: checked, interpolated, immutable.
//!
//! Owner: `boot` holds the current `Arc<Config>` and publishes it by `watch`. The types here are
//! shapes only. `file` reads the YAML, `interpolate` fills in variables, `check` turns both into
//! these types with all findings at once, `diff` compares two of them, `watch` says when to look
//! again; `testing` is the tests' machine. May not touch: servers, sockets.

pub mod check;
mod command_line;
mod daemon_section;
mod defaults;
pub mod diff;
pub mod dotenv;
pub mod file;
mod http_entry;
pub mod interpolate;
pub mod messaging;
mod oauth_entry;
mod reader;
pub mod reference;
mod remote;
mod render;
mod server_entry;
mod sharing_defaults;
mod stdio_entry;
#[cfg(test)]
mod testing;
mod unused;
mod url;
pub mod values;
pub mod watch;
mod watch_eye;

pub use check::{Loaded, Sources, State, check_text, load, load_entry};
pub use diff::{Change, Plan, plan};
pub use remote::{HttpConfig, OauthConfig, OauthGrant, RemoteKind, TlsConfig};
pub use stdio_entry::{DESKTOP, PROXY, passed_names};
pub use watch::Watcher;
pub(crate) use watch_eye::{identity, is_reading};
pub use {reader::Surroundings, render::render_findings};

use crate::names::{ProfileName, ServerName};
use crate::secret::{KnownSecrets, Secret};
use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// One whole configuration.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The file it came from.
    pub file: PathBuf,
    /// Every entry of `mcp_servers` and `hermesd.mcp_servers`, by name.
    pub servers: BTreeMap<ServerName, ServerEntry>,
    /// The `hermesd:` section.
    pub daemon: DaemonConfig,
    /// Everything a person should know about the file; errors, then warnings, by line.
    pub findings: Vec<Finding>,
    /// Every secret value that was resolved.
    pub secrets: KnownSecrets,
    /// Whether the file has a `platforms:` section.
    pub platforms: bool,
    /// What messages are sent with: `platforms:`, gateway.json and the environment.
    pub messaging: Arc<messaging::Messaging>,
    /// Every key that the reader asked for, written or not.
    #[cfg(test)]
    pub(crate) asked: std::collections::BTreeSet<String>,
}

/// What one entry came to.
#[derive(Debug, Clone)]
pub enum ServerEntry {
    /// To be run.
    Enabled(Arc<ServerConfig>),
    /// `enabled: false`; can be tested, is not run.
    Disabled(Arc<ServerConfig>),
    /// Has errors (in `findings`); only this server is out.
    Refused {
        /// First error, one sentence.
        reason: String,
    },
}

/// One checked server entry.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerConfig {
    /// Its key in the file.
    pub name: ServerName,
    /// How to reach it.
    pub transport: TransportConfig,
    /// Idle limit of a call, extended by progress. Default 120 s.
    pub timeout: Duration,
    /// First start budget; later attempts get more. Default 60 s.
    pub connect_timeout: Duration,
    /// Filters and utility tools.
    pub tools: ToolsConfig,
    /// Sampling limits.
    pub sampling: SamplingConfig,
    /// One child for all or one for each. Default shared.
    pub sharing: Sharing,
    /// Eager or lazy. Default lazy.
    pub start: StartMode,
    /// Stop after so long without a call. Default never.
    pub idle_stop: Option<Duration>,
    /// Calls in flight. Default 16; 1 where `supports_parallel_tool_calls: false` is written.
    pub max_concurrency: NonZeroU32,
    /// Pinned revision or era. Default auto.
    pub protocol: ProtocolChoice,
    /// Breaker limits.
    pub breaker: BreakerConfig,
    /// Token bucket for each client. Default none.
    pub rate_limit: Option<RateLimitConfig>,
    /// Which calls wait for a person. Default never.
    pub approval: ApprovalPolicy,
    /// How long such a call waits. Default 300 s.
    pub approval_timeout: Duration,
    /// What is masked in results. Default known.
    pub redact_results: RedactResults,
    /// Bytes of one result. Default none.
    pub result_limit: Option<NonZeroU64>,
    /// What happens when a model-visible text changes. Default warn.
    pub pin: PinPolicy,
    /// Validate arguments. Default true.
    pub validate: bool,
    /// Believe readOnlyHint and idempotentHint when deciding on a repeat. Default false.
    pub trust_annotations: bool,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq)]
pub enum TransportConfig {
    /// A child process.
    Stdio(StdioConfig),
    /// Streamable HTTP or legacy SSE.
    Http(HttpConfig),
}

/// A child process as configured; the environment is not resolved yet.
#[derive(Debug, Clone, PartialEq)]
pub struct StdioConfig {
    /// Command, `~` expanded, not searched yet.
    pub command: String,
    /// Arguments.
    pub args: Vec<String>,
    /// Variables set for the child; values may be secrets.
    pub env: BTreeMap<String, Secret>,
    /// Names (and groups `desktop`, `proxy`) taken over besides the allow-list.
    pub env_pass: Vec<String>,
    /// Values that `.env` has for the names in `env_pass`, groups resolved; they beat the
    /// daemon's and the user manager's environment.
    pub env_file: BTreeMap<String, Secret>,
    /// Working directory; `None`: the user's home.
    pub cwd: Option<PathBuf>,
    /// Whether a shell that downloads something may be the command. Default false.
    pub allow_shell: bool,
    /// Malware check before the first start. Default true.
    pub osv: bool,
    /// Daemons the server started on purpose. Default end.
    pub detached: Detached,
}

/// `tools:` of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolsConfig {
    /// Only these; `None`: no filter; empty: none.
    pub include: Option<Vec<String>>,
    /// All but these; ignored where `include` is given.
    pub exclude: Vec<String>,
    /// Utility tools for resources. Default true.
    pub resources: bool,
    /// Utility tools for prompts. Default true.
    pub prompts: bool,
}

/// `sampling:` of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingConfig {
    /// Default true.
    pub enabled: bool,
    /// Overrides whatever the server asks for.
    pub model: Option<String>,
    /// Default 4096.
    pub max_tokens_cap: u32,
    /// Default 30 s.
    pub timeout: Duration,
    /// Requests a minute. Default 10.
    pub max_rpm: u32,
    /// Default 5; 0 refuses tool use.
    pub max_tool_rounds: u32,
    /// Empty: any.
    pub allowed_models: Vec<String>,
    /// Level of the log line for each request. Default info.
    pub log_level: SamplingLogLevel,
    /// Who answers where both could. Default the client.
    pub prefer: SamplingPreference,
}

/// `sampling.prefer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SamplingPreference {
    /// The client whose call caused the request: its user sees it.
    #[default]
    Client,
    /// `hermesd.sampling_provider`.
    Provider,
}

/// `sampling.log_level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum SamplingLogLevel {
    Debug,
    #[default]
    Info,
    Warning,
}

/// `sharing:`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// One child for all clients.
    #[default]
    Shared,
    /// One child for each client.
    PerClient,
    /// One child for each project root.
    PerRoot,
    /// One child, clients take turns.
    Exclusive,
}

/// `start:`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StartMode {
    /// On first use.
    #[default]
    Lazy,
    /// With the daemon.
    Eager,
}

/// `detached:`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Detached {
    /// Everything below the guard ends with the server.
    #[default]
    End,
    /// What left the server's session on purpose stays.
    Keep,
}

/// `protocol:`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ProtocolChoice {
    /// Found by the handshake.
    #[default]
    Auto,
    /// Any revision before 2026-07-28, agreed on by `initialize`.
    Legacy,
    /// This revision and no other, e.g. `2025-06-18`.
    Revision(String),
}

/// `breaker:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerConfig {
    /// Failures in a row that open it. Default 3.
    pub threshold: NonZeroU32,
    /// How long it stays open. Default 60 s.
    pub cooldown: Duration,
    /// Whether `isError` results count. Default false.
    pub count_tool_errors: bool,
}

/// `rate_limit:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimitConfig {
    /// Calls a minute.
    pub per_minute: NonZeroU32,
    /// Calls at once. Default: `per_minute`.
    pub burst: NonZeroU32,
}

/// `approval:`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ApprovalPolicy {
    /// No call waits.
    #[default]
    Never,
    /// Tools that are neither readOnlyHint nor `destructiveHint: false`.
    Destructive,
    /// Every call.
    Always,
    /// These tools, by raw or exposed name.
    Tools(Vec<String>),
}

/// `redact_results:`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RedactResults {
    /// Nothing.
    Off,
    /// Exact values that hermesd resolved.
    #[default]
    Known,
    /// Patterns too.
    Patterns,
}

/// `pin:`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PinPolicy {
    /// Not looked at.
    Off,
    /// A change is reported.
    #[default]
    Warn,
    /// A changed tool is withheld until approved.
    Block,
}

/// The `hermesd:` section.
#[derive(Debug, Clone, PartialEq)]
pub struct DaemonConfig {
    /// Profiles by name; `default` always exists.
    pub profiles: BTreeMap<ProfileName, ProfileConfig>,
    /// Whether the ten conversation tools are offered. Default auto.
    pub conversations: ConversationsMode,
    /// Starts at once. Default 4.
    pub start_concurrency: NonZeroU32,
    /// Whether clients get the instructions of servers. Default true.
    pub instructions: bool,
    /// Longest exposed name. Default 50, 24 to 128.
    pub name_limit: usize,
    /// OpenAI-compatible endpoint for sampling.
    pub sampling_provider: Option<SamplingProviderConfig>,
    /// HTTP listener.
    pub http: Option<HttpListenConfig>,
    /// Prometheus listener, `host:port`.
    pub metrics_listen: Option<String>,
    /// OpenTelemetry export.
    pub otlp: Option<OtlpConfig>,
    /// Audit rows.
    pub audit: AuditConfig,
    /// `redaction.labels`. Default plain.
    pub redaction_labels: RedactionLabels,
    /// The conversation tools.
    pub builtin: BuiltinConfig,
}

/// `hermesd.builtin`: what a server's entry says, for the built-in server `hermes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltinConfig {
    /// Which calls wait for a person. Default never.
    pub approval: ApprovalPolicy,
    /// How long such a call waits. Default 300 s.
    pub approval_timeout: Duration,
}

/// One profile.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProfileConfig {
    /// Only these servers; `None`: all.
    pub servers: Option<Vec<String>>,
    /// Filter after the servers' own.
    pub tools: ToolsConfig,
    /// Raw names where the profile has a single server.
    pub raw_names: bool,
    /// What of the conversation tools is offered.
    pub conversations: ProfileConversations,
    /// Calls a day; `None`: no limit.
    pub quota_per_day: Option<NonZeroU32>,
    /// Calls of one session; `None`: no limit.
    pub quota_per_session: Option<NonZeroU32>,
}

/// `profiles.<name>.conversations`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProfileConversations {
    /// All ten.
    #[default]
    On,
    /// Only those that change nothing.
    Read,
    /// None.
    Off,
}

/// `hermesd.conversations`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConversationsMode {
    /// When a state.db, sessions.json or `platforms:` exists.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// `hermesd.sampling_provider`.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingProviderConfig {
    /// Base URL of an OpenAI-compatible API.
    pub base_url: String,
    /// Its key.
    pub api_key: Option<Secret>,
    /// Model used when none is asked for.
    pub model: Option<String>,
}

/// `hermesd.http`.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpListenConfig {
    /// `host:port`, loopback only.
    pub listen: String,
    /// What clients must show.
    pub tokens: ListenTokens,
}

/// `hermesd.http.token`.
#[derive(Debug, Clone, PartialEq)]
pub enum ListenTokens {
    /// One that hermesd makes and keeps in a file of its own; profile `default`.
    Generated,
    /// None: whoever reaches the port is served, with profile `default`.
    Open,
    /// These, each for its profile. Never empty, no token twice.
    Given(BTreeMap<ProfileName, Secret>),
}

/// `hermesd.otlp`.
#[derive(Debug, Clone, PartialEq)]
pub struct OtlpConfig {
    /// Collector URL.
    pub endpoint: String,
    /// Head sampling, 0.0 to 1.0. Default 1.0.
    pub sample_ratio: f64,
}

/// `hermesd.audit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditConfig {
    /// Default 30.
    pub retention_days: u32,
    /// Default hash.
    pub arguments: AuditArguments,
}

/// `hermesd.audit.arguments`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AuditArguments {
    /// Not recorded.
    Off,
    /// A digest.
    #[default]
    Hash,
    /// The redacted text.
    Full,
}

/// `hermesd.redaction.labels`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RedactionLabels {
    /// `[REDACTED]`.
    #[default]
    Plain,
    /// `[GH_TOKEN_REDACTED]` and the like.
    Typed,
}

/// One thing to know about the file or the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The server it is about, if one.
    pub server: Option<ServerName>,
    /// The file, if one.
    pub file: Option<PathBuf>,
    /// 1-based line; 0: unknown.
    pub line: u32,
    /// Dotted path of the key, e.g. `mcp_servers.fs.timeout`; empty: none.
    pub key: String,
    /// What is wrong, one sentence, no secret values.
    pub message: String,
    /// What would be right; empty: nothing to say.
    pub hint: String,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Something does not work.
    Error,
    /// Works, but probably not as meant.
    Warning,
    /// Good to know.
    Info,
}
