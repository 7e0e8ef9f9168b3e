//! What `--help` says: every word of a command line is explained, and the pages are as they were.

use super::Cli;
use crate::testing::golden;
use clap::{Command, CommandFactory};

/// Every command below `command` with the words that lead to it.
fn all(command: &Command, words: &str, found: &mut Vec<(String, Command)>) {
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        let words = format!("{words} {}", below.get_name());
        found.push((words.clone(), below.clone()));
        all(below, &words, found);
    }
}

#[test]
fn every_command_and_every_argument_is_explained() {
    let mut found = Vec::new();
    let mut top = Cli::command();
    top.build();
    all(&top, "hermesctl", &mut found);
    assert!(found.len() > 30, "{}", found.len());
    for (words, command) in found {
        assert!(command.get_about().is_some(), "{words} has no word of what it does");
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            assert!(argument.get_help().is_some(), "{words}: {} is not explained", argument.get_id());
        }
    }
}

#[test]
fn no_two_words_of_a_command_line_collide() {
    Cli::command().debug_assert();
}

/// Pages of the commands that look and act; `mcp` and `service` have tests of their own.
#[test]
fn the_pages_of_help_are_as_they_were() {
    let mut top = Cli::command().term_width(100);
    top.build();
    let pages = [
        "status",
        "servers",
        "tools",
        "call",
        "bench",
        "logs",
        "audit",
        "events",
        "stats",
        "top",
        "pins",
        "approvals",
        "breaker",
        "reload",
        "doctor",
        "daemon",
    ];
    for name in pages {
        let page = top.find_subcommand_mut(name).expect("a command").render_long_help().to_string();
        golden(&format!("help/{name}.txt"), &page);
    }
}
