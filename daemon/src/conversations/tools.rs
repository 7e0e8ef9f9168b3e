//! The ten tools: their names and arguments.
//!
//! Runs on the reader thread. Promise: arguments are read in full before anything is done, so that an
//! error names every mistake. May not touch: what is answered (`reading`).

use super::arguments::{Arguments, Range};
use super::db::StateDb;
use super::index::{Entry, Local, Wanted};
use super::local_time;
use super::messages::{Ask, Length, Role};
use super::reading::Stamp;
use super::reply::Refusal;
use super::tally::Tallies;
use jiff::tz::TimeZone;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::debug;

/// Largest JSON file of Hermes Agent that is read, in bytes. What is larger counts as damaged.
const LARGEST_FILE: u64 = 64 * 1024 * 1024;
const LIMIT: Range = Range { default: 50, min: 1, max: 200 };

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

/// The tools that the reader answers. Events, sending and approvals have owners of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    ConversationsList,
    ConversationGet,
    MessagesRead,
    AttachmentsFetch,
    ChannelsList,
}

impl Reading {
    /// `None`: somebody else answers `tool`.
    pub(super) fn of(tool: Tool) -> Option<Self> {
        match tool {
            Tool::ConversationsList => Some(Self::ConversationsList),
            Tool::ConversationGet => Some(Self::ConversationGet),
            Tool::MessagesRead => Some(Self::MessagesRead),
            Tool::AttachmentsFetch => Some(Self::AttachmentsFetch),
            Tool::ChannelsList => Some(Self::ChannelsList),
            Tool::EventsPoll
            | Tool::EventsWait
            | Tool::MessagesSend
            | Tool::PermissionsListOpen
            | Tool::PermissionsRespond => None,
        }
    }

    /// The raw name.
    fn name(self) -> &'static str {
        match self {
            Self::ConversationsList => Tool::ConversationsList.name(),
            Self::ConversationGet => Tool::ConversationGet.name(),
            Self::MessagesRead => Tool::MessagesRead.name(),
            Self::AttachmentsFetch => Tool::AttachmentsFetch.name(),
            Self::ChannelsList => Tool::ChannelsList.name(),
        }
    }
}

/// Hermes Agent's files as the tools see them.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) home: PathBuf,
    /// Zone of local times; `None`: the system's, asked at each use, so that a change is noticed.
    pub(super) zone: Option<TimeZone>,
    pub(super) db: StateDb,
    pub(super) tallies: Tallies,
    /// The entries of sessions.json, as long as it is the file that they were read from.
    pub(super) sessions: Option<(Stamp, Arc<[Entry]>)>,
}

impl Library {
    /// The files below `home`; nothing is opened yet.
    pub(super) fn new(home: &Path, zone: Option<TimeZone>) -> Self {
        Self {
            home: home.to_owned(),
            zone,
            db: StateDb::new(home),
            tallies: Tallies::default(),
            sessions: None,
        }
    }

    /// Lets go of state.db and of what takes memory until the next call.
    pub(super) fn close(&mut self) {
        self.db.close();
        self.sessions = None;
    }

    /// Answers one call.
    /// # Errors
    /// [`Refusal`] with a text for the model.
    pub(super) fn answer(&mut self, tool: Reading, arguments: Option<&RawValue>) -> Result<Value, Refusal> {
        let mut given = Arguments::parse(arguments);
        let refused = |error| Refusal::Arguments { tool: tool.name(), error };
        match tool {
            Reading::ConversationsList => {
                let platform = given.optional_text("platform");
                let limit = count(given.whole("limit", LIMIT));
                let search = given.optional_text("search");
                let zone = self.zone();
                let active_since = given.time("active_since", |text| local_time::epoch(text, &zone));
                let local = local(&mut given);
                given.done().map_err(refused)?;
                self.conversations_list(&Wanted { platform, search, limit, active_since, local })
            }
            Reading::ConversationGet => {
                let session_key = given.text("session_key");
                let local = local(&mut given);
                given.done().map_err(refused)?;
                self.conversation_get(session_key, local)
            }
            Reading::MessagesRead => {
                let session_key = given.text("session_key");
                let ask = ask(&mut given);
                let local = local(&mut given);
                given.done().map_err(refused)?;
                self.messages_read(session_key, &ask, local)
            }
            Reading::AttachmentsFetch => {
                let (session_key, message_id) = (given.text("session_key"), given.text("message_id"));
                let local = local(&mut given);
                given.done().map_err(refused)?;
                self.attachments_fetch(session_key, message_id, local)
            }
            Reading::ChannelsList => {
                let platform = given.optional_text("platform");
                given.done().map_err(refused)?;
                self.channels_list(platform.as_deref())
            }
        }
    }

    /// The text of a file below home; `None` if it is missing, too large or no text.
    pub(super) fn file(&self, name: &str) -> Option<String> {
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

fn ask(given: &mut Arguments) -> Ask {
    let limit = count(given.whole("limit", LIMIT));
    let (before, after) = (given.message_id("before"), given.message_id("after"));
    let roles =
        given.words("roles", &Role::ALL.map(Role::word)).into_iter().filter_map(Role::named).collect();
    let length = if given.flag("full") { Length::Whole } else { Length::Cut };
    let plain = Ask::newest(limit);
    Ask {
        before,
        after,
        length,
        roles: Some(roles).filter(|set: &BTreeSet<_>| !set.is_empty()).unwrap_or(plain.roles),
        limit,
    }
}

fn local(given: &mut Arguments) -> Local {
    if given.flag("include_local") { Local::Included } else { Local::LeftOut }
}

/// A limit as a count: its range is positive and small.
fn count(limit: i64) -> usize {
    usize::try_from(limit).unwrap_or(0)
}
