//! What a person should know besides config.yaml: files that others can read, the store, the receiver of
//! traces.
//!
//! Owner: nobody; `reload` asks with each configuration, so that status and doctor show one list.
//! Promise: a finding goes away with its cause. May not touch: the files.

use crate::config::{Finding, Severity};
use crate::http::keeper;
use crate::paths::Paths;
use crate::reload::Reloader;
use crate::store::{Keeping, StoreFinding, StoreHealth, TroubleKind};
use crate::telemetry::traces::{Status, Tracer};
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Gathers the findings; `opening` is what the store met at its opening. What it gives blocks.
pub fn machine(
    paths: Paths,
    opening: Vec<StoreFinding>,
    health: watch::Receiver<StoreHealth>,
    tracer: Tracer,
    http: watch::Receiver<keeper::Status>,
) -> Arc<dyn Fn() -> Vec<Finding> + Send + Sync> {
    Arc::new(move || {
        let mut findings = paths.exposed();
        let waiting = |found: &&StoreFinding| {
            // Said at the start, over by now.
            !matches!(found, StoreFinding::Locked { .. }) || health.borrow().keeping == Keeping::Waiting
        };
        findings.extend(opening.iter().filter(waiting).map(Finding::from));
        findings.extend(health.borrow().trouble.as_ref().map(|trouble| Finding {
            severity: Severity::Error,
            server: None,
            file: Some(paths.db.clone()),
            line: 0,
            key: String::new(),
            message: trouble.kind.to_string(),
            hint: "approvals, pins and audit rows wait or are lost until this is mended".to_owned(),
        }));
        findings.extend(untraced(&tracer.status().borrow()));
        findings.extend(unheard(&http.borrow()));
        findings
    })
}

fn untraced(status: &Status) -> Option<Finding> {
    let trouble = status.trouble.as_ref()?;
    Some(Finding {
        severity: Severity::Warning,
        server: None,
        file: None,
        line: 0,
        key: "hermesd.otlp".to_owned(),
        message: format!("traces do not reach their receiver: {trouble}"),
        hint: "start the receiver, or correct `endpoint`; calls are not held up".to_owned(),
    })
}

fn unheard(status: &keeper::Status) -> Option<Finding> {
    let keeper::Status::Failed { reason, .. } = status else { return None };
    Some(Finding {
        severity: Severity::Error,
        server: None,
        file: None,
        line: 0,
        key: "hermesd.http.listen".to_owned(),
        message: format!("the HTTP listener is not open: {reason}"),
        hint: "choose another port, or end the program that has this one; it is tried again by itself"
            .to_owned(),
    })
}

/// Findings are part of the configuration in force: what is another one now (`gist` says what counts) is a
/// reason to look again.
///
/// # Cancel safety
/// Cancel safe.
async fn follow<S, G: PartialEq>(
    mut status: watch::Receiver<S>,
    gist: impl Fn(&S) -> G,
    reloader: Reloader,
    stop: CancellationToken,
) {
    // What was so at the start is looked at with the first configuration.
    let mut told = gist(&status.borrow_and_update());
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = status.changed() => if changed.is_err() { return },
        }
        let now = gist(&status.borrow_and_update());
        if now != told {
            told = now;
            reloader.poke();
        }
    }
}

/// Looks again when the HTTP listener opens or fails.
///
/// # Cancel safety
/// Cancel safe.
pub async fn follow_http(
    status: watch::Receiver<keeper::Status>,
    reloader: Reloader,
    stop: CancellationToken,
) {
    // Trouble may have come before anybody followed.
    if unheard(&status.borrow()).is_some() {
        reloader.poke();
    }
    follow(status, |status| unheard(status).map(|finding| finding.message), reloader, stop).await;
}

/// The same for the receiver of traces.
///
/// # Cancel safety
/// Cancel safe.
pub async fn follow_traces(tracer: Tracer, reloader: Reloader, stop: CancellationToken) {
    let status = tracer.status().subscribe();
    if status.borrow().trouble.is_some() {
        reloader.poke();
    }
    follow(status, |status| status.trouble.clone(), reloader, stop).await;
}

/// The same for new trouble of the store.
///
/// # Cancel safety
/// Cancel safe.
pub async fn follow_store(health: watch::Receiver<StoreHealth>, reloader: Reloader, stop: CancellationToken) {
    let gist = |health: &StoreHealth| -> (Keeping, Option<TroubleKind>) {
        (health.keeping.clone(), health.trouble.as_ref().map(|trouble| trouble.kind.clone()))
    };
    follow(health, gist, reloader, stop).await;
}
