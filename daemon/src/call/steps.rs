//! The state behind the steps of the road: limits, validators, counters, the audit.
//!
//! Owner of all of it: [`CallPath`], shared by every session. Std mutexes, never held across an
//! await. Promise: what is made for a tool (validator, metrics) is made once and found again by one
//! look-up. May not touch: sessions, processes.

use super::answer::LARGE;
use super::approval::{ApprovalError, Desk};
use super::calendar::Calendar;
use super::error::CallError;
use super::placement::Placement;
use super::record::Meter;
use super::route::Upstream;
use super::seal::SealKey;
use super::suspended::Suspended;
use super::validate::{Validator, Validators};
use super::{Caller, ToolCall};
use crate::catalog::snapshot::{Catalog, ItemKind, Origin, Tool};
use crate::config::{Config, ServerConfig};
use crate::conversations::Conversations;
use crate::names::{ClientId, ProfileName, RawTool, ServerName};
use crate::policy::limits::{Ask, Limits};
use crate::redact::Redactor;
use crate::sampling::Sampler;
use crate::server::Servers;
use crate::server::handle::ServerHandle;
use crate::server::news::followers::Followers;
use crate::store::{Day, Store};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::stats::Stats;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The number under which all admin commands call; sessions count from 1.
pub const ADMIN: ClientId = ClientId(0);

/// How long the start waits for the quota that was used before it.
const RESTORE_LIMIT: Duration = Duration::from_secs(2);

/// What the road needs to know of the rest of the daemon.
#[derive(Debug)]
pub struct Surroundings {
    /// Handles of all servers.
    pub servers: watch::Receiver<Arc<Servers>>,
    /// The configuration in force.
    pub config: watch::Receiver<Arc<Config>>,
    /// What clients see now.
    pub catalog: watch::Receiver<Arc<Catalog>>,
    /// The built-in server `hermes`.
    pub conversations: Conversations,
    /// Seals what clients have to bring back.
    pub seal: SealKey,
    /// Masks secrets as the configuration in force has it.
    pub redactor: watch::Receiver<Arc<Redactor>>,
    /// Where audit rows and quota go.
    pub store: Store,
    /// Counts for Prometheus.
    pub metrics: Metrics,
    /// Counts for `stats`.
    pub stats: Stats,
    /// Answers servers that want a model.
    pub sampling: Arc<Sampler>,
    /// The daemon ends: nobody shall wait for an event any more.
    pub stopping: CancellationToken,
}

/// The road of all calls: its surroundings, and the state of its steps.
#[derive(Debug)]
pub struct CallPath {
    pub(super) around: Surroundings,
    limits: Mutex<Limits>,
    calendar: Calendar,
    validators: Mutex<Validators>,
    /// Tools whose schema does not compile, with why.
    unchecked: Mutex<BTreeMap<ServerName, BTreeMap<RawTool, String>>>,
    meters: Mutex<HashMap<ServerName, HashMap<RawTool, Meter>>>,
    builtin: ServerName,
    pub(super) desk: Desk,
    pub(super) own_news: Followers,
    pub(super) placement: Placement,
    pub(super) suspended: Suspended,
}

impl CallPath {
    /// A road on which nothing was called yet.
    pub fn new(around: Surroundings) -> Self {
        Self {
            around,
            limits: Mutex::default(),
            calendar: Calendar::default(),
            validators: Mutex::default(),
            unchecked: Mutex::default(),
            meters: Mutex::default(),
            builtin: ServerName::new("hermes"),
            desk: Desk::default(),
            own_news: Followers::builtin(),
            placement: Placement::default(),
            suspended: Suspended::default(),
        }
    }

