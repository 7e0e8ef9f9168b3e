//! Ending what a lost guard left behind: found by marker, session and descent, never by number alone.
//!
//! Owner: whoever proved that the guard is gone (its `Control`, or the start-up reaper). Promise:
//! a process without the instance's marker, outside the guard's session and not below such a
//! process is never signalled. May block: only for blocking threads.

use super::orders::{Ended, Leavers};
use super::stat::{Process, descendants};
use super::table;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::time::Duration;

/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// Longest time that TERM gets before KILL.
const TERM_SHARE: Duration = Duration::from_secs(1);

/// What to look for.
#[derive(Debug, Clone)]
pub struct Lost {
    /// Value of the marker in the environment of everything of this instance.
    pub instance: String,
    /// The guard's pid: the session of all that did not leave it.
    pub guard: u32,
    /// Whether that number can be trusted to find members.
    pub session: Session,
    /// When the guard started; nothing older can be its child.
    pub since: u64,
    /// What happens to processes that left the session.
    pub leavers: Leavers,
}

/// Whether a guard's pid still names its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Session {
    /// The guard is not reaped yet, so nobody else can have its number: the session counts.
    Held,
    /// The number may be a stranger's by now: only the marker counts.
    Unheld,
}

/// What a sweep did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// What was signalled.
    pub ended: Vec<Ended>,
    /// What still lives.
    pub survivors: Vec<u32>,
}

/// Ends everything of `lost`: TERM, then KILL, until nothing is found or `budget` is spent.
pub fn sweep(lost: &Lost, budget: Duration) -> Swept {
    let begin = table::clock();
    let kill_at = begin + TERM_SHARE.min(budget / 3);
    let mut ended = BTreeMap::new();
    let mut termed = false;
    let mut looked_empty = false;
    loop {
        let members = lost.members();
        super::orphans::reap_orphans();
        let now = table::clock();
        // In the middle of an exec a process shows no environment, so one empty look proves nothing.
        let seen_empty = std::mem::replace(&mut looked_empty, members.is_empty());
        if (members.is_empty() && seen_empty) || now >= begin + budget {
            return Swept {
                ended: ended.into_values().collect(),
                survivors: members.iter().map(|member| member.pid).collect(),
            };
        }
        let signals: &[Signal] = match (now >= kill_at, termed) {
            (true, _) => &[Signal::KILL],
            (false, false) => &[Signal::TERM, Signal::CONT],
            (false, true) => &[],
        };
        termed |= !members.is_empty();
        for signal in signals {
            for member in &members {
                table::signal(member, *signal);
            }
        }
        for member in members {
            let left_session = member.sid != lost.guard;
            ended.entry(member.pid).or_insert(Ended { pid: member.pid, name: member.name, left_session });
        }
        table::pause(LOOK);
    }
}

impl Lost {
    /// Everything of this instance that lives and has to end.
    pub fn members(&self) -> Vec<Process> {
        let all = table::all();
        let user = rustix::process::getuid().as_raw();
        let spared = own_line(&all);
        let is_member = |process: &&Process| {
            let in_session =
                self.session == Session::Held && process.sid == self.guard && process.pid != self.guard;
            process.start >= self.since
                && !spared.contains(&process.pid)
                && (in_session || table::carries(process.pid, table::INSTANCE_MARKER, &self.instance))
                && table::uid(process.pid) == Some(user)
        };
        let mut members: Vec<Process> = all.iter().filter(is_member).cloned().collect();
        // The way down never goes through this process: what is below it is its own business.
        let others: Vec<Process> =
            all.iter().filter(|process| !spared.contains(&process.pid)).cloned().collect();
        for root in members.clone() {
            for process in descendants(&others, root.pid) {
                if members.iter().all(|member| member.pid != process.pid)
                    && table::uid(process.pid) == Some(user)
                {
                    members.push(process);
                }
            }
        }
        members
            .retain(|process| !process.zombie && (self.leavers == Leavers::End || process.sid == self.guard));
        members
    }
}

/// This process and its ancestors: a daemon started from within one of its own old servers must
/// not end itself.
fn own_line(all: &[Process]) -> Vec<u32> {
    let mut line = vec![table::own_pid()];
    while let Some(parent) =
        all.iter().find(|process| Some(&process.pid) == line.last()).map(|process| process.ppid)
    {
        if parent == 0 || line.contains(&parent) {
            break;
        }
        line.push(parent);
    }
    line
}
