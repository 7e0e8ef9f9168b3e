//! `mcp register` and `mcp unregister`: hermesd's shim in the files of MCP clients.
//!
//! Promise: what will be written is shown first, and on a terminal asked about; without one `--yes` is needed. One
//! client that fails does not keep the others from being done; the exit code says so.

use super::ask::{self, Default};
use super::{Context, Format, put};
use crate::beside;
use crate::cli::{RegisterArgs, UnregisterArgs};
use crate::clients::apply::{self, Seen};
use crate::clients::doc::Doc;
use crate::clients::identity::fingerprint;
use crate::clients::import::{self, Source, Surroundings};
use crate::clients::record::{self, Record};
use crate::clients::register::{self, Plan, Shim, Undo};
use crate::clients::{Client, Places, Scope, home};
use crate::config_edit::Lock;
use crate::failure::{Done, Failure};
use crate::render::text;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

mod hermes;

/// What happened to one client.
#[derive(Debug, serde::Serialize)]
pub(super) struct Outcome {
    client: &'static str,
    file: PathBuf,
    /// `written`, `would_write`, `already`, `removed`, `would_remove`, `nothing`, `declined`, `failed`.
    action: &'static str,
    /// Name of the entry.
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    backup: Option<PathBuf>,
    /// Servers in the file that hermesd runs too.
    also_in_hermesd: Vec<String>,
    /// Servers that were taken out of the file, or moved.
    replaced: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Outcome {
    fn of(client: Client, file: &Path, name: &str, action: &'static str) -> Self {
        Self {
            client: client.word(),
            file: file.to_owned(),
            action,
            name: name.to_owned(),
            backup: None,
            also_in_hermesd: Vec::new(),
            replaced: Vec::new(),
            note: None,
            error: None,
        }
    }

    fn failed(client: Client, file: &Path, name: &str, error: &impl ToString) -> Self {
        Self { error: Some(error.to_string()), ..Self::of(client, file, name, "failed") }
    }
}

/// How far a command goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Shows only.
    Dry,
    /// Asks before each file.
    Ask,
    /// Writes.
    Write,
}

fn mode(cx: &Context, dry_run: bool, yes: bool) -> Result<Mode, Failure> {
    match (dry_run, yes) {
        (true, _) => Ok(Mode::Dry),
        (false, true) => Ok(Mode::Write),
        (false, false) if cx.format == Format::Text && ask::can_ask() => Ok(Mode::Ask),
        (false, false) => Err(Failure::Usage {
            message: "nobody can be asked here".to_owned(),
            hint: "add --yes to write, or --dry-run to look only".to_owned(),
        }),
    }
}

/// The folders of clients.
pub(super) fn places() -> Result<Places, Failure> {
    Places::find(&|name| std::env::var_os(name)).ok_or_else(|| Failure::refused("HOME is not set"))
}

/// Follows links.
pub(super) fn resolve(path: &Path) -> Option<PathBuf> {
    fs::canonicalize(path).ok()
}

fn scope(project: Option<&Path>) -> Result<Scope, Failure> {
    Ok(match project {
        None => Scope::User,
        Some(dir) => Scope::Project(fs::canonicalize(dir).map_err(|error| {
            Failure::refused(format!("{}: {error}", dir.display()))
        })?),
    })
}

/// Registers with the clients that were named.
pub(super) fn register(cx: &Context, args: &RegisterArgs) -> Result<Done, Failure> {
    let places = places()?;
    let scope = scope(args.project.as_deref())?;
    let mut clients = args.clients.clone();
    if args.all {
        let used = |client: &Client| client.trace(&places).is_some_and(|trace| trace.exists());
        clients.extend(Client::FOREIGN.into_iter().filter(used));
        if clients.is_empty() {
            return Err(Failure::refused("none of the clients that hermesctl knows was found here"));
        }
    }
    clients.sort();
    clients.dedup();
    if clients.is_empty() {
        return Err(Failure::Usage {
            message: "no client was named".to_owned(),
            hint: format!("name one or more of {}, or give --all", words()),
        });
    }
    let shim = Shim {
        program: stable_program()?,
        home: (!cx.home.is_default()).then(|| cx.home.path().to_owned()),
        profile: args.profile.clone().filter(|profile| profile != "default"),
    };
    if let Some(warning) = unstable(&shim.program) {
        say(cx, &format!("warning: {warning}\n"))?;
    }
    let work = Work { cx, mode: mode(cx, args.dry_run, args.yes)?, places: &places, scope: &scope };
    let mut outcomes = Vec::new();
    for client in clients {
        outcomes.push(match client {
            Client::Hermes => work.register_hermes(&args.name, &shim)?,
            _ => work.register(client, args, &shim)?,
        });
    }
    finish(cx, &outcomes)
}

