//! `hermesctl service install|uninstall|status` against a service manager that a script plays.

use crate::world;
use hermes_tests::{Script, World, holds_for};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// systemctl as far as hermesctl uses it: it reads the installed unit and runs its command.
const SYSTEMCTL: &str = r#"#!/bin/sh
here=${0%/*}
echo "$*" >>"$here/orders"
while [ "$1" = --user ] || [ "$1" = --no-block ]; do shift; done
alive() { pid=$(cat "$here/pid" 2>/dev/null || echo 0); [ -n "$(readlink "/proc/$pid/exe")" ] || pid=0; }
end() {
    alive
    [ "$pid" = 0 ] || kill "$pid"
    tries=0
    while alive; [ "$pid" != 0 ] && [ $tries -lt 400 ]; do tries=$((tries + 1)); sleep 0.05; done
}
run() {
    eval "set -- $(sed -n 's/^ExecStart=//p' "$HOME/.config/systemd/user/$1")"
    "$@" >>"$here/said" 2>&1 </dev/null &
    echo $! >"$here/pid"
}
case "$1 $2" in
"start "*.service) alive; [ "$pid" != 0 ] || run "$2" ;;
"restart "*) end; run "$2" ;;
"disable --now") end; rm -f "$here/enabled" ;;
"enable "*) : >"$here/enabled" ;;
"show "*)
    alive
    if [ -e "$here/enabled" ]; then echo UnitFileState=enabled; else echo UnitFileState=; fi
    if [ "$pid" = 0 ]; then echo ActiveState=inactive; else echo ActiveState=active; fi
    echo "MainPID=$pid"; echo NRestarts=0; echo Result=success ;;
esac
"#;

/// A world whose systemctl is `script`.
fn with_manager(w: World, script: &str) -> World {
    let bin = w.path().join("bin");
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("systemctl"), script).unwrap();
    fs::set_permissions(bin.join("systemctl"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    w.env("PATH", &format!("{}:{path}", bin.display()))
}

fn orders(w: &World) -> String {
    fs::read_to_string(w.path().join("bin/orders")).unwrap_or_default()
}

fn units(w: &World) -> Vec<PathBuf> {
    let folder = w.path().join("user/.config/systemd/user");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn pid(w: &World) -> u64 {
    w.ctl(["status", "--json"]).succeeds().json()["pid"].as_u64().unwrap()
}

/// The whole life of the service: nothing asked for is done twice, clients notice nothing.
#[test]
fn a_service_is_installed_once_kept_and_removed_without_a_trace() {
    let w = with_manager(world().server("w", Script::new()), SYSTEMCTL);
    let mut outside = w.start();
    let mut client = w.client(&["w"]);
    let dry = w.ctl(["service", "install", "--manager", "systemd", "--dry-run"]).succeeds();
    assert!(dry.stdout.contains("would write") && dry.stdout.contains("would end the hermesd"), "{dry:?}");
    assert_eq!(units(&w), Vec::<PathBuf>::new());
    assert!(!orders(&w).contains(" start "), "{}", orders(&w));

    let done = w.ctl(["service", "install", "--manager", "systemd", "--json"]).succeeds().json();
    assert!(outside.wait().success(), "it made room");
    assert_eq!(units(&w).len(), 2, "{:?}", units(&w));
    assert_eq!(done["pid"].as_u64().unwrap(), pid(&w));
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "on"})), "on");
    let status = w.ctl(["service", "status", "--manager", "systemd", "--json"]).succeeds().json();
    assert_eq!((&status["installed"], &status["at_login"]), (&json!(true), &json!("enabled")));

    let (before, known) = (pid(&w), orders(&w).len());
    let again = w.ctl(["service", "install", "--manager", "systemd"]).succeeds();
    assert!(again.stdout.contains("is up to date"), "{again:?}");
    let new = orders(&w).split_off(known);
    assert!(!new.contains("restart") && !new.contains("daemon-reload"), "{new}");
    assert_eq!(pid(&w), before);

    let service = units(&w).into_iter().find(|path| path.to_string_lossy().ends_with(".service")).unwrap();
    let mine = format!("# mine\n{}", fs::read_to_string(&service).unwrap());
    fs::write(&service, &mine).unwrap();
    let status = w.ctl(["service", "status", "--manager", "systemd"]).succeeds();
    assert!(status.stdout.contains("differs"), "{status:?}");
    w.ctl(["service", "install", "--manager", "systemd"]).succeeds();
    assert_eq!(fs::read_to_string(format!("{}.old", service.display())).unwrap(), mine);
    assert_ne!(pid(&w), before, "the new file counts at once");
    assert_eq!(client.text("mcp_w_echo", &json!({"text": "still"})), "still");
    drop(client);

    w.ctl(["service", "uninstall", "--manager", "systemd"]).succeeds();
    assert!(units(&w).iter().all(|path| path.extension().is_some_and(|end| end == "old")), "{:?}", units(&w));
    let gone = || w.ctl(["status"]).code == 3;
    assert!(holds_for(Duration::from_millis(200), gone));
    let nothing = w.ctl(["service", "uninstall", "--manager", "systemd"]).succeeds();
    assert!(nothing.stdout.contains("not installed"), "{nothing:?}");
    w.ctl(["service", "status", "--manager", "systemd"]).exits(1);
}

/// Without a manager to start it, a file would only look like a service.
#[test]
fn nothing_is_written_where_the_manager_does_not_answer() {
    let refuse = "#!/bin/sh\necho 'Failed to connect to bus: No medium found' >&2\nexit 1\n";
    let w = with_manager(world(), refuse);
    let ran = w.ctl(["service", "install", "--manager", "systemd"]).exits(1);
    assert!(ran.stderr.contains("No medium found") && ran.last_error_line().starts_with("hint: "), "{ran:?}");
    assert_eq!(units(&w), Vec::<PathBuf>::new());
    let status = w.ctl(["service", "status", "--manager", "systemd"]).exits(1);
    assert!(status.stdout.contains("does not answer"), "{status:?}");
}

/// The real manager of this user, where there is one: install, call, restart, remove.
#[test]
#[allow(clippy::print_stdout)] // says why it did nothing
fn the_real_user_manager_runs_it_where_there_is_one() {
    let asked = Command::new("systemctl").args(["--user", "show-environment"]).output();
    if !asked.is_ok_and(|output| output.status.success()) {
        println!("skipped: no systemd user manager answers here");
        return;
    }
    let w = world().server("w", Script::new());
    let name = format!("XDG_RUNTIME_DIR={}", std::env::var("XDG_RUNTIME_DIR").unwrap_or_default());
    // The manager knows the units of the real user only; this home has unit names of its own.
    let ctl = |args: &[&str]| {
        let mut command = Command::new(&w.bins().hermesctl);
        command.env_remove("HERMESD_RUNTIME_DIR").arg("--home").arg(w.home()).args(args);
        hermes_tests::Ran::of(&mut command)
    };
    ctl(&["service", "install"]).succeeds();
    let first = ctl(&["status", "--json"]);
    let again = ctl(&["call", "w", "echo", r#"{"text":"hi"}"#]);
    let removed = ctl(&["service", "uninstall"]);
    assert!(
        first.code == 0 && again.code == 0 && removed.code == 0,
        "{name} {first:?} {again:?} {removed:?}"
    );
}
