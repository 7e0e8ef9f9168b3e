//! The configuration in force, and the one place that applies a new one.
//!
//! Owner: the task in [`ReloadTask::run`]. Single flight: SIGHUP, the file watcher and the admin
//! rpc queue up behind each other. Promise: servers whose effective configuration did not change
//! keep running with their calls; an unusable file changes nothing and says so in status.
//! May not touch: sockets, sessions.

use crate::catalog::build::Builtin;
use crate::catalog::keep;
use crate::catalog::snapshot::Offered;
use crate::config::{self, Change, Config, ConversationsMode, Finding, Loaded, ServerEntry, Sources, State};
use crate::conversations::{Conversations, Effect, Platforms};
use crate::names::ServerName;
use crate::server::Servers;
use crate::server::handle::Apply;
use crate::server::lifecycle::StopReason;
use crate::server::supervisor::{Shared, Supervisor};
use crate::store::Store;
use crate::tasks::TaskGroup;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long the server of a removed or changed entry may take to end.
const REMOVE_BUDGET: Duration = Duration::from_secs(40);

/// Reloads that may wait; more are told to try again.
const QUEUE: usize = 8;

/// What a reload did.
#[derive(Debug, Clone, Default)]
pub struct Reloaded {
    /// `false`: the file is not usable, the last good configuration stays.
    pub applied: bool,
    /// Names of new servers.
    pub added: Vec<String>,
    /// Names of servers that are gone.
    pub removed: Vec<String>,
    /// Names of servers whose configuration changed.
    pub changed: Vec<String>,
    /// How many were left alone.
    pub unchanged: u32,
    /// How long it took, besides starts.
    pub took: Duration,
    /// What is to be known about the file.
    pub findings: Vec<Finding>,
}

/// Handle on the task. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Reloader {
    asks: mpsc::Sender<oneshot::Sender<Reloaded>>,
    facts: Arc<Mutex<Facts>>,
}

#[derive(Debug, Default)]
struct Facts {
    state: String,
    conversations: String,
}

impl Reloader {
    /// Reads the configuration again and applies the difference.
    ///
    /// # Cancel safety
    /// Cancel safe: a reload that has begun goes on.
    pub async fn reload(&self) -> Reloaded {
        let (done, reloaded) = oneshot::channel();
        if self.asks.send(done).await.is_err() {
            return Reloaded::default();
        }
        reloaded.await.unwrap_or_default()
    }

    /// Asks for a reload without waiting; one that is queued already serves for this ask too.
    pub fn poke(&self) {
        let (done, _) = oneshot::channel();
        let _ = self.asks.try_send(done);
    }

    /// Returns when the task is gone: it ended with its group, or it panicked.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ended(&self) {
        self.asks.closed().await;
    }

    /// A handle on no task; the task "ends" with the second part.
    #[cfg(test)]
    pub(crate) fn for_tests() -> (Self, mpsc::Receiver<oneshot::Sender<Reloaded>>) {
        let (asks, queue) = mpsc::channel(QUEUE);
        (Self { asks, facts: Arc::default() }, queue)
    }

    /// `ok`, or why the last good configuration is still in force.
    pub fn state(&self) -> String {
        self.facts.lock().expect("nothing panics while holding it").state.clone()
    }

    /// `on` or `off`, and why.
    pub fn conversations(&self) -> String {
        self.facts.lock().expect("nothing panics while holding it").conversations.clone()
    }
}

/// What a reload needs of the rest of the daemon.
pub struct ReloadTask {
    /// HERMES_HOME.
    pub home: PathBuf,
    /// The daemon's environment when it started.
    pub env: BTreeMap<String, String>,
    /// The user's home.
    pub user_home: Option<PathBuf>,
    /// The conversations, for `conversations: auto`.
    pub conversations: Conversations,
    /// What supervisors share.
    pub servers: Shared,
    /// Where the configuration goes.
    pub config: watch::Sender<Arc<Config>>,
    /// Where the handles go.
    pub handles: watch::Sender<Arc<Servers>>,
    /// Where the conversation tools go.
    pub builtins: watch::Sender<Arc<Vec<Builtin>>>,
    /// Called with each configuration before it is applied (redaction, limits).
    pub before: Box<dyn Fn(&Config) + Send>,
    /// What is to be known besides the file (modes of files, the store); blocking.
    pub machine: Arc<dyn Fn() -> Vec<Finding> + Send + Sync>,
    /// Where the last known listings are.
    pub store: Store,
    /// The groups of the running servers.
    pub groups: BTreeMap<ServerName, TaskGroup>,
}

