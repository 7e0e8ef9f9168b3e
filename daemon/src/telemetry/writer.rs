//! The thread that writes every log file.
//!
//! Owner: itself; it ends when the last handle is gone. Promise: it never stops for a disk error: lines
//! that cannot be written are counted and the count is said once writing works again. Masks, escapes,
//! stamps, shows (tail, followers), writes, keeps the total cap. May not touch: tracing (its own
//! output would come back to it), the runtime.

use crate::telemetry::escape::{MAX_LINE, escape_part};
use crate::telemetry::intake::Report;
use crate::telemetry::redact_hook::RedactHook;
use crate::telemetry::rotate::{RotatingFile, Written, enforce_cap};
use crate::telemetry::server_log::{LogLimits, LogState, OWN_LOG, Stamp};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Instant, SystemTime};
use tokio::sync::oneshot;

/// An order to the writer.
#[derive(Debug)]
pub(crate) enum Message {
    /// One line, after what was counted before it.
    Line {
        log: Arc<LogState>,
        at: SystemTime,
        report: Report,
        bytes: Vec<u8>,
        /// Length of the line before it was cut.
        whole: usize,
    },
    /// Lines are being counted: write the count in a while if no line does.
    ReportLater(Arc<LogState>),
    /// Answer when everything before is written.
    Flush(oneshot::Sender<()>),
}

/// Starts the thread.
pub(crate) fn start(
    folder: &Path,
    limits: &LogLimits,
    redact: RedactHook,
    queue: Receiver<Message>,
    queued_bytes: Arc<AtomicUsize>,
) -> io::Result<()> {
    let mut writer = Writer {
        folder: folder.to_owned(),
        limits: limits.clone(),
        redact,
        queued_bytes,
        files: BTreeMap::new(),
        reports: VecDeque::new(),
        since_cap: 0,
    };
    std::thread::Builder::new().name("logs".to_owned()).spawn(move || writer.run(&queue))?;
    Ok(())
}

struct Writer {
    folder: PathBuf,
    limits: LogLimits,
    redact: RedactHook,
    queued_bytes: Arc<AtomicUsize>,
    files: BTreeMap<PathBuf, OpenLog>,
    /// Reports to write, by due time.
    reports: VecDeque<(Instant, Weak<LogState>)>,
    /// Bytes written since the cap was last enforced.
    since_cap: u64,
}

struct OpenLog {
    file: RotatingFile,
    log: Weak<LogState>,
    /// What the last failed write said.
    trouble: Option<String>,
}

