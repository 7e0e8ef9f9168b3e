//! `mcp configure`: which tools of a server clients see.

use super::add::{known, offer};
use super::ask;
use super::settle::settle;
use super::{config_file, tree};
use crate::cli_mcp::{ConfigureArgs, Tools};
use crate::commands::{Context, Format, daemon, mcp, put};
use crate::config_edit::{Lock, Node, Path, Step, Value, file, servers};
use crate::failure::{Done, Failure};
use crate::render::text;
use hermes_proto::control as pb;
use serde_json::json;

/// Chooses tools anew.
pub(in crate::commands) async fn configure(cx: &Context, args: &ConfigureArgs) -> Result<Done, Failure> {
    if args.tools.is_none() && !ask::is_possible(cx) {
        return Err(Failure::Usage {
            message: "there is no terminal to ask at".to_owned(),
            hint: "say it with --tools all, --tools none or --tools a,b".to_owned(),
        });
    }
    let before = entry(cx, &args.name)?;
    let tested = daemon::ensure(cx).await?.test(&args.name).await?;
    if !tested.ok {
        if cx.format == Format::Text {
            put(&mcp::page(cx, &args.name, &tested))?;
        }
        return Err(Failure::Refused {
            message: format!("{} does not work, so its tools are not known: {}", args.name, tested.message),
            hint: "nothing was written".to_owned(),
        });
    }
    let tools = match &args.tools {
        Some(tools) => {
            known(tools, &tested)?;
            tools.clone()
        }
        None => chosen(&args.name, &before, &tested)?,
    };
    write(cx, &args.name, &tools).await
}

/// The choice that follows a login which `mcp add` began.
pub(super) async fn after_login(cx: &Context, name: &str) -> Result<Done, Failure> {
    let before = entry(cx, name)?;
    let tested = daemon::ensure(cx).await?.test(name).await?;
    if !tested.ok || tested.tools.is_empty() {
        return Ok(if tested.ok { Done::Well } else { Done::Badly });
    }
    let tools = chosen(name, &before, &tested)?;
    if tools == Tools::All { Ok(Done::Well) } else { write(cx, name, &tools).await }
}

fn entry(cx: &Context, name: &str) -> Result<Node, Failure> {
    let tree = tree(cx)?;
    servers::find(&tree, name)
        .map(|entry| entry.node.clone())
        .ok_or_else(|| super::change::unknown(&tree, name))
}

/// The checklist, with today's filter ticked.
fn chosen(name: &str, entry: &Node, tested: &pb::TestServerResponse) -> Result<Tools, Failure> {
    put(&offer(name, tested))?;
    let list = |key: &str| entry.get("tools").and_then(|tools| tools.get(key)).filter(|node| !node.is_null());
    let (include, exclude) = (list("include").map(Node::texts), list("exclude").map(Node::texts));
    let ticked = |tool: &str| match (&include, &exclude) {
        (Some(names), _) => names.contains(&tool),
        (None, Some(names)) => !names.contains(&tool),
        (None, None) => true,
    };
    let names = ask::tick(&tested.tools, ticked)?;
    Ok(match names.len() {
        0 => Tools::None,
        all if all == tested.tools.len() => Tools::All,
        _ => Tools::Only(names),
    })
}

async fn write(cx: &Context, name: &str, tools: &Tools) -> Result<Done, Failure> {
    let written = {
        let lock = Lock::take(&cx.home)?;
        file::edit::<Failure>(&lock, &config_file(cx), |tree| {
            let Some(entry) = servers::find(tree, name) else {
                return Err(super::change::unknown(tree, name));
            };
            Ok(steps(&entry.path, entry.node, tools))
        })?
    };
    let settled = settle(cx, name).await?;
    let word = match tools {
        Tools::All => "all tools".to_owned(),
        Tools::None => "no tool".to_owned(),
        Tools::Only(names) => format!("{} tools", names.len()),
    };
    cx.print(
        || json!({"name": name, "changed": written.changed(), "reload": settled.json()}),
        || format!("clients see {word} of {}\n{}", text::plain(name), settled.text(name)),
    )?;
    Ok(settled.done())
}

/// `include` replaces whatever filter there was; other keys of `tools` stay.
fn steps(entry: &Path, node: &Node, tools: &Tools) -> Vec<Step> {
    let at = entry.join("tools");
    let others = node.get("tools").map_or(&[][..], Node::entries);
    let others = others.iter().any(|(key, _)| key != "include" && key != "exclude");
    let names = match tools {
        Tools::All if !others => return vec![Step::Remove(at)],
        Tools::All => return vec![Step::Remove(at.join("include")), Step::Remove(at.join("exclude"))],
        Tools::None => Vec::new(),
        Tools::Only(names) => names.clone(),
    };
    vec![Step::Set(at.join("include"), Value::texts(names)), Step::Remove(at.join("exclude"))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_edit::{edit, tree};

    #[test]
    fn the_filter_is_replaced_and_other_keys_of_tools_stay() {
        let after = |text: &str, tools: &Tools| {
            let tree = tree::parse(text).unwrap();
            let entry = servers::find(&tree, "a").unwrap();
            edit::apply(text, &steps(&entry.path, entry.node, tools)).unwrap()
        };
        let text = "mcp_servers:\n  a:\n    tools: # mine\n      exclude: [x]\n      prompts: false # no\n";
        assert_eq!(
            after(text, &Tools::All),
            "mcp_servers:\n  a:\n    tools: # mine\n      prompts: false # no\n"
        );
        assert!(after(text, &Tools::None).contains("include: []"));
        let only = "mcp_servers:\n  a:\n    command: c\n    tools:\n      include: [x]\n";
        assert_eq!(after(only, &Tools::All), "mcp_servers:\n  a:\n    command: c\n");
        let two = Tools::Only(vec!["x".into(), "no".into()]);
        assert!(after(only, &two).contains("include: [x, \"no\"]"));
    }
}
