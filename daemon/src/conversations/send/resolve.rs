//! From a target to the one chat that it names.
//!
//! Promise: a chat is named by its own id, by a name that fits it and no other, or by the bare platform
//! whose home channel it is; everything else is an error with candidates. Blocking parts run on the
//! blocking pool. May not touch: the network.

use super::Courier;
use super::dingtalk;
use super::directory::{self, Channel, Found};
use super::platform::Platform;
use super::problem::Problem;
use super::target::{self, Asked, Chat, Place, TargetError};
use crate::config::messaging::{Messaging, PlatformConfig};
use crate::conversations::{Conversations, Reading};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::path::Path;

/// Largest directory that is read, in bytes.
const LARGEST: u64 = 64 * 1024 * 1024;

/// A target that was found.
#[derive(Debug)]
pub(super) struct Resolved<'c> {
    pub(super) platform: Platform,
    pub(super) config: &'c PlatformConfig,
    pub(super) chat: Chat,
    /// What the directory calls it: `dm`, `channel`, `forum`, …
    pub(super) kind: Option<String>,
    pub(super) by: By,
}

/// How a chat was named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Itself,
    HomeChannel,
}

impl Courier {
    /// Finds the chat of `target`; in the order of the reference: the name, the platform's
    /// configuration, its home channel.
    pub(super) async fn resolve<'c>(
        &self,
        conversations: &Conversations,
        messaging: &'c Messaging,
        target: &str,
    ) -> Result<Resolved<'c>, Problem> {
        let Asked { platform, place } = target::parse(target).map_err(no_target)?;
        let written = messaging.platforms.get(platform.name());
        let home = written.and_then(|config| config.home.as_ref());
        let own = |reference: &str| home.filter(|home| home.chat_id == reference);
        let found = match place {
            Place::Home => None,
            Place::Chat(chat) => {
                // Only Discord's road differs by what a channel is.
                let known =
                    if platform == Platform::Discord { self.directory(platform).await } else { Vec::new() };
                let kind =
                    known.iter().find(|channel| channel.id == chat.shown()).and_then(|c| c.kind.clone());
                Some((chat, kind))
            }
            Place::Name(name) => match own(&name) {
                // The configuration knows this id, whatever its form.
                Some(home) => Some((Chat::new(&home.chat_id, home.thread_id.as_deref()), None)),
                None => Some(self.named(conversations, platform, name).await?),
            },
        };
        let config = usable(platform, written)?;
        let (chat, kind, by) = match found {
            Some((chat, kind)) => (chat, kind, By::Itself),
            None => {
                let chat = match (home, platform) {
                    (Some(home), _) => Chat::new(&home.chat_id, home.thread_id.as_deref()),
                    // The group of the webhook is the only chat there is.
                    (None, Platform::Dingtalk) => Chat::new(dingtalk::WEBHOOK, None),
                    (None, _) => return Err(Problem::NoHome { name: platform.name() }),
                };
                (split_home(platform, chat), None, By::HomeChannel)
            }
        };
        Ok(Resolved { platform, config, chat, kind, by })
    }

    async fn named(
        &self,
        conversations: &Conversations,
        platform: Platform,
        reference: String,
    ) -> Result<(Chat, Option<String>), Problem> {
        let mut channels = self.directory(platform).await;
        if channels.is_empty() {
            channels = listed(conversations, platform).await;
        }
        match directory::find(&channels, platform, &reference) {
            Found::One(channel) => Ok((channel.chat(platform), channel.kind.clone())),
            Found::Several(several) => {
                let candidates = directory::candidates(platform, several);
                Err(Problem::Ambiguous { platform, reference, candidates })
            }
            Found::None => {
                let near = directory::near(&channels, &reference);
                let candidates = directory::candidates(platform, near);
                Err(Problem::Unresolved { platform, reference, candidates })
            }
        }
    }

    /// The channels that Hermes Agent and the user have written down.
    async fn directory(&self, platform: Platform) -> Vec<Channel> {
        let home = self.home.clone();
        let work = self.around.tasks.spawn_blocking(move || {
            let directory = object(&home.join("channel_directory.json"));
            let aliases = object(&home.join("channel_aliases.json"));
            directory::channels(directory.as_ref(), aliases.as_ref(), platform)
        });
        work.await.unwrap_or_default()
    }
}

/// The channels as `channels_list` has them, for homes without a directory: those of the conversations.
async fn listed(conversations: &Conversations, platform: Platform) -> Vec<Channel> {
    let arguments = json!({ "platform": platform.name() }).to_string();
    let arguments = RawValue::from_string(arguments).expect("JSON is JSON");
    let Ok(answer) = conversations.hand_over(Reading::ChannelsList, Some(&arguments)) else {
        return Vec::new();
    };
    let Ok(reply) = answer.await else { return Vec::new() };
    let result: Value = serde_json::from_str(reply.json.get()).unwrap_or_default();
    let lines = result["structuredContent"]["channels"].as_array().cloned().unwrap_or_default();
    let channel = |line: &Value| {
        let id = line["target"].as_str()?.strip_prefix(platform.name())?.strip_prefix(':')?;
        Some(Channel {
            id: id.to_owned(),
            name: line["name"].as_str().filter(|name| !name.is_empty()).unwrap_or(id).to_owned(),
            kind: line["chat_type"].as_str().map(ToOwned::to_owned),
            ..Channel::default()
        })
    };
    lines.iter().filter_map(channel).collect()
}

/// A home channel may be written as `chat:thread` too.
fn split_home(platform: Platform, chat: Chat) -> Chat {
    match (&chat.thread, target::explicit(platform, &chat.id)) {
        (None, Some(explicit)) => explicit,
        _ => chat,
    }
}

fn no_target(error: TargetError) -> Problem {
    match error {
        TargetError::Unknown(name) => Problem::UnknownPlatform { name },
        TargetError::Foreign(name) => Problem::NotSupported { name },
        TargetError::NoChat(platform) => Problem::NoChat { name: platform.name() },
    }
}

fn usable(platform: Platform, config: Option<&PlatformConfig>) -> Result<&PlatformConfig, Problem> {
    let name = platform.name();
    let hint = match config {
        Some(PlatformConfig { problem: Some(problem), .. }) => Some(problem.clone()),
        Some(PlatformConfig { enabled: false, .. }) => {
            Some(format!("platforms.{name} is written but not `enabled: true`"))
        }
        Some(config) => return Ok(config),
        None => None,
    };
    Err(Problem::NotConfigured { platform, hint })
}

/// The JSON object in a file; a missing or damaged one says nothing.
fn object(path: &Path) -> Option<Map<String, Value>> {
    let size = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?.len();
    if size > LARGEST {
        return None;
    }
    let text = std::fs::read_to_string(path).ok()?;
    serde_json::from_str(text.trim_start_matches('\u{feff}')).ok()
}
