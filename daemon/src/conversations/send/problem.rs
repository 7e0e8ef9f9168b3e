//! Why a message was not sent, or not surely, written for a model.
//!
//! Pure. The first lines of [`Problem`] are the reference's, letter by letter. Promise: each answers
//! "was it delivered?"; no credential is in any of them but what a platform itself sends back, which the
//! caller masks.

use super::directory::Candidate;
use super::platform::Platform;
use crate::store::StoreError;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// How one request to a platform failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    /// The platform did not take the message, or was not reached at all.
    #[error("{why}")]
    NotSent {
        /// One sentence.
        why: String,
    },
    /// The platform wants fewer messages; it did not take this one.
    #[error("{platform} limits how many messages may be sent")]
    Limited {
        /// Who.
        platform: &'static str,
        /// When it takes the next one; `None`: it did not say.
        retry_after: Option<Duration>,
    },
    /// The request was written and no clear answer came.
    #[error("{why}")]
    Unknown {
        /// One sentence.
        why: String,
    },
}

/// Whether the chat has the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::conversations) enum Reached {
    /// Nothing of it.
    Nothing,
    /// The first `sent` parts, surely no more.
    Partly,
    /// One part may or may not have arrived.
    Unknown,
}

impl Reached {
    /// The word in answers.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Nothing => "not_sent",
            Self::Partly => "partly_sent",
            Self::Unknown => "unknown",
        }
    }
}

/// How far a message came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::conversations) struct Stopped {
    /// `platform:chat`.
    pub(super) target: String,
    /// Whether anything arrived.
    pub(super) reached: Reached,
    /// Parts that surely arrived, from the first on.
    pub(super) sent: usize,
    /// Parts in all.
    pub(super) of: usize,
    /// Why no more were sent, one sentence.
    pub(super) why: String,
    /// Wait at least so long before trying again.
    pub(super) retry_after: Option<Duration>,
    /// Beginning of the first part that is missing; only where some arrived.
    pub(super) missing_from: Option<String>,
}

/// Why a call of `messages_send` has no success.
#[derive(Debug, thiserror::Error)]
pub(in crate::conversations) enum Problem {
    /// Nobody has this platform.
    #[error("Unknown platform: {name}")]
    UnknownPlatform {
        /// As given, in lower case.
        name: String,
    },
    /// No credentials, or switched off.
    #[error(
        "Platform '{}' is not configured. Set up credentials in ~/.hermes/config.yaml or environment variables.",
        platform.name()
    )]
    NotConfigured {
        /// Which.
        platform: Platform,
        /// What exactly is missing.
        hint: Option<String>,
    },
    /// A bare platform without a home channel.
    #[error(
        "No home channel set for {name} to determine where to send the message. Either specify a channel directly \
         with '{name}:CHANNEL_NAME', or set a home channel via: hermes config set {}_HOME_CHANNEL <channel_id>",
        name.to_uppercase()
    )]
    NoHome {
        /// Its name.
        name: &'static str,
    },
    /// No chat has this name. The reference names a tool that its MCP clients do not have.
    #[error("Could not resolve '{reference}' on {}. Use channels_list to see available targets.", platform.name())]
    Unresolved {
        /// Where.
        platform: Platform,
        /// As given.
        reference: String,
        /// What may have been meant, nearest first.
        candidates: Vec<Candidate>,
    },
    /// Several chats have this name.
    #[error(
        "'{reference}' fits several chats on {}; nothing was sent. Name one of the candidates by its target.",
        platform.name()
    )]
    Ambiguous {
        /// Where.
        platform: Platform,
        /// As given.
        reference: String,
        /// Those it fits.
        candidates: Vec<Candidate>,
    },
    /// Hermes Agent has it, hermesd has not.
    #[error(
        "hermesd cannot send to {name}, nothing was sent; it sends to {}. Ask the user to send it with Hermes Agent.",
        Platform::names()
    )]
    NotSupported {
        /// Its name.
        name: String,
    },
    /// A colon and nothing behind it.
    #[error(
        "'{name}:' names no chat, nothing was sent; write '{name}' for its home channel, or '{name}:' and a target of channels_list"
    )]
    NoChat {
        /// The platform's name.
        name: &'static str,
    },
    /// A chat that the platform's only road does not lead to.
    #[error("{}", .why)]
    WrongRoad {
        /// One sentence.
        why: String,
    },
    /// The credential would travel readable.
    #[error(
        "the token of {name} would travel unencrypted to {host}, nothing was sent; use https, or set \
         platforms.{name}.extra.allow_insecure: true"
    )]
    Insecure {
        /// The platform's name.
        name: &'static str,
        /// Where.
        host: String,
    },
    /// An address that is none.
    #[error("{key} of {name} is no usable address ({why}), nothing was sent")]
    Address {
        /// The platform's name.
        name: &'static str,
        /// The key with the address.
        key: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// Only files were named, and none of them can be sent.
    #[error("No deliverable text or media remained after processing MEDIA tags, nothing was sent")]
    NothingLeft {
        /// Why each was left out.
        warnings: Vec<String>,
    },
    /// More parts than one call sends.
    #[error(
        "the message would need {parts} messages on {name}, at most {most} are sent; shorten it or send it in pieces"
    )]
    TooLong {
        /// The platform's name.
        name: &'static str,
        /// Parts needed.
        parts: usize,
        /// Parts allowed.
        most: usize,
    },
    /// A key that is too long to be kept.
    #[error("`idempotency_key` has {length} characters, at most {most} are kept; nothing was sent")]
    LongKey {
        /// Its length.
        length: usize,
        /// The limit.
        most: usize,
    },
    /// The key stands for another message.
    #[error("this `idempotency_key` was used for another message or target; nothing was sent, use a new key")]
    OtherMessage,
    /// The first call with the key still runs.
    #[error(
        "the message with this `idempotency_key` is being sent at this moment; ask again in a few seconds"
    )]
    StillSending,
    /// What came of the first call with the key is not known.
    #[error(
        "it is not known whether the message with this `idempotency_key` arrived, so it is not sent again; \
         look with messages_read, or ask the user"
    )]
    KeyUnknown,
    /// The key cannot be remembered.
    #[error("hermesd.db cannot remember the `idempotency_key` ({0}); nothing was sent")]
    KeyNotKept(#[source] StoreError),
    /// Too many messages wait to be sent.
    #[error("{waiting} messages are being sent or waiting, nothing was sent; try again in a few seconds")]
    Crowded {
        /// The limit.
        waiting: usize,
    },
    /// The daemon ends.
    #[error("hermesd is stopping, nothing was sent")]
    Stopping,
    /// The task ended without a report.
    #[error(
        "it is not known whether the message arrived: sending it ended with a panic; do not repeat it before you have looked"
    )]
    Lost,
    /// No HTTP client could be made.
    #[error("no HTTP client ({why}), nothing was sent")]
    NoClient {
        /// What is wrong.
        why: String,
    },
    /// Tried, and not all of it arrived.
    #[error("{}", stopped_text(.0))]
    Stopped(Box<Stopped>),
}

