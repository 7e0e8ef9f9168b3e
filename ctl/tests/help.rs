//! The help of the verbs that write config.yaml, as a stranger reads it at 100 columns.
//!
//! `HERMES_BLESS=1` writes the files anew; read them before they are committed.

#![allow(clippy::unwrap_used, missing_docs)] // a test may fail loudly

use clap::CommandFactory;
use hermesctl::cli::Cli;
use std::fs;
use std::path::Path;

fn help(words: &[&str]) -> String {
    let mut command = Cli::command().term_width(100);
    command.build();
    let mut found = &mut command;
    for word in words {
        found = found.find_subcommand_mut(word).unwrap();
    }
    let text = found.clone().term_width(100).render_long_help().to_string();
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[test]
fn help_reads_as_it_was_approved() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/help");
    for verb in ["", "add", "remove", "configure", "list"] {
        let words: Vec<&str> = ["mcp", verb].into_iter().filter(|word| !word.is_empty()).collect();
        let file = dir.join(format!("{}.txt", words.join("_")));
        let now = help(&words);
        if std::env::var_os("HERMES_BLESS").is_some() {
            fs::create_dir_all(&dir).unwrap();
            fs::write(&file, &now).unwrap();
        }
        assert_eq!(now, fs::read_to_string(&file).unwrap_or_default(), "{}", file.display());
    }
}
