//! The ten tools: their names, and the answers of those that read.
//!
//! Runs on the reader thread. Promise: each call reads what it answers from the files as they are
//! now; nothing is kept between calls but the connection to state.db.

use super::arguments::{Arguments, Range};
use super::attachments;
use super::channels;
use super::db::{DbError, StateDb};
use super::index::{self, Detail, Entry, Wanted};
use super::messages::Page;
use super::queries;
use super::reply::{Refusal, object};
use jiff::tz::TimeZone;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use tracing::debug;

/// Largest JSON file of Hermes Agent that is read, in bytes. What is larger counts as damaged.
const LARGEST_FILE: u64 = 64 * 1024 * 1024;
const LIMIT: Range = Range { default: 50, min: 1, max: 200 };
const EVENT_LIMIT: Range = Range { default: 20, min: 1, max: 200 };
const CURSOR: Range = Range { default: 0, min: 0, max: 1_000_000_000_000_000_000 };
const WAIT_MS: Range = Range { default: 30_000, min: 0, max: 300_000 };

const DECISIONS: [&str; 3] = ["allow-once", "allow-always", "deny"];
const LOOK_YOURSELF: &str = "use conversations_list and messages_read to look for new messages";

/// One of the ten tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    ConversationsList,
    ConversationGet,
    MessagesRead,
    AttachmentsFetch,
    EventsPoll,
    EventsWait,
    MessagesSend,
    ChannelsList,
    PermissionsListOpen,
    PermissionsRespond,
}

impl Tool {
    /// In the order in which they are listed.
    pub(super) const ALL: [Self; 10] = [
        Self::ConversationsList,
        Self::ConversationGet,
        Self::MessagesRead,
        Self::AttachmentsFetch,
        Self::EventsPoll,
        Self::EventsWait,
        Self::MessagesSend,
        Self::ChannelsList,
        Self::PermissionsListOpen,
        Self::PermissionsRespond,
    ];

    /// The raw name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ConversationsList => "conversations_list",
            Self::ConversationGet => "conversation_get",
            Self::MessagesRead => "messages_read",
            Self::AttachmentsFetch => "attachments_fetch",
            Self::EventsPoll => "events_poll",
            Self::EventsWait => "events_wait",
            Self::MessagesSend => "messages_send",
            Self::ChannelsList => "channels_list",
            Self::PermissionsListOpen => "permissions_list_open",
            Self::PermissionsRespond => "permissions_respond",
        }
    }

    /// The tool with that raw name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }
}

/// Hermes Agent's files as the tools see them.
#[derive(Debug)]
pub(super) struct Library {
    home: PathBuf,
    /// Zone of local times; `None`: the system's, asked at each use, so that a change is noticed.
    zone: Option<TimeZone>,
    db: StateDb,
}

impl Library {
    /// The files below `home`; nothing is opened yet.
    pub(super) fn new(home: &Path, zone: Option<TimeZone>) -> Self {
        Self { home: home.to_owned(), zone, db: StateDb::new(home) }
    }

    /// Lets go of state.db until the next call.
    pub(super) fn close(&mut self) {
        self.db.close();
    }

    /// Answers one call.
    /// # Errors
    /// [`Refusal`] with a text for the model.
    pub(super) fn answer(&mut self, tool: Tool, arguments: Option<&RawValue>) -> Result<Value, Refusal> {
        let mut given = Arguments::parse(arguments);
        let refused = |error| Refusal::Arguments { tool: tool.name(), error };
        match tool {
            Tool::ConversationsList => {
                let platform = given.optional_text("platform");
                let limit = count(given.whole("limit", LIMIT));
                let search = given.optional_text("search");
                given.done().map_err(refused)?;
                self.conversations_list(&Wanted { platform, search, limit })
            }
            Tool::ConversationGet => {
                let session_key = given.text("session_key");
                given.done().map_err(refused)?;
                self.conversation_get(session_key)
            }
            Tool::MessagesRead => {
                let session_key = given.text("session_key");
                let limit = count(given.whole("limit", LIMIT));
                given.done().map_err(refused)?;
                self.messages_read(session_key, limit)
            }
            Tool::AttachmentsFetch => {
                let (session_key, message_id) = (given.text("session_key"), given.text("message_id"));
                given.done().map_err(refused)?;
                self.attachments_fetch(session_key, message_id)
            }
            Tool::ChannelsList => {
                let platform = given.optional_text("platform");
                given.done().map_err(refused)?;
                self.channels_list(platform.as_deref())
            }
            Tool::EventsPoll => {
                given.whole("after_cursor", CURSOR);
                given.optional_text("session_key");
                given.whole("limit", EVENT_LIMIT);
                given.done().map_err(refused)?;
                later(tool, LOOK_YOURSELF)
            }
            Tool::EventsWait => {
                given.whole("after_cursor", CURSOR);
                given.optional_text("session_key");
                given.whole("timeout_ms", WAIT_MS);
                given.done().map_err(refused)?;
                later(tool, LOOK_YOURSELF)
            }
            Tool::MessagesSend => {
                let (target, message) = (given.text("target"), given.text("message"));
                given.done().map_err(refused)?;
                if target.is_empty() || message.is_empty() {
                    return Err(Refusal::NothingToSend);
                }
                later(tool, "ask the user to send the message")
            }
            Tool::PermissionsListOpen => {
                given.done().map_err(refused)?;
                later(tool, "ask the user to look where Hermes Agent shows its requests")
            }
            Tool::PermissionsRespond => {
                let (_, decision) = (given.text("id"), given.text("decision"));
                given.done().map_err(refused)?;
                if !DECISIONS.contains(&decision.as_str()) {
                    return Err(Refusal::NoDecision { decision });
                }
                later(tool, "ask the user to answer where the request was shown")
            }
        }
    }

