//! Keys that are read and checked but not carried out by this version.
//!
//! Pure. Silence would be a lie: whoever writes `sharing: per_client` wants clients kept apart.

use super::{Config, Finding, ServerEntry, Severity, Sharing};

/// One warning for each such key that is set.
pub(super) fn findings(config: &Config) -> Vec<Finding> {
    let warn = |server, key: String, message: &str, hint: &str| Finding {
        severity: Severity::Warning,
        server,
        file: Some(config.file.clone()),
        line: 0,
        key,
        message: message.to_owned(),
        hint: hint.to_owned(),
    };
    let mut out = Vec::new();
    for (name, entry) in &config.servers {
        let (ServerEntry::Enabled(server) | ServerEntry::Disabled(server)) = entry else { continue };
        let key = |key: &str| format!("mcp_servers.{name}.{key}");
        if server.sharing != Sharing::Shared {
            let message = "is not carried out by this version: all clients share one process";
            out.push(warn(
                Some(name.clone()),
                key("sharing"),
                message,
                "do not rely on it to keep clients apart",
            ));
        }
    }
    let sections = [
        // Without the exporter in this build nothing would come of it.
        ("otlp", !cfg!(feature = "otlp") && config.daemon.otlp.is_some()),
    ];
    for (key, _) in sections.into_iter().filter(|(_, set)| *set) {
        let message = "is read but not used by this version";
        out.push(warn(None, format!("hermesd.{key}"), message, "remove it, or keep it for later"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ServerConfig, StdioConfig, TransportConfig};
    use crate::names::ServerName;
    use std::sync::Arc;

    #[test]
    fn a_key_without_effect_is_named_and_a_default_is_not() {
        let name = ServerName::new("s");
        let stdio = TransportConfig::Stdio(StdioConfig::command("x"));
        let mut server = ServerConfig::with_transport(name.clone(), stdio);
        let mut config = Config::default();
        config.servers.insert(name.clone(), ServerEntry::Enabled(Arc::new(server.clone())));
        assert_eq!(findings(&config), []);
        server.sharing = Sharing::PerClient;
        config.servers.insert(name, ServerEntry::Enabled(Arc::new(server)));
        assert_eq!(findings(&config)[0].key, "mcp_servers.s.sharing");
    }

    #[test]
    fn the_export_of_traces_has_no_effect_only_in_builds_without_it() {
        let mut config = Config::default();
        config.daemon.otlp =
            Some(crate::config::OtlpConfig { endpoint: "http://h:4318".to_owned(), sample_ratio: 1.0 });
        let named = findings(&config).iter().any(|finding| finding.key == "hermesd.otlp");
        assert_eq!(named, !cfg!(feature = "otlp"));
    }
}
