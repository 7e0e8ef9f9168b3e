//! What is kept comes back, also after a restart.

use super::*;
use crate::store::retention;
use proptest::prelude::*;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn key(name: &str) -> PinKey {
    PinKey { server: server("fs"), kind: "tool".to_owned(), name: name.to_owned() }
}

fn pin(digest: u8) -> Pin {
    Pin {
        digest: [digest; 32],
        text: digest.to_string(),
        first_seen: UnixMs(5),
        approved: None,
        change: None,
    }
}

fn event(at: i64, session: &str) -> NewEvent {
    NewEvent {
        at: UnixMs(at),
        kind: "message",
        session_key: session.to_owned(),
        body: format!("{{\"at\":{at}}}"),
    }
}

#[tokio::test]
async fn a_restart_keeps_the_quota() {
    let home = Home::new();
    let store = home.open_well();
    let (a, b) = (ProfileName::new("a"), ProfileName::new("b"));
    store.count_calls(a.clone(), Day(10), 2);
    store.count_calls(b.clone(), Day(10), 1);
    store.count_calls(a.clone(), Day(11), 9);
    closed(store).await;
    let store = home.open_well();
    store.count_calls(a.clone(), Day(10), 5);
    assert_eq!(store.flush(LONG).await, Flushed::All);
    assert_eq!(store.quota_used(Day(10)).await.unwrap(), BTreeMap::from([(a, 7), (b, 1)]));
}

#[tokio::test]
async fn a_catalogue_comes_back_byte_for_byte_after_a_restart() {
    let home = Home::new();
    let store = home.open_well();
    let tool = r#"{"name":"a",  "zeta":1.0, "alpha":12345678901234567890123, "name":"a","x":"\u00e9"}"#;
    let record = CatalogRecord {
        config_digest: [3; 32],
        items: BTreeMap::from([
            ("tools".to_owned(), vec![raw(tool), raw("7")]),
            ("prompts".to_owned(), vec![]),
        ]),
        capabilities: Some(raw(r#"{"tools": {}}"#)),
        instructions: Some("line\nline".to_owned()),
    };
    store.save_catalog(server("fs"), record.clone(), UnixMs(77)).await.unwrap();
    store.save_catalog(server("gone"), record.clone(), UnixMs(1)).await.unwrap();
    store.learn(server("gone"), "era", "2025".to_owned(), UnixMs(1)).await.unwrap();
    store.forget_catalog(server("gone")).await.unwrap();
    closed(store).await;
    let store = home.open_well();
    let found = store.load_catalogs().await.unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), [&server("fs")]);
    let back = &found["fs"];
    assert_eq!(back.learned_at, UnixMs(77));
    assert_eq!(back.record.config_digest, [3; 32]);
    assert_eq!(back.record.items["tools"][0].get(), tool);
    assert_eq!(back.record.items["tools"][1].get(), "7");
    assert!(back.record.items["prompts"].is_empty());
    assert_eq!(back.record.capabilities.as_ref().unwrap().get(), r#"{"tools": {}}"#);
    assert_eq!(back.record.instructions, record.instructions);
    assert!(store.load_learned().await.unwrap().is_empty());
}

#[tokio::test]
async fn one_unreadable_catalogue_does_not_hide_the_others() {
    let home = Home::new();
    let store = home.open_well();
    let record = CatalogRecord {
        config_digest: [0; 32],
        items: BTreeMap::new(),
        capabilities: None,
        instructions: None,
    };
    store.save_catalog(server("good"), record, UnixMs(1)).await.unwrap();
    home.stranger().execute("INSERT INTO catalogue VALUES ('bad', x'00', 1, '{')", []).unwrap();
    let found = store.load_catalogs().await.unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), [&server("good")]);
}

