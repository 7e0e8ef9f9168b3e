//! Entries of config.yaml are changed in place, with and without a daemon, by several at once.

use crate::world;
use hermes_tests::{Ran, Script, World};
use hermesctl::config_edit::dotenv::{Variable, set};
use proptest::prelude::*;
use std::fs;

const TEXT: &str = "# head\r\nmcp_servers:\r\n  a: # first\r\n    command: x\r\n    enabled: true # for now\r\n  b: {url: 'http://user:pass@localhost:1/mcp?key=k'}\r\n# tail\r\n";

fn config(w: &World) -> String {
    fs::read_to_string(w.home().join("config.yaml")).unwrap()
}

/// Disable, enable, list and remove work on the file alone; every other byte stays.
#[test]
fn the_file_is_edited_without_a_daemon() {
    let w = world();
    fs::write(w.home().join("config.yaml"), TEXT).unwrap();
    let ran = w.ctl(["mcp", "disable", "a"]).succeeds();
    assert!(ran.stdout.contains("a is disabled") && ran.stdout.contains("not running"), "{}", ran.stdout);
    assert_eq!(config(&w), TEXT.replace("enabled: true", "enabled: false"));
    let ran = w.ctl(["mcp", "disable", "a"]).succeeds();
    assert!(ran.stdout.contains("already disabled"), "{}", ran.stdout);
    let ran = w.ctl(["mcp"]).succeeds();
    assert!(
        ran.stdout.contains("disabled") && ran.stdout.contains("http://localhost:1/mcp"),
        "{}",
        ran.stdout
    );
    assert!(!ran.stdout.contains("pass") && !ran.stdout.contains("key=k"), "{}", ran.stdout);
    assert_eq!(w.ctl(["mcp", "ls", "--json"]).succeeds().json()[0]["phase"], "disabled");
    w.ctl(["mcp", "enable", "a"]).succeeds();
    assert_eq!(config(&w), TEXT);
    w.ctl(["mcp", "rm", "b"]).succeeds();
    assert_eq!(config(&w), TEXT.replace("  b: {url: 'http://user:pass@localhost:1/mcp?key=k'}\r\n", ""));
    let ran = w.ctl(["mcp", "enable", "b"]).exits(1);
    assert!(
        ran.stderr.contains("no server `b`") && ran.stderr.contains("configured are: a"),
        "{}",
        ran.stderr
    );
}

/// A removed server ends; what is left of it in `.env` is named; its login files are gone.
#[test]
fn a_removed_server_leaves_nothing_unsaid() {
    let w = world().server_with("w", Script::new(), &["env: {K: '${ONLY_HERE}'}"]);
    fs::write(w.home().join(".env"), "ONLY_HERE=abc\n").unwrap();
    let _daemon = w.start();
    w.client(&["w"]);
    let ran = w.ctl(["mcp", "remove", "w", "--yes"]).succeeds();
    assert!(ran.stdout.contains("used by no other server: ONLY_HERE"), "{}", ran.stdout);
    assert!(ran.stdout.contains("hermesd has taken w out"), "{}", ran.stdout);
    assert_eq!(w.processes("w"), []);
}

/// A login's files go with the entry also where no daemon could revoke it.
#[test]
fn login_files_go_with_the_entry() {
    let w = world().entry("a.b", &["url: https://h/mcp", "auth: oauth"]);
    let tokens = w.home().join("mcp-tokens");
    fs::create_dir(&tokens).unwrap();
    for name in ["a_b.json", "a_b.client.json", "other.json"] {
        fs::write(tokens.join(name), "{}").unwrap();
    }
    let ran = w.ctl(["mcp", "rm", "a.b", "-y"]).succeeds();
    assert!(ran.stdout.contains("login is removed here"), "{}", ran.stdout);
    assert!(tokens.join("other.json").exists() && !tokens.join("a_b.json").exists());
}

/// A running daemon has the change when the command returns.
#[test]
fn the_daemon_has_the_change_when_the_command_returns() {
    let w = world().server("w", Script::new());
    let _daemon = w.start();
    w.client(&["w"]);
    w.ctl(["mcp", "disable", "w"]).succeeds();
    assert_eq!(w.phase("w"), "disabled");
    w.ctl(["mcp", "test", "w"]).succeeds();
    w.ctl(["mcp", "configure", "w", "--tools", "none"]).succeeds();
    assert!(config(&w).contains("include: []"), "{}", config(&w));
    w.ctl(["mcp", "config", "w", "--tools", "all"]).succeeds();
    assert!(!config(&w).contains("tools"), "{}", config(&w));
    w.ctl(["mcp", "enable", "w"]).succeeds();
    w.client(&["w"]);
    let ran = w.ctl(["mcp", "configure", "w"]).exits(2);
    assert!(ran.stderr.contains("--tools"), "{}", ran.stderr);
}

/// Sixteen commands at once: each change is there afterwards.
#[test]
fn writers_at_once_lose_nothing() {
    let w = world();
    let entries: String = (0..16).map(|n| format!("  s{n}: {{command: x}} # {n}.\n")).collect();
    fs::write(w.home().join("config.yaml"), format!("mcp_servers:\n{entries}")).unwrap();
    std::thread::scope(|scope| {
        for n in 0..16 {
            let w = &w;
            scope.spawn(move || {
                let name = format!("s{n}");
                Ran::of(w.command(&w.bins().hermesctl).args(["mcp", "disable", &name])).succeeds();
            });
        }
    });
    let wanted = entries.replace("x}", "x, enabled: false}");
    assert_eq!(config(&w), format!("mcp_servers:\n{wanted}"));
}

/// A file that cannot be edited safely stays, and the refusal says where and shows no value.
#[test]
fn a_file_that_cannot_be_edited_is_left_alone() {
    let w = world();
    let text = "base: &b\n  command: x\n  env: {TOKEN: topsecret}\nmcp_servers:\n  a: *b\n";
    fs::write(w.home().join("config.yaml"), text).unwrap();
    let ran = w.ctl(["mcp", "disable", "a"]).exits(1);
    assert!(ran.stderr.contains("alias") && ran.stderr.contains("config check"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("topsecret"));
    assert_eq!(config(&w), text);
}

proptest! {
    /// What hermesctl writes into `.env` is what hermesd reads, and every other variable is as before.
    #[test]
    fn env_reads_back_as_it_was_written(
        text in "([A-C]=[a-z\"' #]{0,6}\n|export D='x y'\n|#[a-z ]{0,5}\n|\n){0,6}",
        name in prop::sample::select(vec!["A", "C", "NEW_TOKEN"]),
        value in "[ -~é\n\\\\\"']{0,16}",
    ) {
        prop_assume!(!value.contains("${") && (value.is_ascii() || name != "NEW_TOKEN"));
        let variable = Variable { name: name.to_owned(), value: value.clone() };
        let Ok(after) = set(&text, &[variable]) else { return Ok(()) };
        let read = |text: &str| hermesd::config::dotenv::parse(text.as_bytes(), &|_| None, &[]).values;
        let mut wanted = read(&text);
        wanted.insert(name.to_owned(), value);
        prop_assert_eq!(read(&after), wanted, "{:?} -> {:?}", text, after);
    }
}
