//! What a fake server wrote down about itself and about what it received.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// One entry of a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The fake server's pid.
    pub pid: u32,
    /// `start`, `recv`, `bad_line`, `eof`, `term`, `exit`, `fork`, `note`.
    pub event: String,
    /// The received line, or the detail of the event.
    pub text: String,
}

impl Entry {
    /// The received message; `null` when it was cut or is no JSON.
    pub fn message(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    /// The method of the received message; empty for anything else.
    pub fn method(&self) -> String {
        self.message()["method"].as_str().unwrap_or_default().to_owned()
    }
}

/// A journal file; may not exist yet.
#[derive(Debug, Clone)]
pub struct Journal(pub PathBuf);

impl Journal {
    /// Everything written so far; a half-written last line is left out.
    pub fn entries(&self) -> Vec<Entry> {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Entries of this kind.
    pub fn events(&self, event: &str) -> Vec<Entry> {
        self.entries().into_iter().filter(|e| e.event == event).collect()
    }

    /// Received messages with this method.
    pub fn received(&self, method: &str) -> Vec<Value> {
        self.events("recv").iter().filter(|e| e.method() == method).map(Entry::message).collect()
    }

    /// How often the server was started.
    pub fn starts(&self) -> usize {
        self.events("start").len()
    }
}
