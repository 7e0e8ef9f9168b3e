//! What a person agrees to: pinned texts and waiting calls. Decides nothing.

use super::convert::millis;
use super::evidence::hex;
use super::service::Inner;
use crate::call::permissions::is_below_daemon;
use crate::catalog::vet::LOOKED_AT;
use crate::config::{PinPolicy, ServerEntry};
use crate::policy::approvals::{Decision, Judge};
use crate::store::{Approved, FirstUse, Pin, PinKey, Pins, StoreError, UnixMs};
use hermes_proto::control as pb;
use std::time::{Instant, SystemTime};
use tonic::Status;

/// Who approves over control.sock, for the record.
const OPERATOR: &str = "hermesctl";

/// Pins of one server or of all.
pub(super) async fn pins(
    inner: &Inner,
    request: &pb::ListPinsRequest,
) -> Result<pb::ListPinsResponse, Status> {
    let pins = load(inner).await?;
    let wanted = |key: &PinKey, pin: &Pin| {
        key.name != LOOKED_AT
            && (request.server.is_empty() || key.server.as_str() == request.server)
            && (!request.changed_only || pin.change.is_some())
    };
    let shown = pins.by_key.iter().filter(|(key, pin)| wanted(key, pin));
    let lost_ms = match pins.first_use {
        FirstUse::Trusted => 0,
        FirstUse::LostAt(at) => at.0,
    };
    Ok(pb::ListPinsResponse { pins: shown.map(|(key, pin)| one_pin(inner, key, pin)).collect(), lost_ms })
}

fn one_pin(inner: &Inner, key: &PinKey, pin: &Pin) -> pb::Pin {
    let (approved_ms, approved_by) = pin.approved.clone().map_or((0, String::new()), |(at, by)| (at.0, by));
    let change = pin.change.as_ref();
    pb::Pin {
        server: key.server.to_string(),
        kind: key.kind.clone(),
        name: key.name.clone(),
        digest: hex(&pin.digest),
        first_seen_ms: pin.first_seen.0,
        approved_ms,
        approved_by,
        changed_digest: change.map(|change| hex(&change.digest)).unwrap_or_default(),
        changed_ms: change.map_or(0, |change| change.seen.0),
        text: (inner.mask)(&pin.text),
        changed_text: change.map(|change| (inner.mask)(&change.text)).unwrap_or_default(),
        withheld: change.is_some() && blocks(inner, key.server.as_str()),
    }
}

fn blocks(inner: &Inner, server: &str) -> bool {
    match inner.config.borrow().servers.get(server) {
        Some(ServerEntry::Enabled(config) | ServerEntry::Disabled(config)) => config.pin == PinPolicy::Block,
        Some(ServerEntry::Refused { .. }) | None => false,
    }
}

/// Makes the changed texts of one item, or of all of a server, those that count.
pub(super) async fn approve_pins(
    inner: &Inner,
    request: &pb::ApprovePinsRequest,
) -> Result<pb::ApprovePinsResponse, Status> {
    let pins = load(inner).await?;
    let of_server = || pins.by_key.iter().filter(|(key, _)| key.server.as_str() == request.server);
    if of_server().next().is_none() {
        let text = format!("nothing of server `{}` is pinned\nhint: see `hermesctl pins`", request.server);
        return Err(Status::not_found(text));
    }
    let asked = |key: &PinKey| {
        key.server.as_str() == request.server
            && (request.name.is_empty() || key.name == request.name)
            && (request.kind.is_empty() || key.kind == request.kind)
    };
    if !of_server().any(|(key, _)| asked(key)) {
        let text = format!(
            "server `{}` has no pinned {}`{}`\nhint: see `hermesctl pins list {}`",
            request.server,
            if request.kind.is_empty() { String::new() } else { format!("{} ", request.kind) },
            request.name,
            request.server
        );
        return Err(Status::not_found(text));
    }
    let mut approved = Vec::new();
    for (key, pin) in of_server().filter(|(key, _)| asked(key)) {
        let Some(change) = &pin.change else { continue };
        let at = UnixMs::at(SystemTime::now());
        let done = inner.store.approve_pin(key.clone(), change.digest, OPERATOR.to_owned(), at).await;
        match done.map_err(|error| unusable(&error))? {
            Approved::Yes => approved.push(format!("{} {}", key.kind, key.name)),
            Approved::Unknown | Approved::Moved => {
                let text = format!(
                    "`{}` changed again just now\nhint: look at `hermesctl pins diff {}` once more",
                    key.name, request.server
                );
                return Err(Status::aborted(text));
            }
        }
    }
    let waiting = |(key, pin): (&PinKey, &Pin)| pin.change.is_some() && !asked(key);
    if pins.first_use != FirstUse::Trusted && !pins.by_key.iter().any(waiting) {
        // Everything that was lost has been looked at.
        inner.store.trust_first_use_again().await.map_err(|error| unusable(&error))?;
    }
    tracing::info!(server = request.server, items = approved.join(", "), "pins approved by an operator");
    inner.pins_approved.send_modify(|count| *count += 1);
    Ok(pb::ApprovePinsResponse { approved })
}

