//! Before and at the start of a server: what may run, what it finds, and what a person is told.

use crate::world;
use hermes_tests::{SOON, Script, World, holds_for, wait_for, wait_some};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A program at `path` that does what `script` says. Another process writes it: a descriptor of ours
/// could be inherited by what another test starts at this moment, and the program would be "busy".
fn program(path: &Path, script: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut sh = Command::new("/bin/sh");
    sh.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut sh = sh.spawn().unwrap();
    sh.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
    assert!(sh.wait().unwrap().success());
}

/// A program that runs the fake server `name` whatever its arguments are.
fn stand_in(w: &World, path: &Path, name: &str) {
    w.rescript(name, Script::new());
    let script = w.path().join(format!("{name}.script"));
    program(path, &format!("exec {} {}", w.bins().fake_server.display(), script.display()));
}

fn findings(w: &World) -> String {
    w.ctl(["doctor", "--json"]).json().to_string()
}

/// A malware database on a local port; the package `bad` is in it.
fn database() -> (String, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/v1/query", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut bytes = Vec::new();
            let question = loop {
                let mut piece = [0; 4096];
                let n = stream.read(&mut piece).unwrap_or(0);
                bytes.extend_from_slice(&piece[..n]);
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let body = text.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
                match serde_json::from_str::<Value>(body) {
                    Ok(question) => break question,
                    Err(_) if n > 0 => {}
                    Err(_) => break Value::Null,
                }
            };
            let bad = question["package"]["name"] == "bad";
            seen.lock().unwrap().push(question);
            let body = if bad { r#"{"vulns":[{"id":"MAL-2026-1"}]}"# } else { "{}" };
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    (endpoint, asked)
}

/// A known malicious package is never started, unless `osv: off`; others are asked about by version.
#[test]
fn a_malicious_package_is_not_started() {
    let (endpoint, asked) = database();
    let w = world().env("OSV_ENDPOINT", &endpoint);
    let npx = w.path().join("tools/npx");
    for name in ["evil", "unchecked", "fine"] {
        stand_in(&w, &w.path().join(format!("tools/{name}/npx")), name);
    }
    let command = |name: &str| format!("command: {}", npx.with_file_name(name).join("npx").display());
    let w = w
        .entry("evil", &[&command("evil"), "args: [-y, bad@1.0.0]"])
        .entry("unchecked", &[&command("unchecked"), "args: [-y, bad@1.0.0]", "osv: off"])
        .entry("fine", &[&command("fine"), "args: [-y, \"@scope/good@2.1.0\"]"]);
    let _daemon = w.start();
    let mut client = w.client(&["unchecked", "fine"]);
    w.wait_phase("evil", "parked");
    assert!(w.status("evil")["reason"].as_str().unwrap().contains("MAL-2026-1"), "{}", w.status("evil"));
    assert_eq!(w.journal("evil").starts(), 0);
    assert_eq!(client.text("mcp_fine_echo", &json!({"text": "x"})), "x");
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 2, "{asked:?}");
    let of = |name: &str| asked.iter().find(|q| q["package"]["name"] == name).cloned().unwrap_or_default();
    assert_eq!(of("@scope/good")["version"], "2.1.0");
    assert_eq!(of("bad")["package"]["ecosystem"], "npm");
    assert!(findings(&w).contains("MAL-2026-1"));
}

/// A database that does not answer stops nobody, and the missing check is shown.
#[test]
fn an_unreachable_malware_database_stops_nobody() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let w = world().env("OSV_ENDPOINT", &format!("http://{closed}/v1/query"));
    let npx = w.path().join("tools/npx");
    stand_in(&w, &npx, "w");
    let w = w.entry("w", &[&format!("command: {}", npx.display()), "args: [some-package]"]);
    let _daemon = w.start();
    drop(w.client(&["w"]));
    let said = findings(&w);
    assert!(said.contains("some-package") && said.contains("not checked"), "{said}");
}

/// A shell that downloads something is refused until `allow_shell` says that it is meant.
#[test]
fn a_downloading_shell_needs_allow_shell() {
    let w = world();
    for name in ["no", "yes"] {
        w.rescript(name, Script::new());
    }
    let line = |name: &str| {
        let fake = w.bins().fake_server.display().to_string();
        let script = w.path().join(format!("{name}.script")).display().to_string();
        format!("args: [-c, {}]", json!(format!("true || curl http://x; exec {fake} {script}")))
    };
    let (no, yes) = (line("no"), line("yes"));
    let w = w.entry("no", &["command: sh", &no]).entry("yes", &["command: sh", &yes, "allow_shell: true"]);
    let _daemon = w.start();
    drop(w.client(&["yes"]));
    w.wait_phase("no", "parked");
    assert!(w.status("no")["reason"].as_str().unwrap().contains("allow_shell"), "{}", w.status("no"));
    assert_eq!(w.journal("no").starts(), 0);
}

