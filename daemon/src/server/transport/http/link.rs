//! One generation's way to its server: where, with which headers, under which login.
//!
//! Promise: configured headers and the login go to the server's own origin and nowhere else; a
//! redirect is followed only within it and only where the method stays (307, 308); a refused login
//! is asked about once for each request. May not touch: messages.

use super::body::{Watched, Written};
use super::client::root_of;
use super::names;
use crate::config::HttpConfig;
use crate::secret::Secret;
use crate::server::transport::auth::{Auth, Next, Refusal};
use base64::Engine;
use bytes::Bytes;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, WWW_AUTHENTICATE,
};
use reqwest::{Method, Request, Response, StatusCode};
use std::sync::{Arc, Mutex, PoisonError};
use url::Url;

/// Redirects followed for one request.
const HOPS: usize = 5;

/// Headers of the connection itself; an entry cannot set them.
const NOT_OURS: [&str; 6] = ["connection", "content-length", "host", "transfer-encoding", "upgrade", "te"];

/// The way to one server.
#[derive(Debug)]
pub(crate) struct Link {
    client: reqwest::Client,
    target: Url,
    /// Where a permanent redirect led.
    moved: Mutex<Option<Url>>,
    headers: HeaderMap,
    auth: Arc<dyn Auth>,
    /// Largest body or event in bytes.
    pub(crate) max_body: usize,
}

/// One HTTP request.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    /// Another address than the server's own; must have its origin.
    pub(crate) to: Option<Url>,
    pub(crate) body: Bytes,
    pub(crate) headers: HeaderMap,
    pub(crate) written: Written,
    pub(crate) login: Login,
}

/// What a refused login means for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Login {
    /// It is asked about, and the request is sent again or fails.
    Decides,
    /// It is an answer like others: side channels do not decide whether a login is needed.
    Reported,
}

/// Why there is no answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SendError {
    /// No connection; nothing was sent.
    #[error("{0}")]
    Unreachable(String),
    /// The connection broke after the request may have left.
    #[error("{0}")]
    Broken(String),
    /// The server sends the request elsewhere, where it must not go by itself.
    #[error("the server redirects to {target}; {advice}")]
    Redirected { status: u16, target: String, advice: &'static str },
    /// A person must log in.
    #[error("{action}")]
    NeedsAuth { action: String },
    /// A person must log in for this request; others go on.
    #[error("{action}")]
    Forbidden { action: String },
}

impl Ask {
    /// A POST of one message.
    pub(crate) fn post(body: Bytes, headers: HeaderMap, written: Written) -> Self {
        Self { method: Method::POST, to: None, body, headers, written, login: Login::Decides }
    }

    /// A GET of a stream of events.
    pub(crate) fn get(headers: HeaderMap, login: Login) -> Self {
        let (body, written) = (Bytes::new(), Written::default());
        Self { method: Method::GET, to: None, body, headers, written, login }
    }
}