#[tokio::test]
async fn an_audit_row_comes_back_whole() {
    let home = Home::new();
    let store = home.open_well();
    let mut full = row("write");
    full.arguments = Arguments::Full(format!("{}é", "x".repeat(ARGUMENTS_LIMIT - 1)));
    full.delivery = Some(Cow::Borrowed("maybe_written"));
    full.decisions = vec![Decision { step: Cow::Borrowed("approval"), said: Cow::Borrowed("allow-once") }];
    store.record(full.clone());
    store.record(row("read"));
    assert_eq!(store.flush(LONG).await, Flushed::All);
    let entries = store.audit(AuditQuery::default()).await.unwrap();
    let [written, read] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!(written.caller, *full.caller);
    assert_eq!((written.at, written.duration), (full.at, full.duration));
    assert_eq!(written.arguments, Arguments::Full(format!("{}{CUT}", "x".repeat(ARGUMENTS_LIMIT - 1))));
    assert_eq!(written.decisions, full.decisions);
    assert_eq!(written.delivery.as_deref(), Some("maybe_written"));
    assert_eq!(read.arguments, Arguments::Hash([7; 32]));
    assert_eq!((read.delivery.clone(), read.decisions.len()), (None, 0));
    assert!(read.id > written.id);
}

#[tokio::test]
async fn every_filter_of_the_audit_narrows_it() {
    let home = Home::new();
    let store = home.open_well();
    let other = |change: fn(&mut AuditRow)| {
        let mut row = row("same");
        change(&mut row);
        store.record(row);
    };
    other(|_| {});
    other(|row| row.server = server("git"));
    other(|row| row.tool = Some(Arc::from("other")));
    other(|row| Arc::make_mut(&mut row.caller).name = Some("cursor".to_owned()));
    other(|row| Arc::make_mut(&mut row.caller).profile = ProfileName::new("work"));
    other(|row| row.outcome = Cow::Borrowed("timeout"));
    other(|row| row.trace_id = "f".repeat(32));
    other(|row| row.at = UnixMs(2_000));
    assert_eq!(store.flush(LONG).await, Flushed::All);
    let all = store.audit(AuditQuery::default()).await.unwrap();
    let ids: Vec<i64> = all.iter().map(|entry| entry.id).collect();
    assert_eq!(ids.len(), 8);
    let only = |query: AuditQuery| {
        let store = store.clone();
        async move { store.audit(query).await.unwrap().into_iter().map(|entry| entry.id).collect::<Vec<_>>() }
    };
    let any = AuditQuery::default;
    assert_eq!(only(AuditQuery { server: Some(server("git")), ..any() }).await, [ids[1]]);
    assert_eq!(only(AuditQuery { tool: Some("other".to_owned()), ..any() }).await, [ids[2]]);
    assert_eq!(only(AuditQuery { client: Some("cursor".to_owned()), ..any() }).await, [ids[3]]);
    assert_eq!(only(AuditQuery { profile: Some(ProfileName::new("work")), ..any() }).await, [ids[4]]);
    assert_eq!(only(AuditQuery { outcome: Some("timeout".to_owned()), ..any() }).await, [ids[5]]);
    assert_eq!(only(AuditQuery { trace_id: Some("f".repeat(32)), ..any() }).await, [ids[6]]);
    assert_eq!(only(AuditQuery { since: Some(UnixMs(2_000)), ..any() }).await, [ids[7]]);
    assert_eq!(only(AuditQuery { until: Some(UnixMs(2_000)), ..any() }).await, ids[..7]);
    assert_eq!(only(AuditQuery { limit: Some(2), ..any() }).await, ids[6..]);
    assert_eq!(only(AuditQuery { after: Some(ids[2]), limit: Some(2), ..any() }).await, ids[3..5]);
}

