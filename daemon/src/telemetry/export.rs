//! The task that takes finished spans to the receiver of `hermesd.otlp`.
//!
//! Owner of the connection: [`Export`], one for the daemon. Promise: no call waits for it; a receiver that
//! is away costs spans, at first none: what was taken from the queue is offered again for [`MAX_AGE`]; a
//! changed key takes effect with the next configuration; told to stop, it sends what is there.
//! May not touch: calls, the configuration.

use super::traces::{Finished, Status, Tracer};
use crate::config::{Config, OtlpConfig};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long spans gather before they are sent, unless a whole batch is there earlier.
pub const LINGER: Duration = Duration::from_secs(1);
/// How long one batch is offered before it is given up.
pub const MAX_AGE: Duration = Duration::from_secs(120);
/// The first pause after a failure; each further one is twice as long, up to [`MAX_PAUSE`].
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// A way to a receiver.
pub trait Sink: Send + Sync + 'static {
    /// Sends one batch; bounded in time by itself.
    ///
    /// # Errors
    /// Why the receiver does not have it, in a few words without secrets.
    fn send(&self, batch: Vec<Finished>) -> impl Future<Output = Result<(), String>> + Send;
}

/// A sink, and what it speaks.
#[derive(Debug)]
pub struct Connected<S> {
    /// Where batches go.
    pub sink: S,
    /// `grpc` or `http/protobuf`.
    pub protocol: &'static str,
}

/// Makes a sink; may block.
pub type Connect<S> = Arc<dyn Fn(&OtlpConfig) -> Result<Connected<S>, String> + Send + Sync>;

/// The task; see the module documentation.
pub struct Export<S> {
    tracer: Tracer,
    config: watch::Receiver<Arc<Config>>,
    connect: Connect<S>,
    wanted: Option<OtlpConfig>,
    sink: Option<S>,
    held: Vec<Finished>,
    held_since: Instant,
    pause: Duration,
}

impl<S: Sink> Export<S> {
    /// A task that has not looked at the configuration yet. Spans count from now on.
    pub fn new(tracer: Tracer, config: watch::Receiver<Arc<Config>>, connect: Connect<S>) -> Self {
        let ratio = config.borrow().daemon.otlp.as_ref().map(|otlp| otlp.sample_ratio);
        tracer.sample(ratio);
        Self {
            tracer,
            config,
            connect,
            wanted: None,
            sink: None,
            held: Vec::new(),
            held_since: Instant::now(),
            pause: Duration::ZERO,
        }
    }

    /// Exports until `stop`, then sends what is left; whoever stops it bounds that.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            self.configure().await;
            let (ready, pause, tracer) = (self.sink.is_some(), self.pause, self.tracer.clone());
            let held = !self.held.is_empty();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                changed = self.config.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    continue;
                }
                () = tokio::time::sleep(pause), if ready && held => {}
                () = gathered(&tracer), if ready && !held => {
                    self.held = tracer.take();
                    self.held_since = Instant::now();
                }
            }
            self.offer().await;
        }
        self.flush().await;
    }

    /// Follows `hermesd.otlp`.
    async fn configure(&mut self) {
        let wanted = self.config.borrow_and_update().daemon.otlp.clone();
        if wanted == self.wanted {
            return;
        }
        let moved = self.wanted.as_ref().map(|old| &old.endpoint) != wanted.as_ref().map(|new| &new.endpoint);
        self.wanted.clone_from(&wanted);
        let Some(wanted) = wanted else {
            self.tracer.sample(None);
            self.flush().await;
            self.sink = None;
            self.tracer.status().send_replace(Status::default());
            tracing::info!("traces are not exported any more");
            return;
        };
        let mut status = Status {
            endpoint: wanted.endpoint.clone(),
            sample_ratio: wanted.sample_ratio,
            ..self.tracer.status().borrow().clone()
        };
        // Spans wait for a connection that is being made.
        self.tracer.sample(Some(wanted.sample_ratio));
        if moved {
            (status.trouble, self.pause, self.sink) = (None, Duration::ZERO, None);
            let (connect, config) = (self.connect.clone(), wanted.clone());
            // Reads the system's certificates.
            let made = tokio::task::spawn_blocking(move || connect(&config)).await;
            match made.unwrap_or_else(|_| Err("the exporter could not be set up".to_owned())) {
                Ok(Connected { sink, protocol }) => {
                    status.protocol = protocol;
                    self.sink = Some(sink);
                }
                Err(error) => {
                    tracing::error!(error, "traces are not exported");
                    status.trouble = Some(error);
                }
            }
        }
        if self.sink.is_none() {
            self.tracer.sample(None);
        } else {
            let ratio = wanted.sample_ratio;
            tracing::info!(
                endpoint = wanted.endpoint,
                protocol = status.protocol,
                ratio,
                "traces are exported"
            );
        }
        self.tracer.status().send_replace(status);
    }

    /// Offers the held batch once.
    async fn offer(&mut self) {
        let (Some(sink), false) = (&self.sink, self.held.is_empty()) else { return };
        match sink.send(self.held.clone()).await {
            Ok(()) => {
                self.tracer.exported(self.held.len());
                self.held.clear();
                self.pause = Duration::ZERO;
                self.trouble(None);
            }
            Err(error) => {
                self.pause = (self.pause * 2).clamp(PAUSE, MAX_PAUSE);
                if self.held_since.elapsed() >= MAX_AGE {
                    self.give_up();
                }
                self.trouble(Some(error));
            }
        }
    }

    /// Sends everything that is there, as long as the receiver takes it, and gives the rest up.
    async fn flush(&mut self) {
        loop {
            if self.held.is_empty() {
                self.held = self.tracer.take();
            }
            if self.held.is_empty() {
                return;
            }
            self.offer().await;
            if !self.held.is_empty() {
                self.give_up();
                while let more @ 1.. = self.tracer.take().len() {
                    self.tracer.lost(more);
                }
                return;
            }
        }
    }

    fn give_up(&mut self) {
        self.tracer.lost(self.held.len());
        self.held.clear();
    }

    fn trouble(&self, trouble: Option<String>) {
        self.tracer.status().send_if_modified(|status| {
            match (&status.trouble, &trouble) {
                (None, Some(error)) => tracing::warn!(error, "traces do not reach their receiver"),
                (Some(_), None) => tracing::info!("traces reach their receiver again"),
                (None, None) | (Some(_), Some(_)) => {}
            }
            let changed = status.trouble != trouble;
            status.trouble = trouble;
            changed
        });
    }
}

/// Returns when spans have waited for [`LINGER`], or a batch is full.
async fn gathered(tracer: &Tracer) {
    tracer.some().await;
    tokio::select! {
        () = tracer.full() => {}
        () = tokio::time::sleep(LINGER) => {}
    }
}

#[cfg(test)]
#[path = "export_tests.rs"]
mod tests;
