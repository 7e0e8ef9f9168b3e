//! Lines for a journal: each begins with its level, as journald and launch scripts read it.
//!
//! Promise: what is taken for a journal is one (`JOURNAL_STREAM` is inherited by shells and terminals that
//! a service started, whose stderr is none). May not touch: where lines go.

use std::fmt;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, FormatEvent, FormatFields, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, format};
use tracing_subscriber::registry::LookupSpan;

/// Whether `stream`, the value of `JOURNAL_STREAM`, names the open file `(device, inode)`.
pub fn names(stream: &str, file: (u64, u64)) -> bool {
    let parsed = stream.split_once(':').and_then(|(device, inode)| {
        Some((device.trim().parse::<u64>().ok()?, inode.trim().parse::<u64>().ok()?))
    });
    parsed == Some(file)
}

/// Device and inode of standard error; `None` when it is closed.
pub fn stderr_file() -> Option<(u64, u64)> {
    let stat = rustix::fs::fstat(rustix::stdio::stderr()).ok()?;
    // Their types differ between systems.
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
    Some((stat.st_dev as u64, stat.st_ino as u64))
}

/// The level in front of a line, of `sd-daemon(3)`.
pub fn prefix(level: &Level) -> &'static str {
    match *level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        Level::DEBUG | Level::TRACE => "<7>",
    }
}

/// The usual line without the time, which a journal knows, behind its level.
#[derive(Debug)]
pub(super) struct JournalLine(Format<Full, ()>);

impl JournalLine {
    pub(super) fn new() -> Self {
        Self(format().without_time().with_ansi(false))
    }
}

impl<S, N> FormatEvent<S, N> for JournalLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        cx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        writer.write_str(prefix(event.metadata().level()))?;
        self.0.format_event(cx, writer, event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_stream_that_is_our_stderr_counts() {
        assert!(names("8:4242", (8, 4242)));
        assert!(!names("8:4243", (8, 4242)), "inherited from a terminal that a service started");
        for odd in ["", "8", "8:", ":4242", "a:b", "8:4242:1"] {
            assert!(!names(odd, (8, 4242)), "{odd}");
        }
    }
}
