//! Runs hermesctl to its end and looks at what a person or a script would see.

use serde_json::Value;
use std::process::{Command, Stdio};

/// A finished command.
#[derive(Debug, Clone)]
pub struct Ran {
    /// Exit code; -1 when a signal ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Ran {
    /// Runs `command` with stdin on /dev/null.
    pub fn of(command: &mut Command) -> Self {
        let output = command.stdin(Stdio::null()).output().expect("the command was built with this test");
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Checks exit code 0.
    ///
    /// # Panics
    /// Otherwise, with everything the command said.
    #[track_caller]
    pub fn succeeds(self) -> Self {
        self.exits(0)
    }

    /// Checks the exit code.
    ///
    /// # Panics
    /// Otherwise, with everything the command said.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Standard output as one JSON document.
    ///
    /// # Panics
    /// When it is none.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }

    /// The last line of standard error that is not empty.
    pub fn last_error_line(&self) -> &str {
        self.stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default()
    }
}
