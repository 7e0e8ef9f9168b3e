//! The daemon's own log: what `tracing` says goes to stderr and into `hermesd.log`.
//!
//! Owner: `boot` calls [`init`] once, before anything else can fail. Promise: no event waits for a disk
//! or a terminal (both have their own thread and a bounded queue that drops and counts); every event
//! passes the redactor. May not touch: servers' logs, except that one thread writes them all.

use crate::telemetry::escape::{MAX_LINE, escape_line};
use crate::telemetry::journal::{self, JournalLine};
use crate::telemetry::redact_hook::RedactHook;
use crate::telemetry::server_log::ServerLog;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;

/// What is logged when neither `HERMESD_LOG` nor `RUST_LOG` says anything.
pub const DEFAULT_FILTER: &str = "info";

/// Events waiting for stderr.
const STDERR_QUEUE: usize = 1024;

/// Whether and how events go to stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stderr {
    /// For a person at a terminal.
    Human,
    /// For a journal that stamps lines itself and reads their level from their first characters.
    Journal,
    /// The file is enough.
    Off,
}

/// Format of the lines in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Words and `name=value` fields.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// How the daemon logs.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Events on stderr.
    pub stderr: Stderr,
    /// Lines in the file.
    pub format: Format,
    /// Directives such as `info,hermesd::server=debug`; `None`: [`DEFAULT_FILTER`].
    pub filter: Option<String>,
}

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    /// Something else in this process logs already.
    #[error("logging is already set up")]
    AlreadySet,
    /// The thread for stderr did not start.
    #[error("no thread for stderr")]
    Thread(#[source] io::Error),
}

/// Reads the filter from `HERMESD_LOG`, else `RUST_LOG`; empty counts as unset.
pub fn filter_from(env: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    ["HERMESD_LOG", "RUST_LOG"].into_iter().find_map(|name| env(name).filter(|text| !text.trim().is_empty()))
}

/// Where stderr goes: nowhere with `HERMESD_STDERR=off` (whoever started us only listens for the
/// reason why we cannot run), [`Stderr::Journal`] when a journal reads it, else [`Stderr::Human`].
/// `stderr` is its device and inode.
pub fn stderr_from(env: &dyn Fn(&str) -> Option<String>, stderr: Option<(u64, u64)>) -> Stderr {
    let journal = |stream: String| stderr.is_some_and(|file| journal::names(&stream, file));
    match env("HERMESD_STDERR").as_deref() {
        Some("off") => Stderr::Off,
        _ if env("JOURNAL_STREAM").is_some_and(journal) => Stderr::Journal,
        _ => Stderr::Human,
    }
}

/// Sends every `tracing` event of this process to stderr and to `own` (from
/// [`ServerLogs::own`](crate::telemetry::server_log::ServerLogs::own)). A filter that cannot be read is
/// replaced by the default and said in the log.
///
/// # Errors
/// [`LogsError`]; the daemon can run without.
pub fn init(options: &LogOptions, own: ServerLog, redact: &RedactHook) -> Result<(), LogsError> {
    let (subscriber, bad_filter) = subscriber(options, own, redact)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogsError::AlreadySet)?;
    if let Some(problem) = bad_filter {
        tracing::warn!(problem, "log filter cannot be read; the default is used");
    }
    Ok(())
}

type Boxed = Box<dyn Layer<Registry> + Send + Sync>;

/// The subscriber, and what was wrong with the filter.
fn subscriber(
    options: &LogOptions,
    own: ServerLog,
    redact: &RedactHook,
) -> Result<(impl tracing::Subscriber + Send + Sync + use<>, Option<String>), LogsError> {
    let directives = options.filter.as_deref().unwrap_or(DEFAULT_FILTER);
    let (filter, problem) = match EnvFilter::try_new(directives) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(DEFAULT_FILTER), Some(error.to_string())),
    };
    let file = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(OwnLog(own));
    let file: Boxed = match options.format {
        Format::Text => file.boxed(),
        Format::Json => file.json().flatten_event(true).boxed(),
    };
    let mut layers: Vec<Boxed> = vec![file];
    if options.stderr != Stderr::Off {
        let writer = StderrWriter::start(redact.clone()).map_err(LogsError::Thread)?;
        // Without colours: they would stand between the name and the value of a secret.
        let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer);
        layers.push(match options.stderr {
            Stderr::Journal => layer.event_format(JournalLine::new()).boxed(),
            Stderr::Human | Stderr::Off => layer.boxed(),
        });
    }
    Ok((Registry::default().with(layers).with(filter), problem))
}

/// Hands each event, which comes in one write, to the writer thread; that masks and escapes it.
#[derive(Clone)]
struct OwnLog(ServerLog);

