//! The HTTP client of logins: every request that discovery, registration and token exchange make.
//!
//! Owner: the [`Account`](super::account::Account) of one server. Promise: only addresses within
//! [`Reach`] are called, names are judged by what they resolve to; an answer is limited in size and
//! time; nothing is sent again to another origin; the server's client certificate and a switched-off
//! verification stay with its own origin. May not touch: files, tokens.

use super::addresses::Reach;
use crate::config::TlsConfig;
use crate::server::transport::http::client::{self, ClientError};
use crate::server::transport::http::proxy;
use futures_util::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, LOCATION};
use reqwest::{Client, Response};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use url::Url;

/// Longest time for one request, from connecting to the last byte.
const LIMIT: Duration = Duration::from_secs(30);
/// Largest answer in bytes.
const LARGEST: usize = 512 << 10;
/// Redirects of one request, to the same origin.
const REDIRECTS: usize = 3;

/// Why a request was not answered.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// It would go where the server has no business to send us.
    #[error("`{host}` is an address inside this network that the server has no business to name")]
    Inside {
        /// The host.
        host: String,
    },
    /// The answer is too long.
    #[error("the answer is larger than {LARGEST} bytes")]
    TooLarge,
    /// A certificate, a key or a proxy.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Connecting, TLS, time.
    #[error("{text}")]
    Http {
        /// The innermost cause.
        text: String,
    },
}

/// Whether a redirect to the same origin is followed (307 and 308 only).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirects {
    /// At most [`REDIRECTS`] times.
    Follow,
    /// The redirect is the answer.
    Stop,
}

/// What makes the requests of a login.
pub trait Network: Send + Sync {
    /// Sends `request` and reads the whole answer.
    ///
    /// # Cancel safety
    /// Dropping it leaves open whether the request was acted on.
    fn send(
        &self,
        request: hyper::Request<Vec<u8>>,
        redirects: Redirects,
    ) -> BoxFuture<'_, Result<hyper::Response<Vec<u8>>, NetError>>;
}

/// The innermost cause: the outermost error of reqwest says little.
fn told(error: &dyn std::error::Error) -> NetError {
    NetError::Http { text: client::root_of(error) }
}

/// Looks up a variable of the environment.
pub type Variable = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// See the module documentation.
pub struct Net {
    server: Url,
    reach: Arc<Reach>,
    tls: TlsConfig,
    variable: Variable,
    /// Built at the first use, because loading certificates takes milliseconds.
    clients: Mutex<BTreeMap<Kind, Client>>,
}

impl std::fmt::Debug for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Net").field("reach", &self.reach).finish_non_exhaustive()
    }
}

/// Which client a URL needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    whose: Whose,
    scheme: String,
    proxy: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    Own,
    Other,
}

impl Net {
    /// For the server at `server`.
    pub fn new(server: Url, reach: Reach, tls: TlsConfig, variable: Variable) -> Self {
        Self { server, reach: Arc::new(reach), tls, variable, clients: Mutex::default() }
    }

    async fn run(
        &self,
        request: hyper::Request<Vec<u8>>,
        redirects: Redirects,
    ) -> Result<hyper::Response<Vec<u8>>, NetError> {
        let redirects = match redirects {
            Redirects::Follow => REDIRECTS,
            Redirects::Stop => 0,
        };
        let request = reqwest::Request::try_from(request).map_err(|error| told(&error))?;
        let body = request.body().and_then(reqwest::Body::as_bytes).map(<[u8]>::to_vec);
        let mut url = request.url().clone();
        for left in (0..=redirects).rev() {
            let mut next = reqwest::Request::new(request.method().clone(), url.clone());
            *next.headers_mut() = request.headers().clone();
            *next.body_mut() = body.clone().map(Into::into);
            let response = self.once(next).await?;
            match same_origin_target(&response).filter(|_| left > 0) {
                Some(target) => url = target,
                None => return self.read(response).await,
            }
        }
        unreachable!("the last round returns")
    }