/// Takes the entry out of the clients that were named.
pub(super) fn unregister(cx: &Context, args: &UnregisterArgs) -> Result<Done, Failure> {
    let places = places()?;
    let scope = scope(args.project.as_deref())?;
    let mut clients = args.clients.clone();
    if args.all {
        let records = record::all(&cx.home).map_err(refuse)?;
        let known = [&Client::FOREIGN[..], &[Client::Hermes]].concat();
        let has = |client: &Client| records.iter().any(|record| record.client == client.word());
        clients.extend(known.into_iter().filter(has));
    }
    clients.sort();
    clients.dedup();
    if clients.is_empty() && !args.all {
        return Err(Failure::Usage {
            message: "no client was named".to_owned(),
            hint: format!("name one or more of {}, or give --all", words()),
        });
    }
    let work = Work { cx, mode: mode(cx, args.dry_run, args.yes)?, places: &places, scope: &scope };
    let mut outcomes = Vec::new();
    for client in clients {
        outcomes.push(match client {
            Client::Hermes => work.unregister_hermes(&args.name)?,
            _ => work.unregister(client, &args.name)?,
        });
    }
    finish(cx, &outcomes)
}

fn words() -> String {
    let all = [&Client::FOREIGN[..], &[Client::Hermes]].concat();
    all.into_iter().map(Client::word).collect::<Vec<_>>().join(", ")
}

fn refuse(error: impl ToString) -> Failure {
    Failure::refused(error.to_string())
}

struct Work<'a> {
    cx: &'a Context,
    mode: Mode,
    places: &'a Places,
    scope: &'a Scope,
}

