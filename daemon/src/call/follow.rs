//! Following what servers say on their own: updates of resources, log lines.
//!
//! The step "subscribe" of the road, and what sessions keep in order beside it. Promise: what one
//! client follows costs its server one subscription however many clients there are, and is let go
//! when the client leaves. State: `server/news`. May not touch: sockets.

use super::error::CallError;
use super::steps::CallPath;
use super::{Caller, ToolCall};
use crate::catalog::snapshot::{Origin, Tool, View};
use crate::jsonrpc::log_level::Verbosity;
use crate::jsonrpc::reply::{METHOD_NOT_FOUND, Reply};
use crate::jsonrpc::splice::ObjectWriter;
use crate::names::{ClientId, ServerName};
use crate::redact::Scope;
use crate::server::handle::ServerHandle;
use crate::server::news::followers::{Can, Followers, Refusal, Since};
use crate::server::news::hearer::Hearer;
use crate::server::wire::{Delivery, WireError};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Who changes a resource, and what that server calls it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The server; `None`: hermesd itself.
    pub server: Option<ServerName>,
    /// Its own URI.
    pub uri: Arc<str>,
}

impl Source {
    /// Of a resource as a view shows it.
    pub fn of(resource: &Tool) -> Self {
        match &resource.origin {
            Origin::Server { server, raw } => {
                Self { server: Some(server.clone()), uri: Arc::from(raw.as_str()) }
            }
            Origin::Conversations { .. } => Self { server: None, uri: Arc::from(resource.name.as_str()) },
        }
    }
}

/// The step itself: a live server that can do it, then its consent.
pub(super) async fn subscribe(
    caller: &Caller,
    handle: &ServerHandle,
    tool: &Tool,
    call: &ToolCall,
    idle: Duration,
) -> Result<Reply, CallError> {
    let started = Instant::now();
    let deadline = started + idle;
    let can = || {
        let listing = handle.listing().borrow().clone();
        listing.map(|listing| listing.capabilities.as_deref().map(Can::declared).unwrap_or_default())
    };
    // Said before anything is started for it; a server that was never seen is asked first.
    if can().is_some_and(|can| !can.subscribe) {
        return Ok(unsupported(handle.name()));
    }
    handle.ready(deadline).await?;
    let (Some(Can { subscribe: true, .. }), Some(hearer)) = (can(), &caller.hearer) else {
        return Ok(unsupported(handle.name()));
    };
    let source = Source::of(tool);
    let followers = handle.followers();
    let follower = call.follower.unwrap_or(caller.client);
    followers.follow(follower, &source.uri, &call.name, hearer, Since::Now);
    match tokio::time::timeout_at(deadline, followers.told(&source.uri)).await {
        Ok(Ok(())) => Ok(agreed()),
        Ok(Err(Refusal::Server(error))) => Ok(Reply::Error(RawValue::to_owned(&error))),
        Ok(Err(Refusal::Wire(error))) => Err(error.into()),
        Err(_) => Err(CallError::Wire(WireError::IdleTimeout {
            limit: idle,
            elapsed: started.elapsed(),
            delivery: Delivery::MaybeWritten,
        })),
    }
}

fn agreed() -> Reply {
    Reply::Result(ObjectWriter::default().finish())
}

fn unsupported(server: &ServerName) -> Reply {
    let text = format!(
        "MCP server '{server}' has no subscriptions (it does not declare `resources.subscribe`); read the resource again instead"
    );
    Reply::error(METHOD_NOT_FOUND, &text)
}

impl CallPath {
    /// Who follows hermesd's own resources; whoever changes one tells them.
    pub fn own_news(&self) -> &Followers {
        &self.own_news
    }

    /// Subscribes to one of hermesd's own resources.
    pub(super) fn subscribe_own(&self, caller: &Caller, tool: &Tool, call: &ToolCall) -> Reply {
        let uri = Source::of(tool).uri;
        if let Some(hearer) = &caller.hearer {
            self.own_news.follow(
                call.follower.unwrap_or(caller.client),
                &uri,
                &call.name,
                hearer,
                Since::Now,
            );
        }
        agreed()
    }

    /// Has a client that is there again, or whose server is another one now, go on following; `follower` is
    /// the number under which it does.
    pub fn follow_on(&self, caller: &Caller, follower: ClientId, named: &str, source: &Source) {
        let Some(hearer) = &caller.hearer else { return };
        match &source.server {
            None => {
                self.own_news.follow(follower, &source.uri, named, hearer, Since::Earlier);
            }
            Some(server) => {
                let Some(first) = self.around.servers.borrow().get(server).cloned() else { return };
                // Full of others' calls: the resource can be followed again later.
                let Ok(handle) = self.instance_now(caller, &first) else { return };
                if handle.followers().follow(follower, &source.uri, named, hearer, Since::Earlier).is_new() {
                    handle.wake();
                }
            }
        }
    }

    /// Ends the following of one resource, which `client` follows under the number `follower`.
    pub fn unfollow(&self, client: ClientId, follower: ClientId, source: &Source) {
        match &source.server {
            None => self.own_news.unfollow(follower, &source.uri),
            Some(server) => {
                let first = self.around.servers.borrow().get(server).cloned();
                if let Some(handle) = first.and_then(|first| self.placed(client, &first)) {
                    handle.followers().unfollow(follower, &source.uri);
                }
            }
        }
    }

    /// Has a client see log lines of the servers that `view` shows; `None`: none.
    pub fn listen(&self, client: ClientId, view: &View, wish: Option<Verbosity>, hearer: &Arc<dyn Hearer>) {
        self.placement.listens(client, wish);
        for (name, first) in self.around.servers.borrow().iter() {
            let wish = wish.filter(|_| view.sees(name.as_str()));
            // An instance that is made later hears of it then.
            if let Some(handle) = self.placed(client, first) {
                handle.followers().listen(client, wish, hearer);
            }
        }
    }

    /// Lets go of everything that a client followed.
    pub(super) fn stop_following(&self, client: ClientId) {
        self.own_news.leave(client);
        for first in self.around.servers.borrow().values() {
            first.instances().all().iter().for_each(|(_, handle)| handle.followers().leave(client));
        }
    }

    /// The params of a notification with secrets masked.
    pub fn masked(&self, params: &RawValue) -> Box<RawValue> {
        match self.around.redactor.borrow().redact_json(params.get(), Scope::Patterns) {
            Cow::Borrowed(_) => params.to_owned(),
            Cow::Owned(text) => RawValue::from_string(text).expect("masking keeps valid JSON valid"),
        }
    }
}
