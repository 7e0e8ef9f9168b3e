//! `mcp import`: servers of MCP clients become entries of config.yaml.
//!
//! Promise: everything is shown before anything is written, no secret is ever shown; files of clients are only read.
//! Files of a project are read only when the project or the file was named: whoever wrote them chose what would run.

use super::ask::{self, Default};
use super::register::{places, resolve};
use super::{Context, Format, put};
use crate::cli_clients::ImportArgs;
use crate::clients::home::{Owned, written};
use crate::clients::import::{self, Item, Source, Surroundings, Verdict};
use crate::clients::{Client, Places, Scope, apply, home};
use crate::config_edit::dotenv::{self, Variable};
use crate::config_edit::file::Privacy;
use crate::config_edit::{FileError, Lock, Step, file, servers};
use crate::failure::{Done, Failure};
use crate::render::text;
use clap::ValueEnum;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Reads, shows, asks, writes.
pub(super) fn run(cx: &Context, args: &ImportArgs) -> Result<Done, Failure> {
    let places = places()?;
    let may_ask = cx.format == Format::Text && ask::can_ask();
    if !args.yes && !args.dry_run && !may_ask {
        return Err(Failure::Usage {
            message: "nobody can be asked here".to_owned(),
            hint: "add --yes to write, or --dry-run to look only".to_owned(),
        });
    }
    let owned = home::read(&cx.home).map_err(refuse)?;
    let sources = sources(args, &places)?;
    let (candidates, read, troubles) = candidates(args, &sources, &places);
    if read.is_empty() && troubles.is_empty() {
        return Err(Failure::Refused {
            message: "no file of an MCP client was found".to_owned(),
            hint: "name one: `hermesctl mcp import FILE`".to_owned(),
        });
    }
    let word = |candidate: &import::Candidate| {
        let of = read.iter().find(|(client, _)| candidate.from.starts_with(client.title()));
        of.map_or("imported", |(client, _)| client.word()).to_owned()
    };
    let lookup = |name: &str| owned.variable(name);
    let mut items = import::plan(candidates, &owned.servers, &lookup, args.conflicts, &word);
    if let Some(unknown) = args.servers.iter().find(|name| !items.iter().any(|item| item.name == **name)) {
        let all: Vec<&str> = items.iter().map(|item| item.name.as_str()).collect();
        return Err(Failure::Usage {
            message: format!("no server `{unknown}` was found"),
            hint: format!("there are: {}", all.join(", ")),
        });
    }
    items.retain(|item| args.servers.is_empty() || args.servers.contains(&item.name));
    if cx.format == Format::Text {
        put(&preview(&items, &read))?;
    }
    for trouble in &troubles {
        say(cx, &format!("not read: {}\n", text::plain(trouble)))?;
    }
    let adds = items.iter().filter(|item| name_of(item).is_some()).count();
    let secrets =
        items.iter().filter(|item| name_of(item).is_some()).map(|item| item.secrets.len()).sum::<usize>();
    let ends = if troubles.is_empty() { Done::Well } else { Done::Badly };
    if adds == 0 || args.dry_run {
        say(cx, if adds == 0 { "nothing to take over\n" } else { "nothing was written\n" })?;
        report(cx, &items, &troubles, "none", 0)?;
        return Ok(ends);
    }
    let to_env = args.secrets_to_env
        || (secrets > 0
            && !args.keep_secrets
            && !args.yes
            && may_ask
            && ask::yes(&format!("move {secrets} secret(s) into .env, for your eyes only?"), Default::Yes)?);
    if !args.yes && !ask::yes(&format!("write {adds} server(s) to config.yaml?"), Default::Yes)? {
        say(cx, "nothing was written\n")?;
        return Ok(ends);
    }
    let lines = if to_env { import::move_secrets(&mut items, &owned.dotenv) } else { Vec::new() };
    // Secrets as text are for their owner's eyes, whoever could read the file before.
    let privacy = if !to_env && secrets > 0 { Privacy::Private } else { Privacy::Kept };
    write(cx, &items, &lines, &owned, privacy)?;
    say(cx, &format!("{adds} server(s) taken over, {} secret(s) moved into .env\n", lines.len()))?;
    if !to_env && secrets > 0 {
        say(
            cx,
            "secrets stand in config.yaml as text, which only you can read now; `--secrets-to-env` would have moved them\n",
        )?;
    }
    say(cx, "next: `hermesctl mcp test NAME`, and `hermesctl mcp register CLIENT` to use them there\n")?;
    report(cx, &items, &troubles, "written", lines.len())?;
    Ok(ends)
}

fn refuse(error: impl ToString) -> Failure {
    Failure::refused(error.to_string())
}

