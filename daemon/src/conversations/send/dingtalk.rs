//! DingTalk, by the webhook of a group's robot.
//!
//! Promise: the webhook's group is written to only when it was meant: by the bare platform, or by the id
//! that the configuration gives its home channel.

use super::http::{self, Http, Way, exchange};
use super::platform::Platform;
use super::problem::{Failure, Problem};
use super::route::{Receipt, Settings};
use super::target::Chat;
use reqwest::Url;
use serde_json::json;

const NAME: &str = "dingtalk";
/// The chat where the configuration has no name for it.
pub(super) const WEBHOOK: &str = "webhook";
/// `errcode`: more than 20 messages in a minute.
const LIMITED: i64 = 130_101;
/// `errcode`: the system is busy; whether it took the message is not said.
const BUSY: i64 = -1;

/// A webhook.
#[derive(Debug)]
pub(super) struct Webhook {
    url: Url,
    chat: Chat,
}

impl Webhook {
    pub(super) fn new(of: &Settings<'_>, chat: Chat) -> Result<Self, Problem> {
        let home = of.config.home.as_ref().map_or(WEBHOOK, |home| home.chat_id.as_str());
        if chat.id != home {
            let why = format!(
                "the webhook of {NAME} leads to one group, and nothing says that it is '{}'; nothing was sent. \
                 Write '{NAME}' for the group of the webhook",
                chat.id
            );
            return Err(Problem::WrongRoad { why });
        }
        if of.extra("webhook_url").is_none() {
            return Err(Problem::NotConfigured {
                platform: Platform::Dingtalk,
                hint: Some("set platforms.dingtalk.extra.webhook_url or DINGTALK_WEBHOOK_URL".to_owned()),
            });
        }
        let url = of.address("webhook_url", None)?;
        of.encrypted(&url)?;
        Ok(Self { url, chat })
    }

    pub(super) fn chat(&self) -> &Chat {
        &self.chat
    }

    pub(super) async fn text(&self, http: &Http, text: &str) -> Result<Receipt, Failure> {
        let body = json!({ "msgtype": "text", "text": { "content": text } });
        let answer = exchange(http::json(http.post(self.url.clone(), Way::General), &body)).await?;
        let said = answer.json();
        if !answer.is_success() {
            return Err(answer.failure(NAME, said["errmsg"].as_str()));
        }
        match said["errcode"].as_i64() {
            Some(0) => Ok(Receipt::default()),
            Some(LIMITED) => Err(Failure::Limited { platform: NAME, retry_after: None }),
            Some(BUSY) => Err(Failure::Unknown { why: "dingtalk answered that it is busy".to_owned() }),
            Some(code) => {
                let words = said["errmsg"].as_str().unwrap_or("no reason");
                Err(Failure::NotSent { why: format!("dingtalk answered with error {code}: {words}") })
            }
            // Hermes Agent takes any 200 for a success; some robots answer without a code.
            None if said.is_object() => Ok(Receipt::default()),
            None => Err(answer.unclear(NAME)),
        }
    }
}
