//! The answers of the five tools that read.
//!
//! Runs on the reader thread. Promise: each answer is from the files as they are now; what is kept
//! between calls is the connection to state.db, what was counted and the parsed sessions.json, each
//! with what tells whether it still holds.

use super::attachments;
use super::channels;
use super::db::{DbError, Snapshot};
use super::index::{self, Detail, Entry, Head, LOCAL_KEY, Local, Wanted};
use super::messages::{Ask, Page};
use super::page;
use super::queries;
use super::reply::{Refusal, object};
use super::sessions_file;
use super::tools::Library;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tracing::debug;

/// How long a file must have been left alone before what was read of it is kept.
const RESTED: Duration = Duration::from_millis(100);

/// Where the row of a key was looked for.
enum Keyed {
    Found(Box<index::SessionRow>),
    /// state.db is the index, and knows no such key.
    Unknown,
    /// sessions.json is the index.
    Elsewhere,
}

impl Library {
    /// The zone of local times.
    pub(super) fn zone(&self) -> TimeZone {
        self.zone.clone().unwrap_or_else(TimeZone::system)
    }

    pub(super) fn conversations_list(&mut self, wanted: &Wanted) -> Result<Value, Refusal> {
        let zone = self.zone();
        let picked = self.db.read(|snapshot| {
            let Some(heads) = queries::keyed(snapshot)? else { return Ok(None) };
            let heads = index::newest_of_each_key(heads);
            let mut found = index::pick(&heads, wanted, |head| load(snapshot, head, &zone))?;
            found.extend(local(snapshot, wanted, heads.iter().map(|head| &*head.id), &zone)?);
            Ok(Some(found))
        });
        let conversations = match self.or_file(picked)? {
            Ok(found) => index::list(found.iter(), wanted),
            Err(entries) => {
                let taken = entries.iter().map(|entry| &*entry.session_id);
                let local = match self.db.read(|snapshot| local(snapshot, wanted, taken, &zone)) {
                    Ok(local) => local,
                    Err(error) if wanted.local == Local::Included && !matches!(error, DbError::Missing) => {
                        return Err(Refusal::Database(error));
                    }
                    Err(_) => Vec::new(),
                };
                let used = |entry: &&Entry| index::used_since(entry, wanted.active_since, &zone);
                index::list(entries.iter().filter(used).chain(&local), wanted)
            }
        };
        Ok(json!({ "count": conversations.len(), "conversations": object(&conversations) }))
    }

    pub(super) fn conversation_get(&mut self, session_key: String, local: Local) -> Result<Value, Refusal> {
        let mut entry = self.entry(session_key, local)?;
        // Gateways leave the counters of sessions.json at zero; the row has the true ones.
        if entry.tokens.is_zero() && !entry.session_id.is_empty() {
            match self.db.read(|snapshot| queries::session_tokens(snapshot, &entry.session_id)) {
                Ok(tokens) => entry.tokens = tokens,
                Err(error) => debug!(%error, "session tokens not read"),
            }
        }
        Ok(object(&Detail::from(entry)))
    }

    pub(super) fn messages_read(
        &mut self,
        session_key: String,
        ask: &Ask,
        local: Local,
    ) -> Result<Value, Refusal> {
        let session_id = self.session_id(session_key.clone(), local)?;
        let tallies = &mut self.tallies;
        let ((messages, more), total_in_session) = self
            .db
            .read(|snapshot| {
                let page = page::read(snapshot, &session_id, ask)?;
                Ok((page, tallies.total(snapshot, &session_id)?))
            })
            .map_err(Refusal::Database)?;
        let more = (*ask != Ask::newest(ask.limit)).then_some(more);
        Ok(object(&Page { session_key, count: messages.len(), total_in_session, messages, more }))
    }

    pub(super) fn attachments_fetch(
        &mut self,
        session_key: String,
        message_id: String,
        local: Local,
    ) -> Result<Value, Refusal> {
        let session_id = self.session_id(session_key, local)?;
        // Ids are compared as text: "07" and " 7" are not the name of row 7.
        let id = message_id.parse::<i64>().ok().filter(|id| id.to_string() == message_id);
        let content = match id {
            Some(id) => self
                .db
                .read(|snapshot| page::content_of(snapshot, &session_id, id))
                .map_err(Refusal::Database)?,
            None => None,
        };
        let Some(content) = content else { return Err(Refusal::NoMessage { message_id }) };
        let attachments = attachments::of(&content);
        Ok(json!({
            "message_id": message_id, "count": attachments.len(), "attachments": object(&attachments),
        }))
    }

    pub(super) fn channels_list(&mut self, platform: Option<&str>) -> Result<Value, Refusal> {
        let directory = self.file("channel_directory.json").as_deref().and_then(channels::parse_directory);
        let channels = match directory {
            Some(directory) => channels::from_directory(&directory, platform),
            None => channels::from_entries(self.entries()?, platform),
        };
        Ok(json!({ "count": channels.len(), "channels": object(&channels) }))
    }

    fn session_id(&mut self, session_key: String, local: Local) -> Result<String, Refusal> {
        let session_id = self.entry(session_key, local)?.session_id;
        if session_id.is_empty() { Err(Refusal::NoSession) } else { Ok(session_id) }
    }

