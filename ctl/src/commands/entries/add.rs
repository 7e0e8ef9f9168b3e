//! `mcp add`: connects first, shows what the server offers, then writes it.
//!
//! Promise: nothing is written before the server answered or the person (or --save-disabled) said so;
//! `.env` is written before config.yaml, so that no reader finds a reference to nothing.

use super::ask::{self, Default};
use super::draft::Draft;
use super::settle::{Settled, settle};
use super::{config_file, env_file, tree};
use crate::cli::LoginArgs;
use crate::cli_mcp::{AddArgs, Auth, Tools};
use crate::commands::{Context, Format, daemon, login, mcp, put};
use crate::config_edit::{FileError, Lock, Step, Value, dotenv, file, servers};
use crate::failure::{Done, Failure};
use crate::render::text;
use hermes_proto::control as pb;
use serde_json::json;

/// Adds a server.
pub(in crate::commands) async fn add(cx: &Context, args: AddArgs) -> Result<Done, Failure> {
    let overwrite = may_write(cx, &args)?;
    let seen: Vec<String> = env_names(cx);
    // What only the entry refers to that is replaced goes with it.
    let own = own_variables(cx, &args.name)?;
    let taken = seen.iter().filter(|name| !own.contains(name)).cloned().collect();
    let mut draft = Draft::of(&args, taken, &mut |what| ask::secret(cx, what))?;
    draft.seen = seen;
    if args.auth == Some(Auth::Oauth) {
        return with_login(cx, &args, &mut draft, overwrite).await;
    }
    let tested = discover(cx, &mut draft).await?;
    if draft.entry.iter().any(|(key, _)| key == "auth") {
        return with_login(cx, &args, &mut draft, overwrite).await;
    }
    if tested.ok {
        let tools = tools(cx, &args, &tested)?;
        set_tools(&mut draft, &tools);
        return finish(cx, &draft, overwrite, &tested).await;
    }
    if cx.format == Format::Text {
        put(&mcp::page(cx, &draft.name, &tested))?;
    }
    let keep =
        args.save_disabled || ask::is_possible(cx) && ask::confirm("Save it anyway, disabled?", Default::No)?;
    if !keep {
        return Err(Failure::Refused {
            message: format!("{} does not work: {}; nothing was written", draft.name, tested.message),
            hint: hint(&draft, &tested),
        });
    }
    draft.put("enabled", Value::Bool(false));
    finish(cx, &draft, overwrite, &tested).await
}

fn env_names(cx: &Context) -> Vec<String> {
    let text = std::fs::read_to_string(env_file(cx)).unwrap_or_default();
    dotenv::names(&text).into_iter().map(str::to_owned).collect()
}

/// Variables that the entry of this name refers to and no other does.
fn own_variables(cx: &Context, name: &str) -> Result<Vec<String>, Failure> {
    let tree = tree(cx)?;
    let Some(entry) = servers::find(&tree, name) else { return Ok(Vec::new()) };
    let mut own = servers::variables(entry.node);
    let others: Vec<String> = servers::all(&tree)
        .into_iter()
        .filter(|other| other.name != name)
        .flat_map(|other| servers::variables(other.node))
        .collect();
    own.retain(|variable| !others.contains(variable));
    Ok(own)
}

fn hint(draft: &Draft, tested: &pb::TestServerResponse) -> String {
    let is_remote = draft.entry.iter().any(|(key, _)| key == "url");
    if tested.needs_auth && is_remote {
        return "it wants to know who you are: --auth oauth (login in the browser) or --auth header (token)"
            .to_owned();
    }
    "mend what it says above, or keep it with --save-disabled".to_owned()
}

/// Whether an entry of this name may be replaced; asks where there is one.
fn may_write(cx: &Context, args: &AddArgs) -> Result<Overwrite, Failure> {
    let there = servers::find(&tree(cx)?, &args.name).is_some();
    if !there || args.overwrite {
        return Ok(if args.overwrite { Overwrite::Yes } else { Overwrite::No });
    }
    let question = format!("There is a server `{}` already. Replace it?", args.name);
    if ask::is_possible(cx) && ask::confirm(&question, Default::No)? {
        return Ok(Overwrite::Yes);
    }
    Err(exists(&args.name))
}

