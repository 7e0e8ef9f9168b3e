//! Malware check of packages before their first start, against an OSV database.
//!
//! Owner: one [`Osv`] in `boot`, shared. Promise: only `MAL-*` advisories speak against a package; no
//! answer within 10 s lets it pass and the verdict says so; answers are kept for 24 h on disk.
//! Never on the path of a call. May touch: its cache file, the network. May not touch: servers.

use crate::server::package::Package;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::OnceCell;

/// Where questions go unless `OSV_ENDPOINT` says otherwise.
pub const DEFAULT_ENDPOINT: &str = "https://api.osv.dev/v1/query";
/// Longest wait for a whole check, all pages.
pub const LIMIT: Duration = Duration::from_secs(10);
/// How long an answer counts.
pub const KEEP: Duration = Duration::from_secs(24 * 60 * 60);

/// Answers kept at most; the oldest go first.
const MAX_KEPT: usize = 1000;
/// Largest answer in bytes.
const MAX_ANSWER: usize = 8 * 1024 * 1024;
/// Pages of one answer.
const MAX_PAGES: usize = 5;

/// What is known of one package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No advisory says malware.
    Clean,
    /// The package, or the version asked for, is malware: it must not be started.
    Malware {
        /// Advisories, `MAL-*`.
        ids: Vec<String>,
    },
    /// Some versions were malware and the config names none: it may start, a version should be named.
    SomeVersions {
        /// Advisories, `MAL-*`.
        ids: Vec<String>,
        /// The versions named by them, at most 20.
        versions: Vec<String>,
    },
    /// There was no answer: it may start, and status says that it was not checked.
    Unchecked {
        /// Why, one sentence, no addresses with credentials.
        reason: String,
    },
}

impl Verdict {
    /// One sentence for status; `None` when there is nothing to say.
    pub fn finding(&self, package: &Package) -> Option<String> {
        match self {
            Self::Clean => None,
            Self::Malware { ids } => Some(format!("{package} is known malware ({})", ids.join(", "))),
            Self::SomeVersions { ids, versions } => Some(format!(
                "some versions of {package} were malware ({}: {}); name an exact version",
                ids.join(", "),
                versions.join(", ")
            )),
            Self::Unchecked { reason } => Some(format!("{package} was not checked for malware: {reason}")),
        }
    }
}

/// The checker: one HTTP client and the answers of the last 24 h.
pub struct Osv {
    /// Made for the first question: reading the machine's certificates takes time and memory, and who
    /// starts no packages never asks.
    client: OnceCell<reqwest::Client>,
    endpoint: String,
    cache_file: PathBuf,
    /// Locked for map operations only, never across an await.
    kept: Mutex<BTreeMap<String, Kept>>,
}

impl std::fmt::Debug for Osv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Osv").field("cache_file", &self.cache_file).finish_non_exhaustive()
    }
}

/// One kept answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// Seconds since the epoch.
    at: u64,
    verdict: Verdict,
}

