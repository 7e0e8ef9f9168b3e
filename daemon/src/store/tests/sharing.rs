//! Locks of other processes, full lanes, the end.

use super::*;
use crate::store::queue::{BATCH_ROWS, Next, ORDER_LIMIT, ROW_BYTES_LIMIT, ROW_LIMIT};

#[tokio::test]
async fn rows_and_quota_wait_out_a_lock_of_another_process() {
    let home = Home::new();
    let store = home.open_well();
    let mut health = store.health();
    let stranger = home.stranger();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    for n in 0..10 {
        assert_eq!(store.record(row(&n.to_string())), Recorded::Queued);
    }
    store.count_calls(ProfileName::new("p"), Day(1), 3);
    health.wait_for(|health| health.trouble.is_some()).await.unwrap();
    assert_eq!(health.borrow().trouble.clone().unwrap().kind, TroubleKind::Locked);
    // Readers are not held up by it.
    assert_eq!(tools(&store, AuditQuery::default()).await.len(), 0);
    store.count_calls(ProfileName::new("p"), Day(1), 4);
    stranger.execute_batch("COMMIT").unwrap();
    assert_eq!(store.flush(LONG).await, Flushed::All);
    assert_eq!(tools(&store, AuditQuery::default()).await.len(), 10);
    assert_eq!(store.quota_used(Day(1)).await.unwrap()[&ProfileName::new("p")], 7);
    health.wait_for(|health| health.trouble.is_none()).await.unwrap();
    assert_eq!(store.audit_dropped(), 0);
}

#[tokio::test]
async fn an_order_waits_for_a_lock_that_goes_away() {
    let home = Home::new();
    let store = home.open_well();
    let stranger = home.stranger();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    let learn = store.learn(server("fs"), "era", "2025".to_owned(), UnixMs(1));
    let free = async { stranger.execute_batch("COMMIT").unwrap() };
    // The order is queued by the first poll, before the lock goes.
    let (learned, ()) = tokio::join!(learn, free);
    learned.unwrap();
    assert_eq!(store.load_learned().await.unwrap()[&server("fs")]["era"], "2025");
}

#[tokio::test]
async fn a_file_locked_at_the_start_is_opened_when_the_lock_goes() {
    let home = Home::new();
    closed(home.open_well()).await;
    let stranger = home.stranger();
    stranger
        .execute_batch("PRAGMA journal_mode = DELETE; PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE")
        .unwrap();
    let (store, findings) = home.open();
    assert_eq!(findings, [StoreFinding::Locked { path: home.path() }]);
    assert!(matches!(store.load_pins().await, Err(StoreError::Locked)));
    assert!(matches!(store.audit(AuditQuery::default()).await, Err(StoreError::Locked)));
    assert_eq!(store.record(row("early")), Recorded::Queued);
    drop(stranger);
    assert_eq!(store.opened(LONG).await.unwrap(), Keeping::Wal);
    assert_eq!(store.flush(LONG).await, Flushed::All);
    assert_eq!(tools(&store, AuditQuery::default()).await, ["early"]);
}

#[tokio::test]
async fn ten_thousand_rows_take_about_ten_transactions_and_none_is_lost() {
    let home = Home::new();
    let store = home.open_well();
    let mut health = store.health();
    // Held back, so that how fast this machine queues does not matter.
    let stranger = home.stranger();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    let rows = 10_000;
    for n in 0..rows {
        assert_eq!(store.record(row(&n.to_string())), Recorded::Queued);
    }
    health.wait_for(|health| health.trouble.is_some()).await.unwrap();
    stranger.execute_batch("COMMIT").unwrap();
    let began = Instant::now();
    assert_eq!(store.flush(LONG).await, Flushed::All);
    println!("{rows} rows written in {:?}", began.elapsed());
    let health = health.borrow().clone();
    assert_eq!((health.audit_written, store.audit_dropped()), (rows, 0));
    // One more than full batches: the one that was under way may have been taken half full.
    assert!(health.batches <= rows.div_ceil(BATCH_ROWS as u64) + 1, "{} batches", health.batches);
    let written: i64 = home.stranger().query_row("SELECT count(*) FROM audit", [], |row| row.get(0)).unwrap();
    assert_eq!(written, 10_000);
}

#[test]
fn a_full_lane_of_rows_drops_the_newest_and_counts() {
    let queue = Queue::new();
    for _ in 0..ROW_LIMIT {
        assert_eq!(queue.record(row("a")), Recorded::Queued);
    }
    assert_eq!(queue.record(row("b")), Recorded::Dropped);
    assert_eq!(queue.waiting_and_dropped(), (ROW_LIMIT, 1));
    assert_eq!(queue.take_batch().rows.len(), BATCH_ROWS);
    assert_eq!(queue.record(row("c")), Recorded::Queued);
    assert_eq!(queue.waiting_and_dropped(), (ROW_LIMIT + 1, 1));
    queue.landed();
    assert_eq!(queue.waiting_and_dropped(), (ROW_LIMIT + 1 - BATCH_ROWS, 1));
}