impl ReloadTask {
    /// Applies the first configuration and starts the task; servers are started when `go` is
    /// cancelled, which `boot` does once clients can connect.
    pub async fn start(mut self, tasks: &TaskGroup) -> Reloader {
        let (asks, queue) = mpsc::channel(QUEUE);
        let facts = Arc::new(Mutex::new(Facts::default()));
        let reloader = Reloader { asks, facts: facts.clone() };
        let first = self.reload(&facts).await;
        tracing::info!(servers = first.added.len(), findings = first.findings.len(), "configuration loaded");
        let stop = tasks.stop_signal();
        tasks.spawn(self.run(queue, facts, stop));
        reloader
    }

    async fn run(
        mut self,
        mut queue: mpsc::Receiver<oneshot::Sender<Reloaded>>,
        facts: Arc<Mutex<Facts>>,
        stop: CancellationToken,
    ) {
        loop {
            let ask = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                ask = queue.recv() => ask,
            };
            let Some(done) = ask else { return };
            let mut waiting = vec![done];
            while let Ok(more) = queue.try_recv() {
                waiting.push(more);
            }
            let reloaded = self.reload(&facts).await;
            tracing::info!(
                applied = reloaded.applied,
                added = reloaded.added.join(" "),
                removed = reloaded.removed.join(" "),
                changed = reloaded.changed.join(" "),
                unchanged = reloaded.unchanged,
                "configuration reloaded"
            );
            for done in waiting {
                let _ = done.send(reloaded.clone());
            }
        }
    }

    async fn reload(&mut self, facts: &Mutex<Facts>) -> Reloaded {
        let started = Instant::now();
        let (home, env, user_home) = (self.home.clone(), self.env.clone(), self.user_home.clone());
        let machine = self.machine.clone();
        let loaded = tokio::task::spawn_blocking(move || {
            let sources = Sources { home: &home, env: &env, user_home: user_home.as_deref() };
            let mut loaded = config::load(&sources);
            loaded.config.findings.extend(machine());
            // Stable: within one severity the file comes first, by line.
            loaded.config.findings.sort_by_key(|finding| finding.severity);
            loaded
        });
        let Loaded { config, state, .. } = loaded.await.expect("loading a configuration does not panic");
        report(&config);
        let first = self.config.borrow().file.as_os_str().is_empty();
        let unusable = match &state {
            State::Ok if !first && !self.config.borrow().servers.is_empty() => emptied(&config.file),
            State::Ok => None,
            State::Unreadable { reason } => Some(reason.clone()),
        };
        let text = unusable.clone().unwrap_or_else(|| "ok".to_owned());
        facts.lock().expect("nothing panics while holding it").state = text;
        if let (Some(reason), false) = (&unusable, first) {
            tracing::error!(reason, "configuration not usable, the last good one stays");
            let mut kept = Config::clone(&self.config.borrow());
            kept.findings.clone_from(&config.findings);
            self.config.send_replace(Arc::new(kept));
            return Reloaded { findings: config.findings, took: started.elapsed(), ..Reloaded::default() };
        }
        let mut reloaded = self.apply(Arc::new(config), facts).await;
        reloaded.applied = unusable.is_none();
        reloaded.took = started.elapsed();
        reloaded
    }

    async fn apply(&mut self, new: Arc<Config>, facts: &Mutex<Facts>) -> Reloaded {
        let old = self.config.borrow().clone();
        (self.before)(&new);
        let plan = config::plan(&old, &new);
        let mut handles = Servers::clone(&self.handles.borrow());
        let mut reloaded = Reloaded {
            unchanged: u32::try_from(plan.unchanged.len()).unwrap_or(u32::MAX),
            ..Reloaded::default()
        };
        for name in &plan.removed {
            self.remove(name, &mut handles);
            reloaded.removed.push(name.to_string());
        }
        for (name, change) in &plan.changed {
            if let (Some(handle), Some(ServerEntry::Enabled(config))) =
                (handles.get(name), new.servers.get(name.as_str()))
            {
                let apply = match change {
                    Change::Restart => Apply::Restart,
                    Change::Apply => Apply::InPlace,
                };
                handle.instances().reconfigure(config.clone(), apply).await;
            }
            reloaded.changed.push(name.to_string());
        }
        let stored = if plan.added.is_empty() { BTreeMap::new() } else { keep::load(&self.store).await };
        for name in &plan.added {
            if let Some(ServerEntry::Enabled(config)) = new.servers.get(name.as_str()) {
                let group = self.servers.tasks.child();
                let shared = Shared { tasks: group.clone(), ..self.servers.clone() };
                let known = keep::known(config, &stored);
                handles.insert(name.clone(), Supervisor::start(config.clone(), known, shared));
                self.groups.insert(name.clone(), group);
            }
            reloaded.added.push(name.to_string());
        }
        self.offer_conversations(&new, facts);
        reloaded.findings.clone_from(&new.findings);
        self.config.send_replace(new);
        self.handles.send_replace(Arc::new(handles));
        reloaded
    }

    /// Ends a server whose entry is gone; the reload does not wait for it.
    fn remove(&mut self, name: &ServerName, handles: &mut Servers) {
        let handle = handles.remove(name);
        if let Some(group) = self.groups.remove(name) {
            let name = name.clone();
            let limit = self.servers.drain_limit;
            let ends = self.servers.tasks.stop_signal();
            self.servers.tasks.spawn(async move {
                if let Some(handle) = handle {
                    // Calls that are in flight get their answer, as they do when an entry changes.
                    let drained = async {
                        for (_, handle) in handle.instances().all() {
                            handle.slots().drained().await;
                        }
                    };
                    tokio::select! {
                        () = drained => {}
                        () = tokio::time::sleep(limit) => {}
                        () = ends.cancelled() => {}
                    }
                    handle.stop(StopReason::Removed).await;
                }
                if group.finish(REMOVE_BUDGET).await != crate::tasks::Finished::All {
                    tracing::error!(server = %name, "a removed server did not end in time");
                }
            });
        }
    }

    fn offer_conversations(&self, config: &Config, facts: &Mutex<Facts>) {
        let platforms = if config.platforms { Platforms::Configured } else { Platforms::Absent };
        let (offered, why) = match config.daemon.conversations {
            ConversationsMode::On => (Some(Offered::Everybody), "on (configured)"),
            ConversationsMode::Off => (None, "off (configured)"),
            ConversationsMode::Auto if self.conversations.present(platforms) => {
                (Some(Offered::Everybody), "on (auto: conversations exist)")
            }
            ConversationsMode::Auto => {
                (Some(Offered::WhereAsked), "off (auto: no state.db, sessions.json or platforms)")
            }
        };
        facts.lock().expect("nothing panics while holding it").conversations = why.to_owned();
        self.builtins.send_replace(Arc::new(offered.map(builtins).unwrap_or_default()));
    }
}

