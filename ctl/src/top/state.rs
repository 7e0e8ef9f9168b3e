//! What `top` shows and what a key does to it.
//!
//! Pure. Rows are remembered by what they are (a server's name, an approval's id), never by their
//! place: the list may change between a look and a key.

use super::history::{Glyphs, History};
use super::line::Line;
use crate::render::table::{Colour, Tone};
use hermes_proto::control as pb;
use std::collections::VecDeque;

/// Lines of the tails that are kept.
pub const TAIL: usize = 500;

/// One look at the daemon.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Daemon, servers, clients.
    pub status: pb::GetStatusResponse,
    /// Figures of the calls.
    pub stats: pb::StatsResponse,
    /// Calls that wait for a person.
    pub approvals: pb::ListApprovalsResponse,
}

/// What came from the daemon.
#[derive(Debug)]
pub enum Update {
    /// A new look.
    Looked(Box<Snapshot>),
    /// The daemon cannot be reached; in words for a person.
    Lost(String),
    /// Events, oldest first.
    Events(Vec<Line>),
    /// Another log begins: empty is the daemon's own.
    LogOf(String),
    /// Lines of that log, oldest first.
    Log(Vec<Line>),
    /// What came of an action.
    Done(Result<String, String>),
}

/// A list below the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Panel {
    /// Who is connected.
    Clients,
    /// Calls that wait for a person.
    Approvals,
    /// What happened in conversations.
    Events,
    /// A log.
    Log,
}

impl Panel {
    /// In the order of their keys, 1 to 4.
    pub const ALL: [Self; 4] = [Self::Clients, Self::Approvals, Self::Events, Self::Log];
}

/// In which order servers stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// By name, as in the file.
    Name,
    /// Most calls first.
    Calls,
    /// Most memory first.
    Memory,
    /// Most errors first.
    Errors,
}

impl Sort {
    /// The word shown.
    pub fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Calls => "calls",
            Self::Memory => "memory",
            Self::Errors => "errors",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Name => Self::Calls,
            Self::Calls => Self::Memory,
            Self::Memory => Self::Errors,
            Self::Errors => Self::Name,
        }
    }
}

/// A decision about a waiting call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// This call.
    AllowOnce,
    /// This and later ones of the tool.
    AllowAlways,
    /// Not.
    Deny,
}

/// What the daemon is asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Start a server.
    Start(String),
    /// Stop a server.
    Stop(String),
    /// Stop and start a server.
    Restart(String),
    /// Close a breaker.
    ResetBreaker(String),
    /// Answer the waiting call with this id.
    Respond(String, Decision),
}

/// What lies over the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Popup {
    /// All keys.
    Help,
    /// One server in full.
    Server(String),
    /// One waiting call in full.
    Approval(String),
    /// A question before something is done.
    Confirm(Action),
}

/// What the screen's owner must do after a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// End.
    Quit,
    /// Ask the daemon.
    Do(Action),
    /// Follow the log of this server; empty: the daemon's own.
    Follow(String),
}

/// Everything on the screen.
#[derive(Debug, Clone)]
pub struct View {
    /// The last look; `None` before the first.
    pub snapshot: Option<Snapshot>,
    /// Why there are no new looks; `None` while there are.
    pub lost: Option<String>,
    /// Calls a second.
    pub history: History,
    /// Newest last.
    pub events: VecDeque<Line>,
    /// Newest last.
    pub log: VecDeque<Line>,
    /// Whose log; empty: the daemon's own.
    pub log_of: String,
    /// The list below.
    pub panel: Panel,
    /// Whether keys move in the list below, not among the servers.
    pub in_panel: bool,
    /// The chosen server; empty before one is.
    pub server: String,
    /// The chosen waiting call.
    pub approval: String,
    /// Lines between the end of a tail and what is shown.
    pub scrolled: usize,
    /// The order of servers.
    pub sort: Sort,
    /// What lies over it.
    pub popup: Option<Popup>,
    /// What came of the last action.
    pub notice: Option<(String, Tone)>,
    /// Whether new looks are held back.
    pub paused: bool,
    /// Whether tones become colours.
    pub colour: Colour,
    /// Which characters may be used.
    pub glyphs: Glyphs,
}

