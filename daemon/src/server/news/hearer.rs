//! Who hears what servers say on their own, and one log line on its way there.
//!
//! Pure. What a hearer gets is unmasked; whoever hands it on masks it, once for all hearers.

use crate::jsonrpc::log_level::LogLevel;
use crate::jsonrpc::splice::{Members, ObjectWriter, push_string};
use crate::names::{ClientId, ServerName};
use serde_json::value::RawValue;
use std::sync::OnceLock;

/// Longest log message that is passed on to clients, in bytes; longer ones stay in the server's log.
pub const MAX_LOG_LINE: usize = 64 * 1024;

/// One client, as news reach it. Must not block: it queues a line, or drops and counts it.
pub trait Hearer: Send + Sync + std::fmt::Debug {
    /// A resource changed that this client calls `uri`; `params` are the server's.
    fn updated(&self, uri: &str, params: &RawValue);

    /// The server logged something that this client wants to see.
    fn logged(&self, line: &LogLine);
}

/// Whom a log line of a shared server may be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// It belongs to no call: everybody who asked for its level.
    Everyone,
    /// Only this client's calls can have caused it.
    Only(ClientId),
    /// Calls of several clients can have caused it, and nobody knows which: the server's log only.
    Nobody,
}

impl Audience {
    /// By the clients that have, or had a moment ago, calls at the server.
    pub fn of(busy: &[ClientId]) -> Self {
        match busy {
            [] => Self::Everyone,
            [one] => Self::Only(*one),
            _ => Self::Nobody,
        }
    }

    /// Whether `client` is part of it.
    pub fn has(self, client: ClientId) -> bool {
        match self {
            Self::Everyone => true,
            Self::Only(one) => one == client,
            Self::Nobody => false,
        }
    }
}

/// The params of one `notifications/message`.
#[derive(Debug)]
pub struct LogLine {
    level: LogLevel,
    params: Box<RawValue>,
    masked: OnceLock<Box<RawValue>>,
}

impl LogLine {
    /// Reads `params`; `None`: no usable level, or too long for clients.
    ///
    /// Every member stays as it is, but for a level in another spelling; the server's name goes to
    /// `_meta.server`, and to `logger` where the server gave none.
    pub fn read(server: &ServerName, params: &RawValue) -> Option<Self> {
        if params.get().len() > MAX_LOG_LINE {
            return None;
        }
        let members = Members::parse(params).ok()?;
        let word = members.text("level")?.to_ascii_lowercase();
        let level = LogLevel::parse(&word).or_else(|| other_spelling(&word))?;
        let mut name = String::new();
        push_string(&mut name, server.as_str());
        let meta = members.get("_meta").and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
        let meta = meta.with("server", &name);
        let mut out = ObjectWriter::with_capacity(params.get().len() + 64);
        for (key, value) in members.iter().filter(|(key, _)| *key != "_meta") {
            match key {
                "level" => out.string(key, level.word()),
                _ => out.member(key, value.get()),
            };
        }
        if members.get("logger").is_none() {
            out.member("logger", &name);
        }
        out.member("_meta", meta.get());
        Some(Self { level, params: out.finish(), masked: OnceLock::new() })
    }

    /// Says that `count` lines of `server` were too many.
    pub fn left_out(server: &ServerName, count: u64) -> Self {
        let mut data = ObjectWriter::default();
        data.string("message", "hermesd left out log messages: this server sends too many")
            .member("count", &count.to_string());
        let mut meta = ObjectWriter::default();
        meta.string("server", server.as_str());
        let mut params = ObjectWriter::default();
        params
            .string("level", LogLevel::Warning.word())
            .string("logger", "hermesd")
            .member("data", data.finish().get())
            .member("_meta", meta.finish().get());
        Self { level: LogLevel::Warning, params: params.finish(), masked: OnceLock::new() }
    }

    /// How grave it is.
    pub fn level(&self) -> LogLevel {
        self.level
    }

    /// The params as clients get them; `mask` runs for the first client only.
    pub fn masked(&self, mask: impl FnOnce(&RawValue) -> Box<RawValue>) -> &RawValue {
        self.masked.get_or_init(|| mask(&self.params))
    }
}

/// What servers write in place of the eight words.
fn other_spelling(word: &str) -> Option<LogLevel> {
    match word {
        "trace" => Some(LogLevel::Debug),
        "warn" => Some(LogLevel::Warning),
        "err" => Some(LogLevel::Error),
        "crit" | "fatal" => Some(LogLevel::Critical),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(params: &str) -> Option<String> {
        let raw = RawValue::from_string(params.to_owned()).unwrap();
        let line = LogLine::read(&ServerName::new("s"), &raw)?;
        Some(line.masked(ToOwned::to_owned).get().to_owned())
    }

    #[test]
    fn a_line_keeps_its_members_and_says_whose_it_is() {
        assert_eq!(
            shown(r#"{"level":"info","data":{"b":1.0,"a":2},"x":1}"#).unwrap(),
            r#"{"level":"info","data":{"b":1.0,"a":2},"x":1,"logger":"s","_meta":{"server":"s"}}"#
        );
        assert_eq!(
            shown(r#"{"_meta":{"k":1},"level":"WARN","logger":"db","data":"x"}"#).unwrap(),
            r#"{"level":"warning","logger":"db","data":"x","_meta":{"k":1,"server":"s"}}"#
        );
    }

    #[test]
    fn what_has_no_level_or_is_endless_is_not_for_clients() {
        assert_eq!(shown(r#"{"data":"x"}"#), None);
        assert_eq!(shown(r#"{"level":"loud","data":"x"}"#), None);
        assert_eq!(shown(&format!(r#"{{"level":"info","data":"{}"}}"#, "x".repeat(MAX_LOG_LINE))), None);
    }

    #[test]
    fn a_line_belongs_to_the_only_client_with_calls() {
        let (a, b) = (ClientId(1), ClientId(2));
        assert!(Audience::of(&[]).has(a) && Audience::of(&[a]).has(a));
        assert!(!Audience::of(&[a]).has(b) && !Audience::of(&[a, b]).has(a));
    }
}
