//! A foreign writer of state.db: Python's sqlite3 in a process of its own (`tests/foreign/writer.py`).
//!
//! Promise: a command has been carried out when its answer is returned.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The process and its pipes.
#[derive(Debug)]
pub struct ForeignWriter {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl ForeignWriter {
    /// Starts the writer over `home`; makes state.db if it is missing.
    ///
    /// # Panics
    /// Without python3 on PATH.
    pub fn start(home: &Path) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("foreign/writer.py");
        let mut command = Command::new("python3");
        command.arg(script).arg(home).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 is on PATH");
        let stdin = child.stdin.take().expect("stdin is a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is a pipe"));
        let mut writer = Self { child, stdin, stdout };
        assert_eq!(writer.answer(), "ready");
        writer
    }

    /// Carries out one command of the script; its answer.
    ///
    /// # Panics
    /// When the writer ends instead of answering.
    pub fn run(&mut self, command: &str) -> String {
        writeln!(self.stdin, "{command}").expect("the writer lives");
        self.answer()
    }

    /// Adds one message; its id.
    pub fn add(&mut self, session: &str, text: &str) -> u64 {
        self.run(&format!("add {session} {text}")).parse().expect("an id is a number")
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        let read = self.stdout.read_line(&mut line).expect("the writer's stdout can be read");
        assert!(read > 0, "the foreign writer ended");
        line.trim_end().to_owned()
    }

    /// `kill -9`, in the middle of whatever it does.
    pub fn kill_hard(&mut self) {
        // An error means that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ForeignWriter {
    fn drop(&mut self) {
        self.kill_hard();
    }
}
