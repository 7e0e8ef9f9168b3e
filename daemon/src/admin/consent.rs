//! What a person agrees to: pinned texts and waiting calls.

use super::service::Inner;
use hermes_proto::control as pb;
use tonic::Status;

pub(super) async fn pins(
    _inner: &Inner,
    _request: &pb::ListPinsRequest,
) -> Result<pb::ListPinsResponse, Status> {
    Err(Status::unimplemented("pins"))
}

pub(super) async fn approve_pins(
    _inner: &Inner,
    _request: &pb::ApprovePinsRequest,
) -> Result<pb::ApprovePinsResponse, Status> {
    Err(Status::unimplemented("pins"))
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
