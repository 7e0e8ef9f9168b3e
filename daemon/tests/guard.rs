//! Promises of the guard, checked on real processes and in /proc, not by the daemon's own word.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use hermesd::config::Detached;
use hermesd::guard;
use hermesd::names::{Generation, ServerName};
use hermesd::process::limits::raise_descriptors;
use hermesd::process::stat::Process;
use hermesd::process::table::{self, INSTANCE_MARKER};
use hermesd::server::transport::ledger::{Entry, Identity, Ledger, Record};
use hermesd::server::transport::reaper::{GUARD_PATIENCE, LedgerState, Spared, reap_leftovers};
use hermesd::server::transport::stdio::{Child, Exit, Launch, LaunchError, NotExecutable, launch};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

/// Far above what any step takes on a loaded machine; reached only when something is broken.
const LIMIT: Duration = Duration::from_secs(60);
const BUDGET: Duration = Duration::from_secs(6);

/// Makes an executable in another process: a writable descriptor of ours could be inherited by a
/// child that some other test starts at this moment, and the program would be "busy" (ETXTBSY).
fn write_program(path: &std::path::Path, text: &str) {
    use std::io::Write;
    let mut sh = std::process::Command::new("/bin/sh");
    sh.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(path).stdin(std::process::Stdio::piped());
    let mut sh = sh.spawn().unwrap();
    sh.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(sh.wait().unwrap().success());
}

struct Bench {
    home: tempfile::TempDir,
    ledger: Ledger,
}

impl Bench {
    fn new() -> Self {
        static SUBREAPER: Once = Once::new();
        SUBREAPER.call_once(|| guard::become_subreaper().unwrap());
        let home = tempfile::tempdir().unwrap();
        let ledger = Ledger::new(home.path().join("children.json"));
        Self { home, ledger }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        write_program(&path, text);
        path
    }

    /// A launch of `sh -c text`.
    fn sh(&self, text: &str) -> Launch {
        self.command("/bin/sh", &["-c", text])
    }

    fn command(&self, program: impl Into<PathBuf>, args: &[&str]) -> Launch {
        let mut random = [0; 8];
        getrandom::fill(&mut random).unwrap();
        Launch {
            server: ServerName::new("w"),
            instance: format!("t{:016x}", u64::from_le_bytes(random)),
            generation: Generation(1),
            program: program.into(),
            args: args.iter().map(OsString::from).collect(),
            env: vec![
                ("PATH".into(), std::env::var_os("PATH").unwrap()),
                ("HOMEDIR".into(), self.home.path().into()),
            ],
            cwd: self.home.path().to_owned(),
            detached: Detached::End,
        }
    }

    async fn start(&self, what: &Launch) -> Child {
        self.try_start(what).await.unwrap()
    }

    async fn try_start(&self, what: &Launch) -> Result<Child, LaunchError> {
        launch(what.clone(), guard_exe(), &self.ledger).await
    }
}

fn guard_exe() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_hermesd"))
}

/// Waits for `condition`, never for time.
async fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let limit = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < limit, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn census(instance: &str) -> Vec<Process> {
    table::marked(INSTANCE_MARKER, instance)
}

fn read_pid(path: &Path) -> Option<u32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

async fn pid_in(path: PathBuf) -> u32 {
    let mut pid = None;
    wait_for("pid file", || {
        pid = read_pid(&path);
        pid.is_some()
    })
    .await;
    pid.unwrap()
}

async fn line_of(child: &mut Child) -> String {
    let mut line = String::new();
    tokio::time::timeout(LIMIT, BufReader::new(&mut child.stdout).read_line(&mut line))
        .await
        .unwrap()
        .unwrap();
    line.trim_end().to_owned()
}

fn kill(pid: u32, signal: rustix::process::Signal) {
    rustix::process::kill_process(table::as_pid(pid).unwrap(), signal).unwrap();
}

fn gone(pid: u32) -> bool {
    table::one(pid).is_none_or(|process| process.zombie)
}