fn say(cx: &Context, words: &str) -> Result<(), Failure> {
    match cx.format {
        Format::Text => put(words),
        Format::Json => Ok(()),
    }
}

/// The name under which an item is written.
fn name_of(item: &Item) -> Option<&String> {
    match &item.verdict {
        Verdict::Add(name) | Verdict::Replace(name) => Some(name),
        Verdict::Same(_) | Verdict::Conflict | Verdict::Own | Verdict::Unusable(_) => None,
    }
}

/// A source, and whether it was named: then it has to be there.
struct Named {
    source: Option<Source>,
    file: PathBuf,
    required: bool,
}

fn sources(args: &ImportArgs, places: &Places) -> Result<Vec<Named>, Failure> {
    let mut clients = Vec::new();
    let mut named = Vec::new();
    for word in &args.sources {
        match Client::from_str(word, true) {
            Ok(Client::Hermes) => {
                return Err(Failure::refused(
                    "hermesd reads the servers of Hermes Agent as they are: nothing to import",
                ));
            }
            Ok(client) => clients.push(client),
            Err(_) if Path::new(word).exists() || word.contains(['/', '.']) => {
                let file = std::path::absolute(word)?;
                named.push(Named { source: None, file, required: true });
            }
            Err(_) => {
                let known: Vec<&str> = Client::FOREIGN.into_iter().map(Client::word).collect();
                return Err(Failure::Usage {
                    message: format!("`{word}` is neither a client nor a file"),
                    hint: format!("clients are {}", known.join(", ")),
                });
            }
        }
    }
    let every = args.sources.is_empty();
    let clients = if every { Client::FOREIGN.to_vec() } else { clients };
    let project = args.project.as_deref().map(fs::canonicalize).transpose()?;
    for client in clients {
        let mut add = |scope: Scope, required: bool| {
            if let Some(file) = client.file(&scope, places) {
                let source = Some(Source { client, file: file.clone(), scope });
                named.push(Named { source, file, required });
            }
        };
        add(Scope::User, !every && project.is_none());
        if let Some(dir) = &project {
            add(Scope::Project(dir.clone()), false);
        }
    }
    Ok(named)
}

type Read = Vec<(Client, PathBuf)>;

/// Everything that was found, the files that were read, and those that could not be.
fn candidates(
    args: &ImportArgs,
    sources: &[Named],
    places: &Places,
) -> (Vec<import::Candidate>, Read, Vec<String>) {
    let (mut all, mut read, mut troubles) = (Vec::new(), Vec::new(), Vec::new());
    let variables = |path: &Path| fs::read_to_string(path).ok();
    let cx = Surroundings { user: &places.user, resolve: &resolve, read: &variables };
    for Named { source, file, required } in sources {
        let bytes = match apply::look(file).map(|seen| seen.bytes) {
            Ok(Some(bytes)) => bytes,
            Ok(None) if *required => {
                troubles.push(format!("{}: there is no such file", file.display()));
                continue;
            }
            Ok(None) => continue,
            Err(error) => {
                troubles.push(error.to_string());
                continue;
            }
        };
        let guessed = || {
            let (client, scope) = import::guess(file, &bytes)?;
            // A project that was named is where the file's servers run.
            let scope = args
                .project
                .as_deref()
                .and_then(|dir| fs::canonicalize(dir).ok())
                .map_or(scope, Scope::Project);
            Some(Source { client, file: file.clone(), scope })
        };
        let Some(source) = source.clone().or_else(guessed) else {
            troubles.push(match serde_shape(&bytes) {
                Some(error) => format!("{}: {error}", file.display()),
                None => format!("{}: no list of MCP servers that hermesctl knows is in it", file.display()),
            });
            continue;
        };
        match import::read(&source, &bytes, &cx) {
            Ok(found) => {
                read.push((source.client, file.clone()));
                all.extend(found);
            }
            Err(error) => troubles.push(format!("{}: {error}", file.display())),
        }
    }
    (all, read, troubles)
}

/// Why a file of unknown shape cannot be read at all.
fn serde_shape(bytes: &[u8]) -> Option<String> {
    use crate::clients::{doc::Doc, table::Format as Shape};
    Doc::parse(bytes, Shape::Json, &[]).err().map(|error| error.to_string())
}

