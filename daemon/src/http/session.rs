//! One session of the revisions with a handshake (`Mcp-Session-Id`): its lines in, its streams out.
//!
//! Owner: the task in [`carry`], which is the only one that touches the socket pair. Promise: whole lines only,
//! whatever happens to the request that brought them; when the session ends, every stream ends. A reader that does
//! not read holds up its own session alone. May not touch: what lines say.

use super::keys::Guest;
use super::line::about;
use super::streams::{GENERAL, Next, Reading, SameId, Streams, Waits};
use crate::jsonrpc::reply::{INTERNAL_ERROR, Reply};
use bytes::Bytes;
use hermes_proto::shim::envelope;
use hermes_proto::shim::framing::{DEFAULT_MAX_LINE, Line, LineBuffer};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Lines that wait for the session; further requests wait with their POST.
const QUEUE: usize = 32;

/// Longest line of a session; it may be longer than what clients may send, because results are.
pub const MAX_ANSWER: usize = 4 * DEFAULT_MAX_LINE;

/// How often a session whose streams are full is looked at again.
const FULL_CHECK: Duration = Duration::from_millis(20);

/// One session; see the module documentation.
#[derive(Debug)]
pub struct HttpSession {
    /// Its id for the client; nobody can guess it.
    pub id: Box<str>,
    /// Whose it is.
    pub guest: Guest,
    lines: mpsc::Sender<Vec<u8>>,
    state: Mutex<State>,
    changed: watch::Sender<()>,
    over: CancellationToken,
}

#[derive(Debug)]
struct State {
    streams: Streams,
    used: Instant,
}

/// The session ended before it took the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the session is over")]
pub struct Over;

impl HttpSession {
    /// A session whose other end is `stream`; the second part is to be run.
    pub fn new(
        id: Box<str>,
        guest: Guest,
        stream: UnixStream,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send) {
        let (lines, queue) = mpsc::channel(QUEUE);
        let session = Arc::new(Self {
            id,
            guest,
            lines,
            state: Mutex::new(State { streams: Streams::default(), used: Instant::now() }),
            changed: watch::Sender::new(()),
            over: CancellationToken::new(),
        });
        (session.clone(), carry(session, stream, queue))
    }

    /// Hands a line over.
    ///
    /// # Errors
    /// [`Over`].
    /// # Cancel safety
    /// Cancel safe: the line is handed over whole or not at all.
    pub async fn send(&self, line: Vec<u8>) -> Result<(), Over> {
        self.touch();
        self.lines.send(line).await.map_err(|_| Over)
    }

    /// A stream for the answers to a POST.
    ///
    /// # Errors
    /// [`SameId`].
    pub fn open(self: &Arc<Self>, waits: Waits) -> Result<Reader, SameId> {
        let reading = self.lock().streams.open(waits)?;
        Ok(self.reader(reading))
    }

    /// The general stream, unless somebody reads it.
    pub fn general(self: &Arc<Self>) -> Option<Reader> {
        let mut state = self.lock();
        if state.streams.has_general_reader() {
            return None;
        }
        let reading = state.streams.attach(GENERAL, 0)?;
        drop(state);
        Some(self.reader(reading))
    }

    /// A stream on behind an event that its client saw; `None`: what followed is not kept any more.
    pub fn resume(self: &Arc<Self>, stream: u64, cursor: u64) -> Option<Reader> {
        let reading = self.lock().streams.attach(stream, cursor)?;
        // Whoever read it before is to notice.
        self.changed.send_replace(());
        Some(self.reader(reading))
    }

    fn reader(self: &Arc<Self>, reading: Reading) -> Reader {
        Reader { changed: self.changed.subscribe(), session: self.clone(), reading }
    }

    /// Ends it; its calls are cancelled at their servers.
    pub fn end(&self) {
        self.over.cancel();
    }

    /// Since when nothing is open and nothing came; `None`: something is open.
    pub fn idle_since(&self) -> Option<Instant> {
        let state = self.lock();
        (!state.streams.is_busy()).then_some(state.used)
    }

    fn touch(&self) {
        self.lock().used = Instant::now();
    }

