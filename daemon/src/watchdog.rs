//! Signs of life of the daemon's own parts: the beat for a service manager, and the end of a part
//! without which the daemon must not go on.
//!
//! Owner: `boot`. Promise: a beat is given only after the store's writer and the catalogue's task both
//! answered; a part that panicked ends the daemon, so that it is started afresh. Holds no state of others.
//! May not touch: what those parts do.

use crate::reload::Reloader;
use crate::store::{Ended, Store};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// Questions that may wait for the catalogue's task.
pub const QUESTIONS: usize = 1;

/// Asks both parts three times in each `every` (at least 1 ms) and calls `tell` when both answered
/// within a third of it. Without an answer nothing is told: the service manager acts then.
///
/// # Cancel safety
/// Cancel safe.
pub async fn beat(
    every: Duration,
    store: Store,
    catalogue: mpsc::Sender<oneshot::Sender<()>>,
    tell: impl Fn(),
    stop: CancellationToken,
) {
    let third = (every / 3).max(Duration::from_millis(1));
    let mut tick = tokio::time::interval(third);
    // After a sleep of the machine one beat is enough.
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = tick.tick() => {}
        }
        let both = async { tokio::join!(store.beat(), answered(&catalogue)) };
        match tokio::time::timeout(third, both).await {
            Ok((Ok(()), Some(()))) => tell(),
            Ok((store, catalogue)) => {
                tracing::error!(
                    store = store.err().map_or_else(|| "answers".to_owned(), |error| error.to_string()),
                    catalogue = catalogue.is_some(),
                    "no beat: a part of hermesd does not answer"
                );
            }
            Err(_) => tracing::error!("no beat: a part of hermesd does not answer in time"),
        }
    }
}

async fn answered(part: &mpsc::Sender<oneshot::Sender<()>>) -> Option<()> {
    let (tell, told) = oneshot::channel();
    part.send(tell).await.ok()?;
    told.await.ok()
}

/// Returns the name of the first part that ended although the daemon goes on.
///
/// # Cancel safety
/// Cancel safe.
pub async fn first_end(catalogue: &mut JoinHandle<()>, reloader: Reloader, store: Store) -> &'static str {
    tokio::select! {
        _ = catalogue => "the catalogue",
        () = reloader.ended() => "the configuration",
        Ended::Panicked = store.ended() => "the store",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Beats {
        told: Arc<AtomicU32>,
        stop: CancellationToken,
        task: JoinHandle<()>,
    }

    #[allow(clippy::disallowed_methods)] // a test's task ends with the test
    fn beats(every: Duration, store: &Store, part: mpsc::Sender<oneshot::Sender<()>>) -> Beats {
        let (told, stop) = (Arc::new(AtomicU32::new(0)), CancellationToken::new());
        let count = told.clone();
        let tell = move || {
            count.fetch_add(1, Ordering::Relaxed);
        };
        let task = tokio::spawn(beat(every, store.clone(), part, tell, stop.clone()));
        Beats { told, stop, task }
    }

    #[tokio::test]
    async fn a_beat_comes_only_while_every_part_answers() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(&dir.path().join("hermesd.db"));
        let (ask, mut asked) = mpsc::channel(QUESTIONS);
        let beats = beats(Duration::from_secs(30), &store, ask);
        // The first question comes at once; no answer, no beat.
        let question: oneshot::Sender<()> = asked.recv().await.unwrap();
        store.beat().await.unwrap();
        assert_eq!(beats.told.load(Ordering::Relaxed), 0);
        question.send(()).unwrap();
        while beats.told.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        beats.stop.cancel();
        beats.task.await.unwrap();
        assert_eq!(beats.told.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    #[allow(clippy::disallowed_methods)]
    async fn a_part_that_panicked_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(&dir.path().join("hermesd.db"));
        let (reloader, _queue) = Reloader::for_tests();
        let mut broken = tokio::spawn(async { panic!("on purpose") });
        assert_eq!(first_end(&mut broken, reloader, store.clone()).await, "the catalogue");
        let (reloader, queue) = Reloader::for_tests();
        drop(queue);
        let mut fine = tokio::spawn(std::future::pending());
        assert_eq!(first_end(&mut fine, reloader, store).await, "the configuration");
    }
}
