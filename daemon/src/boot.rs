//! Composition root: the only file that knows everybody.
//!
//! Start: logs, config, ledger reaper, catalogue, control.sock, mcp.sock, `READY=1`, then servers.
//! A client gets its session at once, whatever servers do. The stop order is in `shutdown`.

use crate::admin::{self, service};
use crate::after_login;
use crate::call::{self, CallPath, Surroundings};
use crate::catalog::keep::Keep;
use crate::catalog::reconcile::Reconcile;
use crate::catalog::snapshot::Catalog;
use crate::claim::{Claim, Sockets};
use crate::cli::{Cli, Command, ConfigCommand};
use crate::config::{Config, RedactionLabels, Watcher};
use crate::conversations::watch::Watch;
use crate::conversations::{Conversations, Outgoing};
use crate::findings;
use crate::guard;
use crate::handover;
use crate::http::keeper;
use crate::learned::Learned;
use crate::masking::Masking;
use crate::names::ServerName;
use crate::observe::Observe;
use crate::occasions;
use crate::paths::Paths;
use crate::redact::Redactor;
use crate::reload::ReloadTask;
use crate::sampling::{self, Sampler};
use crate::secret::KnownSecrets;
use crate::server::Servers;
use crate::server::base_env::BaseEnv;
use crate::server::gate::{self, SafeMode};
use crate::server::learn_env;
use crate::server::lifecycle::Starts;
use crate::server::osv::Osv;
use crate::server::remote::{AnyLauncher, RemoteLauncher};
use crate::server::spawn::StdioLauncher;
use crate::server::supervisor;
use crate::server::transport::ledger::Ledger;
use crate::server::transport::oauth::Oauth;
use crate::server::transport::oauth::account::Around;
use crate::server::transport::reaper::{self, GUARD_PATIENCE};
use crate::session::clients::Clients;
use crate::session::{self, listener};
use crate::shutdown::{self, Running};
use crate::signals::{self, Signal};
use crate::store::{Retention, Store, StoreFinding};
use crate::tasks::TaskGroup;
use crate::telemetry::journal;
use crate::telemetry::logs::{self, Format, LogOptions, Stderr};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::redact_hook::RedactHook;
use crate::telemetry::server_log::{LogLimits, ServerLogs};
use crate::telemetry::stats::Stats;
use crate::watchdog;
use anyhow::Context;
use clap::Parser;
use hermes_proto::endpoint::{Endpoint, Home};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, SystemTime};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// When orphans are looked for once more after a process ended.
const REAP_AGAIN: Duration = Duration::from_millis(300);

/// Everything `hermesd` does, guards included.
pub fn main() -> ExitCode {
    // Before any runtime or parser: a guard is one small thread.
    if guard::is_guard_invocation(std::env::args_os()) {
        return guard::main();
    }
    crate::process::inherited::close_inherited(&|name| std::env::var(name).ok());
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            // Before and after the logs there is only stderr; when that is closed nobody can be told.
            let level = match logs::stderr_from(&|name| std::env::var(name).ok(), journal::stderr_file()) {
                Stderr::Journal => journal::prefix(&tracing::Level::ERROR),
                Stderr::Human | Stderr::Off => "",
            };
            let _ = writeln!(std::io::stderr(), "{level}error: {error:#}");
            ExitCode::from(1)
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    if let Some(Command::Man { dir }) = &cli.command {
        return Ok(crate::cli::man(dir)?);
    }
    let home = Home::find(cli.home.as_deref(), &|name| std::env::var_os(name))?;
    match cli.command {
        Some(Command::Config { command: ConfigCommand::Check { json } }) => {
            Ok(crate::check::run(&home, json))
        }
        Some(Command::Doctor) => Ok(crate::check::doctor(&home)?),
        Some(Command::Exec { server }) => Err(crate::check::exec(&home, &server)),
        Some(Command::Run | Command::Man { .. }) | None => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let code = runtime.block_on(serve(home, cli.idle_exit))?;
            // Blocking work that is stuck in the system must not keep the process.
            runtime.shutdown_timeout(Duration::from_millis(200));
            Ok(code)
        }
    }
}

