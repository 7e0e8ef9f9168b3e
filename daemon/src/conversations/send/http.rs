//! Requests to platforms.
//!
//! Owner: [`Http`], one for the daemon, renewed when proxies change. Promise: a credential goes to the
//! address it was configured for and nowhere else (no redirects, no proxy for this machine); each request
//! ends within 30 s with an answer of limited size or a [`Failure`] that says whether it was written.
//! May not touch: what requests mean.

use super::problem::Failure;
use crate::config::messaging::Proxies;
use crate::secret::Secret;
use reqwest::{Client, NoProxy, Proxy, RequestBuilder, Url};
use serde_json::Value;
use std::time::Duration;

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest request, with its answer.
const WHOLE: Duration = Duration::from_secs(30);
/// The same for a request with a file.
pub(super) const WHOLE_FILE: Duration = Duration::from_secs(120);
/// Largest answer in bytes that is read.
const LARGEST_ANSWER: usize = 1024 * 1024;
/// Longest excerpt of an answer in a text for people.
const EXCERPT: usize = 300;

/// Clients for each way out.
#[derive(Debug, Clone)]
pub(super) struct Http {
    /// For this machine.
    direct: Client,
    /// For everything else.
    outside: Client,
    /// For Telegram, where it has a proxy of its own.
    telegram: Option<Client>,
}

/// Which proxy a request takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    General,
    Telegram,
}

/// What a platform answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// The header `Retry-After`.
    pub(super) retry_after: Option<Duration>,
    body: Vec<u8>,
}

impl Http {
    /// The clients for `proxies`. Reads the certificates of this machine: call it on the blocking pool.
    ///
    /// # Errors
    /// A sentence without credentials.
    pub(super) fn new(proxies: &Proxies) -> Result<Self, String> {
        let none_for = proxies.none_for.as_deref().unwrap_or_default();
        let mut outside = builder();
        if let Some(url) = &proxies.https {
            outside = outside.proxy(usable(Proxy::https(whole(url)), none_for, "HTTPS_PROXY")?);
        }
        if let Some(url) = &proxies.http {
            outside = outside.proxy(usable(Proxy::http(whole(url)), none_for, "HTTP_PROXY")?);
        }
        if let Some(url) = &proxies.all {
            outside = outside.proxy(usable(Proxy::all(whole(url)), none_for, "ALL_PROXY")?);
        }
        let telegram = match &proxies.telegram {
            None => None,
            Some(url) => {
                let proxy = usable(Proxy::all(whole(url)), none_for, "TELEGRAM_PROXY")?;
                Some(build(builder().proxy(proxy))?)
            }
        };
        Ok(Self { direct: build(builder())?, outside: build(outside)?, telegram })
    }

    fn client(&self, url: &Url, way: Way) -> &Client {
        match (is_this_machine(url), way, &self.telegram) {
            (true, _, _) => &self.direct,
            (false, Way::Telegram, Some(telegram)) => telegram,
            (false, _, _) => &self.outside,
        }
    }

    pub(super) fn get(&self, url: Url, way: Way) -> RequestBuilder {
        self.client(&url, way).get(url)
    }

    pub(super) fn post(&self, url: Url, way: Way) -> RequestBuilder {
        self.client(&url, way).post(url)
    }

    pub(super) fn put(&self, url: Url, way: Way) -> RequestBuilder {
        self.client(&url, way).put(url)
    }
}

/// Adds a JSON body.
pub(super) fn json(request: RequestBuilder, body: &Value) -> RequestBuilder {
    request.header("content-type", "application/json").body(body.to_string())
}