fn exists(name: &str) -> Failure {
    Failure::Refused {
        message: format!("there is a server `{name}` already; nothing was written"),
        hint: "take another name, or replace it with --overwrite".to_owned(),
    }
}

/// Whether an entry of the same name is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overwrite {
    Yes,
    No,
}

/// Tries the entry in the daemon. Where the server wants a login or a token, a person may give one and
/// it is tried again; a login is left for after the entry is written.
async fn discover(cx: &Context, draft: &mut Draft) -> Result<pb::TestServerResponse, Failure> {
    loop {
        if cx.format == Format::Text {
            put(&format!("connecting to {} ...\n", text::plain(&draft.name)))?;
        }
        // The connection is not kept while a person thinks: nobody would answer its pings.
        let tested = daemon::ensure(cx)
            .await?
            .try_server(&draft.name, &draft.value().block(), &draft.variables)
            .await?;
        let is_remote = draft.entry.iter().any(|(key, _)| key == "url");
        if !tested.needs_auth || !is_remote || !ask::is_possible(cx) {
            return Ok(tested);
        }
        put(&format!("{} wants to know who you are\n", text::plain(&draft.name)))?;
        match ask::choose("How?", &["login in the browser (OAuth)", "a token", "not now"])? {
            0 => {
                draft.put("auth", Value::text("oauth"));
                return Ok(tested);
            }
            1 => draft.set_token(&ask::secret(cx, "token")?),
            _ => return Ok(tested),
        }
    }
}

/// Which tools clients will see.
fn tools(cx: &Context, args: &AddArgs, tested: &pb::TestServerResponse) -> Result<Tools, Failure> {
    if cx.format == Format::Text {
        put(&offer(&args.name, tested))?;
    }
    if let Some(tools) = &args.tools {
        known(tools, tested)?;
        return Ok(tools.clone());
    }
    if tested.tools.is_empty() || !ask::is_possible(cx) {
        return Ok(Tools::All);
    }
    let all = format!("all {}, and those it may get later", tested.tools.len());
    match ask::choose("Which tools may clients see?", &[&all, "let me choose", "none"])? {
        0 => Ok(Tools::All),
        1 => {
            let names = ask::tick(&tested.tools, |_| true)?;
            Ok(if names.is_empty() { Tools::None } else { Tools::Only(names) })
        }
        _ => Ok(Tools::None),
    }
}

/// What a server offers, with what the injection scan says beside each tool.
pub(super) fn offer(name: &str, tested: &pb::TestServerResponse) -> String {
    let mut out = format!("{} offers {} tools\n", text::plain(name), tested.tools.len());
    for tool in &tested.tools {
        let about = text::summary(&tool.description, 70);
        out.push_str(&format!("  {:<28} {about}\n", text::plain(&tool.raw_name)));
        for warning in &tool.warnings {
            out.push_str(&format!("    warning: {}\n", text::plain(warning)));
        }
    }
    for warning in &tested.warnings {
        out.push_str(&format!("  warning: {}\n", text::plain(warning)));
    }
    out
}

/// # Errors
/// Names that the server does not offer.
pub(super) fn known(tools: &Tools, tested: &pb::TestServerResponse) -> Result<(), Failure> {
    let Tools::Only(names) = tools else { return Ok(()) };
    let unknown: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| !tested.tools.iter().any(|tool| tool.raw_name == *name))
        .collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let offered: Vec<&str> = tested.tools.iter().map(|tool| tool.raw_name.as_str()).collect();
    Err(Failure::Refused {
        message: format!("the server has no tool `{}`; nothing was written", unknown.join("`, `")),
        hint: format!("it has: {}", offered.join(", ")),
    })
}