impl Work<'_> {
    fn file(&self, client: Client) -> Result<PathBuf, Outcome> {
        client.file(self.scope, self.places).ok_or_else(|| {
            let error = format!("{} keeps no servers in projects", client.title());
            Outcome::failed(client, Path::new(""), "", &error)
        })
    }

    fn register(&self, client: Client, args: &RegisterArgs, shim: &Shim) -> Result<Outcome, Failure> {
        let file = match self.file(client) {
            Ok(file) => file,
            Err(outcome) => return Ok(outcome),
        };
        let name = &args.name;
        let failed = |error: &dyn std::fmt::Display| Outcome::failed(client, &file, name, &error.to_string());
        let (seen, doc) = match open(client, &file) {
            Ok(opened) => opened,
            Err(error) => return Ok(failed(&error)),
        };
        let owned = self.also_in_hermesd(client, &seen);
        let mut remove = Vec::new();
        if args.replace {
            remove.clone_from(&owned);
        }
        let records = record::all(&self.cx.home).map_err(refuse)?;
        let old = records.iter().find(|record| record.file == file && record.name == *name);
        let entry = shim.entry(client);
        let planned = |remove: &[String]| register::plan(&doc, old, name, &entry, remove, &resolve);
        let mut plan = match planned(&remove) {
            Ok(plan) => plan,
            Err(error) => return Ok(failed(&error)),
        };
        if !owned.is_empty() && !args.replace && self.mode == Mode::Ask {
            say(self.cx, &format!("{}\n", title(client, &file)))?;
            let question = format!("  hermesd runs {} too. Take them out of this file?", list(&owned));
            if ask::yes(&question, Default::No)? {
                remove.clone_from(&owned);
                plan = match planned(&remove) {
                    Ok(plan) => plan,
                    Err(error) => return Ok(failed(&error)),
                };
            }
        }
        let Plan::Write { base, after, updates } = plan else {
            let Plan::Already(there) = plan else { unreachable!("a plan writes or finds the entry") };
            let also_in_hermesd = owned;
            return Ok(Outcome { also_in_hermesd, ..Outcome::of(client, &file, &there, "already") });
        };
        self.preview(client, &file, name, shim, &remove, updates)?;
        let replaced: Vec<String> =
            remove.iter().cloned().chain(old.map_or(Vec::new(), |record| record.replaced.clone())).collect();
        let also_in_hermesd: Vec<String> =
            owned.into_iter().filter(|server| !remove.contains(server)).collect();
        let outcome = |action| Outcome {
            replaced: remove.clone(),
            also_in_hermesd: also_in_hermesd.clone(),
            ..Outcome::of(client, &file, name, action)
        };
        if !self.go_on("  write it?")? {
            return Ok(outcome(if self.mode == Mode::Dry { "would_write" } else { "declined" }));
        }
        let lock = Lock::take(&self.cx.home).map_err(refuse)?;
        let beside = match apply::write(&lock, &self.cx.home, &seen, client.word(), &after.bytes()) {
            Ok(beside) => beside,
            Err(error) => return Ok(failed(&error)),
        };
        let record = Record {
            client: client.word().to_owned(),
            file: file.clone(),
            name: name.clone(),
            created: old.map_or(seen.bytes.is_none(), |record| record.created),
            folders: old.map_or(beside.folders, |record| record.folders.clone()),
            replaced,
            cut: register::cut(&base, &after),
        };
        record::put(&lock, &self.cx.home, &record).map_err(refuse)?;
        let note = Some(client.after_change().to_owned());
        Ok(Outcome { backup: beside.backup, note, ..outcome("written") })
    }

    fn unregister(&self, client: Client, name: &str) -> Result<Outcome, Failure> {
        let file = match self.file(client) {
            Ok(file) => file,
            Err(outcome) => return Ok(outcome),
        };
        let failed = |error: &dyn std::fmt::Display| Outcome::failed(client, &file, name, &error.to_string());
        let (seen, doc) = match open(client, &file) {
            Ok(opened) => opened,
            Err(error) => return Ok(failed(&error)),
        };
        let records = record::all(&self.cx.home).map_err(refuse)?;
        let old = records.iter().find(|record| record.file == file && record.name == name);
        let undo = match register::undo(&doc, old, name, &resolve) {
            Ok(undo) => undo,
            Err(error) => return Ok(failed(&error)),
        };
        let (left, exact) = match undo {
            Undo::Exact(left) => (left, true),
            Undo::TakenOut(left) => (left, false),
            Undo::Nothing => {
                if old.is_some() && self.mode != Mode::Dry {
                    let lock = Lock::take(&self.cx.home).map_err(refuse)?;
                    record::forget(&lock, &self.cx.home, &file, name).map_err(refuse)?;
                }
                return Ok(Outcome::of(client, &file, name, "nothing"));
            }
        };
        let delete = exact && left.bytes().is_empty() && old.is_some_and(|record| record.created);
        say(self.cx, &format!("{}\n  - {}\n", title(client, &file), text::plain(name)))?;
        let back = old.map_or(Vec::new(), |record| record.replaced.clone());
        let note = match (exact, delete) {
            (true, true) => "the file was made by hermesctl and is removed".to_owned(),
            (true, false) if !back.is_empty() => format!("{} come back", list(&back)),
            (true, false) => "the file is again as it was before".to_owned(),
            (false, _) if !back.is_empty() => {
                format!("the file changed since; {} do not come back, a copy is kept", list(&back))
            }
            (false, _) => "the file changed since; only this entry is taken out".to_owned(),
        };
        say(self.cx, &format!("  {note}\n"))?;
        if !self.go_on("  do it?")? {
            let action = if self.mode == Mode::Dry { "would_remove" } else { "declined" };
            return Ok(Outcome { note: Some(note), ..Outcome::of(client, &file, name, action) });
        }
        let lock = Lock::take(&self.cx.home).map_err(refuse)?;
        let done = match delete {
            true => apply::delete(&lock, &self.cx.home, &seen, client.word(), &old.map_or(Vec::new(), |r| r.folders.clone())),
            false => apply::write(&lock, &self.cx.home, &seen, client.word(), &left.bytes()),
        };
        match done {
            Ok(beside) => {
                record::forget(&lock, &self.cx.home, &file, name).map_err(refuse)?;
                Ok(Outcome { backup: beside.backup, note: Some(note), ..Outcome::of(client, &file, name, "removed") })
            }
            Err(error) => Ok(failed(&error)),
        }
    }

    fn go_on(&self, question: &str) -> Result<bool, Failure> {
        match self.mode {
            Mode::Dry => Ok(false),
            Mode::Write => Ok(true),
            Mode::Ask => ask::yes(question, Default::Yes),
        }
    }

    /// Shows what will be written; nothing of other entries, which may hold secrets.
    fn preview(
        &self,
        client: Client,
        file: &Path,
        name: &str,
        shim: &Shim,
        gone: &[String],
        updates: bool,
    ) -> Result<(), Failure> {
        let mut out = format!("{}\n", title(client, file));
        for gone in gone {
            out.push_str(&format!("  - {} (hermesd runs it)\n", text::plain(gone)));
        }
        let sign = if updates { "~" } else { "+" };
        let line = format!("{} {}", shim.program.display(), shim.args().join(" "));
        out.push_str(&format!("  {sign} {}: {}\n", text::plain(name), text::plain(&line)));
        say(self.cx, &out)
    }

    /// Names in the client's file of servers that hermesd runs too.
    fn also_in_hermesd(&self, client: Client, seen: &Seen) -> Vec<String> {
        let (Ok(owned), Some(bytes)) = (home::read(&self.cx.home), seen.bytes.as_deref()) else {
            return Vec::new();
        };
        let lookup = |name: &str| owned.variable(name);
        let running: Vec<_> =
            owned.running().filter_map(|(_, entry)| Some(fingerprint(entry, &lookup)?.what)).collect();
        let source = Source { client, file: seen.path.clone(), scope: self.scope.clone() };
        let cx = Surroundings { user: &self.places.user, resolve: &resolve, read: &|_| None };
        let found = import::read(&source, bytes, &cx).unwrap_or_default();
        let of_file = found.into_iter().filter(|candidate| candidate.is_listed);
        of_file
            .filter_map(|candidate| {
                let what = fingerprint(&candidate.found.ok()?.entry, &lookup)?.what;
                running.contains(&what).then_some(candidate.name)
            })
            .collect()
    }
}

