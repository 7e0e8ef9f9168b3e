//! `mcp register hermes`: the servers of Hermes Agent move to hermesd, and one entry stays in their place.

use super::{Outcome, Work, entry_of, list, refuse, resolve, say, title};
use crate::clients::apply::{self, Seen};
use crate::clients::record::{self, Cut, Record};
use crate::clients::register::Shim;
use crate::clients::{Client, home};
use crate::config_edit::edit::apply as edited;
use crate::config_edit::{Lock, Node, Step, tree};
use crate::failure::Failure;
use std::path::{Path, PathBuf};

const CLIENT: Client = Client::Hermes;

/// config.yaml as it was looked at.
struct Opened {
    seen: Seen,
    text: String,
    tree: Node,
}

impl Work<'_> {
    fn open_config(&self) -> Result<Opened, String> {
        let path = self.config();
        let seen = apply::look(&path).map_err(|error| error.to_string())?;
        let text = String::from_utf8(seen.bytes.clone().unwrap_or_default())
            .map_err(|_| format!("{}: it is not valid UTF-8", path.display()))?;
        let tree = tree::parse(&text)
            .map_err(|error| format!("{}: {error}; nothing was written", path.display()))?;
        Ok(Opened { seen, text, tree })
    }

    fn config(&self) -> PathBuf {
        self.cx.home.path().join("config.yaml")
    }

    pub(super) fn register_hermes(&self, name: &str, shim: &Shim) -> Result<Outcome, Failure> {
        let file = self.config();
        let failed = |error: &dyn std::fmt::Display| Outcome::failed(CLIENT, &file, name, &error.to_string());
        let Opened { seen, text, tree } = match self.open_config() {
            Ok(opened) => opened,
            Err(error) => return Ok(failed(&error)),
        };
        let (steps, moved) = match home::take_over(&tree, name, &entry_of(shim), &resolve) {
            Ok(planned) => planned,
            Err(error) => return Ok(failed(&error)),
        };
        if steps.is_empty() {
            return Ok(Outcome::of(CLIENT, &file, name, "already"));
        }
        let after = match edited(&text, &steps) {
            Ok(after) => after,
            Err(error) => return Ok(failed(&error)),
        };
        say(self.cx, &format!("{}\n", title(CLIENT, &file)))?;
        for moved in &moved {
            let line = format!(
                "  > {moved}: from `mcp_servers` to `hermesd.mcp_servers`, where only hermesd starts it\n"
            );
            say(self.cx, &crate::render::text::block(&line))?;
        }
        self.preview_line(name, shim)?;
        let outcome =
            |action| Outcome { replaced: moved.clone(), ..Outcome::of(CLIENT, &file, name, action) };
        if !self.go_on("  write it?")? {
            return Ok(outcome(self.not_done("would_write")));
        }
        let records = record::all(&self.cx.home).map_err(refuse)?;
        let old = records.iter().find(|record| record.file == file && record.name == name);
        let before = old.and_then(|record| record.cut.undo(&text)).unwrap_or_else(|| text.clone());
        let mut replaced = old.map_or(Vec::new(), |record| record.replaced.clone());
        replaced.extend(moved.iter().cloned());
        let lock = Lock::take(&self.cx.home).map_err(refuse)?;
        let beside = match apply::write(&lock, &self.cx.home, &seen, CLIENT.word(), after.as_bytes()) {
            Ok(beside) => beside,
            Err(error) => return Ok(failed(&error)),
        };
        let record = Record {
            client: CLIENT.word().to_owned(),
            file: file.clone(),
            name: name.to_owned(),
            created: old.map_or(seen.bytes.is_none(), |record| record.created),
            folders: Vec::new(),
            replaced,
            cut: Cut::between(&before, &after),
        };
        record::put(&lock, &self.cx.home, &record).map_err(refuse)?;
        let note = Some(CLIENT.after_change().to_owned());
        Ok(Outcome { backup: beside.backup, note, ..outcome("written") })
    }

    pub(super) fn unregister_hermes(&self, name: &str) -> Result<Outcome, Failure> {
        let file = self.config();
        let failed = |error: &dyn std::fmt::Display| Outcome::failed(CLIENT, &file, name, &error.to_string());
        let Opened { seen, text, tree } = match self.open_config() {
            Ok(opened) => opened,
            Err(error) => return Ok(failed(&error)),
        };
        let records = record::all(&self.cx.home).map_err(refuse)?;
        let old = records.iter().find(|record| record.file == file && record.name == name);
        let steps = home::give_back(&tree, name, old.map(|record| record.replaced.as_slice()), &resolve);
        if steps.is_empty() || !has_entry(&tree, name) {
            if old.is_some() && self.mode != super::Mode::Dry {
                let lock = Lock::take(&self.cx.home).map_err(refuse)?;
                record::forget(&lock, &self.cx.home, &file, name).map_err(refuse)?;
            }
            return Ok(Outcome::of(CLIENT, &file, name, "nothing"));
        }
        let exact =
            old.and_then(|record| record.cut.undo(&text)).filter(|before| same_servers(before, &tree, name));
        let left = match exact.clone().map_or_else(|| edited(&text, &steps), Ok) {
            Ok(left) => left,
            Err(error) => return Ok(failed(&error)),
        };
        let note = match (&exact, old) {
            (Some(_), _) => "all that was written into it is taken back".to_owned(),
            (None, Some(record)) => format!("the file changed since; {} move back", list(&record.replaced)),
            (None, None) => "the servers below `hermesd.mcp_servers` move back to `mcp_servers`".to_owned(),
        };
        say(
            self.cx,
            &format!("{}\n  - {}\n  {note}\n", title(CLIENT, &file), crate::render::text::plain(name)),
        )?;
        if !self.go_on("  do it?")? {
            let action = self.not_done("would_remove");
            return Ok(Outcome { note: Some(note), ..Outcome::of(CLIENT, &file, name, action) });
        }
        let lock = Lock::take(&self.cx.home).map_err(refuse)?;
        let delete = left.is_empty() && old.is_some_and(|record| record.created);
        let done = match delete {
            true => apply::delete(&lock, &self.cx.home, &seen, CLIENT.word(), &[]),
            false => apply::write(&lock, &self.cx.home, &seen, CLIENT.word(), left.as_bytes()),
        };
        match done {
            Ok(beside) => {
                record::forget(&lock, &self.cx.home, &file, name).map_err(refuse)?;
                Ok(Outcome {
                    backup: beside.backup,
                    note: Some(note),
                    ..Outcome::of(CLIENT, &file, name, "removed")
                })
            }
            Err(error) => Ok(failed(&error)),
        }
    }

    fn not_done(&self, dry: &'static str) -> &'static str {
        if self.mode == super::Mode::Dry { dry } else { "declined" }
    }

    fn preview_line(&self, name: &str, shim: &Shim) -> Result<(), Failure> {
        let line = format!("  + {name}: {} {}", shim.program.display(), shim.args().join(" "));
        say(self.cx, &format!("{}\n", crate::render::text::plain(&line)))
    }
}

fn has_entry(tree: &Node, name: &str) -> bool {
    let entry = tree.get("mcp_servers").and_then(|servers| servers.get(name));
    entry.is_some_and(|node| {
        crate::clients::identity::is_own_entry(&home::json(node), &|path: &Path| resolve(path))
    })
}

/// Whether the text of before holds exactly the servers of now, in whichever section, but for our entry.
fn same_servers(before: &str, now: &Node, name: &str) -> bool {
    let Ok(before) = tree::parse(before) else { return false };
    let of = |tree: &Node| {
        let all = crate::config_edit::servers::all(tree).into_iter();
        let mut all: Vec<(String, Node)> = all
            .filter(|entry| entry.name != name)
            .map(|entry| (entry.name.to_owned(), entry.node.clone()))
            .collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all
    };
    let rest = |tree: &Node| {
        let steps = ["mcp_servers", "hermesd"].map(|key| Step::Remove(crate::config_edit::Path::of([key])));
        steps.iter().fold(tree.clone(), |tree, step| crate::config_edit::edit::intended(&tree, step))
    };
    of(&before) == of(now) && rest(&before).means(&rest(now))
}
