//! Raw file to `Config`, all errors at once.
//!
//! Promise: [`check_text`] is pure; [`load`] reads `config.yaml` and `.env` and nothing else of
//! consequence, never panics, and blocks only for the time of two small reads. One bad entry
//! disables only itself. May not touch: servers, the running configuration.

use super::daemon_section::{self, auxiliary, is_wrong_shape};
use super::file::{self, Document, FileError, Kind, Map, Remark};
use super::reader::{Cx, Field, Section, Sink, Surroundings};
use super::{
    Config, DaemonConfig, Finding, HttpListenConfig, ListenTokens, ServerEntry, Severity, TransportConfig,
    dotenv, interpolate, messaging, server_entry, url, values,
};
use crate::names::{ProfileName, ServerName};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a configuration comes from.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    /// HERMES_HOME.
    pub home: &'a Path,
    /// The process environment.
    pub env: &'a BTreeMap<String, String>,
    /// The user's home, for `~`.
    pub user_home: Option<&'a Path>,
}

/// A configuration and whether the file could be used at all.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What was read. Where the file is unusable it has no servers, where only `.env` is, it has
    /// those that do without; better than nothing at the start, worse than what runs.
    pub config: Config,
    /// Whether `config` may replace a running one.
    pub state: State,
}

/// Whether the file could be used at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Read; single entries may still be refused.
    Ok,
    /// A file is not readable or not YAML: keep what runs, if anything does.
    Unreadable {
        /// One sentence, with the line where there is one.
        reason: String,
    },
}

/// Reads `config.yaml` and `.env` of a home. An absent file means no servers.
///
/// Blocking: call it on the blocking pool.
pub fn load(sources: &Sources<'_>) -> Loaded {
    let path = sources.home.join("config.yaml");
    let bytes = match read_small(&path) {
        Ok(bytes) => bytes,
        Err(err) => return unreadable(path, 0, format!("cannot be read: {err}")),
    };
    let parsed = file::decode(&bytes).and_then(|text| file::parse(text).map(|document| (text, document)));
    let (text, document) = match parsed {
        Ok(parsed) => parsed,
        Err(err) => return unreadable(path, err.line(), err.to_string()),
    };
    let process = |name: &str| sources.env.get(name).cloned();
    let (dotenv, env_findings, state) = read_dotenv(sources, &process, text);
    let around = Surroundings {
        file: &path,
        env: &|name| dotenv.values.get(name).cloned().or_else(|| process(name)),
        dotenv: &|name| dotenv.values.get(name).cloned(),
        user_home: sources.user_home,
        is_file: &Path::is_file,
        resolve: &|program| resolve_program(program, sources.env.get("PATH").map_or("", String::as_str)),
    };
    let mut config = check_document(&document, &around);
    let (messaging, found, secrets) = messaging::read(&document, gateway(sources).as_deref(), &around);
    config.messaging = Arc::new(messaging);
    config.findings.extend(found);
    config.secrets.extend(&secrets);
    for (name, value) in &dotenv.values {
        config.secrets.note(name, value);
    }
    config.findings.extend(env_findings);
    config.findings.extend(super::unused::findings(&config));
    config.findings.extend(second_opinion(text, &path));
    config.findings.extend(active_profile(sources));
    sort(&mut config.findings);
    Loaded { config, state }
}

/// Reads one entry that is in no file yet, with `variables` as if `.env` had them. Findings that are not
/// about the entry are left out.
///
/// Blocking: call it on the blocking pool.
pub fn load_entry(
    sources: &Sources<'_>,
    server: &str,
    entry_yaml: &str,
    variables: &BTreeMap<String, String>,
) -> Config {
    let path = sources.home.join("config.yaml");
    let lines: String = entry_yaml.lines().map(|line| format!("    {line}\n")).collect();
    // JSON is YAML, so any name can stand here.
    let text = format!("mcp_servers:\n  {}:\n{lines}", serde_json::Value::from(server));
    let process = |name: &str| sources.env.get(name).cloned();
    let (mut dotenv, _, _) = read_dotenv(sources, &process, &text);
    dotenv.values.extend(variables.clone());
    let around = Surroundings {
        file: &path,
        env: &|name| dotenv.values.get(name).cloned().or_else(|| process(name)),
        dotenv: &|name| dotenv.values.get(name).cloned(),
        user_home: sources.user_home,
        is_file: &Path::is_file,
        resolve: &|program| resolve_program(program, sources.env.get("PATH").map_or("", String::as_str)),
    };
    let mut config = check_text(&text, &around);
    for finding in &mut config.findings {
        // Lines are those of a text that nobody has.
        finding.line = 0;
    }
    for (name, value) in variables {
        config.secrets.note(name, value);
    }
    config
}

