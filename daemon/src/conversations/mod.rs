//! The ten conversation tools over Hermes Agent's files (built-in server `hermes`).
//!
//! Owner: [`Conversations`], a handle on one reader thread. Promise: the runtime is never blocked,
//! no file of Hermes Agent is changed by reading, and every known tool gets a result, whatever state the files
//! are in. May not touch: servers, sessions of clients, hermesd.db.
//!
//! `messages_send` alone leaves this machine (`send`), and `mirror` alone writes state.db.
//!
//! A call: name -> `reader` (queue, thread) -> `tools` (arguments) -> `reading` (which file) -> `db` and
//! `queries`, `page`, `tally` (state.db) or a JSON file -> pure files (`index`, `messages`, `attachments`,
//! `channels`) -> `reply`.

mod arguments;
mod attachments;
mod channels;
mod content;
mod copy;
mod db;
mod definitions;
pub mod events;
pub mod events_tools;
mod index;
mod local_time;
mod messages;
mod mirror;
mod page;
mod pyrepr;
mod queries;
mod reader;
mod reading;
mod reply;
mod send;
mod sessions_file;
mod tally;
mod tools;
mod trail;
mod values;
pub mod watch;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod home_tests;
#[cfg(test)]
mod reading_tests;

pub use definitions::{Effect, ToolDefinition};
pub use reply::ToolReply;
pub use send::Outgoing;

use arguments::Arguments;
use jiff::tz::TimeZone;
use reader::{ANSWER_LIMIT, Handed, Reader};
use reply::Refusal;
use send::{Ask, Courier};
use serde_json::Value;
use serde_json::value::RawValue;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tools::{Library, Reading, Tool};

/// The conversations of one Hermes home. Cheap to clone; all clones share one reader.
#[derive(Debug, Clone)]
pub struct Conversations {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    home: PathBuf,
    zone: Option<TimeZone>,
    /// `None`: messages cannot be sent.
    courier: Option<Courier>,
    /// `None` until the first call, so that a home without conversations costs no thread.
    reader: Mutex<Option<Reader>>,
}

/// Whether the configuration has a `platforms:` section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platforms {
    /// It has one.
    Configured,
    /// It has none.
    Absent,
}

/// No conversation tool has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no conversation tool is called `{name}`")]
pub struct UnknownTool {
    /// As asked for.
    pub name: String,
}

impl Conversations {
    /// The conversations below `home` (HERMES_HOME). Opens and starts nothing.
    pub fn open(home: &Path) -> Self {
        Self::new(home, None, None)
    }

    /// Like [`open`](Self::open), able to send messages.
    pub fn open_sending(home: &Path, outgoing: Outgoing) -> Self {
        Self::new(home, None, Some(Courier::new(home, outgoing)))
    }

    /// Like [`open`](Self::open), with local times in `zone` in place of the system's zone.
    pub fn open_in_zone(home: &Path, zone: TimeZone) -> Self {
        Self::new(home, Some(zone), None)
    }

    fn new(home: &Path, zone: Option<TimeZone>, courier: Option<Courier>) -> Self {
        let shared = Shared { home: home.to_owned(), zone, courier, reader: Mutex::new(None) };
        Self { shared: Arc::new(shared) }
    }

    /// Whether there is anything to offer under `conversations: auto`: a state.db, a sessions.json
    /// or a `platforms:` section. Two stat() calls, cheap enough for the runtime on a local disk.
    pub fn present(&self, platforms: Platforms) -> bool {
        let exists = |name: &str| self.shared.home.join(name).exists();
        platforms == Platforms::Configured || exists("state.db") || exists("sessions/sessions.json")
    }

    /// The definitions of the ten tools, always in the same order and with the same bytes.
    pub fn tools() -> Vec<ToolDefinition> {
        definitions::all()
    }

    /// Calls `tool` (raw name) with `params.arguments` as the client sent them.
    ///
    /// Takes the coercions of the reference itself: a validator in front of it must let them pass.
    /// Reading is answered within 30 s.
    /// # Errors
    /// [`UnknownTool`]. Everything else, wrong arguments included, is a reply with `is_error`.
    /// # Cancel safety
    /// Cancel safe: a call that has not started is not started, the answer of another is dropped; of a message
    /// no further part is sent.
    pub async fn call(&self, tool: &str, arguments: Option<&RawValue>) -> Result<ToolReply, UnknownTool> {
        let known = Tool::named(tool);
        if known == Some(Tool::MessagesSend)
            && let Some(courier) = &self.shared.courier
        {
            return Ok(reply::render(self.send(courier, arguments).await));
        }
        let Some(tool) = known.and_then(Reading::of) else {
            return Err(UnknownTool { name: tool.to_owned() });
        };
        let answer = match self.hand_over(tool, arguments) {
            Ok(answer) => answer,
            Err(refusal) => return Ok(reply::render(Err(refusal))),
        };
        Ok(match tokio::time::timeout(ANSWER_LIMIT, answer).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(_)) => reply::render(Err(Refusal::ReaderGone)),
            Err(_) => reply::render(Err(Refusal::Late { limit: ANSWER_LIMIT })),
        })
    }

    /// Sends a message. Not on the reader's thread: platforms take their time.
    async fn send(&self, courier: &Courier, arguments: Option<&RawValue>) -> Result<Value, Refusal> {
        let mut given = Arguments::parse(arguments);
        let ask = Ask {
            target: given.text("target"),
            message: given.text("message"),
            key: given.optional_text("idempotency_key"),
        };
        given.done().map_err(|error| Refusal::Arguments { tool: Tool::MessagesSend.name(), error })?;
        if ask.target.is_empty() || ask.message.is_empty() {
            return Err(Refusal::NothingToSend);
        }
        courier.send(self, ask).await.map_err(|problem| Refusal::Unsent(Box::new(problem)))
    }

    /// Hands the call to the reader, starting it if it does not run: at the first call, or after a
    /// panic, which ends one call and not the tools.
    fn hand_over(
        &self,
        tool: Reading,
        arguments: Option<&RawValue>,
    ) -> Result<tokio::sync::oneshot::Receiver<ToolReply>, Refusal> {
        let mut slot = self.shared.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reader) = &*slot
            && let Handed::Over(answer) = reader.hand_over(tool, arguments)?
        {
            return Ok(answer);
        }
        let library = Library::new(&self.shared.home, self.shared.zone.clone());
        let reader = slot.insert(Reader::start(library).map_err(Refusal::NoReader)?);
        match reader.hand_over(tool, arguments)? {
            Handed::Over(answer) => Ok(answer),
            Handed::ThreadEnded => Err(Refusal::ReaderGone),
        }
    }
}
