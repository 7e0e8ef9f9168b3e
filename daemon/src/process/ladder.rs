//! When a guard signals what: stdin end, TERM, KILL, one budget.
//!
//! Pure: time is passed in as the time since some fixed moment. Promise: TERM at most once, KILL
//! again and again from its moment on, survivors named once, and [`Rung::Empty`] only when both
//! the leader and everything below it ended.

use std::time::Duration;

/// Budget of the guard when the daemon is gone: nobody waits, but the next start does.
pub const ORPHANED_BUDGET: Duration = Duration::from_secs(6);
/// Budget for the rest of the tree after a server ended by itself.
pub const EXITED_BUDGET: Duration = Duration::from_secs(3);

/// Whether the end of stdin still has to be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// stdin just ended: a third of the budget belongs to a clean exit.
    AtStdinEnd,
    /// The leader is gone already: TERM at once.
    AtTerm,
}

/// Whether the server's first process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leader {
    /// Not ended.
    Alive,
    /// Ended; kept as a zombie so that its group id stays ours.
    Ended,
}

/// Whether anything else of the tree lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tree {
    /// Something that must end.
    Alive,
    /// Nothing.
    Empty,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// Nothing before this moment, unless a child ends.
    WaitUntil(Duration),
    /// TERM to the group and to everything below.
    Term,
    /// KILL to the group and to everything below.
    Kill,
    /// The budget is spent: name what is left, then go on.
    Survivors,
    /// Proven empty.
    Empty,
}

/// One descent from stdin end to KILL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ladder {
    term_at: Duration,
    kill_at: Duration,
    give_up_at: Duration,
    term_sent: bool,
    survivors_named: bool,
}

impl Ladder {
    /// Starts at `now`; a third of `budget` each for stdin end, TERM and KILL.
    pub fn begin(now: Duration, budget: Duration, start: Start) -> Self {
        let third = budget / 3;
        let term_at = match start {
            Start::AtStdinEnd => now + third,
            Start::AtTerm => now,
        };
        Self {
            term_at,
            kill_at: term_at + third,
            give_up_at: now + budget,
            term_sent: false,
            survivors_named: false,
        }
    }

    /// A second order: whatever is earlier counts, so a hurry is heard and a slow order never
    /// gives a stubborn server more time.
    pub fn hurry(&mut self, now: Duration, budget: Duration) {
        let other = Self::begin(now, budget, if self.term_sent { Start::AtTerm } else { Start::AtStdinEnd });
        self.term_at = self.term_at.min(other.term_at);
        self.kill_at = self.kill_at.min(other.kill_at);
        self.give_up_at = self.give_up_at.min(other.give_up_at);
        self.survivors_named = false;
    }

    /// When the budget is spent.
    pub fn ends_at(&self) -> Duration {
        self.give_up_at
    }

    /// The next step, given what was seen at `now`.
    pub fn next(&mut self, now: Duration, leader: Leader, tree: Tree) -> Rung {
        if leader == Leader::Ended && tree == Tree::Empty {
            return Rung::Empty;
        }
        if leader == Leader::Ended && !self.term_sent && now < self.term_at {
            // The clean exit came early: its time is not needed, the rest gets only the TERM share.
            self.kill_at = self.kill_at.min(now + (self.kill_at - self.term_at));
            self.term_at = now;
        }
        if now >= self.give_up_at && !self.survivors_named {
            self.survivors_named = true;
            return Rung::Survivors;
        }
        if now >= self.kill_at {
            return Rung::Kill;
        }
        if now < self.term_at {
            return Rung::WaitUntil(self.term_at);
        }
        if self.term_sent {
            return Rung::WaitUntil(self.kill_at);
        }
        self.term_sent = true;
        Rung::Term
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn a_stubborn_server_gets_a_third_for_each_step() {
        let mut ladder = Ladder::begin(ms(100), ms(900), Start::AtStdinEnd);
        let mut at = |t| ladder.next(ms(t), Leader::Alive, Tree::Alive);
        assert_eq!(at(100), Rung::WaitUntil(ms(400)));
        assert_eq!(at(400), Rung::Term);
        assert_eq!(at(401), Rung::WaitUntil(ms(700)));
        assert_eq!(at(700), Rung::Kill);
        assert_eq!(at(710), Rung::Kill);
        assert_eq!(at(1000), Rung::Survivors);
        assert_eq!(at(1001), Rung::Kill);
    }

    #[test]
    fn a_launcher_that_leaves_early_does_not_win_time_for_its_grandchild() {
        let mut ladder = Ladder::begin(ms(0), ms(900), Start::AtStdinEnd);
        assert_eq!(ladder.next(ms(50), Leader::Ended, Tree::Alive), Rung::Term);
        assert_eq!(ladder.next(ms(60), Leader::Ended, Tree::Alive), Rung::WaitUntil(ms(350)));
        assert_eq!(ladder.next(ms(70), Leader::Ended, Tree::Empty), Rung::Empty);
    }

    #[test]
    fn a_hurry_shortens_and_a_slow_order_changes_nothing() {
        let mut ladder = Ladder::begin(ms(0), ms(9000), Start::AtStdinEnd);
        ladder.hurry(ms(10), ms(300));
        assert_eq!(ladder.next(ms(110), Leader::Alive, Tree::Alive), Rung::Term);
        ladder.hurry(ms(120), ms(90_000));
        assert_eq!(ladder.next(ms(210), Leader::Alive, Tree::Alive), Rung::Kill);
    }

    proptest! {
        #[test]
        fn every_descent_terms_once_then_kills_and_names_survivors_by_the_end_of_the_budget(
            budget in 0u64..10_000, steps in prop::collection::vec((1u64..400, any::<bool>()), 1..80), at_term: bool,
        ) {
            let start = if at_term { Start::AtTerm } else { Start::AtStdinEnd };
            let mut ladder = Ladder::begin(ms(7), ms(budget), start);
            let (mut now, mut ended, mut terms, mut killed, mut named) = (7, false, 0, false, 0);
            for (step, leader_ends) in steps {
                ended |= leader_ends;
                let leader = if ended { Leader::Ended } else { Leader::Alive };
                match ladder.next(ms(now), leader, Tree::Alive) {
                    Rung::Term => { terms += 1; prop_assert!(!killed); }
                    Rung::Kill => killed = true,
                    Rung::WaitUntil(until) => prop_assert!(until > ms(now) && until <= ms(7 + budget) && !killed),
                    Rung::Survivors => { named += 1; prop_assert!(now >= 7 + budget); }
                    Rung::Empty => prop_assert!(false, "the tree was alive"),
                }
                now += step;
            }
            prop_assert!(terms <= 1 && named <= 1);
            prop_assert_eq!(ladder.next(ms(now), Leader::Ended, Tree::Empty), Rung::Empty);
        }
    }
}
