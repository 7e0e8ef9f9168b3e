//! The provider: an OpenAI-compatible endpoint for chat completions, over HTTP.
//!
//! Owner: [`Provider`], one for the daemon; its HTTP client is made for the first question and anew when
//! address or proxy change. Promise: one question is one request that is never repeated, but for the one
//! refusal that says under which name the limit of tokens is wanted; dropped, the request is cut off; the
//! key goes to the configured address alone (no redirects); what the provider says about a failure stays
//! in our own log. May not touch: limits, who asks.

use super::answer::{self, Answer};
use super::budget::Grant;
use super::error::ProviderError;
use super::request::{Chat, Limit};
use crate::config::messaging::Proxies;
use crate::config::{SamplingProviderConfig, TlsConfig};
use crate::server::transport::http::{client, proxy};
use reqwest::{Response, StatusCode};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use url::Url;

/// Largest answer in bytes.
const LARGEST: usize = 8 * 1024 * 1024;
/// Longest excerpt of an error in the log, in bytes.
const EXCERPT: usize = 500;
/// Models that are remembered for wanting the newer name of the limit.
const NEWER: usize = 64;

/// The way to the provider.
#[derive(Debug, Default)]
pub(super) struct Provider {
    /// The client and what it was made for.
    made: Mutex<Option<Made>>,
    /// Models that refused `max_tokens`.
    newer: Mutex<BTreeSet<String>>,
}

#[derive(Debug, Clone)]
struct Made {
    address: Url,
    proxy: Option<String>,
    client: reqwest::Client,
}

impl Provider {
    /// Asks for one completion. Without a limit of time: that is the caller's.
    ///
    /// # Errors
    /// [`ProviderError`].
    /// # Cancel safety
    /// Dropped, the connection is closed; the provider may have done the work.
    pub(super) async fn complete(
        &self,
        config: &SamplingProviderConfig,
        proxies: &Proxies,
        chat: &Chat,
        grant: &Grant,
        mask: &(dyn Fn(&str) -> String + Sync),
    ) -> Result<Answer, ProviderError> {
        let model = grant.model.as_deref();
        let Made { address, client, .. } = self.client(config, proxies).await?;
        let post = |limit: Limit| {
            let request = client.post(address.clone()).header("content-type", "application/json");
            let request = match &config.api_key {
                Some(key) => request.bearer_auth(key.expose()),
                None => request,
            };
            request.body(chat.body(model, grant.max_tokens, limit)).send()
        };
        let first = if self.wants_newer(model) { Limit::New } else { Limit::Old };
        let (status, body) = exchange(post(first).await).await?;
        if status == StatusCode::BAD_REQUEST && first == Limit::Old && names_newer(&body) {
            // Nothing was generated for a request that was refused.
            self.remember(model);
            let (again, text) = exchange(post(Limit::New).await).await?;
            return judge(again, text, model, chat, mask);
        }
        judge(status, body, model, chat, mask)
    }

    async fn client(
        &self,
        config: &SamplingProviderConfig,
        proxies: &Proxies,
    ) -> Result<Made, ProviderError> {
        let address = completions(&config.base_url).ok_or(ProviderError::Setup)?;
        let variable = |name: &str| {
            let secret = match name {
                "https_proxy" => &proxies.https,
                "http_proxy" => &proxies.http,
                "all_proxy" => &proxies.all,
                "no_proxy" => return proxies.none_for.clone(),
                _ => return None,
            };
            secret.as_ref().map(|url| url.expose().to_owned())
        };
        let proxy = proxy::choose(&address, &variable);
        let known = self.made.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(made) = known.filter(|made| made.address == address && made.proxy == proxy) {
            return Ok(made);
        }
        let (target, via) = (address.clone(), proxy.clone());
        // It reads the machine's certificates.
        let build = move || {
            let builder = client::builder(&TlsConfig::default(), &target, via.as_deref())?;
            builder.build().map_err(|error| client::ClientError::Tls { reason: client::root_of(&error) })
        };
        let built = tokio::task::spawn_blocking(build).await.expect("making a client does not panic");
        let client = built.map_err(|error| {
            tracing::warn!(%error, "no HTTP client for the sampling provider");
            ProviderError::Setup
        })?;
        let made = Made { address, proxy, client };
        *self.made.lock().unwrap_or_else(PoisonError::into_inner) = Some(made.clone());
        Ok(made)
    }

    fn wants_newer(&self, model: Option<&str>) -> bool {
        let newer = self.newer.lock().unwrap_or_else(PoisonError::into_inner);
        newer.contains(model.unwrap_or_default())
    }

    fn remember(&self, model: Option<&str>) {
        let mut newer = self.newer.lock().unwrap_or_else(PoisonError::into_inner);
        if newer.len() < NEWER {
            newer.insert(model.unwrap_or_default().to_owned());
        }
    }
}

/// Where completions are asked for.
fn completions(base_url: &str) -> Option<Url> {
    let mut url = Url::parse(base_url).ok()?;
    let path = url.path().trim_end_matches('/');
    // Some people paste the whole address.
    let path = if path.ends_with("/chat/completions") {
        path.to_owned()
    } else {
        format!("{path}/chat/completions")
    };
    url.set_path(&path);
    Some(url)
}

async fn exchange(sent: reqwest::Result<Response>) -> Result<(StatusCode, Vec<u8>), ProviderError> {
    let lost = |error: reqwest::Error| {
        // The address may carry a key.
        let reason = client::root_of(&error.without_url());
        tracing::warn!(reason, "the sampling provider cannot be reached");
        ProviderError::Unreachable
    };
    let mut response = sent.map_err(lost)?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(lost)? {
        body.extend_from_slice(&chunk);
        if body.len() > LARGEST {
            return Err(ProviderError::TooLarge { limit: LARGEST });
        }
    }
    Ok((status, body))
}

/// Whether a refusal asks for the newer name of the limit.
fn names_newer(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body);
    text.contains(Limit::Old.key()) && text.contains(Limit::New.key())
}

fn judge(
    status: StatusCode,
    body: Vec<u8>,
    model: Option<&str>,
    chat: &Chat,
    mask: &(dyn Fn(&str) -> String + Sync),
) -> Result<Answer, ProviderError> {
    let failed = match status.as_u16() {
        200..=299 => match answer::read(&body, model, chat.names()) {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        },
        status @ (401 | 403) => ProviderError::Key { status },
        429 => ProviderError::Limited,
        status => ProviderError::Status { status },
    };
    // A person needs its words; the server that asked has no business with them.
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * EXCERPT)]);
    let masked = mask(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    let said = &masked[..masked.floor_char_boundary(EXCERPT)];
    tracing::warn!(status = status.as_u16(), said, "no completion from the sampling provider");
    Err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_completed_whether_or_not_they_are_whole() {
        for (given, whole) in [
            ("https://h/v1", "https://h/v1/chat/completions"),
            ("https://h/v1/", "https://h/v1/chat/completions"),
            ("http://127.0.0.1:1", "http://127.0.0.1:1/chat/completions"),
            ("https://h/v1/chat/completions", "https://h/v1/chat/completions"),
            ("https://h/x?api-version=1", "https://h/x/chat/completions?api-version=1"),
        ] {
            assert_eq!(completions(given).map(String::from).as_deref(), Some(whole), "{given}");
        }
        assert_eq!(completions("no address"), None);
    }
}
