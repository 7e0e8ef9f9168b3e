//! Pure: the response streams of one session, what each still has to carry, and what can be carried again.
//!
//! Promise: every line of the session goes to one stream only, the one it belongs to; a reader that comes back with the
//! id of the last event it saw goes on right behind it, as long as that is still kept; what is kept is bounded
//! ([`KEPT_BYTES`], [`KEPT_STREAMS`]). An answer never waits behind another stream.
//!
//! Sources: MCP 2025-11-25, Transports, Streamable HTTP: sending messages, multiple connections, resumability.

use super::line::About;
use crate::jsonrpc::ids::IdKey;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// Bytes of lines that may wait or be kept for readers that come back; over it the oldest delivered ones go first.
pub const KEPT_BYTES: usize = 8 << 20;
/// Over this many bytes that nobody has read, the session is not read any more.
pub const PAUSE_BYTES: usize = 16 << 20;
/// Finished streams that are kept for readers that come back.
pub const KEPT_STREAMS: usize = 32;
/// Notices that wait for the first reader of the general stream; the oldest go first.
pub const KEPT_NEWS: usize = 256;

/// The stream of a GET: whatever belongs to no request.
pub const GENERAL: u64 = 0;

/// What a POST waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waits {
    /// The requests in it.
    pub ids: Vec<IdKey>,
    /// The progress tokens they gave.
    pub tokens: Vec<IdKey>,
    /// They may make the server ask something.
    pub may_ask: bool,
    /// They came as a batch, whose answer is one line.
    pub batch: bool,
}

/// The right to read one stream; a later one takes it away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Which stream.
    pub stream: u64,
    /// Which of its readers.
    pub reader: u64,
    /// The last event it has.
    pub cursor: u64,
}

/// What a reader gets next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// An event.
    Event {
        /// Its number in the stream.
        number: u64,
        /// The line.
        line: Bytes,
        /// The stream ends with it.
        last: bool,
    },
    /// Nothing yet.
    Wait,
    /// Nothing any more.
    End,
}

/// Why a POST cannot wait for its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a request with this id is still open; ids must not be reused within a session")]
pub struct SameId;

#[derive(Debug, Default)]
struct Stream {
    waits: Option<Waits>,
    events: VecDeque<(u64, Bytes)>,
    /// Number of the newest event.
    last: u64,
    /// Number of the newest event that a reader took.
    taken: u64,
    readers: u64,
    attached: bool,
    finished: bool,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Streams {
    all: BTreeMap<u64, Stream>,
    next: u64,
    bytes: usize,
    /// Questions of ours, and where they went.
    asked: VecDeque<(IdKey, u64)>,
    ended: bool,
}

impl Default for Streams {
    fn default() -> Self {
        let all = BTreeMap::from([(GENERAL, Stream::default())]);
        Self { all, next: GENERAL + 1, bytes: 0, asked: VecDeque::new(), ended: false }
    }
}

impl Streams {
    /// A stream for the answers to a POST.
    ///
    /// # Errors
    /// [`SameId`]: its answer could not be told from another.
    pub fn open(&mut self, waits: Waits) -> Result<Reading, SameId> {
        if waits.ids.iter().any(|id| self.waiting_for(id).is_some()) {
            return Err(SameId);
        }
        let stream = self.next;
        self.next += 1;
        self.all.insert(stream, Stream { waits: Some(waits), ..Stream::default() });
        self.forget_finished();
        Ok(self.attach(stream, 0).expect("it was made this moment"))
    }

    /// Reads `stream` on behind event `cursor`; whoever read it before reads no more. `None`: not kept any more.
    pub fn attach(&mut self, stream: u64, cursor: u64) -> Option<Reading> {
        let found = self.all.get_mut(&stream)?;
        let oldest = found.events.front().map_or(found.last + 1, |(number, _)| *number);
        // An event in between is gone, or was never there.
        if cursor > found.last || (cursor > 0 && cursor + 1 < oldest) {
            return None;
        }
        found.readers += 1;
        found.attached = true;
        Some(Reading { stream, reader: found.readers, cursor })
    }

    /// Whether somebody reads the general stream.
    pub fn has_general_reader(&self) -> bool {
        self.all[&GENERAL].attached
    }

    /// A reader went away.
    pub fn detach(&mut self, reading: &Reading) {
        if let Some(stream) = self.all.get_mut(&reading.stream).filter(|s| s.readers == reading.reader) {
            stream.attached = false;
        }
    }

    /// A stream whose answer went another way, whole: nobody can come back to it.
    pub fn close(&mut self, stream: u64) {
        if let Some(gone) = self.all.remove(&stream) {
            self.bytes -= bytes_of(&gone);
        }
    }

    /// Takes a line of the session; `false`: it belongs nowhere.
    pub fn take(&mut self, line: Bytes, about: About) -> bool {
        let (to, finishes) = match about {
            About::Nothing => return false,
            About::Answer(ids) => match self.answered(&ids) {
                Some(stream) => (stream, true),
                None => return false,
            },
            About::Progress(token) => match self.with_token(&token) {
                Some(stream) => (stream, false),
                None => return false,
            },
            About::Question(id) => {
                let stream = self.newest_open(|waits| waits.may_ask).unwrap_or(GENERAL);
                self.asked.push_back((id, stream));
                if self.asked.len() > KEPT_NEWS {
                    self.asked.pop_front();
                }
                (stream, false)
            }
            About::Withdrawn(id) => (self.withdrawn(&id), false),
            About::Log => (self.log_stream(), false),
            About::News => (GENERAL, false),
        };
        self.push(to, line, finishes);
        true
    }

