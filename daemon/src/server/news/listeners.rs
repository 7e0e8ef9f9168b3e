//! Which clients see log lines of one server, from which level on, and what the server was told of it.
//!
//! Pure: the clock comes in. Promise: the server is as verbose as its most curious client wants, and
//! no more for long; a flood of lines is cut, and the clients that lose some are told how many.

use super::hearer::{Audience, Hearer, LogLine};
use crate::jsonrpc::log_level::{LogLevel, Verbosity};
use crate::names::{ClientId, ServerName};
use crate::server::pace::Pace;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Lines that pass at once, and the time until there is room for another one.
pub(super) const LINES: (u32, Duration) = (200, Duration::from_millis(10));

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Level {
    /// The server uses its own.
    #[default]
    Untold,
    Telling(LogLevel),
    Told(LogLevel),
}

/// One line and who hears it.
pub(super) type Heard = (Vec<Arc<dyn Hearer>>, LogLine);

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Listeners {
    clients: HashMap<ClientId, (Verbosity, Arc<dyn Hearer>)>,
    level: Level,
    pace: Pace,
    left_out: u64,
}

impl Default for Listeners {
    fn default() -> Self {
        let pace = Pace::new(LINES.0, LINES.1);
        Self { clients: HashMap::new(), level: Level::default(), pace, left_out: 0 }
    }
}

impl Listeners {
    /// `client` wants these lines; `None`: none any more.
    pub(super) fn set(&mut self, client: ClientId, wish: Option<Verbosity>, hearer: &Arc<dyn Hearer>) {
        match wish {
            Some(wish) => drop(self.clients.insert(client, (wish, hearer.clone()))),
            None => self.leave(client),
        }
    }

    /// A client is gone.
    pub(super) fn leave(&mut self, client: ClientId) {
        self.clients.remove(&client);
    }

    /// The generation that was told is gone.
    pub(super) fn forgotten(&mut self) {
        self.level = Level::Untold;
    }

    /// The level to be told now; it counts as under way from now on.
    pub(super) fn next(&mut self) -> Option<LogLevel> {
        let told = match self.level {
            Level::Telling(_) => return None,
            Level::Untold => None,
            Level::Told(level) => Some(level),
        };
        let named = self.clients.values().filter_map(|(wish, _)| match wish {
            Verbosity::From(level) => Some(*level),
            // Whoever named none does not change how verbose the server is.
            Verbosity::OwnCalls => None,
        });
        let wanted = match named.min() {
            Some(level) => Some(level).filter(|level| told != Some(*level)),
            // Nobody listens: a verbose server is calmed down; the level it began with is not known.
            None => told.filter(|told| *told < LogLevel::Info).map(|_| LogLevel::Info),
        };
        if let Some(level) = wanted {
            self.level = Level::Telling(level);
        }
        wanted
    }

    /// The server answered. One that refuses is not asked again: its lines are filtered here anyway.
    pub(super) fn told(&mut self, level: LogLevel) {
        self.level = Level::Told(level);
    }

    /// The server logged something; who is to hear what now.
    pub(super) fn logged(
        &mut self,
        server: &ServerName,
        params: &RawValue,
        audience: Audience,
        now: Instant,
    ) -> Vec<Heard> {
        if self.clients.is_empty() || audience == Audience::Nobody {
            return Vec::new();
        }
        let Some(line) = LogLine::read(server, params) else { return Vec::new() };
        let hearers = self.hearers(&line, audience);
        if hearers.is_empty() {
            return Vec::new();
        }
        if self.pace.take(now).is_err() {
            self.left_out += 1;
            return Vec::new();
        }
        let mut all = Vec::with_capacity(2);
        let missing = std::mem::take(&mut self.left_out);
        if missing > 0 {
            let note = LogLine::left_out(server, missing);
            // Whose lines they were is not kept; a number tells nobody anything of another one's calls.
            all.push((self.hearers(&note, Audience::Everyone), note));
        }
        all.push((hearers, line));
        all
    }

    fn hearers(&self, line: &LogLine, audience: Audience) -> Vec<Arc<dyn Hearer>> {
        let wants = |(client, (wish, _)): &(&ClientId, &(Verbosity, Arc<dyn Hearer>))| match wish {
            Verbosity::From(level) => *level <= line.level() && audience.has(**client),
            // Another client may have made the server chattier than it is by itself.
            Verbosity::OwnCalls => LogLevel::Info <= line.level() && audience == Audience::Only(**client),
        };
        self.clients.iter().filter(wants).map(|(_, (_, hearer))| hearer.clone()).collect()
    }
}
