//! Taking servers over from clients: hermesd runs them, secrets go where they belong, nothing of a client changes.

use crate::clients::{FILES, place, sample, user};
use crate::world;
use hermes_tests::{Pty, Ran, Script, World};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn ctl(w: &World, args: &[&str]) -> Ran {
    Ran::of(w.command(&w.bins().hermesctl).args(args))
}

fn config(w: &World) -> String {
    fs::read_to_string(w.home().join("config.yaml")).unwrap_or_default()
}

fn verdict<'v>(all: &'v Value, name: &str) -> &'v Value {
    all["servers"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap_or(&Value::Null)
}

/// The servers of every client in one run: each once, with what a person must do about it.
#[test]
fn every_client_is_read_and_no_secret_is_shown() {
    let w = world();
    for (_, path, name) in FILES {
        place(&w, path, &sample(name));
    }
    let shown = ctl(&w, &["mcp", "import", "--dry-run"]).succeeds();
    let ran = ctl(&w, &["mcp", "import", "--yes", "--secrets-to-env", "--json"]).succeeds();
    assert!(config(&w).contains("ghcr.io/github/github-mcp-server"), "an image is no secret: {}", config(&w));
    for secret in ["ghp_desktopfixture", "ctx7sk-fixture", "hunter2fixture"] {
        assert!(!shown.stdout.contains(secret) && !ran.stdout.contains(secret), "{}", shown.stdout);
        assert!(!config(&w).contains(secret), "{}", config(&w));
        let dotenv = fs::read_to_string(w.home().join(".env")).unwrap();
        assert!(dotenv.contains(secret), "{secret} moved into .env");
    }
    let all = ran.json();
    for name in [
        "filesystem",
        "github",
        "sentry",
        "memory",
        "db",
        "linear",
        "perplexity",
        "context7",
        "figma",
        "exa",
        "puppeteer",
        "postgres",
        "notes",
    ] {
        assert_eq!(verdict(&all, name)["verdict"], "add", "{name}: {}", ran.stdout);
    }
    assert_eq!(verdict(&all, "gh")["as"], "github", "the same server under another name");
    assert_eq!(verdict(&all, "gh")["verdict"], "same");
    assert_eq!(verdict(&all, "playwright")["verdict"], "unusable", "it belongs to a workspace");
    assert_eq!(verdict(&all, "perplexity")["needs"], json!(["PERPLEXITY_KEY"]));
    let mode = fs::metadata(w.home().join(".env")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for (_, path, name) in FILES {
        assert_eq!(fs::read(user(&w).join(path)).unwrap(), sample(name), "files of clients are only read");
    }
    // What a person was told to set.
    let dotenv = w.home().join(".env");
    let told = "LINEAR_TOKEN=l\nFIGMA_OAUTH_TOKEN=f\nPERPLEXITY_KEY=p\nNOTES_KEY=n\n";
    fs::write(&dotenv, format!("{}{told}", fs::read_to_string(&dotenv).unwrap())).unwrap();
    let checked = ctl(&w, &["config", "check"]);
    assert!(checked.code == 0, "hermesd reads what was written: {}{}", checked.stdout, checked.stderr);
    let again = ctl(&w, &["mcp", "import", "--yes", "--json"]).succeeds();
    assert_eq!(
        verdict(&again.json(), "context7")["verdict"],
        "same",
        "with the secret in .env: {}",
        again.stdout
    );
    assert_eq!(again.json()["action"], "none");
}

/// What was imported runs, with its variables, and the comments of config.yaml are still there.
#[test]
fn an_imported_server_runs_in_the_daemon() {
    let w = world().server("spare", Script::new()).yaml("# mine: keep");
    let fake = w.bins().fake_server.clone();
    let script = w.path().join("spare.script");
    let mut daemon = w.start();
    let entry = json!({"mcpServers": {"new": {
        "command": fake, "args": [script], "env": {"SOME_TOKEN": "a-secret-of-the-test", "PLAIN": "1"}
    }}});
    place(&w, ".cursor/mcp.json", entry.to_string().as_bytes());
    ctl(&w, &["mcp", "import", "cursor", "--yes", "--secrets-to-env"]).succeeds();
    assert!(config(&w).contains("# mine: keep") && config(&w).contains("${SOME_TOKEN}"), "{}", config(&w));
    let mut client = w.client(&["new"]);
    assert!(client.text("mcp_new_echo", &json!({"text": "hello"})).contains("hello"));
    drop(client);
    assert!(daemon.stop().success());
}

/// A project's file is read when it is named: whoever wrote it chose what would run.
#[test]
fn the_servers_of_a_project_need_to_be_named() {
    let w = world();
    let project = w.path().join("project");
    fs::create_dir_all(project.join(".vscode")).unwrap();
    fs::write(project.join(".vscode/mcp.json"), sample("vscode-mcp.json")).unwrap();
    let mut command = w.command(&w.bins().hermesctl);
    Ran::of(command.current_dir(&project).args(["mcp", "import", "--yes"])).exits(1);
    let dir = project.to_str().unwrap();
    let ran = ctl(&w, &["mcp", "import", "vscode", "--project", dir, "--yes", "--json"]).succeeds();
    assert_eq!(verdict(&ran.json(), "playwright")["verdict"], "add");
    let folder = fs::canonicalize(&project).unwrap();
    assert!(config(&w).contains(&format!("{}/out", folder.display())), "{}", config(&w));
}

/// Names that are taken, files that are broken, and clients that nobody knows.
#[test]
fn conflicts_and_broken_files_are_told_and_change_nothing() {
    let w = world().entry("github", &["command: mine"]);
    let before = config(&w);
    place(&w, ".cursor/mcp.json", br#"{"mcpServers": {"github": {"command": "theirs"}}}"#);
    let ran = ctl(&w, &["mcp", "import", "cursor", "--yes"]).succeeds();
    assert!(ran.stdout.contains("--conflicts"), "{}", ran.stdout);
    assert_eq!(config(&w), before);
    ctl(&w, &["mcp", "import", "cursor", "--yes", "--conflicts", "rename"]).succeeds();
    assert!(config(&w).contains("github-cursor"), "{}", config(&w));
    place(&w, ".cursor/mcp.json", b"{\n\"mcpServers\": {\n");
    let ran = ctl(&w, &["mcp", "import", "cursor", "--yes"]).exits(1);
    assert!(ran.stdout.contains("line"), "{}", ran.stdout);
    ctl(&w, &["mcp", "import", "nobody", "--yes"]).exits(2);
    ctl(&w, &["mcp", "import", "cursor"]).exits(2);
}

/// The way out: what is exported is what another client can read, and holds no secret.
#[test]
fn exported_servers_can_be_imported_elsewhere_and_hold_no_secret() {
    let w = world().entry(
        "gh",
        &["command: npx", "args: [x]", "env: {GH_TOKEN: \"${GH_TOKEN}\", API_KEY: plain-secret-of-mine}"],
    );
    for format in ["claude", "cursor", "vscode", "codex", "json"] {
        let ran = ctl(&w, &["mcp", "export", "--format", format]).succeeds();
        assert!(
            !ran.stdout.contains("plain-secret") && ran.stderr.contains("API_KEY"),
            "{format}: {}",
            ran.stdout
        );
    }
    let file = w.path().join("exported.json");
    fs::write(&file, ctl(&w, &["mcp", "export", "--format", "vscode"]).succeeds().stdout).unwrap();
    let other = world();
    ctl(&other, &["mcp", "import", file.to_str().unwrap(), "--yes"]).succeeds();
    assert!(config(&other).contains("${GH_TOKEN}"), "{}", config(&other));
    ctl(&w, &["mcp", "export", "nobody"]).exits(1);
}

/// On a terminal the secrets are asked about first, then the whole; a no writes nothing.
#[test]
fn on_a_terminal_secrets_and_writing_are_asked_about() {
    let w = world();
    place(&w, ".codex/config.toml", &sample("codex-config.toml"));
    let answer = |secrets: &str, write: &str| {
        let mut command = w.command(&w.bins().hermesctl);
        let mut terminal = Pty::start(command.args(["mcp", "import", "codex"]), 120, 40);
        terminal.wait_words("move 1 secret");
        terminal.type_in(secrets);
        terminal.wait_words("write 2 server(s)");
        terminal.type_in(write);
        assert!(terminal.wait().success(), "{}", terminal.screen());
        assert!(!terminal.raw().contains("ctx7sk"), "{}", terminal.raw());
    };
    answer("\n", "n\n");
    assert!(config(&w).is_empty() && !w.home().join(".env").exists(), "no was said");
    answer("\n", "y\n");
    assert!(config(&w).contains("${CONTEXT7_API_KEY}"), "{}", config(&w));
    assert!(fs::read_to_string(w.home().join(".env")).unwrap().contains("ctx7sk-fixture"));
}
