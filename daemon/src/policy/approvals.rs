//! Calls that wait for a person.
//!
//! Pure; `now` comes from the caller. Promise: a decision is about one exact call (client, server,
//! tool, arguments) and lets it through once; whoever waits cannot decide; nothing waits longer than
//! its limit; the number of waiting calls is bounded.

use crate::config::ApprovalPolicy;
use crate::names::{ClientId, ProfileName, RawTool, ServerName};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

/// Calls of one client that may wait.
pub const MAX_OF_CLIENT: usize = 32;
/// Calls that may wait in all.
pub const MAX_OPEN: usize = 256;

/// Calls that stopped waiting and were not told yet; older ones are forgotten.
const LAPSED_KEPT: usize = 2 * MAX_OPEN;

/// The exact call that a decision is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Who asked.
    pub client: ClientId,
    /// Which server.
    pub server: ServerName,
    /// Which tool.
    pub tool: RawTool,
    /// SHA-256 of the arguments as they would be sent.
    pub arguments: [u8; 32],
    /// SHA-256 of the tool's schema.
    pub schema: [u8; 32],
}

/// What people are shown, secrets masked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The arguments.
    pub arguments: String,
    /// Name of the client.
    pub client: String,
    /// Its profile.
    pub profile: ProfileName,
    /// When it asked, in milliseconds since 1970.
    pub created_ms: i64,
}

/// What a person says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// This call.
    AllowOnce,
    /// This call, and later ones of the tool.
    AllowAlways,
    /// Not.
    Deny,
}

impl Decision {
    /// The decision called `word`.
    pub fn named(word: &str) -> Option<Self> {
        match word {
            "allow-once" => Some(Self::AllowOnce),
            "allow-always" => Some(Self::AllowAlways),
            "deny" => Some(Self::Deny),
            _ => None,
        }
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow-once",
            Self::AllowAlways => "allow-always",
            Self::Deny => "deny",
        }
    }
}

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judge {
    /// A session.
    Client(ClientId),
    /// A person at the admin socket.
    Operator,
    /// The user of the client whose call waits, asked by elicitation: a person, not the session.
    User,
}

impl fmt::Display for Judge {
    /// As the audit has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(client) => write!(f, "client {client}"),
            Self::Operator => f.write_str("hermesctl"),
            Self::User => f.write_str("the client's user (elicitation)"),
        }
    }
}

/// Where a call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Nobody has decided.
    Waits,
    /// It may pass, once.
    Allowed(Decision, Judge),
    /// It may not.
    Denied(Judge),
    /// Its time is over, or it never was.
    Gone,
}

/// Why a decision was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RespondError {
    /// No such call, or it was decided already.
    #[error("Approval not found: {id}")]
    NotFound {
        /// As given.
        id: String,
    },
    /// The session that waits cannot decide about its own call.
    #[error(
        "the session whose call waits cannot answer approval {id}; another client or `hermesctl approvals` can"
    )]
    OwnCall {
        /// Which call.
        id: String,
    },
}

/// Too many calls wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{open} calls wait for approval already, the limit is {limit}")]
pub struct Crowded {
    /// How many.
    pub open: usize,
    /// At most.
    pub limit: usize,
}

/// One call that waits, or was decided and not redeemed yet.
#[derive(Debug, Clone)]
pub struct Open {
    /// What it is about.
    pub bound: Bound,
    /// What people see.
    pub shown: Shown,
    /// When it lapses.
    pub expires: Instant,
    standing: Standing,
    /// How long a late decision holds.
    limit: Duration,
}

/// How a call stopped waiting without a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lapse {
    /// Its time was over, or the daemon's.
    Expired,
    /// It was cancelled, or its client is gone.
    Withdrawn,
}

