//! Which servers of clients' files become entries of config.yaml, and under which name.
//!
//! Pure. Promise: a server that hermesd has already is recognised whatever it is called; an entry that exists is only
//! replaced when that was asked for; our own shim is never taken over. May not touch: files.

use super::doc::{Doc, DocError};
use super::entry::{Converted, convert, env_lines, inputs};
use super::identity::{Fingerprint, fingerprint, is_own_entry};
use super::register::Resolve;
use super::secret;
use super::table::{Client, Format, Scope};
use super::template::{Around, Bare, Need};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The name of hermesd's own tools, which no server may have.
const BUILT_IN: &str = "hermes";

/// One file to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Whose file it is.
    pub client: Client,
    /// Where it is.
    pub file: PathBuf,
    /// Whose servers it holds.
    pub scope: Scope,
}

/// A server in a client's file.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Its name there.
    pub name: String,
    /// Where it was found, for people.
    pub from: String,
    /// What it becomes, or why it cannot.
    pub found: Result<Converted, String>,
    /// Whether it is our own shim.
    pub is_own: bool,
    /// Whether it is in the file's own list, and not below one of its projects.
    pub is_listed: bool,
}

/// What to do when another server has the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Conflicts {
    /// Leave the server out
    Skip,
    /// Take it over as NAME-CLIENT
    Rename,
    /// Replace the entry in config.yaml
    Replace,
}

/// What becomes of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is taken over under this name.
    Add(String),
    /// It is taken over in place of the entry of this name.
    Replace(String),
    /// hermesd has it under this name.
    Same(String),
    /// Another server has its name.
    Conflict,
    /// It is our own shim.
    Own,
    /// It cannot be used, because of this.
    Unusable(String),
}

/// One line of the plan.
#[derive(Debug, Clone)]
pub struct Item {
    /// Its name in the client's file.
    pub name: String,
    /// Where it was found.
    pub from: String,
    /// What becomes of it.
    pub verdict: Verdict,
    /// The entry, secrets still in it.
    pub entry: Map<String, Value>,
    /// Variables that must be set for it.
    pub needs: Vec<Need>,
    /// What a person should know.
    pub notes: Vec<String>,
    /// Secrets that stand in it as text.
    pub secrets: Vec<secret::Found>,
}

/// What surrounds the files that are read.
pub struct Surroundings<'a> {
    /// The user's home folder.
    pub user: &'a Path,
    /// Follows links.
    pub resolve: Resolve<'a>,
    /// Reads a file of variables.
    pub read: &'a dyn Fn(&Path) -> Option<String>,
}

/// All servers in the file `source` with these bytes.
///
/// # Errors
/// [`DocError`] when the file is malformed.
pub fn read(source: &Source, bytes: &[u8], cx: &Surroundings<'_>) -> Result<Vec<Candidate>, DocError> {
    let client = source.client;
    let doc = Doc::parse(bytes, client.format(), &[client.key()])?;
    let project = match &source.scope {
        Scope::User => None,
        Scope::Project(dir) => Some(dir.clone()),
    };
    let mut found = candidates(source, &doc, doc.servers(), project, cx);
    found.iter_mut().for_each(|candidate| candidate.is_listed = true);
    // Servers that `claude mcp add` keeps for one project, in the user's file.
    if client == Client::ClaudeCode && source.scope == Scope::User {
        let projects = doc.whole().get("projects").and_then(Value::as_object);
        for (dir, project) in projects.into_iter().flatten() {
            let servers = project.get("mcpServers").and_then(Value::as_object).cloned().unwrap_or_default();
            found.extend(candidates(source, &doc, servers, Some(PathBuf::from(dir)), cx));
        }
    }
    Ok(found)
}

fn candidates(
    source: &Source,
    doc: &Doc,
    servers: Map<String, Value>,
    project: Option<PathBuf>,
    cx: &Surroundings<'_>,
) -> Vec<Candidate> {
    let client = source.client;
    let from = match &project {
        Some(dir) => format!("{}, project {}", client.title(), dir.display()),
        None => client.title().to_owned(),
    };
    let bare = if client == Client::Gemini { Bare::Variable } else { Bare::Text };
    let around = Around { user: cx.user.to_owned(), project, inputs: inputs(doc.whole()), bare };
    servers
        .into_iter()
        .map(|(name, value)| {
            let found = convert(client, &value, &around).map_err(|error| error.to_string());
            let found = found.map(|converted| with_file(converted, &around, cx));
            let is_own = is_own_entry(&value, cx.resolve);
            Candidate { name, from: from.clone(), found, is_own, is_listed: false }
        })
        .collect()
}

