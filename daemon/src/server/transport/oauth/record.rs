//! The files of one login, as Hermes Agent writes and reads them, and ours beside them.
//!
//! Pure. `<name>.json` holds the tokens, `.client.json` the registration, `.meta.json` what the
//! authorization server said about itself; `.hermesd.json` says to which server and issuer the login
//! belongs, which the other three do not. Promise: what one program writes the other can use.

use super::answer;
use crate::secret::Secret;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// Seconds since 1970.
pub type UnixSecs = u64;

/// Earliest renewal before the end of a token, in seconds; half its life where that is shorter.
const MARGIN: u64 = 30;

/// The tokens of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    /// Sent with each request.
    pub access: Secret,
    /// Buys the next ones.
    pub refresh: Option<Secret>,
    /// When the access token ends; `None`: nobody said.
    pub expires_at: Option<UnixSecs>,
    /// How long it lives in all; for the margin of the renewal.
    pub lifetime: Option<u64>,
    /// What it allows, as the server put it.
    pub scope: Option<String>,
}

/// Whether a token can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// Good.
    Fresh,
    /// Good for a few seconds more; to be renewed first.
    Ending,
    /// Over.
    Ended,
}

impl Tokens {
    /// From a canonical answer that arrived `now`; the refresh token of before stays where the answer
    /// has none.
    pub fn of_answer(answer: &Map<String, Value>, before: Option<&Secret>, now: UnixSecs) -> Option<Self> {
        let text = |name: &str| answer.get(name).and_then(Value::as_str);
        let lifetime = answer.get("expires_in").and_then(answer::lifetime);
        Some(Self {
            access: Secret::new(text("access_token")?),
            refresh: text("refresh_token").map(Secret::new).or_else(|| before.cloned()),
            expires_at: lifetime.map(|seconds| now.saturating_add(seconds)),
            lifetime,
            scope: text("scope").map(str::to_owned),
        })
    }

    /// From the token file, last written at `written`. `None`: it holds no login.
    pub fn of_file(file: &Map<String, Value>, written: UnixSecs) -> Option<Self> {
        let answer = answer::canonical(Value::Object(file.clone()).to_string().as_bytes()).ok()?;
        let mut tokens = Self::of_answer(&answer, None, written)?;
        // Older files have no absolute time; then the file's own age counts, as in Hermes Agent.
        if let Some(at) = file.get("expires_at").and_then(answer::moment) {
            tokens.expires_at = Some(at);
        }
        Some(tokens)
    }

    /// The content of the token file.
    pub fn to_file(&self) -> Map<String, Value> {
        let mut file = Map::new();
        file.insert("access_token".into(), self.access.expose().into());
        file.insert("token_type".into(), "Bearer".into());
        if let (Some(lifetime), Some(at)) = (self.lifetime, self.expires_at) {
            file.insert("expires_in".into(), lifetime.into());
            file.insert("expires_at".into(), at.into());
        }
        if let Some(scope) = &self.scope {
            file.insert("scope".into(), scope.as_str().into());
        }
        if let Some(refresh) = &self.refresh {
            file.insert("refresh_token".into(), refresh.expose().into());
        }
        file
    }

    /// Whether the access token can be sent.
    pub fn age(&self, now: UnixSecs) -> Age {
        let Some(end) = self.expires_at else { return Age::Fresh };
        let margin = MARGIN.min(self.lifetime.unwrap_or(u64::MAX) / 2);
        if now >= end {
            Age::Ended
        } else if end - now <= margin {
            Age::Ending
        } else {
            Age::Fresh
        }
    }

    /// The value of `Authorization`.
    pub fn header(&self) -> Secret {
        Secret::new(format!("Bearer {}", self.access.expose()))
    }

    /// Everything in here that must never be shown.
    pub fn secrets(&self) -> impl Iterator<Item = &Secret> {
        std::iter::once(&self.access).chain(&self.refresh)
    }
}

/// Names a token without telling it.
pub fn digest(token: &Secret) -> String {
    let hash = Sha256::digest(token.expose().as_bytes());
    hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Who hermesd is to an authorization server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// `client_id`.
    pub id: String,
    /// `client_secret`, for confidential clients.
    pub secret: Option<Secret>,
    /// How it proves itself, where the registration says so.
    pub auth_method: Option<String>,
    /// Where the browser may be sent back to.
    pub redirect_uris: Vec<String>,
    /// When the secret ends; `None`: never, or nobody said.
    pub secret_until: Option<UnixSecs>,
}

impl Client {
    /// From a registration's answer or the client file.
    pub fn of_registration(object: &Map<String, Value>) -> Option<Self> {
        let text = |name: &str| object.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let uris = object.get("redirect_uris").and_then(Value::as_array);
        Some(Self {
            id: text("client_id")?.to_owned(),
            secret: text("client_secret").map(Secret::new),
            auth_method: text("token_endpoint_auth_method").map(str::to_owned),
            redirect_uris: uris.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect(),
            secret_until: object.get("client_secret_expires_at").and_then(answer::moment),
        })
    }

    /// Whether it can be used for a login that comes back to `redirect_uri`.
    pub fn serves(&self, redirect_uri: &str, now: UnixSecs) -> bool {
        self.redirect_uris.iter().any(|uri| uri == redirect_uri)
            && self.secret_until.is_none_or(|until| now < until)
    }
}

/// The content of the client file from a registration's raw answer: what the server said, without
/// nulls, and what Hermes Agent cannot do without.
pub fn client_file(registration: &Map<String, Value>, redirect_uri: &str) -> Map<String, Value> {
    let mut file = without_nulls(registration);
    let mut default = |name: &str, value: Value| {
        file.entry(name).or_insert(value);
    };
    default("redirect_uris", Value::from(vec![redirect_uri]));
    default("grant_types", Value::from(vec!["authorization_code", "refresh_token"]));
    default("response_types", Value::from(vec!["code"]));
    default("token_endpoint_auth_method", "none".into());
    file
}

/// `object` without the members that are null: Hermes Agent refuses some of them.
pub fn without_nulls(object: &Map<String, Value>) -> Map<String, Value> {
    object.iter().filter(|(_, value)| !value.is_null()).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// To whom a login belongs.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Binding {
    /// Key of the server in the configuration.
    pub server: String,
    /// Scheme, host and port that the tokens may be sent to.
    pub origin: String,
    /// Who issued them; `None`: the server published nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// For which client.
    pub client_id: String,
    /// What was granted, which is not always what an answer says.
    #[serde(default)]
    pub scopes: Vec<String>,
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
