//! Gathers what children's environments are taken from: at once what is at hand, later what others say.
//!
//! Owner: the task in [`learn`]. Promise: nobody waits here; the channel closes when nothing more will
//! come. May not touch: servers.

use super::base_env::{Account, BaseEnv};
use super::shell_query;
use crate::tasks::TaskGroup;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long the login shell and the user manager may take to answer.
const LIMIT: Duration = Duration::from_secs(10);

/// What is known without asking another program: the daemon's variables `env` and the account.
pub async fn gather(home: &Path, env: &BTreeMap<String, String>) -> BaseEnv {
    let (home, vars) = (home.to_owned(), env.clone());
    let gather = move || {
        let vars = vars.into_iter().map(|(name, value)| (name.into(), value.into()));
        // Values of `.env` come with the configuration, so that a change of them is a change of it.
        BaseEnv::gather(vars, BTreeMap::new(), Account::of_this_user().as_ref(), &home)
    };
    tokio::task::spawn_blocking(gather).await.expect("reading the environment does not panic")
}

/// Publishes `base` at once and again with each answer of the login shell and the user manager; the
/// channel closes when nothing more will come.
pub fn learn(base: BaseEnv, tasks: &TaskGroup) -> watch::Receiver<Arc<BaseEnv>> {
    let (publish, current) = watch::channel(Arc::new(base.clone()));
    let stop = tasks.stop_signal();
    tasks.spawn(async move {
        let shell = base.vars.get("SHELL").cloned().unwrap_or_default();
        let path = async {
            let path = shell_query::login_shell_path(Path::new(&shell), &base.vars, LIMIT, &stop).await;
            if path.is_none() && !stop.is_cancelled() {
                tracing::info!(shell, "the login shell did not say what PATH is; using the daemon's");
            }
            publish.send_modify(|now| Arc::make_mut(now).login_path = path);
        };
        let manager = async {
            let manager = shell_query::manager_env(LIMIT, &stop).await;
            publish.send_modify(|now| Arc::make_mut(now).manager = manager);
        };
        // Both hear of the stop themselves: what they asked must be ended, not dropped.
        tokio::join!(path, manager);
    });
    current
}
