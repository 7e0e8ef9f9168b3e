//! The export task under a paused clock, with a receiver that does as it is told.

use super::super::traces::{BATCH, Counts, Kind, MAX_WAITING, Origin};
use super::*;
use crate::tasks::{Finished as Over, TaskGroup};
use std::sync::Mutex;

type Sent = Arc<Mutex<Vec<(String, usize)>>>;

struct Fake {
    endpoint: String,
    sent: Sent,
    away: watch::Receiver<bool>,
}

impl Sink for Fake {
    async fn send(&self, batch: Vec<Finished>) -> Result<(), String> {
        if *self.away.borrow() {
            return Err("away".to_owned());
        }
        self.sent.lock().unwrap().push((self.endpoint.clone(), batch.len()));
        Ok(())
    }
}

struct Rig {
    tracer: Tracer,
    tasks: TaskGroup,
    config: watch::Sender<Arc<Config>>,
    away: watch::Sender<bool>,
    sent: Sent,
}

fn with(endpoint: Option<&str>) -> Arc<Config> {
    let mut config = Config::default();
    config.daemon.otlp = endpoint.map(|to| OtlpConfig { endpoint: to.to_owned(), sample_ratio: 1.0 });
    Arc::new(config)
}

async fn rig(endpoint: Option<&str>) -> Rig {
    let (config, seen) = watch::channel(with(endpoint));
    let (away, is_away) = watch::channel(false);
    let (tracer, tasks, sent) = (Tracer::default(), TaskGroup::new(), Sent::default());
    let to = sent.clone();
    let connect: Connect<Fake> = Arc::new(move |config| {
        if config.endpoint == "bad" {
            return Err("no such thing".to_owned());
        }
        let sink = Fake { endpoint: config.endpoint.clone(), sent: to.clone(), away: is_away.clone() };
        Ok(Connected { sink, protocol: "fake" })
    });
    tasks.spawn(Export::new(tracer.clone(), seen, connect).run(tasks.stop_signal()));
    let rig = Rig { tracer, tasks, config, away, sent };
    rig.settled(endpoint.unwrap_or_default()).await;
    rig
}

impl Rig {
    /// Waits until the task has taken this endpoint over.
    async fn settled(&self, endpoint: &str) {
        let mut status = self.tracer.status().subscribe();
        status.wait_for(|status| status.endpoint == endpoint).await.unwrap();
        tokio::task::yield_now().await;
    }

    fn spans(&self, count: usize) {
        for _ in 0..count {
            let origin = Origin { trace: 5, parent: None, sampled: None };
            self.tracer.begin(origin, Kind::Internal, || "x".into()).end();
        }
    }

    fn sent(&self) -> Vec<(String, usize)> {
        std::mem::take(&mut *self.sent.lock().unwrap())
    }

    fn trouble(&self) -> Option<String> {
        self.tracer.status().borrow().trouble.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn spans_are_sent_together_after_a_moment_or_when_a_batch_is_full() {
    let rig = rig(Some("a")).await;
    rig.spans(3);
    tokio::time::sleep(LINGER / 2).await;
    assert_eq!(rig.sent(), []);
    tokio::time::sleep(LINGER).await;
    assert_eq!(rig.sent(), [("a".into(), 3)]);
    rig.spans(BATCH);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(rig.sent(), [("a".into(), BATCH)]);
    assert_eq!(rig.tracer.counts().exported, BATCH as u64 + 3);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_comes_back_gets_what_was_held_for_it() {
    let rig = rig(Some("a")).await;
    rig.away.send_replace(true);
    rig.spans(2);
    tokio::time::sleep(LINGER * 2).await;
    assert_eq!(rig.trouble().as_deref(), Some("away"));
    rig.away.send_replace(false);
    tokio::time::sleep(MAX_PAUSE).await;
    assert_eq!((rig.sent(), rig.trouble()), (vec![("a".into(), 2)], None));
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_stays_away_costs_counted_spans_and_bounded_memory() {
    let rig = rig(Some("a")).await;
    rig.away.send_replace(true);
    rig.spans(1);
    tokio::time::sleep(MAX_AGE + MAX_PAUSE * 2).await;
    assert_eq!(rig.tracer.counts(), Counts { lost: 1, ..Counts::default() });
    rig.spans(MAX_WAITING + 10);
    assert_eq!(rig.tracer.counts().dropped, 10);
}

#[tokio::test(start_paused = true)]
async fn told_to_stop_it_sends_what_is_there() {
    let rig = rig(Some("a")).await;
    rig.spans(BATCH + 1);
    assert_eq!(rig.tasks.finish(Duration::from_millis(1)).await, Over::All);
    assert_eq!(rig.sent(), [("a".into(), BATCH), ("a".into(), 1)]);
    let rig = self::rig(Some("a")).await;
    rig.away.send_replace(true);
    rig.spans(BATCH + 1);
    assert_eq!(rig.tasks.finish(Duration::from_millis(1)).await, Over::All);
    assert_eq!(rig.tracer.counts(), Counts { lost: BATCH as u64 + 1, ..Counts::default() });
}

#[tokio::test(start_paused = true)]
async fn a_new_configuration_is_followed() {
    let rig = rig(None).await;
    rig.spans(1);
    assert_eq!(rig.tracer.counts().waiting, 0);
    rig.config.send_replace(with(Some("a")));
    rig.settled("a").await;
    rig.spans(1);
    rig.config.send_replace(with(Some("b")));
    rig.settled("b").await;
    rig.spans(1);
    tokio::time::sleep(LINGER * 2).await;
    // What waited goes where the configuration in force says.
    assert_eq!(rig.sent(), [("b".into(), 2)]);
    rig.spans(4);
    rig.config.send_replace(with(None));
    rig.settled("").await;
    assert_eq!(rig.sent(), [("b".into(), 4)]);
    rig.config.send_replace(with(Some("bad")));
    rig.settled("bad").await;
    assert_eq!(rig.trouble().as_deref(), Some("no such thing"));
    rig.spans(1);
    assert_eq!(rig.tracer.counts(), Counts { exported: 6, ..Counts::default() });
}