impl Write for OwnLog {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.0.own_line(event.strip_suffix(b"\n").unwrap_or(event));
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for OwnLog {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Hands each event to the thread that writes stderr: a stopped terminal must not stop the daemon.
#[derive(Clone)]
struct StderrWriter {
    queue: SyncSender<Vec<u8>>,
    dropped: Arc<AtomicU64>,
}

impl StderrWriter {
    fn start(redact: RedactHook) -> io::Result<Self> {
        let (queue, events) = std::sync::mpsc::sync_channel(STDERR_QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let count = dropped.clone();
        let write = move || write_events(&events, &count, &redact, &mut io::stderr());
        std::thread::Builder::new().name("stderr".to_owned()).spawn(write)?;
        Ok(Self { queue, dropped })
    }
}

fn write_events(events: &Receiver<Vec<u8>>, dropped: &AtomicU64, redact: &RedactHook, out: &mut dyn Write) {
    for event in events {
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = writeln!(out, "-- {lost} events lost: stderr was not read fast enough");
        }
        // One line each: a newline in foreign words must not forge the next line or its level.
        let text = redact.apply(&String::from_utf8_lossy(event.strip_suffix(b"\n").unwrap_or(&event)));
        // A closed stderr is no reason to stop: the file has everything.
        let _ = writeln!(out, "{}", escape_line(text.as_bytes(), MAX_LINE));
    }
}

impl Write for StderrWriter {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        if self.queue.try_send(event.to_vec()).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for StderrWriter {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::server_log::{LogLimits, ServerLogs};
    use std::time::Duration;

    async fn logged(options: LogOptions, act: impl FnOnce()) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let hook = RedactHook::new(|text| text.replace("s3cret", "[REDACTED]"));
        let logs = ServerLogs::start(dir.path(), LogLimits::default(), hook.clone()).unwrap();
        let (subscriber, _) = subscriber(&options, logs.own(), &hook).unwrap();
        tracing::subscriber::with_default(subscriber, act);
        logs.flush(Duration::from_secs(60)).await;
        let text = std::fs::read_to_string(logs.own().path()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    fn options(filter: Option<&str>, format: Format) -> LogOptions {
        LogOptions { stderr: Stderr::Off, format, filter: filter.map(str::to_owned) }
    }

    #[tokio::test]
    async fn events_are_masked_and_stay_one_line_each() {
        let lines = logged(options(None, Format::Text), || {
            tracing::info!(name = "s3cret", "two\nlines \u{1b}]0;x");
            tracing::debug!("not at this level");
        })
        .await;
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("[REDACTED]") && !lines[0].contains("s3cret"), "{lines:?}");
        assert!(lines[0].contains("two\\nlines") && !lines[0].contains('\u{1b}'), "{lines:?}");
        assert!(lines[0].starts_with("20"), "stamped once: {lines:?}");
    }

    #[tokio::test]
    async fn the_filter_is_obeyed_and_a_broken_one_falls_back_to_info() {
        let count = async |filter| {
            let act = || {
                tracing::info!("one");
                tracing::debug!("two");
            };
            logged(options(Some(filter), Format::Text), act).await.len()
        };
        assert_eq!(count("debug").await, 2);
        assert_eq!(count("a=b=c=d").await, 1);
    }

    #[tokio::test]
    async fn json_lines_are_json() {
        let lines = logged(options(None, Format::Json), || tracing::info!(server = "fs", "started")).await;
        let value: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!((value["message"].as_str(), value["server"].as_str()), (Some("started"), Some("fs")));
    }

    #[test]
    fn the_filter_comes_from_our_variable_first() {
        let env = |name: &str| match name {
            "HERMESD_LOG" => Some(" ".to_owned()),
            "RUST_LOG" => Some("debug".to_owned()),
            _ => None,
        };
        assert_eq!(filter_from(&env).as_deref(), Some("debug"));
        assert_eq!(filter_from(&|_| None), None);
        assert_eq!(stderr_from(&|_| None, None), Stderr::Human);
        let off = |name: &str| (name == "HERMESD_STDERR").then(|| "off".to_owned());
        assert_eq!(stderr_from(&off, None), Stderr::Off);
        let journal = |name: &str| (name == "JOURNAL_STREAM").then(|| "8:77".to_owned());
        assert_eq!(stderr_from(&journal, Some((8, 77))), Stderr::Journal);
        assert_eq!(stderr_from(&journal, Some((8, 78))), Stderr::Human);
        assert_eq!(stderr_from(&journal, None), Stderr::Human);
    }

    #[test]
    fn what_stderr_could_not_take_is_counted_and_said() {
        let (queue, events) = std::sync::mpsc::sync_channel(1);
        let mut writer = StderrWriter { queue, dropped: Arc::default() };
        for text in ["a s3cret\n", "b\n", "c\n"] {
            writer.write_all(text.as_bytes()).unwrap();
        }
        let dropped = writer.dropped.clone();
        drop(writer);
        let mut out = Vec::new();
        let hook = RedactHook::new(|text| text.replace("s3cret", "***"));
        write_events(&events, &dropped, &hook, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "-- 2 events lost: stderr was not read fast enough\na ***\n");
    }

    #[test]
    fn a_line_for_a_journal_begins_with_its_level_and_forges_no_other() {
        let (queue, events) = std::sync::mpsc::sync_channel(8);
        let writer = StderrWriter { queue, dropped: Arc::default() };
        let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer);
        let layer: Boxed = layer.event_format(JournalLine::new()).boxed();
        tracing::subscriber::with_default(Registry::default().with(vec![layer]), || {
            tracing::warn!(server = "x", "bad\n<0>forged");
            tracing::info!("fine");
        });
        let mut out = Vec::new();
        write_events(&events, &AtomicU64::new(0), &RedactHook::new(str::to_owned), &mut out);
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].starts_with("<4>") && lines[0].contains("bad\\n<0>forged"), "{text}");
        assert!(lines[1].starts_with("<6>") && lines[1].contains("fine"), "{text}");
    }
}
