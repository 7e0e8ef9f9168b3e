//! What registering and unregistering would change in one client's file.
//!
//! Pure. Promise: an entry that is not ours is never touched unless its name was given for removal; undoing gives
//! the bytes of before where the file did not change since, and else takes out our entry alone.
//! May not touch: files.

use super::doc::{Doc, DocError, Edit};
use super::identity::is_own_entry;
use super::record::{Cut, Record};
use super::table::Client;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// What the entry has to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shim {
    /// Absolute path of hermesctl.
    pub program: PathBuf,
    /// The home, where it is not the default one.
    pub home: Option<PathBuf>,
    /// The profile, where it is not `default`.
    pub profile: Option<String>,
}

/// Why a client cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// Another server has the name.
    #[error("another server is called `{name}` there")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The file cannot be edited.
    #[error(transparent)]
    Doc(#[from] DocError),
}

/// What registering does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// Nothing: the entry is there, under this name.
    Already(String),
    /// The file changes.
    Write(Box<Change>),
}

/// The file of a client before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The file without our entry, as unregistering will leave it.
    pub base: Doc,
    /// The file with it.
    pub after: Doc,
    /// Whether an older entry of ours, or the one of Hermes Agent, had the name.
    pub updates: bool,
}

/// What unregistering does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undo {
    /// The bytes of before come back.
    Exact(Doc),
    /// Our entry is taken out of a file that changed since; what was replaced does not come back.
    TakenOut(Doc),
    /// There is nothing of ours in it.
    Nothing,
}

impl Shim {
    /// Its arguments.
    pub fn args(&self) -> Vec<String> {
        let mut args = vec!["mcp".to_owned(), "serve".to_owned()];
        if let Some(home) = &self.home {
            args.extend(["--home".to_owned(), home.display().to_string()]);
        }
        if let Some(profile) = &self.profile {
            args.extend(["--profile".to_owned(), profile.clone()]);
        }
        args
    }

    /// The entry as `client` writes it.
    pub fn entry(&self, client: Client) -> Value {
        let mut entry = Map::new();
        if client.says_type() {
            entry.insert("type".to_owned(), json!("stdio"));
        }
        entry.insert("command".to_owned(), json!(self.program.display().to_string()));
        entry.insert("args".to_owned(), json!(self.args()));
        Value::Object(entry)
    }
}

/// Follows links, for the question whether a command is ours.
pub type Resolve<'a> = &'a dyn Fn(&Path) -> Option<PathBuf>;

/// Plans `entry` under `name` in `doc`, with the servers `remove` taken out.
///
/// # Errors
/// [`RegisterError`].
pub fn plan(
    doc: &Doc,
    record: Option<&Record>,
    name: &str,
    entry: &Value,
    remove: &[String],
    resolve: Resolve<'_>,
) -> Result<Plan, RegisterError> {
    let servers = doc.servers();
    let leaves = !remove.iter().any(|name| servers.contains_key(name));
    let same = servers.iter().find(|(_, value)| same_command(value, entry));
    if let Some((there, _)) = same.filter(|_| leaves) {
        return Ok(Plan::Already(there.clone()));
    }
    let old = servers.get(name);
    if old.is_some_and(|old| !is_own_entry(old, resolve)) {
        return Err(RegisterError::NameTaken { name: name.to_owned() });
    }
    let base = match record.map(|record| undo(doc, Some(record), name, resolve)).transpose()? {
        Some(Undo::Exact(base) | Undo::TakenOut(base)) => base,
        Some(Undo::Nothing) | None => doc.clone(),
    };
    let mut after = base.clone();
    let before = record.map_or(&[][..], |record| &record.replaced);
    for name in remove.iter().chain(before) {
        if after.servers().contains_key(name) {
            after = after.edit(&Edit::Remove(name.clone()))?;
        }
    }
    after = after.edit(&Edit::Put(name.to_owned(), entry.clone()))?;
    Ok(Plan::Write(Box::new(Change { base, after, updates: old.is_some() })))
}

/// Plans taking our entry out of `doc`.
///
/// # Errors
/// [`DocError`] when the entry is there and cannot be taken out safely.
pub fn undo(doc: &Doc, record: Option<&Record>, name: &str, resolve: Resolve<'_>) -> Result<Undo, DocError> {
    let servers = doc.servers();
    let is_ours = servers.get(name).is_some_and(|entry| is_own_entry(entry, resolve));
    if !is_ours {
        return Ok(Undo::Nothing);
    }
    if let Some(text) = record.and_then(|record| record.cut.undo(doc.text()))
        && let Ok(before) = doc.with_text(&text)
        && is_undone(doc, &before, name)
    {
        return Ok(Undo::Exact(before));
    }
    Ok(Undo::TakenOut(doc.edit(&Edit::Remove(name.to_owned()))?))
}

/// Whether `before` is `now` without our entry, and perhaps with servers that `now` lacks.
fn is_undone(now: &Doc, before: &Doc, name: &str) -> bool {
    let current = now.servers();
    let mut shared = before.servers();
    shared.retain(|key, _| key != name && current.contains_key(key));
    let mut wanted = current;
    wanted.shift_remove(name);
    shared == wanted && now.rest() == before.rest()
}

impl Change {
    /// The cut that a record keeps.
    pub fn cut(&self) -> Cut {
        Cut::between(self.base.text(), self.after.text())
    }
}

/// Entries that start the same, whatever else they say.
fn same_command(one: &Value, two: &Value) -> bool {
    let of = |value: &Value| (value.get("command").cloned(), value.get("args").cloned());
    of(one) == of(two)
        && one.get("disabled") != Some(&Value::Bool(true))
        && one.get("enabled") != Some(&Value::Bool(false))
}

#[cfg(test)]
#[path = "register_tests.rs"]
mod tests;
