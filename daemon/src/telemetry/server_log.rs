//! One log for each server and the daemon's own: handles that never block, lines for status and `logs -f`.
//!
//! Owner: [`ServerLogs`] in `boot`; each supervisor holds the [`ServerLog`] of its server for its whole
//! life. Promise: [`ServerLog::line`] returns at once whatever the disk does; what is not kept is
//! counted and said in the log. Files are written by one thread, see `writer`.
//! May touch: `$HERMES_HOME/logs/hermesd/`. May not touch: the pipes of servers, except in [`drain`].

use crate::names::ServerName;
use crate::telemetry::escape::MAX_LINE;
use crate::telemetry::intake::{Admission, Intake, Rate};
use crate::telemetry::redact_hook::RedactHook;
use crate::telemetry::writer::{self, Message};
use hermes_proto::shim::framing::{Line, LineBuffer};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::{broadcast, oneshot};
use tokio::time::Instant;

/// File name of the daemon's own log.
pub const OWN_LOG: &str = "hermesd.log";

/// How much is kept.
#[derive(Debug, Clone)]
pub struct LogLimits {
    /// Bytes of one file before it rotates. Default 5 MiB.
    pub file_bytes: u64,
    /// Files of one server, the current one included. Default 3.
    pub files: u32,
    /// Bytes of all log files together. Default 100 MiB.
    pub total_bytes: u64,
    /// Lines kept in memory for each log. Default 50.
    pub tail_lines: usize,
    /// What one server may write.
    pub rate: Rate,
    /// How long counted lines wait for a kept one before their count is written. Default 5 s.
    pub report_after: Duration,
    /// Messages waiting for the writer. Default 8192.
    pub queue_lines: usize,
    /// Bytes waiting for the writer. Default 4 MiB.
    pub queue_bytes: usize,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            file_bytes: 5 * 1024 * 1024,
            files: 3,
            total_bytes: 100 * 1024 * 1024,
            tail_lines: 50,
            rate: Rate::default(),
            report_after: Duration::from_secs(5),
            queue_lines: 8192,
            queue_bytes: 4 * 1024 * 1024,
        }
    }
}

/// Whether everything was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flushed {
    /// All lines given before the call are in the file and in the tail.
    All,
    /// The limit was over first.
    TimedOut,
}

/// All logs of the daemon. Clones share everything.
#[derive(Debug, Clone)]
pub struct ServerLogs {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    limits: LogLimits,
    queue: Queue,
    own: Arc<LogState>,
    open: Mutex<BTreeMap<String, Weak<LogState>>>,
}

/// The way to the writer thread: bounded in messages and bytes, never waits.
#[derive(Debug, Clone)]
struct Queue {
    sender: SyncSender<Message>,
    bytes: Arc<AtomicUsize>,
    max_bytes: usize,
}

impl Queue {
    /// Hands over `message` of `bytes`; gives it back when the queue is full.
    fn offer(&self, message: Message, bytes: usize) -> Result<(), Message> {
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > self.max_bytes && bytes > 0 {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(message);
        }
        self.sender.try_send(message).map_err(|error| {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            match error {
                TrySendError::Full(message) | TrySendError::Disconnected(message) => message,
            }
        })
    }
}

/// Whether lines get a timestamp from us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stamp {
    Add,
    /// The daemon's own lines carry theirs.
    Present,
}

/// What the handles and the writer share about one log.
#[derive(Debug)]
pub(crate) struct LogState {
    pub(crate) path: PathBuf,
    pub(crate) stamp: Stamp,
    intake: Mutex<Intake>,
    recent: Mutex<Recent>,
    /// Lines that found the queue full since the writer last said so.
    pub(crate) overrun: AtomicU64,
    /// Lines that could not be written since the writer last said so.
    pub(crate) unwritten: AtomicU64,
    /// All lines ever lost, by either way.
    pub(crate) lost: AtomicU64,
}

#[derive(Debug)]
struct Recent {
    lines: VecDeque<Arc<str>>,
    keep: usize,
    feed: Option<broadcast::Sender<Arc<str>>>,
}

/// Lines waiting for one follower before the oldest are dropped.
const FEED_LINES: usize = 256;

