//! Notifications of a client, and the one that its calls make for it.
//!
//! Methods of [`Session`]. Promise: a cancellation reaches the call that it names, with its reason, or nobody.

use super::follow::notification;
use super::task::Session;
use crate::jsonrpc::ids::IdKey;
use crate::jsonrpc::splice::Members;
use serde_json::value::RawValue;

impl Session {
    /// Takes one notification of the client.
    pub(super) fn notification(&mut self, method: &str, params: Option<&RawValue>) {
        match method {
            "notifications/cancelled" => {}
            "notifications/roots/list_changed" => return self.shared.calls.roots_changed(self.facts.id),
            // `initialized` and unknown ones change nothing here.
            _ => return,
        }
        let members = params.and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
        let Some(key) = members.get("requestId").and_then(|raw| IdKey::parse(raw).ok()) else {
            return;
        };
        if let Some(cancel) = self.cancels.remove(&key) {
            if let Some(reason) = members.text("reason") {
                let _ = cancel.reason.set(reason.into_owned());
            }
            let _ = cancel.trigger.send(());
        }
        self.close_stream(&key);
    }
}

/// A progress notification under the token the client gave (MCP 2025-11-25, Progress).
pub(super) fn progress_line(params: &RawValue, token: &RawValue) -> Option<Vec<u8>> {
    let params = Members::parse(params).ok()?.with("progressToken", token.get());
    Some(notification("notifications/progress", &params))
}