/// Bytes go in and come out, the exit code is told, and nothing stays.
#[tokio::test]
async fn a_server_that_ends_at_stdin_end_is_stopped_with_its_own_exit_code() {
    let bench = Bench::new();
    let what = bench.sh("cat; echo bye >&2; exit 7");
    let mut child = bench.start(&what).await;
    child.stdin.write_all(b"hello\n").await.unwrap();
    assert_eq!(line_of(&mut child).await, "hello");
    drop(child.stdin);
    let stopped = child.control.stop(BUDGET).await.unwrap();
    assert_eq!(stopped.exit, Exit::Code(7));
    let mut text = String::new();
    child.stderr.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "bye\n");
    assert_eq!(census(&what.instance), []);
    assert!(table::one(child.guard_pid).is_none(), "the guard is reaped");
    assert_eq!(bench.ledger.entries(), []);
}

/// F001: the launcher goes, its grandchild sits in a session of its own; stop ends both.
#[tokio::test]
async fn stop_ends_a_launcher_and_its_grandchild_in_another_session() {
    let bench = Bench::new();
    let what = bench
        .sh("setsid sh -c 'echo $$ > $HOMEDIR/pid; trap \"\" TERM HUP; while :; do sleep 600; done' & cat");
    let mut child = bench.start(&what).await;
    let grandchild = pid_in(bench.path("pid")).await;
    assert_ne!(table::one(grandchild).unwrap().sid, child.guard_pid);
    drop(child.stdin);
    let stopped = child.control.stop(BUDGET).await.unwrap();
    assert_eq!(census(&what.instance), []);
    assert!(gone(grandchild));
    assert!(stopped.ended.iter().any(|ended| ended.pid == grandchild && ended.left_session), "{stopped:?}");
}

/// F003: neither stdin end nor TERM helps; the budget still holds.
#[tokio::test]
async fn a_server_that_ignores_stdin_end_and_term_is_killed_within_the_budget() {
    let bench = Bench::new();
    let what = bench.sh("trap '' TERM INT HUP; echo up; while :; do sleep 600; done");
    let mut child = bench.start(&what).await;
    assert_eq!(line_of(&mut child).await, "up");
    drop(child.stdin);
    let budget = Duration::from_secs(3);
    let begin = Instant::now();
    let stopped = child.control.stop(budget).await.unwrap();
    assert_eq!(stopped.exit, Exit::Signal(9));
    assert!(begin.elapsed() < budget, "{:?}", begin.elapsed());
    assert_eq!(census(&what.instance), []);
}

/// F023: a stopped process cannot hear TERM; it is continued so that it can.
#[tokio::test]
async fn a_stopped_server_hears_term() {
    let bench = Bench::new();
    let what = bench.sh("trap 'exit 5' TERM; echo up; while :; do sleep 0.01; done");
    let mut child = bench.start(&what).await;
    assert_eq!(line_of(&mut child).await, "up");
    kill(child.pid, rustix::process::Signal::STOP);
    assert_eq!(child.control.stop(BUDGET).await.unwrap().exit, Exit::Code(5));
}

/// A server that ends by itself is reported at once, then the rest of its tree goes.
#[tokio::test]
async fn kill_of_the_server_is_reported_and_its_helpers_end() {
    let bench = Bench::new();
    let what = bench.sh("(trap '' HUP; echo $HOMEDIR > $HOMEDIR/up; exec sleep 600) & wait");
    let mut child = bench.start(&what).await;
    wait_for("helper", || census(&what.instance).len() == 2).await;
    kill(child.pid, rustix::process::Signal::KILL);
    assert_eq!(child.control.exited().await, Exit::Signal(9));
    assert_eq!(child.control.exited().await, Exit::Signal(9), "asked twice, told twice");
    let stopped = child.control.wait_empty(BUDGET).await.unwrap();
    assert_eq!(census(&what.instance), []);
    assert_eq!(stopped.ended.len(), 1);
    assert!(!stopped.ended[0].left_session);
}