/// `HERMES_SAFE_MODE=1` starts no server, not even one that is called, and says so.
#[test]
fn safe_mode_starts_no_server() {
    let mut w = world().server_with("w", Script::new(), &["start: eager"]);
    let mut daemon = w.start();
    drop(w.client(&["w"]));
    assert!(daemon.stop().success());
    w = w.env("HERMES_SAFE_MODE", "1");
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let refused = client.call("mcp_w_echo", &json!({"text": "x"}));
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(w.status("w")["reason"].as_str().unwrap().contains("HERMES_SAFE_MODE"));
    assert!(holds_for(Duration::from_millis(300), || w.journal("w").starts() == 1));
}

/// A command that only the login shell's PATH knows is found, and the program's folder comes first in
/// the server's own PATH.
#[test]
fn the_login_shells_path_finds_commands() {
    let w = world();
    let folder = w.path().join("nvm/bin");
    stand_in(&w, &folder.join("my-tool"), "w");
    program(
        &w.path().join("shell/sh"),
        &format!("PATH={}:$PATH; export PATH; shift $(($# - 1)); eval \"$1\"", folder.display()),
    );
    let shell = w.path().join("shell/sh").display().to_string();
    let w = w.env("SHELL", &shell).env("PATH", "/usr/bin:/bin").entry("w", &["command: my-tool"]);
    let _daemon = w.start();
    let mut client = w.client(&["w"]);
    let seen = client.text("mcp_w_env", &json!({}));
    let path = seen.lines().find_map(|line| line.strip_prefix("PATH=")).unwrap();
    assert!(path.starts_with(&folder.display().to_string()), "{path}");
}

/// `env_pass: [desktop]` and `[proxy]` stand for their variables.
#[test]
fn groups_of_env_pass_travel() {
    let w = world()
        .server_with("w", Script::new(), &["env_pass: [desktop]"])
        .server_with("v", Script::new(), &["env_pass: [proxy]"])
        .env("DISPLAY", ":7")
        .env("HTTPS_PROXY", "http://proxy.invalid:1");
    let _daemon = w.start();
    let mut client = w.client(&["w", "v"]);
    let (of_w, of_v) = (client.text("mcp_w_env", &json!({})), client.text("mcp_v_env", &json!({})));
    assert!(of_w.contains("DISPLAY=:7") && !of_w.contains("HTTPS_PROXY"), "{of_w}");
    assert!(of_v.contains("HTTPS_PROXY=http://proxy.invalid:1") && !of_v.contains("DISPLAY"), "{of_v}");
}

/// Arguments arrive as they stand in the file, spelling kept, and no shell looks at them.
#[test]
fn arguments_arrive_as_written() {
    let w = world().server("w", Script::new());
    let script = w.path().join("w.script");
    let args = format!("args: [{}, 1.10, yes, 0x1f, \"$HOME\", \"a  b\", \"$(id)\"]", script.display());
    let command = format!("command: {}", w.bins().fake_server.display());
    let w = w.entry("w", &[&command, &args]);
    let _daemon = w.start();
    let seen: Value = serde_json::from_str(&w.client(&["w"]).text("mcp_w_argv", &json!({}))).unwrap();
    assert_eq!(seen.as_array().unwrap()[2..], ["1.10", "yes", "0x1f", "$HOME", "a  b", "$(id)"]);
}