    fn take(&self, line: &[u8]) {
        self.lock().streams.take(Bytes::copy_from_slice(line), about(line));
        self.changed.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads one stream of a session.
#[derive(Debug)]
pub struct Reader {
    session: Arc<HttpSession>,
    reading: Reading,
    changed: watch::Receiver<()>,
}

/// One event of a stream.
#[derive(Debug)]
pub struct Given {
    /// What the client says to go on behind it.
    pub id: String,
    /// The line.
    pub line: Bytes,
    /// The stream ends with it.
    pub last: bool,
}

impl Reader {
    /// What comes next; `None`: nothing any more.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<Given> {
        loop {
            self.changed.borrow_and_update();
            let next = self.session.lock().streams.next(&mut self.reading);
            match next {
                Next::Event { number, line, last } => {
                    return Some(Given { id: self.event_id(number), line, last });
                }
                Next::End => return None,
                Next::Wait => {}
            }
            if self.changed.changed().await.is_err() {
                return None;
            }
        }
    }

    /// The id of event `number`; 0 stands for the beginning.
    pub fn event_id(&self, number: u64) -> String {
        format!("{}-{number}", self.reading.stream)
    }

    /// The answer went another way: nobody comes back to this stream.
    pub fn close(self) {
        self.session.lock().streams.close(self.reading.stream);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.session.lock();
        state.streams.detach(&self.reading);
        state.used = Instant::now();
    }
}

async fn carry(session: Arc<HttpSession>, stream: UnixStream, queue: mpsc::Receiver<Vec<u8>>) {
    let (from, to) = stream.into_split();
    tokio::select! {
        () = session.over.cancelled() => {}
        () = read(&session, from) => {}
        () = write(to, queue) => {}
    }
    session.over.cancel();
    session.lock().streams.end();
    session.changed.send_replace(());
}

async fn write(mut to: OwnedWriteHalf, mut queue: mpsc::Receiver<Vec<u8>>) {
    while let Some(mut line) = queue.recv().await {
        line.push(b'\n');
        if to.write_all(&line).await.is_err() {
            return;
        }
    }
}

async fn read(session: &HttpSession, from: OwnedReadHalf) {
    let mut lines = LineBuffer::new(MAX_ANSWER);
    loop {
        while let Some(line) = lines.next_line() {
            match line {
                Line::Full(line) => session.take(line),
                Line::Oversized { bytes, head } => session.take(&too_long(bytes, head)),
            }
        }
        // Its own outbox is bounded too: what cannot be read here waits there, and in the end the session goes.
        while session.lock().streams.is_full() {
            tokio::time::sleep(FULL_CHECK).await;
        }
        if from.readable().await.is_err() {
            return;
        }
        match from.try_read(lines.room()) {
            Ok(0) => return,
            Ok(n) => lines.filled(n),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// The answer in place of one that is too long.
pub fn too_long(bytes: usize, head: &[u8]) -> Vec<u8> {
    let text = format!("the answer has {bytes} bytes; the limit over HTTP is {MAX_ANSWER}");
    Reply::error(INTERNAL_ERROR, &text).line(envelope::id_in(head).unwrap_or("null"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::ids::IdKey;
    use crate::tasks::TaskGroup;
    use tokio::io::{AsyncBufReadExt, BufReader};

    fn waits(n: u64) -> Waits {
        let id = IdKey::Number(n.to_string().into());
        Waits { ids: vec![id.clone()], tokens: vec![id], may_ask: true, batch: false }
    }

    fn start(tasks: &TaskGroup) -> (Arc<HttpSession>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (session, run) = HttpSession::new("s".into(), Guest::anybody(), ours);
        tasks.spawn(run);
        (session, theirs)
    }

    #[tokio::test]
    async fn a_request_that_is_given_up_half_way_leaves_whole_lines() {
        let tasks = TaskGroup::new();
        let (session, theirs) = start(&tasks);
        let long = vec![b'x'; 4 << 20];
        for _ in 0..3 {
            // Nobody reads yet: the line is stuck in the socket when the POST goes away.
            let _ = tokio::time::timeout(Duration::from_millis(1), session.send(long.clone())).await;
        }
        session.send(b"end".to_vec()).await.unwrap();
        let mut lines = BufReader::new(theirs).lines();
        loop {
            let line = lines.next_line().await.unwrap().unwrap();
            if line == "end" {
                break;
            }
            assert_eq!(line.len(), long.len());
        }
    }

    #[tokio::test]
    async fn the_end_of_the_session_ends_its_readers_after_what_was_written() {
        let tasks = TaskGroup::new();
        let (session, mut theirs) = start(&tasks);
        let mut reader = session.open(waits(1)).unwrap();
        assert!(session.idle_since().is_none());
        theirs.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n").await.unwrap();
        drop(theirs);
        let given = reader.next().await.unwrap();
        assert!(given.last && given.id == "1-1" && given.line.ends_with(b"{}}"));
        assert!(reader.next().await.is_none());
        drop(reader);
        assert_eq!(session.send(b"x".to_vec()).await, Err(Over));
        assert!(session.idle_since().is_some());
        assert_eq!(tasks.finish(Duration::from_secs(60)).await, crate::tasks::Finished::All);
    }
}