/// Design 4: if the guard itself is killed, everything with the marker ends before a new generation.
#[tokio::test]
async fn kill_of_the_guard_leaves_nothing() {
    let bench = Bench::new();
    let what = bench.sh("setsid sh -c 'echo $$ > $HOMEDIR/pid; trap \"\" TERM; while :; do sleep 600; done' & sleep 600 & cat");
    let mut child = bench.start(&what).await;
    let grandchild = pid_in(bench.path("pid")).await;
    kill(child.guard_pid, rustix::process::Signal::KILL);
    assert_eq!(child.control.exited().await, Exit::GuardLost);
    // Its stdin is still open, so only the kernel's word to it can have ended the server already.
    wait_for("the server dies with its guard", || gone(child.pid)).await;
    let stopped = child.control.wait_empty(BUDGET).await.unwrap();
    assert_eq!(stopped.exit, Exit::GuardLost);
    assert_eq!(census(&what.instance), []);
    assert!(gone(grandchild) && gone(child.pid));
    assert!(table::one(child.guard_pid).is_none());
    wait_for("no zombie below this process", || {
        guard::reap_orphans();
        table::children(table::own_pid())
            .iter()
            .all(|process| process.pid != child.pid && process.pid != grandchild)
    })
    .await;
}

/// A guard that hangs (here: stopped) costs no more than the budget.
#[tokio::test]
async fn a_deaf_guard_does_not_protect_its_server() {
    let bench = Bench::new();
    let what = bench.sh("trap '' TERM; echo up; while :; do sleep 600; done");
    let mut child = bench.start(&what).await;
    assert_eq!(line_of(&mut child).await, "up");
    kill(child.guard_pid, rustix::process::Signal::STOP);
    child.control.stop(Duration::from_secs(2)).await.unwrap();
    assert_eq!(census(&what.instance), []);
    assert!(gone(child.guard_pid));
}

/// F015: signals of a terminal or a service manager change nothing; only the lifeline counts.
#[tokio::test]
async fn a_guard_ignores_signals_and_its_server_shares_no_group_with_the_daemon() {
    let bench = Bench::new();
    let what = bench.sh("cat");
    let mut child = bench.start(&what).await;
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT, rustix::process::Signal::HUP]
    {
        kill(child.guard_pid, signal);
    }
    child.stdin.write_all(b"still here\n").await.unwrap();
    assert_eq!(line_of(&mut child).await, "still here");
    let me = table::one(table::own_pid()).unwrap();
    let guard = table::one(child.guard_pid).unwrap();
    let server = table::one(child.pid).unwrap();
    assert_eq!((guard.sid, guard.pgid), (guard.pid, guard.pid));
    assert_eq!((server.sid, server.pgid), (guard.pid, server.pid));
    assert_ne!(guard.sid, me.sid);
    drop(child.stdin);
    child.control.stop(BUDGET).await.unwrap();
}

/// F028, and the server's signals are as at login whatever the guard blocks.
#[tokio::test]
async fn a_server_sees_descriptors_0_to_2_default_signals_and_exactly_its_environment() {
    let bench = Bench::new();
    let _open = std::fs::File::open("/dev/null").unwrap();
    let mut what = bench.sh("grep -E '^Sig(Blk|Ign)' /proc/$$/status | tr '\\n\\t' '  '; pwd; cat; :");
    what.env.push(("A_SECRET".into(), "s3cret-value".into()));
    let mut child = bench.start(&what).await;
    // Signals 32 and 33 belong to the C library, which refuses to change what this process inherited.
    let line = line_of(&mut child).await.replace("SigIgn: 0000000180000000", "SigIgn: 0000000000000000");
    let home = bench.home.path().canonicalize().unwrap();
    assert_eq!(
        line,
        format!("SigBlk: {z} SigIgn: {z} {home}", z = "0000000000000000", home = home.display())
    );
    child.stdin.write_all(b"exec is over\n").await.unwrap();
    assert_eq!(line_of(&mut child).await, "exec is over");
    let numbers = |pid: u32| {
        let mut list: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        list.sort();
        list
    };
    assert_eq!(numbers(child.pid), ["0", "1", "2"]);
    let environ = std::fs::read(format!("/proc/{}/environ", child.pid)).unwrap();
    let mut names: Vec<_> = environ
        .split(|b| *b == 0)
        .filter(|entry| !entry.is_empty())
        .map(|entry| String::from_utf8_lossy(entry.split(|b| *b == b'=').next().unwrap()).into_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["A_SECRET", "HERMESD_INSTANCE", "HOMEDIR", "PATH"]);
    // What everybody can read about the guard names neither the command nor a secret.
    let guard_line = std::fs::read(format!("/proc/{}/cmdline", child.guard_pid)).unwrap();
    assert_eq!(guard_line, b"hermesd\0guard\0");
    let guard_env = std::fs::read_to_string(format!("/proc/{}/environ", child.guard_pid)).unwrap();
    let marker = bench.ledger.entries()[0].guard_marker.clone();
    assert_eq!(guard_env, format!("HERMESD_GUARD={marker}\0"));
    assert_eq!(table::one(child.guard_pid).unwrap().name, "guard w");
    // The guard holds the channel and no pipe of the server.
    let mut fds: Vec<_> = std::fs::read_dir(format!("/proc/{}/fd", child.guard_pid))
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (
                entry.file_name().into_string().unwrap(),
                std::fs::read_link(entry.path()).unwrap().to_string_lossy().into_owned(),
            )
        })
        .collect();
    fds.sort();
    assert_eq!(fds.len(), 4, "{fds:?}");
    assert!(
        fds[..3].iter().all(|(_, target)| target == "/dev/null") && fds[3].1.starts_with("socket:"),
        "{fds:?}"
    );
    drop(child.stdin);
    child.control.stop(BUDGET).await.unwrap();
}