/// Sends `request` and reads the answer.
///
/// # Errors
/// [`Failure::NotSent`] when no connection came about, [`Failure::Unknown`] after that.
/// # Cancel safety
/// Dropped, the request may have been executed.
pub(super) async fn exchange(request: RequestBuilder) -> Result<Answer, Failure> {
    let mut response = request.send().await.map_err(|error| failure(&error))?;
    let status = response.status().as_u16();
    let header = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
    let retry_after = header.and_then(|text| text.trim().parse::<f64>().ok()).and_then(seconds);
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() <= LARGEST_ANSWER => body.extend_from_slice(&chunk),
            // More than is needed to know what happened.
            Ok(Some(_)) => break,
            Ok(None) => break,
            // The status is what counts; where it says nothing clear the body decides, and it is missing.
            Err(error) if (200..300).contains(&status) => return Err(failure(&error)),
            Err(_) => break,
        }
    }
    Ok(Answer { status, retry_after, body })
}

impl Answer {
    /// The body as JSON; null if it is none.
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Whether the status says that it was done.
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The failure that the status stands for, with the platform's own words.
    ///
    /// Only a refusal of the request itself is sure not to have sent anything: a server or gateway that
    /// failed (5xx) may have done so after the message went out.
    pub(super) fn failure(&self, platform: &'static str, words: Option<&str>) -> Failure {
        let words = words.map_or_else(|| self.excerpt(), ToOwned::to_owned);
        let why = format!(
            "{platform} answered with status {}{}",
            self.status,
            if words.is_empty() { words } else { format!(": {words}") }
        );
        match self.status {
            429 => Failure::Limited { platform, retry_after: self.retry_after },
            300..=399 => Failure::NotSent {
                why: format!(
                    "{platform} answered with a redirect (status {}), which is not followed; check its address",
                    self.status
                ),
            },
            401 | 403 => Failure::NotSent {
                why: format!("{why}; check its credentials and what the bot may do there"),
            },
            400..=499 => Failure::NotSent { why },
            _ => Failure::Unknown { why },
        }
    }

    /// A success whose body does not say so.
    pub(super) fn unclear(&self, platform: &'static str) -> Failure {
        Failure::Unknown { why: format!("{platform} answered something unexpected: {}", self.excerpt()) }
    }

    fn excerpt(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let cut = line.floor_char_boundary(EXCERPT);
        if cut < line.len() { format!("{}…", &line[..cut]) } else { line }
    }
}

/// Seconds as a platform writes them.
pub(super) fn seconds(number: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number).ok()
}

/// The address of a proxy; `host:port` alone means http, as for curl.
fn whole(url: &Secret) -> String {
    let url = url.expose();
    if url.contains("://") { url.to_owned() } else { format!("http://{url}") }
}

fn usable(proxy: reqwest::Result<Proxy>, none_for: &str, name: &str) -> Result<Proxy, String> {
    let proxy = proxy.map_err(|_| format!("{name} is no usable proxy"))?;
    Ok(proxy.no_proxy(NoProxy::from_string(none_for)))
}

fn builder() -> reqwest::ClientBuilder {
    Client::builder()
        .user_agent(concat!("hermesd/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT)
        .timeout(WHOLE)
        // An idle connection that the other side has closed would make a refused request an unknown one.
        .pool_max_idle_per_host(0)
        // The environment is read by the configuration, with .env in front of it.
        .no_proxy()
}

fn build(builder: reqwest::ClientBuilder) -> Result<Client, String> {
    builder.build().map_err(|error| root(&error))
}

fn failure(error: &reqwest::Error) -> Failure {
    let cause = root(error);
    if error.is_connect() || error.is_builder() {
        return Failure::NotSent { why: format!("no connection ({cause})") };
    }
    if error.is_timeout() {
        return Failure::Unknown { why: format!("no answer within {} s", WHOLE.as_secs()) };
    }
    Failure::Unknown { why: format!("the connection was lost before the answer ({cause})") }
}

/// The innermost cause; the outer ones carry the address, and with it tokens.
fn root(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    if std::ptr::addr_eq(cause, error) { "it could not be made".to_owned() } else { cause.to_string() }
}

/// Whether the address is this machine's own.
pub(super) fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost")
        }
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => {
            address.is_loopback() || address.to_ipv4_mapped().is_some_and(|address| address.is_loopback())
        }
        None => false,
    }
}
