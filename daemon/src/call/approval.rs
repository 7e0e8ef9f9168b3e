//! The step "approval": a gated call waits for a person.
//!
//! Owner of the waiting calls: [`Desk`], one for the daemon. Promise: a waiting call answers after
//! [`ANSWER`] at the latest, because clients give up soon after; the decision that comes later is
//! redeemed by the identical call. Progress keeps the client patient meanwhile; a client that can show a
//! form has its user asked. What stands
//! (`allow-always`) counts only as long as the store has it.
//! May not touch: who may see what.

use super::elicit::Said;
use super::question;
use super::route::Upstream;
use super::steps::{CallPath, lock};
use super::{Caller, ToolCall};
use crate::catalog::snapshot::Tool;
use crate::config::ApprovalPolicy;
use crate::jsonrpc::splice::{Members, ObjectWriter};
use crate::names::{ClientId, RawTool, ServerName};
use crate::policy::approvals::{
    Approvals, Bound, Crowded, Decision, Judge, Open, RespondError, Shown, Standing, gated as is_gated,
};
use crate::redact::Scope;
use crate::store::{NewApproval, NewEvent, StandingApproval, Store, StoreError, UnixMs};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::traces::{Kind, Span};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// How long a call waits before its client is told to repeat it. Clients give up after about 60 s.
pub const ANSWER: Duration = Duration::from_secs(45);
/// How often a waiting client that wants progress gets some.
const PROGRESS: Duration = Duration::from_secs(10);
/// Bytes of the arguments that people are shown.
const SHOWN: usize = 4096;

/// Kind of the event when a call begins to wait.
pub(super) const REQUESTED: &str = "approval_requested";
/// Kind of the event when it ends, decided or not.
pub(super) const RESOLVED: &str = "approval_resolved";

/// Why a gated call did not pass. `Display` is written for a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalError {
    /// Nobody has decided yet.
    #[error(
        "waiting for approval {id}; repeat the same call when the user has allowed it (`hermesctl approvals`)"
    )]
    Waiting {
        /// The number people see.
        id: u64,
    },
    /// A person said no.
    #[error("the user denied it (approval {id}); do not repeat it")]
    Denied {
        /// The number people saw.
        id: u64,
        /// Who it was.
        by: Judge,
    },
    /// Nobody decided in time.
    #[error("nobody allowed it within {limit:?} (approval {id})")]
    TimedOut {
        /// The number people saw.
        id: u64,
        /// `approval_timeout`.
        limit: Duration,
    },
    /// Nobody decided before the daemon was told to end.
    #[error(
        "hermesd ends and nobody had allowed it (approval {id}, which lapsed); repeat the call when hermesd is back"
    )]
    Ending {
        /// The number people saw.
        id: u64,
    },
    /// Too many calls wait.
    #[error("{0}")]
    Crowded(Crowded),
    /// People would see one value and the server might use the other.
    #[error("the arguments name `{name}` twice; a call that needs approval must be unambiguous")]
    Ambiguous {
        /// The member.
        name: String,
    },
    /// The tool is not what it was when the wait began.
    #[error("the tool changed while the call waited for approval; look at tools/list again")]
    Changed,
}

impl ApprovalError {
    /// Stable word for programs, logs and metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Waiting { .. } => "approval_waiting",
            Self::Denied { .. } => "approval_denied",
            Self::TimedOut { .. } => "approval_timeout",
            Self::Ending { .. } => "approval_lapsed",
            Self::Crowded(_) => "approval_crowded",
            Self::Ambiguous { .. } => "invalid_arguments",
            Self::Changed => "approval_changed",
        }
    }
}

/// Standing answers: the schema hash each was given for.
type AlwaysAllowed = BTreeMap<(ServerName, RawTool), [u8; 32]>;

/// Waiting calls and standing answers.
#[derive(Debug, Default)]
pub(super) struct Desk {
    pub(super) approvals: Mutex<Approvals>,
    /// Told when a call begins to wait, or stops without a decision.
    pub(super) changed: Notify,
    /// Calls about which a client's user is being asked.
    pub(super) asked: Mutex<BTreeSet<u64>>,
    /// Calls that wait now, by entry.
    waiters: Mutex<BTreeMap<u64, Waiters>>,
    /// Grows with each decision.
    decided: watch::Sender<u64>,
    /// `None`: to be read again.
    standing: Mutex<Option<AlwaysAllowed>>,
}