/// Reads the file of variables into the entry; variables that the entry sets itself win.
fn with_file(mut converted: Converted, around: &Around, cx: &Surroundings<'_>) -> Converted {
    let Some(file) = converted.env_file.clone() else { return converted };
    let path = around.project.as_ref().map_or(file.clone(), |dir| dir.join(&file));
    let Some(text) = (cx.read)(&path) else {
        converted.notes.push(format!("its file of variables cannot be read: {}", path.display()));
        return converted;
    };
    let env = converted.entry.entry("env").or_insert_with(|| Value::Object(Map::new()));
    if let Some(env) = env.as_object_mut() {
        for (name, value) in env_lines(&text) {
            // A `${` in the file is text, and would be a template here.
            env.entry(name).or_insert_with(|| Value::from(value.replace("${", "$${")));
        }
    }
    converted.notes.push(format!("variables of {} are taken over", path.display()));
    converted
}

/// Decides about all candidates, in their order.
pub fn plan(
    candidates: Vec<Candidate>,
    existing: &[(String, Map<String, Value>)],
    lookup: &dyn Fn(&str) -> Option<String>,
    conflicts: Conflicts,
    client_word: &dyn Fn(&Candidate) -> String,
) -> Vec<Item> {
    let mut known: Vec<(String, Option<Fingerprint>)> =
        existing.iter().map(|(name, entry)| (name.clone(), fingerprint(entry, lookup))).collect();
    candidates
        .into_iter()
        .map(|candidate| {
            let suffix = client_word(&candidate);
            let Candidate { name, from, found, is_own, .. } = candidate;
            let (converted, why) = match found {
                Ok(converted) => (Some(converted), None),
                Err(why) => (None, Some(why)),
            };
            let Converted { entry, mut needs, mut notes, .. } = converted.unwrap_or(Converted {
                entry: Map::new(),
                needs: Vec::new(),
                notes: Vec::new(),
                env_file: None,
            });
            needs.retain(|need| lookup(&need.name).is_none());
            let print = fingerprint(&entry, lookup);
            let verdict = match (is_own, why) {
                (true, _) => Verdict::Own,
                (false, Some(why)) => Verdict::Unusable(why),
                (false, None) => decide(&name, &print, &known, conflicts, &suffix),
            };
            if let Verdict::Add(as_name) | Verdict::Replace(as_name) = &verdict {
                let twin = known.iter().find(|(other, old)| {
                    other != as_name
                        && old.as_ref().map(|old| &old.what) == print.as_ref().map(|new| &new.what)
                });
                if let Some((other, _)) = twin {
                    notes.push(format!("`{other}` is the same program or address, with other variables"));
                }
                known.retain(|(other, _)| other != as_name);
                known.push((as_name.clone(), print));
            }
            let secrets = secret::find(&name, &entry);
            Item { name, from, verdict, entry, needs, notes, secrets }
        })
        .collect()
}

fn decide(
    name: &str,
    print: &Option<Fingerprint>,
    known: &[(String, Option<Fingerprint>)],
    conflicts: Conflicts,
    suffix: &str,
) -> Verdict {
    if name.trim().is_empty() {
        return Verdict::Unusable("it has no name".to_owned());
    }
    if let Some((twin, _)) = known.iter().find(|(_, other)| other.is_some() && other == print) {
        return Verdict::Same(twin.clone());
    }
    let taken = |name: &str| name == BUILT_IN || known.iter().any(|(other, _)| other == name);
    if !taken(name) {
        return Verdict::Add(name.to_owned());
    }
    match conflicts {
        Conflicts::Skip => Verdict::Conflict,
        Conflicts::Replace if name != BUILT_IN => Verdict::Replace(name.to_owned()),
        Conflicts::Replace | Conflicts::Rename => {
            let first = format!("{name}-{suffix}");
            let more = (2..).map(|number| format!("{name}-{suffix}-{number}"));
            let free = std::iter::once(first).chain(more).find(|name| !taken(name));
            free.map_or(Verdict::Conflict, Verdict::Add)
        }
    }
}

/// Moves the secrets of everything that is taken over into variables, and gives back the lines for `.env`.
pub fn move_secrets(items: &mut [Item], dotenv: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let mut dotenv = dotenv.clone();
    let mut lines = Vec::new();
    for item in items {
        if let Verdict::Add(name) | Verdict::Replace(name) = &item.verdict {
            lines.extend(secret::move_out(name, &mut item.entry, &mut dotenv));
        }
    }
    lines
}

/// The client whose shape this document has, for a file whose name says nothing.
pub fn guess(file: &Path, bytes: &[u8]) -> Option<(Client, Scope)> {
    if let Some((client, dir)) = Client::of_project_file(file) {
        return Some((client, Scope::Project(dir)));
    }
    if file.extension().is_some_and(|end| end == "toml") {
        return Some((Client::Codex, Scope::User));
    }
    let doc = Doc::parse(bytes, Format::Json, &[]).ok()?;
    let has = |key: &str| doc.whole().get(key).is_some_and(Value::is_object);
    let clients = [Client::Cursor, Client::VsCode, Client::Zed];
    let client = clients.into_iter().find(|client| has(client.key()))?;
    // Only Claude Code keeps servers below projects.
    let client = if client == Client::Cursor && has("projects") { Client::ClaudeCode } else { client };
    Some((client, Scope::User))
}

#[cfg(test)]
#[path = "import_tests.rs"]
mod tests;
