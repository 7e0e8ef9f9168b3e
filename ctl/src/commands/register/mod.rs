//! `mcp register` and `mcp unregister`: hermesd's shim in the files of MCP clients.
//!
//! Promise: what will be written is shown first, and on a terminal asked about; without one `--yes` is needed. One
//! client that fails does not keep the others from being done; the exit code says so.

use super::ask::{self, Default};
use super::{Context, Format, put};
use crate::beside;
use crate::cli_clients::{RegisterArgs, UnregisterArgs};
use crate::clients::apply::{self, ApplyError, Seen};
use crate::clients::doc::Doc;
use crate::clients::identity::fingerprint;
use crate::clients::import::{self, Source, Surroundings};
use crate::clients::record::{self, Record};
use crate::clients::register::{self, Change, Plan, Shim, Undo};
use crate::clients::{Client, Places, Scope, home};
use crate::config_edit::Lock;
use crate::failure::{Done, Failure};
use crate::render::text;
use clap::ValueEnum;
use serde_json::Value;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

mod hermes;
mod outcome;

use outcome::{Outcome, finish, list};

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
        Some(dir) => Scope::Project(
            fs::canonicalize(dir).map_err(|error| Failure::refused(format!("{}: {error}", dir.display())))?,
        ),
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
        // Nobody is left to tell when stderr is closed.
        let _ = writeln!(io::stderr(), "warning: {}", text::plain(&warning));
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
    if args.clients.is_empty() && !args.all {
        return Err(Failure::Usage {
            message: "no client was named".to_owned(),
            hint: format!("name one or more of {}, or give --all", words()),
        });
    }
    let mut wanted: Vec<(Client, Scope, String)> =
        args.clients.iter().map(|client| (*client, scope.clone(), args.name.clone())).collect();
    if args.all {
        let records = record::all(&cx.home).map_err(refuse)?;
        wanted.extend(records.into_iter().filter_map(|record| recorded(&record, &places)));
    }
    wanted.sort();
    wanted.dedup();
    let mode = mode(cx, args.dry_run, args.yes)?;
    let mut outcomes = Vec::new();
    for (client, scope, name) in wanted {
        let work = Work { cx, mode, places: &places, scope: &scope };
        outcomes.push(match client {
            Client::Hermes => work.unregister_hermes(&name)?,
            _ => work.unregister(client, &name)?,
        });
    }
    finish(cx, &outcomes)
}

