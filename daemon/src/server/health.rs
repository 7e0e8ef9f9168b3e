//! Is a silent server deaf? One probe, and when it is due.
//!
//! Owner: the supervisor. Any JSON-RPC answer proves life, also an error. A server that does not
//! answer `ping` but something else is never pinged again. Nothing is restarted on a missing ping
//! alone, and never while a call in flight explains the silence.
//! The limits are the wire's, which moves them when the process was stopped or the machine slept.

use super::wire::{Progress, Request, WireError, WireHandle};
use std::time::Duration;
use tokio::time::Instant;

/// Silence after which a server is probed.
pub const SILENCE: Duration = Duration::from_secs(60);

/// Time to answer each of the two questions of a probe.
pub const PROBE_BUDGET: Duration = Duration::from_secs(10);

/// Time until the next look when calls in flight explain the silence.
pub const RECONSIDER: Duration = Duration::from_secs(10);

/// Whether `ping` is worth asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ping {
    /// Answered so far, or never asked.
    #[default]
    Asked,
    /// The server ignores it but lives.
    Ignored,
}

/// What a probe found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It answered.
    Alive,
    /// It ignored ping and showed life otherwise.
    IgnoresPing,
    /// Neither question was answered, and nothing else was heard.
    Deaf,
    /// The connection ended meanwhile.
    Gone,
}

/// What one question found.
enum Heard {
    Answer,
    OtherLife,
    Nothing,
    Gone,
}

/// Asks `ping` (unless it is known to be ignored), then `tools/list`.
///
/// # Cancel safety
/// Dropping the future cancels the open question.
pub async fn probe(wire: WireHandle, ping: Ping) -> Verdict {
    match ping {
        Ping::Asked => match ask(&wire, "ping").await {
            Heard::Answer => return Verdict::Alive,
            Heard::OtherLife => return Verdict::IgnoresPing,
            Heard::Gone => return Verdict::Gone,
            Heard::Nothing => {}
        },
        Ping::Ignored => {}
    }
    match ask(&wire, "tools/list").await {
        Heard::Answer | Heard::OtherLife => Verdict::IgnoresPing,
        Heard::Nothing => Verdict::Deaf,
        Heard::Gone => Verdict::Gone,
    }
}

async fn ask(wire: &WireHandle, method: &'static str) -> Heard {
    let asked = Instant::now();
    let (idle, cap, progress) = (PROBE_BUDGET, PROBE_BUDGET, Progress::Unwanted);
    let outcome = match wire.request(Request { method: method.into(), params: None, idle, cap, progress }) {
        Ok(flight) => flight.done().await,
        Err(error) => Err(error),
    };
    match outcome {
        Ok(_) | Err(WireError::Malformed | WireError::TooLong { .. } | WireError::Http(_)) => Heard::Answer,
        // What these mean is said by the end of the connection.
        Err(WireError::Gone { .. } | WireError::NeedsAuth { .. } | WireError::Unreachable { .. }) => {
            Heard::Gone
        }
        Err(WireError::Interrupted { .. }) => Heard::Nothing,
        Err(WireError::IdleTimeout { .. } | WireError::CapTimeout { .. } | WireError::QueueFull { .. }) => {
            let heard_since = wire.stats().last_heard().is_some_and(|at| at > asked);
            if heard_since { Heard::OtherLife } else { Heard::Nothing }
        }
    }
}