fn builtins(offered: Offered) -> Vec<Builtin> {
    let read_only = |effect| matches!(effect, Effect::Reads);
    Conversations::tools()
        .into_iter()
        .map(|tool| Builtin {
            name: tool.name.to_string(),
            json: tool.json,
            read_only: read_only(tool.effect),
            offered,
        })
        .collect()
}

/// Whether the file is missing or has no byte. Editors and sync programs leave it so for a moment, and
/// a mistake would end every server; whoever means it writes `mcp_servers: {}`.
fn emptied(file: &std::path::Path) -> Option<String> {
    match std::fs::metadata(file) {
        Ok(meta) if meta.len() > 0 => None,
        Ok(_) => Some("is empty; write `mcp_servers: {}` to end all servers".to_owned()),
        Err(_) => Some("is missing; write one with `mcp_servers: {}` to end all servers".to_owned()),
    }
}

fn report(config: &Config) {
    for finding in &config.findings {
        let (line, key, hint) = (finding.line, &finding.key, &finding.hint);
        match finding.severity {
            crate::config::Severity::Error => tracing::error!(line, key, hint, "config: {}", finding.message),
            crate::config::Severity::Warning => {
                tracing::warn!(line, key, hint, "config: {}", finding.message)
            }
            crate::config::Severity::Info => tracing::info!(line, key, hint, "config: {}", finding.message),
        }
    }
}
