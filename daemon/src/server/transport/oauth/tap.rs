//! Looks at every answer that a login gets before the library does.
//!
//! Owner: one [`Tap`] for each login and each renewal. Promise: token answers arrive in canonical form
//! and are kept before they are parsed; what was asked where, and with which outcome, can be told; a
//! server that answers a plain GET of its MCP endpoint with an error does not end the discovery.

use super::answer::{self, BadAnswer};
use super::net::{Network, Redirects};
use futures_util::future::BoxFuture;
use hyper::StatusCode;
use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRedirectPolicy, OAuthHttpRequest,
};
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use url::Url;

/// Most requests that are remembered.
const REMEMBERED: usize = 40;

/// Keeps a token answer, given in canonical form; the exchange goes on when it is done.
pub type Keep = Arc<dyn Fn(Map<String, Value>) -> BoxFuture<'static, ()> + Send + Sync>;

/// For exchanges whose answer can be had again.
pub fn keep_nothing() -> Keep {
    Arc::new(|_| Box::pin(std::future::ready(())))
}

/// See the module documentation.
pub struct Tap {
    inner: Arc<dyn Network>,
    server: Url,
    keep: Keep,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    requests: Vec<String>,
    registration: Option<Map<String, Value>>,
    tokens: Option<Map<String, Value>>,
    token_error: Option<String>,
    resource: Option<String>,
}

/// What a request is for, as far as its shape says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// A GET of the MCP endpoint itself, to see whether it names its metadata.
    Probe,
    /// Any other GET.
    Metadata,
    /// JSON to the registration endpoint.
    Registration,
    /// A form to the token endpoint.
    Token,
}

impl Tap {
    /// Around `inner`, for the server at `server`.
    pub fn new(inner: Arc<dyn Network>, server: Url, keep: Keep) -> Self {
        Self { inner, server, keep, seen: Mutex::default() }
    }

    /// What was asked, oldest first: method, URL without query, outcome.
    pub fn tried(&self) -> Vec<String> {
        self.seen().requests.clone()
    }

    /// The last answer of a registration endpoint.
    pub fn registration(&self) -> Option<Map<String, Value>> {
        self.seen().registration.clone()
    }

    /// The last token answer, in canonical form.
    pub fn tokens(&self) -> Option<Map<String, Value>> {
        self.seen().tokens.clone()
    }

    /// What the server's own document calls it; for the `resource` of token requests.
    pub fn resource(&self) -> Option<String> {
        self.seen().resource.clone()
    }

    /// The error code of the last token answer that was a refusal.
    pub fn token_error(&self) -> Option<String> {
        self.seen().token_error.clone()
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn purpose(&self, request: &hyper::Request<Vec<u8>>) -> Purpose {
        let kind = request.headers().get("content-type").and_then(|value| value.to_str().ok());
        if request.method() == "GET" {
            let own = Url::parse(&request.uri().to_string()).is_ok_and(|url| url == self.server);
            if own { Purpose::Probe } else { Purpose::Metadata }
        } else if kind.is_some_and(|kind| kind.contains("json")) {
            Purpose::Registration
        } else {
            Purpose::Token
        }
    }

    fn is_own(&self, resource: &str) -> bool {
        Url::parse(resource).is_ok_and(|url| {
            url.origin() == self.server.origin() && self.server.path().starts_with(url.path())
        })
    }

    fn remember(&self, method: &str, uri: &str, outcome: &str) {
        let place = uri.split(['?', '#']).next().unwrap_or_default();
        let mut seen = self.seen();
        if seen.requests.len() < REMEMBERED {
            seen.requests.push(format!("{method} {place}: {outcome}"));
        }
    }

    async fn run(&self, request: OAuthHttpRequest) -> Result<hyper::Response<Vec<u8>>, OAuthHttpClientError> {
        let redirects = match request.redirect_policy {
            OAuthHttpRedirectPolicy::Follow => Redirects::Follow,
            _ => Redirects::Stop,
        };
        let request = request.request;
        let purpose = self.purpose(&request);
        let (method, uri) = (request.method().to_string(), request.uri().to_string());
        let answered = self.inner.send(request, redirects).await;
        match &answered {
            Ok(response) => self.remember(&method, &uri, response.status().as_str()),
            Err(error) => self.remember(&method, &uri, &error.to_string()),
        }
        let response = match (answered, purpose) {
            (Ok(response), _) => response,
            // Whether the endpoint can be asked with GET says nothing about its login.
            (Err(_), Purpose::Probe) => return Ok(plain(StatusCode::METHOD_NOT_ALLOWED)),
            (Err(error), _) => return Err(Box::new(error)),
        };
        Ok(match purpose {
            Purpose::Probe
                if response.status() != StatusCode::UNAUTHORIZED && !response.status().is_redirection() =>
            {
                plain(StatusCode::METHOD_NOT_ALLOWED)
            }
            Purpose::Registration if response.status().is_success() => {
                self.seen().registration = serde_json::from_slice(response.body()).ok();
                response
            }
            Purpose::Token if response.status().is_success() => self.token_answer(&response).await,
            Purpose::Token => {
                let refusal: Option<Value> = serde_json::from_slice(response.body()).ok();
                let code = refusal.as_ref().and_then(|refusal| refusal.get("error")).and_then(Value::as_str);
                self.seen().token_error = code.map(str::to_owned);
                response
            }
            Purpose::Metadata if response.status() == StatusCode::OK => {
                let document: Option<Value> = serde_json::from_slice(response.body()).ok();
                let named = document.as_ref().and_then(|document| document.get("resource")?.as_str());
                if let Some(named) = named.filter(|named| self.is_own(named)) {
                    self.seen().resource = Some(named.to_owned());
                }
                response
            }
            Purpose::Probe | Purpose::Metadata | Purpose::Registration => response,
        })
    }

    async fn token_answer(&self, response: &hyper::Response<Vec<u8>>) -> hyper::Response<Vec<u8>> {
        match answer::canonical(response.body()) {
            Ok(tokens) => {
                (self.keep)(tokens.clone()).await;
                let body = Value::Object(tokens.clone()).to_string();
                self.seen().tokens = Some(tokens);
                json_answer(StatusCode::OK, body)
            }
            Err(error) => {
                let code = match &error {
                    BadAnswer::Error { code } => code.as_str(),
                    BadAnswer::Unreadable | BadAnswer::NoToken => "server_error",
                };
                self.seen().token_error = Some(code.to_owned());
                let body = json!({"error": code, "error_description": error.to_string()});
                json_answer(StatusCode::BAD_REQUEST, body.to_string())
            }
        }
    }
}

impl OAuthHttpClient for Tap {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(self.run(request))
    }
}

fn plain(status: StatusCode) -> hyper::Response<Vec<u8>> {
    let mut response = hyper::Response::new(Vec::new());
    *response.status_mut() = status;
    response
}

fn json_answer(status: StatusCode, body: String) -> hyper::Response<Vec<u8>> {
    let mut response = hyper::Response::new(body.into_bytes());
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
    response
}
