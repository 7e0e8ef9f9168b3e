//! The poll loop: descriptors on one side, the pure [`Pump`] and [`Outage`] on the other.
//!
//! Owner of the client's stdio and of the connection. Promise: never blocks but in poll; ends when
//! the client is gone, or when its input ended and everything it asked is answered. Signals keep
//! their default action: nothing here needs to be put in order.

use super::args::{Log, ServeOptions, Spawn};
use super::daemon::{self, Lifetime};
use super::outage::{Cause, HEALTHY, Outage, Step, Waiting};
use super::parent::Parent;
use super::pump::{Greeting, Pump};
use super::starting::Starting;
use super::stdio::Stdio;
use hermes_proto::endpoint::{self, Home};
use hermes_proto::shim::hello::Hello;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::Shutdown;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Longest wait for the welcome; a daemon that is just starting accepts before it answers.
const WELCOME_WITHIN: Duration = Duration::from_secs(15);
/// Set in the environment of everything below a server of ours.
const NESTED: &str = "HERMESD_INSTANCE";

#[derive(Debug)]
enum Link {
    /// No connection.
    Away,
    /// Connected; the pump knows how far.
    Up(Connection),
    /// There will be none: each request is refused.
    Off,
}

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    since: Instant,
    greeted: Greeted,
    writing: Writing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Greeted {
    NotYet,
    Yes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writing {
    Open,
    /// Half-closed by us, or refused by the other end; what it said may still be read.
    Closed,
}

/// Whether the client still takes answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    Here,
    Gone,
}

/// What poll reported, one flag set for each descriptor.
#[derive(Debug, Clone, Copy)]
struct Ready {
    stdin: PollFlags,
    stdout: PollFlags,
    socket: PollFlags,
    parent: PollFlags,
}

#[derive(Debug)]
struct Shim<'a> {
    options: &'a ServeOptions,
    home: Option<Home>,
    pump: Pump,
    link: Link,
    outage: Outage,
    stdin: Stdio,
    stdout: Stdio,
    parent: Parent,
    client: Client,
    /// Some systems cannot poll devices; then stdout is written without asking.
    stdout_polls: Polls,
    /// Why the daemon could not be reached the last time.
    trouble: String,
    /// The daemon that we started, until it answers or ends.
    starting: Option<Starting>,
    /// Why the one that we started last ended at once.
    last_words: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Polls {
    Yes,
    No,
}

/// Serves the client on stdin and stdout until it is done. Always answers, so it always succeeds.
pub fn run(options: &ServeOptions) -> ExitCode {
    let now = Instant::now();
    let mut shim = Shim {
        options,
        home: None,
        pump: Pump::new(),
        link: Link::Away,
        outage: Outage::new(Cause::Start, now),
        stdin: Stdio::stdin(),
        stdout: Stdio::stdout(),
        parent: Parent::watch(),
        client: Client::Here,
        stdout_polls: Polls::Yes,
        trouble: "hermesd is not running".to_owned(),
        starting: None,
        last_words: None,
    };
    if std::env::var_os(NESTED).is_some() {
        shim.refuse(
            "this hermesctl runs below an MCP server of hermesd, and hermesd does not serve its own servers; \
             remove the entry that starts `hermesctl mcp serve` from mcp_servers",
        );
    } else {
        match Home::find(options.home.as_deref(), &|name| std::env::var_os(name)) {
            Ok(home) => shim.home = Some(home),
            Err(error) => shim.refuse(&error.to_string()),
        }
    }
    shim.run()
}