/// The daemon raises its own limit; its servers start with the one it was started with.
#[tokio::test]
async fn a_raised_descriptor_limit_stays_with_the_daemon() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let bench = Bench::new();
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(900), maximum: before.maximum }).unwrap();
    let raised = raise_descriptors();
    assert_eq!(raised.from, Some(900));
    assert!(raised.to > Some(900) && getrlimit(Resource::Nofile).current == raised.to, "{raised:?}");
    let mut child = bench.start(&bench.sh("ulimit -Sn; cat")).await;
    assert_eq!(line_of(&mut child).await, "900");
    drop(child.stdin);
    child.control.stop(BUDGET).await.unwrap();
}

/// The guard is the only subreaper between a server and the daemon: it has no second thread.
#[tokio::test]
async fn a_guard_has_one_thread_and_little_memory() {
    let bench = Bench::new();
    let what = bench.sh("cat");
    let mut child = bench.start(&what).await;
    assert_eq!(std::fs::read_dir(format!("/proc/{}/task", child.guard_pid)).unwrap().count(), 1);
    let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", child.guard_pid)).unwrap();
    for line in rollup.lines().filter(|line| {
        ["Rss:", "Pss:", "Pss_Anon:", "Private_Dirty:"].iter().any(|name| line.starts_with(name))
    }) {
        println!("guard {line}");
    }
    drop(child.stdin);
    child.control.stop(BUDGET).await.unwrap();
}

/// Each cause of a failed start has its own name, and none leaves a process or a zombie.
#[tokio::test]
async fn a_start_that_cannot_work_says_which_part_is_wrong() {
    let bench = Bench::new();
    let plain = bench.path("plain");
    std::fs::write(&plain, "echo hi\n").unwrap();
    let no_format = bench.script("no_format", "\0\0\0\0");
    let orphan_script = bench.script("orphan", "#!/no/such/python -u\n");
    type Expected = fn(&LaunchError) -> bool;
    let cases: [(Launch, Expected); 7] = [
        (
            bench.command("/no/such/program", &[]),
            |error| matches!(error, LaunchError::NotFound { program } if program.ends_with("program")),
        ),
        (bench.command(&plain, &[]), |error| {
            matches!(error, LaunchError::NotExecutable { reason: NotExecutable::Permission, .. })
        }),
        (bench.command(bench.home.path(), &[]), |error| {
            matches!(error, LaunchError::NotExecutable { reason: NotExecutable::Folder, .. })
        }),
        (bench.command(&no_format, &[]), |error| {
            matches!(error, LaunchError::NotExecutable { reason: NotExecutable::Format, .. })
        }),
        (
            bench.command(&orphan_script, &[]),
            |error| matches!(error, LaunchError::NoInterpreter { interpreter, .. } if interpreter == "/no/such/python"),
        ),
        (
            Launch { cwd: "/no/such/folder".into(), ..bench.sh("cat") },
            |error| matches!(error, LaunchError::BadCwd { cwd, .. } if cwd.ends_with("folder")),
        ),
        (bench.command("/bin/sh", &["-c", &"x".repeat(3 * 1024 * 1024)]), |error| {
            matches!(error, LaunchError::BadArguments { .. })
        }),
    ];
    for (what, expected) in cases {
        let error = bench.try_start(&what).await.unwrap_err();
        assert!(expected(&error) && error.is_permanent(), "{error:?}");
        assert_eq!(census(&what.instance), []);
    }
    assert_eq!(bench.ledger.entries(), []);
    let no_guard = launch(bench.sh("cat"), Path::new("/no/such/hermesd"), &bench.ledger).await.unwrap_err();
    assert!(matches!(no_guard, LaunchError::Guard { .. }) && !no_guard.is_permanent(), "{no_guard:?}");
}