async fn load(inner: &Inner) -> Result<Pins, Status> {
    inner.store.load_pins().await.map_err(|error| unusable(&error))
}

fn unusable(error: &StoreError) -> Status {
    Status::aborted(format!("hermesd.db cannot be used: {error}\nhint: `hermesctl doctor` says more"))
}

/// Calls that wait, and answers that stand as far as they can be read.
pub(super) async fn approvals(inner: &Inner) -> pb::ListApprovalsResponse {
    let now = Instant::now();
    let waiting = inner.calls.waiting().into_iter().map(|(id, open)| pb::Approval {
        id: id.to_string(),
        server: open.bound.server.to_string(),
        tool: open.bound.tool.to_string(),
        arguments: open.shown.arguments,
        client: open.shown.client,
        profile: open.shown.profile.to_string(),
        created_ms: open.shown.created_ms,
        expires_in_ms: millis(open.expires.saturating_duration_since(now)),
    });
    let standing = inner.calls.standing().await.unwrap_or_default();
    let standing = standing.into_iter().map(|one| pb::StandingApproval {
        id: one.id,
        server: one.approval.server.to_string(),
        tool: one.approval.tool.to_string(),
        created_ms: one.approval.created_at.0,
        created_by: one.approval.created_by,
    });
    pb::ListApprovalsResponse { waiting: waiting.collect(), standing: standing.collect() }
}

/// Decides about a waiting call, unless the command runs below one of our own servers.
pub(super) async fn respond(
    inner: &Inner,
    request: &pb::RespondApprovalRequest,
    pid: Option<u32>,
) -> Result<pb::RespondApprovalResponse, Status> {
    let Some(decision) = Decision::named(&request.decision) else {
        let text = format!("no decision `{}`\nhint: allow-once, allow-always or deny", request.decision);
        return Err(Status::invalid_argument(text));
    };
    if let Some(pid) = pid
        && is_below_daemon(pid).await
    {
        return Err(Status::permission_denied("a process below an MCP server cannot answer approvals"));
    }
    match inner.calls.respond(&request.id, decision, Judge::Operator, OPERATOR).await {
        Ok(outcome) => Ok(pb::RespondApprovalResponse { outcome: outcome.to_owned() }),
        Err(error) => {
            Err(Status::not_found(format!("{error}\nhint: `hermesctl approvals` lists what waits")))
        }
    }
}

/// Takes a standing answer back.
pub(super) async fn revoke(inner: &Inner, id: i64) -> Result<pb::RevokeApprovalResponse, Status> {
    match inner.calls.revoke(id).await.map_err(|error| unusable(&error))? {
        Some((server, tool)) => {
            tracing::info!(%server, %tool, "a standing approval was taken back");
            Ok(pb::RevokeApprovalResponse { server: server.to_string(), tool: tool.to_string() })
        }
        None => Err(Status::not_found(format!(
            "no standing approval {id}\nhint: `hermesctl approvals` lists them"
        ))),
    }
}