async fn serve(home: Home, idle_exit: Option<Duration>) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    // Before anybody makes an HTTP client, which needs one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut signals = signals::listen().context("signal handlers")?;
    let claim = Claim::take(&home)?;
    guard::become_subreaper().context("subreaper")?;
    crate::process::orphans::claim_session();
    let descriptors = crate::process::limits::raise_descriptors();
    let paths = Paths::of(&home, &|name| std::env::var_os(name))?;
    paths.prepare()?;
    let env = environment();
    let redact = RedactHook::new(redact_unknown());
    let logs = start_logs(&paths, &env, &redact)?;
    let pid = std::process::id();
    tracing::info!(version = env!("CARGO_PKG_VERSION"), pid, home = %home.path().display(), "hermesd starts");
    tracing::debug!(from = descriptors.from, to = descriptors.to, "file descriptors");
    reap(&paths).await;

    let groups = Groups::default();
    let (config_in, config) = watch::channel(Arc::new(Config::default()));
    let (handles_in, handles) = watch::channel(Arc::new(Servers::new()));
    let (builtins_in, builtins) = watch::channel(Arc::new(Vec::new()));
    let (catalog_in, catalog) = watch::channel(Arc::new(Catalog::default()));
    let (store, opening) = open_store(&paths).await;
    let metrics = Metrics::new(env!("CARGO_PKG_VERSION"), SystemTime::now(), Some(store.clone()));
    // Before anybody can connect: what is written from here on is new.
    let events = Watch::start(home.path(), store.clone(), metrics.clone(), &groups.inner);
    events.settled().await;
    let stats = Stats::default();
    let redactor = Redactor::new(&KnownSecrets::default(), RedactionLabels::Plain);
    let (redactor_in, redactor) = watch::channel(Arc::new(redactor));
    let outgoing = Outgoing {
        config: config.clone(),
        redactor: redactor.clone(),
        store: store.clone(),
        tasks: groups.inner.clone(),
        user_home: env.get("HOME").map(Into::into),
    };
    let conversations = Conversations::open_sending(home.path(), outgoing);
    let (secrets_in, secrets) = watch::channel(Arc::new(KnownSecrets::default()));
    let (http_in, http) = watch::channel(keeper::Status::Off);
    let base = learn_env::learn(learn_env::gather(home.path(), &env).await, &groups.inner);
    let masking = Masking::new(redact.clone(), base.clone(), secrets_in, redactor_in);
    let (oauth, logged_in) = oauth(&home, masking.clone(), base.clone(), groups.inner.child());
    let learned = Arc::new(Learned::load(store.clone(), groups.inner.clone()).await);
    let remote = RemoteLauncher {
        base: base.clone(),
        logins: Arc::new(oauth.clone()),
        memory: learned.clone(),
        logs: logs.clone(),
    };
    let stdio = StdioLauncher {
        base: base.clone(),
        secrets,
        osv: Arc::new(Osv::new(env.get("OSV_ENDPOINT").map(String::as_str), paths.osv_cache.clone())),
        logs: logs.clone(),
        ledger: Ledger::new(paths.ledger.clone()),
        guard_exe: guard::own_exe()?,
        tasks: groups.servers.clone(),
    };
    let starts = match gate::safe_mode(env.get("HERMES_SAFE_MODE").map(String::as_str)) {
        SafeMode::On => Starts::SafeMode,
        SafeMode::Off => Starts::Allowed,
    };
    let sampling = Arc::new(Sampler::new(sampling::Around {
        config: config.clone(),
        redactor: redactor.clone(),
        store: store.clone(),
        metrics: metrics.clone(),
    }));
    let servers = supervisor::Shared {
        habits: learned,
        models: Some(Arc::new(sampling::Desk::new(sampling.clone(), groups.servers.clone()))),
        ..supervisor::Shared::new(Arc::new(AnyLauncher { stdio, remote }), groups.servers.clone(), starts)
    };
    let reload = ReloadTask {
        home: home.path().to_owned(),
        user_home: env.get("HOME").map(Into::into),
        env,
        conversations: conversations.clone(),
        servers: servers.clone(),
        config: config_in,
        handles: handles_in,
        builtins: builtins_in,
        before: Box::new(before_config(masking.clone(), servers.clone(), store.clone())),
        machine: findings::machine(
            paths.clone(),
            opening,
            store.health(),
            metrics.tracer().clone(),
            http.clone(),
        ),
        store: store.clone(),
        groups: BTreeMap::new(),
    };

    // Before the first load, so that no change is missed between the two.
    let watcher = Watcher::start(home.path(), &groups.inner);
    let sockets = sockets(&claim, &home)?;
    let (beats_in, beats) = mpsc::channel(watchdog::QUESTIONS);
    let (pins_approved, approved) = watch::channel(0);
    let reconcile = Reconcile {
        config: config.clone(),
        servers: handles.clone(),
        builtins,
        beats,
        publish: catalog_in,
        store: store.clone(),
        approved,
    };
    let keep = Keep { servers: handles.clone(), config: config.clone(), store: store.clone() };
    let reloader = reload.start(&groups.inner).await;
    // Only now: the first catalogue has the conversation tools, or a quick client would miss them.
    let mut reconciling = groups.inner.spawn(reconcile.run(groups.inner.stop_signal()));
    groups.inner.spawn(keep.run(groups.inner.stop_signal()));
    first_catalog(&catalog).await;
    groups.inner.spawn_until_stop(events.clone().obey(config.clone()));
    let clients = Clients::default();
    let calls = Arc::new(CallPath::new(Surroundings {
        servers: handles.clone(),
        config: config.clone(),
        catalog: catalog.clone(),
        conversations,
        seal: call::seal::SealKey::of_home(&paths.state_key).await?,
        redactor,
        store: store.clone(),
        metrics: metrics.clone(),
        stats: stats.clone(),
        sampling,
        stopping: groups.accepting.stop_signal(),
    }));
    calls.restore_quota().await;
    calls.resume_approvals().await;
    groups.inner.spawn(calls.clone().keep_approvals(groups.inner.stop_signal()));
    groups.inner.spawn(calls.clone().keep_suspended(groups.inner.stop_signal()));
    let news =
        call::conversation::tell_followers(calls.clone(), events.changes(), groups.inner.stop_signal());
    groups.inner.spawn(news);
    groups.inner.spawn_until_stop(occasions::on_arrival(events.status(), reloader.clone()));
    let observe = Observe {
        servers: handles.clone(),
        config: config.clone(),
        clients: clients.clone(),
        calls: calls.clone(),
        metrics: metrics.clone(),
    };
    groups.inner.spawn(observe.run(groups.inner.child()));
    let shutdown = CancellationToken::new();
    let admin = service::Admin {
        inner: Arc::new(service::Inner {
            home: home.path().to_owned(),
            runtime_dir: sockets.endpoint.dir.clone(),
            paths: paths.clone(),
            base: base.clone(),
            started,
            config: config.clone(),
            servers: handles.clone(),
            catalog: catalog.clone(),
            clients: clients.clone(),
            calls: calls.clone(),
            store: store.clone(),
            watch: events,
            metrics: metrics.clone(),
            stats,
            pins_approved,
            reloader: reloader.clone(),
            logs: logs.clone(),
            test: servers.clone(),
            oauth,
            masking: masking.clone(),
            mask: Arc::new(move |text| redact.apply(text)),
            http: http.clone(),
            shutdown: shutdown.clone(),
        }),
    };
    let Sockets { endpoint, control, mcp, made } = sockets;
    let control = tokio::net::UnixListener::from_std(control)?;
    let mcp = tokio::net::UnixListener::from_std(mcp)?;
    groups.admin.spawn(serve_admin(control, admin, groups.admin.stop_signal()));
    let shared = Arc::new(session::Shared {
        home: home.path().to_owned(),
        calls,
        catalog,
        clients: clients.clone(),
        held: AtomicUsize::new(0),
    });
    let keeper = keeper::Keeper {
        config: config.clone(),
        shared: shared.clone(),
        folder: paths.state_dir.clone(),
        masks: Box::new(move |token| masking.listener(token)),
        status: http_in,
        accepting: groups.accepting.child(),
        sessions: groups.sessions.child(),
    };
    groups.accepting.spawn(keeper.run());
    let accepting = listener::serve(mcp, shared, groups.sessions.clone(), groups.accepting.stop_signal());
    groups.accepting.spawn(accepting);
    groups.inner.spawn_until_stop(occasions::on_change(watcher, reloader.clone()));
    groups.inner.spawn(after_login::run(logged_in, handles, groups.inner.stop_signal()));
    groups.inner.spawn_until_stop(occasions::on_manager(base, reloader.clone()));
    let tracer = metrics.tracer().clone();
    #[cfg(feature = "otlp")]
    crate::telemetry::otlp::start(tracer.clone(), config.clone(), &groups.traces);
    groups.inner.spawn(findings::follow_traces(tracer, reloader.clone(), groups.inner.stop_signal()));
    groups.inner.spawn(findings::follow_http(http, reloader.clone(), groups.inner.stop_signal()));
    groups.inner.spawn(findings::follow_store(store.health(), reloader.clone(), groups.inner.stop_signal()));
    if let Some(every) = sd_notify::watchdog_enabled() {
        let tell = || drop(sd_notify::notify(&[sd_notify::NotifyState::Watchdog]));
        let stop = groups.inner.stop_signal();
        groups.inner.spawn(watchdog::beat(every, store.clone(), beats_in, tell, stop));
    }
    ready();
    tracing::info!(sockets = %endpoint.dir.display(), ms = started.elapsed().as_millis() as u64, "hermesd is ready");

    let idle = occasions::idle(clients.clone(), idle_exit);
    tokio::pin!(idle);
    let broken = watchdog::first_end(&mut reconciling, reloader.clone(), store.clone());
    tokio::pin!(broken);
    let mut code = ExitCode::SUCCESS;
    let mut reap_again: Option<Instant> = None;
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            signal = signals.recv() => match signal {
                Some(Signal::Reload) => {
                    let _ = sd_notify::notify(&[sd_notify::NotifyState::Reloading]);
                    reloader.reload().await;
                    ready();
                }
                Some(Signal::Child) => {
                    guard::reap_orphans();
                    // While a guard is being started nothing is reaped, and no signal comes again for it.
                    reap_again = Some(Instant::now() + REAP_AGAIN);
                }
                Some(Signal::End) | None => break,
            },
            part = &mut broken => {
                tracing::error!(part, "a part of hermesd ended by itself; hermesd ends too, to be started afresh");
                code = ExitCode::FAILURE;
                break;
            }
            () = async { tokio::time::sleep_until(reap_again.expect("checked")).await }, if reap_again.is_some() => {
                guard::reap_orphans();
                reap_again = None;
            }
            () = &mut idle => {
                tracing::info!("no client for the time of --idle-exit");
                break;
            }
        }
    }
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    let running = Running {
        accepting: groups.accepting,
        clients,
        sessions: groups.sessions,
        servers: groups.servers,
        inner: groups.inner,
        traces: groups.traces,
        store,
        logs,
        admin: groups.admin,
    };
    shutdown::run(running, claim, &made, &mut signals).await;
    guard::close_nursery();
    Ok(code)
}

