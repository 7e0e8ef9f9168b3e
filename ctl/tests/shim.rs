//! The real shim process against a scripted daemon on a real socket.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);
const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
const WELCOME: &str = r#"hermes-mcp/1 {"answer":"ok","version":"9","id_prefix":"p","resumed":true}"#;

struct Home {
    dir: tempfile::TempDir,
    listener: Option<UnixListener>,
}

struct Session {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    hello: String,
}

impl Home {
    /// A home with a socket where a daemon of this home listens when no variable says otherwise.
    fn new() -> Self {
        let mut home = Self { dir: tempfile::tempdir().unwrap(), listener: None };
        fs::DirBuilder::new().mode(0o700).recursive(true).create(home.run_dir()).unwrap();
        home.listen();
        home
    }

    fn run_dir(&self) -> PathBuf {
        self.dir.path().join(".hermes/run")
    }

    fn listen(&mut self) {
        let path = self.run_dir().join("mcp.sock");
        let _ = fs::remove_file(&path);
        self.listener = Some(UnixListener::bind(path).unwrap());
    }

    /// What clients give their servers, and the folder of the socket.
    fn shim(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hermesctl"));
        command.args(["mcp", "serve", "--no-spawn"]).args(args).env_clear();
        command.env("HOME", self.dir.path()).env("PATH", "/usr/bin:/bin").env("TERM", "dumb");
        command.env("LOGNAME", "u").env("USER", "u").env("SHELL", "/bin/sh");
        command.env("HERMESD_RUNTIME_DIR", self.run_dir());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        command
    }

    fn accept(&self) -> Session {
        let (stream, _) = self.listener.as_ref().unwrap().accept().unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut hello = String::new();
        reader.read_line(&mut hello).unwrap();
        let mut session = Session { reader, writer: stream, hello };
        session.say(WELCOME);
        session
    }
}

impl Session {
    fn say(&mut self, line: &str) {
        self.writer.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end_matches('\n').to_owned()
    }
}

struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Client {
    fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        Self { child, stdin, stdout: BufReader::new(stdout) }
    }

    fn say(&mut self, line: &str) {
        self.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end_matches('\n').to_owned()
    }

    fn close_stdin(&mut self) {
        self.stdin = None;
    }

    #[track_caller]
    fn ends(self) -> ExitStatus {
        ends(self.child)
    }
}

#[track_caller]
fn ends(mut child: Child) -> ExitStatus {
    let (tell, told) = mpsc::channel();
    let pid = child.id();
    std::thread::spawn(move || tell.send(child.wait()));
    match told.recv_timeout(LIMIT) {
        Ok(status) => status.unwrap(),
        Err(_) => {
            let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            panic!("the shim does not end");
        }
    }
}

