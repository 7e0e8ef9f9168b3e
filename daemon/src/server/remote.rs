//! Runs servers that are reached by URL: client, login, proxy, and which transport was learned.
//!
//! Owner: `boot` makes one launcher for all servers. Promise: a start looks at files off the runtime;
//! what cannot be mended by a retry is said at once; nothing of a URL but origin and path is shown.
//! May touch: PEM files, server logs. May not touch: phases, listings.

use super::base_env::BaseEnv;
use super::launch::{Connection, Ignition, Launched, Launcher, Log, Process, Survivors};
use super::lifecycle::Failure;
use super::spawn::StdioLauncher;
use super::status::{Exit, Reporter};
use super::transport::auth::AuthSource;
use super::transport::http::client::{self, ClientError};
use super::transport::http::link::Link;
use super::transport::http::proxy;
use super::wire::WireLimits;
use super::wire::remote::Remote;
use crate::config::{HttpConfig, RemoteKind, ServerConfig, TransportConfig};
use crate::names::ServerName;
use crate::telemetry::server_log::ServerLogs;
use futures_util::future::BoxFuture;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use url::Url;

/// What was learned about servers and outlives the daemon.
pub trait Memory: Send + Sync {
    /// What [`learn`](Self::learn) was told last about `server`.
    fn recall(&self, server: &ServerName) -> Option<String>;

    /// Keeps `fact` about `server`, in place of an older one. Does not wait for the disk.
    fn learn(&self, server: &ServerName, fact: String);
}

/// What remote servers need from the daemon.
#[derive(Clone)]
pub struct RemoteLauncher {
    /// Proxies are taken from here, in the order of `env_pass`: `.env`, the daemon's variables, the
    /// user manager's.
    pub base: watch::Receiver<Arc<BaseEnv>>,
    /// Who has the logins.
    pub logins: Arc<dyn AuthSource>,
    /// Which transport a server turned out to have.
    pub memory: Arc<dyn Memory>,
    /// Logs of the servers.
    pub logs: ServerLogs,
}

/// Starts each server in its own way.
pub struct AnyLauncher {
    /// For commands.
    pub stdio: StdioLauncher,
    /// For URLs.
    pub remote: RemoteLauncher,
}

impl Launcher for AnyLauncher {
    fn prepare(
        &self,
        config: Arc<ServerConfig>,
        report: Reporter,
    ) -> BoxFuture<'static, Result<Ignition, Failure>> {
        match &config.transport {
            TransportConfig::Stdio(_) => self.stdio.prepare(config, report),
            TransportConfig::Http(http) => {
                let (remote, http) = (self.remote.clone(), http.clone());
                Box::pin(async move { remote.prepare(config.name.clone(), http, &report).await })
            }
        }
    }

    fn log(&self, server: &ServerName) -> Arc<dyn Log> {
        self.stdio.log(server)
    }
}

impl RemoteLauncher {
    async fn prepare(
        self,
        server: ServerName,
        config: HttpConfig,
        report: &Reporter,
    ) -> Result<Ignition, Failure> {
        let begun = Instant::now();
        let refuse = |text: String| {
            report.failed("resolve", begun.elapsed(), text.as_str());
            Failure::permanent(text)
        };
        let target =
            Url::parse(&config.url).map_err(|error| refuse(format!("`url` is no address: {error}")))?;
        let proxy = {
            let base = self.base.borrow();
            proxy::choose(&target, &|name| base.lookup(name).map(str::to_owned))
        };
        let built = {
            let (config, target, proxy) = (config.clone(), target.clone(), proxy.clone());
            tokio::task::spawn_blocking(move || client::build(&config, &target, proxy.as_deref())).await
        };
        let client = built
            .expect("building a client does not panic")
            .map_err(|error: ClientError| refuse(error.to_string()))?;
        let auth = self.logins.login(&server, &config);
        let link = Arc::new(Link::new(client, target, &config, auth, WireLimits::default().max_line));
        let way = match &proxy {
            Some(proxy) => format!("{} through {}", link.shown(), proxy_shown(proxy)),
            None => link.shown(),
        };
        report.done("resolve", begun.elapsed(), way.as_str());
        let kind = self.kind(&server, &config);
        let log = self.logs.open(&server);
        Ok(Box::new(move |generation| {
            log.note(&format!("connecting, generation {generation}, to {way}"));
            let fingerprint = fingerprint(&config);
            let learned = move |kind| self.memory.learn(&server, remembered(&fingerprint, kind));
            let connection = Connection::Remote(Remote { link, kind, learned: Box::new(learned) });
            let launched = Launched { pid: None, guard_pid: None, connection, process: Box::new(Nobody) };
            Box::pin(std::future::ready(Ok(launched)))
        }))
    }

    /// What the entry says, or what was learned with the very same entry.
    fn kind(&self, server: &ServerName, config: &HttpConfig) -> RemoteKind {
        let learned = self.memory.recall(server);
        let sse = remembered(&fingerprint(config), RemoteKind::Sse);
        match config.kind {
            RemoteKind::Auto if learned.as_deref() == Some(sse.as_str()) => RemoteKind::Sse,
            kind => kind,
        }
    }
}

fn remembered(fingerprint: &str, kind: RemoteKind) -> String {
    let kind = match kind {
        RemoteKind::Auto => "unknown",
        RemoteKind::Streamable => "http",
        RemoteKind::Sse => "sse",
    };
    format!("{kind} {fingerprint}")
}

/// Tells entries apart without keeping what they say.
fn fingerprint(config: &HttpConfig) -> String {
    let mut digest = Sha256::new();
    let mut add = |text: &str| {
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text.as_bytes());
    };
    add(&config.url);
    for (name, value) in &config.headers {
        add(name);
        add(value.expose());
    }
    add(if config.oauth.is_some() { "oauth" } else { "" });
    digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// A proxy without its password.
fn proxy_shown(proxy: &str) -> String {
    match Url::parse(proxy) {
        Ok(url) => format!("{}://{}", url.scheme(), url.host_str().unwrap_or("?")),
        Err(_) => "a proxy".to_owned(),
    }
}

/// The process of a server that is none of ours.
struct Nobody;

impl Process for Nobody {
    fn exited(&mut self) -> BoxFuture<'_, Exit> {
        Box::pin(std::future::pending())
    }

    fn stop(&mut self, _: Duration) -> BoxFuture<'_, Result<(), Survivors>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