fn preview(items: &[Item], read: &Read) -> String {
    let mut out = String::new();
    for (client, file) in read {
        out.push_str(&text::plain(&format!("{}: {}", client.title(), file.display())));
        out.push('\n');
    }
    for item in items {
        let sentence = match &item.verdict {
            Verdict::Add(name) if *name == item.name => format!("+ {name}: {}", target(item)),
            Verdict::Add(name) => format!("+ {name} (there `{}`): {}", item.name, target(item)),
            Verdict::Replace(name) => {
                format!("~ {name}: {} (in place of the entry in config.yaml)", target(item))
            }
            Verdict::Same(name) => format!("= {}: the same server as `{name}`", item.name),
            Verdict::Conflict => {
                format!("! {}: another server has this name; see --conflicts rename|replace", item.name)
            }
            Verdict::Own => format!("= {}: this is hermesd itself", item.name),
            Verdict::Unusable(why) => format!("! {}: {why}", item.name),
        };
        out.push_str(&format!("  {}  [{}]\n", text::plain(&sentence), text::plain(&item.from)));
        if name_of(item).is_none() {
            continue;
        }
        for secret in &item.secrets {
            out.push_str(&format!("      secret in {}\n", text::plain(&secret.place)));
        }
        for need in &item.needs {
            let what = if need.what.is_empty() { String::new() } else { format!(" ({})", need.what) };
            out.push_str(&format!("      set {} in .env{}\n", text::plain(&need.name), text::plain(&what)));
        }
        for note in &item.notes {
            out.push_str(&format!("      {}\n", text::plain(note)));
        }
    }
    out
}

/// What is started or reached. Of arguments only plain words are shown: what looks like a setting, an address or a
/// sentence may hold a secret that nobody recognised.
fn target(item: &Item) -> String {
    let (shown, _) = crate::clients::secret::as_templates(&item.name, &item.entry);
    let text = |key: &str| shown.get(key).and_then(Value::as_str).map(str::to_owned);
    let args = shown.get("args").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    match (text("url"), text("command")) {
        (Some(url), _) => url,
        (None, command) => {
            let plain = |arg: &str| arg.len() <= 80 && !arg.contains(['=', ':', ' ', '{', '?']);
            let args = args.map(|arg| if plain(arg) { arg.to_owned() } else { "…".to_owned() });
            let words: Vec<String> = command.into_iter().chain(args).collect();
            text::summary(&words.join(" "), 80)
        }
    }
}

fn write(
    cx: &Context,
    items: &[Item],
    lines: &[(String, String)],
    seen: &Owned,
    privacy: Privacy,
) -> Result<(), Failure> {
    let lock = Lock::take(&cx.home).map_err(refuse)?;
    let config = cx.home.path().join("config.yaml");
    // Before the first file: what was shown must still be so for both.
    if file::read_tree(&config).map_err(refuse)? != seen.tree {
        return Err(refuse(WriteError::Changed));
    }
    if !lines.is_empty() {
        let now = fs::read_to_string(cx.home.path().join(".env")).unwrap_or_default();
        if dotenv::names(&now).iter().any(|name| lines.iter().any(|(new, _)| new == name)) {
            return Err(refuse(WriteError::Changed));
        }
        let variables: Vec<Variable> =
            lines.iter().map(|(name, value)| Variable { name: name.clone(), value: value.clone() }).collect();
        dotenv::write(&lock, &cx.home.path().join(".env"), &variables).map_err(refuse)?;
    }
    file::edit_as::<WriteError>(&lock, &config, privacy, |tree| {
        if *tree != seen.tree {
            return Err(WriteError::Changed);
        }
        let entries = items.iter().filter_map(|item| Some((name_of(item)?, item)));
        Ok(entries
            .map(|(name, item)| {
                let place = servers::find(tree, name)
                    .map_or_else(|| servers::place_of_new(tree, name), |old| old.path);
                Step::Set(place, written(&Value::Object(item.entry.clone())))
            })
            .collect())
    })
    .map_err(refuse)?;
    Ok(())
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("config.yaml or .env changed in the meantime; nothing was written, run the command again")]
    Changed,
}

fn report(
    cx: &Context,
    items: &[Item],
    troubles: &[String],
    action: &str,
    moved: usize,
) -> Result<(), Failure> {
    if cx.format == Format::Text {
        return Ok(());
    }
    let one = |item: &Item| {
        let (verdict, name, why) = match &item.verdict {
            Verdict::Add(name) => ("add", Some(name), None),
            Verdict::Replace(name) => ("replace", Some(name), None),
            Verdict::Same(name) => ("same", Some(name), None),
            Verdict::Conflict => ("conflict", None, None),
            Verdict::Own => ("own", None, None),
            Verdict::Unusable(why) => ("unusable", None, Some(why)),
        };
        json!({
            "name": item.name, "from": item.from, "verdict": verdict, "as": name, "why": why,
            "secrets": item.secrets.iter().map(|secret| &secret.place).collect::<Vec<_>>(),
            "needs": item.needs.iter().map(|need| &need.name).collect::<Vec<_>>(),
            "notes": item.notes,
        })
    };
    let servers: Vec<Value> = items.iter().map(one).collect();
    let all = json!({"action": action, "servers": servers, "not_read": troubles, "secrets_moved": moved});
    put(&format!("{all:#}\n"))
}
