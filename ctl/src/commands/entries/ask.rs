//! Questions to the person at the terminal.
//!
//! Promise: nothing is asked where no terminal is; secrets are not echoed; texts of servers cannot act
//! on the terminal; Esc and Ctrl-C end the command and say that nothing was written.

use super::Context;
use crate::commands::Format;
use crate::failure::Failure;
use crate::render::text;
use hermes_proto::control as pb;
use inquire::{Confirm, InquireError, MultiSelect, Password, PasswordDisplayMode, Select};
use std::io::{self, BufRead, IsTerminal, Read};

/// Longest secret that is read, in bytes.
const LONGEST: u64 = 64 << 10;
/// Longest line of a checklist, in characters, besides the name.
const SUMMARY: usize = 60;

/// Whether a person can be asked.
pub(super) fn is_possible(cx: &Context) -> bool {
    cx.format == Format::Text && io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// A question with yes and no; Enter takes `default`.
pub(super) fn confirm(question: &str, default: Default) -> Result<bool, Failure> {
    let question = text::plain(question);
    answered(Confirm::new(&question).with_default(default == Default::Yes).prompt())
}

/// What Enter means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Default {
    Yes,
    No,
}

/// One of several; the index.
pub(super) fn choose(question: &str, choices: &[&str]) -> Result<usize, Failure> {
    answered(Select::new(question, choices.to_vec()).without_filtering().raw_prompt())
        .map(|chosen| chosen.index)
}

/// A checklist of tools, searched by typing; the names that are ticked.
pub(super) fn tick(tools: &[pb::Tool], ticked: impl Fn(&str) -> bool) -> Result<Vec<String>, Failure> {
    let rows: Vec<String> = tools.iter().map(row).collect();
    let before: Vec<usize> =
        tools.iter().enumerate().filter(|(_, tool)| ticked(&tool.raw_name)).map(|(at, _)| at).collect();
    let picked = MultiSelect::new("Which tools may clients see?", rows)
        .with_default(&before)
        .with_help_message("space ticks, right all, left none, type to search, enter takes them")
        .with_page_size(12)
        .with_formatter(&|picked| format!("{} of {}", picked.len(), tools.len()))
        .raw_prompt();
    Ok(answered(picked)?.iter().map(|row| tools[row.index].raw_name.clone()).collect())
}

fn row(tool: &pb::Tool) -> String {
    let warning = if tool.warnings.is_empty() { "" } else { "[!] " };
    let about = text::summary(&tool.description, SUMMARY);
    format!("{warning}{}  {about}", text::plain(&tool.raw_name))
}

/// A secret, typed without echo; from stdin where that is no terminal.
pub(super) fn secret(cx: &Context, what: &str) -> Result<String, Failure> {
    let typed = if is_possible(cx) {
        answered(
            Password::new(what)
                .with_display_mode(PasswordDisplayMode::Hidden)
                .without_confirmation()
                .prompt(),
        )?
    } else {
        let mut line = String::new();
        io::stdin().lock().take(LONGEST).read_line(&mut line)?;
        line
    };
    let secret = typed.trim().to_owned();
    if secret.is_empty() {
        return Err(Failure::Usage {
            message: format!("no {what}: stdin is empty"),
            hint: "type it at a terminal, or pipe one line for each secret into the command".to_owned(),
        });
    }
    Ok(secret)
}

fn answered<T>(answer: Result<T, InquireError>) -> Result<T, Failure> {
    answer.map_err(|error| match error {
        InquireError::OperationCanceled | InquireError::OperationInterrupted => {
            Failure::refused("cancelled; nothing was written")
        }
        other => Failure::refused(format!("the terminal cannot be used: {other}")),
    })
}