/// What a record is about; `None` where the client's file is elsewhere by now.
fn recorded(record: &Record, places: &Places) -> Option<(Client, Scope, String)> {
    let client = Client::from_str(&record.client, false).ok()?;
    let user = client == Client::Hermes || client.file(&Scope::User, places).as_ref() == Some(&record.file);
    let scope = match user {
        true => Scope::User,
        false => Scope::Project(client.project_of(&record.file)?),
    };
    Some((client, scope, record.name.clone()))
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
    /// The client's file, with what is in it; the outcome where that is the end.
    fn open(&self, client: Client, name: &str) -> Result<Opened, Box<Outcome>> {
        let Some(file) = client.file(self.scope, self.places) else {
            let error = format!("{} keeps no servers in projects", client.title());
            return Err(Box::new(Outcome::failed(client, Path::new(""), name, &error)));
        };
        let failed = |error: String| Box::new(Outcome::failed(client, &file, name, &error));
        let seen = apply::look(&file).map_err(|error| failed(error.to_string()))?;
        let bytes = seen.bytes.as_deref().unwrap_or_default();
        let doc = Doc::parse(bytes, client.format(), &[client.key()])
            .map_err(|error| failed(format!("{}: {error}; nothing was written", file.display())))?;
        let records = record::all(&self.cx.home).map_err(|error| failed(error.to_string()))?;
        let old = records.into_iter().find(|record| record.file == file && record.name == name);
        Ok(Opened { client, name: name.to_owned(), seen, doc, old })
    }

    fn register(&self, client: Client, args: &RegisterArgs, shim: &Shim) -> Result<Outcome, Failure> {
        let open = match self.open(client, &args.name) {
            Ok(open) => open,
            Err(outcome) => return Ok(*outcome),
        };
        let owned = self.also_in_hermesd(client, &open.seen);
        let wants_out = args.replace || self.asks_to_replace(&open, &owned)?;
        let remove = if wants_out { owned.clone() } else { Vec::new() };
        let entry = shim.entry(client);
        let plan = register::plan(&open.doc, open.old.as_ref(), &open.name, &entry, &remove, &resolve);
        let also_in_hermesd: Vec<String> =
            owned.into_iter().filter(|server| !remove.contains(server)).collect();
        let change = match plan {
            Ok(Plan::Write(change)) => change,
            Ok(Plan::Already(name)) => {
                return Ok(Outcome { also_in_hermesd, name, ..open.outcome("already") });
            }
            Err(error) => return Ok(open.failed(&error)),
        };
        self.preview(&open, shim, &remove, change.updates)?;
        let outcome = |action| Outcome {
            replaced: remove.clone(),
            also_in_hermesd: also_in_hermesd.clone(),
            ..open.outcome(action)
        };
        if !self.go_on("  write it?")? {
            return Ok(outcome(if self.mode == Mode::Dry { "would_write" } else { "declined" }));
        }
        match self.write(&open, &change, &remove)? {
            Ok(backup) => {
                let note = Some(client.after_change().to_owned());
                Ok(Outcome { backup, note, ..outcome("written") })
            }
            Err(error) => Ok(open.failed(&error)),
        }
    }

    /// Offers to take servers out of the file that hermesd runs too.
    fn asks_to_replace(&self, open: &Opened, owned: &[String]) -> Result<bool, Failure> {
        if owned.is_empty() || self.mode != Mode::Ask {
            return Ok(false);
        }
        say(self.cx, &format!("{}\n", open.title()))?;
        ask::yes(&format!("  hermesd runs {} too. Take them out of this file?", list(owned)), Default::No)
    }

    fn write(
        &self,
        open: &Opened,
        change: &Change,
        remove: &[String],
    ) -> Result<Result<Option<PathBuf>, ApplyError>, Failure> {
        let Opened { client, name, seen, old, .. } = open;
        let home = &self.cx.home;
        let lock = Lock::take(home).map_err(refuse)?;
        let beside = match apply::write(&lock, home, seen, client.word(), &change.after.bytes()) {
            Ok(beside) => beside,
            Err(error) => return Ok(Err(error)),
        };
        let before = old.as_ref();
        let replaced = before.map_or(&[][..], |record| &record.replaced);
        let record = Record {
            client: client.word().to_owned(),
            file: seen.path.clone(),
            name: name.clone(),
            created: before.map_or(seen.bytes.is_none(), |record| record.created),
            folders: before.map_or(beside.folders, |record| record.folders.clone()),
            replaced: remove.iter().chain(replaced).cloned().collect(),
            cut: change.cut(),
        };
        record::put(&lock, home, &record).map_err(refuse)?;
        Ok(Ok(beside.backup))
    }

    fn unregister(&self, client: Client, name: &str) -> Result<Outcome, Failure> {
        let open = match self.open(client, name) {
            Ok(open) => open,
            Err(outcome) => return Ok(*outcome),
        };
        let home = &self.cx.home;
        let (left, is_exact) = match register::undo(&open.doc, open.old.as_ref(), name, &resolve) {
            Ok(Undo::Exact(left)) => (left, true),
            Ok(Undo::TakenOut(left)) => (left, false),
            Ok(Undo::Nothing) => {
                self.forget(&open)?;
                return Ok(open.outcome("nothing"));
            }
            Err(error) => return Ok(open.failed(&error)),
        };
        let folders = open.old.as_ref().filter(|record| record.created).map(|record| &record.folders);
        let folders = folders.filter(|_| is_exact && left.bytes().is_empty());
        let note = undo_note(is_exact, folders.is_some(), open.old.as_ref());
        say(self.cx, &format!("{}\n  - {}\n  {note}\n", open.title(), text::plain(name)))?;
        if !self.go_on("  do it?")? {
            let action = if self.mode == Mode::Dry { "would_remove" } else { "declined" };
            return Ok(Outcome { note: Some(note), ..open.outcome(action) });
        }
        let lock = Lock::take(home).map_err(refuse)?;
        let done = match folders {
            Some(folders) => apply::delete(&lock, home, &open.seen, client.word(), folders),
            None => apply::write(&lock, home, &open.seen, client.word(), &left.bytes()),
        };
        match done {
            Ok(beside) => {
                record::forget(&lock, home, &open.seen.path, name).map_err(refuse)?;
                Ok(Outcome { backup: beside.backup, note: Some(note), ..open.outcome("removed") })
            }
            Err(error) => Ok(open.failed(&error)),
        }
    }

    /// Drops a record whose entry somebody else took out.
    fn forget(&self, open: &Opened) -> Result<(), Failure> {
        if open.old.is_none() || self.mode == Mode::Dry {
            return Ok(());
        }
        let lock = Lock::take(&self.cx.home).map_err(refuse)?;
        record::forget(&lock, &self.cx.home, &open.seen.path, &open.name).map_err(refuse)
    }

    fn go_on(&self, question: &str) -> Result<bool, Failure> {
        match self.mode {
            Mode::Dry => Ok(false),
            Mode::Write => Ok(true),
            Mode::Ask => ask::yes(question, Default::Yes),
        }
    }

    /// Shows what will be written; nothing of other entries, which may hold secrets.
    fn preview(&self, open: &Opened, shim: &Shim, gone: &[String], updates: bool) -> Result<(), Failure> {
        let mut out = format!("{}\n", open.title());
        for gone in gone {
            out.push_str(&format!("  - {} (hermesd runs it)\n", text::plain(gone)));
        }
        let sign = if updates { "~" } else { "+" };
        let line = format!("{} {}", shim.program.display(), shim.args().join(" "));
        out.push_str(&format!("  {sign} {}: {}\n", text::plain(&open.name), text::plain(&line)));
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

/// One client's file, looked at.
struct Opened {
    client: Client,
    name: String,
    seen: Seen,
    doc: Doc,
    old: Option<Record>,
}

impl Opened {
    fn title(&self) -> String {
        title(self.client, &self.seen.path)
    }

    fn outcome(&self, action: &'static str) -> Outcome {
        Outcome::of(self.client, &self.seen.path, &self.name, action)
    }

    fn failed(&self, error: &impl ToString) -> Outcome {
        Outcome::failed(self.client, &self.seen.path, &self.name, error)
    }
}

/// What taking the entry out means for the rest of the file.
fn undo_note(is_exact: bool, goes: bool, old: Option<&Record>) -> String {
    let back = old.map_or(&[][..], |record| &record.replaced);
    match (is_exact, goes, back.is_empty()) {
        (true, true, _) => "the file was made by hermesctl and is removed".to_owned(),
        (true, false, false) => format!("{} come back", list(back)),
        (true, false, true) => "all that was written into it is taken back".to_owned(),
        (false, _, false) => {
            format!("the file changed since; {} do not come back, a copy is kept", list(back))
        }
        (false, _, true) => "the file changed since; only this entry is taken out".to_owned(),
    }
}

fn title(client: Client, file: &Path) -> String {
    text::plain(&format!("{}: {}", client.title(), file.display()))
}

fn say(cx: &Context, words: &str) -> Result<(), Failure> {
    match cx.format {
        Format::Text => put(words),
        Format::Json => Ok(()),
    }
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
    let parts: Vec<_> =
        program.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    let built =
        parts.windows(2).any(|pair| pair[0] == "target" && (pair[1] == "debug" || pair[1] == "release"));
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