impl LogState {
    fn new(path: PathBuf, stamp: Stamp, limits: &LogLimits) -> Self {
        let recent = Recent { lines: VecDeque::new(), keep: limits.tail_lines, feed: None };
        Self {
            path,
            stamp,
            intake: Mutex::new(Intake::new(limits.rate, Instant::now())),
            recent: Mutex::new(recent),
            overrun: AtomicU64::new(0),
            unwritten: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    pub(crate) fn intake(&self) -> MutexGuard<'_, Intake> {
        self.intake.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a finished line to status and followers.
    pub(crate) fn show(&self, line: Arc<str>) {
        let mut recent = self.recent();
        if recent.feed.as_ref().is_some_and(|feed| feed.send(line.clone()).is_err()) {
            recent.feed = None; // the last follower is gone
        }
        recent.lines.push_back(line);
        while recent.lines.len() > recent.keep {
            recent.lines.pop_front();
        }
    }
}

impl ServerLogs {
    /// Starts the writer thread over `folder`, which must exist and be private.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(folder: &Path, limits: LogLimits, redact: RedactHook) -> io::Result<Self> {
        let own = Arc::new(LogState::new(folder.join(OWN_LOG), Stamp::Present, &limits));
        let (sender, receiver) = std::sync::mpsc::sync_channel(limits.queue_lines);
        let bytes = Arc::new(AtomicUsize::new(0));
        writer::start(folder, &limits, redact, receiver, bytes.clone())?;
        let queue = Queue { sender, bytes, max_bytes: limits.queue_bytes };
        let shared = Shared { folder: folder.to_owned(), limits, queue, own, open: Mutex::default() };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The log of `name`; the same one for the same name while any handle lives. The file is made by
    /// the first line.
    pub fn open(&self, name: &ServerName) -> ServerLog {
        let file = file_name(name.as_str());
        let mut open = self.shared.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, state| state.strong_count() > 0);
        let state = open.get(&file).and_then(Weak::upgrade).unwrap_or_else(|| {
            let path = self.shared.folder.join(&file);
            let state = Arc::new(LogState::new(path, Stamp::Add, &self.shared.limits));
            open.insert(file, Arc::downgrade(&state));
            state
        });
        ServerLog { state, queue: self.shared.queue.clone() }
    }

    /// The daemon's own log. Its lines come through `logs`; here for its tail and followers.
    pub fn own(&self) -> ServerLog {
        ServerLog { state: self.shared.own.clone(), queue: self.shared.queue.clone() }
    }

    /// Where the log of `name` is, whether or not it exists.
    pub fn path_of(&self, name: &ServerName) -> PathBuf {
        self.shared.folder.join(file_name(name.as_str()))
    }

    /// Waits until everything given so far is written, at most `limit`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn flush(&self, limit: Duration) -> Flushed {
        flush(&self.shared.queue, limit).await
    }
}

async fn flush(queue: &Queue, limit: Duration) -> Flushed {
    let flushed = async {
        let (done, waiting) = oneshot::channel();
        let mut message = Message::Flush(done);
        while let Err(back) = queue.offer(message, 0) {
            message = back;
            tokio::time::sleep(Duration::from_millis(5)).await; // full: the writer is busy
        }
        // An error means that the writer ended, and then nothing is left to wait for.
        let _ = waiting.await;
    };
    match tokio::time::timeout(limit, flushed).await {
        Ok(()) => Flushed::All,
        Err(_) => Flushed::TimedOut,
    }
}

/// One log. Clones are the same log; while one lives, its tail is kept.
#[derive(Debug, Clone)]
pub struct ServerLog {
    state: Arc<LogState>,
    queue: Queue,
}

/// Bytes kept beyond the longest line until secrets are masked, so that a cut never halves one.
const CUT_SLACK: usize = 2 * 1024;

impl ServerLog {
    /// Writes one line of the server's output, without its newline. Never blocks: repeated lines are
    /// folded, floods held back, and a full queue drops; each is counted and said in the log.
    pub fn line(&self, bytes: &[u8]) {
        let kept = &bytes[..bytes.len().min(MAX_LINE + CUT_SLACK)];
        let mut intake = self.state.intake();
        match intake.admit(kept, Instant::now()) {
            Admission::Keep(report) => {
                let log = self.state.clone();
                let at = SystemTime::now();
                let line = Message::Line { log, at, report, bytes: kept.to_vec(), whole: bytes.len() };
                if self.queue.offer(line, kept.len()).is_err() {
                    intake.put_back(report);
                    intake.interrupted();
                    self.overrun();
                }
            }
            Admission::FirstCounted => {
                // When the queue is full the next kept line brings the report.
                let _ = self.queue.offer(Message::ReportLater(self.state.clone()), 0);
            }
            Admission::Counted => {}
        }
    }

    /// Writes a remark of the daemon ("started, pid 7"), marked as such; neither folded nor held back.
    pub fn note(&self, text: &str) {
        let mut intake = self.state.intake();
        let report = intake.take_report();
        intake.interrupted();
        let bytes = format!("-- {text}").into_bytes();
        let (size, whole) = (bytes.len(), bytes.len());
        let line = Message::Line { log: self.state.clone(), at: SystemTime::now(), report, bytes, whole };
        if self.queue.offer(line, size).is_err() {
            intake.put_back(report);
            self.overrun();
        }
    }

    /// Writes finished text of the daemon's own log.
    pub(crate) fn own_line(&self, bytes: &[u8]) {
        let kept = &bytes[..bytes.len().min(MAX_LINE + CUT_SLACK)];
        let line = Message::Line {
            log: self.state.clone(),
            at: SystemTime::now(),
            report: crate::telemetry::intake::Report::default(),
            bytes: kept.to_vec(),
            whole: bytes.len(),
        };
        if self.queue.offer(line, kept.len()).is_err() {
            self.overrun();
        }
    }