impl Writer {
    fn run(&mut self, queue: &Receiver<Message>) {
        self.keep_cap();
        loop {
            let message = match self.reports.front() {
                None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some((due, _)) => queue.recv_timeout(due.saturating_duration_since(Instant::now())),
            };
            match message {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => self.write_due_reports(),
                Err(RecvTimeoutError::Disconnected) => return self.write_all_reports(),
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Line { log, at, report, bytes, whole } => {
                self.queued_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
                self.write_report(&log, at, report);
                let text = self.printable(&bytes, whole);
                self.write(&log, at, &text);
            }
            Message::ReportLater(log) => {
                self.reports.push_back((Instant::now() + self.limits.report_after, Arc::downgrade(&log)));
            }
            Message::Flush(done) => {
                self.write_all_reports();
                let _ = done.send(()); // nobody waits any more: fine
            }
        }
        self.write_due_reports();
    }

    /// Masks before cutting and escaping, so that neither hides a secret from the redactor.
    fn printable(&self, bytes: &[u8], whole: usize) -> String {
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                let masked = self.redact.apply(text);
                // Masking changes the length; only a real cut may be called one.
                let whole = if bytes.len() < whole { whole.max(masked.len()) } else { masked.len() };
                escape_part(masked.as_bytes(), MAX_LINE, whole)
            }
            Err(_) => self.redact.apply(&escape_part(bytes, MAX_LINE, whole)),
        }
    }

    fn write_report(&mut self, log: &Arc<LogState>, at: SystemTime, report: Report) {
        for line in report.lines() {
            self.write(log, at, &line);
        }
        let overrun = log.overrun.swap(0, Ordering::Relaxed);
        if overrun > 0 {
            self.write(
                log,
                at,
                &format!("-- {overrun} lines lost: the log could not be written fast enough"),
            );
        }
    }

    fn write_due_reports(&mut self) {
        let now = Instant::now();
        while self.reports.front().is_some_and(|(due, _)| *due <= now) {
            self.write_next_report();
        }
    }

    fn write_all_reports(&mut self) {
        while !self.reports.is_empty() {
            self.write_next_report();
        }
    }

    fn write_next_report(&mut self) {
        if let Some(log) = self.reports.pop_front().and_then(|(_, log)| log.upgrade()) {
            let (report, last_words) = {
                let mut intake = log.intake();
                (intake.take_report(), intake.take_last_held())
            };
            let now = SystemTime::now();
            self.write_report(&log, now, report);
            if let Some(bytes) = last_words {
                let text = self.printable(&bytes, bytes.len());
                self.write(&log, now, &format!("-- the last of them: {text}"));
            }
        }
    }

    /// Shows and writes one finished line.
    fn write(&mut self, log: &Arc<LogState>, at: SystemTime, text: &str) {
        let line = match log.stamp {
            Stamp::Add => format!("{} {text}", timestamp(at)),
            Stamp::Present => text.to_owned(),
        };
        log.show(Arc::from(line.as_str()));
        let unwritten = log.unwritten.load(Ordering::Relaxed);
        let entry = self.files.entry(log.path.clone()).or_insert_with(|| OpenLog {
            file: RotatingFile::new(log.path.clone(), self.limits.file_bytes, self.limits.files),
            log: Weak::new(),
            trouble: None,
        });
        entry.log = Arc::downgrade(log);
        let mut bytes = String::with_capacity(line.len() + 1);
        if unwritten > 0 {
            let why = entry.trouble.as_deref().unwrap_or("unknown");
            bytes.push_str(&format!("{} -- {unwritten} lines lost: {why}\n", timestamp(at)));
        }
        bytes.push_str(&line);
        bytes.push('\n');
        match entry.file.append(bytes.as_bytes()) {
            Ok(written) => {
                log.unwritten.fetch_sub(unwritten, Ordering::Relaxed);
                entry.trouble = None;
                self.since_cap += bytes.len() as u64;
                if written == Written::Rotated || self.since_cap >= self.slack() {
                    self.keep_cap();
                }
            }
            Err(error) => {
                entry.trouble = Some(error.to_string());
                log.unwritten.fetch_add(1, Ordering::Relaxed);
                log.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// What may be written between two looks at the cap, in bytes.
    fn slack(&self) -> u64 {
        (self.limits.total_bytes / 16).min(4 * 1024 * 1024)
    }

    fn keep_cap(&mut self) {
        self.since_cap = 0;
        self.files.retain(|_, open| open.log.strong_count() > 0);
        let live: Vec<PathBuf> = self.files.keys().cloned().collect();
        let cap = self.limits.total_bytes - self.slack();
        let mut left = enforce_cap(&self.folder, cap, &live, OWN_LOG);
        while left > cap {
            let servers = self.files.iter_mut().filter(|(path, _)| !path.ends_with(OWN_LOG));
            let largest = servers.map(|(_, open)| &mut open.file).max_by_key(|file| file.size());
            let Some(file) = largest.filter(|file| file.size() > 0) else {
                return; // what is left is not ours to empty
            };
            left = left.saturating_sub(file.size());
            file.restart();
            if file.size() > 0 {
                return; // cannot be emptied now; the next look tries again
            }
        }
    }
}

/// UTC with milliseconds, e.g. `2026-11-30T15:43:06.123Z`.
fn timestamp(at: SystemTime) -> String {
    match jiff::Timestamp::try_from(at) {
        Ok(timestamp) => format!("{timestamp:.3}"),
        Err(_) => "-".to_owned(), // a clock outside of all calendars
    }
}