impl View {
    /// An empty screen.
    pub fn new(colour: Colour, glyphs: Glyphs) -> Self {
        Self {
            snapshot: None,
            lost: None,
            history: History::default(),
            events: VecDeque::new(),
            log: VecDeque::new(),
            log_of: String::new(),
            panel: Panel::Clients,
            in_panel: false,
            server: String::new(),
            approval: String::new(),
            scrolled: 0,
            sort: Sort::Name,
            popup: None,
            notice: None,
            paused: false,
            colour,
            glyphs,
        }
    }

    /// Takes what came from the daemon.
    pub fn update(&mut self, update: Update) {
        match update {
            Update::Looked(_) if self.paused => {}
            Update::Looked(snapshot) => self.look(*snapshot),
            Update::Lost(why) => self.lost = Some(why),
            Update::Events(lines) => {
                let hold = self.panel == Panel::Events && self.scrolled > 0;
                self.scrolled += if hold { lines.len() } else { 0 };
                push(&mut self.events, lines);
            }
            Update::LogOf(server) => {
                self.log.clear();
                self.log_of = server;
            }
            Update::Log(lines) => {
                let hold = self.panel == Panel::Log && self.scrolled > 0;
                self.scrolled += if hold { lines.len() } else { 0 };
                push(&mut self.log, lines);
            }
            Update::Done(Ok(said)) => self.notice = Some((said, Tone::Good)),
            Update::Done(Err(why)) => self.notice = Some((why, Tone::Bad)),
        }
    }

    fn look(&mut self, snapshot: Snapshot) {
        self.lost = None;
        self.history.add(&snapshot.stats);
        self.snapshot = Some(snapshot);
        if self.servers().iter().all(|server| server.name != self.server) {
            self.server = self.servers().first().map(|server| server.name.clone()).unwrap_or_default();
        }
        if self.waiting().iter().all(|one| one.id != self.approval) {
            self.approval = self.waiting().first().map(|one| one.id.clone()).unwrap_or_default();
        }
        // What a popup is about may be gone by now.
        let gone = match &self.popup {
            Some(Popup::Approval(id) | Popup::Confirm(Action::Respond(id, _))) => {
                self.waiting().iter().all(|one| one.id != *id)
            }
            Some(Popup::Server(name)) => self.servers().iter().all(|server| server.name != *name),
            Some(Popup::Help | Popup::Confirm(_)) | None => false,
        };
        if gone {
            self.popup = None;
        }
    }

    /// The servers as they stand on the screen.
    pub fn servers(&self) -> Vec<&pb::ServerStatus> {
        let Some(snapshot) = &self.snapshot else { return Vec::new() };
        let mut servers: Vec<&pb::ServerStatus> = snapshot.status.servers.iter().collect();
        let most = |server: &pb::ServerStatus| match self.sort {
            Sort::Name => 0,
            Sort::Calls => self.figures(&server.name).map_or(0, |figures| figures.calls),
            Sort::Memory => server.memory_bytes,
            Sort::Errors => self.figures(&server.name).map_or(0, |figures| figures.errors),
        };
        // Stable: equals stay in the order of the file.
        servers.sort_by_key(|server| std::cmp::Reverse(most(server)));
        servers
    }

    /// The figures of one server; `None` for one that was never called.
    pub fn figures(&self, server: &str) -> Option<&pb::Figures> {
        let stats = &self.snapshot.as_ref()?.stats;
        stats.servers.iter().find(|figures| figures.server == server)?.all.as_ref()
    }

    /// The calls that wait for a person.
    pub fn waiting(&self) -> &[pb::Approval] {
        self.snapshot.as_ref().map_or(&[], |snapshot| &snapshot.approvals.waiting)
    }

    /// The next order of servers.
    pub fn resort(&mut self) {
        self.sort = self.sort.next();
    }
}

fn push(tail: &mut VecDeque<Line>, lines: Vec<Line>) {
    tail.extend(lines);
    tail.drain(..tail.len().saturating_sub(TAIL));
}