/// `mcp test` runs the daemon's own code in a process of its own: each step, and why it failed.
#[test]
fn a_test_of_a_server_says_why() {
    let broken = Script::new().with(|s| {
        s.fail_starts = Some(hermes_tests::script::FailStarts {
            count: 99,
            code: 3,
            stderr: "no module named fish".into(),
        });
    });
    let noisy = Script::new().with(|s| s.banner = vec!["Welcome to my server!".into()]);
    let w = world()
        .server_with("off", Script::new(), &["enabled: false"])
        .server("broken", broken)
        .server("noisy", noisy)
        .entry("gone", &["command: no-such-command-anywhere"])
        .env("AWS_SECRET_ACCESS_KEY", "must-not-show");
    let _daemon = w.start();
    let test = |name: &str| w.ctl(["mcp", "test", name, "--json"]);
    let off = test("off").succeeds().json();
    assert_eq!(off["ok"], true, "{off}");
    let steps: Vec<&str> =
        off["detail"]["steps"].as_array().unwrap().iter().filter_map(|s| s["step"].as_str()).collect();
    assert_eq!(steps, ["resolve", "gate", "start slot", "spawn", "initialize", "tools/list"]);
    assert!(off["detail"]["env_dropped"].to_string().contains("AWS_SECRET_ACCESS_KEY"), "{off}");
    assert!(!off.to_string().contains("must-not-show"));
    assert!(!off["tools"].as_array().unwrap().is_empty());
    wait_for("nothing of the test is left", SOON, || w.processes("off").is_empty());
    assert_eq!(w.phase("off"), "disabled");
    let broken = test("broken").exits(1).json();
    assert_eq!(broken["detail"]["exit_code"], 3, "{broken}");
    assert!(broken["detail"]["stderr_tail"].to_string().contains("no module named fish"), "{broken}");
    let gone = test("gone").exits(1).json();
    assert!(gone["message"].as_str().unwrap().contains("no-such-command-anywhere"), "{gone}");
    assert!(!gone["detail"]["path_searched"].as_array().unwrap().is_empty(), "{gone}");
    let noisy = test("noisy").succeeds().json();
    assert!(noisy["detail"]["noise_sample"].as_str().unwrap().contains("Welcome"), "{noisy}");
}

/// Doctor turns the commonest troubles into a sentence and an action.
#[test]
fn doctor_names_trouble_and_action() {
    let w = world()
        .entry("gone", &["command: no-such-command-anywhere"])
        .server("secretive", Script::new())
        .server("w", Script::new().with(|s| s.banner = vec!["Content-Length: 12".into()]));
    fs::write(w.home().join(".env"), "A=b\n").unwrap();
    fs::set_permissions(w.home().join(".env"), fs::Permissions::from_mode(0o644)).unwrap();
    let script = w.path().join("secretive.script");
    let command = format!("command: {}", w.bins().fake_server.display());
    let args = format!("args: [{}, --api-key=q0w9e8r7t6y5]", script.display());
    let w = w.entry("secretive", &[&command, &args]);
    let _daemon = w.start();
    drop(w.client(&["w", "secretive"]));
    w.wait_phase("gone", "parked");
    let run = w.ctl(["doctor", "--json"]).exits(1);
    let list = run.json().as_array().cloned().unwrap_or_default();
    let about = |text: &str| list.iter().find(|f| f["message"].as_str().is_some_and(|m| m.contains(text)));
    for text in ["no-such-command-anywhere", "others can read it", "argument 2 holds a secret"] {
        let found = about(text).unwrap_or_else(|| panic!("{text} in {list:#?}"));
        assert!(!found["hint"].as_str().unwrap_or_default().is_empty(), "{found}");
    }
    assert!(about("ontent-").is_some(), "the noise is named: {list:#?}");
    assert!(!run.stdout.contains("q0w9e8r7t6y5"));
    let shown = w.ctl(["servers", "show", "secretive", "--json"]).succeeds().stdout;
    assert!(!shown.contains("q0w9e8r7t6y5"), "{shown}");
    fs::set_permissions(w.home().join(".env"), fs::Permissions::from_mode(0o600)).unwrap();
    w.ctl(["reload"]).succeeds();
    let status = w.ctl(["status", "--json"]).succeeds().json()["findings"].to_string();
    assert!(!status.contains("/.env may hold"), "a mended finding goes away: {status}");
}

/// `config check` needs no daemon and tells all errors at once, with line, key and what would be right.
#[test]
fn the_configuration_is_checked_without_a_daemon() {
    let w = world()
        .entry("a", &["command: /bin/cat", "timeout: soon", "start: sometimes", "tiemout: 5"])
        .entry("b", &["args: [x]"])
        .entry("c", &["command: /bin/cat"]);
    let run = w.ctl(["config", "check", "--json"]).exits(1);
    let report = run.json();
    let text = std::fs::read_to_string(w.home().join("config.yaml")).unwrap();
    let line = |needle: &str| text.lines().position(|l| l.contains(needle)).unwrap() + 1;
    let findings = report["findings"].as_array().unwrap().clone();
    let at = |key: &str| {
        findings
            .iter()
            .find(|f| f["key"].as_str().is_some_and(|k| k.ends_with(key)))
            .unwrap_or_else(|| panic!("{key} in {findings:#?}"))
            .clone()
    };
    assert_eq!(at("a.timeout")["line"], line("timeout: soon"));
    assert_eq!(at("a.timeout")["severity"], "error");
    assert!(at("a.start")["hint"].to_string().contains("eager"), "{}", at("a.start"));
    assert!(at("a.tiemout").to_string().contains("`timeout`"), "{}", at("a.tiemout"));
    assert_eq!(at("a.tiemout")["severity"], "warning");
    assert_eq!(at("b.command")["server"], "b");
    let w = world().entry("c", &["command: /bin/cat"]);
    w.ctl(["config", "check"]).succeeds();
    assert_eq!(w.census(), []);
}