    async fn once(&self, request: reqwest::Request) -> Result<Response, NetError> {
        let url = request.url();
        if !self.reach.allows(url) {
            return Err(NetError::Inside { host: url.host_str().unwrap_or_default().to_owned() });
        }
        let kind = Kind {
            whose: if url.origin() == self.server.origin() { Whose::Own } else { Whose::Other },
            scheme: url.scheme().to_owned(),
            proxy: proxy::choose(url, &*self.variable),
        };
        let client = self.client(kind, url).await?;
        client.execute(request).await.map_err(|error| told(&error.without_url()))
    }

    async fn read(&self, mut response: Response) -> Result<hyper::Response<Vec<u8>>, NetError> {
        let mut builder = hyper::Response::builder().status(response.status());
        for (name, value) in response.headers() {
            builder = builder.header(name, value);
        }
        let mut body = Vec::new();
        if !is_stream(&response) {
            while let Some(chunk) = response.chunk().await.map_err(|error| told(&error))? {
                if body.len() + chunk.len() > LARGEST {
                    return Err(NetError::TooLarge);
                }
                body.extend_from_slice(&chunk);
            }
        }
        builder.body(body).map_err(|error| told(&error))
    }

    async fn client(&self, kind: Kind, url: &Url) -> Result<Client, NetError> {
        let mut clients = self.clients.lock().await;
        if let Some(client) = clients.get(&kind) {
            return Ok(client.clone());
        }
        let (tls, reach, url, wanted) = (self.tls.clone(), self.reach.clone(), url.clone(), kind.clone());
        // Reads certificates.
        let built = tokio::task::spawn_blocking(move || build(&tls, reach, &url, &wanted)).await;
        let client = built.map_err(|error| told(&error))??;
        clients.insert(kind, client.clone());
        Ok(client)
    }
}

impl Network for Net {
    fn send(
        &self,
        request: hyper::Request<Vec<u8>>,
        redirects: Redirects,
    ) -> BoxFuture<'_, Result<hyper::Response<Vec<u8>>, NetError>> {
        Box::pin(self.run(request, redirects))
    }
}

/// A stream of events never ends; whoever gets one asked for something else.
fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream"))
}

/// Where a 307 or 308 leads, if that is the same origin.
fn same_origin_target(response: &Response) -> Option<Url> {
    if !matches!(response.status().as_u16(), 307 | 308) {
        return None;
    }
    let target = response.url().join(response.headers().get(LOCATION)?.to_str().ok()?).ok()?;
    (target.origin() == response.url().origin()).then_some(target)
}

fn build(tls: &TlsConfig, reach: Arc<Reach>, url: &Url, kind: &Kind) -> Result<Client, NetError> {
    let proxy = kind.proxy.as_deref();
    let mut builder = match kind.whose {
        Whose::Own => client::builder(tls, url, proxy)?,
        Whose::Other => {
            let builder = client::builder(&TlsConfig::default(), url, proxy)?;
            match &tls.ca_file {
                Some(path) if url.scheme() == "https" => builder.tls_certs_merge(client::authorities(path)?),
                Some(_) | None => builder,
            }
        }
    };
    if kind.proxy.is_none() {
        // Through a proxy only the proxy's own name is resolved here.
        builder = builder.dns_resolver(Arc::new(Resolver { reach }));
    }
    builder.timeout(LIMIT).build().map_err(|error| told(&error))
}

/// The system's resolver, without the addresses that may not be called.
struct Resolver {
    reach: Arc<Reach>,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (host, reach) = (name.as_str().to_ascii_lowercase(), self.reach.clone());
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            let allowed: Vec<_> = found.filter(|at| reach.allows_address(&host, at.ip())).collect();
            if allowed.is_empty() {
                return Err(Box::new(NetError::Inside { host }) as Box<dyn std::error::Error + Send + Sync>);
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}