    /// Continues the quota of this day where an earlier daemon stopped.
    pub async fn restore_quota(&self) {
        let today = self.calendar.today();
        let day = i32::try_from(today.day).unwrap_or(0);
        match tokio::time::timeout(RESTORE_LIMIT, self.around.store.quota_used(Day(day))).await {
            Ok(Ok(used)) => {
                let mut limits = lock(&self.limits);
                used.into_iter().for_each(|(profile, used)| limits.restore(profile, today.day, used));
            }
            Ok(Err(error)) => tracing::warn!(%error, "the calls of this day are counted from zero"),
            Err(_) => {
                tracing::warn!("the calls of this day are counted from zero: hermesd.db does not answer")
            }
        }
    }

    /// Forgets limits, waiting calls and subscriptions of a client that is gone.
    pub fn forget_client(&self, client: ClientId) {
        lock(&self.limits).forget(client);
        self.suspended.forget(client);
        // All clients go with the daemon; what waits then lapses, and nobody took it back.
        if !self.around.stopping.is_cancelled() {
            self.desk.forget(client);
        }
        self.stop_following(client);
        self.release(client);
    }

    /// Drops what is kept for servers that are not in `configured`.
    pub fn keep_servers(&self, configured: &Servers) {
        let gone: BTreeSet<ServerName> = {
            let mut meters = lock(&self.meters);
            let gone = meters.keys().filter(|name| !configured.contains_key(*name) && **name != self.builtin);
            let gone: BTreeSet<ServerName> = gone.cloned().collect();
            meters.retain(|name, _| !gone.contains(name));
            gone
        };
        self.around.sampling.keep_servers(|server| configured.contains_key(server));
        lock(&self.validators).retain(|server, _| configured.contains_key(server));
        lock(&self.unchecked).retain(|server, _| configured.contains_key(server));
        for server in gone {
            self.around.metrics.forget(&server);
            self.around.stats.forget(&server);
        }
    }

    /// The configuration in force of a server that runs.
    pub fn server_config(&self, server: &ServerName) -> Option<Arc<ServerConfig>> {
        self.around.servers.borrow().get(server).map(ServerHandle::config)
    }

    /// The profiles of the configuration in force. There from the first client on, unlike the catalogue.
    pub fn profiles(&self) -> Vec<ProfileName> {
        self.around.config.borrow().daemon.profiles.keys().cloned().collect()
    }

    /// Sentences about tools of `server` whose arguments cannot be checked.
    pub fn notes(&self, server: &str) -> Vec<String> {
        let unchecked = lock(&self.unchecked);
        let tools = unchecked.get(server).into_iter().flatten();
        tools
            .map(|(tool, why)| {
                format!("tool `{tool}`: arguments are not validated, the schema does not compile: {why}")
            })
            .collect()
    }

    /// Whether `tool` is still what `caller` sees under its name; the catalogue may be newer by now.
    pub(super) fn unchanged(&self, caller: &Caller, tool: &Tool) -> Result<(), CallError> {
        let view = self.around.catalog.borrow().view(caller.view.profile(), caller.view.only());
        let same = |now: &&Arc<Tool>| {
            let schema = |tool: &Tool| tool.schema.as_ref().map(|schema| schema.get().to_owned());
            now.origin == tool.origin && schema(now) == schema(tool)
        };
        let now = match tool.kind {
            ItemKind::Tool | ItemKind::Utility(_) => view.tool(tool.name.as_str()).cloned(),
            ItemKind::Resource | ItemKind::Subscription => view.natives().resource(tool.name.as_str()),
            ItemKind::Prompt => view.natives().prompt(tool.name.as_str()),
            ItemKind::Completion => {
                let natives = view.natives();
                natives.prompt(tool.name.as_str()).or_else(|| natives.resource(tool.name.as_str()))
            }
        };
        match now.as_ref().filter(same) {
            None => Err(CallError::Approval(ApprovalError::Changed)),
            Some(now) => now.withheld.clone().map_or(Ok(()), |why| Err(CallError::Withheld(why))),
        }
    }

    /// Masks secrets and what looks like one.
    pub(super) fn mask(&self, text: &str) -> String {
        self.around.redactor.borrow().redact(text).into_owned()
    }

