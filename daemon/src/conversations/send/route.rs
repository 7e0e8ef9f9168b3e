//! One chat and the road to it: a platform's client, made from its configuration.
//!
//! Promise: a [`Route`] leads to the chat it was made for and to no other; whatever is missing or unsafe
//! in the configuration is said before anything is sent. May not touch: the text.

use super::http::{Http, is_this_machine};
use super::media::Attachment;
use super::platform::Platform;
use super::problem::{Failure, Problem};
use super::split::{Limit, Unit};
use super::target::Chat;
use super::{dingtalk, discord, homeassistant, matrix, signal, slack, telegram, whatsapp};
use crate::config::messaging::PlatformConfig;
use crate::secret::Secret;
use reqwest::Url;

/// What a platform says about a message that it took.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Receipt {
    /// The platform's id of the message.
    pub(super) id: Option<String>,
    /// What went less than well.
    pub(super) warning: Option<String>,
}

impl Receipt {
    pub(super) fn of(id: Option<String>) -> Self {
        Self { id, warning: None }
    }
}

/// Whether a request may be sent again after an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// The platform knows the message again and takes it once.
    Safe,
    Never,
}

/// A client of one platform, bound to one chat.
#[derive(Debug)]
pub(super) enum Route {
    Telegram(telegram::Bot),
    Discord(discord::Bot),
    Slack(slack::Bot),
    Signal(signal::Account),
    Whatsapp(whatsapp::Bridge),
    Matrix(matrix::User),
    HomeAssistant(homeassistant::House),
    Dingtalk(dingtalk::Webhook),
}

impl Route {
    /// The road to `chat`; `kind` is what the directory calls it.
    pub(super) fn to(
        platform: Platform,
        config: &PlatformConfig,
        chat: Chat,
        kind: Option<&str>,
    ) -> Result<Self, Problem> {
        let of = Settings { platform, config };
        Ok(match platform {
            Platform::Telegram => Self::Telegram(telegram::Bot::new(&of, chat)?),
            Platform::Discord => Self::Discord(discord::Bot::new(&of, chat, kind)?),
            Platform::Slack => Self::Slack(slack::Bot::new(&of, chat)?),
            Platform::Signal => Self::Signal(signal::Account::new(&of, chat)?),
            Platform::Whatsapp => Self::Whatsapp(whatsapp::Bridge::new(&of, chat)?),
            Platform::Matrix => Self::Matrix(matrix::User::new(&of, chat)?),
            Platform::HomeAssistant => Self::HomeAssistant(homeassistant::House::new(&of, chat)?),
            Platform::Dingtalk => Self::Dingtalk(dingtalk::Webhook::new(&of, chat)?),
        })
    }

    /// The most that one message may hold.
    pub(super) fn limit(&self) -> Limit {
        let (unit, most) = match self {
            Self::Telegram(_) => (Unit::Utf16, 4096),
            Self::Discord(_) => (Unit::Utf16, 2000),
            // What is longer than 40,000 is cut off by Slack without a word.
            Self::Slack(_) => (Unit::Entities, 39_000),
            Self::Signal(_) | Self::Whatsapp(_) | Self::HomeAssistant(_) => (Unit::Utf16, 60_000),
            // An event may have 65,536 bytes, and JSON escapes take some.
            Self::Matrix(_) => (Unit::Bytes, 30_000),
            Self::Dingtalk(_) => (Unit::Bytes, 18_000),
        };
        Limit { unit, most }
    }

    /// Whether the platform takes files.
    pub(super) fn takes_files(&self) -> bool {
        match self {
            Self::Telegram(_) | Self::Discord(_) | Self::Signal(_) | Self::Matrix(_) => true,
            Self::Slack(_) | Self::Whatsapp(_) | Self::HomeAssistant(_) | Self::Dingtalk(_) => false,
        }
    }

    /// Whether a text may be sent again under the same `mark`.
    pub(super) fn repeat(&self) -> Repeat {
        match self {
            Self::Matrix(_) => Repeat::Safe,
            Self::Discord(bot) => bot.repeat(),
            Self::Telegram(_)
            | Self::Slack(_)
            | Self::Signal(_)
            | Self::Whatsapp(_)
            | Self::HomeAssistant(_)
            | Self::Dingtalk(_) => Repeat::Never,
        }
    }

    /// What must be asked before the first message: who a person's direct chat is.
    pub(super) async fn open(&mut self, http: &Http) -> Result<(), Failure> {
        match self {
            Self::Slack(bot) => bot.open(http).await,
            Self::Matrix(user) => user.open(http).await,
            _ => Ok(()),
        }
    }

