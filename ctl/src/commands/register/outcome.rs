//! What a register or unregister command did with one client, for people and for programs.

use crate::clients::Client;
use crate::commands::Context;
use crate::failure::{Done, Failure};
use crate::render::text;
use serde_json::json;
use std::path::{Path, PathBuf};

/// What happened to one client.
#[derive(Debug, serde::Serialize)]
pub(super) struct Outcome {
    pub(super) client: &'static str,
    pub(super) file: PathBuf,
    /// `written`, `would_write`, `already`, `removed`, `would_remove`, `nothing`, `declined`, `failed`.
    pub(super) action: &'static str,
    /// Name of the entry.
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) backup: Option<PathBuf>,
    /// Servers in the file that hermesd runs too.
    pub(super) also_in_hermesd: Vec<String>,
    /// Servers that were taken out of the file, or moved.
    pub(super) replaced: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

impl Outcome {
    pub(super) fn of(client: Client, file: &Path, name: &str, action: &'static str) -> Self {
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

    pub(super) fn failed(client: Client, file: &Path, name: &str, error: &impl ToString) -> Self {
        Self { error: Some(error.to_string()), ..Self::of(client, file, name, "failed") }
    }
}

/// Prints all of them.
pub(super) fn finish(cx: &Context, outcomes: &[Outcome]) -> Result<Done, Failure> {
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
    if outcome.action == "written"
        && let Some(note) = &outcome.note
    {
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

/// Names in backquotes.
pub(super) fn list(names: &[String]) -> String {
    names.iter().map(|name| format!("`{}`", text::plain(name))).collect::<Vec<_>>().join(", ")
}
