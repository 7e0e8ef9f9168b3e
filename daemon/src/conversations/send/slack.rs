//! Slack, by its Web API.
//!
//! Promise: the thread that is named is the one that is written to; a person (`U…`) is written to in the
//! direct messages that Slack opens for exactly that person.

use super::http::{self, Answer, Http, Way, exchange};
use super::markup::{self, Dialect};
use super::problem::{Failure, Problem};
use super::route::{Receipt, Settings, below};
use super::target::Chat;
use crate::secret::Secret;
use reqwest::Url;
use serde_json::{Value, json};

const NAME: &str = "slack";
const API: &str = "https://slack.com/api";

/// Errors after which the message may still have been posted.
const UNCLEAR: &[&str] = &["fatal_error", "internal_error", "request_timeout", "service_unavailable"];

/// A bot and the conversation that it writes to.
#[derive(Debug)]
pub(super) struct Bot {
    base: Url,
    token: Secret,
    chat: Chat,
}

impl Bot {
    pub(super) fn new(of: &Settings<'_>, chat: Chat) -> Result<Self, Problem> {
        let token = of.token("SLACK_BOT_TOKEN")?;
        let base = of.address("base_url", Some(API))?;
        of.encrypted(&base)?;
        Ok(Self { base, token, chat })
    }

    pub(super) fn chat(&self) -> &Chat {
        &self.chat
    }

    async fn call(&self, http: &Http, method: &str, body: &Value) -> Result<Value, Failure> {
        let request = http.post(below(&self.base, &[method]), Way::General);
        let request = request.header("authorization", format!("Bearer {}", self.token.expose()));
        let answer = exchange(http::json(request, body)).await?;
        checked(&answer)
    }

    /// Finds the direct messages of a person.
    pub(super) async fn open(&mut self, http: &Http) -> Result<(), Failure> {
        if !self.chat.id.starts_with('U') {
            return Ok(());
        }
        let said = match self.call(http, "conversations.open", &json!({ "users": self.chat.id })).await {
            // Nothing was posted, whatever became of the question.
            Err(Failure::Unknown { why }) => return Err(Failure::NotSent { why }),
            other => other?,
        };
        let Some(id) = said["channel"]["id"].as_str() else {
            return Err(Failure::NotSent {
                why: format!("slack opened no direct messages with {}", self.chat.id),
            });
        };
        self.chat = Chat::new(id, None);
        Ok(())
    }

    pub(super) async fn text(&self, http: &Http, text: &str) -> Result<Receipt, Failure> {
        let text = markup::convert(text, Dialect::Slack);
        let mut body = json!({ "channel": self.chat.id, "text": text, "mrkdwn": true });
        if let Some(thread) = &self.chat.thread {
            body["thread_ts"] = json!(thread);
        }
        let said = self.call(http, "chat.postMessage", &body).await?;
        Ok(Receipt::of(said["ts"].as_str().map(ToOwned::to_owned)))
    }
}

/// The body of an answer that says `ok`.
fn checked(answer: &Answer) -> Result<Value, Failure> {
    let said = answer.json();
    let error = said["error"].as_str();
    if !answer.is_success() {
        return Err(answer.failure(NAME, error));
    }
    match (said["ok"].as_bool(), error) {
        (Some(true), _) => Ok(said),
        (Some(false), Some("ratelimited" | "rate_limited")) => {
            Err(Failure::Limited { platform: NAME, retry_after: answer.retry_after })
        }
        (Some(false), Some(error)) if UNCLEAR.contains(&error) => {
            Err(Failure::Unknown { why: format!("slack answered {error}") })
        }
        (Some(false), error) => {
            Err(Failure::NotSent { why: format!("slack answered {}", error.unwrap_or("without a reason")) })
        }
        (None, _) => Err(answer.unclear(NAME)),
    }
}
