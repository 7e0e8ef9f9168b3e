//! What a person agrees to: pinned texts and waiting calls. Decides nothing.

use super::evidence::hex;
use super::service::Inner;
use crate::config::{PinPolicy, ServerEntry};
use crate::store::{Approved, FirstUse, Pin, PinKey, Pins, StoreError, UnixMs};
use hermes_proto::control as pb;
use std::time::SystemTime;
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
        (request.server.is_empty() || key.server.as_str() == request.server)
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

/// Makes the changed texts of one tool, or of all of a server, those that count.
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
    if !request.name.is_empty() && !of_server().any(|(key, _)| key.name == request.name) {
        let text = format!(
            "server `{}` has no pinned `{}`\nhint: see `hermesctl pins list {}`",
            request.server, request.name, request.server
        );
        return Err(Status::not_found(text));
    }
    let mut approved = Vec::new();
    for (key, pin) in of_server().filter(|(key, _)| request.name.is_empty() || key.name == request.name) {
        let Some(change) = &pin.change else { continue };
        let at = UnixMs::at(SystemTime::now());
        let done = inner.store.approve_pin(key.clone(), change.digest, OPERATOR.to_owned(), at).await;
        match done.map_err(|error| unusable(&error))? {
            Approved::Yes => approved.push(key.name.clone()),
            Approved::Unknown | Approved::Moved => {
                let text = format!(
                    "`{}` changed again just now\nhint: look at `hermesctl pins diff {}` once more",
                    key.name, request.server
                );
                return Err(Status::aborted(text));
            }
        }
    }
    let waiting = |(key, pin): (&PinKey, &Pin)| {
        pin.change.is_some() && !(key.server.as_str() == request.server && approved.contains(&key.name))
    };
    if pins.first_use != FirstUse::Trusted && !pins.by_key.iter().any(waiting) {
        // Everything that was lost has been looked at.
        inner.store.trust_first_use_again().await.map_err(|error| unusable(&error))?;
    }
    tracing::info!(server = request.server, tools = ?approved, "pins approved by an operator");
    inner.pins_approved.send_modify(|count| *count += 1);
    Ok(pb::ApprovePinsResponse { approved })
}

async fn load(inner: &Inner) -> Result<Pins, Status> {
    inner.store.load_pins().await.map_err(|error| unusable(&error))
}

fn unusable(error: &StoreError) -> Status {
    Status::aborted(format!("hermesd.db cannot be used: {error}\nhint: `hermesctl doctor` says more"))
}

pub(super) async fn approvals(_inner: &Inner) -> pb::ListApprovalsResponse {
    pb::ListApprovalsResponse::default()
}

pub(super) async fn respond(
    _inner: &Inner,
    _request: &pb::RespondApprovalRequest,
) -> Result<pb::RespondApprovalResponse, Status> {
    Err(Status::unimplemented("approvals"))
}

pub(super) async fn revoke(_inner: &Inner, _id: i64) -> Result<pb::RevokeApprovalResponse, Status> {
    Err(Status::unimplemented("approvals"))
}