/// One group for each stage of the shutdown.
#[derive(Default)]
struct Groups {
    accepting: TaskGroup,
    sessions: TaskGroup,
    servers: TaskGroup,
    inner: TaskGroup,
    traces: TaskGroup,
    admin: TaskGroup,
}

fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Before the configuration is read nothing is known but the patterns.
fn redact_unknown() -> impl Fn(&str) -> String + Send + Sync + 'static {
    let redactor = Redactor::new(&KnownSecrets::default(), RedactionLabels::Plain);
    move |text| redactor.redact(text).into_owned()
}

/// What a new configuration changes outside the servers: the secrets that are masked, and how
/// many servers may start at once.
fn before_config(masking: Masking, servers: supervisor::Shared, store: Store) -> impl Fn(&Config) + Send {
    move |config| {
        masking.configured(config);
        store.set_retention(Retention::with_audit_days(config.daemon.audit.retention_days));
        servers.places.set_total(config.daemon.start_concurrency.get() as usize);
    }
}

/// The logins of remote servers; the second part is told of each that was finished.
fn oauth(
    home: &Home,
    masking: Masking,
    base: watch::Receiver<Arc<BaseEnv>>,
    tasks: TaskGroup,
) -> (Oauth, mpsc::Receiver<ServerName>) {
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Oauth::new(Around {
        home: home.path().to_owned(),
        tasks,
        masks: Arc::new(move |server, secrets| masking.login(server, secrets)),
        clock: Arc::new(now),
        variable: Arc::new(move |name| base.borrow().lookup(name).map(str::to_owned)),
    })
}

