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

/// Findings are part of the configuration in force: a listener that opens or fails is a reason to look again.
///
/// # Cancel safety
/// Cancel safe.
pub async fn follow_http(
    mut status: watch::Receiver<keeper::Status>,
    reloader: Reloader,
    stop: CancellationToken,
) {
    let mut told = None;
    loop {
        let now = unheard(&status.borrow_and_update()).map(|finding| finding.message);
        if now != told {
            told = now;
            reloader.poke();
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = status.changed() => if changed.is_err() { return },
        }
    }
}

/// The same for the receiver of traces.
///
/// # Cancel safety
/// Cancel safe.
pub async fn follow_traces(tracer: Tracer, reloader: Reloader, stop: CancellationToken) {
    let mut status = tracer.status().subscribe();
    let mut told = None;
    loop {
        let now = status.borrow_and_update().trouble.clone();
        if now != told {
            told = now;
            reloader.poke();
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = status.changed() => if changed.is_err() { return },
        }
    }
}

/// Findings are part of the configuration in force: new trouble of the store is a reason to look again.
///
/// # Cancel safety
/// Cancel safe.
pub async fn follow_store(
    mut health: watch::Receiver<StoreHealth>,
    reloader: Reloader,
    stop: CancellationToken,
) {
    let gist = |health: &StoreHealth| -> (Keeping, Option<TroubleKind>) {
        (health.keeping.clone(), health.trouble.as_ref().map(|trouble| trouble.kind.clone()))
    };
    let mut told = gist(&health.borrow_and_update());
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = health.changed() => if changed.is_err() { return },
        }
        let now = gist(&health.borrow_and_update());
        if now != told {
            told = now;
            reloader.poke();
        }
    }
}