    /// The name under which `tool` is counted and recorded.
    pub(super) fn names(&self, tool: &Tool) -> (ServerName, RawTool) {
        match &tool.origin {
            Origin::Server { server, raw } => (server.clone(), raw.clone()),
            Origin::Conversations { .. } => (self.builtin.clone(), RawTool::new(tool.name.as_str())),
        }
    }

    /// The counters of a tool.
    pub(super) fn meter(&self, server: &ServerName, tool: &RawTool) -> Meter {
        let mut meters = lock(&self.meters);
        if let Some(known) = meters.get(server).and_then(|tools| tools.get(tool)) {
            return known.clone();
        }
        let new = Meter {
            metrics: self.around.metrics.tool(server, tool.as_str()),
            stats: self.around.stats.tool(server, tool.as_str()),
        };
        meters.entry(server.clone()).or_default().insert(tool.clone(), new.clone());
        new
    }

    /// Step "quota and rate": takes one call from every limit of this caller, or none.
    pub(super) fn take_limits(
        &self,
        caller: &Caller,
        server: Option<&ServerConfig>,
    ) -> Result<(), CallError> {
        let profile: &ProfileName = caller.view.profile();
        let quota = caller.view.quota();
        let today = self.calendar.today();
        let ask = Ask {
            client: caller.client,
            server: server.map_or(&self.builtin, |server| &server.name),
            profile,
            rate: server.and_then(|server| server.rate_limit.as_ref()),
            per_day: quota.per_day,
            // Admin commands share one number and have no session that could end.
            per_session: quota.per_session.filter(|_| caller.client != ADMIN),
        };
        lock(&self.limits).take(&ask, super::now(), today)?;
        let day = i32::try_from(today.day).unwrap_or(i32::MAX);
        self.around.store.count_calls(profile.clone(), Day(day), 1);
        Ok(())
    }

    /// Step "validate arguments": what is to be sent, and which members were respelled for it.
    pub(super) async fn validate(
        &self,
        server: &ServerConfig,
        tool: &Tool,
        call: &ToolCall,
    ) -> Result<(Arc<Upstream>, Vec<String>), CallError> {
        // Only tools have a schema.
        if !server.validate || call.target != super::Target::Tool {
            return Ok((call.upstream.clone(), Vec::new()));
        }
        let (name, raw) = self.names(tool);
        let validator = self.validator(&name, &raw, tool.schema.as_deref());
        let upstream = call.upstream.clone();
        if upstream.arguments_len() <= LARGE {
            return check(&validator, upstream);
        }
        let work = tokio::task::spawn_blocking(move || check(&validator, upstream));
        work.await.expect("checking arguments does not panic")
    }

    fn validator(&self, server: &ServerName, tool: &RawTool, schema: Option<&RawValue>) -> Arc<Validator> {
        let mut validators = lock(&self.validators);
        let compiled = validators.compiled();
        let validator = validators.get(server, tool, schema);
        let is_new = validators.compiled() != compiled;
        drop(validators);
        if is_new {
            let mut unchecked = lock(&self.unchecked);
            let notes = unchecked.entry(server.clone()).or_default();
            match validator.note() {
                Some(why) => {
                    tracing::warn!(%server, %tool, why, "arguments are not validated: the schema does not compile");
                    notes.insert(tool.clone(), why.to_owned());
                }
                None => drop(notes.remove(tool)),
            }
        }
        validator
    }
}

fn check(validator: &Validator, upstream: Arc<Upstream>) -> Result<(Arc<Upstream>, Vec<String>), CallError> {
    let checked = validator.check(upstream.arguments())?;
    match checked.arguments {
        Cow::Borrowed(_) => {}
        Cow::Owned(arguments) => {
            return Ok((Arc::new(upstream.with_arguments(&arguments)), checked.respelled));
        }
    }
    Ok((upstream, Vec::new()))
}

/// Nothing here panics while it holds a lock; a poisoned one would only repeat an older panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