/// After stdin ends, answers that come late are still delivered; then the shim ends with success.
#[test]
fn answers_are_flushed_after_the_client_closed_its_side() {
    let home = Home::new();
    let mut client = Client::start(home.shim(&["--profile", "work", "--only", "servers"]));
    client.say(CALL);
    let mut session = home.accept();
    assert!(session.hello.contains(r#""profile":"work","only":"servers""#), "{}", session.hello);
    client.close_stdin();
    assert_eq!(session.hear(), CALL);
    assert_eq!(session.hear(), "", "the half-close arrives as the end of the stream");
    session.say(r#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#);
    drop(session);
    assert_eq!(client.hear(), r#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#);
    assert!(client.ends().success());
}

/// What does not parse is the daemon's to answer, and the stream goes on.
#[test]
fn nonsense_from_the_client_passes_and_harms_nothing() {
    let home = Home::new();
    let mut client = Client::start(home.shim(&[]));
    client.say("not json");
    client.say(LIST);
    let mut session = home.accept();
    assert_eq!(session.hear(), "not json");
    assert_eq!(session.hear(), LIST);
}

/// The daemon dies with a call and a list open: the call is reported as unknown and never sent
/// again, the list is, and the client's pipe stays open.
#[test]
fn a_lost_daemon_costs_the_calls_in_flight_and_nothing_else() {
    let mut home = Home::new();
    let mut client = Client::start(home.shim(&[]));
    client.say(CALL);
    client.say(LIST);
    let mut session = home.accept();
    assert_eq!((session.hear().as_str(), session.hear().as_str()), (CALL, LIST));
    session.say("#resume v1.abc");
    session.say(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#);
    assert!(client.hear().contains("notifications/message"));
    home.listener = None;
    drop(session);
    let unknown = client.hear();
    assert!(unknown.contains(r#""id":1"#) && unknown.contains("outcome unknown"), "{unknown}");
    home.listen();
    let mut session = home.accept();
    assert!(session.hello.contains(r#""resume":"v1.abc""#), "{}", session.hello);
    assert_eq!(session.hear(), LIST);
    session.say(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
    assert!(client.hear().contains(r#""id":2"#));
    client.close_stdin();
    assert_eq!(session.hear(), "");
    drop(session);
    assert!(client.ends().success());
}

/// The client is killed: the shim ends at once although the daemon keeps the connection.
#[test]
fn the_shim_ends_with_its_client() {
    let home = Home::new();
    let mut client = Client::start(home.shim(&[]));
    client.say(CALL);
    let mut session = home.accept();
    assert_eq!(session.hear(), CALL);
    let Client { child, stdin, stdout } = client;
    drop(stdout);
    assert!(ends(child).success());
    drop(stdin);
}

/// The client's stdin is held open by a stranger and the client itself is gone.
#[test]
#[cfg(target_os = "linux")]
fn the_shim_ends_with_its_parent_even_if_a_stranger_holds_the_pipe() {
    let home = Home::new();
    let shim = home.shim(&[]);
    let (ours, theirs) = std::io::pipe().unwrap();
    let (answers, answers_end) = std::io::pipe().unwrap();
    // The shell is the client: it starts the shim in the background and waits to be killed.
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg("\"$@\" <&3 & read x").arg("sh").arg(shim.get_program()).args(shim.get_args());
    shell.env_clear().envs(shim.get_envs().filter_map(|(k, v)| Some((k, v?))));
    // dash gives background jobs /dev/null, so the pipe travels as fd 3 of a wrapper shell.
    let mut outer = Command::new("/bin/sh");
    outer.arg("-c").arg("exec 3<&0; exec \"$@\"").arg("sh").arg(shell.get_program()).args(shell.get_args());
    outer.env_clear().envs(shell.get_envs().filter_map(|(k, v)| Some((k, v?))));
    outer.stdin(ours).stdout(answers_end).stderr(Stdio::inherit());
    let mut parent = outer.spawn().unwrap();
    drop(outer);
    let mut session = home.accept();
    parent.kill().unwrap();
    parent.wait().unwrap();
    assert_eq!(session.hear(), "", "the shim ends its side");
    drop(session);
    let mut left = String::new();
    std::io::Read::read_to_string(&mut &answers, &mut left).unwrap();
    assert_eq!(left, "");
    drop(theirs);
}

/// A client that never reads its answers is still heard, and the daemon is not read without bound.
#[test]
fn a_client_that_does_not_read_is_still_heard() {
    let home = Home::new();
    let mut client = Client::start(home.shim(&[]));
    client.say(LIST);
    let mut session = home.accept();
    assert_eq!(session.hear(), LIST);
    let note = format!(r#"{{"jsonrpc":"2.0","method":"{}"}}"#, "n".repeat(64 * 1024));
    session.writer.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut written = 0;
    while session.writer.write_all(format!("{note}\n").as_bytes()).is_ok() {
        written += note.len();
        assert!(written < 64 * 1024 * 1024, "the shim swallows without bound");
    }
    client.say(CALL);
    assert_eq!(session.hear(), CALL);
}

/// Socketpairs as Node gives them, a file as input, /dev/null as output; no shared description is
/// made non-blocking.
#[test]
fn any_kind_of_stdio_works_and_is_left_as_it_was() {
    let home = Home::new();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let kept: OwnedFd = theirs.try_clone().unwrap().into();
    let mut command = home.shim(&[]);
    command.stdin(OwnedFd::from(theirs.try_clone().unwrap())).stdout(OwnedFd::from(theirs));
    let child = command.spawn().unwrap();
    drop(command);
    (&ours).write_all(format!("{LIST}\n").as_bytes()).unwrap();
    let mut session = home.accept();
    assert_eq!(session.hear(), LIST);
    let long = format!(r#"{{"jsonrpc":"2.0","id":2,"result":"{}"}}"#, "y".repeat(3_000_000));
    session.say(&long);
    let mut answer = String::new();
    BufReader::new(ours.try_clone().unwrap()).read_line(&mut answer).unwrap();
    assert_eq!(answer.trim_end(), long);
    let flags = rustix::fs::fcntl_getfl(kept.as_fd()).unwrap();
    assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK));
    drop(kept);
    drop(ours);
    assert!(ends(child).success());

    let input = home.dir.path().join("input");
    fs::write(&input, LIST).unwrap();
    let mut command = home.shim(&[]);
    command.stdin(fs::File::open(&input).unwrap()).stdout(Stdio::null());
    let child = command.spawn().unwrap();
    let mut session = home.accept();
    assert_eq!(session.hear(), LIST);
    assert_eq!(session.hear(), "");
    session.say(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
    drop(session);
    assert!(ends(child).success());
}

/// 32 MiB up and 32 MiB down, byte for byte, while both sides read and write at their own pace.
#[test]
fn the_longest_lines_pass_unchanged() {
    let home = Home::new();
    let mut client = Client::start(home.shim(&[]));
    let body = "z".repeat(32 * 1024 * 1024 - 200);
    let up = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"p":"{body}"}}}}"#);
    let down = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"p":"{body}"}}}}"#);
    let (mut stdin, sent) = (client.stdin.take().unwrap(), up.clone());
    let writer = std::thread::spawn(move || {
        stdin.write_all(format!("{sent}\n").as_bytes()).unwrap();
        stdin
    });
    let mut session = home.accept();
    assert!(session.hear() == up, "the request was changed");
    let answered = down.clone();
    let daemon = std::thread::spawn(move || {
        session.say(&answered);
        session
    });
    assert!(client.hear() == down, "the answer was changed");
    drop((writer.join().unwrap(), daemon.join().unwrap()));
}

/// No daemon and none may be started: each request is answered at once with what to do.
#[test]
fn without_a_daemon_each_request_gets_an_error_with_a_hint() {
    let mut home = Home::new();
    home.listener = None;
    let mut client = Client::start(home.shim(&[]));
    for _ in 0..2 {
        client.say(LIST);
        let answer = client.hear();
        assert!(
            answer.contains(r#""id":2,"error""#) && answer.contains("hermesctl daemon start"),
            "{answer}"
        );
    }
    home.listen();
    client.say(CALL);
    let mut session = home.accept();
    assert_eq!(session.hear(), CALL, "a daemon that came later serves the same client");
}

/// A shim that one of our own servers started would close a circle.
#[test]
fn a_shim_below_one_of_our_servers_refuses() {
    let home = Home::new();
    let mut command = home.shim(&[]);
    command.env("HERMESD_INSTANCE", "x");
    let mut client = Client::start(command);
    client.say(LIST);
    assert!(client.hear().contains("does not serve its own servers"));
    client.close_stdin();
    assert!(client.ends().success());
}

/// Without stdin there is nothing to serve; nothing is written.
#[test]
fn a_client_that_is_gone_before_it_came_costs_nothing() {
    let mut home = Home::new();
    home.listener = None;
    let mut command = home.shim(&[]);
    command.stdin(Stdio::null());
    let mut client = Client::start(command);
    assert_eq!(client.hear(), "");
    assert!(client.ends().success());
}
