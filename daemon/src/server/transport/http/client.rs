//! One HTTP client for one generation of a remote server: TLS, proxy, keep-alive.
//!
//! Owner: the launcher builds it, the link keeps it. Promise: certificates are checked unless the
//! entry says otherwise; redirects are never followed here; a connection that died while it was idle
//! is found out before a request is put on it. [`build`] reads files: for blocking threads.

use crate::config::{HttpConfig, TlsConfig};
use reqwest::tls::{Certificate, Identity};
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::Url;

/// Longest wait for a connection, TLS included. The start budget and a call's own limits still count.
const CONNECT: Duration = Duration::from_secs(15);

/// Idle connections are closed after this: common servers close theirs after 5 s, and a request that
/// meets such a close half-way has an unknown outcome.
const IDLE: Duration = Duration::from_secs(4);

/// Silence on the network until a connection is probed, and between probes.
const PROBE: Duration = Duration::from_secs(15);

/// Probes without an answer until a connection is given up.
const PROBES: u32 = 3;

/// Why there is no client. A retry cannot mend it until somebody changes something.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A PEM file cannot be read.
    #[error("`{key}`: {} cannot be read: {source}", path.display())]
    Unreadable {
        /// The key of the entry.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's word.
        source: std::io::Error,
    },
    /// A PEM file holds nothing usable.
    #[error("`{key}`: {} holds no usable {what}", path.display())]
    Unusable {
        /// The key of the entry.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
    /// The key is encrypted and cannot be opened.
    #[error("`client_cert`: the key in {} cannot be decrypted: {reason}", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
        /// Wrong or missing password, or a kind of encryption that is not known.
        reason: &'static str,
    },
    /// The proxy's address is unusable.
    #[error("the proxy from the environment cannot be used: {reason}")]
    Proxy {
        /// What is wrong; holds no password.
        reason: String,
    },
    /// TLS cannot be set up, e.g. because the system has no CA certificates.
    #[error("TLS cannot be set up: {reason}")]
    Tls {
        /// The library's word.
        reason: String,
    },
}

/// Builds the client for `target`. Blocking.
///
/// # Errors
/// [`ClientError`].
pub fn build(config: &HttpConfig, target: &Url, proxy: Option<&str>) -> Result<reqwest::Client, ClientError> {
    builder(&config.tls, target, proxy)?.build().map_err(|error| ClientError::Tls { reason: root_of(&error) })
}

/// The same before its last step, for who wants more of it. Blocking.
///
/// # Errors
/// [`ClientError`].
pub(crate) fn builder(
    config: &TlsConfig,
    target: &Url,
    proxy: Option<&str>,
) -> Result<reqwest::ClientBuilder, ClientError> {
    // Another part of the daemon may have installed it already; both install the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("hermesd/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE)
        .tcp_nodelay(true)
        .tcp_keepalive(PROBE)
        .tcp_keepalive_interval(PROBE)
        .tcp_keepalive_retries(PROBES)
        .http2_keep_alive_interval(PROBE)
        .http2_keep_alive_timeout(PROBE)
        // What the environment says is decided in `proxy`.
        .no_proxy();
    #[cfg(target_os = "linux")]
    {
        builder = builder.tcp_user_timeout(PROBE * PROBES);
    }
    if let Some(proxy) = proxy {
        let proxy = reqwest::Proxy::all(proxy)
            .map_err(|error| ClientError::Proxy { reason: root_of(&error.without_url()) })?;
        builder = builder.proxy(proxy);
    }
    if target.scheme() == "https" {
        return tls(builder, config);
    }
    // Never used, and reading the system's certificates takes time and may fail.
    Ok(builder.tls_certs_only([]))
}

/// The certificates of `ssl_verify`. Blocking.
///
/// # Errors
/// [`ClientError`].
pub(crate) fn authorities(path: &Path) -> Result<Vec<Certificate>, ClientError> {
    let pem = read("ssl_verify", path)?;
    let unusable = || ClientError::Unusable { key: "ssl_verify", path: path.to_owned(), what: "certificate" };
    let certificates = Certificate::from_pem_bundle(&pem).map_err(|_| unusable())?;
    if certificates.is_empty() {
        return Err(unusable());
    }
    Ok(certificates)
}

fn tls(mut builder: reqwest::ClientBuilder, tls: &TlsConfig) -> Result<reqwest::ClientBuilder, ClientError> {
    if tls.insecure {
        builder = builder.tls_danger_accept_invalid_certs(true);
    } else if let Some(path) = &tls.ca_file {
        builder = builder.tls_certs_only(authorities(path)?);
    }
    if let Some(cert) = &tls.client_cert {
        builder = builder.identity(identity(tls, cert)?);
    }
    Ok(builder)
}

fn identity(tls: &TlsConfig, cert: &Path) -> Result<Identity, ClientError> {
    let mut pem = read("client_cert", cert)?;
    let key_path = tls.client_key.as_deref().unwrap_or(cert);
    if let Some(key) = &tls.client_key {
        pem.push(b'\n');
        pem.extend(read("client_key", key)?);
    }
    let pem = super::super::pem_key::unlocked(pem, tls.client_key_password.as_ref())
        .map_err(|reason| ClientError::Locked { path: key_path.to_owned(), reason })?;
    Identity::from_pem(&pem).map_err(|_| ClientError::Unusable {
        key: "client_cert",
        path: cert.to_owned(),
        what: "certificate with its key",
    })
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, ClientError> {
    std::fs::read(path).map_err(|source| ClientError::Unreadable { key, path: path.to_owned(), source })
}

/// The innermost reason of an error, without the layers around it.
pub(crate) fn root_of(error: &dyn std::error::Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}
