//! `mcp enable` and `mcp disable`: one word of an entry.

use super::ask::{self, Default};
use super::config_file;
use super::settle::settle;
use crate::commands::Context;
use crate::config_edit::{Lock, Node, Step, Value, Written, file, servers};
use crate::failure::{Done, Failure};
use crate::render::text;
use serde_json::json;

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum Switch {
    /// `enabled: true`.
    On,
    /// `enabled: false`.
    Off,
}

/// Switches a server on or off.
pub(in crate::commands) async fn switch(cx: &Context, name: &str, to: Switch) -> Result<Done, Failure> {
    let written = write(cx, name, to)?;
    let settled = settle(cx, name).await?;
    let state = if to == Switch::On { "enabled" } else { "disabled" };
    cx.print(
        || json!({"name": name, "enabled": to == Switch::On, "changed": written.changed(), "reload": settled.json()}),
        || {
            let already = if written.changed() { "" } else { "already " };
            format!("{} is {already}{state}\n{}", text::plain(name), settled.text(name))
        },
    )?;
    Ok(settled.done())
}

/// After a test that went well: a disabled server may be wanted.
pub(in crate::commands) async fn offer_enable(cx: &Context, name: &str) -> Result<(), Failure> {
    let tree = super::tree(cx)?;
    let disabled = servers::find(&tree, name).is_some_and(|entry| !entry.is_enabled());
    if disabled
        && ask::is_possible(cx)
        && ask::confirm(&format!("{name} is disabled. Enable it?"), Default::No)?
    {
        switch(cx, name, Switch::On).await?;
    }
    Ok(())
}

fn write(cx: &Context, name: &str, to: Switch) -> Result<Written, Failure> {
    let lock = Lock::take(&cx.home)?;
    file::edit::<Failure>(&lock, &config_file(cx), |tree| {
        let Some(entry) = servers::find(tree, name) else { return Err(unknown(tree, name)) };
        // A server that says nothing is enabled.
        if entry.is_enabled() == (to == Switch::On) {
            return Ok(Vec::new());
        }
        Ok(vec![Step::Set(entry.path.join("enabled"), Value::Bool(to == Switch::On))])
    })
}

/// There is no such server; names those that there are.
pub(super) fn unknown(tree: &Node, name: &str) -> Failure {
    let names: Vec<&str> = servers::all(tree).iter().map(|entry| entry.name).collect();
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Failure::Refused {
        message: format!("no server `{name}` in config.yaml"),
        hint: format!("configured are: {known}"),
    }
}
