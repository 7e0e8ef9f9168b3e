//! The shim without its descriptors: bytes in from either side, bytes out to the other.
//!
//! Pure. Promise: only whole lines reach the client and each of its requests gets exactly one
//! answer, also when the daemon is lost, refuses or never comes; a `tools/call` that the daemon
//! may have read is never sent twice. Backpressure: [`Pump::wants_client`] and
//! [`Pump::wants_daemon`] say when to stop reading a side; neither side can stall the other.

use super::answers;
use super::flow::{Flow, Next};
use super::open::{MAX_OPEN, Open, Request};
use super::peek::{self, FromClient, Method, Question};
use hermes_proto::shim::envelope;
use hermes_proto::shim::framing::DEFAULT_MAX_LINE;
use hermes_proto::shim::hello::{self, Hello, MAX_HELLO_BYTES, RESUME_PREFIX, Welcome};
use std::collections::VecDeque;

/// Bytes for the daemon after which the client is not read any more.
const HIGH_UP: usize = 1024 * 1024;
/// Bytes for the client after which the daemon is not read any more.
const HIGH_DOWN: usize = 4 * 1024 * 1024;
/// Longest line taken from the daemon. Above the client's limit: an answer may grow on its way.
const MAX_DOWN_LINE: usize = 2 * DEFAULT_MAX_LINE;
/// Open questions of the daemon that are remembered; it asks fewer.
const MAX_QUESTIONS: usize = 64;
/// Longest `initialize` kept for opening a session again.
const MAX_INITIALIZE: usize = 256 * 1024;

/// What the daemon said in its first line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// The session is open.
    Welcome {
        /// Version of the daemon.
        version: String,
    },
    /// It will not serve this shim.
    Refused {
        /// Stable word, see [`Welcome::Refused`].
        code: String,
        /// One sentence for a person.
        message: String,
    },
    /// The other end is no hermesd, or one that this shim does not understand.
    Strange {
        /// What is wrong with the line.
        why: String,
    },
}

#[derive(Debug)]
enum Mode {
    /// No connection; lines for the daemon pile up.
    Away,
    /// The hello is on its way; nothing else is sent before the welcome.
    Greeting { hello: Vec<u8>, sent: usize },
    /// Lines pass.
    Serving,
    /// Each request is answered with this error.
    Refusing { why: String },
}

/// Both directions and what is known of the session.
#[derive(Debug)]
pub(crate) struct Pump {
    up: Flow,
    down: Flow,
    open: Open,
    mode: Mode,
    resume: Option<String>,
    /// The client's `initialize` line, once it was answered: a session to open again.
    session: Option<Request>,
    /// Lines below this number were put in by the shim, not by the client.
    own_lines_end: u64,
    /// Questions of the daemon that the client has not answered, oldest first.
    questions: VecDeque<Box<[u8]>>,
    /// The answer to this id belongs to the shim.
    swallow: Option<Box<[u8]>>,
    client_ended: bool,
}

impl Pump {
    /// A pump without a connection.
    pub(crate) fn new() -> Self {
        Self {
            up: Flow::new(DEFAULT_MAX_LINE),
            down: Flow::new(MAX_DOWN_LINE),
            open: Open::default(),
            mode: Mode::Away,
            resume: None,
            session: None,
            own_lines_end: 0,
            questions: VecDeque::new(),
            swallow: None,
            client_ended: false,
        }
    }

    /// Whether the client's bytes should be read now.
    pub(crate) fn wants_client(&self) -> bool {
        // Refusing makes answers out of every line, so a client that reads none must wait.
        !self.client_ended && self.up.pending().len() < HIGH_UP && self.down.pending().len() < 2 * HIGH_DOWN
    }

    /// Whether the daemon's bytes should be read now.
    pub(crate) fn wants_daemon(&self) -> bool {
        self.down.pending().len() < HIGH_DOWN
    }

    /// Room for the client's next bytes.
    pub(crate) fn client_room(&mut self) -> &mut [u8] {
        self.up.room()
    }

    /// `n` bytes came from the client.
    pub(crate) fn client_filled(&mut self, n: usize) {
        self.up.filled(n);
        loop {
            let (seen, raw) = match self.up.next_line() {
                None => break,
                Some(Next::Oversized { bytes, head }) => {
                    let id = envelope::id_in(head).unwrap_or("null").to_owned();
                    let why =
                        format!("message of {bytes} bytes is longer than the limit of {DEFAULT_MAX_LINE}");
                    self.down.append(&answers::error(id.as_bytes(), answers::INVALID_REQUEST, &why));
                    continue;
                }
                Some(Next::Line(line)) => {
                    let seen = peek::from_client(line);
                    let raw = match &seen {
                        FromClient::Request { method, .. } => self.open.keep(*method, line),
                        FromClient::Cancelled { .. }
                        | FromClient::Answer { .. }
                        | FromClient::Blank
                        | FromClient::Other => None,
                    };
                    (seen, raw)
                }
            };
            self.route_up(seen, raw);
        }
    }

