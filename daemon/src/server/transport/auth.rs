//! What proves to a remote server who asks: the border between the HTTP transport and logins.
//!
//! Owner: one [`Auth`] for each configured server, made by an [`AuthSource`] and kept over
//! generations. Promise: the transport asks for the header before each request, sends it to the
//! server's own origin only, and after a refusal asks once what to do. May not touch: requests.

use crate::config::HttpConfig;
use crate::names::ServerName;
use crate::secret::Secret;
use futures_util::future::BoxFuture;
use std::fmt;
use std::sync::Arc;

/// The login of one server.
pub trait Auth: Send + Sync + fmt::Debug {
    /// The value of `Authorization` for the next request, e.g. `Bearer …`; `None`: none is sent. May
    /// refresh a token first and must bound that itself; the request's own limits run meanwhile.
    ///
    /// # Cancel safety
    /// Must be cancel safe: a caller that goes away drops the future.
    fn header(&self) -> BoxFuture<'_, Option<Secret>>;

    /// The server took `sent`, which [`header`](Self::header) gave: it answered otherwise than with 401 or 403.
    fn accepted(&self, sent: &Secret) {
        let _ = sent;
    }

    /// The server answered 401, or 403 with a challenge. Called at most once for each request, and
    /// perhaps for many requests at the same time.
    ///
    /// # Cancel safety
    /// Must be cancel safe, as [`header`](Self::header).
    fn refused(&self, refusal: Refusal) -> BoxFuture<'_, Next>;
}

/// A request that the server refused for want of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// 401 or 403.
    pub status: u16,
    /// Each `WWW-Authenticate` header, as sent, in order.
    pub challenges: Vec<String>,
    /// What [`Auth::header`] gave for that request: when a newer value is there by now, that one
    /// is to be tried before anything else.
    pub sent: Option<Secret>,
}

/// What to do after a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// [`Auth::header`] has something new: the same request is sent once more.
    Retry,
    /// Only a person can help.
    NeedsAuth {
        /// One sentence for a person: what to do, e.g. ``run `hermesctl mcp login NAME` ``. No
        /// secrets, no full stop.
        action: String,
    },
    /// Only a person can help, and only this request is concerned: the login is good for others.
    Forbidden {
        /// As for `NeedsAuth`.
        action: String,
    },
    /// Nobody can be asked for a new login at the moment; it may work by itself in a while.
    Later {
        /// Why. No secrets, no full stop.
        reason: String,
    },
}

/// Where the logins of servers come from.
pub trait AuthSource: Send + Sync {
    /// The login of `server`. The same server with the same address gets the same login again.
    fn login(&self, server: &ServerName, config: &HttpConfig) -> Arc<dyn Auth>;
}

/// Nothing but what the entry's `headers` say.
#[derive(Debug, Default, Clone, Copy)]
pub struct HeadersOnly;

impl AuthSource for HeadersOnly {
    fn login(&self, server: &ServerName, config: &HttpConfig) -> Arc<dyn Auth> {
        let sent = config.headers.keys().any(|name| crate::secret::name_says_secret(name));
        Arc::new(Fixed { server: server.clone(), headers: if sent { Headers::Given } else { Headers::None } })
    }
}

/// A login that cannot change by itself.
#[derive(Debug)]
struct Fixed {
    server: ServerName,
    headers: Headers,
}

/// Whether the entry has a header with a credential.
#[derive(Debug, Clone, Copy)]
enum Headers {
    Given,
    None,
}

impl Auth for Fixed {
    fn header(&self) -> BoxFuture<'_, Option<Secret>> {
        Box::pin(std::future::ready(None))
    }

    fn refused(&self, _: Refusal) -> BoxFuture<'_, Next> {
        let server = &self.server;
        let action = match self.headers {
            Headers::Given => format!(
                "the server refuses the credentials in `headers` of `{server}`: correct them in config.yaml"
            ),
            Headers::None => format!(
                "add its credentials to `headers` of `{server}` in config.yaml, or `auth: oauth` and run `hermesctl mcp login {server}`"
            ),
        };
        Box::pin(std::future::ready(Next::NeedsAuth { action }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn config(headers: &[(&str, &str)]) -> HttpConfig {
        let headers: BTreeMap<_, _> =
            headers.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect();
        HttpConfig {
            url: "https://example.com/mcp".into(),
            headers,
            kind: crate::config::RemoteKind::Auto,
            oauth: None,
            tls: crate::config::TlsConfig::default(),
            allow_insecure: false,
        }
    }

    #[tokio::test]
    async fn a_refusal_without_a_login_names_the_one_action_that_helps() {
        let refusal = Refusal { status: 401, challenges: vec![], sent: None };
        let source = HeadersOnly;
        let name = ServerName::new("notes");
        let given = source.login(&name, &config(&[("X-Api-Key", "k")]));
        assert!(given.header().await.is_none(), "the entry's own headers are the transport's business");
        let Next::NeedsAuth { action } = given.refused(refusal.clone()).await else { panic!("retried") };
        assert!(action.contains("correct them"), "{action}");
        let Next::NeedsAuth { action } = source.login(&name, &config(&[])).refused(refusal).await else {
            panic!("retried");
        };
        assert!(action.contains("hermesctl mcp login notes"), "{action}");
    }
}