impl Osv {
    /// A checker that asks `endpoint` (`OSV_ENDPOINT`, trimmed; `None` or empty: the public database)
    /// and keeps answers in `cache_file`. Reads that file; a damaged one counts as empty. Blocking.
    pub fn new(endpoint: Option<&str>, cache_file: PathBuf) -> Self {
        let endpoint =
            endpoint.map(str::trim).filter(|text| !text.is_empty()).unwrap_or(DEFAULT_ENDPOINT).to_owned();
        let kept = std::fs::read(&cache_file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Self { client: OnceCell::new(), endpoint, cache_file, kept: Mutex::new(kept.unwrap_or_default()) }
    }

    /// What is known of `package` at `now`: the kept answer if it is younger than 24 h, else a new one.
    /// At most 10 s. An answer that never came is not kept, so that the next start asks again.
    ///
    /// # Cancel safety
    /// Cancel safe: at worst the answer is not kept.
    pub async fn check(&self, package: &Package, now: SystemTime) -> Verdict {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let key = key(package);
        if let Some(verdict) = self.known(&key, now) {
            return verdict;
        }
        let verdict = match tokio::time::timeout(LIMIT, self.ask(package)).await {
            Ok(Ok(advisories)) => judge(package, &advisories),
            Ok(Err(failed)) => return Verdict::Unchecked { reason: failed.to_string() },
            Err(_) => {
                return Verdict::Unchecked { reason: format!("no answer within {} s", LIMIT.as_secs()) };
            }
        };
        self.keep(key, Kept { at: now, verdict: verdict.clone() }).await;
        verdict
    }

    fn known(&self, key: &str, now: u64) -> Option<Verdict> {
        let kept = self.kept.lock().expect("no holder of the lock panics");
        kept.get(key).filter(|kept| fresh(kept, now)).map(|kept| kept.verdict.clone())
    }

    async fn keep(&self, key: String, answer: Kept) {
        let text = {
            let mut kept = self.kept.lock().expect("no holder of the lock panics");
            let now = answer.at;
            kept.insert(key, answer);
            kept.retain(|_, kept| fresh(kept, now));
            while kept.len() > MAX_KEPT {
                let oldest = kept.iter().min_by_key(|(_, kept)| kept.at).map(|(key, _)| key.clone());
                kept.remove(&oldest.expect("a map over its limit is not empty"));
            }
            serde_json::to_vec(&*kept).expect("strings and numbers serialise")
        };
        let file = self.cache_file.clone();
        // Without the file the answer is kept in memory, which is enough for this run.
        let written = tokio::task::spawn_blocking(move || write_private(&file, &text)).await;
        if let Ok(Err(error)) = written {
            tracing::debug!(%error, "malware check: answers not written");
        }
    }

    async fn ask(&self, package: &Package) -> Result<Vec<Advisory>, AskError> {
        let client = self.client.get_or_try_init(|| client(&self.endpoint)).await?;
        let mut advisories = Vec::new();
        let mut page_token = None;
        for _ in 0..MAX_PAGES {
            let question = Question {
                package: QuestionPackage { name: &package.name, ecosystem: package.ecosystem.as_str() },
                version: package.version.as_deref(),
                page_token: page_token.as_deref(),
            };
            let body = serde_json::to_vec(&question).expect("strings serialise");
            let request = client.post(&self.endpoint).header("content-type", "application/json").body(body);
            let mut response =
                request.send().await.map_err(|error| AskError::Transport(error.without_url()))?;
            if !response.status().is_success() {
                return Err(AskError::Status(response.status().as_u16()));
            }
            let mut bytes = Vec::new();
            while let Some(chunk) =
                response.chunk().await.map_err(|error| AskError::Transport(error.without_url()))?
            {
                bytes.extend_from_slice(&chunk);
                if bytes.len() > MAX_ANSWER {
                    return Err(AskError::TooLarge);
                }
            }
            let answer: Answer = serde_json::from_slice(&bytes).map_err(|_| AskError::NotOsv)?;
            advisories.extend(answer.vulns.into_iter().filter(|advisory| advisory.id.starts_with("MAL-")));
            page_token = answer.next_page_token.filter(|token| !token.is_empty());
            if page_token.is_none() {
                break;
            }
        }
        Ok(advisories)
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("no HTTP client ({})", root(.0))]
    Client(reqwest::Error),
    #[error("the database cannot be reached ({})", root(.0))]
    Transport(reqwest::Error),
    #[error("the database answered with status {0}")]
    Status(u16),
    #[error("the answer is larger than {} MiB", MAX_ANSWER / 1024 / 1024)]
    TooLarge,
    #[error("the answer is no OSV answer")]
    NotOsv,
}

/// The HTTP client, made away from the runtime: it reads files. Without a proxy for this machine.
async fn client(endpoint: &str) -> Result<reqwest::Client, AskError> {
    let on_this_machine = is_loopback(endpoint);
    let made = tokio::task::spawn_blocking(move || {
        // Another part of the daemon may have installed it already; both install the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = reqwest::Client::builder()
            .user_agent(concat!("hermesd/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::limited(3))
            .timeout(LIMIT)
            .pool_max_idle_per_host(0); // a handful of questions a day; no idle connections between them
        if on_this_machine { builder.no_proxy() } else { builder }.build()
    });
    made.await.expect("making a client does not panic").map_err(AskError::Client)
}

/// The innermost cause: "connection refused" says more than "error sending request".
fn root(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[derive(Serialize)]
struct Question<'a> {
    package: QuestionPackage<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    page_token: Option<&'a str>,
}

#[derive(Serialize)]
struct QuestionPackage<'a> {
    name: &'a str,
    ecosystem: &'a str,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    vulns: Vec<Advisory>,
    next_page_token: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct Advisory {
    id: String,
    withdrawn: Option<String>,
    #[serde(default)]
    affected: Vec<Affected>,
}

#[derive(Debug, Clone, Deserialize)]
struct Affected {
    #[serde(default)]
    versions: Vec<String>,
    #[serde(default)]
    ranges: Vec<Range>,
}

#[derive(Debug, Clone, Deserialize)]
struct Range {
    #[serde(default)]
    events: Vec<Event>,
}

#[derive(Debug, Clone, Deserialize)]
struct Event {
    introduced: Option<String>,
    fixed: Option<String>,
    last_affected: Option<String>,
}

impl Advisory {
    /// Whether it speaks of some versions only: a popular package that was taken over for a day.
    /// Without any statement about versions it speaks of all.
    fn some_versions_only(&self) -> bool {
        let range_for_ever = |range: &Range| {
            let from_start = range.events.iter().any(|e| e.introduced.as_deref() == Some("0"));
            let ends = range.events.iter().any(|e| e.fixed.is_some() || e.last_affected.is_some());
            from_start && !ends
        };
        let some = |affected: &Affected| {
            let says_versions = !affected.versions.is_empty() || !affected.ranges.is_empty();
            says_versions && !affected.ranges.iter().any(range_for_ever)
        };
        !self.affected.is_empty() && self.affected.iter().all(some)
    }
}

/// Advisories (already `MAL-*` only) to a verdict. With a version the database has filtered; without
/// one, advisories about single versions must not stop a package whose other versions are fine.
fn judge(package: &Package, advisories: &[Advisory]) -> Verdict {
    let current: Vec<&Advisory> = advisories.iter().filter(|advisory| advisory.withdrawn.is_none()).collect();
    let ids = |list: &[&Advisory]| list.iter().map(|advisory| advisory.id.clone()).collect::<Vec<_>>();
    if current.is_empty() {
        return Verdict::Clean;
    }
    let (some, whole): (Vec<&Advisory>, Vec<&Advisory>) =
        current.iter().partition(|a| a.some_versions_only());
    if package.version.is_some() {
        return Verdict::Malware { ids: ids(&current) };
    }
    if !whole.is_empty() {
        return Verdict::Malware { ids: ids(&whole) };
    }
    let versions =
        some.iter().flat_map(|advisory| &advisory.affected).flat_map(|affected| &affected.versions);
    Verdict::SomeVersions { ids: ids(&some), versions: versions.take(20).cloned().collect() }
}

fn fresh(kept: &Kept, now: u64) -> bool {
    // An answer from the future comes from a clock that was wrong; ask again.
    now.checked_sub(kept.at).is_some_and(|age| age < KEEP.as_secs())
}

fn key(package: &Package) -> String {
    let version = package.version.as_deref().unwrap_or("");
    format!("{} {} {version}", package.ecosystem.as_str(), package.name)
}

fn is_loopback(endpoint: &str) -> bool {
    let host = reqwest::Url::parse(endpoint).ok().and_then(|url| url.host_str().map(str::to_owned));
    host.is_some_and(|host| {
        let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    })
}

/// Replaces `file` atomically; mode 0600.
fn write_private(file: &Path, text: &[u8]) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let mut temp = tempfile::NamedTempFile::new_in(folder)?;
    temp.write_all(text)?;
    temp.persist(file)?;
    Ok(())
}

#[cfg(test)]
#[path = "osv_tests.rs"]
mod tests;
