//! Home Assistant, by its notify service.

use super::http::{self, Http, Way, exchange};
use super::problem::{Failure, Problem};
use super::route::{Receipt, Settings, below};
use super::target::Chat;
use crate::secret::Secret;
use reqwest::Url;
use serde_json::json;

const NAME: &str = "homeassistant";

/// A house and whom it notifies.
#[derive(Debug)]
pub(super) struct House {
    base: Url,
    token: Secret,
    chat: Chat,
}

impl House {
    pub(super) fn new(of: &Settings<'_>, chat: Chat) -> Result<Self, Problem> {
        let token = of.token("HASS_TOKEN")?;
        // Houses speak http on their own network; that is how Hermes Agent reaches them too.
        let base = of.address("url", None)?;
        Ok(Self { base, token, chat })
    }

    pub(super) fn chat(&self) -> &Chat {
        &self.chat
    }

    pub(super) async fn text(&self, http: &Http, text: &str) -> Result<Receipt, Failure> {
        let url = below(&self.base, &["api", "services", "notify", "notify"]);
        let request =
            http.post(url, Way::General).header("authorization", format!("Bearer {}", self.token.expose()));
        let body = json!({ "message": text, "target": self.chat.id });
        let answer = exchange(http::json(request, &body)).await?;
        if answer.is_success() { Ok(Receipt::default()) } else { Err(answer.failure(NAME, None)) }
    }
}
