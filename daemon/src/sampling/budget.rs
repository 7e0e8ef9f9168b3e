//! What a server may ask a model for: models, tokens, requests a minute, rounds of tools.
//!
//! Pure; `now` comes from the caller. Promise: in no 60 s pass more than `max_rpm` requests of a server; the
//! model is one that the configuration allows, also when nobody names one; what is refused costs nothing.
//! May not touch: who answers.

use super::error::SamplingError;
use crate::config::SamplingConfig;
use crate::names::{ClientId, ServerName};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// The window of `max_rpm`.
const WINDOW: Duration = Duration::from_secs(60);
/// A limit above this many a minute counts as this: each request is remembered for a minute.
const MOST: u32 = 60_000;
/// Conversations with tools that are remembered; the oldest are forgotten first.
const CONVERSATIONS: usize = 512;
/// A conversation that was silent for so long is over.
const SILENT: Duration = Duration::from_secs(600);

/// One conversation between a server and a model: the same opening, for the same client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Conversation {
    pub(super) server: ServerName,
    /// `None`: it cannot be said whose.
    pub(super) client: Option<ClientId>,
    /// Digest of the first message and the system prompt.
    pub(super) opening: [u8; 32],
}

/// What is asked for, as far as limits look at it.
#[derive(Debug, Clone)]
pub(super) struct Wanted<'a> {
    pub(super) conversation: &'a Conversation,
    /// Names in `modelPreferences.hints`, in their order.
    pub(super) hints: &'a [String],
    /// `maxTokens`.
    pub(super) max_tokens: Option<u64>,
    /// Whether the model may use tools.
    pub(super) tools: Tools,
    /// Rounds of tool use since the last words of the user, by the messages themselves.
    pub(super) rounds: u32,
}

/// Whether a request brings tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tools {
    None,
    Offered,
}

/// What a request may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grant {
    /// The model; `None`: whatever the other side takes.
    pub(super) model: Option<String>,
    /// At most so many tokens.
    pub(super) max_tokens: u32,
}

/// Requests of the last minute and rounds of tool use.
#[derive(Debug, Default)]
pub(super) struct Budget {
    minute: HashMap<ServerName, VecDeque<Instant>>,
    /// Consecutive answers that used tools, and when the last of them came.
    rounds: HashMap<Conversation, (u32, Instant)>,
}

impl Budget {
    /// Takes one request from every limit, or none.
    ///
    /// # Errors
    /// The limit that refuses it.
    pub(super) fn take(
        &mut self,
        config: &SamplingConfig,
        wanted: &Wanted<'_>,
        fallback: Option<&str>,
        now: Instant,
    ) -> Result<Grant, SamplingError> {
        if !config.enabled {
            return Err(SamplingError::Disabled);
        }
        let limit = config.max_tool_rounds;
        if wanted.tools == Tools::Offered && limit == 0 {
            return Err(SamplingError::Tools);
        }
        let model = model(config, fallback, wanted.hints)?;
        // The model used tools in each of them; words of its own are what must come next.
        if wanted.rounds > limit {
            return Err(SamplingError::Rounds { limit });
        }
        self.take_minute(&wanted.conversation.server, config.max_rpm.clamp(1, MOST), now)?;
        let max_tokens = wanted.max_tokens.unwrap_or(u64::MAX).min(config.max_tokens_cap.into()).max(1);
        Ok(Grant { model, max_tokens: u32::try_from(max_tokens).expect("the cap is a u32") })
    }

    fn take_minute(&mut self, server: &ServerName, limit: u32, now: Instant) -> Result<(), SamplingError> {
        let taken = self.minute.entry(server.clone()).or_default();
        while taken.front().is_some_and(|first| now >= *first + WINDOW) {
            taken.pop_front();
        }
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        if let Some(first) = taken.len().checked_sub(most).and_then(|over| taken.get(over)) {
            // A lowered limit: as many must leave as are above it.
            let retry_after = (*first + WINDOW).saturating_duration_since(now);
            return Err(SamplingError::Rate { limit, retry_after });
        }
        taken.push_back(now);
        Ok(())
    }

    /// Notes whether the answer used tools. A text begins the count anew, and so does a refusal.
    ///
    /// # Errors
    /// [`SamplingError::Rounds`]: one round too many, the answer must not be passed on.
    pub(super) fn answered(
        &mut self,
        config: &SamplingConfig,
        wanted: &Wanted<'_>,
        used: Tools,
        now: Instant,
    ) -> Result<(), SamplingError> {
        let counted = self.rounds.remove(wanted.conversation).filter(|(_, last)| now < *last + SILENT);
        if used == Tools::None {
            return Ok(());
        }
        // A server that leaves the earlier rounds out of its messages does not get more of them.
        let rounds = counted.map_or(0, |(rounds, _)| rounds).max(wanted.rounds).saturating_add(1);
        let limit = config.max_tool_rounds;
        if rounds > limit {
            return Err(SamplingError::Rounds { limit });
        }
        self.rounds.retain(|_, (_, last)| now < *last + SILENT);
        if self.rounds.len() >= CONVERSATIONS {
            let oldest = self.rounds.iter().min_by_key(|(_, (_, last))| *last).map(|(key, _)| key.clone());
            oldest.map(|key| self.rounds.remove(&key));
        }
        self.rounds.insert(wanted.conversation.clone(), (rounds, now));
        Ok(())
    }

    /// Drops what is kept for servers that are not configured any more.
    pub(super) fn keep(&mut self, configured: impl Fn(&ServerName) -> bool) {
        self.minute.retain(|server, _| configured(server));
        self.rounds.retain(|conversation, _| configured(&conversation.server));
    }
}

/// The model for a request: the one the entry names; else a hint that is allowed by name; else the
/// provider's own; else the first that is allowed. A server chooses only where nobody else did.
fn model(
    config: &SamplingConfig,
    fallback: Option<&str>,
    hints: &[String],
) -> Result<Option<String>, SamplingError> {
    let allowed = &config.allowed_models;
    let listed = |name: &str| allowed.iter().any(|allowed| allowed == name);
    let named = config.model.as_deref().or_else(|| {
        let hint = hints.iter().map(String::as_str).find(|hint| listed(hint));
        hint.or(fallback).or_else(|| allowed.first().or_else(|| hints.first()).map(String::as_str))
    });
    match named {
        Some(name) if !allowed.is_empty() && !listed(name) => {
            Err(SamplingError::Model { model: name.to_owned() })
        }
        named => Ok(named.map(str::to_owned)),
    }
}

/// Whether a model that answered is allowed.
///
/// # Errors
/// [`SamplingError::Model`].
pub(super) fn may_answer(config: &SamplingConfig, model: &str) -> Result<(), SamplingError> {
    let allowed = &config.allowed_models;
    if allowed.is_empty() || allowed.iter().any(|allowed| allowed == model) {
        return Ok(());
    }
    Err(SamplingError::Model { model: model.to_owned() })
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
