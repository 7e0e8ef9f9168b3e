//! What the tests of this folder share: a machine that is all made up.

use super::{
    Config, Finding, HttpConfig, ServerConfig, ServerEntry, Severity, StdioConfig, Surroundings,
    TransportConfig, check_text,
};
use crate::names::ServerName;
use std::path::{Path, PathBuf};

/// Checks `yaml` with these variables, of which the names in capitals ending `_DOT` are in `.env`.
pub(super) fn checked(yaml: &str, env: &[(&str, &str)]) -> Config {
    let lookup = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    check_text(
        yaml,
        &Surroundings {
            file: Path::new("/h/config.yaml"),
            env: &lookup,
            dotenv: &|name| name.ends_with("_DOT").then(|| lookup(name)).flatten(),
            user_home: Some(Path::new("/home/u")),
            is_file: &|path| path.starts_with("/exists") || path.starts_with("/home/u"),
            resolve: &|path| (path == Path::new("/exists/link")).then(|| PathBuf::from("/usr/bin/hermesctl")),
        },
    )
}

/// One server `s` whose entry has `lines`, each `key: value`.
pub(super) fn one(lines: &[&str], env: &[(&str, &str)]) -> Config {
    let body: String = lines.iter().map(|line| format!("    {line}\n")).collect();
    checked(&format!("mcp_servers:\n  s:\n{body}"), env)
}

pub(super) fn entry<'a>(config: &'a Config, name: &str) -> &'a ServerEntry {
    config.servers.get(name).unwrap_or_else(|| panic!("no server {name} in {config:#?}"))
}

/// The config of `s`, which must be enabled and without findings.
#[track_caller]
pub(super) fn clean(lines: &[&str]) -> ServerConfig {
    let config = one(lines, &[]);
    assert_eq!(config.findings, [], "{lines:?}");
    running(&config, "s").clone()
}

#[track_caller]
pub(super) fn running<'a>(config: &'a Config, name: &str) -> &'a ServerConfig {
    match entry(config, name) {
        ServerEntry::Enabled(server) => server,
        other @ (ServerEntry::Disabled(_) | ServerEntry::Refused { .. }) => {
            panic!("{other:?}: {:#?}", config.findings)
        }
    }
}

#[track_caller]
pub(super) fn refusal(config: &Config, name: &str) -> String {
    match entry(config, name) {
        ServerEntry::Refused { reason } => reason.clone(),
        other @ (ServerEntry::Disabled(_) | ServerEntry::Enabled(_)) => panic!("{other:?}"),
    }
}

#[track_caller]
pub(super) fn stdio(server: &ServerConfig) -> &StdioConfig {
    match &server.transport {
        TransportConfig::Stdio(stdio) => stdio,
        TransportConfig::Http(_) => panic!("{server:?}"),
    }
}

#[track_caller]
pub(super) fn http(server: &ServerConfig) -> &HttpConfig {
    match &server.transport {
        TransportConfig::Http(http) => http,
        TransportConfig::Stdio(_) => panic!("{server:?}"),
    }
}

/// The only finding with this severity.
#[track_caller]
pub(super) fn only(config: &Config, severity: Severity) -> Finding {
    let found: Vec<&Finding> =
        config.findings.iter().filter(|finding| finding.severity == severity).collect();
    assert_eq!(found.len(), 1, "{:#?}", config.findings);
    found[0].clone()
}

/// Whether `value` would be masked.
pub(super) fn knows(config: &Config, value: &str) -> bool {
    config.secrets.longest_first().iter().any(|secret| secret.expose() == value)
}

pub(super) fn name(text: &str) -> ServerName {
    ServerName::new(text)
}
