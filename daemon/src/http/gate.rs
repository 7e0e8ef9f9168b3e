//! Pure: whether a request may be looked at at all, by its headers alone.
//!
//! Promise: nothing of a request that is refused here has any effect. A name that resolves to loopback (DNS
//! rebinding) shows in `Host`, a page of another site in `Origin`; neither can be chosen by a page.

use super::keys::{Guest, Keys};
use crate::loopback;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue, ORIGIN};

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It was meant for somebody else.
    #[error("Host must be a loopback address or localhost")]
    Host,
    /// A page of another origin made it.
    #[error("Origin must be the address of the listener itself; pages of other sites get no answer")]
    Origin,
    /// There is no token.
    #[error("send the token of hermesd.http as `Authorization: Bearer TOKEN`")]
    NoToken,
    /// The token is none of ours.
    #[error("the bearer token is not one of hermesd.http")]
    WrongToken,
}

impl Refusal {
    /// What HTTP calls it.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Host | Self::Origin => StatusCode::FORBIDDEN,
            Self::NoToken | Self::WrongToken => StatusCode::UNAUTHORIZED,
        }
    }
}

/// Lets a request pass, and says who made it.
///
/// # Errors
/// [`Refusal`].
pub fn check(headers: &HeaderMap, keys: &Keys) -> Result<Guest, Refusal> {
    let host = only(headers, HOST).filter(|host| loopback::is_loopback_host(host)).ok_or(Refusal::Host)?;
    if headers.contains_key(ORIGIN) {
        let origin = only(headers, ORIGIN).ok_or(Refusal::Origin)?;
        let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        if !authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host)) {
            return Err(Refusal::Origin);
        }
    }
    let shown = headers.get_all(AUTHORIZATION).iter().map(HeaderValue::as_bytes).map(bearer);
    let shown: Vec<Option<&[u8]>> = shown.collect();
    match (keys, &shown[..]) {
        // A token that nobody asked for is no reason to refuse.
        (Keys::Open, _) => Ok(Guest::anybody()),
        (Keys::Tokens(_), []) => Err(Refusal::NoToken),
        (Keys::Tokens(_), [Some(token)]) => keys.guest(token).ok_or(Refusal::WrongToken),
        (Keys::Tokens(_), _) => Err(Refusal::WrongToken),
    }
}

fn only(headers: &HeaderMap, name: hyper::header::HeaderName) -> Option<&str> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

/// The token in `Bearer TOKEN`; the scheme in any case (RFC 9110, section 11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::ProfileName;
    use crate::secret::Secret;

    const TOKEN: &str = "token-of-the-test-0001";

    fn keys() -> Keys {
        let other = (ProfileName::new("work"), Secret::new("token-of-the-test-0002"));
        Keys::of([(ProfileName::new("default"), Secret::new(TOKEN)), other])
    }

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    fn told(lines: &[(&'static str, &str)]) -> Result<String, Refusal> {
        check(&headers(lines), &keys()).map(|guest| guest.profile.to_string())
    }

    #[test]
    fn the_token_says_which_profile_applies() {
        let auth = ("authorization", "Bearer token-of-the-test-0001");
        assert_eq!(told(&[("host", "localhost:1"), auth]), Ok("default".into()));
        let work = ("authorization", "bearer  token-of-the-test-0002 ");
        assert_eq!(told(&[("host", "[::1]:1"), work]), Ok("work".into()));
        for wrong in
            ["Bearer token-of-the-test-000", "Bearer token-of-the-test-00011", "Bearer ", "Basic eDp5", ""]
        {
            let said = told(&[("host", "localhost"), ("authorization", wrong)]);
            assert_eq!(said, Err(Refusal::WrongToken), "{wrong}");
        }
        assert_eq!(told(&[("host", "localhost"), auth, work]), Err(Refusal::WrongToken));
        assert_eq!(told(&[("host", "localhost")]), Err(Refusal::NoToken));
    }

    #[test]
    fn a_rebound_name_or_a_foreign_page_is_refused_whatever_its_token() {
        let auth = ("authorization", "Bearer token-of-the-test-0001");
        for host in ["evil.example", "127.0.0.1.evil.example:8765", "0.0.0.0:1", "user@localhost"] {
            assert_eq!(told(&[("host", host), auth]), Err(Refusal::Host), "{host}");
        }
        assert_eq!(told(&[auth]), Err(Refusal::Host));
        assert_eq!(told(&[("host", "localhost"), ("host", "evil.example"), auth]), Err(Refusal::Host));
        let own = ("host", "localhost:8765");
        for origin in [
            "null",
            "https://evil.example",
            "http://evil.example:8765",
            "http://localhost:3000",
            "http://localhost",
            "http://127.0.0.1:8765",
            "file://",
        ] {
            assert_eq!(told(&[own, ("origin", origin), auth]), Err(Refusal::Origin), "{origin}");
        }
        let twice = [own, ("origin", "http://localhost:8765"), ("origin", "http://evil.example"), auth];
        assert_eq!(told(&twice), Err(Refusal::Origin));
        assert!(told(&[own, ("origin", "http://LOCALHOST:8765"), auth]).is_ok());
    }

    #[test]
    fn without_tokens_the_other_checks_stay() {
        let open = |lines| check(&headers(lines), &Keys::Open).is_ok();
        assert!(open(&[("host", "localhost")]));
        assert!(!open(&[("host", "evil.example")]));
        assert!(!open(&[("host", "localhost"), ("origin", "https://evil.example")]));
    }
}