/// A call in front of the gate.
#[derive(Debug)]
pub(super) struct Gated<'a> {
    pub(super) caller: &'a Caller,
    /// Which calls wait.
    pub(super) policy: &'a ApprovalPolicy,
    /// How long.
    pub(super) timeout: Duration,
    pub(super) tool: &'a Tool,
    pub(super) call: &'a ToolCall,
    /// What would be sent.
    pub(super) upstream: &'a Upstream,
    /// The span of the call.
    pub(super) span: &'a Span,
}

/// How a call got past the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passed {
    /// The policy does not gate it.
    Free,
    /// An earlier `allow-always`.
    Standing,
    /// A person decided about it.
    Decided(Decision, Judge),
}

impl Desk {
    /// Forgets the calls of a client that is gone.
    pub(super) fn forget(&self, client: ClientId) {
        lock(&self.approvals).forget(client);
        self.changed.notify_one();
    }

    async fn stands(&self, store: &Store, bound: &Bound) -> bool {
        let key = (bound.server.clone(), bound.tool.clone());
        if let Some(known) = &*lock(&self.standing) {
            return known.get(&key) == Some(&bound.schema);
        }
        // Unreadable answers do not count, and are asked for again next time.
        let Ok(all) = store.standing_approvals().await else { return false };
        let all = all.into_iter().map(|StandingApproval { approval, .. }| {
            ((approval.server, approval.tool), approval.schema_hash)
        });
        let known: AlwaysAllowed = all.collect();
        let stands = known.get(&key) == Some(&bound.schema);
        *lock(&self.standing) = Some(known);
        stands
    }
}

/// One call that waits. The entry goes with the last of the identical calls, unless one of them was told
/// to come back.
struct Waiting<'a> {
    desk: &'a Desk,
    id: u64,
}

/// The calls that wait for one entry.
#[derive(Debug, Default)]
struct Waiters {
    calls: usize,
    /// One was told to come back.
    kept: bool,
}

impl<'a> Waiting<'a> {
    fn new(desk: &'a Desk, id: u64) -> Self {
        lock(&desk.waiters).entry(id).or_default().calls += 1;
        Self { desk, id }
    }

    /// The entry stays for the repetition of this call.
    fn keep(self) {
        lock(&self.desk.waiters).entry(self.id).or_default().kept = true;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiters = lock(&self.desk.waiters);
        let Some(of) = waiters.get_mut(&self.id) else { return };
        of.calls -= 1;
        if of.calls > 0 {
            return;
        }
        let kept = of.kept;
        waiters.remove(&self.id);
        drop(waiters);
        if !kept {
            lock(&self.desk.approvals).withdraw(self.id);
            self.desk.changed.notify_one();
        }
    }
}