fn set_tools(draft: &mut Draft, tools: &Tools) {
    let include = match tools {
        Tools::All => return,
        Tools::None => Vec::new(),
        Tools::Only(names) => names.clone(),
    };
    draft.put("tools", Value::Map(vec![("include".to_owned(), Value::texts(include))]));
}

/// Saves first, because the login belongs to a server of the file; then logs in.
async fn with_login(
    cx: &Context,
    args: &AddArgs,
    draft: &mut Draft,
    overwrite: Overwrite,
) -> Result<Done, Failure> {
    if let Some(tools) = &args.tools {
        set_tools(draft, tools);
    }
    drop(daemon::ensure(cx).await?);
    write(cx, draft, overwrite)?;
    let settled = settle(cx, &draft.name).await?;
    if settled.done() == Done::Badly {
        return Err(Failure::refused(settled.text(&draft.name)));
    }
    let login = LoginArgs { name: draft.name.clone(), no_browser: false, paste: false, redirect_url: None };
    let done = login::login(cx, &login).await.map_err(|failure| Failure::Refused {
        message: format!("{} is saved, but: {failure}", draft.name),
        hint: format!("try again with `hermesctl mcp login {}`", draft.name),
    })?;
    if args.tools.is_none() && done == Done::Well && ask::is_possible(cx) {
        return super::configure::after_login(cx, &draft.name).await;
    }
    Ok(done)
}

async fn finish(
    cx: &Context,
    draft: &Draft,
    overwrite: Overwrite,
    tested: &pb::TestServerResponse,
) -> Result<Done, Failure> {
    write(cx, draft, overwrite)?;
    let settled = settle(cx, &draft.name).await?;
    let variables: Vec<&str> = draft.variables.iter().map(|variable| variable.name.as_str()).collect();
    cx.print(
        || {
            let tools: Vec<&str> = tested.tools.iter().map(|tool| tool.raw_name.as_str()).collect();
            json!({
                "name": draft.name, "saved": true, "works": tested.ok, "message": tested.message,
                "file": config_file(cx).display().to_string(), "variables": variables, "tools": tools,
                "reload": settled.json(),
            })
        },
        || saved(cx, draft, &variables, &settled),
    )?;
    Ok(settled.done())
}

fn saved(cx: &Context, draft: &Draft, variables: &[&str], settled: &Settled) -> String {
    let disabled = draft.entry.iter().any(|(key, value)| key == "enabled" && *value == Value::Bool(false));
    let state = if disabled { " (disabled)" } else { "" };
    let mut out = format!("saved {}{state} in {}\n", text::plain(&draft.name), config_file(cx).display());
    if !variables.is_empty() {
        let file = env_file(cx);
        out.push_str(&format!("its secrets are in {} as {}\n", file.display(), variables.join(", ")));
    }
    out.push_str(&settled.text(&draft.name));
    out
}

/// Secrets, then the entry, under one lock.
fn write(cx: &Context, draft: &Draft, overwrite: Overwrite) -> Result<(), Failure> {
    let lock = Lock::take(&cx.home)?;
    if overwrite == Overwrite::No && servers::find(&file::read_tree(&config_file(cx))?, &draft.name).is_some()
    {
        return Err(exists(&draft.name));
    }
    let now = env_names(cx);
    let is_new = |name: &String| now.contains(name) && !draft.seen.contains(name);
    if draft.variables.iter().any(|variable| is_new(&variable.name)) {
        return Err(Failure::refused(
            ".env changed in the meantime; nothing was written, run the command again",
        ));
    }
    if !draft.variables.is_empty() {
        dotenv::write(&lock, &env_file(cx), &draft.variables)?;
    }
    file::edit::<FileError>(&lock, &config_file(cx), |tree| {
        let place = servers::find(tree, &draft.name)
            .map_or_else(|| servers::place_of_new(tree, &draft.name), |entry| entry.path);
        Ok(vec![Step::Set(place, draft.value())])
    })?;
    Ok(())
}