#[tokio::test]
async fn following_answers_every_row_that_matches_once() {
    let home = Home::new();
    let store = home.open_well();
    store.record(row("before"));
    assert_eq!(store.flush(LONG).await, Flushed::All);
    let wanted = AuditQuery { tool: Some("wanted".to_owned()), limit: Some(3), ..AuditQuery::default() };
    let mut follow = store.follow_audit(wanted);
    let mut seen = Vec::new();
    for round in 0..3 {
        for _ in 0..7 {
            store.record(row("wanted"));
            store.record(row("unwanted"));
        }
        if round != 1 {
            assert_eq!(store.flush(LONG).await, Flushed::All);
        }
        while seen.len() < 7 * (round + 1) {
            let page = follow.next().await.unwrap();
            assert!(!page.is_empty() && page.len() <= 3);
            seen.extend(page.into_iter().map(|entry| entry.id));
        }
    }
    assert_eq!(seen.len(), 21);
    assert!(seen.is_sorted_by(|a, b| a < b));
    closed(store.clone()).await;
    assert!(matches!(follow.next().await, Err(StoreError::Closed)));
}

#[tokio::test]
async fn a_standing_approval_is_kept_replaced_and_taken_back() {
    let home = Home::new();
    let store = home.open_well();
    let new = |schema: u8| NewApproval {
        server: server("fs"),
        tool: crate::names::RawTool::new("rm"),
        schema_hash: [schema; 32],
        created_by: "ada".to_owned(),
        created_at: UnixMs(i64::from(schema)),
    };
    let first = store.allow_always(new(1)).await.unwrap();
    let second = store.allow_always(new(2)).await.unwrap();
    assert!(second > first, "numbers are not used again");
    closed(store).await;
    let store = home.open_well();
    assert_eq!(
        store.standing_approvals().await.unwrap(),
        [StandingApproval { id: second, approval: new(2) }]
    );
    assert_eq!(store.revoke_approval(first).await.unwrap(), None);
    let taken = store.revoke_approval(second).await.unwrap();
    assert_eq!(taken, Some((server("fs"), crate::names::RawTool::new("rm"))));
    assert!(store.standing_approvals().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_changed_pin_counts_only_after_approval_of_exactly_that_text() {
    let home = Home::new();
    let store = home.open_well();
    let change = PinChange { digest: [2; 32], text: "2".to_owned(), seen: UnixMs(8) };
    store
        .put_pins(vec![(key("a"), Pin { change: Some(change), ..pin(1) }), (key("b"), pin(9))])
        .await
        .unwrap();
    let approve =
        |name: &str, digest: u8| store.approve_pin(key(name), [digest; 32], "ada".to_owned(), UnixMs(20));
    assert_eq!(approve("a", 3).await.unwrap(), Approved::Moved);
    assert_eq!(approve("a", 1).await.unwrap(), Approved::Moved);
    assert_eq!(approve("none", 1).await.unwrap(), Approved::Unknown);
    assert_eq!(store.load_pins().await.unwrap().by_key[&key("a")].digest, [1; 32]);
    assert_eq!(approve("a", 2).await.unwrap(), Approved::Yes);
    assert_eq!(approve("b", 9).await.unwrap(), Approved::Yes);
    let pins = store.load_pins().await.unwrap();
    let approved = Some((UnixMs(20), "ada".to_owned()));
    assert_eq!(pins.by_key[&key("a")], Pin { approved: approved.clone(), ..pin(2) });
    assert_eq!(pins.by_key[&key("b")], Pin { approved, ..pin(9) });
    assert_eq!(pins.first_use, FirstUse::Trusted);
    store.forget_pins(vec![key("a")]).await.unwrap();
    assert_eq!(store.load_pins().await.unwrap().by_key.len(), 1);
}

#[tokio::test]
async fn events_are_numbered_once_and_a_lost_log_goes_on_above() {
    let home = Home::new();
    let store = home.open_well();
    let position = SourcePosition {
        source: "state.db".to_owned(),
        position: "row 12".to_owned(),
        trails: Trails::default(),
    };
    let mut latest = store.latest_event();
    let start = *latest.borrow();
    assert!(start > 1_700_000_000_000_000, "a new log starts above every older one");
    let two = store.append_events(vec![event(1_000, "s"), event(1_001, "t")], Some(position)).await.unwrap();
    assert_eq!(two, start + 2);
    assert_eq!(*latest.wait_for(|latest| *latest > start).await.unwrap(), two);
    closed(store).await;

    let store = home.open_well();
    assert_eq!(*store.latest_event().borrow(), two);
    assert_eq!(store.source_position("state.db".to_owned()).await.unwrap().as_deref(), Some("row 12"));
    assert_eq!(store.source_position("other".to_owned()).await.unwrap(), None);
    let handle = store.clone();
    let three = std::thread::spawn(move || handle.append_events_blocking(vec![event(2_000, "s")], None));
    assert_eq!(three.join().unwrap().unwrap(), two + 1);
    let page = store.events_from(0, 10, EventFilter::default()).await.unwrap();
    assert_eq!((page.oldest, page.latest), (two - 1, two + 1));
    assert_eq!(page.events.iter().map(|event| event.number).collect::<Vec<_>>(), [two - 1, two, two + 1]);
    let of_s = EventFilter { session_key: Some("s".to_owned()), kinds: vec!["message".to_owned()] };
    for from in [0, two] {
        let mine = store.events_from(from, 10, of_s.clone()).await.unwrap();
        let last = mine.events.last().unwrap();
        assert_eq!((last.number, last.body.as_str()), (two + 1, "{\"at\":2000}"));
        assert!(mine.events.iter().all(|event| event.session_key == "s"));
    }
    closed(store).await;

    std::fs::remove_file(home.path()).unwrap();
    let store = home.open_well();
    assert!(store.append_events(vec![event(9_000, "s")], None).await.unwrap() > two + 1);
}

#[test]
fn old_rows_go_in_steps_and_event_numbers_stay() {
    let mut connection = Connection::open_in_memory().unwrap();
    crate::store::migrations::run(&mut connection).unwrap();
    for n in 0..1_200 {
        connection
            .execute(
                "INSERT INTO audit (at_ms, duration_us, profile, method, server, trace_id, outcome, decisions) \
                 VALUES (?1, 0, 'p', 'm', 's', 't', 'ok', '[]')",
                [n],
            )
            .unwrap();
        connection.execute("INSERT INTO events VALUES (?1, ?1, 's', '{}', 'message')", [n + 1]).unwrap();
    }
    let keep = Retention {
        audit_for: Duration::from_millis(100),
        audit_rows: 50,
        events_for: Duration::from_millis(1_000_000),
        events: 60,
    };
    let mut steps = 0;
    while retention::step(&mut connection, keep, UnixMs(1_200)).unwrap() != retention::Step::Done {
        steps += 1;
        assert!(steps < 10);
    }
    assert_eq!(steps, 3, "each step removes at most 500 rows of a kind");
    let count = |table: &str| -> i64 {
        connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    assert_eq!((count("audit"), count("events")), (50, 60));
}

#[tokio::test]
async fn a_shorter_retention_takes_effect_while_running() {
    let home = Home::new();
    let store = home.open_well();
    for _ in 0..700 {
        store.record(row("old"));
    }
    assert_eq!(store.flush(LONG).await, Flushed::All);
    let now = UnixMs::at(std::time::SystemTime::now());
    store.record(AuditRow { at: now, ..row("fresh") });
    assert_eq!(store.flush(LONG).await, Flushed::All);
    store.set_retention(Retention::with_audit_days(1));
    store.health().wait_for(|health| health.removed == 700).await.unwrap();
    assert_eq!(tools(&store, AuditQuery::default()).await, ["fresh"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Whatever clocks did, events go from the oldest number on: what stays has no gap.
    #[test]
    fn removing_events_never_opens_a_gap(ages in proptest::collection::vec(0_i64..2_000, 1..80), limit in 1_u64..100) {
        let mut connection = Connection::open_in_memory().unwrap();
        crate::store::migrations::run(&mut connection).unwrap();
        for (n, age) in ages.iter().enumerate() {
            connection.execute("INSERT INTO events VALUES (?1, ?2, 's', '{}', 'message')", (n as i64, 10_000 - age)).unwrap();
        }
        let keep = Retention { events_for: Duration::from_millis(1_000), events: limit, ..Retention::default() };
        while retention::step(&mut connection, keep, UnixMs(10_000)).unwrap() != retention::Step::Done {}
        let left: Vec<i64> = connection.prepare("SELECT cursor FROM events ORDER BY cursor").unwrap()
            .query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        let by_count = ages.len().saturating_sub(usize::try_from(limit).unwrap());
        let old = ages[by_count..].iter().take_while(|age| **age > 1_000).count();
        let expected: Vec<i64> = (by_count + old..ages.len()).map(|n| n as i64).collect();
        prop_assert_eq!(left, expected);
    }
}

fn keyed(key: &str, text: u8, life: i64) -> Keyed {
    Keyed { key: key.to_owned(), digest: [text; 32], life }
}

#[tokio::test]
async fn a_key_is_begun_once_and_ends_as_its_message_did() {
    let home = Home::new();
    let store = home.open_well();
    let begin = |key: &'static str, text, life| store.begin_send(keyed(key, text, life), UnixMs(1_000));
    assert_eq!(begin("a", 1, 7).await.unwrap(), Begun::Go { from: 0 });
    assert_eq!(begin("a", 1, 7).await.unwrap(), Begun::Running);
    assert_eq!(begin("a", 2, 7).await.unwrap(), Begun::OtherMessage);
    assert_eq!(begin("a", 1, 8).await.unwrap(), Begun::Unknown, "the daemon that began it is gone");
    store.end_send("a".into(), SendEnd::Done { answer: "{}".into() }).await.unwrap();
    assert_eq!(begin("a", 1, 8).await.unwrap(), Begun::Done { answer: "{}".into() });
    begin("b", 1, 7).await.unwrap();
    store.end_send("b".into(), SendEnd::Stopped { sent: 3 }).await.unwrap();
    assert_eq!(begin("b", 1, 8).await.unwrap(), Begun::Go { from: 3 });
    store.end_send("b".into(), SendEnd::Stopped { sent: 0 }).await.unwrap();
    assert_eq!(begin("b", 9, 7).await.unwrap(), Begun::Go { from: 0 }, "forgotten");
    store.end_send("b".into(), SendEnd::Unknown { sent: 0 }).await.unwrap();
    assert_eq!(begin("b", 9, 7).await.unwrap(), Begun::Unknown);
}

#[tokio::test]
async fn keys_are_kept_for_a_week_and_their_number_is_bounded() {
    let home = Home::new();
    let store = home.open_well();
    let week = i64::try_from(KEPT_FOR.as_millis()).unwrap();
    store.begin_send(keyed("old", 1, 1), UnixMs(0)).await.unwrap();
    assert_eq!(store.begin_send(keyed("old", 1, 2), UnixMs(week)).await.unwrap(), Begun::Unknown);
    assert_eq!(store.begin_send(keyed("old", 1, 2), UnixMs(week + 1)).await.unwrap(), Begun::Go { from: 0 });
    let fill = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {KEPT})
         INSERT INTO sends SELECT 'k' || i, zeroblob(32), {week} + i, 'done', 1, 0, '' FROM n"
    );
    home.stranger().execute_batch(&fill).unwrap();
    store.begin_send(keyed("new", 1, 1), UnixMs(2 * week)).await.unwrap();
    let count: u32 = home.stranger().query_row("SELECT count(*) FROM sends", [], |row| row.get(0)).unwrap();
    assert_eq!(count, KEPT);
}
