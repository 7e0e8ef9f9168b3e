//! The life of a guard: start the server, report, and leave only when nothing of it is left.
//!
//! Owner: the guard process, one thread. Promise: the end of the channel (the daemon is gone) and
//! a stop order lead to the same bounded ladder; the server's exit is reported before anything is
//! cleaned up; the leader is reaped only after its group was signalled for the last time, so that
//! its number cannot name a stranger's group. Signals sent to the guard change nothing.
//! May not touch: anything that is not below this process.

use super::ladder::{self, Ladder, Leader, Rung, Start, Tree};
use super::orders::{Ended, Frames, LaunchOrder, Leavers, MAX_LISTED, Order, Report, Status};
use super::stat::Process;
use super::{container, table};
use crate::guard::{self, Wake};
use rustix::process::{Signal, WaitId, WaitIdOptions, WaitOptions};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

/// First and longest pause between two looks at a tree that is being ended.
const LOOK_FIRST: Duration = Duration::from_millis(2);
const LOOK_LONGEST: Duration = Duration::from_millis(40);
/// Pause between looks once the budget is spent: only processes that cannot die are left.
const LOOK_HOPELESS: Duration = Duration::from_secs(1);
/// Least time for stopping a container, also when the ladder took the whole budget.
const CONTAINER_LEAST: Duration = Duration::from_secs(5);

/// Runs a guard, or the nursery that guards are forked from, from start to end.
pub fn main() -> ExitCode {
    guard::block_signals();
    // Already so when a daemon started us; by hand it keeps a terminal's signals away.
    let _ = rustix::process::setsid();
    // The folder of the daemon's start must stay free to be unmounted.
    let _ = rustix::process::chdir("/");
    let Ok(channel) = guard::take_channel() else {
        let said = "error: `hermesd guard` is internal: hermesd starts it for each MCP server; run `hermesd` or `hermesctl`\n";
        // Nobody is left to tell when stderr is closed.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), said.as_bytes());
        return ExitCode::from(2);
    };
    live(channel)
}

/// The life behind an open channel.
pub(super) fn live(channel: OwnedFd) -> ExitCode {
    let mut frames = Frames::default();
    let launch = match first_order(&channel, &mut frames) {
        Some(Order::Launch(launch)) => launch,
        #[cfg(target_os = "linux")]
        Some(Order::Nurse) => return super::nursery::nurse(channel),
        #[cfg(not(target_os = "linux"))]
        Some(Order::Nurse) => return ExitCode::FAILURE,
        Some(Order::Stop { .. }) | None => return ExitCode::FAILURE,
    };
    if super::orphans::become_subreaper().is_err() {
        return ExitCode::FAILURE;
    }
    if let Some(soft) = launch.descriptors {
        super::limits::set_descriptors(soft);
    }
    let server = match guard::Exec::new(&launch.program, &launch.args, &launch.env, &launch.cwd) {
        Ok(exec) => exec.spawn(),
        Err(_) => Err((super::orders::Step::Exec, rustix::io::Errno::INVAL.raw_os_error())),
    };
    let pid = match server {
        Ok(pid) => pid,
        Err((step, errno)) => {
            send(&channel, &Report::Refused { step, errno });
            return ExitCode::SUCCESS;
        }
    };
    send(&channel, &Report::Spawned { pid });
    let _ = guard::let_go_of_stdio();
    Keeper::new(channel, frames, pid, *launch).run();
    ExitCode::SUCCESS
}

/// Waits for the first order; `None` when the daemon went away instead.
fn first_order(channel: &OwnedFd, frames: &mut Frames) -> Option<Order> {
    let mut chunk = [0; 4096];
    loop {
        match frames.next_order() {
            Ok(Some(order)) => return Some(order),
            Err(_) => return None,
            Ok(None) => {}
        }
        match rustix::io::retry_on_intr(|| rustix::io::read(channel, &mut chunk)) {
            Ok(0) | Err(_) => return None,
            Ok(read) => frames.push(&chunk[..read]),
        }
    }
}

/// Sends without ever waiting: a daemon that does not read must not hold up the guard. All reports
/// of a life together are smaller than the socket's buffer.
pub(super) fn send(channel: &OwnedFd, report: &Report) {
    #[cfg(target_os = "linux")]
    let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
    #[cfg(target_os = "macos")]
    let flags = rustix::net::SendFlags::DONTWAIT;
    let _ = rustix::net::send(channel, &report.encode(), flags);
}

/// One running server and all below it.
struct Keeper {
    /// `None` once the daemon is gone.
    channel: Option<OwnedFd>,
    frames: Frames,
    leader: u32,
    leader_state: Leader,
    /// Whether the leader's number, and with it the group's, is still held by us.
    number_held: bool,
    own_session: u32,
    leavers: Leavers,
    launch: Option<Box<LaunchOrder>>,
    ladder: Option<Ladder>,
    /// What was signalled besides the leader, by pid.
    ended: BTreeMap<u32, Ended>,
    look: Duration,
    hopeless: bool,
    #[cfg(target_os = "macos")]
    recorded: Vec<Process>,
}

