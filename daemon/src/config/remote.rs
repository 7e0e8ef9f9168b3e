//! The shape of an entry that is reached by URL.

use crate::secret::Secret;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// A remote server as configured.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpConfig {
    /// Checked http(s) URL.
    pub url: String,
    /// Headers of each request; values may be secrets.
    pub headers: BTreeMap<String, Secret>,
    /// `transport:`. Default: Streamable HTTP, or legacy SSE where that is refused.
    pub kind: RemoteKind,
    /// `auth: oauth`.
    pub oauth: Option<OauthConfig>,
    /// TLS verification.
    pub tls: TlsConfig,
    /// Credentials over plain http to another host are allowed. Default false.
    pub allow_insecure: bool,
}

/// `transport:` of a server that is reached by URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RemoteKind {
    /// Nothing is written: Streamable HTTP, with legacy HTTP+SSE where the server refuses that.
    #[default]
    Auto,
    /// Streamable HTTP and nothing else.
    Streamable,
    /// Legacy HTTP+SSE and nothing else.
    Sse,
}

/// `oauth:` of a server.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OauthConfig {
    /// Pre-registered client.
    pub client_id: Option<String>,
    /// Its secret.
    pub client_secret: Option<Secret>,
    /// Scopes to ask for.
    pub scope: Option<String>,
    /// Fixed callback port; 0 or absent: a free one.
    pub redirect_port: Option<u16>,
    /// Shown by the authorization server.
    pub client_name: Option<String>,
    /// How long a login may take. Default 300 s.
    pub timeout: Option<Duration>,
    /// How tokens are had. Default: a person logs in.
    pub grant: OauthGrant,
    /// https URL of a document that describes hermesd as a client; it is then the `client_id` where the
    /// authorization server takes such documents.
    pub client_metadata_url: Option<String>,
    /// The server's documents may name hosts of the private network. Default false: only where `url`
    /// itself is a private address.
    pub private_network: bool,
}

/// How tokens are had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OauthGrant {
    /// By a person in a browser.
    #[default]
    AuthorizationCode,
    /// By `client_id` and `client_secret` alone.
    ClientCredentials,
}

/// TLS options of a remote server.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TlsConfig {
    /// `ssl_verify: false`.
    pub insecure: bool,
    /// `ssl_verify: <path>`.
    pub ca_file: Option<PathBuf>,
    /// Client certificate (PEM).
    pub client_cert: Option<PathBuf>,
    /// Its key (PEM); `None`: in the same file.
    pub client_key: Option<PathBuf>,
    /// Password of the key.
    pub client_key_password: Option<Secret>,
}