    fn push(&mut self, to: u64, line: Bytes, finishes: bool) {
        let stream = self.all.get_mut(&to).expect("chosen among those that are there");
        self.bytes += line.len();
        stream.last += 1;
        stream.events.push_back((stream.last, line));
        stream.finished |= finishes;
        if to == GENERAL && !stream.attached && stream.events.len() > KEPT_NEWS {
            let (_, oldest) = stream.events.pop_front().expect("it is over the bound");
            self.bytes -= oldest.len();
        }
        self.forget_delivered();
    }

    /// What comes behind the cursor of `reading`, which moves on with an event.
    pub fn next(&mut self, reading: &mut Reading) -> Next {
        let ended = self.ended;
        let Some(stream) = self.all.get_mut(&reading.stream).filter(|s| s.readers == reading.reader) else {
            return Next::End;
        };
        // Numbers follow each other without a gap.
        let oldest = stream.events.front().map_or(0, |(number, _)| *number);
        let at = usize::try_from((reading.cursor + 1).saturating_sub(oldest)).unwrap_or(usize::MAX);
        match stream.events.get(at) {
            Some((number, line)) => {
                reading.cursor = *number;
                stream.taken = stream.taken.max(*number);
                let last = stream.finished && *number == stream.last;
                let next = Next::Event { number: *number, line: line.clone(), last };
                self.forget_delivered();
                next
            }
            None if ended || stream.finished => Next::End,
            None => Next::Wait,
        }
    }

    /// The session is over: what is there is still given out, and nothing comes any more.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Whether so much waits unread that the session is not to be read on.
    pub fn is_full(&self) -> bool {
        self.bytes > PAUSE_BYTES
    }

    /// Whether a request waits for its answer, or somebody reads.
    pub fn is_busy(&self) -> bool {
        self.all.values().any(|stream| stream.attached || (stream.waits.is_some() && !stream.finished))
    }

    fn waiting_for(&self, id: &IdKey) -> Option<u64> {
        let mut open = self.all.iter().filter(|(_, stream)| !stream.finished);
        open.find(|(_, stream)| stream.waits.as_ref().is_some_and(|waits| waits.ids.contains(id)))
            .map(|(n, _)| *n)
    }

    fn answered(&self, ids: &[IdKey]) -> Option<u64> {
        // An answer without an id is one to a batch of which nothing could be used.
        let oldest_batch = || {
            let mut open = self.all.iter().filter(|(_, stream)| !stream.finished);
            open.find(|(_, stream)| stream.waits.as_ref().is_some_and(|waits| waits.batch)).map(|(n, _)| *n)
        };
        ids.iter().find_map(|id| self.waiting_for(id)).or_else(|| oldest_batch().filter(|_| ids.is_empty()))
    }

    fn with_token(&self, token: &IdKey) -> Option<u64> {
        self.newest_open(|waits| waits.tokens.contains(token))
    }

    fn newest_open(&self, wanted: impl Fn(&Waits) -> bool) -> Option<u64> {
        let mut open = self.all.iter().rev().filter(|(_, stream)| !stream.finished);
        open.find(|(_, stream)| stream.waits.as_ref().is_some_and(&wanted)).map(|(n, _)| *n)
    }

    /// A log line goes with the only request that is open, else to whoever listens in general.
    fn log_stream(&self) -> u64 {
        let open = self.all.iter().filter(|(_, stream)| stream.waits.is_some() && !stream.finished);
        let open: Vec<u64> = open.map(|(number, _)| *number).collect();
        match open[..] {
            [only] => only,
            [.., newest] if !self.has_general_reader() => newest,
            _ => GENERAL,
        }
    }

    fn withdrawn(&mut self, id: &IdKey) -> u64 {
        let Some(at) = self.asked.iter().position(|(asked, _)| asked == id) else { return GENERAL };
        let (_, stream) = self.asked.remove(at).expect("position is inside");
        if self.all.get(&stream).is_some_and(|stream| !stream.finished) { stream } else { GENERAL }
    }

    fn forget_finished(&mut self) {
        let done = |stream: &Stream| stream.finished && !stream.attached;
        let kept: Vec<u64> = self.all.iter().filter(|(_, s)| done(s)).map(|(number, _)| *number).collect();
        for number in kept.iter().take(kept.len().saturating_sub(KEPT_STREAMS)) {
            self.close(*number);
        }
    }

    fn forget_delivered(&mut self) {
        if self.bytes <= KEPT_BYTES {
            return;
        }
        for stream in self.all.values_mut() {
            while let Some((_, line)) = stream.events.pop_front_if(|(number, _)| *number <= stream.taken) {
                self.bytes -= line.len();
                if self.bytes <= KEPT_BYTES {
                    return;
                }
            }
        }
        // Nobody came back for these.
        let left: Vec<u64> =
            self.all.iter().filter(|(_, s)| s.finished && !s.attached).map(|(number, _)| *number).collect();
        for number in left {
            if self.bytes <= KEPT_BYTES {
                return;
            }
            self.close(number);
        }
    }
}

fn bytes_of(stream: &Stream) -> usize {
    stream.events.iter().map(|(_, line)| line.len()).sum()
}

#[cfg(test)]
#[path = "streams_tests.rs"]
mod tests;