impl Keeper {
    fn new(channel: OwnedFd, frames: Frames, leader: u32, launch: LaunchOrder) -> Self {
        Self {
            channel: Some(channel),
            frames,
            leader,
            leader_state: Leader::Alive,
            number_held: true,
            own_session: table::own_pid(),
            leavers: launch.leavers,
            // Only a container client is called again; else the secrets need not stay in memory.
            launch: launch.container.is_some().then(|| Box::new(launch)),
            ladder: None,
            ended: BTreeMap::new(),
            look: LOOK_FIRST,
            hopeless: false,
            #[cfg(target_os = "macos")]
            recorded: Vec::new(),
        }
    }

    fn run(mut self) {
        loop {
            self.reap_adopted();
            self.notice_exit();
            let limit = match self.climb_down() {
                Some(limit) => limit,
                None => break,
            };
            let wake = guard::wait(self.channel.as_ref().map(AsFd::as_fd), limit);
            if wake == Wake::Channel {
                self.read_channel();
            }
        }
        self.reap_leader();
        self.end_container();
        if !self.ended.is_empty() {
            let ended = std::mem::take(&mut self.ended);
            self.report(&Report::Ended(ended.into_values().collect()));
        }
        self.report(&Report::Empty);
    }

    fn report(&self, report: &Report) {
        if let Some(channel) = &self.channel {
            send(channel, report);
        }
    }

    /// Takes one step of the ladder, if one is running. Returns how long to wait for news
    /// (`Some(None)`: for ever), or `None` when nothing is left.
    fn climb_down(&mut self) -> Option<Option<Duration>> {
        let Some(mut ladder) = self.ladder else { return Some(self.idle_limit()) };
        loop {
            let now = table::clock();
            // While the leader may still leave by itself there is nothing to look for below it.
            let members = if self.leader_state == Leader::Ended || now >= ladder.ends_at() {
                self.members()
            } else {
                Vec::new()
            };
            let tree = if members.is_empty() { Tree::Empty } else { Tree::Alive };
            let rung = ladder.next(now, self.leader_state, tree);
            self.ladder = Some(ladder);
            match rung {
                Rung::Empty if self.proven_empty() => return None,
                Rung::Empty => return Some(Some(self.next_look())),
                Rung::WaitUntil(until) if self.leader_state == Leader::Alive => {
                    return Some(Some(until.saturating_sub(now)));
                }
                Rung::WaitUntil(until) => return Some(Some(self.next_look().min(until.saturating_sub(now)))),
                Rung::Term => {
                    self.signal_all(Signal::TERM);
                    // A stopped process hears TERM only when it goes on.
                    self.signal_all(Signal::CONT);
                    self.look = LOOK_FIRST;
                }
                Rung::Kill => {
                    self.signal_all(Signal::KILL);
                    return Some(Some(self.next_look()));
                }
                Rung::Survivors => {
                    let mut pids: Vec<u32> = members.iter().map(|process| process.pid).collect();
                    if self.leader_state == Leader::Alive {
                        pids.insert(0, self.leader);
                    }
                    self.hopeless = true;
                    self.report(&Report::Survivors(pids));
                }
            }
            self.reap_adopted();
            self.notice_exit();
        }
    }

    fn next_look(&mut self) -> Duration {
        if self.hopeless {
            return LOOK_HOPELESS;
        }
        let look = self.look;
        self.look = (look * 2).min(LOOK_LONGEST);
        look
    }

    /// Starts the ladder, or hurries the one that runs.
    fn end(&mut self, budget: Duration, start: Start) {
        let now = table::clock();
        self.hopeless = false;
        self.look = LOOK_FIRST;
        match &mut self.ladder {
            Some(ladder) => ladder.hurry(now, budget),
            None => self.ladder = Some(Ladder::begin(now, budget, start)),
        }
    }

    fn read_channel(&mut self) {
        let Some(channel) = &self.channel else { return };
        let mut chunk = [0; 256];
        match rustix::io::retry_on_intr(|| rustix::io::read(channel, &mut chunk)) {
            Ok(read @ 1..) => self.frames.push(&chunk[..read]),
            Ok(0) | Err(_) => return self.daemon_gone(),
        }
        loop {
            match self.frames.next_order() {
                Ok(Some(Order::Stop { budget_ms })) => {
                    let whole = Duration::from_millis(budget_ms.into());
                    // A container needs its share after the client ended.
                    let budget = if self.launch.is_some() { whole / 2 } else { whole };
                    self.end(budget, Start::AtStdinEnd);
                }
                Ok(None) => return,
                Ok(Some(Order::Launch(_) | Order::Nurse)) | Err(_) => return self.daemon_gone(),
            }
        }
    }

    fn daemon_gone(&mut self) {
        self.channel = None;
        self.end(ladder::ORPHANED_BUDGET, Start::AtStdinEnd);
    }

