//! Requests for a model that are about no client in particular, answered by the provider.
//!
//! Owner: one task each, in a group that the stop of the servers ends. Promise: one that the server does not
//! wait for any more stops at the provider too. May not touch: clients.

use super::{Asked, ClientFailure, Sampler};
use crate::config::{ServerConfig, ServerEntry};
use crate::jsonrpc::reply::Reply;
use crate::jsonrpc::splice::ObjectWriter;
use crate::names::ServerName;
use crate::server::wire::questions::{Models, Question, Sampling};
use crate::tasks::TaskGroup;
use serde_json::value::RawValue;
use std::future::Ready;
use std::sync::Arc;
use std::time::Duration;

/// No client can be asked.
type Nobody = fn(Box<RawValue>, Duration) -> Ready<Result<Reply, ClientFailure>>;

/// Answers servers by the provider alone.
#[derive(Debug)]
pub struct Desk {
    sampler: Arc<Sampler>,
    tasks: TaskGroup,
}

impl Desk {
    /// A desk whose tasks belong to `tasks`.
    pub fn new(sampler: Arc<Sampler>, tasks: TaskGroup) -> Self {
        Self { sampler, tasks }
    }
}

impl Models for Desk {
    fn offer(&self, server: &ServerConfig) -> Sampling {
        match (self.sampler.can_answer(server), server.sampling.max_tool_rounds) {
            (false, _) => Sampling::None,
            (true, 0) => Sampling::Text,
            (true, _) => Sampling::Tools,
        }
    }

    fn take(&self, server: &ServerName, question: Question) -> Result<(), Question> {
        let entry = self.sampler.around.config.borrow().servers.get(server.as_str()).cloned();
        let config = match entry {
            Some(ServerEntry::Enabled(config)) if self.sampler.can_answer(&config) => config,
            // Not run, or not by us to be answered: whoever brought it says so.
            Some(_) | None => return Err(question),
        };
        let sampler = self.sampler.clone();
        self.tasks.spawn(async move {
            let Question { params, answer: mut done, .. } = question;
            let params = params.unwrap_or_else(|| ObjectWriter::default().finish());
            let asked = Asked { server: &config, caller: None, trace_id: "", params: &params };
            let reply = tokio::select! {
                biased;
                () = done.closed() => return,
                reply = sampler.create_message(asked, None::<Nobody>) => reply,
            };
            // Taken back this moment: nobody waits any more.
            let _ = done.send(reply);
        });
        Ok(())
    }
}