/// Checks one text; a text that is no YAML gives one finding and no servers.
pub fn check_text(yaml: &str, around: &Surroundings<'_>) -> Config {
    match file::parse(yaml) {
        Ok(document) => check_document(&document, around),
        Err(err) => unreadable(around.file.to_owned(), err.line(), err.to_string()).config,
    }
}

/// gateway.json, where Hermes Agent kept `platforms` before config.yaml; one that cannot be read says nothing.
fn gateway(sources: &Sources<'_>) -> Option<String> {
    let bytes = read_small(&sources.home.join("gateway.json")).ok()?;
    String::from_utf8(bytes).ok().filter(|text| !text.trim().is_empty())
}

/// What another YAML reader says about a text that ours accepts. The file is shared with programs
/// that have their own.
fn second_opinion(text: &str, file: &Path) -> Option<Finding> {
    let error = serde_yaml::from_str::<serde_yaml::Value>(text).err()?;
    let line = error.location().map_or(0, |at| u32::try_from(at.line()).unwrap_or(0));
    Some(Finding {
        severity: Severity::Warning,
        server: None,
        file: Some(file.to_owned()),
        line,
        key: String::new(),
        message: "other YAML readers refuse this file, so Hermes Agent may too".to_owned(),
        // The error's own text may quote the file, and so a secret.
        hint: "write the line in plainer YAML".to_owned(),
    })
}

/// The content of a small regular file, empty where there is none; a pipe is never waited for.
pub(super) fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    let size = match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => return Err(io::Error::other("not a regular file")),
        Ok(metadata) => metadata.len(),
        Err(err) if err.kind() == io::ErrorKind::NotFound && !path.is_symlink() => return Ok(Vec::new()),
        Err(err) => return Err(err),
    };
    if size > file::MAX_BYTES as u64 {
        return Err(io::Error::other(FileError::TooBig {
            bytes: usize::try_from(size).unwrap_or(usize::MAX),
        }));
    }
    std::fs::read(path)
}

fn unreadable(file: PathBuf, line: u32, reason: String) -> Loaded {
    // The finding says the line already.
    let message = match reason.strip_prefix(&format!("line {line}")) {
        Some(rest) => rest.trim_start_matches([',', ':', ' ']).to_owned(),
        None => reason.clone(),
    };
    let finding = Finding {
        severity: Severity::Error,
        server: None,
        file: Some(file.clone()),
        line,
        key: String::new(),
        message,
        hint: "the configuration that runs stays as it is".to_owned(),
    };
    let config = Config { file, findings: vec![finding], ..Config::default() };
    Loaded { config, state: State::Unreadable { reason } }
}

fn read_dotenv(
    sources: &Sources<'_>,
    process: &dyn Fn(&str) -> Option<String>,
    yaml: &str,
) -> (dotenv::Dotenv, Vec<Finding>, State) {
    let path = sources.home.join(".env");
    let finding = |severity, line, message: String| Finding {
        severity,
        server: None,
        file: Some(path.clone()),
        line,
        key: String::new(),
        message,
        hint: String::new(),
    };
    match read_small(&path) {
        Ok(bytes) => {
            let dotenv = dotenv::parse(&bytes, process, &interpolate::names_in(yaml));
            let remarks = dotenv.remarks.iter();
            let findings =
                remarks.map(|(line, remark)| finding(Severity::Warning, *line, remark.to_string())).collect();
            (dotenv, findings, State::Ok)
        }
        Err(err) => {
            let reason = format!("cannot be read: {err}");
            let findings = vec![finding(Severity::Error, 0, reason.clone())];
            (
                dotenv::Dotenv::default(),
                findings,
                State::Unreadable { reason: format!("{} {reason}", path.display()) },
            )
        }
    }
}

/// The file behind a command: links followed, bare names searched on PATH.
fn resolve_program(program: &Path, search: &str) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.canonicalize().ok();
    }
    std::env::split_paths(search).map(|dir| dir.join(program)).find_map(|path| path.canonicalize().ok())
}

/// Profiles below HERMES_HOME are not read; a person who uses one should know.
fn active_profile(sources: &Sources<'_>) -> Option<Finding> {
    if sources.env.get("HERMES_HOME").is_some_and(|home| !home.trim().is_empty()) {
        return None;
    }
    let file = sources.home.join("active_profile");
    let name = std::fs::read_to_string(&file).ok()?;
    let name = name.trim();
    (!name.is_empty() && name != "default").then(|| Finding {
        severity: Severity::Warning,
        server: None,
        file: Some(file.clone()),
        line: 1,
        key: String::new(),
        message: format!(
            "the profile `{name}` of Hermes Agent is active, but {} is read",
            sources.home.display()
        ),
        hint: format!("set HERMES_HOME to {}", sources.home.join("profiles").join(name).display()),
    })
}

