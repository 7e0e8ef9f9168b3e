//! Pure: the keys below `oauth:` that are more than a word.
//!
//! Promise: what cannot work is said when the file is read and not at the login.
//! May not touch: the network.

use super::reader::{Field, Section};
use super::url;
use super::{OauthConfig, OauthGrant};

/// How tokens are had.
pub(super) fn grant(section: &Section<'_>) -> OauthGrant {
    let allowed = [
        ("authorization_code", OauthGrant::AuthorizationCode),
        ("client_credentials", OauthGrant::ClientCredentials),
    ];
    section.get("grant").and_then(|field| field.choice(&allowed)).unwrap_or_default()
}

/// The URL of a document that describes the client: https with a path, or it could not be an id.
pub(super) fn described_by(field: &Field<'_>) -> Option<String> {
    let text = field.word()?;
    let usable = url::parse(&text).is_ok_and(|parts| parts.encrypted && parts.userinfo.is_none());
    let path = text.splitn(4, '/').nth(3).is_some_and(|path| !path.is_empty());
    if usable && path {
        return Some(text);
    }
    field.error(
        "`client_metadata_url` must be an https address with a path".to_owned(),
        "e.g. `https://example.com/client.json`",
    );
    None
}

/// Says what is missing between the keys.
pub(super) fn together(section: &Section<'_>, config: &OauthConfig) {
    let lacking = config.client_id.is_none() || config.client_secret.is_none();
    if config.grant == OauthGrant::ClientCredentials && lacking {
        section.error(
            "grant",
            "`grant: client_credentials` needs `client_id` and `client_secret`".to_owned(),
            "write both, or leave `grant` out",
        );
    }
    if config.client_secret.is_some() && config.client_id.is_none() && !lacking_is_said(config) {
        section.warn(
            "client_secret",
            "`client_secret` has no effect without `client_id`".to_owned(),
            "write both",
        );
    }
}

fn lacking_is_said(config: &OauthConfig) -> bool {
    config.grant == OauthGrant::ClientCredentials
}
