//! `mcp remove`: an entry, its login, and a word about what is left.

use super::ask::{self, Default};
use super::change::unknown;
use super::settle::settle;
use super::{config_file, env_file, tree};
use crate::cli_mcp::RemoveArgs;
use crate::commands::Context;
use crate::config_edit::{Lock, Node, Step, dotenv, file, servers};
use crate::failure::{Done, Failure};
use crate::render::text;
use serde_json::json;

/// Removes a server.
pub(in crate::commands) async fn remove(cx: &Context, args: &RemoveArgs) -> Result<Done, Failure> {
    let before = tree(cx)?;
    let name = args.name.as_str();
    let Some(entry) = servers::find(&before, name) else { return Err(unknown(&before, name)) };
    let question = format!("Remove {name} ({})?", text::summary(&entry.target(), 60));
    if !args.yes && ask::is_possible(cx) && !ask::confirm(&question, Default::Yes)? {
        return Err(Failure::refused("nothing was written"));
    }
    let plan = |tree: &Node| -> Result<Vec<Step>, Failure> {
        let places = servers::places(tree, name);
        if places.is_empty() {
            Err(unknown(tree, name))
        } else {
            Ok(places.into_iter().map(Step::Remove).collect())
        }
    };
    // A login is not ended for an entry that cannot be taken out.
    file::try_edit(&config_file(cx), plan)?;
    // While the server is still configured: afterwards nobody knows where to revoke.
    let login = if entry.wants_login() { end_login(cx, name).await } else { Login::None };
    {
        let lock = Lock::take(&cx.home)?;
        file::edit(&lock, &config_file(cx), plan)?;
    }
    let settled = settle(cx, name).await?;
    let left = left_variables(cx, &servers::variables(entry.node))?;
    cx.print(
        || json!({"name": name, "removed": true, "login": login.word(), "variables_left": left, "reload": settled.json()}),
        || {
            let mut out = format!("removed {}\n{}{}", text::plain(name), login.text(), settled.text(name));
            if !left.is_empty() {
                let file = env_file(cx);
                out.push_str(&format!("still in {}, used by no other server: {}\n", file.display(), left.join(", ")));
            }
            out
        },
    )?;
    Ok(settled.done())
}

/// What became of the login.
enum Login {
    None,
    Revoked,
    Removed,
    Left(String),
}

impl Login {
    fn word(&self) -> &str {
        match self {
            Self::None => "none",
            Self::Revoked => "revoked",
            Self::Removed => "removed",
            Self::Left(_) => "left",
        }
    }

    fn text(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Revoked => "its login is revoked\n".to_owned(),
            Self::Removed => "its login is removed here; the server was not told\n".to_owned(),
            Self::Left(why) => format!("its login could not be ended: {}\n", text::plain(why)),
        }
    }
}

async fn end_login(cx: &Context, name: &str) -> Login {
    match cx.client().await {
        Ok(mut client) => match client.logout(name).await {
            Ok(ended) if !ended.had_login => Login::None,
            Ok(ended) if ended.revoked => Login::Revoked,
            Ok(_) => Login::Removed,
            Err(failure) => Login::Left(failure.to_string()),
        },
        Err(Failure::Unreachable { .. }) => remove_files(cx, name),
        Err(failure) => Login::Left(failure.to_string()),
    }
}

/// Takes the files away as the reference names them.
fn remove_files(cx: &Context, name: &str) -> Login {
    let safe: String =
        name.chars().map(|c| if c.is_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect();
    let safe: String = safe.trim_matches('_').chars().take(128).collect();
    let safe = if safe.is_empty() { "default".to_owned() } else { safe };
    let dir = cx.home.path().join("mcp-tokens");
    let mut found = false;
    for suffix in ["json", "client.json", "meta.json"] {
        match std::fs::remove_file(dir.join(format!("{safe}.{suffix}"))) {
            Ok(()) => found = true,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Login::Left(error.to_string()),
        }
    }
    if found { Login::Removed } else { Login::None }
}

/// Variables of `.env` that only the removed entry referred to.
fn left_variables(cx: &Context, used: &[String]) -> Result<Vec<String>, Failure> {
    let others = servers::variables(&tree(cx)?);
    let text = std::fs::read_to_string(env_file(cx)).unwrap_or_default();
    let there = dotenv::names(&text);
    Ok(used.iter().filter(|name| there.contains(&name.as_str()) && !others.contains(name)).cloned().collect())
}