/// A container is ended with its server: the client gets a file for its id, and that id is stopped.
#[test]
fn a_container_ends_with_its_server() {
    let w = world();
    let docker = w.path().join("tools/docker");
    let said = w.path().join("docker.log");
    w.rescript("w", Script::new());
    program(
        &docker,
        &format!(
            "echo \"$@\" >> {log}\nif [ \"$1\" != run ]; then exit 0; fi\nwhile [ $# -gt 0 ]; do if [ \"$1\" = --cidfile ]; then printf 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef > \"$2\"; fi; shift; done\nexec {fake} {script}",
            log = said.display(),
            fake = w.bins().fake_server.display(),
            script = w.path().join("w.script").display(),
        ),
    );
    let w = w.entry("w", &[&format!("command: {}", docker.display()), "args: [run, -i, --rm, image]"]);
    let _daemon = w.start();
    drop(w.client(&["w"]));
    w.ctl(["servers", "stop", "w"]).succeeds();
    let log = wait_some("the container is ended", SOON, || {
        let text = fs::read_to_string(&said).unwrap_or_default();
        text.lines().any(|l| !l.starts_with("run") && l.contains("0123456789abcdef")).then_some(text)
    });
    assert!(log.lines().next().unwrap().contains("hermesd.instance="), "{log}");
    let folder: PathBuf = w.home().join("hermesd");
    let cids =
        fs::read_dir(folder).unwrap().flatten().filter(|e| e.path().extension().is_some_and(|x| x == "cid"));
    assert_eq!(cids.count(), 0, "the id file goes with the container");
}

/// A server that this daemon did not start yet is shown with what a start would find; it stays stopped.
#[test]
fn a_server_that_was_never_started_is_shown_in_full() {
    let w = world().server_with("w", Script::new(), &["env: {FLAVOUR: sweet}"]);
    let mut daemon = w.start();
    drop(w.client(&["w"]));
    assert!(daemon.stop().success());
    let _daemon = w.start();
    drop(w.client(&["w"]));
    let shown = w.ctl(["servers", "show", "w", "--json"]).succeeds().json();
    assert_eq!(shown["server"]["phase"], "stopped", "{shown}");
    assert_eq!(shown["detail"]["command"], w.bins().fake_server.display().to_string());
    assert!(shown["detail"]["env_passed"].to_string().contains("FLAVOUR"), "{shown}");
    assert_eq!(w.journal("w").starts(), 1);
}

/// A whole command line in `command` is named as such, with what to write instead; `~/` is expanded.
#[test]
fn a_command_line_in_one_string_is_explained() {
    let w = world();
    stand_in(&w, &w.path().join("user/bin/tool"), "home");
    let w =
        w.entry("line", &["command: my-launcher -y some-package"]).entry("home", &["command: ~/bin/tool"]);
    let _daemon = w.start();
    drop(w.client(&["home"]));
    wait_for("the reason says it", SOON, || {
        let status = w.status("line").to_string();
        let findings = w.ctl(["status", "--json"]).json()["findings"].to_string();
        (status + &findings).contains("args")
    });
    assert_ne!(w.phase("line"), "ready");
}

/// A database that is damaged is put aside, the daemon works, and a person is told.
#[test]
fn a_damaged_database_is_put_aside_and_told() {
    let w = world().server("w", Script::new());
    let folder = w.home().join("hermesd");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("hermesd.db"), "this is no database, ".repeat(500)).unwrap();
    let _daemon = w.start();
    drop(w.client(&["w"]));
    let said = findings(&w);
    assert!(said.contains("damaged") && said.contains("moved"), "{said}");
    let aside = fs::read_dir(&folder).unwrap().flatten().any(|e| {
        e.file_name().to_string_lossy().contains("damaged")
            && fs::read_to_string(e.path()).is_ok_and(|text| text.starts_with("this is no database"))
    });
    assert!(aside, "nothing is thrown away");
}
