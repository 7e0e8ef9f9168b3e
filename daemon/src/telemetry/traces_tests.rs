//! Spans: parentage, sampling, bounds.

use super::*;
use proptest::prelude::*;

fn root(trace: u128) -> Origin {
    Origin { trace, parent: None, sampled: None }
}

fn tracer(ratio: f64) -> Tracer {
    let tracer = Tracer::default();
    tracer.sample(Some(ratio));
    tracer
}

#[test]
fn children_name_their_parent_and_the_first_span_names_the_client() {
    let tracer = tracer(0.0);
    let origin = Origin { trace: 7, parent: Some(9), sampled: Some(true) };
    let mut above = tracer.begin(origin, Kind::Server, || "above".into());
    above.set("n", || 3_u32);
    let below = above.child(Kind::Client, || "below".into());
    let (above_id, below_id) = (above.id().unwrap(), below.id().unwrap());
    below.fail("timeout");
    above.end();
    let spans = tracer.take();
    let seen: Vec<_> =
        spans.iter().map(|s| (s.id, s.parent, s.parent_is_remote, s.error.as_deref())).collect();
    assert_eq!(seen, [(below_id, Some(above_id), false, Some("timeout")), (above_id, Some(9), true, None)]);
    assert!(spans.iter().all(|span| span.trace == 7 && span.end >= span.start));
    assert_eq!(spans[1].attributes, [("n", Value::Number(3))]);
}

#[test]
fn a_span_that_is_dropped_was_cancelled() {
    let tracer = tracer(1.0);
    drop(tracer.begin(root(1), Kind::Server, || "x".into()));
    assert_eq!(tracer.take()[0].error.as_deref(), Some("cancelled"));
}

#[test]
fn without_an_exporter_and_outside_of_the_sample_nothing_is_kept() {
    let tracer = Tracer::default();
    let span = tracer.begin(root(1), Kind::Server, || panic!("nobody wants the name"));
    assert_eq!((span.sampled(), span.id()), (None, None));
    tracer.sample(Some(0.0));
    let span = tracer.begin(root(1), Kind::Server, || panic!("nobody wants the name"));
    let mut child = span.child(Kind::Internal, || panic!("nor this one"));
    child.set("x", || -> String { panic!("nor this value") });
    assert_eq!((child.sampled(), child.id()), (Some(false), None));
    drop((span, child));
    assert_eq!(tracer.counts(), Counts::default());
}

#[test]
fn what_does_not_fit_is_dropped_and_counted_and_long_names_are_cut() {
    let tracer = tracer(1.0);
    for n in 0..MAX_WAITING + 3 {
        tracer.begin(root(n as u128 + 1), Kind::Internal, || "é".repeat(MAX_TEXT).into()).end();
    }
    let counts = tracer.counts();
    assert_eq!((counts.waiting, counts.dropped), (MAX_WAITING as u64, 3));
    let batch = tracer.take();
    assert_eq!((batch.len(), batch[0].trace), (BATCH, 1));
    assert!(batch[0].name.len() <= MAX_TEXT);
}

#[tokio::test(start_paused = true)]
async fn the_exporter_is_woken_by_the_first_span_and_by_a_whole_batch() {
    let tracer = tracer(1.0);
    let span = |n: u128| tracer.begin(root(n), Kind::Internal, || "x".into()).end();
    let long = std::time::Duration::from_secs(3600);
    assert!(tokio::time::timeout(long, tracer.some()).await.is_err());
    span(1);
    tracer.some().await;
    assert!(tokio::time::timeout(long, tracer.full()).await.is_err());
    (0..BATCH as u128).for_each(|n| span(n + 2));
    tracer.full().await;
}

proptest! {
    #[test]
    fn the_sampled_share_is_the_ratio_and_grows_with_it(seed: u64, ratio in 0.0..=1.0_f64) {
        let (some, all, none) = (tracer(ratio), tracer(1.0), tracer(0.0));
        let mut sampled = 0;
        for n in 0..2000_u64 {
            // Spread evenly over the ids: a golden-ratio sequence.
            let trace = u128::from(seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            let hit = some.begin(root(trace), Kind::Server, || "x".into()).id().is_some();
            sampled += u32::from(hit);
            prop_assert!(all.begin(root(trace), Kind::Server, || "x".into()).id().is_some());
            prop_assert!(none.begin(root(trace), Kind::Server, || "x".into()).id().is_none());
        }
        prop_assert!((f64::from(sampled) / 2000.0 - ratio).abs() < 0.02, "{sampled} of 2000 at {ratio}");
    }
}