/// Errors first, then by file and line.
fn sort(findings: &mut [Finding]) {
    findings.sort_by(|a, b| (a.severity, &a.file, a.line).cmp(&(b.severity, &b.file, b.line)));
}

fn check_document(document: &Document, around: &Surroundings<'_>) -> Config {
    let sink = RefCell::new(Sink::default());
    let cx = Cx { around, sink: &sink, server: None };
    remarks(cx, document);
    // Keys of Hermes Agent at the top are not ours to judge, so there is no `finish` here; only
    // a typo of our own two is worth a word.
    let root = &document.root;
    for twice in root.duplicates.iter().filter(|twice| twice.key == "mcp_servers" || twice.key == "hermesd") {
        let message = format!(
            "`{}` is written in line {} and again in line {}; the last counts",
            twice.key, twice.first, twice.second
        );
        cx.find(Severity::Error, twice.second, &twice.key, message, "keep one of them".to_owned());
    }
    misspelt_sections(cx, document);
    let field = |key: &str| {
        let entry = root.get(key)?;
        Some(Field { cx, path: key.to_owned(), line: entry.line, node: &entry.value })
            .filter(|f| !f.node.is_null())
    };
    let mut servers = BTreeMap::new();
    let mut daemon = DaemonConfig::default();
    // These win, so they are read first and the others with the same name are left out.
    if let Some(hermesd) = field("hermesd").and_then(|f| f.section()) {
        if let Some(section) = hermesd.get("mcp_servers").and_then(|f| f.section()) {
            read_servers(&section, &mut servers);
        }
        daemon = daemon_section::read(hermesd);
    }
    if let Some(section) = field("mcp_servers").and_then(|f| f.section()) {
        read_servers(&section, &mut servers);
    }
    if daemon.sampling_provider.is_none() {
        let auxiliary_section = field("auxiliary").filter(|f| !is_wrong_shape(f)).and_then(|f| f.section());
        let mcp =
            auxiliary_section.as_ref().and_then(|section| section.get("mcp")).filter(|f| !is_wrong_shape(f));
        daemon.sampling_provider = mcp.and_then(|f| f.section()).and_then(|section| auxiliary(&section));
    }
    own_listener(cx, root, &daemon, &mut servers);
    profiles(cx, root, &mut daemon, &servers);
    token_profiles(cx, root, &mut daemon);
    let platforms = field("platforms").is_some();
    let Sink {
        mut findings,
        secrets,
        #[cfg(test)]
        asked,
    } = sink.into_inner();
    sort(&mut findings);
    Config {
        file: around.file.to_owned(),
        servers,
        daemon,
        findings,
        secrets,
        platforms,
        #[cfg(test)]
        asked,
        ..Config::default()
    }
}

fn remarks(cx: Cx<'_>, document: &Document) {
    for (line, remark) in &document.remarks {
        let (message, hint) = match remark {
            Remark::SecondDocument => {
                ("only the part before this `---` is read", "keep one document in the file")
            }
            Remark::UnknownTag => ("this tag is not known and the value is taken as text", "remove the tag"),
            Remark::BadMerge => ("`<<` needs a mapping or a list of mappings and is ignored", ""),
        };
        cx.find(Severity::Warning, *line, "", message.to_owned(), hint.to_owned());
    }
}

fn misspelt_sections(cx: Cx<'_>, document: &Document) {
    for (key, others) in [
        ("mcp_servers", ["mcpServers", "mcp-servers", "mcp_server"]),
        ("hermesd", ["hermes_d", "Hermesd", "hermesd_"]),
    ] {
        let written = document.root.entries.iter().find(|entry| {
            others.contains(&entry.key.as_str())
                || (entry.key != key && values::closest(&entry.key, [key]).is_some())
        });
        // Hermes Agent itself has other keys that begin alike; only an absent section is suspicious.
        if let Some(entry) = written.filter(|_| document.root.get(key).is_none()) {
            let message = format!("`{}` is not read", entry.key);
            cx.find(Severity::Warning, entry.line, &entry.key, message, format!("did you mean `{key}`?"));
        }
    }
}

/// Line of the key at `path`; 0 where it is not written.
fn line_at(map: &Map, path: &[&str]) -> u32 {
    let Some((entry, rest)) = path.split_first().and_then(|(key, rest)| Some((map.get(key)?, rest))) else {
        return 0;
    };
    match &entry.value.kind {
        _ if rest.is_empty() => entry.line,
        Kind::Map(map) => line_at(map, rest),
        Kind::Scalar(_) | Kind::List(_) => 0,
    }
}

