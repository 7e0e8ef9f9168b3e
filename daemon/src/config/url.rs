//! Pure: the parts of a remote server's URL, as far as checks need them.
//!
//! Promise: what passes here has a scheme `http` or `https`, a host and a valid port; the text
//! itself is never changed. May not touch: the network.

/// The parts of a checked URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Url<'a> {
    /// `https`.
    pub(super) encrypted: bool,
    /// `user:password` as written.
    pub(super) userinfo: Option<&'a str>,
    /// Without brackets.
    pub(super) host: &'a str,
    /// Written, or the scheme's.
    pub(super) port: u16,
    /// After `?`, without the fragment.
    pub(super) query: &'a str,
}

/// Why a text is no usable URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum UrlError {
    #[error("is empty")]
    Empty,
    #[error("has no scheme")]
    NoScheme,
    #[error("has a scheme other than http and https")]
    OtherScheme,
    #[error("has no host")]
    NoHost,
    #[error("has an invalid host")]
    BadHost,
    #[error("has an invalid port")]
    BadPort,
    #[error("contains spaces or control characters")]
    BadCharacter,
}

/// Takes `text` apart.
pub(super) fn parse(text: &str) -> Result<Url<'_>, UrlError> {
    if text.is_empty() {
        return Err(UrlError::Empty);
    }
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(UrlError::BadCharacter);
    }
    let (scheme, rest) = text.split_once("://").ok_or(UrlError::NoScheme)?;
    let encrypted = match scheme.to_ascii_lowercase().as_str() {
        "https" => true,
        "http" => false,
        _ => return Err(UrlError::OtherScheme),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let (userinfo, hostport) = match authority.rsplit_once('@') {
        Some((userinfo, hostport)) => (Some(userinfo), hostport),
        None => (None, authority),
    };
    let (host, port) = split_port(hostport)?;
    let port = match port {
        None | Some("") => {
            if encrypted {
                443
            } else {
                80
            }
        }
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
            digits.parse().map_err(|_| UrlError::BadPort)?
        }
        Some(_) => return Err(UrlError::BadPort),
    };
    let tail = tail.split('#').next().unwrap_or("");
    let query = tail.split_once('?').map_or("", |(_, query)| query);
    Ok(Url { encrypted, userinfo, host, port, query })
}

fn split_port(hostport: &str) -> Result<(&str, Option<&str>), UrlError> {
    let (host, port) = match hostport.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or(UrlError::BadHost)?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| UrlError::BadHost)?;
            match after.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if after.is_empty() => (host, None),
                None => return Err(UrlError::BadHost),
            }
        }
        None => match hostport.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (hostport, None),
        },
    };
    if host.is_empty() {
        return Err(UrlError::NoHost);
    }
    if host.contains(['<', '>', '"', '{', '}', '|', '\\', '^', '`', '[', ']', '$']) {
        return Err(UrlError::BadHost);
    }
    Ok((host, port))
}

impl<'a> Url<'a> {
    /// Whether the host is this machine.
    pub(super) fn is_loopback(&self) -> bool {
        is_loopback(self.host)
    }

    /// User and password, percent-decoded, and as written.
    pub(super) fn credentials(&self) -> Vec<String> {
        let parts = self.userinfo.into_iter().flat_map(|userinfo| userinfo.splitn(2, ':'));
        parts.flat_map(|part| [part.to_owned(), percent_decode(part)]).collect()
    }

    /// `name=value` pairs of the query, percent-decoded.
    pub(super) fn parameters(&self) -> impl Iterator<Item = (String, String)> + use<'a> {
        self.query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(k, v)| (percent_decode(k), percent_decode(v)))
    }
}

/// Whether `host` names this machine.
pub(super) fn is_loopback(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Replaces `%XX`; invalid sequences stay.
pub(super) fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|pair| std::str::from_utf8(pair).ok());
        match (bytes[at], hex.and_then(|pair| u8::from_str_radix(pair, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn usual_urls_pass_with_their_parts() {
        let url = parse("HTTPS://u:p%40s@h.example:8443/mcp?api_key=x%20y&b=1#f").expect("url");
        assert!(url.encrypted);
        assert_eq!((url.host, url.port, url.query), ("h.example", 8443, "api_key=x%20y&b=1"));
        assert_eq!(url.credentials(), ["u", "u", "p%40s", "p@s"]);
        assert_eq!(url.parameters().next(), Some(("api_key".to_owned(), "x y".to_owned())));
        let v6 = parse("http://[::1]:80").expect("ipv6");
        assert!(v6.is_loopback());
        assert_eq!(parse("http://h").expect("port").port, 80);
    }

    #[test]
    fn unusable_urls_are_refused_with_their_reason() {
        for (text, err) in [
            ("", UrlError::Empty),
            ("example.com/mcp", UrlError::NoScheme),
            ("file:///x", UrlError::OtherScheme),
            ("ws://h", UrlError::OtherScheme),
            ("http://", UrlError::NoHost),
            ("http://:8080", UrlError::NoHost),
            ("http://h:x", UrlError::BadPort),
            ("http://h:70000", UrlError::BadPort),
            ("http://a b", UrlError::BadCharacter),
            ("http://[::1", UrlError::BadHost),
            ("http://u@", UrlError::NoHost),
            ("http://[zz]/", UrlError::BadHost),
            ("https://${HOST}/", UrlError::BadHost),
        ] {
            assert_eq!(parse(text), Err(err), "{text}");
        }
    }

    #[test]
    fn this_machine_is_known_by_its_names() {
        for host in ["localhost", "LOCALHOST.", "127.0.0.1", "127.9.9.9", "::1", "x.localhost"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["10.0.0.1", "localhost.example.com", "0.0.0.0", "::"] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(https?://)?[a-z@:/?#\\[\\]%0-9é]{0,30}") {
            if let Ok(url) = parse(&text) {
                prop_assert!(!url.host.is_empty());
                let _ = (url.credentials(), url.parameters().count());
            }
        }
    }
}