async fn reap(paths: &Paths) {
    let ledger = paths.ledger.clone();
    let report = tokio::task::spawn_blocking(move || reaper::reap_leftovers(&ledger, GUARD_PATIENCE)).await;
    match report {
        Ok(report) => report.log(),
        Err(error) => tracing::error!(%error, "looking for leftovers failed"),
    }
}

fn sockets(claim: &Claim, home: &Home) -> anyhow::Result<Sockets> {
    match handover::take(&|name| std::env::var(name).ok())? {
        Some(given) => Ok(claim.adopt(given)?),
        None => Ok(claim.bind(Endpoint::choose(home, &|name| std::env::var_os(name))?)?),
    }
}

async fn open_store(paths: &Paths) -> (Store, Vec<StoreFinding>) {
    let db = paths.db.clone();
    let opened = tokio::task::spawn_blocking(move || Store::open(&db)).await;
    let (store, findings) = opened.expect("opening the store does not panic");
    for finding in &findings {
        let told = crate::config::Finding::from(finding);
        tracing::error!(finding = told.message, hint = told.hint, "hermesd.db is not as it should be");
    }
    (store, findings)
}

fn start_logs(
    paths: &Paths,
    env: &BTreeMap<String, String>,
    redact: &RedactHook,
) -> anyhow::Result<ServerLogs> {
    let server_logs = ServerLogs::start(&paths.logs_dir, LogLimits::default(), redact.clone())?;
    let lookup = |name: &str| env.get(name).cloned();
    let options = LogOptions {
        stderr: logs::stderr_from(&lookup, journal::stderr_file()),
        format: Format::Text,
        filter: logs::filter_from(&lookup),
    };
    logs::init(&options, server_logs.own(), redact)?;
    Ok(server_logs)
}

/// The first client must not see an empty list because it came early.
async fn first_catalog(catalog: &watch::Receiver<Arc<Catalog>>) {
    let mut catalog = catalog.clone();
    // An error means that reconcile ended; the daemon ends with it.
    let _ = tokio::time::timeout(Duration::from_secs(10), catalog.wait_for(|c| c.revision() > 0)).await;
}

async fn serve_admin(listener: tokio::net::UnixListener, admin: service::Admin, stop: CancellationToken) {
    if let Err(error) = admin::serve::serve(listener, admin, stop).await {
        tracing::error!(%error, "control.sock is not served any more");
    }
}

fn ready() {
    // Without a service manager there is nobody to tell.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
}