    fn entry(&mut self, session_key: String, local: Local) -> Result<Entry, Refusal> {
        let zone = self.zone();
        if let Some(id) = session_key.strip_prefix(LOCAL_KEY) {
            if local == Local::LeftOut {
                return Err(Refusal::LocalNotAsked { session_key });
            }
            let row = self.db.read(|snapshot| queries::row_of_session(snapshot, id));
            let row = row.map_err(Refusal::Database)?.ok_or(Refusal::NoConversation { session_key })?;
            return Ok(index::from_local_row(row, &zone));
        }
        let keyed = self.db.read(|snapshot| {
            if let Some(row) = queries::row_of_key(snapshot, &session_key)? {
                return Ok(Some(Keyed::Found(Box::new(row))));
            }
            Ok(Some(if queries::any_keyed(snapshot)? { Keyed::Unknown } else { Keyed::Elsewhere }))
        });
        let keyed = keyed.map(|keyed| keyed.filter(|keyed| !matches!(keyed, Keyed::Elsewhere)));
        match self.or_file(keyed)? {
            Ok(Keyed::Found(row)) => Ok(index::from_row(*row, &zone)),
            Ok(Keyed::Unknown | Keyed::Elsewhere) => Err(Refusal::NoConversation { session_key }),
            Err(entries) => entries
                .iter()
                .find(|entry| entry.session_key == session_key)
                .cloned()
                .ok_or(Refusal::NoConversation { session_key }),
        }
    }

    /// Every conversation.
    pub(super) fn entries(&mut self) -> Result<Vec<Entry>, Refusal> {
        let zone = self.zone();
        let all = Wanted { limit: usize::MAX, ..Wanted::default() };
        let keyed = self.db.read(|snapshot| {
            let Some(heads) = queries::keyed(snapshot)? else { return Ok(None) };
            index::pick(&index::newest_of_each_key(heads), &all, |head| load(snapshot, head, &zone)).map(Some)
        });
        Ok(self.or_file(keyed)?.unwrap_or_else(|entries| entries.to_vec()))
    }

    /// What the rows of state.db gave (`Ok`), or the entries of sessions.json (`Err`) where it is the index.
    fn or_file<T>(&mut self, rows: Result<Option<T>, DbError>) -> Result<Result<T, Arc<[Entry]>>, Refusal> {
        match rows {
            Ok(Some(found)) => Ok(Ok(found)),
            Ok(None) | Err(DbError::Missing) => Ok(Err(self.sessions().unwrap_or_default())),
            // Better the older index than none; without one, an empty answer would be a lie.
            Err(error) => match self.sessions() {
                Some(entries) => {
                    debug!(%error, "conversations taken from sessions.json");
                    Ok(Err(entries))
                }
                None => Err(Refusal::Database(error)),
            },
        }
    }

    /// The entries of sessions.json as it is now; `None` if there is no such file.
    fn sessions(&mut self) -> Option<Arc<[Entry]>> {
        const NAME: &str = "sessions/sessions.json";
        let now = self.stamp(NAME);
        if let Some((stamp, entries)) = &self.sessions
            && Some(*stamp) == now
        {
            return Some(entries.clone());
        }
        let entries: Arc<[Entry]> = sessions_file::parse(&self.file(NAME)?).into();
        // Only what did not change while it was read is kept, and only once it has rested: two writes
        // within one tick of the clock look the same.
        let rested = |stamp: &Stamp| stamp.changed.elapsed().is_ok_and(|age| age > RESTED);
        self.sessions =
            now.filter(|_| self.stamp(NAME) == now).filter(rested).map(|stamp| (stamp, entries.clone()));
        Some(entries)
    }

    fn stamp(&self, name: &str) -> Option<Stamp> {
        let metadata = std::fs::metadata(self.home.join(name)).ok()?;
        let changed = metadata.modified().ok()?;
        Some(Stamp { file: (metadata.dev(), metadata.ino()), bytes: metadata.len(), changed })
    }
}

/// What tells a file from the same file after it was written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    file: (u64, u64),
    bytes: u64,
    changed: SystemTime,
}

fn load(snapshot: &Snapshot<'_>, head: &Head, zone: &TimeZone) -> rusqlite::Result<Option<Entry>> {
    Ok(queries::row(snapshot, head.rowid)?.map(|row| index::from_row(row, zone)))
}

/// Sessions that are no conversation of their own, if they are wanted: those whose id is not `taken`.
fn local(
    snapshot: &Snapshot<'_>,
    wanted: &Wanted,
    taken: impl Iterator<Item = impl AsRef<str>>,
    zone: &TimeZone,
) -> rusqlite::Result<Vec<Entry>> {
    if wanted.local == Local::LeftOut {
        return Ok(Vec::new());
    }
    let mut heads = queries::local(snapshot)?;
    let taken: HashSet<String> = taken.map(|id| id.as_ref().to_owned()).collect();
    heads.retain(|head| !taken.contains(&head.id));
    index::most_recent_first(&mut heads);
    index::pick(&heads, wanted, |head| {
        Ok(queries::row(snapshot, head.rowid)?.map(|row| index::from_local_row(row, zone)))
    })
}
