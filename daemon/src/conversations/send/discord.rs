//! Discord, by its REST API, version 10.
//!
//! Promise: a message goes to the thread where one is named, else to the channel; in a forum it opens a
//! post, and later parts go there. Only people can be mentioned, never everybody.

use super::http::{self, Answer, Http, WHOLE_FILE, Way, exchange};
use super::media::Attachment;
use super::problem::{Failure, Problem};
use super::route::{Receipt, Repeat, Settings, below};
use super::target::Chat;
use crate::secret::Secret;
use reqwest::multipart::{Form, Part};
use reqwest::{RequestBuilder, Url};
use serde_json::{Value, json};

const NAME: &str = "discord";
const API: &str = "https://discord.com/api/v10";
/// What Discord says about a text in a channel that has none, e.g. a forum.
const NO_TEXT_CHANNEL: i64 = 50_008;
/// Longest name of a post.
const LONGEST_TITLE: usize = 100;
/// Longest mark that Discord remembers.
const LONGEST_NONCE: usize = 25;

/// A bot and the channel that it writes to.
#[derive(Debug)]
pub(super) struct Bot {
    base: Url,
    token: Secret,
    chat: Chat,
    place: Place,
}

/// What the channel is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// Takes messages.
    Text,
    /// Takes posts.
    Forum,
    /// The post that was opened for the first part.
    Post(String),
}

impl Bot {
    pub(super) fn new(of: &Settings<'_>, chat: Chat, kind: Option<&str>) -> Result<Self, Problem> {
        let token = of.token("DISCORD_BOT_TOKEN")?;
        let base = of.address("base_url", Some(API))?;
        of.encrypted(&base)?;
        let is_forum = kind == Some("forum") && chat.thread.is_none();
        let place = if is_forum { Place::Forum } else { Place::Text };
        Ok(Self { base, token, chat, place })
    }

    pub(super) fn chat(&self) -> &Chat {
        &self.chat
    }

    /// A nonce is remembered for messages, not for posts.
    pub(super) fn repeat(&self) -> Repeat {
        match self.place {
            Place::Text | Place::Post(_) => Repeat::Safe,
            Place::Forum => Repeat::Never,
        }
    }

    fn channel(&self) -> &str {
        match &self.place {
            Place::Post(post) => post,
            Place::Text | Place::Forum => self.chat.thread.as_deref().unwrap_or(&self.chat.id),
        }
    }

    fn request(&self, http: &Http, what: &str) -> RequestBuilder {
        let url = below(&self.base, &["channels", self.channel(), what]);
        http.post(url, Way::General).header("authorization", format!("Bot {}", self.token.expose()))
    }

    pub(super) async fn text(&mut self, http: &Http, text: &str, mark: &str) -> Result<Receipt, Failure> {
        if self.place == Place::Forum {
            return self.post(http, text).await;
        }
        let body = json!({
            "content": text,
            "allowed_mentions": { "parse": ["users"] },
            "nonce": nonce(mark),
            "enforce_nonce": true,
        });
        let answer = exchange(http::json(self.request(http, "messages"), &body)).await?;
        let said = answer.json();
        let is_forum = answer.status == 400 && said["code"].as_i64() == Some(NO_TEXT_CHANNEL);
        if is_forum && self.place == Place::Text && self.chat.thread.is_none() {
            return self.post(http, text).await;
        }
        receipt(&answer, &said)
    }

    /// Opens a post in the forum.
    async fn post(&mut self, http: &Http, text: &str) -> Result<Receipt, Failure> {
        let line = text.lines().map(|line| line.trim_start_matches('#').trim()).find(|line| !line.is_empty());
        let title: String = line.unwrap_or("Hermes").chars().take(LONGEST_TITLE).collect();
        let message = json!({ "content": text, "allowed_mentions": { "parse": ["users"] } });
        let body = json!({ "name": title, "message": message });
        let answer = exchange(http::json(self.request(http, "threads"), &body)).await?;
        let said = answer.json();
        if !answer.is_success() {
            return receipt(&answer, &said);
        }
        let Some(post) = said["id"].as_str() else { return Err(answer.unclear(NAME)) };
        self.place = Place::Post(post.to_owned());
        Ok(Receipt::of(said["message"]["id"].as_str().or(Some(post)).map(ToOwned::to_owned)))
    }

    pub(super) async fn file(
        &mut self,
        http: &Http,
        file: &Attachment,
        mark: &str,
    ) -> Result<Receipt, Failure> {
        if self.place == Place::Forum {
            self.post(http, &file.name).await?;
        }
        let part = Part::bytes(file.bytes.clone()).file_name(file.name.clone());
        let part = part.mime_str(&file.mime).expect("every type of the table is one");
        let payload = json!({ "nonce": nonce(mark), "enforce_nonce": true });
        let form = Form::new().text("payload_json", payload.to_string()).part("files[0]", part);
        let answer = exchange(self.request(http, "messages").timeout(WHOLE_FILE).multipart(form)).await?;
        let said = answer.json();
        receipt(&answer, &said)
    }
}

fn nonce(mark: &str) -> &str {
    &mark[mark.len().saturating_sub(LONGEST_NONCE)..]
}

fn receipt(answer: &Answer, said: &Value) -> Result<Receipt, Failure> {
    if answer.is_success() {
        return match said["id"].as_str() {
            Some(id) => Ok(Receipt::of(Some(id.to_owned()))),
            None => Err(answer.unclear(NAME)),
        };
    }
    if answer.status == 429
        && let Some(wait) = said["retry_after"].as_f64()
    {
        return Err(Failure::Limited { platform: NAME, retry_after: http::seconds(wait) });
    }
    Err(answer.failure(NAME, said["message"].as_str()))
}
