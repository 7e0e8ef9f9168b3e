//! The eight levels of log messages (MCP 2025-11-25, Logging; RFC 5424, section 6.2.1).
//!
//! Pure.

/// How grave a log message is; ordered from the most verbose to the gravest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Every step.
    Debug,
    /// What goes on.
    Info,
    /// Normal, but worth knowing.
    Notice,
    /// Degraded.
    Warning,
    /// Something failed.
    Error,
    /// A part failed.
    Critical,
    /// Act at once.
    Alert,
    /// Unusable.
    Emergency,
}

impl LogLevel {
    /// All of them, the most verbose first.
    pub const ALL: [Self; 8] = [
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    /// The level of this name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.word() == word)
    }

    /// Its name in the protocol.
    pub fn word(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }
}

/// Which log lines a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verbosity {
    /// It named no level: those of its own calls, at whatever level the server has (MCP 2025-11-25, Logging: the
    /// server may decide then).
    OwnCalls,
    /// Everything from this level on that is not another client's.
    From(LogLevel),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_ordered_and_found_by_their_words() {
        assert!(LogLevel::ALL.is_sorted());
        assert!(LogLevel::ALL.into_iter().all(|level| LogLevel::parse(level.word()) == Some(level)));
        assert_eq!(LogLevel::parse("loud"), None);
    }
}