fn stopped_text(stopped: &Stopped) -> String {
    let Stopped { target, reached, sent, of, why, retry_after, missing_from } = stopped;
    let wait = retry_after
        .map_or(String::new(), |wait| format!("; wait {} s before you try again", wait.as_secs().max(1)));
    match reached {
        Reached::Nothing => format!("not sent to {target}: {why}{wait}"),
        Reached::Partly => format!(
            "only parts 1 to {sent} of {of} reached {target}, part {} was not sent: {why}{wait}. Do not send the \
             whole text again; what is missing begins with: {}",
            sent + 1,
            missing_from.as_deref().unwrap_or_default()
        ),
        Reached::Unknown if *of == 1 => format!(
            "it is not known whether the message reached {target}: {why}. Do not send it again before you have looked \
             (messages_read), or the user says so"
        ),
        Reached::Unknown => format!(
            "parts 1 to {sent} of {of} reached {target}; of part {} it is not known: {why}. Do not send it again \
             before you have looked (messages_read), or the user says so",
            sent + 1
        ),
    }
}

impl Problem {
    /// The members of the answer: `error`, and what a program may use.
    pub(in crate::conversations) fn object(&self) -> Map<String, Value> {
        let mut object = Map::new();
        object.insert("error".to_owned(), json!(self.to_string()));
        let mut add = |name: &str, value: Value| object.insert(name.to_owned(), value);
        match self {
            Self::Unresolved { candidates, .. } | Self::Ambiguous { candidates, .. }
                if !candidates.is_empty() =>
            {
                add("candidates", json!(candidates));
            }
            Self::NotConfigured { hint: Some(hint), .. } => drop(add("hint", json!(hint))),
            Self::NothingLeft { warnings } if !warnings.is_empty() => drop(add("warnings", json!(warnings))),
            Self::KeyUnknown | Self::Lost => drop(add("delivery", json!(Reached::Unknown.word()))),
            Self::Stopped(stopped) => {
                add("delivery", json!(stopped.reached.word()));
                if stopped.of > 1 {
                    add("parts_sent", json!(stopped.sent));
                    add("parts", json!(stopped.of));
                }
                if let Some(wait) = stopped.retry_after {
                    add("retry_after_ms", json!(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)));
                }
            }
            _ => {}
        }
        object
    }

    /// The same with every text that came from outside masked by `mask`.
    pub(super) fn masked(self, mask: &dyn Fn(&str) -> String) -> Self {
        match self {
            Self::Stopped(mut stopped) => {
                stopped.why = mask(&stopped.why);
                Self::Stopped(stopped)
            }
            other => other,
        }
    }
}
