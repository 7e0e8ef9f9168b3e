//! Signal, by the JSON-RPC of signal-cli.
//!
//! Promise: a group is written to as a group and a person as a person. Files travel in the request, so
//! that signal-cli reads nothing from the disk.

use super::http::{self, Http, WHOLE_FILE, Way, exchange};
use super::media::Attachment;
use super::problem::{Failure, Problem};
use super::route::{Receipt, Settings, below};
use super::target::Chat;
use base64::Engine as _;
use reqwest::Url;
use serde_json::{Map, Value, json};

const NAME: &str = "signal";
const DAEMON: &str = "http://127.0.0.1:8080";
/// Codes of signal-cli after which the message may be on its way: no answer from the server, and what it
/// did not expect itself.
const UNCLEAR: [i64; 2] = [-2, -3];
/// Code of signal-cli: too many messages.
const LIMITED: i64 = -5;

/// An account and whom it writes to.
#[derive(Debug)]
pub(super) struct Account {
    base: Url,
    account: String,
    chat: Chat,
}

impl Account {
    pub(super) fn new(of: &Settings<'_>, chat: Chat) -> Result<Self, Problem> {
        let base = of.address("http_url", Some(DAEMON))?;
        let account =
            of.extra("account").ok_or_else(|| of.missing("set SIGNAL_HTTP_URL and SIGNAL_ACCOUNT"))?;
        Ok(Self { base, account: account.to_owned(), chat })
    }

    pub(super) fn chat(&self) -> &Chat {
        &self.chat
    }

    pub(super) async fn text(&self, http: &Http, text: &str, mark: &str) -> Result<Receipt, Failure> {
        self.send(http, text, None, mark).await
    }

    pub(super) async fn file(&self, http: &Http, file: &Attachment, mark: &str) -> Result<Receipt, Failure> {
        let name: String = file.name.chars().filter(|c| !matches!(c, ';' | ',') && !c.is_control()).collect();
        let content = base64::engine::general_purpose::STANDARD.encode(&file.bytes);
        self.send(http, "", Some(format!("data:{};filename={name};base64,{content}", file.mime)), mark).await
    }

    async fn send(
        &self,
        http: &Http,
        text: &str,
        file: Option<String>,
        mark: &str,
    ) -> Result<Receipt, Failure> {
        let mut params = Map::new();
        params.insert("account".into(), json!(self.account));
        params.insert("message".into(), json!(text));
        match self.chat.id.strip_prefix("group:") {
            Some(group) => params.insert("groupId".into(), json!(group)),
            None => params.insert("recipient".into(), json!([self.chat.id])),
        };
        let has_file = file.is_some();
        params.extend(file.map(|file| ("attachments".to_owned(), json!([file]))));
        let body =
            json!({ "jsonrpc": "2.0", "method": "send", "params": params, "id": format!("send_{mark}") });
        let mut request =
            http::json(http.post(below(&self.base, &["api", "v1", "rpc"]), Way::General), &body);
        if has_file {
            request = request.timeout(WHOLE_FILE);
        }
        let answer = exchange(request).await?;
        let said = answer.json();
        if let Some(error) = said.get("error").filter(|error| !error.is_null()) {
            return Err(refusal(error));
        }
        if !answer.is_success() {
            return Err(answer.failure(NAME, None));
        }
        match said.get("result") {
            Some(result) => outcome(result),
            None => Err(answer.unclear(NAME)),
        }
    }
}

fn refusal(error: &Value) -> Failure {
    let words = error["message"].as_str().unwrap_or("no reason");
    let why = format!("signal-cli answered: {words}");
    match error["code"].as_i64() {
        Some(LIMITED) => Failure::Limited { platform: NAME, retry_after: None },
        Some(code) if UNCLEAR.contains(&code) => Failure::Unknown { why },
        _ => Failure::NotSent { why },
    }
}

/// What became of the message for each recipient, where signal-cli says so.
fn outcome(result: &Value) -> Result<Receipt, Failure> {
    let results = result["results"].as_array().map(Vec::as_slice).unwrap_or_default();
    let failed: Vec<&str> =
        results.iter().filter_map(|one| one["type"].as_str()).filter(|kind| *kind != "SUCCESS").collect();
    if failed.is_empty() {
        return Ok(Receipt::default());
    }
    let mut kinds = failed.clone();
    kinds.sort_unstable();
    kinds.dedup();
    let kinds = kinds.join(", ");
    if failed.len() == results.len() {
        return Err(Failure::NotSent { why: format!("signal-cli reached nobody ({kinds})") });
    }
    let warning = format!("{} of {} members were not reached ({kinds})", failed.len(), results.len());
    Ok(Receipt { id: None, warning: Some(warning) })
}
