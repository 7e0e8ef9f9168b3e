//! Calls that stop waiting for approval without a decision: told as events, so that whoever watches the
//! list need not guess, also across a restart.
//!
//! Promise: each `approval_requested` in the log is followed by one `approval_resolved`, whose decision is
//! `expired` or `withdrawn` if nobody decided; an approval left by a daemon that was killed is told as
//! expired by the next one; a number is never given to two calls. May not touch: decisions.

use super::approval::{REQUESTED, RESOLVED, resolved};
use super::steps::{CallPath, lock};
use crate::policy::approvals::{Lapse, Lapsed};
use crate::store::{EventFilter, PAGE_LIMIT};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long the start waits for the log.
const LOG_WAIT: Duration = Duration::from_secs(2);

impl CallPath {
    /// Goes on where an earlier daemon stopped: with numbers above its own, and with the end of the calls
    /// that waited when it was killed. Their callers were told "outcome unknown" by their shims.
    pub async fn resume_approvals(&self) {
        let kinds = vec![REQUESTED.to_owned(), RESOLVED.to_owned()];
        let page = self.around.store.newest_events(PAGE_LIMIT, EventFilter { session_key: None, kinds });
        let page = match tokio::time::timeout(LOG_WAIT, page).await {
            Ok(Ok(page)) => page,
            Ok(Err(error)) => return tracing::warn!(%error, "approvals of the last daemon are not known"),
            Err(_) => {
                return tracing::warn!(
                    "approvals of the last daemon are not known: hermesd.db does not answer"
                );
            }
        };
        let (last, open) = left_open(page.events.iter().map(|event| event.body.as_str()));
        lock(&self.desk.approvals).continue_after(last);
        for (id, Left { server, tool }) in open {
            tracing::warn!(id, server, tool, "an approval lapsed with the daemon that asked for it");
            self.tell(RESOLVED, resolved(&id.to_string(), Lapse::Expired.word(), &server, &tool)).await;
        }
    }

    /// Tells of calls that stop waiting without a decision, until `stop`; then all of them have.
    pub async fn keep_approvals(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let next = lock(&self.desk.approvals).next_expiry();
            let due = async {
                match next {
                    Some(at) => tokio::time::sleep_until(Instant::from_std(at)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => lock(&self.desk.approvals).end(),
                () = self.desk.changed.notified() => {}
                () = due => {}
            }
            let lapsed = lock(&self.desk.approvals).take_lapsed(Instant::now().into_std());
            for Lapsed { id, bound, how } in lapsed {
                let (server, tool) = (bound.server.as_str(), bound.tool.as_str());
                tracing::info!(id, server, tool, how = how.word(), "an approval lapsed");
                self.tell(RESOLVED, resolved(&id.to_string(), how.word(), server, tool)).await;
            }
            if stop.is_cancelled() {
                return;
            }
        }
    }
}

/// A call that waited when its daemon was gone.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    server: String,
    tool: String,
}

/// What is read of an event.
#[derive(Debug, Deserialize)]
struct Body {
    r#type: String,
    approval_id: String,
    #[serde(default)]
    server: String,
    #[serde(default)]
    tool: String,
}

/// The highest number, and the calls that were asked about and never resolved, from events in order.
fn left_open<'a>(bodies: impl Iterator<Item = &'a str>) -> (u64, BTreeMap<u64, Left>) {
    let (mut last, mut open) = (0, BTreeMap::new());
    for body in bodies {
        let Ok(Body { r#type, approval_id, server, tool }) = serde_json::from_str(body) else { continue };
        let Ok(id) = approval_id.parse::<u64>() else { continue };
        last = last.max(id);
        if r#type == REQUESTED {
            open.insert(id, Left { server, tool });
        } else {
            open.remove(&id);
        }
    }
    (last, open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_and_not_resolved_is_left_open_and_numbers_go_on() {
        let requested = |id: &str| {
            format!("{{\"type\":\"{REQUESTED}\",\"approval_id\":\"{id}\",\"server\":\"s\",\"tool\":\"t\"}}")
        };
        let decided = resolved("7", "deny", "s", "t").get().to_owned();
        let events =
            [requested("7"), requested("9"), decided, "{\"type\":\"gap\"}".to_owned(), requested("odd")];
        let (last, open) = left_open(events.iter().map(String::as_str));
        assert_eq!(last, 9);
        assert_eq!(open, BTreeMap::from([(9, Left { server: "s".into(), tool: "t".into() })]));
    }
}
