//! Telegram, by the Bot API.
//!
//! Promise: a text is sent as MarkdownV2 (or HTML, where it is written so) and, where Telegram cannot
//! read that, once more as it is; a thread that does not exist is an error and not the chat around it.

use super::http::{self, Answer, Http, WHOLE_FILE, Way, exchange};
use super::markup::{self, Dialect};
use super::media::{Attachment, Kind};
use super::problem::{Failure, Problem};
use super::route::{Receipt, Settings, below};
use super::target::Chat;
use crate::secret::Secret;
use reqwest::Url;
use reqwest::multipart::{Form, Part};
use serde_json::{Map, Value, json};

const NAME: &str = "telegram";
const API: &str = "https://api.telegram.org";
/// Largest photo; what is larger goes as a file.
const LARGEST_PHOTO: usize = 10 * 1024 * 1024;

/// A bot and the chat that it writes to.
#[derive(Debug)]
pub(super) struct Bot {
    base: Url,
    token: Secret,
    chat: Chat,
    previews: Previews,
}

/// `extra.disable_link_previews`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Previews {
    Shown,
    Hidden,
}

impl Bot {
    pub(super) fn new(of: &Settings<'_>, chat: Chat) -> Result<Self, Problem> {
        let token = of.token("TELEGRAM_BOT_TOKEN")?;
        let mut base = of.address("base_url", Some(API))?;
        // Hermes Agent's address ends in `/bot`, to which its library adds the token.
        if let Some(path) = base.path().strip_suffix("/bot").map(ToOwned::to_owned) {
            base.set_path(&path);
        }
        of.encrypted(&base)?;
        let previews = if of.is_on("disable_link_previews") { Previews::Hidden } else { Previews::Shown };
        Ok(Self { base, token, chat, previews })
    }

    pub(super) fn chat(&self) -> &Chat {
        &self.chat
    }

    fn url(&self, method: &str) -> Url {
        below(&self.base, &[&format!("bot{}", self.token.expose()), method])
    }

    /// The thread as the API wants it: the general topic, 1, is named by leaving it out.
    fn thread(&self) -> Option<i64> {
        self.chat.thread.as_deref().filter(|thread| *thread != "1")?.parse().ok()
    }

    pub(super) async fn text(&self, http: &Http, text: &str) -> Result<Receipt, Failure> {
        let (formatted, mode) = if markup::is_telegram_html(text) {
            (text.to_owned(), "HTML")
        } else {
            (markup::convert(text, Dialect::Telegram), "MarkdownV2")
        };
        match self.send_text(http, &formatted, Some(mode)).await {
            Err(Refused::Markup) => match self.send_text(http, text, None).await {
                Err(Refused::Markup) => {
                    Err(Failure::NotSent { why: "telegram cannot read the text".to_owned() })
                }
                Err(Refused::Otherwise(failure)) => Err(failure),
                Ok(receipt) => Ok(receipt),
            },
            Err(Refused::Otherwise(failure)) => Err(failure),
            Ok(receipt) => Ok(receipt),
        }
    }

    async fn send_text(&self, http: &Http, text: &str, mode: Option<&str>) -> Result<Receipt, Refused> {
        let mut body = Map::new();
        body.insert(
            "chat_id".into(),
            self.chat.id.parse::<i64>().map_or_else(|_| json!(self.chat.id), Value::from),
        );
        body.insert("text".into(), json!(text));
        body.extend(mode.map(|mode| ("parse_mode".to_owned(), json!(mode))));
        body.extend(self.thread().map(|thread| ("message_thread_id".to_owned(), json!(thread))));
        if self.previews == Previews::Hidden {
            body.insert("link_preview_options".into(), json!({ "is_disabled": true }));
        }
        let request = http::json(http.post(self.url("sendMessage"), Way::Telegram), &body.into());
        let answer = exchange(request).await.map_err(Refused::Otherwise)?;
        self.receipt(&answer)
    }

    pub(super) async fn file(&self, http: &Http, file: &Attachment) -> Result<Receipt, Failure> {
        let ending = file.name.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
        let (method, field) = match file.kind {
            Kind::Image if file.bytes.len() <= LARGEST_PHOTO => ("sendPhoto", "photo"),
            Kind::Video => ("sendVideo", "video"),
            Kind::Voice => ("sendVoice", "voice"),
            // Telegram plays these two; other audio arrives as a file.
            Kind::Audio if matches!(ending.as_str(), "mp3" | "m4a") => ("sendAudio", "audio"),
            Kind::Image | Kind::Audio | Kind::Document => ("sendDocument", "document"),
        };
        let part = Part::bytes(file.bytes.clone()).file_name(file.name.clone());
        let part = part.mime_str(&file.mime).expect("every type of the table is one");
        let mut form = Form::new().text("chat_id", self.chat.id.clone()).part(field, part);
        if let Some(thread) = self.thread() {
            form = form.text("message_thread_id", thread.to_string());
        }
        let request = http.post(self.url(method), Way::Telegram).timeout(WHOLE_FILE).multipart(form);
        match self.receipt(&exchange(request).await?) {
            Ok(receipt) => Ok(receipt),
            Err(Refused::Otherwise(failure)) => Err(failure),
            Err(Refused::Markup) => Err(Failure::NotSent { why: "telegram cannot read the file".to_owned() }),
        }
    }

    fn receipt(&self, answer: &Answer) -> Result<Receipt, Refused> {
        let body = answer.json();
        if answer.is_success() {
            if body["ok"] != json!(true) {
                return Err(Refused::Otherwise(answer.unclear(NAME)));
            }
            return Ok(Receipt::of(body["result"]["message_id"].as_i64().map(|id| id.to_string())));
        }
        let words = body["description"].as_str();
        let lower = words.unwrap_or_default().to_lowercase();
        let parameters = &body["parameters"];
        if let Some(wait) = parameters["retry_after"].as_f64() {
            let retry_after = http::seconds(wait);
            return Err(Refused::Otherwise(Failure::Limited { platform: NAME, retry_after }));
        }
        if answer.status == 400 && (lower.contains("parse") || lower.contains("entit")) {
            return Err(Refused::Markup);
        }
        if let (400, Some(moved)) = (answer.status, parameters["migrate_to_chat_id"].as_i64()) {
            let why = format!("the group has become telegram:{moved}; send it there");
            return Err(Refused::Otherwise(Failure::NotSent { why }));
        }
        if answer.status == 400 && lower.contains("thread not found") {
            let why = format!(
                "the chat has no thread {}; telegram:{} is the chat itself",
                self.chat.thread.as_deref().unwrap_or_default(),
                self.chat.id
            );
            return Err(Refused::Otherwise(Failure::NotSent { why }));
        }
        Err(Refused::Otherwise(answer.failure(NAME, words)))
    }
}

/// Why a text was not taken.
enum Refused {
    /// Its markup; without it, it may be.
    Markup,
    Otherwise(Failure),
}