    fn route_up(&mut self, seen: FromClient, raw: Option<Box<[u8]>>) {
        match seen {
            FromClient::Blank => self.up.discard(),
            FromClient::Request { id, method } => {
                if let Mode::Refusing { why } = &self.mode {
                    let answer = answers::error(&id, answers::UNAVAILABLE, why);
                    self.down.append(&answer);
                    self.up.discard();
                } else if self.open.is_full() {
                    let why = format!("{MAX_OPEN} requests are open; wait for answers before sending more");
                    self.down.append(&answers::error(&id, answers::INVALID_REQUEST, &why));
                    self.up.discard();
                } else {
                    let line = self.up.accept();
                    self.open.add(Request { id, method, line, raw });
                }
            }
            FromClient::Cancelled { id } => {
                self.open.close(&id);
                self.pass_or_drop();
            }
            FromClient::Answer { id } => {
                self.questions.retain(|open| *open != id);
                self.pass_or_drop();
            }
            FromClient::Other => self.pass_or_drop(),
        }
    }

    fn pass_or_drop(&mut self) {
        match self.mode {
            Mode::Refusing { .. } => self.up.discard(),
            Mode::Away | Mode::Greeting { .. } | Mode::Serving => {
                self.up.accept();
            }
        }
    }

    /// The client's input ended; a last line without a newline counts.
    pub(crate) fn client_ended(&mut self) {
        self.up.finish_partial();
        self.client_filled(0);
        self.client_ended = true;
    }

    /// Room for the daemon's next bytes.
    pub(crate) fn daemon_room(&mut self) -> &mut [u8] {
        self.down.room()
    }

    /// `n` bytes came from the daemon. The first line of a connection gives a [`Greeting`].
    pub(crate) fn daemon_filled(&mut self, n: usize) -> Option<Greeting> {
        self.down.filled(n);
        let mut greeting = None;
        loop {
            match self.down.next_line() {
                None => break,
                // An answer that cannot be passed on: its request ends when the connection does.
                Some(Next::Oversized { .. }) => {}
                Some(Next::Line(line)) => match &self.mode {
                    Mode::Greeting { .. } => {
                        let said = read_greeting(line);
                        self.down.discard();
                        let open = matches!(said.0, Greeting::Welcome { .. });
                        greeting = Some(said.0);
                        if !open {
                            self.down.discard_partial();
                            break;
                        }
                        self.begin_serving(said.1);
                    }
                    Mode::Away | Mode::Serving | Mode::Refusing { .. } => self.route_down(),
                },
            }
        }
        if matches!(self.mode, Mode::Greeting { .. })
            && greeting.is_none()
            && self.down.partial() > MAX_HELLO_BYTES
        {
            self.down.discard_partial();
            return Some(Greeting::Strange { why: "the first line is too long".to_owned() });
        }
        greeting
    }

    fn route_down(&mut self) {
        let line = self.down.found_line();
        if line.first() == Some(&b'#') {
            if let Some(resume) = line.strip_prefix(RESUME_PREFIX.as_bytes()) {
                self.resume = std::str::from_utf8(resume.trim_ascii_end()).ok().map(str::to_owned);
            }
            self.down.discard();
            return;
        }
        let Some(id) = peek::answered_id(line) else {
            match peek::question(line) {
                Some(Question::Asked(id)) if self.questions.len() < MAX_QUESTIONS => {
                    self.questions.push_back(id)
                }
                Some(Question::TakenBack(id)) => self.questions.retain(|open| *open != id),
                Some(Question::Asked(_)) | None => {}
            }
            self.down.accept();
            return;
        };
        if self.swallow.as_deref() == Some(id) {
            self.swallow = None;
            self.down.discard();
            return;
        }
        if let Some(request) = self.open.close(id)
            && request.method == Method::Initialize
            && request.raw.as_ref().is_some_and(|raw| raw.len() <= MAX_INITIALIZE)
        {
            self.session = Some(request);
        }
        self.down.accept();
    }

    /// What to write to the daemon now.
    pub(crate) fn to_daemon(&self) -> &[u8] {
        match &self.mode {
            Mode::Greeting { hello, sent } => &hello[*sent..],
            Mode::Serving => self.up.pending(),
            Mode::Away | Mode::Refusing { .. } => &[],
        }
    }

