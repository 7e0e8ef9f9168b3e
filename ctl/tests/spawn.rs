//! How the shim starts a daemon: beside itself, detached, with six variables.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;

/// Waits for `found` without depending on how fast the machine is.
#[track_caller]
fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < end, "{what} did not come");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Makes an executable in another process: a writable descriptor of ours could be inherited by a
/// child that some other test starts at this moment, and the program would be "busy" (ETXTBSY).
fn program(path: &Path, script: &str) {
    let mut sh = Command::new("/bin/sh");
    sh.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut sh = sh.spawn().unwrap();
    sh.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(sh.wait().unwrap().success());
}

/// A copy of hermesctl at `path`, made in another process for the same reason.
fn copy_of_hermesctl(path: &Path) {
    let status = Command::new("/bin/cp").arg(env!("CARGO_BIN_EXE_hermesctl")).arg(path).status();
    assert!(status.unwrap().success());
}

/// A daemon started by a shim has its own session, nothing of the client's environment or
/// folder, and no terminal; the request that needed it is served.
#[test]
fn a_missing_daemon_is_started_detached_and_then_serves() {
    let dir = tempfile::tempdir().unwrap();
    let (bin, home, run) = (dir.path().join("bin"), dir.path().join("home"), dir.path().join("run"));
    fs::create_dir(&bin).unwrap();
    fs::DirBuilder::new().mode(0o700).create(&run).unwrap();
    let shim = bin.join("hermesctl");
    copy_of_hermesctl(&shim);
    let report = dir.path().join("report");
    // Stands in for the daemon: says how it was started and lives as long as the folder of this
    // test; the socket is the test's.
    let script = format!(
        "#!/bin/sh\n{{ echo \"$@\"; pwd; env; echo session $(cut -d' ' -f6 /proc/self/stat); }} > {r}.new\nmv {r}.new {r}\nwhile [ -d {d} ]; do sleep 0.1; done\n",
        r = report.display(),
        d = bin.display()
    );
    program(&bin.join("hermesd"), &script);
    let mut command = Command::new(&shim);
    command.args(["mcp", "serve", "--home"]).arg(&home).env_clear();
    command.env("HOME", dir.path()).env("PATH", "/usr/bin:/bin").env("SECRET_TOKEN", "s3cr3t");
    command.env("HERMESD_RUNTIME_DIR", &run).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{LIST}").unwrap();
    let report = wait_for("the daemon", || fs::read_to_string(&report).ok());
    let mut lines = report.lines();
    let arguments = lines.next().unwrap();
    assert_eq!(arguments, format!("run --idle-exit 30m --home {}", home.display()));
    assert_eq!(lines.next().unwrap(), "/");
    assert!(!report.contains("s3cr3t"), "{report}");
    assert!(report.contains(&format!("HERMESD_RUNTIME_DIR={}", run.display())), "{report}");
    if cfg!(target_os = "linux") {
        let ours = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        let ours = format!("session {}", ours.split(' ').nth(5).unwrap());
        assert!(!report.lines().any(|line| line == ours), "same session: {report}");
    }

    let listener = UnixListener::bind(run.join("mcp.sock")).unwrap();
    let (mut daemon, _) = listener.accept().unwrap();
    let mut lines = BufReader::new(daemon.try_clone().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("hermes-mcp/1 "));
    daemon
        .write_all(
            b"hermes-mcp/1 {\"answer\":\"ok\",\"version\":\"9\",\"id_prefix\":\"p\",\"resumed\":false}\n",
        )
        .unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), LIST);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Without any hermesd the client hears so at once and not after a wait.
#[test]
fn without_a_program_the_error_names_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let shim = dir.path().join("hermes");
    copy_of_hermesctl(&shim);
    let mut command = Command::new(&shim);
    command.args(["mcp", "serve"]).env_clear().env("HOME", dir.path()).env("PATH", "/nonexistent");
    command.env("HERMESD_RUNTIME_DIR", dir.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{LIST}").unwrap();
    let output = child.wait_with_output().unwrap();
    let answer = String::from_utf8(output.stdout).unwrap();
    assert!(answer.contains("no hermesd was found"), "{answer}");
    assert!(output.status.success());
}

/// Under the name of the reference only its `mcp` verbs exist.
#[test]
fn started_as_hermes_other_verbs_fail_clearly() {
    let dir = tempfile::tempdir().unwrap();
    let hermes = dir.path().join("hermes");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_hermesctl"), &hermes).unwrap();
    let output = Command::new(&hermes).arg("status").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("error: started as `hermes`") && text.contains("\nhint: "), "{text}");
}

/// Whoever waits for a daemon that cannot run hears its own reason, and hears it at once.
#[test]
fn the_last_words_of_a_daemon_that_ended_at_once_reach_whoever_asked_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (bin, home, run) = (dir.path().join("bin"), dir.path().join("home"), dir.path().join("run"));
    fs::create_dir(&bin).unwrap();
    fs::DirBuilder::new().mode(0o700).create(&run).unwrap();
    let ctl = bin.join("hermesctl");
    copy_of_hermesctl(&ctl);
    program(
        &bin.join("hermesd"),
        "#!/bin/sh\n[ \"$1\" = config ] && exit 0\n[ \"$HERMESD_STDERR\" = off ] || exit 9\necho 'error: the moon is full' >&2\nexit 1\n",
    );
    let command = |args: &[&str]| {
        let mut command = Command::new(&ctl);
        command.args(args).arg("--home").arg(&home).env_clear();
        command.env("HOME", dir.path()).env("PATH", "/usr/bin:/bin").env("HERMESD_RUNTIME_DIR", &run);
        command
    };
    let started = command(&["daemon", "start"]).output().unwrap();
    let said = String::from_utf8(started.stderr).unwrap();
    assert!(said.starts_with("error: hermesd ended at once: the moon is full\nhint: "), "{said}");
    assert_eq!(started.status.code(), Some(1));

    let checked = command(&["doctor"]).output().unwrap();
    let said = String::from_utf8(checked.stdout).unwrap();
    assert!(said.contains("error: hermesd cannot run: the moon is full\n"), "{said}");
    assert_eq!(checked.status.code(), Some(3));

    let mut shim = command(&["mcp", "serve"]);
    let mut shim = shim.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    writeln!(shim.stdin.take().unwrap(), "{LIST}").unwrap();
    let answer = String::from_utf8(shim.wait_with_output().unwrap().stdout).unwrap();
    assert!(answer.contains("ended at once: the moon is full"), "{answer}");
}