#[test]
fn a_lane_of_large_rows_is_full_by_bytes_and_a_batch_put_back_keeps_its_place() {
    let queue = Queue::new();
    let large = || {
        let mut large = row("large");
        large.arguments = Arguments::Full("x".repeat(ARGUMENTS_LIMIT));
        large
    };
    let fits = ROW_BYTES_LIMIT / large().bytes();
    for _ in 0..fits {
        assert_eq!(queue.record(large()), Recorded::Queued);
    }
    assert_eq!(queue.record(large()), Recorded::Dropped);
    let batch = queue.take_batch();
    let first = batch.rows[0].clone();
    queue.record(row("younger"));
    queue.put_back(batch, Duration::ZERO);
    assert_eq!(queue.take_batch().rows[0], first);
}

#[test]
fn orders_and_batches_take_turns_and_a_full_lane_of_orders_refuses() {
    let queue = Queue::new();
    let order = || Order { deadline: Instant::now(), needs: Needs::Anything, work: Box::new(|_| Ok(())) };
    for _ in 0..ORDER_LIMIT {
        queue.order(order()).unwrap();
    }
    assert!(matches!(queue.order(order()), Err(StoreError::Full { limit: ORDER_LIMIT })));
    let far = Instant::now() + LONG;
    // Nothing gathers: orders only.
    assert!(matches!(queue.next(far), Next::Order(_)));
    queue.record(row("a"));
    // A batch that could not be written is due at once here, whatever the clock says.
    let batch = queue.take_batch();
    queue.put_back(batch, Duration::ZERO);
    queue.close(far);
    assert!(matches!(queue.next(far), Next::Batch(_)));
    assert!(matches!(queue.next(far), Next::Order(_)));
    assert!(matches!(queue.order(order()), Err(StoreError::Closed)));
}

#[tokio::test]
async fn closing_writes_what_waits_and_refuses_the_rest() {
    let home = Home::new();
    let store = home.open_well();
    store.record(row("last"));
    assert_eq!(store.close(LONG).await, Flushed::All);
    assert_eq!(store.ended().await, Ended::Closed);
    assert_eq!(store.record(row("too late")), Recorded::Dropped);
    assert!(matches!(store.beat().await, Err(StoreError::Closed)));
    assert_eq!(tools(&home.open_well(), AuditQuery::default()).await, ["last"]);
}

#[tokio::test]
async fn closing_under_a_lock_ends_at_its_limit_and_says_what_is_left() {
    let home = Home::new();
    let store = home.open_well();
    let stranger = home.stranger();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    store.record(row("stuck"));
    assert_eq!(store.close(Duration::from_millis(20)).await, Flushed::Some { rows_left: 1 });
}

#[tokio::test]
async fn a_full_disk_keeps_rows_waiting_and_is_told() {
    let home = Home::new();
    let store = home.open_well();
    let mut health = store.health();
    let limit = |pages: u32| {
        store.write(Needs::Disk, move |connection| {
            Ok(connection.query_row(&format!("PRAGMA max_page_count={pages}"), [], |_| Ok(()))?)
        })
    };
    // Below what is used, SQLite takes the number of pages that are.
    limit(1).await.unwrap();
    let large = || {
        let mut large = row("large");
        large.arguments = Arguments::Full("x".repeat(ARGUMENTS_LIMIT));
        large
    };
    (0..50).for_each(|_| assert_eq!(store.record(large()), Recorded::Queued));
    health.wait_for(|health| health.trouble.is_some()).await.unwrap();
    assert_eq!(health.borrow().trouble.clone().unwrap().kind, TroubleKind::DiskFull);
    assert!(matches!(store.flush(LONG).await, Flushed::Some { rows_left: 50 }));
    limit(1_000_000).await.unwrap();
    assert_eq!(store.flush(LONG).await, Flushed::All);
    assert_eq!(tools(&store, AuditQuery::default()).await.len(), 50);
}

#[tokio::test]
async fn a_panic_of_the_writer_is_told_to_everyone_who_waits() {
    let home = Home::new();
    let store = home.open_well();
    let crash = store.write(Needs::Anything, |_| -> Result<(), StoreError> { panic!("on purpose") });
    let (crashed, behind) = tokio::join!(crash, store.beat());
    assert!(matches!(crashed, Err(StoreError::Closed)) && matches!(behind, Err(StoreError::Closed)));
    assert_eq!(store.ended().await, Ended::Panicked);
    assert_eq!(store.record(row("too late")), Recorded::Dropped);
}

#[tokio::test]
async fn the_last_handle_takes_the_writer_with_it() {
    let home = Home::new();
    let store = home.open_well();
    store.beat().await.unwrap();
    let mut ended = store.shared().ended.subscribe();
    store.record(row("kept"));
    drop(store);
    ended.wait_for(Option::is_some).await.unwrap();
    assert_eq!(tools(&home.open_well(), AuditQuery::default()).await, ["kept"]);
}
