//! What every key is worth when the file does not mention it.
//!
//! Pure. Promise: the one place with these numbers; the docs of the types repeat them.
//! May not touch: how values are read.

use super::{
    ApprovalPolicy, AuditArguments, AuditConfig, BreakerConfig, BuiltinConfig, ConversationsMode,
    DaemonConfig, Detached, PinPolicy, ProfileConfig, ProtocolChoice, RedactResults, RedactionLabels,
    SamplingConfig, SamplingLogLevel, SamplingPreference, ServerConfig, Sharing, StartMode, StdioConfig,
    ToolsConfig, TransportConfig,
};
use crate::names::{ProfileName, ServerName};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

impl Default for ToolsConfig {
    fn default() -> Self {
        Self { include: None, exclude: Vec::new(), resources: true, prompts: true }
    }
}

impl Default for SamplingConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            model: None,
            max_tokens_cap: 4096,
            timeout: Duration::from_secs(30),
            max_rpm: 10,
            max_tool_rounds: 5,
            allowed_models: Vec::new(),
            log_level: SamplingLogLevel::Info,
            prefer: SamplingPreference::Client,
        }
    }
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self { threshold: nonzero(3), cooldown: Duration::from_secs(60), count_tool_errors: false }
    }
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self { retention_days: 30, arguments: AuditArguments::Hash }
    }
}

impl Default for DaemonConfig {
    fn default() -> Self {
        Self {
            profiles: BTreeMap::from([(ProfileName::new("default"), ProfileConfig::default())]),
            conversations: ConversationsMode::Auto,
            start_concurrency: nonzero(4),
            instructions: true,
            name_limit: 50,
            sampling_provider: None,
            http: None,
            metrics_listen: None,
            otlp: None,
            audit: AuditConfig::default(),
            redaction_labels: RedactionLabels::Plain,
            builtin: BuiltinConfig::default(),
        }
    }
}

impl Default for BuiltinConfig {
    fn default() -> Self {
        Self { approval: ApprovalPolicy::Never, approval_timeout: Duration::from_secs(300) }
    }
}

impl ServerConfig {
    /// An entry with this transport and every default.
    pub fn with_transport(name: ServerName, transport: TransportConfig) -> Self {
        Self {
            name,
            transport,
            timeout: Duration::from_secs(120),
            connect_timeout: Duration::from_secs(60),
            tools: ToolsConfig::default(),
            sampling: SamplingConfig::default(),
            sharing: Sharing::Shared,
            start: StartMode::Lazy,
            idle_stop: None,
            max_concurrency: nonzero(16),
            protocol: ProtocolChoice::Auto,
            breaker: BreakerConfig::default(),
            rate_limit: None,
            approval: ApprovalPolicy::Never,
            approval_timeout: Duration::from_secs(300),
            redact_results: RedactResults::Known,
            result_limit: None,
            pin: PinPolicy::Warn,
            validate: true,
            trust_annotations: false,
        }
    }

    /// Longest a call may take however much progress it reports: 10 x `timeout`.
    pub fn call_cap(&self) -> Duration {
        self.timeout.saturating_mul(10)
    }
}

impl StdioConfig {
    /// This command with every default.
    pub fn command(command: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            env_pass: Vec::new(),
            env_file: BTreeMap::new(),
            cwd: None,
            allow_shell: false,
            osv: true,
            detached: Detached::End,
        }
    }
}

fn nonzero(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("defaults are not zero")
}
