//! The task that keeps metrics true: gauges, series of servers that are gone, the optional listener.
//!
//! Owner of the listener of `hermesd.metrics.listen`; a changed address takes effect with the next
//! configuration, one that cannot be bound is logged and leaves everything else running.
//! May not touch: what is counted on the road of a call.

use crate::call::CallPath;
use crate::config::Config;
use crate::server::Servers;
use crate::session::clients::Clients;
use crate::tasks::TaskGroup;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics_listener::MetricsListener;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long open scrapes may go on when the address changes.
const CLOSE_BUDGET: Duration = Duration::from_secs(1);

/// What the task reads.
#[derive(Debug)]
pub struct Observe {
    /// The servers that are run.
    pub servers: watch::Receiver<Arc<Servers>>,
    /// The configuration in force.
    pub config: watch::Receiver<Arc<Config>>,
    /// Who is connected.
    pub clients: Clients,
    /// The road of calls, which keeps things for each server.
    pub calls: Arc<CallPath>,
    /// What is scraped.
    pub metrics: Metrics,
}

impl Observe {
    /// Runs until `tasks` is told to stop.
    pub async fn run(mut self, tasks: TaskGroup) {
        let stop = tasks.stop_signal();
        self.metrics.set_refresh(gauges(
            self.servers.clone(),
            self.clients.clone(),
            Arc::downgrade(&self.calls),
        ));
        let mut listening: Option<(String, TaskGroup)> = None;
        loop {
            let servers = self.servers.borrow_and_update().clone();
            self.calls.keep_servers(&servers);
            let wanted = self.config.borrow_and_update().daemon.metrics_listen.clone();
            if wanted.as_deref() != listening.as_ref().map(|(address, _)| address.as_str()) {
                if let Some((_, old)) = listening.take() {
                    old.finish(CLOSE_BUDGET).await;
                }
                listening = match wanted {
                    Some(address) => {
                        listen(&address, &self.metrics, &tasks).await.map(|group| (address, group))
                    }
                    None => None,
                };
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                changed = self.servers.changed() => if changed.is_err() { return },
                changed = self.config.changed() => if changed.is_err() { return },
            }
        }
    }
}

async fn listen(address: &str, metrics: &Metrics, tasks: &TaskGroup) -> Option<TaskGroup> {
    match MetricsListener::bind(address).await {
        Ok(listener) => {
            tracing::info!(address = %listener.address(), "metrics are served");
            let group = tasks.child();
            group.spawn(listener.run(metrics.clone(), group.clone()));
            Some(group)
        }
        Err(error) => {
            tracing::error!(%error, "metrics are not served");
            None
        }
    }
}

/// Fills in what is a state and not a count, right before a scrape.
fn gauges(
    servers: watch::Receiver<Arc<Servers>>,
    clients: Clients,
    calls: Weak<CallPath>,
) -> impl Fn(&Metrics) + Send + Sync {
    move |metrics| {
        // Weak: the road holds the metrics.
        metrics.set_approvals_waiting(calls.upgrade().map_or(0, |calls| calls.waiting().len()));
        metrics.set_clients(clients.all().len());
        for (name, handle) in servers.borrow().iter() {
            let status = handle.status().borrow().clone();
            let usage = handle.slots().usage();
            let of = metrics.server(name);
            of.set_phase(&status.phase);
            of.set_restarts(status.restarts());
            of.set_breaker(handle.breaker().snapshot(Instant::now().into_std()).state);
            of.set_calls(usage.waiting, usage.in_flight);
        }
    }
}