impl Lapse {
    /// Its word, in the place of a decision.
    pub fn word(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// A call that stopped waiting without a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lapsed {
    /// The number people saw.
    pub id: u64,
    /// What it was about.
    pub bound: Bound,
    /// Why nobody waits any more.
    pub how: Lapse,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Approvals {
    last: u64,
    open: BTreeMap<u64, Open>,
    /// Not told yet; at most [`LAPSED_KEPT`], the newest.
    lapsed: VecDeque<Lapsed>,
}

/// Whether a call of a tool has to wait.
pub fn gated(
    policy: &ApprovalPolicy,
    raw: &str,
    exposed: &str,
    read_only: Option<bool>,
    destructive: Option<bool>,
) -> bool {
    match policy {
        ApprovalPolicy::Never => false,
        // As MCP has it, a tool that says nothing may destroy.
        ApprovalPolicy::Destructive => read_only != Some(true) && destructive != Some(false),
        ApprovalPolicy::Always => true,
        ApprovalPolicy::Tools(names) => names.iter().any(|name| name == raw || name == exposed),
    }
}

impl Approvals {
    /// Enters a call, or finds the entry that an identical call made.
    ///
    /// # Errors
    /// [`Crowded`].
    pub fn ask(
        &mut self,
        bound: &Bound,
        shown: impl FnOnce() -> Shown,
        limit: Duration,
        now: Instant,
    ) -> Result<u64, Crowded> {
        self.expire(now);
        if let Some((id, _)) = self.open.iter().find(|(_, open)| open.bound == *bound) {
            return Ok(*id);
        }
        let own = self.open.values().filter(|open| open.bound.client == bound.client).count();
        for (open, limit) in [(own, MAX_OF_CLIENT), (self.open.len(), MAX_OPEN)] {
            if open >= limit {
                return Err(Crowded { open, limit });
            }
        }
        self.last += 1;
        let open = Open {
            bound: bound.clone(),
            shown: shown(),
            expires: now + limit,
            standing: Standing::Waits,
            limit,
        };
        self.open.insert(self.last, open);
        Ok(self.last)
    }

    /// Where a call stands; a decision is taken out, so that it counts once.
    pub fn redeem(&mut self, id: u64, now: Instant) -> Standing {
        self.expire(now);
        match self.open.get(&id).map(|open| open.standing) {
            None => Standing::Gone,
            Some(Standing::Waits) => Standing::Waits,
            Some(decided) => {
                self.open.remove(&id);
                decided
            }
        }
    }

    /// Decides about a call. A decision that nobody waits for any more holds as long as the call did.
    ///
    /// # Errors
    /// [`RespondError`].
    pub fn respond(
        &mut self,
        id: &str,
        decision: Decision,
        judge: Judge,
        now: Instant,
    ) -> Result<Bound, RespondError> {
        self.expire(now);
        let not_found = || RespondError::NotFound { id: id.to_owned() };
        let number: u64 = id.parse().map_err(|_| not_found())?;
        let open = self
            .open
            .get_mut(&number)
            .filter(|open| open.standing == Standing::Waits)
            .ok_or_else(not_found)?;
        if judge == Judge::Client(open.bound.client) {
            return Err(RespondError::OwnCall { id: id.to_owned() });
        }
        open.standing = match decision {
            Decision::AllowOnce | Decision::AllowAlways => Standing::Allowed(decision, judge),
            Decision::Deny => Standing::Denied(judge),
        };
        open.expires = now + open.limit;
        Ok(open.bound.clone())
    }

    /// Takes a call out that its client no longer wants.
    pub fn withdraw(&mut self, id: u64) {
        self.lapse(Lapse::Withdrawn, |number, _| number == id);
    }

    /// Forgets the calls of a client that is gone.
    pub fn forget(&mut self, client: ClientId) {
        self.lapse(Lapse::Withdrawn, |_, open| open.bound.client == client);
    }

    /// Ends all waiting: the daemon ends.
    pub fn end(&mut self) {
        self.lapse(Lapse::Expired, |_, _| true);
    }

    /// Goes on with numbers above `last`, so that an old number never means another call.
    pub fn continue_after(&mut self, last: u64) {
        self.last = self.last.max(last);
    }

    /// Takes what stopped waiting without a decision since the last time.
    pub fn take_lapsed(&mut self, now: Instant) -> Vec<Lapsed> {
        self.expire(now);
        self.lapsed.drain(..).collect()
    }

    /// When the next one lapses.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.open.values().map(|open| open.expires).min()
    }

    /// Calls nobody has decided about, oldest first.
    pub fn waiting(&mut self, now: Instant) -> Vec<(u64, Open)> {
        self.expire(now);
        let waits = self.open.iter().filter(|(_, open)| open.standing == Standing::Waits);
        waits.map(|(id, open)| (*id, open.clone())).collect()
    }

    fn expire(&mut self, now: Instant) {
        self.lapse(Lapse::Expired, |_, open| open.expires <= now);
    }

    /// Takes out what `ends`; what nobody had decided about is to be told.
    fn lapse(&mut self, how: Lapse, ends: impl Fn(u64, &Open) -> bool) {
        for (id, open) in self.open.extract_if(.., |id, open| ends(*id, open)) {
            if open.standing == Standing::Waits {
                self.lapsed.push_back(Lapsed { id, bound: open.bound, how });
            }
        }
        let surplus = self.lapsed.len().saturating_sub(LAPSED_KEPT);
        self.lapsed.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: Duration = Duration::from_secs(300);

    fn bound(client: u64, arguments: u8) -> Bound {
        Bound {
            client: ClientId(client),
            server: ServerName::new("s"),
            tool: RawTool::new("t"),
            arguments: [arguments; 32],
            schema: [0; 32],
        }
    }

    fn shown() -> Shown {
        Shown {
            arguments: "{}".into(),
            client: "c".into(),
            profile: ProfileName::new("default"),
            created_ms: 0,
        }
    }

    #[test]
    fn what_ends_without_a_decision_is_told_once_with_the_reason() {
        let (mut all, now) = (Approvals::default(), Instant::now());
        all.continue_after(40);
        let ids: Vec<u64> =
            (1..=5).map(|client| all.ask(&bound(client, 1), shown, LIMIT, now).unwrap()).collect();
        assert_eq!(ids, [41, 42, 43, 44, 45]);
        all.respond("41", Decision::Deny, Judge::Operator, now).unwrap();
        all.withdraw(41);
        all.withdraw(42);
        all.forget(ClientId(3));
        let told = |all: &mut Approvals, now| {
            all.take_lapsed(now).into_iter().map(|lapsed| (lapsed.id, lapsed.how)).collect::<Vec<_>>()
        };
        assert_eq!(told(&mut all, now), [(42, Lapse::Withdrawn), (43, Lapse::Withdrawn)]);
        assert_eq!(all.next_expiry(), Some(now + LIMIT));
        all.end();
        assert_eq!(told(&mut all, now), [(44, Lapse::Expired), (45, Lapse::Expired)]);
        let late = all.ask(&bound(1, 1), shown, LIMIT, now).unwrap();
        assert_eq!(told(&mut all, now + LIMIT), [(late, Lapse::Expired)]);
        assert_eq!(told(&mut all, now + LIMIT), []);
    }

    #[test]
    fn a_decision_lets_the_identical_call_of_that_client_through_once() {
        let (mut all, now) = (Approvals::default(), Instant::now());
        let id = all.ask(&bound(1, 1), shown, LIMIT, now).unwrap();
        assert_eq!(all.redeem(id, now), Standing::Waits);
        all.respond(&id.to_string(), Decision::AllowOnce, Judge::Operator, now).unwrap();
        for other in [bound(2, 1), bound(1, 2)] {
            let fresh = all.ask(&other, shown, LIMIT, now).unwrap();
            assert_ne!(fresh, id);
            assert_eq!(all.redeem(fresh, now), Standing::Waits);
        }
        assert_eq!(all.ask(&bound(1, 1), shown, LIMIT, now), Ok(id));
        assert_eq!(all.redeem(id, now), Standing::Allowed(Decision::AllowOnce, Judge::Operator));
        let again = all.ask(&bound(1, 1), shown, LIMIT, now).unwrap();
        assert_eq!(all.redeem(again, now), Standing::Waits);
    }

    #[test]
    fn the_session_that_waits_cannot_decide_and_nobody_decides_twice() {
        let (mut all, now) = (Approvals::default(), Instant::now());
        let id = all.ask(&bound(1, 1), shown, LIMIT, now).unwrap().to_string();
        let own = all.respond(&id, Decision::AllowOnce, Judge::Client(ClientId(1)), now);
        assert_eq!(own, Err(RespondError::OwnCall { id: id.clone() }));
        all.respond(&id, Decision::Deny, Judge::Client(ClientId(2)), now).unwrap();
        let asked = all.ask(&bound(1, 2), shown, LIMIT, now).unwrap();
        all.respond(&asked.to_string(), Decision::AllowOnce, Judge::User, now).unwrap();
        assert_eq!(all.redeem(asked, now), Standing::Allowed(Decision::AllowOnce, Judge::User));
        let late = all.respond(&id, Decision::AllowOnce, Judge::Operator, now);
        assert_eq!(late, Err(RespondError::NotFound { id }));
    }

    #[test]
    fn what_waits_too_long_or_lost_its_client_is_gone() {
        let (mut all, now) = (Approvals::default(), Instant::now());
        let id = all.ask(&bound(1, 1), shown, LIMIT, now).unwrap();
        assert_eq!(all.redeem(id, now + LIMIT), Standing::Gone);
        let id = all.ask(&bound(1, 1), shown, LIMIT, now).unwrap();
        all.forget(ClientId(1));
        assert_eq!(all.redeem(id, now), Standing::Gone);
    }

    #[test]
    fn destructive_means_neither_read_only_nor_declared_harmless() {
        let gate = |read_only, destructive| {
            gated(&ApprovalPolicy::Destructive, "t", "mcp_s_t", read_only, destructive)
        };
        assert!(gate(None, None) && gate(Some(false), Some(true)));
        assert!(!gate(Some(true), None) && !gate(None, Some(false)));
        let named = ApprovalPolicy::Tools(vec!["mcp_s_t".into()]);
        assert!(gated(&named, "t", "mcp_s_t", None, None) && !gated(&named, "u", "mcp_s_u", None, None));
    }

    proptest! {
        #[test]
        fn never_more_wait_than_allowed_and_never_is_one_allowed_without_a_decision(
            steps in proptest::collection::vec((0u64..12, 0u8..60, 0u8..4), 0..600),
        ) {
            let (mut all, now) = (Approvals::default(), Instant::now());
            let mut allowed = 0;
            for (client, arguments, what) in steps {
                let Ok(id) = all.ask(&bound(client, arguments), shown, LIMIT, now) else { continue };
                match what {
                    0 if all.respond(&id.to_string(), Decision::AllowOnce, Judge::Operator, now).is_ok() => allowed += 1,
                    1 => if let Standing::Allowed(..) = all.redeem(id, now) {
                        allowed -= 1;
                    },
                    2 => {
                        let _ = all.respond(&id.to_string(), Decision::Deny, Judge::Client(ClientId(client)), now);
                    }
                    _ => {}
                }
                prop_assert!(allowed >= 0);
                prop_assert!(all.open.len() <= MAX_OPEN);
                let own = all.open.values().filter(|open| open.bound.client == ClientId(client)).count();
                prop_assert!(own <= MAX_OF_CLIENT);
            }
        }
    }
}