fn open(client: Client, file: &Path) -> Result<(Seen, Doc), String> {
    let seen = apply::look(file).map_err(|error| error.to_string())?;
    let bytes = seen.bytes.as_deref().unwrap_or_default();
    let doc = Doc::parse(bytes, client.format(), &[client.key()])
        .map_err(|error| format!("{}: {error}; nothing was written", file.display()))?;
    Ok((seen, doc))
}

fn title(client: Client, file: &Path) -> String {
    text::plain(&format!("{}: {}", client.title(), file.display()))
}

fn list(names: &[String]) -> String {
    names.iter().map(|name| format!("`{}`", text::plain(name))).collect::<Vec<_>>().join(", ")
}

fn say(cx: &Context, words: &str) -> Result<(), Failure> {
    match cx.format {
        Format::Text => put(words),
        Format::Json => Ok(()),
    }
}

fn finish(cx: &Context, outcomes: &[Outcome]) -> Result<Done, Failure> {
    cx.print(|| json!(outcomes), || outcomes.iter().map(line).collect())?;
    let failed = outcomes.iter().any(|outcome| outcome.action == "failed");
    Ok(if failed { Done::Badly } else { Done::Well })
}

fn line(outcome: &Outcome) -> String {
    let what = match outcome.action {
        "written" => "registered".to_owned(),
        "would_write" => "would be registered; nothing was written".to_owned(),
        "already" => format!("is registered already, as `{}`", outcome.name),
        "removed" => "unregistered".to_owned(),
        "would_remove" => "would be unregistered; nothing was written".to_owned(),
        "nothing" => "has no entry of hermesd".to_owned(),
        "declined" => "left as it is".to_owned(),
        _ => format!("failed: {}", outcome.error.as_deref().unwrap_or_default()),
    };
    let mut out = format!("{}: {}\n", outcome.client, text::plain(&what));
    if let Some(backup) = &outcome.backup {
        out.push_str(&format!("  copy of the file before: {}\n", text::plain(&backup.display().to_string())));
    }
    if outcome.action == "written" && let Some(note) = &outcome.note {
        out.push_str(&format!("  next: {note}\n"));
    }
    if !outcome.also_in_hermesd.is_empty() && outcome.action != "declined" {
        let names = list(&outcome.also_in_hermesd);
        out.push_str(&format!(
            "  {names}: hermesd runs these too; `hermesctl mcp register {} --replace` takes them out of the file\n",
            outcome.client
        ));
    }
    out
}

/// The path of hermesctl that a client should start: the one on PATH if it is this program, because that one stays
/// when a package manager puts a new version elsewhere.
fn stable_program() -> Result<PathBuf, Failure> {
    let own = beside::own_exe()?;
    let real = fs::canonicalize(&own).unwrap_or_else(|_| own.clone());
    let name = own.file_name().unwrap_or_default().to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(&name))
        .find(|path| fs::canonicalize(path).is_ok_and(|path| path == real));
    Ok(found.unwrap_or(own))
}

/// Why the path may not last.
fn unstable(program: &Path) -> Option<String> {
    let parts: Vec<_> = program.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    let built = parts.windows(2).any(|pair| pair[0] == "target" && (pair[1] == "debug" || pair[1] == "release"));
    built.then(|| {
        format!(
            "{} is in the build folder of cargo and goes with it; install hermesctl, then register again",
            program.display()
        )
    })
}

/// The entry as JSON, for Hermes Agent.
fn entry_of(shim: &Shim) -> Value {
    shim.entry(Client::Hermes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_in_a_build_folder_is_warned_about() {
        assert!(unstable(Path::new("/home/u/hermesd/target/debug/hermesctl")).is_some());
        assert!(unstable(Path::new("/home/u/.local/bin/hermesctl")).is_none());
        assert!(unstable(Path::new("/home/target/bin/hermesctl")).is_none());
    }
}
