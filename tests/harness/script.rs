//! What a fake server does, as data: written by a test, read by `t-fake-server` at each start.
//!
//! Promise: a default script is a well-behaved MCP server. Each field adds one kind of misbehaviour.
//! The file is read again at every start, so a test may change it between two generations.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// How a message is put on stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Framing {
    /// One line in one write.
    #[default]
    Line,
    /// One line with a UTF-8 byte order mark in front.
    Bom,
    /// One line with CRLF at its end.
    Crlf,
    /// `Content-Length` headers as in LSP, no newline at the end.
    ContentLength,
    /// Indented JSON over many lines.
    Pretty,
    /// One line in writes of 4 KiB.
    FourKib,
    /// One line whose first and last 64 bytes are written one by one, the middle in one piece.
    Borders,
    /// One line, one byte a write.
    Bytes,
}

/// A process below the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fork {
    /// In the server's process group, keeps its stdio open.
    Plain,
    /// In its own session, keeps the server's stdio open.
    Setsid,
    /// In its own session, orphaned (its parent has ended), stdio on /dev/null.
    Daemon,
}

/// How `ping` is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ping {
    /// With an empty result.
    #[default]
    Ok,
    /// With error -32603.
    Error,
    /// Not at all.
    Silent,
}

/// Ends the process when a method arrives for the n-th time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitOn {
    /// The method.
    pub method: String,
    /// Counted from 1.
    pub nth: u32,
    /// Exit code.
    pub code: i32,
}

/// Makes the first starts fail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailStarts {
    /// How many starts end at once; they are counted in the log.
    pub count: usize,
    /// Exit code.
    pub code: i32,
    /// Written to stderr before.
    pub stderr: String,
}

/// Pages of `tools/list`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Paging {
    /// Tools on one page.
    pub size: usize,
    /// `nextCursor` of the last page (`null`, `""`, a number); absent when `None`.
    pub last: Option<Value>,
    /// Every page names the same next cursor.
    pub repeat: bool,
}

/// The whole behaviour of one fake server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Script {
    /// JSON lines are appended here: what was received, starts, ends. See [`crate::journal`].
    pub journal: Option<PathBuf>,
    /// `serverInfo.name`; `fake` when empty.
    pub name: String,
    /// Answers this protocol version; the client's own when empty.
    pub version: String,
    /// `instructions`.
    pub instructions: Option<String>,
    /// `capabilities`; tools with listChanged when absent.
    pub capabilities: Option<Value>,
    /// Waits before the first read, in ms.
    pub start_delay_ms: u64,
    /// Burns CPU before the first read, in ms.
    pub start_spin_ms: u64,
    /// The first starts fail.
    pub fail_starts: Option<FailStarts>,
    /// Exits at once with this code.
    pub exit_at_start: Option<i32>,
    /// Lines on stdout before anything else.
    pub banner: Vec<String>,
    /// Bytes on stderr before the first read.
    pub stderr_first: usize,
    /// Bytes on stderr before each reply.
    pub stderr_each: usize,
    /// Bytes a second on stderr for its whole life, from a thread of its own.
    pub stderr_bps: usize,
    /// Goes on after SIGTERM, SIGINT, SIGHUP.
    pub ignore_term: bool,
    /// Goes on after the end of stdin.
    pub ignore_eof: bool,
    /// Processes started before the first read.
    pub forks: Vec<Fork>,
    /// Bytes in front of each message (NUL, ANSI sequences, garbage).
    pub prefix: String,
    /// A noise line in front of each reply.
    pub noise: Option<String>,
    /// How messages are written.
    pub framing: Framing,
    /// Methods that are never answered.
    pub hang: Vec<String>,
    /// Waits before a method is answered, in ms; the reader goes on.
    pub delay_ms: BTreeMap<String, u64>,
    /// Fixed results by method.
    pub results: BTreeMap<String, Value>,
    /// Fixed results by method as text, for what is too deep or too odd for [`Value`].
    pub raw_results: BTreeMap<String, String>,
    /// Fixed `error` members by method; any JSON.
    pub errors: BTreeMap<String, Value>,
    /// Ends when a method arrives.
    pub exit_on: Option<ExitOn>,
    /// Requests sent before the reply to `initialize`; the reply waits for the answers.
    pub ask_before_initialize: Vec<Value>,
    /// Raw lines after `notifications/initialized`.
    pub after_initialized: Vec<String>,
    /// Refuses `tools/list` until `notifications/initialized` came.
    pub strict_initialized: bool,
    /// Replaces the built-in tools; items may be malformed on purpose.
    pub tools: Option<Vec<Value>>,
    /// Adds so many tools `extra_0000`, `extra_0001`, …
    pub extra_tools: usize,
    /// Pages of `tools/list`.
    pub paging: Option<Paging>,
    /// How `ping` is answered.
    pub ping: Ping,
    /// Speaks 2026-07-28 and nothing else.
    pub modern: Modern,
}

/// Whether a server speaks only 2026-07-28.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Modern {
    /// It opens sessions.
    #[default]
    No,
    /// It refuses everything else, and each request that does not say who asks.
    Strict,
    /// The same, and what comes after a refusal too: the first request of a process counts for all.
    FirstCounts,
}

impl Script {
    /// A well-behaved server.
    pub fn new() -> Self {
        Self::default()
    }

    /// Changes fields in place; reads as a sentence in a test.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// A launcher that forks `fork` and then serves.
    pub fn forks(fork: Fork) -> Self {
        Self::new().with(|s| s.forks = vec![fork])
    }

    /// Survives SIGTERM and the end of stdin.
    pub fn stubborn() -> Self {
        Self::new().with(|s| {
            s.ignore_term = true;
            s.ignore_eof = true;
        })
    }

    /// Writes every message in this framing.
    pub fn framed(framing: Framing) -> Self {
        Self::new().with(|s| s.framing = framing)
    }
}