/// `detached: keep`: what left the session on purpose lives on; the rest ends.
#[tokio::test]
async fn a_kept_daemon_outlives_the_stop_and_everything_else_does_not() {
    let bench = Bench::new();
    let mut what = bench.sh("setsid sh -c 'echo $$ > $HOMEDIR/pid; exec sleep 600' & sleep 600 & cat");
    what.detached = Detached::Keep;
    let mut child = bench.start(&what).await;
    let kept = pid_in(bench.path("pid")).await;
    drop(child.stdin);
    let stopped = child.control.stop(BUDGET).await.unwrap();
    assert_eq!(census(&what.instance).iter().map(|process| process.pid).collect::<Vec<_>>(), [kept]);
    assert!(stopped.ended.iter().all(|ended| !ended.left_session), "{stopped:?}");
    assert!(gone(child.pid));
    kill(kept, rustix::process::Signal::KILL);
    wait_for("the kept one is reaped as an orphan", || {
        guard::reap_orphans();
        table::one(kept).is_none()
    })
    .await;
}

/// A dropped handle (a panic above) is a lost lifeline: nothing stays, and the guard is reaped as an orphan.
#[tokio::test]
async fn a_dropped_handle_ends_the_server() {
    let bench = Bench::new();
    let what = bench.sh("setsid sleep 600 & cat");
    let child = bench.start(&what).await;
    let guard_pid = child.guard_pid;
    drop(child);
    wait_for("everything gone", || {
        guard::reap_orphans();
        census(&what.instance).is_empty() && table::one(guard_pid).is_none()
    })
    .await;
}

/// A start that is given up leaves neither a process nor a line in the ledger, wherever it was.
#[tokio::test]
async fn a_start_that_is_given_up_leaves_nothing() {
    let bench = Bench::new();
    let mut given_up = 0;
    for microseconds in [0, 200, 500, 1000, 2000, 4000, 8000] {
        let what = bench.sh("setsid sleep 600 & cat");
        match tokio::time::timeout(Duration::from_micros(microseconds), bench.try_start(&what)).await {
            Ok(child) => drop(child.unwrap().control.stop(BUDGET).await.unwrap()),
            Err(_) => given_up += 1,
        }
        wait_for("nothing of it left", || census(&what.instance).is_empty()).await;
        assert_eq!(bench.ledger.entries(), []);
    }
    assert!(given_up > 0);
}

/// F021: the client program ends, the container does not; it is stopped by its own id.
#[tokio::test]
async fn a_container_is_stopped_by_its_id() {
    let bench = Bench::new();
    let docker = bench.script("docker", FAKE_DOCKER);
    let what = bench.command(&docker, &["--context", "far", "run", "-i", "--rm", "mcp/thing"]);
    let mut child = bench.start(&what).await;
    let container = pid_in(bench.path("container.pid")).await;
    drop(child.stdin);
    child.control.stop(Duration::from_secs(10)).await.unwrap();
    let calls = std::fs::read_to_string(bench.path("calls")).unwrap();
    let mut calls = calls.lines();
    assert!(
        calls
            .next()
            .unwrap()
            .starts_with(&format!("--context far run --label hermesd.instance={} --cidfile ", what.instance))
    );
    assert_eq!(
        calls.collect::<Vec<_>>(),
        ["--context far stop -t 1 cid-of-this-one", "--context far rm -f cid-of-this-one"]
    );
    assert!(gone(container), "the fake's stop ends it");
    assert_eq!(std::fs::read_dir(bench.ledger.folder()).unwrap().count(), 0, "the id file is removed");
}