fn read_servers(section: &Section<'_>, servers: &mut BTreeMap<ServerName, ServerEntry>) {
    for (key, field) in section.fields() {
        if key.is_empty() {
            field.error("a server has an empty name".to_owned(), "give it a name");
            continue;
        }
        let name = ServerName::new(key);
        let field = Field { cx: section.cx.of(&name), ..field };
        if servers.contains_key(&name) {
            let message = format!("`hermesd.mcp_servers.{name}` is used in place of this entry");
            field.cx.find(Severity::Info, field.line, &field.path, message, String::new());
            continue;
        }
        let mut entry = server_entry::check(&field, &name);
        // Which of two entries is meant cannot be guessed.
        if let Some(twice) = section.map.duplicates.iter().find(|twice| twice.key == key) {
            let path = section.path_of(key);
            for finding in
                section.cx.sink.borrow_mut().findings.iter_mut().filter(|finding| finding.key == path)
            {
                finding.server = Some(name.clone());
            }
            let reason = format!("written in line {} and again in line {}", twice.first, twice.second);
            entry = ServerEntry::Refused { reason };
        }
        servers.insert(name.clone(), entry);
    }
}

/// A server whose URL is our own HTTP listener would make the daemon its own client.
fn own_listener(
    cx: Cx<'_>,
    root: &Map,
    daemon: &DaemonConfig,
    servers: &mut BTreeMap<ServerName, ServerEntry>,
) {
    let Some(port) =
        daemon.http.as_ref().and_then(|http| http.listen.rsplit(':').next()?.parse::<u16>().ok())
    else {
        return;
    };
    for (name, entry) in servers {
        let (ServerEntry::Enabled(config) | ServerEntry::Disabled(config)) = &*entry else { continue };
        let TransportConfig::Http(http) = &config.transport else { continue };
        if url::parse(&http.url).is_ok_and(|url| url.is_loopback() && url.port == port) {
            let message = "the URL is hermesd's own listener".to_owned();
            let inner = line_at(root, &["hermesd", "mcp_servers", name.as_str(), "url"]);
            let line = line_at(root, &["mcp_servers", name.as_str(), "url"]).max(inner);
            cx.of(name).find(Severity::Info, line, &format!("{name}.url"), message.clone(), String::new());
            *entry = ServerEntry::Refused { reason: message };
        }
    }
}

/// Profiles name servers that exist, and raw names only where they cannot collide.
fn profiles(cx: Cx<'_>, root: &Map, daemon: &mut DaemonConfig, servers: &BTreeMap<ServerName, ServerEntry>) {
    for (name, profile) in &mut daemon.profiles {
        let path = format!("hermesd.profiles.{name}");
        let line = |key| line_at(root, &["hermesd", "profiles", name.as_str(), key]);
        for server in profile.servers.iter().flatten().filter(|server| !servers.contains_key(server.as_str()))
        {
            let known = values::closest(server, servers.keys().map(ServerName::as_str));
            let hint = known.map_or_else(String::new, |known| format!("did you mean `{known}`?"));
            let message = format!("the profile names the server `{server}`, which does not exist");
            cx.find(Severity::Warning, line("servers"), &format!("{path}.servers"), message, hint);
        }
        let count = profile.servers.as_ref().map_or(servers.len(), Vec::len);
        if profile.raw_names && count == 1 {
            // Without a list it is the one there is; a second entry makes a new configuration.
            profile.servers.get_or_insert_with(|| servers.keys().map(ToString::to_string).collect());
        }
        if profile.raw_names && count > 1 {
            profile.raw_names = false;
            let message = format!("`names: raw` needs a profile with a single server, this one has {count}");
            cx.find(
                Severity::Error,
                line("names"),
                &format!("{path}.names"),
                message,
                "list one server in `servers`".to_owned(),
            );
        }
    }
}

/// A token of the HTTP listener names a profile that exists, or the listener stays closed.
fn token_profiles(cx: Cx<'_>, root: &Map, daemon: &mut DaemonConfig) {
    let Some(HttpListenConfig { tokens: ListenTokens::Given(tokens), .. }) = &daemon.http else { return };
    let Some(unknown) = tokens.keys().find(|name| !daemon.profiles.contains_key(*name)) else { return };
    let known = values::closest(unknown.as_str(), daemon.profiles.keys().map(ProfileName::as_str));
    let hint = known.map_or_else(
        || "add it to `hermesd.profiles`".to_owned(),
        |known| format!("did you mean `{known}`? Otherwise add it to `hermesd.profiles`"),
    );
    let message = format!("there is no profile `{unknown}`; the listener stays closed");
    let line = line_at(root, &["hermesd", "http", "token", unknown.as_str()]);
    cx.find(Severity::Error, line, &format!("hermesd.http.token.{unknown}"), message, hint);
    daemon.http = None;
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
