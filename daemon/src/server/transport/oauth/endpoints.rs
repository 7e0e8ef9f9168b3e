//! Which URLs of an authorization server may be used.
//!
//! Pure. These URLs come from documents that others wrote; one of them is opened in the user's
//! browser. Promise: only http and https, https unless it is this machine, no userinfo, no fragment,
//! and what is handed on was parsed and written anew.

use super::addresses::{Reach, is_loopback};
use rmcp::transport::auth::AuthorizationMetadata;
use url::Url;

/// Why a URL is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEndpoint {
    /// Not a URL at all.
    #[error("the {which} of the authorization server is no URL")]
    NoUrl {
        /// Which endpoint.
        which: &'static str,
    },
    /// `file:`, `javascript:`, whatever an opener might run.
    #[error("the {which} of the authorization server has the scheme `{scheme}`; only https is used")]
    Scheme {
        /// Which endpoint.
        which: &'static str,
        /// Its scheme.
        scheme: String,
    },
    /// Unencrypted over the network.
    #[error("the {which} of the authorization server is not encrypted (http to `{host}`)")]
    Unencrypted {
        /// Which endpoint.
        which: &'static str,
        /// Its host.
        host: String,
    },
    /// `user:password@host`, or a fragment.
    #[error("the {which} of the authorization server contains a user name or a fragment")]
    Parts {
        /// Which endpoint.
        which: &'static str,
    },
    /// An address inside the user's network that the server has no business to name.
    #[error("the {which} of the authorization server is at `{host}`, an address inside this network")]
    Inside {
        /// Which endpoint.
        which: &'static str,
        /// Its host.
        host: String,
    },
}

/// Whether plain http is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain {
    /// Only to this machine.
    ThisMachine,
    /// `allow_insecure: true`.
    Allowed,
}

/// Checks all endpoints that hermesd or the browser will use.
///
/// # Errors
/// [`BadEndpoint`] for the first bad one.
pub fn check(metadata: &AuthorizationMetadata, reach: &Reach, plain: Plain) -> Result<(), BadEndpoint> {
    endpoint("authorization endpoint", &metadata.authorization_endpoint, plain)?;
    let mut called = vec![("token endpoint", metadata.token_endpoint.as_str())];
    called.extend(metadata.registration_endpoint.as_deref().map(|url| ("registration endpoint", url)));
    for (which, text) in called {
        let url = endpoint(which, text, plain)?;
        if !reach.allows(&url) {
            return Err(BadEndpoint::Inside { which, host: url.host_str().unwrap_or_default().to_owned() });
        }
    }
    Ok(())
}

/// One endpoint, parsed.
///
/// # Errors
/// [`BadEndpoint`].
pub fn endpoint(which: &'static str, text: &str, plain: Plain) -> Result<Url, BadEndpoint> {
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(BadEndpoint::NoUrl { which });
    }
    let url = Url::parse(text).map_err(|_| BadEndpoint::NoUrl { which })?;
    match url.scheme() {
        "https" => {}
        "http" if is_loopback(&url) || plain == Plain::Allowed => {}
        "http" => {
            let host = url.host_str().unwrap_or_default().to_owned();
            return Err(BadEndpoint::Unencrypted { which, host });
        }
        scheme => return Err(BadEndpoint::Scheme { which, scheme: scheme.to_owned() }),
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err(BadEndpoint::Parts { which });
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::super::addresses::LocalNetwork;
    use super::*;

    fn authorize(text: &str) -> Result<Url, BadEndpoint> {
        endpoint("authorization endpoint", text, Plain::ThisMachine)
    }

    #[test]
    fn nothing_reaches_the_browser_that_an_opener_could_run() {
        for bad in [
            "file:///etc/passwd",
            "javascript:alert(1)",
            "a:$(id)",
            "http://x\"&calc",
            "https://user:pw@login.example.com/",
            "https://login.example.com/#x",
            "https://login.example.com/\u{1b}[31m",
            "https://login.example.com/a b",
            "http://login.example.com/authorize",
            "-version",
            "",
        ] {
            assert!(authorize(bad).is_err(), "{bad}");
        }
        // What a shell would read is written anew.
        let url = authorize("https://login.example.com/a?x=\"`id`").unwrap();
        assert_eq!(url.as_str(), "https://login.example.com/a?x=%22`id`");
        assert!(authorize("http://localhost:3000/authorize").is_ok());
    }

    #[test]
    fn endpoints_inside_the_network_are_refused_unless_the_server_is_there_too() {
        let mut metadata = AuthorizationMetadata::default();
        metadata.authorization_endpoint = "https://login.example.com/authorize".into();
        metadata.token_endpoint = "http://127.0.0.1:8080/token".into();
        let reach = |url: &str| Reach::new(&Url::parse(url).unwrap(), LocalNetwork::AsTheUrl);
        let outside = check(&metadata, &reach("https://mcp.example.com/"), Plain::ThisMachine);
        assert!(matches!(outside, Err(BadEndpoint::Inside { which: "token endpoint", .. })), "{outside:?}");
        assert_eq!(check(&metadata, &reach("http://127.0.0.1:1/mcp"), Plain::ThisMachine), Ok(()));
    }
}