/// A user's own id file is the user's: the container is found by its label. The guard is killed,
/// so that the daemon's side has to do it.
#[tokio::test]
async fn a_container_is_found_by_its_label_even_when_its_guard_was_killed() {
    let bench = Bench::new();
    let docker = bench.script("docker", FAKE_DOCKER);
    let own = bench.path("own.cid");
    let what = bench.command(&docker, &["run", "--cidfile", own.to_str().unwrap(), "-i", "mcp/thing"]);
    let mut child = bench.start(&what).await;
    let container = pid_in(bench.path("container.pid")).await;
    kill(child.guard_pid, rustix::process::Signal::KILL);
    child.control.wait_empty(Duration::from_secs(10)).await.unwrap();
    let calls = std::fs::read_to_string(bench.path("calls")).unwrap();
    let filter = format!("ps -aq --filter label=hermesd.instance={}", what.instance);
    assert_eq!(calls.lines().skip(1).collect::<Vec<_>>(), [filter.as_str(), "stop -t 1 cid-of-this-one"]);
    assert!(gone(container) && own.exists());
    assert_eq!(census(&what.instance), []);
}

/// A `docker` whose container is a process that nothing on this machine would find as a child.
const FAKE_DOCKER: &str = r#"#!/bin/sh
home=$(dirname "$0")
echo "$*" >> "$home/calls"
case " $* " in
*" run "*)
    while [ "$1" != --cidfile ]; do shift; done
    printf cid-of-this-one > "$2"
    env -i setsid sh -c 'echo $$ > '"$home"'/container.pid; exec sleep 600' > /dev/null < /dev/null 2>&1 &
    cat ;;
*" ps "*) echo cid-of-this-one ;;
*" stop "*) kill -9 "$(cat "$home/container.pid")" ;;
esac
exit 0
"#;

/// Without a daemon at the other end a guard has nothing to do.
#[test]
fn a_guard_started_by_hand_ends_at_once() {
    let by_hand = std::process::Command::new(guard_exe())
        .arg("guard")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert_eq!((by_hand.status.code(), by_hand.stdout.len()), (Some(2), 0));
    let said = String::from_utf8(by_hand.stderr).unwrap();
    assert!(said.starts_with("error: `hermesd guard` is internal"), "{said}");
}

/// Re-executed by the tests below as "the daemon" that gets killed. Does nothing by itself.
#[tokio::test]
async fn helper_daemon() {
    let Some(home) = std::env::var_os("HELPER_HOME").map(PathBuf::from) else { return };
    guard::become_subreaper().unwrap();
    let bench = Bench::new();
    let ledger = Ledger::new(home.join("children.json"));
    let mut kept = Vec::new();
    for n in 0..2 {
        let text = format!(
            "setsid sh -c 'trap \"\" TERM; echo $$ > $HOMEDIR/pid{n}; while :; do sleep 600; done' & echo $$ > $HOMEDIR/leader{n}; cat"
        );
        let mut what = bench.sh(&text);
        what.env.retain(|(name, _)| name != "HOMEDIR");
        what.env.push(("HOMEDIR".into(), home.clone().into()));
        what.instance = format!("{}-{n}", std::env::var("HELPER_INSTANCE").unwrap());
        kept.push(launch(what, guard_exe(), &ledger).await.unwrap());
    }
    std::fs::write(home.join("ready"), "").unwrap();
    std::future::pending::<()>().await;
}

struct Helper {
    home: tempfile::TempDir,
    instance: String,
    process: std::process::Child,
    guards: Vec<u32>,
}

