//! The HTTP client of logins: every request that discovery, registration and token exchange make.
//!
//! Owner: the [`Account`](super::account::Account) of one server. Promise: only addresses within
//! [`Reach`] are called, names are judged by what they resolve to; an answer is limited in size and
//! time; nothing is sent again to another origin; the server's client certificate and a switched-off
//! verification stay with its own origin. May not touch: files, tokens.

use super::addresses::{Reach, is_loopback};
use crate::config::TlsConfig;
use futures_util::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, LOCATION};
use reqwest::{Certificate, Client, Identity, Response};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use url::Url;

/// Longest time for one request, from connecting to the last byte.
const LIMIT: Duration = Duration::from_secs(30);
/// Longest time to connect.
const CONNECT: Duration = Duration::from_secs(10);
/// Largest answer in bytes.
const LARGEST: usize = 512 << 10;
/// Redirects of one request, to the same origin.
const REDIRECTS: usize = 3;

/// The proxies that the environment may name.
const PROXIES: [&str; 6] =
    ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

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
    /// A certificate or key of the configuration.
    #[error("{} cannot be used", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
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

/// The whole chain: the outermost error of reqwest says little.
fn told(error: &dyn std::error::Error) -> NetError {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = inner.to_string();
        cause = inner.source();
    }
    NetError::Http { text }
}

/// See the module documentation.
pub struct Net {
    server: Url,
    reach: Arc<Reach>,
    tls: TlsConfig,
    /// By [`Kind`]: built at the first use, because loading certificates takes milliseconds.
    clients: [OnceCell<Client>; 4],
}

impl std::fmt::Debug for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Net").field("reach", &self.reach).finish_non_exhaustive()
    }
}

/// Which client a URL needs.
#[derive(Debug, Clone, Copy)]
struct Kind {
    whose: Whose,
    route: Route,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Own,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    /// This machine is never asked through a proxy.
    Direct,
    Environment,
}

impl Net {
    /// For the server at `server`.
    pub fn new(server: Url, reach: Reach, tls: TlsConfig) -> Self {
        Self { server, reach: Arc::new(reach), tls, clients: Default::default() }
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
            route: if is_loopback(url) { Route::Direct } else { Route::Environment },
        };
        self.client(kind).await?.execute(request).await.map_err(|error| told(&error))
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

    async fn client(&self, kind: Kind) -> Result<&Client, NetError> {
        let index = usize::from(kind.whose == Whose::Own) * 2 + usize::from(kind.route == Route::Direct);
        self.clients[index]
            .get_or_try_init(|| async {
                let (tls, reach) = (self.tls.clone(), self.reach.clone());
                // Reads certificates.
                tokio::task::spawn_blocking(move || build(&tls, reach, kind))
                    .await
                    .map_err(|error| told(&error))?
            })
            .await
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

fn build(tls: &TlsConfig, reach: Arc<Reach>, kind: Kind) -> Result<Client, NetError> {
    let mut builder = Client::builder()
        .user_agent(concat!("hermesd/", env!("CARGO_PKG_VERSION")))
        .timeout(LIMIT)
        .connect_timeout(CONNECT)
        .redirect(reqwest::redirect::Policy::none())
        .dns_resolver(Arc::new(Resolver { reach, proxies: proxies() }));
    if kind.route == Route::Direct {
        builder = builder.no_proxy();
    }
    if let Some(path) = &tls.ca_file {
        let bundle = Certificate::from_pem_bundle(&pem(path)?).map_err(|error| told(&error))?;
        builder = builder.tls_certs_merge(bundle);
    }
    if kind.whose == Whose::Own {
        builder = builder.tls_danger_accept_invalid_certs(tls.insecure);
        if let Some(cert) = &tls.client_cert {
            let mut both = pem(cert)?;
            if let Some(key) = &tls.client_key {
                both.push(b'\n');
                both.extend(pem(key)?);
            }
            builder = builder.identity(Identity::from_pem(&both).map_err(|error| told(&error))?);
        }
    }
    builder.build().map_err(|error| told(&error))
}

fn pem(path: &Path) -> Result<Vec<u8>, NetError> {
    std::fs::read(path).map_err(|source| NetError::Pem { path: path.to_owned(), source })
}

/// Hosts of the proxies: where one is used, only its own name is resolved here.
fn proxies() -> Vec<String> {
    let host = |proxy: String| {
        let proxy = if proxy.contains("://") { proxy } else { format!("http://{proxy}") };
        Some(Url::parse(&proxy).ok()?.host_str()?.to_ascii_lowercase())
    };
    PROXIES.iter().filter_map(|name| std::env::var(name).ok()).filter_map(host).collect()
}

/// The system's resolver, without the addresses that may not be called.
struct Resolver {
    reach: Arc<Reach>,
    proxies: Vec<String>,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_ascii_lowercase();
        let reach = (!self.proxies.contains(&host)).then(|| self.reach.clone());
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            let allowed: Vec<_> = found
                .filter(|at| reach.as_ref().is_none_or(|reach| reach.allows_address(&host, at.ip())))
                .collect();
            if allowed.is_empty() {
                return Err(Box::new(NetError::Inside { host }) as Box<dyn std::error::Error + Send + Sync>);
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}