impl Shim<'_> {
    fn run(mut self) -> ExitCode {
        loop {
            let wake = self.tend_link();
            self.flush_client();
            if self.client == Client::Gone || self.is_done() {
                return ExitCode::SUCCESS;
            }
            match self.wait(wake) {
                Ok(ready) => self.serve(ready),
                Err(Errno::INTR) => {}
                Err(error) => {
                    self.log(&format!("poll: {error}"));
                    return ExitCode::FAILURE;
                }
            }
        }
    }

    /// The client's input ended, and nothing is left that could be answered or written.
    fn is_done(&self) -> bool {
        let connected = matches!(self.link, Link::Up(_));
        self.pump.is_client_ended() && !connected && !self.pump.has_work() && self.pump.to_client().is_empty()
    }

    /// Does what is due about the connection; returns when to look again.
    fn tend_link(&mut self) -> Option<Instant> {
        loop {
            let now = Instant::now();
            match &self.link {
                Link::Off => return None,
                Link::Up(connection) => {
                    let welcome_by = connection.since + WELCOME_WITHIN;
                    match connection.greeted {
                        Greeted::Yes => return None,
                        Greeted::NotYet if now < welcome_by => return Some(welcome_by),
                        Greeted::NotYet => self.lose("hermesd accepted the connection but did not answer"),
                    }
                }
                Link::Away if self.pump.is_client_ended() && !self.pump.has_work() => return None,
                Link::Away => {
                    let waiting = if self.pump.has_work() { Waiting::Requests } else { Waiting::Nothing };
                    match self.outage.step(now, waiting) {
                        Step::Wait(until) => return Some(until),
                        Step::Connect => self.connect(now),
                        Step::Spawn => self.spawn(now),
                        Step::GiveUp => self.give_up(),
                    }
                }
            }
        }
    }

    fn connect(&mut self, now: Instant) {
        let Some(home) = &self.home else { return };
        match daemon::connect(home) {
            Ok(socket) => {
                self.pump.greet(Hello {
                    home: home.path().to_string_lossy().into_owned(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    profile: self.options.profile.clone(),
                    only: self.options.only,
                    client_pid: self.parent.pid(),
                    resume: None,
                });
                self.link = Link::Up(Connection {
                    socket,
                    since: now,
                    greeted: Greeted::NotYet,
                    writing: Writing::Open,
                });
                self.flush_daemon();
            }
            Err(error) => {
                self.trouble = error.to_string();
                self.hear_last_words(now);
            }
        }
    }

    /// A daemon of ours that ended at once says why; unless another one was quicker, none will come.
    fn hear_last_words(&mut self, now: Instant) {
        let Some(words) = self.starting.as_mut().and_then(Starting::ended) else { return };
        self.starting = None;
        self.log(&format!("hermesd ended at once: {words}"));
        if self.home.as_ref().is_some_and(|home| !endpoint::is_locked(home)) {
            self.last_words = Some(words);
            self.outage.cannot_spawn(now);
        }
    }

    fn spawn(&mut self, now: Instant) {
        if self.options.spawn == Spawn::Never {
            self.outage.cannot_spawn(now);
            return;
        }
        let Some(home) = &self.home else { return };
        match daemon::spawn(home, Lifetime::WhileUsed) {
            Ok(starting) => {
                self.starting = Some(starting);
                self.log("no hermesd was running: started one");
            }
            Err(error) => {
                self.trouble = error.to_string();
                self.outage.cannot_spawn(now);
            }
        }
    }

    fn give_up(&mut self) {
        let why = match &self.last_words {
            Some(words) => format!(
                "hermesd was started and ended at once: {words}; mend that (`hermesctl doctor` helps), then repeat the request"
            ),
            None => format!(
                "{}; start it with `hermesctl daemon start` or see `hermesctl doctor`, then repeat the request",
                self.trouble
            ),
        };
        self.log(&why);
        self.pump.fail_waiting(&why);
    }

    fn refuse(&mut self, why: &str) {
        self.log(why);
        self.pump.refuse(why);
        self.link = Link::Off;
    }

    /// The connection is of no use any more.
    fn lose(&mut self, why: &str) {
        let now = Instant::now();
        if let Link::Up(connection) = &self.link
            && connection.greeted == Greeted::Yes
            && (now - connection.since >= HEALTHY || self.outage.cause() == Cause::Start)
        {
            self.outage = Outage::new(Cause::Loss, now);
        }
        self.link = Link::Away;
        self.pump.lost();
        if self.pump.is_client_ended() && !self.pump.has_work() {
            return; // the daemon closed because everything is answered
        }
        self.trouble = why.to_owned();
        self.log(why);
    }

    fn wait(&self, wake: Option<Instant>) -> Result<Ready, Errno> {
        let mut fds = Vec::with_capacity(4);
        let mut slots: [Option<usize>; 4] = [None; 4];
        let mut add = |slot: usize, fd, flags| {
            slots[slot] = Some(fds.len());
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        };
        if self.pump.wants_client() {
            add(0, self.stdin.fd(), PollFlags::IN);
        }
        if self.stdout_polls == Polls::Yes {
            // Without any flag poll still reports that the reader is gone.
            let out = if self.pump.to_client().is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            add(1, self.stdout.fd(), out);
        }
        if let Link::Up(connection) = &self.link {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, self.pump.wants_daemon());
            flags.set(
                PollFlags::OUT,
                connection.writing == Writing::Open && !self.pump.to_daemon().is_empty(),
            );
            // Without a wish it is left out: a closed socket would report that again and again.
            if !flags.is_empty() {
                add(2, std::os::fd::AsFd::as_fd(&connection.socket), flags);
            }
        }
        if let Some(fd) = self.parent.fd() {
            add(3, fd, PollFlags::IN);
        }
        let now = Instant::now();
        let look = self.parent.look_every().map(|every| now + every);
        let until = [wake, look].into_iter().flatten().min();
        // Rounded up, or the loop would spin through the last fraction of a millisecond.
        let timeout = until.map(|until| until.saturating_duration_since(now) + Duration::from_micros(50));
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        poll(&mut fds, timeout.as_ref())?;
        let seen = |slot: usize| slots[slot].map_or(PollFlags::empty(), |at| fds[at].revents());
        Ok(Ready { stdin: seen(0), stdout: seen(1), socket: seen(2), parent: seen(3) })
    }

    fn serve(&mut self, ready: Ready) {
        if ready.stdout.contains(PollFlags::NVAL) {
            self.stdout_polls = Polls::No;
        } else if ready.stdout.intersects(PollFlags::ERR | PollFlags::HUP) {
            self.client = Client::Gone;
            return;
        }
        if !ready.stdin.is_empty() {
            self.read_client();
        }
        if ready.socket.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
            && self.pump.wants_daemon()
        {
            self.read_daemon();
        }
        if !ready.parent.is_empty() || (self.parent.fd().is_none() && self.parent.ended()) {
            // Its pipes are still open, so someone may read the answers; nobody will ask more.
            self.parent.forget();
            self.pump.client_ended();
        }
        self.flush_daemon();
    }

    fn read_client(&mut self) {
        match self.stdin.read(self.pump.client_room()) {
            Ok(0) => self.pump.client_ended(),
            Ok(n) => self.pump.client_filled(n),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.pump.client_ended(),
        }
    }

    fn read_daemon(&mut self) {
        let Link::Up(connection) = &mut self.link else { return };
        let n = match rustix::io::read(&connection.socket, self.pump.daemon_room()) {
            Ok(0) => return self.lose("hermesd closed the connection"),
            Ok(n) => n,
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(error) => return self.lose(&format!("hermesd is gone: {error}")),
        };
        match self.pump.daemon_filled(n) {
            None => {}
            Some(Greeting::Welcome { version }) => {
                connection.greeted = Greeted::Yes;
                connection.since = Instant::now();
                (self.starting, self.last_words) = (None, None);
                self.log(&format!("connected to hermesd {version}"));
            }
            Some(Greeting::Refused { code, message }) if code == "busy" || code == "stopping" => {
                self.lose(&message);
            }
            Some(Greeting::Refused { message, .. }) => self.refuse(&message),
            Some(Greeting::Strange { why }) => self.refuse(&why),
        }
        self.flush_client();
    }

    fn flush_daemon(&mut self) {
        let Link::Up(connection) = &mut self.link else { return };
        while connection.writing == Writing::Open && !self.pump.to_daemon().is_empty() {
            match rustix::io::write(&connection.socket, self.pump.to_daemon()) {
                Ok(n) => self.pump.daemon_took(n),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // The reading side tells what the daemon still said, then that it is gone.
                Err(_) => connection.writing = Writing::Closed,
            }
        }
        if connection.writing == Writing::Open && self.pump.is_handed_over() {
            connection.writing = Writing::Closed;
            if rustix::net::shutdown(&connection.socket, Shutdown::Write).is_err() {
                self.lose("hermesd closed the connection");
            }
        }
    }

    fn flush_client(&mut self) {
        while !self.pump.to_client().is_empty() {
            match self.stdout.write(self.pump.to_client()) {
                Ok(n) => self.pump.client_took(n),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.client = Client::Gone;
                    return;
                }
            }
        }
    }

    fn log(&self, text: &str) {
        if self.options.log == Log::On {
            // A client that closed stderr must not end the session.
            let _ = writeln!(io::stderr(), "hermesctl: {text}");
        }
    }
}
