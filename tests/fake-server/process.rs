//! The fake server as a process: its grandchildren, its signals, its journal.

use hermes_tests::journal::Entry;
use hermes_tests::script::Fork;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Appends to the journal; each entry is one write, so that several processes may share a file.
#[derive(Clone)]
pub(crate) struct Log(pub(crate) Option<PathBuf>);

impl Log {
    pub(crate) fn note(&self, event: &str, text: &str) {
        let Some(path) = &self.0 else { return };
        let cut: String =
            if text.len() > 16384 { format!("cut after {} bytes", text.len()) } else { text.to_owned() };
        let entry = Entry { pid: std::process::id(), event: event.to_owned(), text: cut };
        let mut line = serde_json::to_vec(&entry).expect("an entry holds only strings and a number");
        line.push(b'\n');
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        let _ = file.and_then(|mut f| f.write_all(&line));
    }
}

#[allow(clippy::zombie_processes)] // the careless launcher is the point
/// Starts a process below this one; `mark` goes into its command line for the census.
pub(crate) fn fork(kind: Fork, mark: &str) {
    let exe = std::env::current_exe().expect("the kernel knows the running program");
    let mut command = Command::new(exe);
    command.args(["--sleeper", mark]);
    match kind {
        Fork::Plain => {}
        Fork::Setsid => {
            command.arg("--setsid");
        }
        Fork::Daemon => {
            command.arg("--daemon").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        }
    }
    let mut child = command.spawn().expect("the machine can start one more process");
    if kind == Fork::Daemon {
        let _ = child.wait(); // the middle process of the double fork
    }
}

/// The grandchild: waits to be killed, deaf to everything that can be ignored.
pub(crate) fn sleeper(args: &[String]) -> ExitCode {
    let mode = args.get(1).map(String::as_str);
    if mode == Some("--daemon") {
        let _ = rustix::process::setsid();
        fork(Fork::Plain, &args[0]);
        return ExitCode::SUCCESS;
    }
    if mode == Some("--setsid") {
        let _ = rustix::process::setsid();
    }
    // The orphan stays in the session of the middle process: it has left the server's group and its parent.
    let signals = [signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP, signal_hook::consts::SIGINT];
    let mut ignored = signal_hook::iterator::Signals::new(signals).expect("these signals can be caught");
    ignored.forever().for_each(drop);
    ExitCode::SUCCESS
}

/// Handles signals: notes TERM, and ends unless the script says to go on.
pub(crate) fn watch_signals(log: Log, ignore: bool) {
    let signals = [signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP, signal_hook::consts::SIGINT];
    let mut caught = signal_hook::iterator::Signals::new(signals).expect("these signals can be caught");
    std::thread::spawn(move || {
        for signal in caught.forever() {
            log.note("term", &signal.to_string());
            if !ignore {
                std::process::exit(128 + signal);
            }
        }
    });
}

/// How many starts the journal has seen, this one included.
pub(crate) fn starts(journal: Option<&Path>) -> usize {
    journal.map_or(1, |path| hermes_tests::journal::Journal(path.to_owned()).starts())
}
