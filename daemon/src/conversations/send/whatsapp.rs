//! WhatsApp, by Hermes Agent's bridge on this machine.

use super::http::{self, Http, Way, exchange};
use super::problem::{Failure, Problem};
use super::route::{Receipt, Settings, below};
use super::target::Chat;
use reqwest::Url;
use serde_json::json;

const NAME: &str = "whatsapp";
const PORT: u16 = 3000;

/// The bridge and the chat that it writes to.
#[derive(Debug)]
pub(super) struct Bridge {
    base: Url,
    chat: Chat,
}

impl Bridge {
    pub(super) fn new(of: &Settings<'_>, chat: Chat) -> Result<Self, Problem> {
        let port = match of.extra("bridge_port") {
            None => PORT,
            Some(text) => text.parse().map_err(|_| Problem::Address {
                name: NAME,
                key: "bridge_port",
                why: "a port is a number from 1 to 65535".to_owned(),
            })?,
        };
        let base = of.address("base_url", Some(&format!("http://localhost:{port}")))?;
        Ok(Self { base, chat })
    }

    pub(super) fn chat(&self) -> &Chat {
        &self.chat
    }

    pub(super) async fn text(&self, http: &Http, text: &str) -> Result<Receipt, Failure> {
        let body = json!({ "chatId": self.chat.id, "message": text });
        let answer = exchange(http::json(http.post(below(&self.base, &["send"]), Way::General), &body)).await;
        let answer = match answer {
            Err(Failure::NotSent { why }) => {
                let why = format!("the WhatsApp bridge is not there ({why}); Hermes Agent's gateway runs it");
                return Err(Failure::NotSent { why });
            }
            other => other?,
        };
        let said = answer.json();
        if answer.is_success() {
            return Ok(Receipt::of(said["messageId"].as_str().map(ToOwned::to_owned)));
        }
        // The bridge says so before it tries, when WhatsApp is not connected.
        if answer.status == 503 {
            let why = said["error"].as_str().unwrap_or("the bridge is not connected to WhatsApp").to_owned();
            return Err(Failure::NotSent { why });
        }
        Err(answer.failure(NAME, said["error"].as_str()))
    }
}