    fn conversations_list(&mut self, wanted: &Wanted) -> Result<Value, Refusal> {
        let conversations = index::list(self.entries()?, wanted);
        Ok(json!({ "count": conversations.len(), "conversations": object(&conversations) }))
    }

    fn conversation_get(&mut self, session_key: String) -> Result<Value, Refusal> {
        let mut entry = self.entry(session_key)?;
        // Gateways leave the counters of sessions.json at zero; the row has the true ones.
        if entry.tokens.is_zero() && !entry.session_id.is_empty() {
            match self.db.read(|snapshot| queries::session_tokens(snapshot, &entry.session_id)) {
                Ok(tokens) => entry.tokens = tokens,
                Err(error) => debug!(%error, "session tokens not read"),
            }
        }
        Ok(object(&Detail::from(entry)))
    }

    fn messages_read(&mut self, session_key: String, limit: usize) -> Result<Value, Refusal> {
        let session_id = self.session_id(session_key.clone())?;
        let (total_in_session, messages) = self
            .db
            .read(|snapshot| queries::tail(snapshot, &session_id, limit))
            .map_err(Refusal::Database)?;
        Ok(object(&Page { session_key, count: messages.len(), total_in_session, messages }))
    }

    fn attachments_fetch(&mut self, session_key: String, message_id: String) -> Result<Value, Refusal> {
        let session_id = self.session_id(session_key)?;
        // Ids are compared as text: "07" and " 7" are not the name of row 7.
        let id = message_id.parse::<i64>().ok().filter(|id| id.to_string() == message_id);
        let content = match id {
            Some(id) => self
                .db
                .read(|snapshot| queries::message_content(snapshot, &session_id, id))
                .map_err(Refusal::Database)?,
            None => None,
        };
        let Some(content) = content else { return Err(Refusal::NoMessage { message_id }) };
        let attachments = attachments::of(&content);
        Ok(json!({
            "message_id": message_id, "count": attachments.len(), "attachments": object(&attachments),
        }))
    }

    fn channels_list(&mut self, platform: Option<&str>) -> Result<Value, Refusal> {
        let directory = self.file("channel_directory.json").as_deref().and_then(channels::parse_directory);
        let channels = match directory {
            Some(directory) => channels::from_directory(&directory, platform),
            None => channels::from_entries(self.entries()?, platform),
        };
        Ok(json!({ "count": channels.len(), "channels": object(&channels) }))
    }

    fn session_id(&mut self, session_key: String) -> Result<String, Refusal> {
        let session_id = self.entry(session_key)?.session_id;
        if session_id.is_empty() { Err(Refusal::NoSession) } else { Ok(session_id) }
    }

    fn entry(&mut self, session_key: String) -> Result<Entry, Refusal> {
        let entries = self.indexed(Some(&session_key))?;
        entries
            .into_iter()
            .find(|entry| entry.session_key == session_key)
            .ok_or(Refusal::NoConversation { session_key })
    }

    fn entries(&mut self) -> Result<Vec<Entry>, Refusal> {
        self.indexed(None)
    }

    /// The index: rows of state.db if any carries a session key, else sessions.json.
    fn indexed(&mut self, key: Option<&str>) -> Result<Vec<Entry>, Refusal> {
        let rows = self.db.read(|snapshot| queries::keyed_sessions(snapshot, key));
        let sessions = || self.file("sessions/sessions.json");
        match rows {
            Ok(Some(rows)) => Ok(index::from_rows(rows, &self.zone.clone().unwrap_or_else(TimeZone::system))),
            Ok(None) | Err(DbError::Missing) => {
                Ok(sessions().map(|json| index::from_sessions_json(&json)).unwrap_or_default())
            }
            // Better the older index than none; without one, an empty answer would be a lie.
            Err(error) => match sessions() {
                Some(json) => {
                    debug!(%error, "conversations taken from sessions.json");
                    Ok(index::from_sessions_json(&json))
                }
                None => Err(Refusal::Database(error)),
            },
        }
    }

    /// The text of a file below home; `None` if it is missing, too large or no text.
    fn file(&self, name: &str) -> Option<String> {
        match read_text(&self.home.join(name)) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                debug!(file = name, %error, "file of Hermes Agent not read");
                None
            }
        }
    }
}

pub(super) fn read_text(path: &Path) -> std::io::Result<String> {
    let file = std::fs::File::open(path)?;
    let mut text = String::new();
    let bytes = file.take(LARGEST_FILE + 1).read_to_string(&mut text)?;
    if bytes as u64 > LARGEST_FILE {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// A limit as a count: its range is positive and small.
fn count(limit: i64) -> usize {
    usize::try_from(limit).unwrap_or(0)
}

/// Refuses a tool that is listed but not built, once its arguments were found right.
fn later(tool: Tool, instead: &'static str) -> Result<Value, Refusal> {
    Err(Refusal::NotInThisBuild { tool: tool.name(), instead })
}
