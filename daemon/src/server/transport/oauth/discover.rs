//! One [`AuthorizationManager`] for one exchange, set up the way hermesd wants it.
//!
//! Owner: nobody; each login and each renewal makes its own. Promise: nothing is asked of a server
//! whose documents name endpoints that may not be used; an error says which places were tried.

use super::account::Place;
use super::challenge::Demand;
use super::endpoints::{self, BadEndpoint};
use super::record::{Client, without_nulls};
use super::tap::{Keep, Tap};
use rmcp::transport::auth::{AuthError, AuthorizationManager, AuthorizationMetadata, OAuthClientConfig};
use serde_json::{Map, Value};
use std::sync::Arc;

/// What is missing to talk to the authorization server.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// No usable document. `tried` names each place with its outcome.
    #[error("{what}; asked: {}", tried.join(", "))]
    Nothing {
        /// In the library's words.
        what: String,
        /// Each request.
        tried: Vec<String>,
    },
    /// A document names something that may not be used.
    #[error(transparent)]
    Endpoint(#[from] BadEndpoint),
}

/// A manager that knows the authorization server.
pub struct Discovered {
    /// Ready to be given a client.
    pub manager: AuthorizationManager,
    /// What it knows.
    pub metadata: AuthorizationMetadata,
    /// Sees all its requests.
    pub tap: Arc<Tap>,
}

impl std::fmt::Debug for Discovered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Discovered").field("issuer", &self.metadata.issuer).finish_non_exhaustive()
    }
}

/// Finds the authorization server of `place`. `stored` is what it published the last time, used where
/// nothing can be found now; `keep` gets each token answer first.
///
/// # Errors
/// [`DiscoverError`].
/// # Cancel safety
/// Cancel safe: only documents are read.
pub async fn discover(
    place: &Place,
    demand: &Demand,
    stored: Option<&Map<String, Value>>,
    keep: Keep,
) -> Result<Discovered, DiscoverError> {
    let tap = Arc::new(Tap::new(place.net.clone(), place.url.clone(), keep));
    let nothing = |error: &AuthError| DiscoverError::Nothing { what: chain(error), tried: tap.tried() };
    let manager = AuthorizationManager::new_with_oauth_http_client(place.url.clone(), tap.clone());
    let mut manager = manager.await.map_err(|error| nothing(&error))?;
    // An empty demand must not keep the library from looking for a better one.
    let challenge =
        (demand.resource_metadata.is_some() || !demand.scopes.is_empty()).then(|| demand.canonical());
    let resolved = manager.resolve_metadata_from_challenge(challenge.as_deref()).await;
    let before =
        || -> Option<AuthorizationMetadata> { serde_json::from_value(Value::Object(stored?.clone())).ok() };
    let metadata = match resolved {
        Ok(found) if found.source.is_discovered() => found.metadata,
        // Guessed endpoints are the last resort of the oldest revision.
        Ok(guessed) => before().unwrap_or(guessed.metadata),
        Err(error @ AuthError::DiscoveryRequestFailed { .. }) => before().ok_or_else(|| nothing(&error))?,
        Err(error) => return Err(nothing(&error)),
    };
    endpoints::check(&metadata, &place.reach, place.plain)?;
    manager.set_metadata(metadata.clone());
    Ok(Discovered { manager, metadata, tap })
}

impl Discovered {
    /// Speaks as `client` from now on.
    ///
    /// # Errors
    /// In the library's words: an endpoint is no URL.
    pub fn speak_as(&mut self, client: &Client, redirect_uri: &str) -> Result<(), AuthError> {
        self.manager.set_metadata(steered(&self.metadata, client));
        let mut config = OAuthClientConfig::new(client.id.clone(), redirect_uri);
        if let Some(secret) = &client.secret {
            config = config.with_client_secret(secret.expose());
        }
        self.manager.configure_client(config)
    }

    /// The document as it is kept.
    pub fn document(&self) -> Map<String, Value> {
        let value = serde_json::to_value(&self.metadata).unwrap_or_default();
        value.as_object().map(without_nulls).unwrap_or_default()
    }

    /// `scopes`, and the right to renew where the authorization server offers it by that name.
    pub fn with_offline_access(&self, mut scopes: Vec<String>) -> Vec<String> {
        let offline = "offline_access".to_owned();
        let offered = self.metadata.scopes_supported.as_ref().is_some_and(|all| all.contains(&offline));
        if offered && !scopes.is_empty() && !scopes.contains(&offline) {
            scopes.push(offline);
        }
        scopes
    }
}

/// The library chooses how a client proves itself by what the server supports; a registration that
/// names one way must be served that way.
fn steered(metadata: &AuthorizationMetadata, client: &Client) -> AuthorizationMetadata {
    let mut metadata = metadata.clone();
    let method = client.auth_method.as_deref().filter(|method| *method != "none" && client.secret.is_some());
    if let Some(method) = method {
        let only = Value::from(vec![method]);
        metadata.additional_fields.insert("token_endpoint_auth_methods_supported".into(), only);
    }
    metadata
}

/// An error with everything that led to it.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = inner.source();
    }
    text
}