    /// Sends a text; `mark` is the same whenever the same text is sent again.
    pub(super) async fn text(&mut self, http: &Http, text: &str, mark: &str) -> Result<Receipt, Failure> {
        match self {
            Self::Telegram(bot) => bot.text(http, text).await,
            Self::Discord(bot) => bot.text(http, text, mark).await,
            Self::Slack(bot) => bot.text(http, text).await,
            Self::Signal(account) => account.text(http, text, mark).await,
            Self::Whatsapp(bridge) => bridge.text(http, text).await,
            Self::Matrix(user) => user.text(http, text, mark).await,
            Self::HomeAssistant(house) => house.text(http, text).await,
            Self::Dingtalk(webhook) => webhook.text(http, text).await,
        }
    }

    /// Sends a file.
    pub(super) async fn file(
        &mut self,
        http: &Http,
        file: &Attachment,
        mark: &str,
    ) -> Result<Receipt, Failure> {
        match self {
            Self::Telegram(bot) => bot.file(http, file).await,
            Self::Discord(bot) => bot.file(http, file, mark).await,
            Self::Signal(account) => account.file(http, file, mark).await,
            Self::Matrix(user) => user.file(http, file, mark).await,
            Self::Slack(_) | Self::Whatsapp(_) | Self::HomeAssistant(_) | Self::Dingtalk(_) => {
                Err(Failure::NotSent { why: "files are not sent to this platform".to_owned() })
            }
        }
    }

    /// The chat, as an answer names it.
    pub(super) fn chat(&self) -> &Chat {
        match self {
            Self::Telegram(bot) => bot.chat(),
            Self::Discord(bot) => bot.chat(),
            Self::Slack(bot) => bot.chat(),
            Self::Signal(account) => account.chat(),
            Self::Whatsapp(bridge) => bridge.chat(),
            Self::Matrix(user) => user.chat(),
            Self::HomeAssistant(house) => house.chat(),
            Self::Dingtalk(webhook) => webhook.chat(),
        }
    }
}

/// The configuration of one platform, with what to say where something is missing.
pub(super) struct Settings<'a> {
    pub(super) platform: Platform,
    pub(super) config: &'a PlatformConfig,
}

impl Settings<'_> {
    pub(super) fn missing(&self, what: &str) -> Problem {
        Problem::NotConfigured { platform: self.platform, hint: Some(what.to_owned()) }
    }

    /// The credential; `from` names where it may stand.
    pub(super) fn token(&self, from: &str) -> Result<Secret, Problem> {
        let token =
            self.config.token.clone().ok_or_else(|| self.missing(&format!("no token: set {from}")))?;
        let fits = token.expose().bytes().all(|byte| byte.is_ascii_graphic());
        if fits { Ok(token) } else { Err(self.missing(&format!("{from} has characters that no token has"))) }
    }

    pub(super) fn extra(&self, key: &str) -> Option<&str> {
        self.config.extra.get(key).map(Secret::expose)
    }

    pub(super) fn is_on(&self, key: &str) -> bool {
        let value = self.extra(key).and_then(|text| crate::config::values::boolean(text).ok());
        value.is_some_and(crate::config::values::Spelled::value)
    }

    /// The address at `extra.<key>`, else `default`; without a `/` at its end.
    pub(super) fn address(&self, key: &'static str, default: Option<&str>) -> Result<Url, Problem> {
        let name = self.platform.name();
        let text = self
            .extra(key)
            .or(default)
            .ok_or_else(|| self.missing(&format!("set platforms.{name}.extra.{key}")))?;
        let bad = |why: String| Problem::Address { name, key, why };
        let mut url = Url::parse(text.trim()).map_err(|error| bad(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(bad("not an http address".to_owned()));
        }
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        Ok(url)
    }

    /// Refuses to send a token readable through a network.
    pub(super) fn encrypted(&self, url: &Url) -> Result<(), Problem> {
        if url.scheme() == "https" || is_this_machine(url) || self.is_on("allow_insecure") {
            return Ok(());
        }
        let host = url.host_str().unwrap_or_default().to_owned();
        Err(Problem::Insecure { name: self.platform.name(), host })
    }
}

/// `base` with further parts of its path, each escaped.
pub(super) fn below(base: &Url, parts: &[&str]) -> Url {
    let mut url = base.clone();
    url.path_segments_mut().expect("an http address has a path").pop_if_empty().extend(parts);
    url
}
