//! Composition root: the only file that knows everybody.
//!
//! Start: logs, config, ledger reaper, catalogue, control.sock, mcp.sock, `READY=1`, then servers.
//! A client gets its session at once, whatever servers do. The stop order is in `shutdown`.

use crate::admin::{diagnose::Diagnose, service};
use crate::call::CallPath;
use crate::catalog::reconcile::Reconcile;
use crate::catalog::snapshot::Catalog;
use crate::claim::{Claim, Sockets};
use crate::cli::{Cli, Command, ConfigCommand};
use crate::config::Config;
use crate::conversations::Conversations;
use crate::paths::Paths;
use crate::reload::{ReloadTask, Reloader};
use crate::server::Servers;
use crate::session::clients::Clients;
use crate::session::{self, listener};
use crate::shutdown::{self, Running};
use crate::signals::{self, Signal};
use crate::tasks::TaskGroup;
use crate::{admin, guard};
use anyhow::Context;
use clap::Parser;
use hermes_proto::endpoint::{Endpoint, Home};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Everything `hermesd` does, guards included.
pub fn main() -> ExitCode {
    // Before any runtime or parser: a guard is one small thread.
    if guard::is_guard_invocation(std::env::args_os()) {
        return guard::main();
    }
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            crate::telemetry::logs::say_at_the_end(&format!("error: {error:#}"));
            ExitCode::from(1)
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let home = Home::find(cli.home.as_deref(), &|name| std::env::var_os(name))?;
    match cli.command {
        Some(Command::Config { command: ConfigCommand::Check { json } }) => Ok(crate::check::run(&home, json)),
        Some(Command::Run) | None => {
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
    let mut signals = signals::listen().context("signal handlers")?;
    let claim = Claim::take(&home)?;
    guard::become_subreaper().context("subreaper")?;
    let paths = Paths::of(&home)?;
    let redactor = crate::redact::Shared::default();
    let logs = crate::telemetry::logs::init(&paths, redactor.hook())?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), pid = std::process::id(), home = %home.path().display(), "hermesd starts");
    reap(&paths).await;

    let env: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let (accepting, sessions, inner, servers_group, admin_group) =
        (TaskGroup::new(), TaskGroup::new(), TaskGroup::new(), TaskGroup::new(), TaskGroup::new());
    let (config_in, config) = watch::channel(Arc::new(Config::default()));
    let (handles_in, handles) = watch::channel(Arc::new(Servers::new()));
    let (builtins_in, builtins) = watch::channel(Arc::new(Vec::new()));
    let (catalog_in, catalog) = watch::channel(Arc::new(Catalog::default()));
    todo_servers();
    Ok(ExitCode::SUCCESS)
}
