//! Asks the user of the client whose call waits for approval, beside all other ways to decide.
//!
//! Promise: one question for one waiting call, however often it is made at the same time; dropped, the
//! question is taken back at the client. May not touch: the waiting calls but through [`CallPath::respond`].

use super::Caller;
use super::approval::{ANSWER, Desk};
use super::elicit::{self, Said};
use super::peer::{Asking, Feature};
use super::route::Upstream;
use super::steps::{CallPath, lock};
use crate::policy::approvals::{Bound, Decision, Judge, RespondError};

/// A question to the client's user.
pub(super) struct Question<'a> {
    asking: Asking,
    _asked: Asked<'a>,
}

/// Marks that the user is being asked, so that the same call twice is one dialog.
struct Asked<'a> {
    desk: &'a Desk,
    id: u64,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        lock(&self.desk.asked).remove(&self.id);
    }
}

/// What the user says; never returns without a question.
pub(super) async fn answer(question: &mut Option<Question<'_>>) -> Said {
    let Some(question) = question else { return std::future::pending().await };
    match (&mut question.asking).await {
        Ok(reply) => elicit::read(&reply),
        Err(error) => {
            tracing::debug!(%error, "the client's user did not answer");
            Said::Nothing
        }
    }
}

impl CallPath {
    /// The question to the client's own user; `None`: it cannot be asked, or is being asked already.
    pub(super) fn question(
        &self,
        caller: &Caller,
        bound: &Bound,
        upstream: &Upstream,
        id: u64,
    ) -> Option<Question<'_>> {
        // Over HTTP nobody knows which program asks: it may be the very server whose call waits.
        let known = caller.identity.uid.is_some();
        let peer = caller.peer.as_ref().filter(|peer| known && peer.has(Feature::Form))?;
        if !lock(&self.desk.asked).insert(id) {
            return None;
        }
        let asked = Asked { desk: &self.desk, id };
        let params = elicit::params(bound, &self.shown(caller, upstream), peer.revision());
        match peer.ask(elicit::METHOD, &params, ANSWER) {
            Ok(asking) => Some(Question { asking, _asked: asked }),
            Err(error) => {
                tracing::debug!(id, %error, "the client's user is not asked");
                None
            }
        }
    }

    /// Decides for the user.
    ///
    /// # Errors
    /// [`RespondError`]: somebody else was faster.
    pub(super) async fn respond_as_user(
        &self,
        id: u64,
        decision: Decision,
        caller: &Caller,
    ) -> Result<&'static str, RespondError> {
        let name = caller.identity.name.as_deref().unwrap_or("a client");
        self.respond(&id.to_string(), decision, Judge::User, &format!("user of {name}")).await
    }
}
