//! Two questions to other programs at start: the login shell's PATH and the user manager's variables.
//!
//! Promise: each answers within its limit or not at all, and the daemon works without either answer.
//! How the programs are run and ended is `asked`'s business. May not touch: config, servers.

use super::asked::{ask, ask_to_end};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Variables of a login session that the shell gets; the rest would come from its own files.
const LOGIN_VARS: [&str; 8] =
    ["HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "XDG_CONFIG_HOME", "TMPDIR"];

/// Asks `shell` for its PATH, first as an interactive login shell (where nvm and friends add
/// themselves), then as a login shell only. `env` is the daemon's environment, of which the shell
/// gets what a login would give it.
///
/// Ends within `limit` and the time to end the shell; `None` when the shell is unknown, silent, broken
/// or slow, or when `stop` came first.
///
/// # Cancel safety
/// Dropping it kills the shell's group at once, whatever locks it holds; `stop` is the gentle way.
pub async fn login_shell_path(
    shell: &Path,
    env: &BTreeMap<String, String>,
    limit: Duration,
    stop: &CancellationToken,
) -> Option<String> {
    let modes = modes(shell)?;
    let deadline = Instant::now() + limit;
    // The first try must leave time for the second: on a terminal an interactive shell may stop.
    let limits = [limit.mul_f32(0.7), limit];
    for (flags, limit) in modes.iter().zip(limits) {
        let left = limit.min(deadline.saturating_duration_since(Instant::now()));
        let marker = marker();
        let mut command = Command::new(shell);
        command.args(*flags).arg("-c").arg(format!("echo {marker}; printenv PATH; echo {marker}"));
        command.env_clear().env("TERM", "dumb").env("HERMESD_RESOLVING_PATH", "1");
        command.env("PATH", env.get("PATH").map_or("/usr/local/bin:/usr/bin:/bin", String::as_str));
        command.envs(LOGIN_VARS.iter().filter_map(|name| Some((name, env.get(*name)?))));
        let found = ask(command, left, stop, |output| between(output, &marker)).await;
        if found.is_some() || stop.is_cancelled() {
            return found;
        }
    }
    None
}

/// Variables of the systemd user manager; empty where there is none or it does not answer in time.
///
/// # Cancel safety
/// As [`login_shell_path`].
pub async fn manager_env(limit: Duration, stop: &CancellationToken) -> BTreeMap<String, String> {
    if !cfg!(target_os = "linux") {
        return BTreeMap::new();
    }
    let mut command = Command::new("systemctl");
    command.args(["--user", "--no-pager", "show-environment"]);
    ask_to_end(command, limit, stop).await.map(|output| environment_lines(&output)).unwrap_or_default()
}

/// Flags of each try, by the kind of shell; `None` for shells that do not understand the question.
fn modes(shell: &Path) -> Option<[&'static [&'static str]; 2]> {
    match shell.file_name()?.to_str()? {
        "bash" | "zsh" | "fish" | "ksh" | "mksh" | "sh" | "dash" | "ash" => Some([&["-l", "-i"], &["-l"]]),
        "nu" => Some([&["-l"], &["-l"]]),
        // csh takes -l only alone; its files are read for -c as well.
        "csh" | "tcsh" => Some([&["-i"], &[]]),
        _ => None,
    }
}

