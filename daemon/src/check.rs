//! `hermesd config check`: the findings of a configuration, without a daemon.
//!
//! One of two places that print (the other is the last word of a failed start). Exit code 0: no
//! errors, 1: errors.

use crate::config::{self, Finding, ServerEntry, Severity, Sources, TransportConfig};
use crate::doctor;
use crate::paths::Paths;
use crate::redact::Redactor;
use crate::server::base_env::{Account, BaseEnv, probe_disk};
use crate::server::{environment, gate};
use hermes_proto::endpoint::Home;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;
use std::time::SystemTime;

#[derive(serde::Serialize)]
struct Report<'a> {
    file: String,
    exists: bool,
    ok: bool,
    servers: Vec<&'a str>,
    findings: Vec<Entry<'a>>,
}

#[derive(serde::Serialize)]
struct Entry<'a> {
    kind: &'static str,
    severity: &'static str,
    server: Option<&'a str>,
    file: Option<String>,
    line: u32,
    key: &'a str,
    message: String,
    hint: String,
}

fn load(home: &Home) -> config::Config {
    let env: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let user_home = env.get("HOME").map(std::path::PathBuf::from);
    config::load(&Sources { home: home.path(), env: &env, user_home: user_home.as_deref() }).config
}

/// Looks at everything that a person would check and prints it as a JSON array, secrets masked. The
/// environment is that of the caller, not that of a service manager.
///
/// # Errors
/// When no place for the sockets can be used.
pub fn doctor(home: &Home) -> anyhow::Result<ExitCode> {
    let config = load(home);
    let paths = Paths::of(home, &|name| std::env::var_os(name))?;
    let account = Account::of_this_user();
    let base = BaseEnv::gather(std::env::vars_os(), BTreeMap::new(), account.as_ref(), home.path());
    let found = doctor::look(&doctor::Subject {
        paths: &paths,
        config: &config,
        base: &base,
        working: &BTreeSet::new(),
        asked_by: doctor::AskedBy::Nobody,
        now: SystemTime::now(),
    });
    let redactor = Redactor::new(&config.secrets, config.daemon.redaction_labels);
    let all = config.findings.iter().map(|finding| entry("config", finding));
    let all = all.chain(found.iter().map(|found| entry(found.kind, &found.finding))).map(|mut entry| {
        entry.message = redactor.redact(&entry.message).into_owned();
        entry.hint = redactor.redact(&entry.hint).into_owned();
        entry
    });
    let text = serde_json::to_string_pretty(&all.collect::<Vec<_>>()).expect("text and numbers serialise");
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Turns this process into the program of one server, with the folder and environment that a daemon started
/// from here would give it, through the same gate. Only returns when that did not work.
pub fn exec(home: &Home, name: &str) -> anyhow::Error {
    let config = load(home);
    let server = match config.servers.get(name) {
        Some(ServerEntry::Enabled(server) | ServerEntry::Disabled(server)) => server,
        Some(ServerEntry::Refused { .. }) => {
            return anyhow::anyhow!("server `{name}` has errors in its entry");
        }
        None => return anyhow::anyhow!("no server `{name}` in {}", config.file.display()),
    };
    let TransportConfig::Stdio(stdio) = &server.transport else {
        return anyhow::anyhow!("server `{name}` is reached by url and has no program");
    };
    let base =
        BaseEnv::gather(std::env::vars_os(), BTreeMap::new(), Account::of_this_user().as_ref(), home.path());
    let resolved = match environment::resolve(stdio, &base, &probe_disk) {
        Ok(resolved) => resolved,
        Err(error) => return error.into(),
    };
    if let Err(refusal) = gate::check(stdio, &resolved.program) {
        return refusal.into();
    }
    let mut command = std::process::Command::new(&resolved.program);
    command.args(&resolved.args).env_clear().envs(resolved.env).current_dir(&resolved.cwd);
    command.exec().into()
}

/// Reads the configuration of `home` and prints what is to be known about it.
pub fn run(home: &Home, json: bool) -> ExitCode {
    let config = load(home);
    let redactor = Redactor::new(&config.secrets, config.daemon.redaction_labels);
    let masked = |finding: &Finding| Finding {
        message: redactor.redact(&finding.message).into_owned(),
        hint: redactor.redact(&finding.hint).into_owned(),
        ..finding.clone()
    };
    let findings: Vec<Finding> = config.findings.iter().map(masked).collect();
    // Without a file hermesd runs, with no servers: no error, but rarely what was meant.
    let exists = config.file.symlink_metadata().is_ok();
    let ok = findings.iter().all(|finding| finding.severity != Severity::Error);
    let text = if json {
        let report = Report {
            file: config.file.display().to_string(),
            exists,
            ok,
            servers: config.servers.keys().map(crate::names::ServerName::as_str).collect(),
            findings: findings.iter().map(|finding| entry("config", finding)).collect(),
        };
        serde_json::to_string_pretty(&report).expect("text and numbers serialise") + "\n"
    } else {
        let last = match (exists, ok) {
            (false, _) => "does not exist: no servers; add them under mcp_servers".to_owned(),
            (true, true) => format!("{}, no errors", servers(config.servers.len())),
            (true, false) => format!("{}, errors found", servers(config.servers.len())),
        };
        let (findings, file) = (config::render_findings(&findings), config.file.display());
        format!("{findings}{file}: {last}\n")
    };
    // A closed pipe loses the text, not the exit code.
    let _ = std::io::stdout().write_all(text.as_bytes());
    if ok { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn servers(count: usize) -> String {
    if count == 1 { "1 server".to_owned() } else { format!("{count} servers") }
}

fn entry<'a>(kind: &'static str, finding: &'a Finding) -> Entry<'a> {
    Entry {
        kind,
        severity: match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Info => "info",
        },
        server: finding.server.as_ref().map(crate::names::ServerName::as_str),
        file: finding.file.as_ref().map(|path| path.display().to_string()),
        line: finding.line,
        key: &finding.key,
        message: finding.message.clone(),
        hint: finding.hint.clone(),
    }
}