impl Link {
    pub(crate) fn new(
        client: reqwest::Client,
        mut target: Url,
        config: &HttpConfig,
        auth: Arc<dyn Auth>,
        max_body: usize,
    ) -> Self {
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            let name = HeaderName::try_from(name.as_str());
            // Names and values were checked with the file.
            let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.expose().as_bytes())) else {
                continue;
            };
            if !NOT_OURS.contains(&name.as_str()) {
                headers.insert(name, sensitive(value));
            }
        }
        if let Some(login) = userinfo(&target)
            && !headers.contains_key(AUTHORIZATION)
        {
            headers.insert(AUTHORIZATION, sensitive(login));
        }
        target.set_fragment(None);
        // An address of http or https always takes both.
        let _ = target.set_username("");
        let _ = target.set_password(None);
        Self { client, target, moved: Mutex::new(None), headers, auth, max_body }
    }

    /// The server's address, without what a person may not see: no user, no query.
    pub(crate) fn shown(&self) -> String {
        shown(&self.target)
    }

    /// Sends `ask` and returns the head of the answer, whatever its status, but for redirects and
    /// refused logins.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection of the request.
    pub(crate) async fn send(&self, ask: &Ask) -> Result<Response, SendError> {
        let moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut to = ask.to.clone().or(moved).unwrap_or_else(|| self.target.clone());
        let mut hops = 0;
        let mut asked = false;
        loop {
            let login = self.auth.header().await;
            let response = self.once(ask, &to, login.as_ref()).await?;
            let status = response.status();
            if matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
                to = self.follow(&response, &to, hops)?;
                hops += 1;
                ask.written.clear();
                if status == StatusCode::PERMANENT_REDIRECT && ask.to.is_none() {
                    *self.moved.lock().unwrap_or_else(PoisonError::into_inner) = Some(to.clone());
                }
                continue;
            }
            let challenges = challenges(&response);
            let refused = status == StatusCode::UNAUTHORIZED
                || (status == StatusCode::FORBIDDEN && !challenges.is_empty());
            if let Some(login) = &login
                && !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
            {
                self.auth.accepted(login);
            }
            if !refused || ask.login == Login::Reported {
                return Ok(response);
            }
            ask.written.clear();
            if asked {
                let action = "the server refuses the login that was just given".to_owned();
                return Err(SendError::NeedsAuth { action });
            }
            asked = true;
            let refusal = Refusal { status: status.as_u16(), challenges, sent: login };
            match self.auth.refused(refusal).await {
                Next::Retry => {}
                Next::NeedsAuth { action } => return Err(SendError::NeedsAuth { action }),
                Next::Forbidden { action } => return Err(SendError::Forbidden { action }),
                // The server was not asked as it wants to be: as if it could not be reached.
                Next::Later { reason } => return Err(SendError::Unreachable(reason)),
            }
        }
    }

    async fn once(&self, ask: &Ask, to: &Url, login: Option<&Secret>) -> Result<Response, SendError> {
        let mut headers = self.headers.clone();
        if let Some(value) = login.and_then(|login| HeaderValue::from_str(login.expose()).ok()) {
            headers.insert(AUTHORIZATION, sensitive(value));
        }
        if ask.method == Method::POST {
            headers.insert(CONTENT_TYPE, names::JSON);
            headers.insert(ACCEPT, names::ANY_ANSWER);
        } else {
            headers.insert(ACCEPT, names::EVENTS);
        }
        for (name, value) in &ask.headers {
            headers.insert(name.clone(), value.clone());
        }
        let mut request = Request::new(ask.method.clone(), to.clone());
        *request.headers_mut() = headers;
        if ask.method == Method::POST {
            let body = Watched::new(ask.body.clone(), ask.written.clone());
            *request.body_mut() = Some(reqwest::Body::wrap(body));
        }
        self.client.execute(request).await.map_err(|error| {
            let reason = format!("{}: {}", shown(to), root_of(&error.without_url()));
            if ask.method == Method::POST && ask.written.is_set() {
                SendError::Broken(reason)
            } else {
                SendError::Unreachable(reason)
            }
        })
    }

    /// Where a redirect leads, when it may be followed.
    fn follow(&self, response: &Response, from: &Url, hops: usize) -> Result<Url, SendError> {
        let status = response.status().as_u16();
        let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let target = location.and_then(|location| from.join(location).ok());
        let refused = |target: Option<&Url>, advice| {
            let target = target.map_or_else(|| "nowhere".to_owned(), shown);
            Err(SendError::Redirected { status, target, advice })
        };
        let Some(mut target) = target else {
            return refused(None, "it names no address");
        };
        if target.origin() != self.target.origin() {
            return refused(
                Some(&target),
                "nothing is sent to another origin: if you trust it, write that address as `url`",
            );
        }
        if !matches!(status, 307 | 308) {
            return refused(Some(&target), "a POST cannot be redirected so: write that address as `url`");
        }
        if hops >= HOPS {
            return refused(Some(&target), "there were too many redirects");
        }
        let _ = target.set_username("");
        let _ = target.set_password(None);
        target.set_fragment(None);
        Ok(target)
    }

    /// Whether `url` is on this server.
    pub(crate) fn owns(&self, url: &Url) -> bool {
        url.origin() == self.target.origin()
    }
}

fn challenges(response: &Response) -> Vec<String> {
    let all = response.headers().get_all(WWW_AUTHENTICATE).iter();
    all.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
}

fn sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

/// `user:password` of an address as the header it stands for.
fn userinfo(url: &Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let decode = |text: &str| percent_decode(text);
    let pair = format!("{}:{}", decode(url.username()), decode(url.password().unwrap_or_default()));
    let encoded = base64::engine::general_purpose::STANDARD.encode(pair);
    HeaderValue::from_str(&format!("Basic {encoded}")).ok()
}

fn percent_decode(text: &str) -> String {
    // Reading it as the one key of a form decodes it; `+` stands for itself in an address.
    let text = text.replace('+', "%2B").replace('=', "%3D").replace('&', "%26");
    url::form_urlencoded::parse(text.as_bytes()).next().map(|(key, _)| key.into_owned()).unwrap_or_default()
}

/// Origin and path.
pub(crate) fn shown(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn userinfo_of_an_address_becomes_the_header_it_stands_for() {
        let header =
            |text: &str| userinfo(&Url::parse(text).unwrap()).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(header("http://h/"), None);
        // a+b@c:p=&w
        assert_eq!(header("http://a+b%40c:p=&w@h/").as_deref(), Some("Basic YStiQGM6cD0mdw=="));
        assert_eq!(header("http://only@h/").as_deref(), Some("Basic b25seTo="));
    }

    #[test]
    fn what_is_shown_of_an_address_is_origin_and_path() {
        let url = Url::parse("https://user:secret@h.example:8443/mcp/x?token=secret#y").unwrap();
        assert_eq!(shown(&url), "https://h.example:8443/mcp/x");
    }
}