impl Helper {
    async fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut random = [0; 8];
        getrandom::fill(&mut random).unwrap();
        let instance = format!("h{:016x}", u64::from_le_bytes(random));
        let process = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["helper_daemon", "--exact", "--nocapture"])
            .env("HELPER_HOME", home.path())
            .env("HELPER_INSTANCE", &instance)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        for file in ["ready", "pid0", "pid1", "leader0", "leader1"] {
            wait_for(file, || home.path().join(file).exists()).await;
        }
        let record = std::fs::read(home.path().join("children.json")).unwrap();
        let record: Record = serde_json::from_slice(&record).unwrap();
        let guards: Vec<u32> = record.children.iter().map(|entry| entry.guard.pid).collect();
        assert_eq!(guards.len(), 2);
        Self { home, instance, process, guards }
    }

    fn census(&self) -> Vec<Process> {
        (0..2).flat_map(|n| census(&format!("{}-{n}", self.instance))).collect()
    }

    fn ledger(&self) -> PathBuf {
        self.home.path().join("children.json")
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// F004: after `kill -9` of the daemon its guards end everything without any next start.
#[tokio::test]
async fn kill_of_the_daemon_leaves_nothing_even_without_a_next_start() {
    let mut helper = Helper::start().await;
    assert!(helper.census().len() >= 4);
    helper.kill();
    let guards = helper.guards.clone();
    wait_for("all servers and guards gone", || {
        guard::reap_orphans();
        helper.census().is_empty() && guards.iter().all(|pid| gone(*pid))
    })
    .await;
    let report =
        tokio::task::spawn_blocking(move || reap_leftovers(&helper.ledger(), GUARD_PATIENCE)).await.unwrap();
    assert_eq!((report.ledger, report.ended.len(), report.survivors.len()), (LedgerState::Read, 0, 0));
}

/// F004, worst case: daemon and guards all killed at once; the next start's reaper ends the rest.
#[tokio::test]
async fn the_reaper_ends_what_daemon_and_guards_left() {
    let mut helper = Helper::start().await;
    helper.guards.iter().for_each(|pid| kill(*pid, rustix::process::Signal::STOP));
    helper.kill();
    helper.guards.iter().for_each(|pid| kill(*pid, rustix::process::Signal::KILL));
    wait_for("the leaders died with their guards", || helper.guards.iter().all(|pid| gone(*pid))).await;
    assert!(helper.census().len() >= 2, "the grandchildren live");
    let (ledger, instance) = (helper.ledger(), helper.instance.clone());
    let path = ledger.clone();
    let report = tokio::task::spawn_blocking(move || reap_leftovers(&path, GUARD_PATIENCE)).await.unwrap();
    assert_eq!(report.ledger, LedgerState::Read);
    assert!(report.ended.len() >= 2 && report.survivors.is_empty(), "{report:?}");
    assert_eq!((0..2).flat_map(|n| census(&format!("{instance}-{n}"))).count(), 0);
    assert!(!ledger.exists());
}

/// A ledger entry that names somebody else's process ends nobody.
#[tokio::test]
async fn the_reaper_never_touches_a_stranger() {
    let bench = Bench::new();
    let sleeper = || {
        let mut command = std::process::Command::new("sleep");
        command.arg("600").stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command
    };
    let mut stranger = sleeper().spawn().unwrap();
    let mut marked = sleeper().env(INSTANCE_MARKER, "somebody-elses").spawn().unwrap();
    wait_for("exec", || table::carries(marked.id(), INSTANCE_MARKER, "somebody-elses")).await;
    let of = |pid| Identity::of(pid).unwrap();
    let later = Identity { start: of(stranger.id()).start + 1, ..of(stranger.id()) };
    let entry = |instance: &str, guard, leader| Entry {
        server: "w".to_owned(),
        generation: 1,
        instance: instance.to_owned(),
        guard_marker: instance.to_owned(),
        guard,
        leader: Some(leader),
        keep_leavers: false,
        container: None,
    };
    // A reused pid (other start time), and the right pid and time without the marker.
    bench.ledger.record(entry("gone-1", later, later)).await.unwrap();
    bench.ledger.record(entry("gone-2", of(stranger.id()), of(marked.id()))).await.unwrap();
    let path = bench.path("children.json");
    let report = reap_leftovers(&path, Duration::ZERO);
    assert_eq!(report.ended, []);
    assert_eq!(
        report.spared.iter().map(|(_, why)| *why).collect::<Vec<_>>(),
        [Spared::PidReused, Spared::PidReused, Spared::NoMarker, Spared::NoMarker]
    );

    // The right marker on a process older than the guard that is said to have started it.
    let reused = Identity { start: of(marked.id()).start + 1, ..of(marked.id()) };
    bench.ledger.record(entry("somebody-elses", reused, reused)).await.unwrap();
    let report = reap_leftovers(&path, Duration::ZERO);
    assert_eq!((report.ended, report.survivors), (Vec::new(), Vec::new()));

    // The same with a matching marker, but from another boot, another user, a damaged file.
    bench.ledger.record(entry("somebody-elses", of(marked.id()), of(marked.id()))).await.unwrap();
    let good = std::fs::read_to_string(&path).unwrap();
    let boot = table::boot_id().unwrap();
    let cases = [
        (good.replace(&boot, "0-0-0"), LedgerState::OtherBoot),
        (
            good.replace(&format!("\"uid\": {}", rustix::process::getuid().as_raw()), "\"uid\": 4294967294"),
            LedgerState::OtherUser,
        ),
    ];
    for (text, state) in cases {
        assert_ne!(text, good);
        std::fs::write(&path, text).unwrap();
        assert_eq!(reap_leftovers(&path, Duration::ZERO).ledger, state);
    }
    for text in ["", "{", &good.replace("\"version\": 1", "\"version\": 2"), &good[..good.len() / 2]] {
        std::fs::write(&path, text).unwrap();
        let report = reap_leftovers(&path, Duration::ZERO);
        assert!(matches!(report.ledger, LedgerState::Damaged { .. }), "{report:?}");
    }
    std::fs::remove_file(&path).unwrap();
    assert_eq!(reap_leftovers(&path, Duration::ZERO).ledger, LedgerState::Missing);
    for child in [&mut stranger, &mut marked] {
        assert!(child.try_wait().unwrap().is_none(), "the stranger lives");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// A killed nursery costs nothing but its memory: running servers stay, new ones start.
#[tokio::test]
async fn kill_of_the_nursery_disturbs_nobody() {
    let bench = Bench::new();
    let what = bench.sh("cat");
    let mut first = bench.start(&what).await;
    for nursery in table::children(table::own_pid()).iter().filter(|process| process.name == "guard nursery")
    {
        table::signal(nursery, rustix::process::Signal::KILL);
    }
    let what = bench.sh("cat");
    let mut second = bench.start(&what).await;
    for child in [&mut first, &mut second] {
        child.stdin.write_all(b"alive\n").await.unwrap();
        assert_eq!(line_of(child).await, "alive");
    }
    for mut child in [first, second] {
        drop(child.stdin);
        assert_eq!(child.control.stop(BUDGET).await.unwrap().exit, Exit::Code(0));
    }
}

/// Stubborn servers that are stopped together share the time, they do not add it up.
#[tokio::test]
async fn twenty_stubborn_servers_stop_together() {
    let bench = Bench::new();
    let all: Vec<Launch> =
        (0..20).map(|_| bench.sh("trap '' TERM; echo up; while :; do sleep 600; done")).collect();
    let children = futures_util::future::join_all(all.iter().map(|what| async {
        let mut child = bench.start(what).await;
        assert_eq!(line_of(&mut child).await, "up");
        child
    }))
    .await;
    assert_eq!(bench.ledger.entries().len(), 20);
    let begin = Instant::now();
    let stops = children.into_iter().map(|mut child| async move {
        drop(child.stdin);
        child.control.stop(BUDGET).await.unwrap()
    });
    for stopped in futures_util::future::join_all(stops).await {
        assert_eq!(stopped.exit, Exit::Signal(9));
    }
    assert!(begin.elapsed() < BUDGET, "{:?}", begin.elapsed());
    assert!(all.iter().all(|what| census(&what.instance).is_empty()));
    assert_eq!(bench.ledger.entries(), []);
}

/// F006, F012: many generations leave neither processes nor zombies nor descriptors.
#[tokio::test]
async fn many_generations_leave_no_trace() {
    let bench = Bench::new();
    let mut spawn_times = Vec::new();
    for round in 0..12 {
        let what = bench.sh(if round % 2 == 0 { "cat" } else { "exit 3" });
        let begin = Instant::now();
        let mut child = bench.start(&what).await;
        spawn_times.push(begin.elapsed());
        drop(child.stdin);
        child.control.stop(BUDGET).await.unwrap();
        assert_eq!(census(&what.instance), []);
        assert!(table::one(child.guard_pid).is_none() && table::one(child.pid).is_none());
    }
    spawn_times.sort();
    println!("launch median {:?} worst {:?}", spawn_times[6], spawn_times[11]);
}
