//! Registering hermesd with the clients of a person: what is written starts, and what is taken back was never there.

use crate::world;
use hermes_tests::{Pty, Ran, Script, Shim, World};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each client, where its file is below the home folder, and a sample of it.
pub(crate) const FILES: [(&str, &str, &str); 8] = [
    ("claude-desktop", ".config/Claude/claude_desktop_config.json", "claude_desktop_config.json"),
    ("claude-code", ".claude.json", "claude.json"),
    ("cursor", ".cursor/mcp.json", "cursor-mcp.json"),
    ("vscode", ".config/Code/User/mcp.json", "vscode-mcp.json"),
    ("codex", ".codex/config.toml", "codex-config.toml"),
    ("windsurf", ".codeium/windsurf/mcp_config.json", "windsurf-mcp_config.json"),
    ("zed", ".config/zed/settings.json", "zed-settings.json"),
    ("gemini", ".gemini/settings.json", "gemini-settings.json"),
];

pub(crate) fn sample(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/clients").join(name)).unwrap()
}

pub(crate) fn user(w: &World) -> PathBuf {
    w.path().join("user")
}

pub(crate) fn place(w: &World, path: &str, bytes: &[u8]) -> PathBuf {
    let path = user(w).join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    path
}

fn ctl(w: &World, args: &[&str]) -> Ran {
    Ran::of(w.command(&w.bins().hermesctl).args(args))
}

/// A file that is as it was before is the whole promise of `unregister`, in every format.
#[test]
fn unregister_gives_every_client_its_file_back_byte_for_byte() {
    let w = world();
    for (client, path, name) in FILES {
        let before = sample(name);
        let file = place(&w, path, &before);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let ran = ctl(&w, &["mcp", "register", client, "--yes", "--json"]).succeeds();
        let done = &ran.json()[0];
        assert_eq!(done["action"], "written", "{}", ran.stdout);
        let backup = done["backup"].as_str().unwrap();
        assert_eq!(fs::read(backup).unwrap(), before, "{client}");
        assert_eq!(fs::metadata(backup).unwrap().permissions().mode() & 0o777, 0o600);
        let after = fs::read(&file).unwrap();
        assert!(after.len() > before.len(), "{client}");
        assert!(String::from_utf8_lossy(&after).contains("mcp"), "{client}");
        let again = ctl(&w, &["mcp", "register", client, "--yes", "--json"]).succeeds();
        assert_eq!(again.json()[0]["action"], "already", "{client}");
        assert_eq!(fs::read(&file).unwrap(), after, "{client}: the second time changes nothing");
        ctl(&w, &["mcp", "unregister", client, "--yes"]).succeeds();
        assert_eq!(fs::read(&file).unwrap(), before, "{client}");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640, "{client}");
    }
}

/// Where there was no file there is none afterwards, and no folder.
#[test]
fn a_file_that_register_made_is_gone_after_unregister() {
    let w = world();
    for (client, path, _) in FILES {
        let file = user(&w).join(path);
        ctl(&w, &["mcp", "register", client, "--yes"]).succeeds();
        assert!(file.exists(), "{client}");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o077, 0, "{client}");
        ctl(&w, &["mcp", "unregister", client, "--yes"]).succeeds();
        assert!(!file.exists(), "{client}");
    }
    assert_eq!(fs::read_dir(user(&w)).unwrap().count(), 0, "folders that were made are gone");
}