impl CallPath {
    /// Step "approval": passes calls that need none, waits for a person otherwise.
    ///
    /// # Errors
    /// [`ApprovalError`].
    /// # Cancel safety
    /// Dropped while it waits, the call is taken off the list.
    pub(super) async fn approve<S>(&self, gated: &Gated<'_>, progress: &S) -> Result<Passed, ApprovalError>
    where
        S: Fn(Box<RawValue>) + Sync,
    {
        let Gated { caller, policy, tool, upstream, .. } = gated;
        let (server, raw) = self.names(tool);
        let hints = tool.hints;
        if !is_gated(policy, raw.as_str(), tool.name.as_str(), hints.read_only, hints.destructive) {
            return Ok(Passed::Free);
        }
        if let Some(name) = upstream.arguments().and_then(repeated) {
            return Err(ApprovalError::Ambiguous { name });
        }
        let bound = Bound {
            client: caller.client,
            server,
            tool: raw,
            arguments: Sha256::digest(upstream.arguments_text().as_bytes()).into(),
            schema: schema_hash(tool),
        };
        if self.desk.stands(&self.around.store, &bound).await {
            return Ok(Passed::Standing);
        }
        let mut span = gated.span.child(Kind::Internal, || "wait for approval".into());
        let passed = self.wait(gated, &bound, progress).await;
        match &passed {
            Ok(Passed::Decided(decision, _)) => span.set("hermes.decision", || decision.word()),
            Ok(Passed::Free | Passed::Standing) | Err(_) => {}
        }
        span.settle(&passed, ApprovalError::kind);
        passed
    }

    /// Waits until somebody has decided about the call, or time is up. The client's own user is asked where
    /// the client can do that; whoever decides first ends the other's question.
    async fn wait<S>(&self, gated: &Gated<'_>, bound: &Bound, progress: &S) -> Result<Passed, ApprovalError>
    where
        S: Fn(Box<RawValue>) + Sync,
    {
        let (started, limit) = (Instant::now(), gated.timeout);
        let mut decided = self.desk.decided.subscribe();
        let mut is_new = false;
        let shown = || {
            is_new = true;
            self.shown(gated.caller, gated.upstream)
        };
        let id = lock(&self.desk.approvals)
            .ask(bound, shown, limit, started.into_std())
            .map_err(ApprovalError::Crowded)?;
        let waiting = Waiting::new(&self.desk, id);
        if is_new {
            let client = gated.caller.client;
            tracing::info!(id, server = %bound.server, tool = %bound.tool, %client, "a call waits for approval");
            let body = requested(bound, id);
            self.desk.changed.notify_one();
            self.tell(REQUESTED, body).await;
        }
        let until = started + limit.min(ANSWER);
        let mut ticks = tokio::time::interval_at(started + PROGRESS, PROGRESS);
        let mut step = 0;
        let mut question = self.question(gated.caller, bound, gated.upstream, id);
        loop {
            match lock(&self.desk.approvals).redeem(id, Instant::now().into_std()) {
                Standing::Allowed(decision, by) => return Ok(Passed::Decided(decision, by)),
                Standing::Denied(by) => return Err(ApprovalError::Denied { id, by }),
                Standing::Gone => return Err(ApprovalError::TimedOut { id, limit }),
                Standing::Waits => {}
            }
            tokio::select! {
                biased;
                changed = decided.changed() => if changed.is_err() { return Err(ApprovalError::TimedOut { id, limit }) },
                () = self.around.stopping.cancelled() => {
                    // Left on the list: the keeper tells how it ended.
                    waiting.keep();
                    return Err(ApprovalError::Ending { id });
                }
                // Before the time is looked at: of a suspended call it stands still until the answer is there.
                said = question::answer(&mut question) => {
                    question = None;
                    match said {
                        // Somebody else may have been faster; the next look finds out.
                        Said::Decision(decision) => drop(self.respond_as_user(id, decision, gated.caller).await),
                        // Not now: the call does not wait for others, who may still decide for its repetition.
                        Said::Dismissed => {
                            waiting.keep();
                            return Err(ApprovalError::Waiting { id });
                        }
                        Said::Nothing => {}
                    }
                }
                () = tokio::time::sleep_until(until) => {
                    if limit <= ANSWER {
                        // Its time is over: the keeper finds it so and tells.
                        waiting.keep();
                        self.desk.changed.notify_one();
                        return Err(ApprovalError::TimedOut { id, limit });
                    }
                    // It stays on the list: the identical call redeems what is decided later.
                    waiting.keep();
                    return Err(ApprovalError::Waiting { id });
                }
                _ = ticks.tick(), if gated.call.progress_token.is_some() => {
                    step += 1;
                    progress(patience(id, step));
                }
            }
        }
    }

    /// Decides about a waiting call; answers what came of it.
    ///
    /// # Errors
    /// [`RespondError`].
    pub async fn respond(
        &self,
        id: &str,
        decision: Decision,
        judge: Judge,
        by: &str,
    ) -> Result<&'static str, RespondError> {
        let bound = lock(&self.desk.approvals).respond(id, decision, judge, Instant::now().into_std())?;
        let mut outcome = match decision {
            Decision::AllowOnce | Decision::AllowAlways => "allowed",
            Decision::Deny => "denied",
        };
        if decision == Decision::AllowAlways {
            let new = NewApproval {
                server: bound.server.clone(),
                tool: bound.tool.clone(),
                schema_hash: bound.schema,
                created_by: by.to_owned(),
                created_at: UnixMs::at(SystemTime::now()),
            };
            if let Err(error) = self.around.store.allow_always(new).await {
                tracing::warn!(%error, "an answer for always holds only once");
                outcome = "allowed once: hermesd.db cannot keep the answer";
            }
            *lock(&self.desk.standing) = None;
        }
        self.desk.decided.send_modify(|count| *count += 1);
        tracing::info!(id, decision = decision.word(), by, server = %bound.server, tool = %bound.tool, "an approval was decided");
        let body = resolved(id, decision.word(), bound.server.as_str(), bound.tool.as_str());
        self.tell(RESOLVED, body).await;
        Ok(outcome)
    }

    /// Calls that wait, oldest first.
    pub fn waiting(&self) -> Vec<(u64, Open)> {
        lock(&self.desk.approvals).waiting(Instant::now().into_std())
    }

    /// Answers that stand.
    ///
    /// # Errors
    /// As the store.
    pub async fn standing(&self) -> Result<Vec<StandingApproval>, StoreError> {
        self.around.store.standing_approvals().await
    }

    /// Takes a standing answer back.
    ///
    /// # Errors
    /// As the store; then it may still hold.
    pub async fn revoke(&self, id: i64) -> Result<Option<(ServerName, RawTool)>, StoreError> {
        let revoked = self.around.store.revoke_approval(id).await;
        *lock(&self.desk.standing) = None;
        revoked
    }

    pub(super) fn shown(&self, caller: &Caller, upstream: &Upstream) -> Shown {
        let redactor = self.around.redactor.borrow().clone();
        let text = redactor.redact_json(upstream.arguments_text(), Scope::Patterns);
        let cut = text.floor_char_boundary(SHOWN);
        let arguments = if cut < text.len() { format!("{}…", &text[..cut]) } else { text.into_owned() };
        Shown {
            arguments,
            client: caller.identity.name.clone().unwrap_or_default(),
            profile: caller.view.profile().clone(),
            created_ms: UnixMs::at(SystemTime::now()).0,
        }
    }

    /// Puts an event into the log that `events_poll` reads.
    pub(super) async fn tell(&self, kind: &'static str, body: Box<RawValue>) {
        let metrics: &Metrics = &self.around.metrics;
        metrics.event(kind);
        let event = NewEvent {
            at: UnixMs::at(SystemTime::now()),
            kind,
            session_key: String::new(),
            body: body.get().to_owned(),
        };
        if let Err(error) = self.around.store.append_events(vec![event], None).await {
            tracing::warn!(%error, kind, "an event is not kept");
        }
    }
}

/// SHA-256 of the tool's own schema.
fn schema_hash(tool: &Tool) -> [u8; 32] {
    Sha256::digest(tool.schema.as_ref().map_or("", |schema| schema.get()).as_bytes()).into()
}

fn requested(bound: &Bound, id: u64) -> Box<RawValue> {
    let mut body = ObjectWriter::default();
    body.string("type", REQUESTED)
        .string("session_key", "")
        .string("approval_id", &id.to_string())
        .string("server", bound.server.as_str())
        .string("tool", bound.tool.as_str());
    body.finish()
}

/// The body of the event about the end of a wait. `decision` is a word of a decision or of a lapse.
pub(super) fn resolved(id: &str, decision: &str, server: &str, tool: &str) -> Box<RawValue> {
    let mut body = ObjectWriter::default();
    body.string("type", RESOLVED).string("session_key", "").string("approval_id", id);
    body.string("decision", decision).string("server", server).string("tool", tool);
    body.finish()
}

/// Progress below 1, so that whatever the server counts afterwards goes on rising.
fn patience(id: u64, step: u32) -> Box<RawValue> {
    let mut params = ObjectWriter::default();
    params
        .member("progressToken", "0")
        .member("progress", &format!("{}", f64::from(step) / 1000.0))
        .string("message", &format!("waiting for approval {id}"));
    params.finish()
}

/// A member that stands twice in one object, at any depth.
fn repeated(raw: &RawValue) -> Option<String> {
    match raw.get().as_bytes().first()? {
        b'{' => {
            let members = Members::parse(raw).ok()?;
            match members.duplicate() {
                Some(name) => Some(name.to_owned()),
                None => members.iter().find_map(|(_, value)| repeated(value)),
            }
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(raw.get()).ok()?;
            items.into_iter().find_map(repeated)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_given_twice_is_found_at_any_depth() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert_eq!(repeated(&raw(r#"{"a":1,"b":{"a":[{"c":1,"c":2}]}}"#)), Some("c".into()));
        assert_eq!(repeated(&raw(r#"{"a":1,"b":{"a":[{"c":1},{"c":2}]}}"#)), None);
    }

    #[test]
    fn progress_while_waiting_stays_below_one() {
        assert_eq!(
            patience(3, 7).get(),
            r#"{"progressToken":0,"progress":0.007,"message":"waiting for approval 3"}"#
        );
    }
}