    /// The daemon's socket took `n` bytes of [`to_daemon`](Self::to_daemon).
    pub(crate) fn daemon_took(&mut self, n: usize) {
        match &mut self.mode {
            Mode::Greeting { hello, sent } => *sent = (*sent + n).min(hello.len()),
            Mode::Serving => self.up.took(n),
            Mode::Away | Mode::Refusing { .. } => {}
        }
    }

    /// What to write to the client now.
    pub(crate) fn to_client(&self) -> &[u8] {
        self.down.pending()
    }

    /// The client took `n` bytes of [`to_client`](Self::to_client).
    pub(crate) fn client_took(&mut self, n: usize) {
        self.down.took(n);
    }

    /// A connection stands: say hello on it, with the resume string if there is one.
    pub(crate) fn greet(&mut self, mut hello: Hello) {
        hello.resume.clone_from(&self.resume);
        self.mode = Mode::Greeting { hello: hello::write_line(&hello).into_bytes(), sent: 0 };
    }

    fn begin_serving(&mut self, resumed: Resumed) {
        self.mode = Mode::Serving;
        if resumed == Resumed::Yes {
            return;
        }
        // The daemon knows nothing of a session that the client believes to be open.
        if let Some(Request { id, raw: Some(raw), .. }) = &self.session {
            self.own_lines_end = self.up.rewind();
            self.up.insert_front(answers::INITIALIZED);
            self.up.insert_front(raw);
            self.swallow = Some(id.clone());
            self.down.append(answers::TOOLS_CHANGED);
        }
    }

    /// The connection is gone, or could not be made. Questions of the daemon are taken back. Calls that the daemon may have read are
    /// answered "outcome unknown", other open requests will be sent again.
    pub(crate) fn lost(&mut self) {
        self.mode = Mode::Away;
        self.down.discard_partial();
        self.swallow = None;
        // Nobody waits for these any more; a client would show its dialogs for ever.
        for id in std::mem::take(&mut self.questions) {
            self.down.append(&answers::taken_back(&id));
        }
        let mut unread = self.up.rewind();
        while unread < self.own_lines_end {
            self.up.drop_front();
            unread += 1;
        }
        self.own_lines_end = 0;
        let mut again = Vec::new();
        for request in self.open.take_before(unread) {
            match (request.method, &request.raw) {
                (Method::Call, _) => self.down.append(&answers::outcome_unknown(&request.id)),
                (Method::Initialize | Method::Other, Some(_)) => again.push(request),
                (Method::Initialize | Method::Other, None) => {
                    let why = "hermesd ended before it answered; send the request again";
                    self.down.append(&answers::error(&request.id, answers::UNAVAILABLE, why));
                }
            }
        }
        for mut request in again.into_iter().rev() {
            if let Some(raw) = &request.raw {
                request.line = self.up.insert_front(raw);
            }
            self.open.add_first(request);
        }
    }

    /// Answers everything that waits with an error; later requests wait for the next connection.
    pub(crate) fn fail_waiting(&mut self, why: &str) {
        self.lost();
        for request in self.open.take_before(u64::MAX) {
            self.down.append(&answers::error(&request.id, answers::UNAVAILABLE, why));
        }
        self.up.drop_lines();
    }

    /// Answers everything that waits, and everything that will come, with an error.
    pub(crate) fn refuse(&mut self, why: &str) {
        self.fail_waiting(why);
        self.mode = Mode::Refusing { why: why.to_owned() };
    }

    /// Whether a request waits for the daemon.
    pub(crate) fn has_work(&self) -> bool {
        !self.open.is_empty() || !self.up.pending().is_empty()
    }

    /// Whether the client sent its last byte and the daemon took it.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.client_ended && matches!(self.mode, Mode::Serving) && self.up.pending().is_empty()
    }

    /// Whether the client's input ended.
    pub(crate) fn is_client_ended(&self) -> bool {
        self.client_ended
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resumed {
    Yes,
    No,
}

fn read_greeting(line: &[u8]) -> (Greeting, Resumed) {
    let welcome = std::str::from_utf8(line)
        .map_err(|error| error.to_string())
        .and_then(|text| hello::read_line::<Welcome>(text).map_err(|error| error.to_string()));
    match welcome {
        Ok(Welcome::Ok { version, resumed, .. }) => {
            (Greeting::Welcome { version }, if resumed { Resumed::Yes } else { Resumed::No })
        }
        Ok(Welcome::Refused { code, message }) => (Greeting::Refused { code, message }, Resumed::No),
        Err(why) => (Greeting::Strange { why }, Resumed::No),
    }
}

#[cfg(test)]
#[path = "pump_tests.rs"]
mod tests;