    /// Looks whether the leader ended, without reaping it: as a zombie it keeps its group's number.
    fn notice_exit(&mut self) {
        let Some(pid) = table::as_pid(self.leader) else { return };
        if self.leader_state == Leader::Ended {
            return;
        }
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = match rustix::process::waitid(WaitId::Pid(pid), peek) {
            Ok(Some(status)) => status,
            Ok(None) | Err(_) => return,
        };
        self.leader_state = Leader::Ended;
        let signal = status.terminating_signal();
        self.report(&Report::Exited(match (status.exit_status(), signal) {
            (Some(code), _) => Status::Code(code),
            (None, signal) => Status::Signal(signal.unwrap_or(0)),
        }));
        self.look = LOOK_FIRST;
        if self.ladder.is_none() {
            self.end(ladder::EXITED_BUDGET, Start::AtTerm);
        }
    }

    /// Whether a process has to end with the server.
    fn must_end(&self, process: &Process) -> bool {
        !process.zombie
            && (process.pid != self.leader || !self.number_held)
            && (self.leavers == Leavers::End || process.sid == self.own_session)
    }

    /// Everything below, besides the leader, that has to end and still lives.
    #[cfg(target_os = "linux")]
    fn members(&mut self) -> Vec<Process> {
        let mut below = table::below(table::own_pid());
        below.retain(|process| self.must_end(process));
        below
    }

    /// Without a subreaper, orphans leave the tree: what was once seen below is remembered, and
    /// the session finds the rest of what did not leave it.
    #[cfg(target_os = "macos")]
    fn members(&mut self) -> Vec<Process> {
        self.record();
        let recorded = std::mem::take(&mut self.recorded);
        self.recorded = recorded.into_iter().filter(|known| table::lives(known.pid, known.start)).collect();
        let mut all = table::all();
        all.retain(|process| {
            let ours = process.sid == self.own_session
                || self.recorded.iter().any(|known| known.pid == process.pid && known.start == process.start);
            ours && process.pid != table::own_pid() && self.must_end(process)
        });
        all
    }

    #[cfg(target_os = "macos")]
    fn record(&mut self) {
        let all = table::all();
        let mut roots: Vec<u32> = self.recorded.iter().map(|known| known.pid).collect();
        roots.push(table::own_pid());
        for process in roots.into_iter().flat_map(|root| super::stat::descendants(&all, root)) {
            if self.recorded.iter().all(|known| (known.pid, known.start) != (process.pid, process.start)) {
                self.recorded.push(process);
            }
        }
    }

    /// How long to sleep while nothing happens.
    #[cfg(target_os = "linux")]
    fn idle_limit(&mut self) -> Option<Duration> {
        None
    }

    /// The tree has to be recorded before parts of it lose their parent.
    #[cfg(target_os = "macos")]
    fn idle_limit(&mut self) -> Option<Duration> {
        self.record();
        Some(Duration::from_secs(5))
    }

    fn signal_all(&mut self, signal: Signal) {
        self.signal_group(signal);
        for process in self.members() {
            if process.pgid != self.leader || !self.number_held {
                table::signal(&process, signal);
            }
            // A fork bomb is not listed to its end.
            if self.ended.len() == MAX_LISTED {
                continue;
            }
            let left_session = process.sid != self.own_session;
            self.ended.entry(process.pid).or_insert(Ended {
                pid: process.pid,
                name: process.name,
                left_session,
            });
        }
    }

    /// Safe by number as long as the leader is not reaped, alive or zombie.
    fn signal_group(&self, signal: Signal) {
        if let Some(group) = table::as_pid(self.leader).filter(|_| self.number_held) {
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }

    /// Reaps what ended below us, except the leader.
    fn reap_adopted(&self) {
        for child in table::children(table::own_pid()) {
            if child.zombie
                && child.pid != self.leader
                && let Some(pid) = table::as_pid(child.pid)
            {
                let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
            }
        }
    }

    fn reap_leader(&mut self) {
        if let Some(pid) = table::as_pid(self.leader).filter(|_| std::mem::take(&mut self.number_held)) {
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }

    /// The kernel's own word that nothing is left: no child at all, once the leader is reaped. A
    /// child list read while processes come and go may miss one. Where leavers are kept there may
    /// be children; then two looks in a row have to agree.
    fn proven_empty(&mut self) -> bool {
        if self.leavers == Leavers::Keep || cfg!(target_os = "macos") {
            return self.members().is_empty();
        }
        self.signal_group(Signal::KILL);
        self.reap_leader();
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    }

    fn end_container(&self) {
        let Some(launch) = &self.launch else { return };
        let Some(order) = &launch.container else { return };
        let now = table::clock();
        let left = self.ladder.map_or(now, |ladder| ladder.ends_at()).max(now + CONTAINER_LEAST);
        container::end(&launch.program, &container::Environment::Given(&launch.env), order, left);
    }
}