/// A client starts what stands in its file with six variables and nothing else.
#[test]
fn what_is_written_for_cursor_starts_the_shim_under_an_empty_environment() {
    let w = world().server("one", Script::new());
    let mut daemon = w.start();
    place(&w, ".cursor/mcp.json", b"{}");
    ctl(&w, &["mcp", "register", "cursor", "--yes"]).succeeds();
    let file: Value = serde_json::from_slice(&fs::read(user(&w).join(".cursor/mcp.json")).unwrap()).unwrap();
    let entry = &file["mcpServers"]["hermes"];
    let program = entry["command"].as_str().unwrap();
    assert!(Path::new(program).is_absolute());
    let args: Vec<&str> = entry["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    let home = fs::canonicalize(w.home()).unwrap();
    assert_eq!(args, ["mcp", "serve", "--home", home.to_str().unwrap()], "this home is not the default one");
    let mut command = Command::new(program);
    command.env_clear().args(&args).env("HOME", user(&w)).env("PATH", "/usr/bin:/bin");
    let mut shim = Shim::start(&mut command);
    let answer = shim.initialize();
    assert!(
        answer["result"]["serverInfo"]["name"].is_string() || answer["serverInfo"]["name"].is_string(),
        "{answer}"
    );
    shim.wait_tool("mcp_one_echo");
    drop(shim);
    assert!(daemon.stop().success());
}

/// Nothing but the entry is touched when the file changed since; what cannot be done is said and changes nothing.
#[test]
fn files_that_changed_or_are_broken_are_respected() {
    let w = world();
    let file = place(&w, ".claude.json", &sample("claude.json"));
    ctl(&w, &["mcp", "register", "claude-code", "--yes"]).succeeds();
    let mut value: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    value["numStartups"] = json!(43);
    fs::write(&file, format!("{value:#}")).unwrap();
    let ran = ctl(&w, &["mcp", "unregister", "claude-code", "--yes"]).succeeds();
    assert!(ran.stdout.contains("changed since"), "{}", ran.stdout);
    value["mcpServers"].as_object_mut().unwrap().remove("hermes");
    assert_eq!(serde_json::from_slice::<Value>(&fs::read(&file).unwrap()).unwrap(), value);

    let broken = b"{\n  \"mcpServers\": {\n    \"a\": {\"command\": }\n  }\n}\n";
    let file = place(&w, ".cursor/mcp.json", broken);
    let ran = ctl(&w, &["mcp", "register", "cursor", "windsurf", "--yes", "--json"]).exits(1);
    let error = ran.json()[0]["error"].as_str().unwrap().to_owned();
    assert!(error.contains("line 3") && error.contains("nothing was written"), "{error}");
    assert_eq!(ran.json()[1]["action"], "written", "one that fails does not keep the others");
    assert_eq!(fs::read(&file).unwrap(), broken);
}

/// Servers that hermesd runs too are named, and go only when that is asked for; then they come back, too.
#[test]
fn servers_that_hermesd_runs_leave_a_clients_file_only_when_asked() {
    let w = world().entry("web", &["command: npx", "args: [-y, '@modelcontextprotocol/server-puppeteer']"]);
    let before = sample("windsurf-mcp_config.json");
    let file = place(&w, ".codeium/windsurf/mcp_config.json", &before);
    let names = || {
        let value: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        value["mcpServers"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    let ran = ctl(&w, &["mcp", "register", "windsurf", "--yes", "--json"]).succeeds();
    assert_eq!(ran.json()[0]["also_in_hermesd"], json!(["puppeteer"]));
    assert_eq!(names(), ["exa", "puppeteer", "hermes"]);
    let ran = ctl(&w, &["mcp", "register", "windsurf", "--yes", "--replace", "--json"]).succeeds();
    assert_eq!(ran.json()[0]["replaced"], json!(["puppeteer"]));
    assert_eq!(names(), ["exa", "hermes"]);
    ctl(&w, &["mcp", "register", "windsurf", "--yes", "--profile", "work"]).succeeds();
    assert_eq!(names(), ["exa", "hermes"], "what was taken out stays out");
    ctl(&w, &["mcp", "unregister", "--all", "--yes"]).succeeds();
    assert_eq!(fs::read(&file).unwrap(), before);
}

/// Nothing is written without a word from a person.
#[test]
fn without_a_terminal_yes_or_a_dry_run_is_needed() {
    let w = world();
    let before = sample("cursor-mcp.json");
    let file = place(&w, ".cursor/mcp.json", &before);
    let ran = ctl(&w, &["mcp", "register", "cursor"]).exits(2);
    assert!(ran.last_error_line().contains("--yes"), "{}", ran.stderr);
    let ran = ctl(&w, &["mcp", "register", "cursor", "--dry-run"]).succeeds();
    assert!(ran.stdout.contains("+ hermes:") && ran.stdout.contains("nothing was written"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("ghp_"), "{}", ran.stdout);
    assert_eq!(fs::read(&file).unwrap(), before);
}

/// A client's project file has its own entry, and `--all` finds the clients that are in use.
#[test]
fn projects_and_all_clients_can_be_registered() {
    let w = world();
    let project = w.path().join("project");
    fs::create_dir(&project).unwrap();
    let dir = project.to_str().unwrap();
    ctl(&w, &["mcp", "register", "vscode", "claude-code", "--project", dir, "--yes"]).succeeds();
    let of = |path: &str| serde_json::from_slice::<Value>(&fs::read(project.join(path)).unwrap()).unwrap();
    assert_eq!(of(".vscode/mcp.json")["servers"]["hermes"]["type"], "stdio");
    assert_eq!(of(".mcp.json")["mcpServers"]["hermes"]["type"], "stdio");
    ctl(&w, &["mcp", "unregister", "vscode", "claude-code", "--project", dir, "--yes"]).succeeds();
    assert_eq!(fs::read_dir(&project).unwrap().count(), 0);

    ctl(&w, &["mcp", "register", "cursor", "--project", dir, "--name", "hub", "--yes"]).succeeds();
    assert!(of(".cursor/mcp.json")["mcpServers"]["hub"]["command"].is_string());
    ctl(&w, &["mcp", "unregister", "--all", "--yes"]).succeeds();
    assert_eq!(fs::read_dir(&project).unwrap().count(), 0, "--all knows projects and other names too");

    ctl(&w, &["mcp", "register", "--all", "--yes"]).exits(1);
    place(&w, ".cursor/mcp.json", b"{}");
    place(&w, ".codex/config.toml", b"");
    let ran = ctl(&w, &["mcp", "register", "--all", "--yes", "--json"]).succeeds();
    let clients: Vec<Value> =
        ran.json().as_array().unwrap().iter().map(|one| one["client"].clone()).collect();
    assert_eq!(clients, ["cursor", "codex"]);
}

/// Hermes Agent shares config.yaml: its servers move where only hermesd starts them, and come back.
#[test]
fn registering_hermes_moves_its_servers_and_unregistering_brings_them_back() {
    let w = world();
    let text = "# my agent\nmodel: x\nmcp_servers:\n  # notes\n  files:\n    command: npx # c\n    args: [\"-y\", files]\n  web: {url: 'https://h/${P}'}\nplatforms: {}\n";
    let file = w.home().join("config.yaml");
    fs::write(&file, text).unwrap();
    fs::write(w.home().join(".env"), "P=1\n").unwrap();
    let ran = ctl(&w, &["mcp", "register", "hermes", "--yes", "--json"]).succeeds();
    assert_eq!(ran.json()[0]["replaced"], json!(["files", "web"]));
    let after = fs::read_to_string(&file).unwrap();
    for kept in ["# my agent", "# notes", "# c", "'https://h/${P}'"] {
        assert!(after.contains(kept), "{kept}:\n{after}");
    }
    let listed = ctl(&w, &["config", "check", "--json"]);
    assert!(listed.code == 0, "{}{}", listed.stdout, listed.stderr);
    let again = ctl(&w, &["mcp", "register", "hermes", "--yes", "--json"]).succeeds();
    assert_eq!(again.json()[0]["action"], "already");
    ctl(&w, &["mcp", "unregister", "hermes", "--yes"]).succeeds();
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}

/// On a terminal a person is asked, and what was not agreed to does not happen.
#[test]
fn on_a_terminal_replacing_and_writing_are_asked_about() {
    let w = world().entry("web", &["command: npx", "args: [-y, '@modelcontextprotocol/server-puppeteer']"]);
    let before = sample("windsurf-mcp_config.json");
    let file = place(&w, ".codeium/windsurf/mcp_config.json", &before);
    let answer = |replace: &str, write: &str| {
        let mut command = w.command(&w.bins().hermesctl);
        let mut terminal = Pty::start(command.args(["mcp", "register", "windsurf"]), 120, 30);
        terminal.wait_words("hermesd runs `puppeteer` too");
        terminal.type_in(replace);
        terminal.wait_words("write it?");
        terminal.type_in(write);
        assert!(terminal.wait().success(), "{}", terminal.screen());
        let value: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        value["mcpServers"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(answer("\n", "n\n"), ["exa", "puppeteer"], "no was said");
    assert_eq!(fs::read(&file).unwrap(), before);
    assert_eq!(answer("y\n", "\n"), ["exa", "hermes"]);
}
