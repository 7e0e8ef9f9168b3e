//! What the entries need: a command that is there, an address that answers, a login that lasts, no twin.

use super::{Found, Subject};
use crate::config::{HttpConfig, OauthGrant, ServerConfig, ServerEntry, Severity, TransportConfig};
use crate::names::ServerName;
use crate::server::base_env::probe_disk;
use crate::server::environment;
use crate::server::transport::oauth::files::Files;
use crate::server::transport::oauth::record::Tokens;
use std::collections::BTreeMap;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};
use url::Url;

/// How long an address may take to take a connection.
const CONNECT: Duration = Duration::from_secs(3);
/// How long all of them together may take, names included.
const ALL: Duration = Duration::from_secs(4);
/// A login that ends sooner and cannot be renewed is worth a word, in seconds.
const SOON: u64 = 3 * 86_400;

/// Looks at every entry that is to be run.
pub(super) fn look(subject: &Subject<'_>) -> Vec<Found> {
    let enabled: Vec<&Arc<ServerConfig>> = subject
        .config
        .servers
        .values()
        .filter_map(|entry| match entry {
            ServerEntry::Enabled(server) => Some(server),
            ServerEntry::Disabled(_) | ServerEntry::Refused { .. } => None,
        })
        .collect();
    let now = subject.now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut found = twins(&enabled);
    let mut remote = Vec::new();
    for server in &enabled {
        let works = subject.working.contains(&server.name);
        match &server.transport {
            TransportConfig::Stdio(_) if works => {}
            TransportConfig::Stdio(stdio) => {
                if let Err(error) = environment::resolve(stdio, subject.base, &probe_disk) {
                    let hint = format!("install it, or correct `command` of {} in config.yaml", server.name);
                    let text = format!("cannot be started: {error}");
                    found.push(Found::new("command", Severity::Error, text, hint).about(&server.name));
                }
            }
            TransportConfig::Http(http) => {
                let wants = http.oauth.as_ref().is_some_and(|oauth| oauth.grant == OauthGrant::default());
                if wants {
                    let tokens = Files::of(&subject.paths.home, &server.name).load().tokens;
                    found.extend(login(&server.name, tokens.as_ref(), now));
                }
                if !works && direct(http, subject) {
                    remote.push((server.name.clone(), http.url.clone()));
                }
            }
        }
    }
    found.extend(unreachable(remote));
    found
}

/// A login that ends, or never was.
fn login(server: &ServerName, tokens: Option<&Tokens>, now: u64) -> Option<Found> {
    let hint = format!("hermesctl mcp login {server}");
    let (kind, severity, text) = match tokens {
        None => ("login-missing", Severity::Warning, "nobody has logged in yet".to_owned()),
        Some(tokens) if tokens.refresh.is_some() => return None,
        Some(tokens) => match tokens.expires_at {
            Some(end) if end <= now => {
                ("login-ended", Severity::Error, "its login has ended and cannot be renewed".to_owned())
            }
            Some(end) if end - now < SOON => {
                let left = (end - now) / 3600;
                let text = format!("its login ends in {left} h and cannot be renewed");
                ("login-ends", Severity::Warning, text)
            }
            Some(_) | None => return None,
        },
    };
    Some(Found::new(kind, severity, text, hint).about(server))
}

/// Whether the address is reached without a proxy, as far as the environment says.
fn direct(http: &HttpConfig, subject: &Subject<'_>) -> bool {
    let local = Url::parse(&http.url).ok().and_then(|url| url.host_str().map(is_local)).unwrap_or(false);
    let proxies = ["http_proxy", "https_proxy", "all_proxy"];
    let set = |name: &str| subject.base.lookup(name).is_some_and(|value| !value.is_empty());
    local || !proxies.iter().any(|name| set(name) || set(&name.to_uppercase()))
}

fn is_local(host: &str) -> bool {
    matches!(host, "localhost" | "[::1]") || host.starts_with("127.")
}