/// A line that no profile prints by accident.
fn marker() -> String {
    let mut random = [0u8; 8];
    // Without randomness the marker is still a line of its own that no profile prints.
    let _ = getrandom::fill(&mut random);
    random.iter().fold("hermesd-path-".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// The line between two marker lines, if it is a PATH.
fn between(output: &str, marker: &str) -> Option<String> {
    let mut lines = output.lines().skip_while(|line| !line.ends_with(marker)).skip(1);
    let path = lines.next()?.trim();
    let complete = lines.next()?.starts_with(marker);
    let absolute = path.split(':').any(|folder| folder.starts_with('/'));
    (complete && absolute).then(|| path.to_owned())
}

/// `NAME=value` lines; values with special characters come as `$'…'`.
fn environment_lines(output: &str) -> BTreeMap<String, String> {
    output
        .lines()
        .filter_map(|line| line.split_once('='))
        .filter(|(name, _)| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
        .map(|(name, value)| (name.to_owned(), unquote(value)))
        .collect()
}

fn unquote(value: &str) -> String {
    let Some(inner) = value.strip_prefix("$'").and_then(|rest| rest.strip_suffix('\'')) else {
        return value.to_owned();
    };
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', Some('n')) => out.push('\n'),
            ('\\', Some('t')) => out.push('\t'),
            ('\\', Some('r')) => out.push('\r'),
            ('\\', Some(escaped)) => out.push(escaped),
            (plain, _) => out.push(plain),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// A shell called `sh` in `dir` that does `body`; the question is in `$*`.
    fn fake_shell(dir: &Path, body: &str) -> PathBuf {
        let path = dir.join("sh");
        // Written by another process: a descriptor of ours could be inherited by a child that some
        // other test starts at this moment, and the program would be "busy" (ETXTBSY).
        let mut sh = std::process::Command::new("/bin/sh");
        sh.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(&path).stdin(std::process::Stdio::piped());
        let mut sh = sh.spawn().unwrap();
        std::io::Write::write_all(&mut sh.stdin.take().unwrap(), format!("#!/bin/sh\n{body}\n").as_bytes())
            .unwrap();
        assert!(sh.wait().unwrap().success());
        path
    }

    const RUN_QUESTION: &str = "while [ \"$1\" != -c ]; do shift; done; eval \"$2\"";

    #[tokio::test]
    async fn the_path_is_found_between_whatever_the_profile_prints() {
        let dir = tempfile::tempdir().unwrap();
        let body = format!("echo welcome; export PATH=/from/profile:$PATH; {RUN_QUESTION}; echo bye");
        let shell = fake_shell(dir.path(), &body);
        let env = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        let path = login_shell_path(&shell, &env, Duration::from_secs(60), &never()).await;
        assert_eq!(path.as_deref(), Some("/from/profile:/usr/bin:/bin"));
    }

    #[tokio::test]
    async fn a_profile_that_only_works_without_interaction_gets_its_second_try() {
        let dir = tempfile::tempdir().unwrap();
        let shell = fake_shell(dir.path(), &format!("case \"$*\" in *-i*) exit 1;; esac; {RUN_QUESTION}"));
        let env = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        assert!(login_shell_path(&shell, &env, Duration::from_secs(60), &never()).await.is_some());
    }

    #[tokio::test]
    async fn secrets_of_the_daemon_are_not_in_the_shells_environment() {
        let dir = tempfile::tempdir().unwrap();
        let seen = dir.path().join("seen");
        let shell = fake_shell(dir.path(), &format!("env > {}; {RUN_QUESTION}", seen.display()));
        let env = BTreeMap::from([
            ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
            ("API_KEY".to_owned(), "x".to_owned()),
        ]);
        login_shell_path(&shell, &env, Duration::from_secs(60), &never()).await.unwrap();
        assert!(!fs::read_to_string(seen).unwrap().contains("API_KEY"));
    }

    #[tokio::test]
    async fn a_shell_that_hangs_gives_no_path_and_leaves_no_process() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        let shell = fake_shell(dir.path(), &format!("sleep 1000 & echo $! >> {}; wait", pids.display()));
        let answer = login_shell_path(&shell, &BTreeMap::new(), Duration::from_millis(1500), &never()).await;
        assert_eq!(answer, None);
        for pid in fs::read_to_string(&pids).unwrap_or_default().lines() {
            let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
            let wait_until_gone = async {
                while runs(pid) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), wait_until_gone).await.expect("still runs");
        }
    }

    fn never() -> CancellationToken {
        CancellationToken::new()
    }

    /// What a profile does that holds a lock while it works and gives it back when it is told to end.
    fn locking_shell(dir: &Path) -> (PathBuf, PathBuf) {
        let lock = dir.join("lock");
        let body = format!("trap 'rm {0}' EXIT; trap 'exit 1' TERM; : > {0}; sleep 1000", lock.display());
        (fake_shell(dir, &body), lock)
    }

    #[tokio::test]
    async fn a_slow_profile_can_give_back_its_locks() {
        let dir = tempfile::tempdir().unwrap();
        let (shell, lock) = locking_shell(dir.path());
        let answer = login_shell_path(&shell, &BTreeMap::new(), Duration::from_secs(2), &never()).await;
        assert_eq!(answer, None);
        assert!(!lock.exists());
    }

    #[tokio::test]
    async fn a_daemon_that_ends_waits_until_the_profile_gave_back_its_locks() {
        let dir = tempfile::tempdir().unwrap();
        let (shell, lock) = locking_shell(dir.path());
        let stop = never();
        let stop_when_locked = async {
            while !lock.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            stop.cancel();
        };
        let env = BTreeMap::new();
        let ask = login_shell_path(&shell, &env, Duration::from_secs(3600), &stop);
        let (answer, ()) = tokio::join!(ask, stop_when_locked);
        assert_eq!(answer, None);
        assert!(!lock.exists());
    }

    /// A killed orphan may be a zombie until its reaper comes round; that is no live process.
    fn runs(pid: rustix::process::Pid) -> bool {
        let state = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        rustix::process::test_kill_process(pid).is_ok() && !state.is_ok_and(|s| s.contains(") Z"))
    }

    #[tokio::test]
    async fn shells_that_do_not_understand_the_question_are_not_started() {
        let env = BTreeMap::new();
        assert_eq!(
            login_shell_path(Path::new("/usr/sbin/nologin"), &env, Duration::from_secs(60), &never()).await,
            None
        );
        assert_eq!(
            login_shell_path(Path::new("/nonexistent/bash"), &env, Duration::from_secs(60), &never()).await,
            None
        );
    }

    #[test]
    fn an_answer_counts_only_when_both_markers_are_there_and_it_is_a_path() {
        assert_eq!(between("x\nM\n/a:/b\nM\n", "M").as_deref(), Some("/a:/b"));
        assert_eq!(between("M\n/a:/b", "M"), None, "cut off");
        assert_eq!(between("M\n\nM\n", "M"), None);
        assert_eq!(
            between("prompt$ M\n/a\nM\n", "M").as_deref(),
            Some("/a"),
            "a prompt stands before the marker"
        );
    }

    #[test]
    fn quoted_values_of_the_user_manager_are_unquoted() {
        let vars = environment_lines("A=plain\nB=$'it\\'s two\\nlines'\nnot a variable\n=x\n");
        assert_eq!(
            vars,
            BTreeMap::from([("A".into(), "plain".into()), ("B".into(), "it's two\nlines".into())])
        );
    }
}
