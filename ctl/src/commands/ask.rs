//! Yes or no, asked on a terminal.

use super::put;
use crate::failure::Failure;
use std::io::{self, BufRead, IsTerminal};

/// Whether a person can be asked.
pub(super) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Asks until the answer is one; an empty line means `default`, the end of input means no.
pub(super) fn yes(question: &str, default: Default) -> Result<bool, Failure> {
    let choice = match default {
        Default::Yes => "[Y/n]",
        Default::No => "[y/N]",
    };
    loop {
        put(&format!("{question} {choice} "))?;
        let mut line = String::new();
        if io::stdin().lock().read_line(&mut line)? == 0 {
            return Ok(false);
        }
        match line.trim().to_ascii_lowercase().as_str() {
            "" => return Ok(default == Default::Yes),
            "y" | "yes" => return Ok(true),
            "n" | "no" => return Ok(false),
            _ => {}
        }
    }
}

/// What an empty line means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Default {
    /// Yes.
    Yes,
    /// No.
    No,
}