/// Tries all addresses at once; one whose name nobody knows in time counts as not reached.
fn unreachable(servers: Vec<(ServerName, String)>) -> Vec<Found> {
    let end = Instant::now() + ALL;
    let tries: Vec<_> = servers
        .into_iter()
        .map(|(server, url)| {
            let (told, heard) = mpsc::sync_channel(1);
            let tried = url.clone();
            // A look-up that hangs is left behind; the thread ends with it.
            let thread = thread::Builder::new().name("doctor".into()).spawn(move || {
                let _ = told.send(connect(&tried));
            });
            (server, url, thread.map(|_| heard))
        })
        .collect();
    let mut found = Vec::new();
    for (server, url, heard) in tries {
        // Out of threads: nothing is known.
        let Ok(heard) = heard else { continue };
        let left = end.saturating_duration_since(Instant::now());
        let why = match heard.recv_timeout(left) {
            Ok(Ok(())) => continue,
            Ok(Err(why)) => why,
            Err(_) => format!("no answer within {} s", ALL.as_secs()),
        };
        let address = address(&url).map_or(url, |(host, port)| format!("{host}:{port}"));
        let text = format!("cannot be reached at {address}: {why}");
        let hint = format!("start it, check the network, or correct `url` of {server} in config.yaml");
        found.push(Found::new("url", Severity::Error, text, hint).about(&server));
    }
    found
}

fn address(url: &str) -> Option<(String, u16)> {
    let url = Url::parse(url).ok()?;
    let host = url.host_str()?.trim_start_matches('[').trim_end_matches(']').to_owned();
    Some((host, url.port_or_known_default()?))
}

fn connect(url: &str) -> Result<(), String> {
    let (host, port) = address(url).ok_or("no address in it")?;
    let addresses =
        (host.as_str(), port).to_socket_addrs().map_err(|_| "nobody knows this name".to_owned())?;
    let mut why = "the name has no address".to_owned();
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(_) => return Ok(()),
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

/// Entries that run the same program with the same arguments and variables.
fn twins(servers: &[&Arc<ServerConfig>]) -> Vec<Found> {
    let mut same: BTreeMap<String, Vec<&ServerName>> = BTreeMap::new();
    for server in servers {
        let what = match &server.transport {
            TransportConfig::Stdio(stdio) => {
                let env: Vec<(&String, &str)> =
                    stdio.env.iter().map(|(name, value)| (name, value.expose())).collect();
                format!("{:?}", (&stdio.command, &stdio.args, env, &stdio.cwd))
            }
            TransportConfig::Http(http) => {
                let headers: Vec<(&String, &str)> =
                    http.headers.iter().map(|(name, value)| (name, value.expose())).collect();
                format!("{:?}", (&http.url, headers))
            }
        };
        same.entry(what).or_default().push(&server.name);
    }
    let twins = same.into_values().filter(|names| names.len() > 1);
    twins
        .map(|names| {
            let all: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
            let text = format!("the servers {} are the same program with the same settings", all.join(", "));
            let hint =
                "keep one of them; what clients may see of it is decided by `hermesd.profiles`".to_owned();
            Found::new("twins", Severity::Info, text, hint)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    fn tokens(expires_at: Option<u64>, refresh: Option<&str>) -> Tokens {
        Tokens {
            access: Secret::new("a".to_owned()),
            refresh: refresh.map(|text| Secret::new(text.to_owned())),
            expires_at,
            lifetime: None,
            scope: None,
        }
    }

    #[test]
    fn a_login_is_worth_a_word_when_nothing_renews_it() {
        let kind =
            |tokens: Option<&Tokens>| login(&ServerName::new("s"), tokens, 1_000_000).map(|found| found.kind);
        assert_eq!(kind(None), Some("login-missing"));
        assert_eq!(kind(Some(&tokens(Some(999_999), None))), Some("login-ended"));
        assert_eq!(kind(Some(&tokens(Some(1_010_000), None))), Some("login-ends"));
        assert_eq!(kind(Some(&tokens(Some(2_000_000), None))), None);
        assert_eq!(kind(Some(&tokens(None, None))), None);
        assert_eq!(kind(Some(&tokens(Some(1), Some("r")))), None, "hermesd renews it");
    }

    #[test]
    fn an_address_that_takes_no_connection_is_found_and_its_secrets_are_not_shown() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let found = unreachable(vec![
            (ServerName::new("up"), format!("http://{open}/mcp")),
            (ServerName::new("down"), format!("http://u:hunter22@{closed}/mcp?key=hunter33")),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].finding.message.contains(&closed.to_string()), "{found:?}");
        assert!(!format!("{found:?}").contains("hunter"), "{found:?}");
    }
}