    fn overrun(&self) {
        self.state.overrun.fetch_add(1, Ordering::Relaxed);
        self.state.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// The last `n` lines (at most [`LogLimits::tail_lines`]), oldest first, masked and printable.
    pub fn tail(&self, n: usize) -> Vec<String> {
        let recent = self.state.recent();
        let skip = recent.lines.len().saturating_sub(n);
        recent.lines.iter().skip(skip).map(|line| line.to_string()).collect()
    }

    /// The last `n` lines as [`tail`](Self::tail), and all that come after them, none twice.
    pub fn follow(&self, n: usize) -> (Vec<String>, LogFeed) {
        let mut recent = self.state.recent();
        let receiver = match &recent.feed {
            Some(feed) => feed.subscribe(),
            None => {
                let (feed, receiver) = broadcast::channel(FEED_LINES);
                recent.feed = Some(feed);
                receiver
            }
        };
        let skip = recent.lines.len().saturating_sub(n);
        let lines = recent.lines.iter().skip(skip).map(|line| line.to_string()).collect();
        (lines, LogFeed { receiver, _log: self.clone() })
    }

    /// The lines from now on.
    pub fn subscribe(&self) -> LogFeed {
        self.follow(0).1
    }

    /// The newest file.
    pub fn path(&self) -> &Path {
        &self.state.path
    }

    /// Lines that were lost to a full queue or disk since the handle's first opening.
    pub fn lost(&self) -> u64 {
        self.state.lost.load(Ordering::Relaxed)
    }

    /// As [`ServerLogs::flush`].
    pub async fn flush(&self, limit: Duration) -> Flushed {
        // What was counted so far is written too; a full queue is busy and will say it later.
        let _ = self.queue.offer(Message::ReportLater(self.state.clone()), 0);
        flush(&self.queue, limit).await
    }
}

/// One follower's lines. When it is slow the oldest waiting lines are dropped and counted.
#[derive(Debug)]
pub struct LogFeed {
    receiver: broadcast::Receiver<Arc<str>>,
    /// Keeps the log and with it the sending side alive.
    _log: ServerLog,
}

/// One item of a [`LogFeed`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fed {
    /// A line, masked and printable.
    Line(Arc<str>),
    /// So many lines were dropped here because the follower was slow.
    Missed(u64),
}

impl LogFeed {
    /// The next line; waits for ever when there is none. `None` when the logs are gone.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<Fed> {
        match self.receiver.recv().await {
            Ok(line) => Some(Fed::Line(line)),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(Fed::Missed(missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// Longest line of stderr that is looked at, in bytes; of longer ones only the length is logged.
const MAX_DRAINED: usize = 256 * 1024;
/// How long the end of a drain waits for the writer, so that the last words are in the tail.
const LAST_FLUSH: Duration = Duration::from_secs(1);

/// Reads a child's stderr to its end, for the child's whole life, and logs its lines. Ends when every
/// holder of the pipe has closed it; the last lines are in [`ServerLog::tail`] then.
///
/// # Cancel safety
/// Dropping it loses what is in the buffer; the child then gets SIGPIPE, so drop it after the child.
pub async fn drain(mut stderr: pipe::Receiver, log: ServerLog) {
    let mut lines = LineBuffer::new(MAX_DRAINED);
    loop {
        match stderr.read(lines.room()).await {
            Ok(0) => break,
            Ok(n) => lines.filled(n),
            Err(error) => {
                log.note(&format!("stderr cannot be read any more: {error}"));
                break;
            }
        }
        while let Some(line) = lines.next_line() {
            match line {
                Line::Full(line) => log.line(line),
                Line::Oversized { bytes, .. } => {
                    log.line(format!("-- a line of {bytes} bytes left out").as_bytes())
                }
            }
        }
        // A flooding child always has more; calls of others must get their turn between two reads.
        tokio::task::yield_now().await;
    }
    if !lines.rest().is_empty() {
        log.line(lines.rest());
    }
    log.flush(LAST_FLUSH).await;
}

/// A file name for `name`: readable, unique (also where case does not count), never our own log's.
fn file_name(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
    let usable = !name.is_empty() && name.len() <= 64 && name.chars().all(plain) && !name.starts_with('.');
    // A name that ends like a hashed one could be another server's hashed name.
    let looks_hashed = name.rsplit_once('~').is_some();
    if usable && !looks_hashed && name != "hermesd" {
        return format!("{name}.log");
    }
    let safe: String = name
        .chars()
        .map(|c| if plain(c.to_ascii_lowercase()) { c.to_ascii_lowercase() } else { '_' })
        .take(48)
        .collect();
    let digest = Sha256::digest(name.as_bytes());
    let hash: String = digest.iter().take(5).map(|byte| format!("{byte:02x}")).collect();
    format!("{}~{hash}.log", safe.trim_start_matches('.'))
}

#[cfg(test)]
#[path = "server_log_tests.rs"]
mod tests;
