//! Matrix, by the client-server API, version 3.
//!
//! Promise: each message has a transaction id, so that it may be sent again after a lost answer; a person
//! (`@user:server`) is written to in the one direct room that the account has joined with them, and
//! nowhere where there is none or more than one.

use super::http::{self, Answer, Http, WHOLE_FILE, Way, exchange};
use super::media::{Attachment, Kind};
use super::problem::{Failure, Problem};
use super::route::{Receipt, Settings, below};
use super::target::Chat;
use crate::secret::Secret;
use reqwest::{RequestBuilder, Url};
use serde_json::{Value, json};
use std::time::Duration;

const NAME: &str = "matrix";

/// An account and the room that it writes to.
#[derive(Debug)]
pub(super) struct User {
    base: Url,
    token: Secret,
    chat: Chat,
}

impl User {
    pub(super) fn new(of: &Settings<'_>, chat: Chat) -> Result<Self, Problem> {
        let token = of.token("MATRIX_ACCESS_TOKEN")?;
        let base = of.address("homeserver", None)?;
        of.encrypted(&base)?;
        Ok(Self { base, token, chat })
    }

    pub(super) fn chat(&self) -> &Chat {
        &self.chat
    }

    fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        request.header("authorization", format!("Bearer {}", self.token.expose()))
    }

    fn client(&self, parts: &[&str]) -> Url {
        below(&below(&self.base, &["_matrix", "client", "v3"]), parts)
    }

    async fn ask(&self, http: &Http, parts: &[&str]) -> Result<Value, Failure> {
        let answer = exchange(self.authorized(http.get(self.client(parts), Way::General))).await?;
        if answer.is_success() { Ok(answer.json()) } else { Err(failure(&answer)) }
    }

    /// Finds the direct room with a person.
    pub(super) async fn open(&mut self, http: &Http) -> Result<(), Failure> {
        if !self.chat.id.starts_with('@') {
            return Ok(());
        }
        // Only questions: nothing was sent, whatever becomes of them.
        let rooms = self.direct_rooms(http).await.map_err(|failure| match failure {
            Failure::Unknown { why } => Failure::NotSent { why },
            other => other,
        })?;
        match rooms.as_slice() {
            [room] => {
                self.chat = Chat::new(room, self.chat.thread.as_deref());
                Ok(())
            }
            [] => Err(Failure::NotSent {
                why: format!("there is no direct room with {}; name a room (!room:server)", self.chat.id),
            }),
            many => Err(Failure::NotSent {
                why: format!(
                    "there are several direct rooms with {}: {}; name one",
                    self.chat.id,
                    many.join(", ")
                ),
            }),
        }
    }

    async fn direct_rooms(&self, http: &Http) -> Result<Vec<String>, Failure> {
        let me = self.ask(http, &["account", "whoami"]).await?;
        let me = me["user_id"].as_str().unwrap_or_default().to_owned();
        let direct = match self.ask(http, &["user", &me, "account_data", "m.direct"]).await {
            // Nobody was ever written to directly.
            Err(Failure::NotSent { .. }) => return Ok(Vec::new()),
            other => other?,
        };
        let joined = self.ask(http, &["joined_rooms"]).await?;
        let joined: Vec<&str> =
            joined["joined_rooms"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let rooms = direct[&self.chat.id].as_array().into_iter().flatten().filter_map(Value::as_str);
        Ok(rooms.filter(|room| joined.contains(room)).map(ToOwned::to_owned).collect())
    }

    pub(super) async fn text(&self, http: &Http, text: &str, mark: &str) -> Result<Receipt, Failure> {
        self.event(http, json!({ "msgtype": "m.text", "body": text }), mark).await
    }

    pub(super) async fn file(&self, http: &Http, file: &Attachment, mark: &str) -> Result<Receipt, Failure> {
        let mut url = below(&self.base, &["_matrix", "media", "v3", "upload"]);
        url.query_pairs_mut().append_pair("filename", &file.name);
        let upload = self.authorized(http.post(url, Way::General)).timeout(WHOLE_FILE);
        let answer = exchange(upload.header("content-type", &file.mime).body(file.bytes.clone())).await;
        let answer = match answer {
            // An upload alone is seen by nobody.
            Err(Failure::Unknown { why }) => return Err(Failure::NotSent { why }),
            other => other?,
        };
        let said = answer.json();
        let Some(place) = said["content_uri"].as_str().filter(|_| answer.is_success()) else {
            return Err(match failure(&answer) {
                Failure::Unknown { why } => Failure::NotSent { why },
                other => other,
            });
        };
        let kind = match file.kind {
            Kind::Image => "m.image",
            Kind::Video => "m.video",
            Kind::Voice | Kind::Audio => "m.audio",
            Kind::Document => "m.file",
        };
        let info = json!({ "mimetype": file.mime, "size": file.bytes.len() });
        let content =
            json!({ "msgtype": kind, "body": file.name, "filename": file.name, "url": place, "info": info });
        self.event(http, content, mark).await
    }

    async fn event(&self, http: &Http, mut content: Value, mark: &str) -> Result<Receipt, Failure> {
        if let Some(root) = &self.chat.thread {
            content["m.relates_to"] = json!({
                "rel_type": "m.thread",
                "event_id": root,
                "is_falling_back": true,
                "m.in_reply_to": { "event_id": root },
            });
        }
        let transaction = format!("hermes_{mark}");
        let url = self.client(&["rooms", &self.chat.id, "send", "m.room.message", &transaction]);
        let answer = exchange(http::json(self.authorized(http.put(url, Way::General)), &content)).await?;
        if !answer.is_success() {
            return Err(failure(&answer));
        }
        match answer.json()["event_id"].as_str() {
            Some(id) => Ok(Receipt::of(Some(id.to_owned()))),
            None => Err(answer.unclear(NAME)),
        }
    }
}

fn failure(answer: &Answer) -> Failure {
    let said = answer.json();
    if answer.status == 429 {
        let own = said["retry_after_ms"].as_u64().map(Duration::from_millis);
        return Failure::Limited { platform: NAME, retry_after: own.or(answer.retry_after) };
    }
    answer.failure(NAME, said["error"].as_str())
}
