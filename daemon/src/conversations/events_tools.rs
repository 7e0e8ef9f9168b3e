//! `events_poll` and `events_wait`: arguments in, pages of the event log out.
//!
//! Owner: the call itself. Promise: a poll answers at once; a wait ends with the first event, its time,
//! or the daemon, holds nothing but its own future, and can be dropped at any moment. May not touch:
//! state.db, the log but for reading.

use super::arguments::{ArgumentError, Arguments, Range};
use super::events::{Cursor, Kind, Window};
use super::reply::{self, Refusal, ToolReply};
use super::tools::Tool;
use crate::store::{EventFilter, KeptEvent, Store, StoreError};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const LIMIT: Range = Range { default: 20, min: 1, max: 200 };
const CURSOR: Range = Range { default: 0, min: 0, max: 1_000_000_000_000_000_000 };
const WAIT_MS: Range = Range { default: 30_000, min: 0, max: 300_000 };

/// What a caller may see.
pub type Shown<'a> = &'a (dyn Fn(&KeptEvent) -> bool + Sync);

/// What is asked for.
#[derive(Debug)]
struct Ask {
    after: u64,
    limit: usize,
    filter: EventFilter,
}

/// Answers `events_poll` and `events_wait`; `None` for every other tool.
///
/// `stopping` ends a wait, so that nobody waits for a daemon that goes.
/// # Cancel safety
/// Cancel safe: nothing is changed.
pub async fn call(
    store: &Store,
    tool: &str,
    arguments: Option<&RawValue>,
    shown: Shown<'_>,
    stopping: &CancellationToken,
) -> Option<ToolReply> {
    let mut given = Arguments::parse(arguments);
    let answer = match Tool::named(tool)? {
        tool @ Tool::EventsPoll => {
            let (mut ask, limit) = (ask(&mut given), given.whole("limit", LIMIT));
            ask.limit = usize::try_from(limit).unwrap_or(1);
            match given.done() {
                Ok(()) => poll(store, ask, shown).await,
                Err(error) => Err(wrong(tool, error)),
            }
        }
        tool @ Tool::EventsWait => {
            let (ask, limit) = (ask(&mut given), given.whole("timeout_ms", WAIT_MS));
            let limit = Duration::from_millis(u64::try_from(limit).unwrap_or(0));
            match given.done() {
                Ok(()) => wait(store, ask, limit, shown, stopping).await,
                Err(error) => Err(wrong(tool, error)),
            }
        }
        _ => return None,
    };
    Some(reply::render(answer))
}

fn wrong(tool: Tool, error: ArgumentError) -> Refusal {
    Refusal::Arguments { tool: tool.name(), error }
}

fn ask(given: &mut Arguments) -> Ask {
    let after = u64::try_from(given.whole("after_cursor", CURSOR)).unwrap_or(0);
    // An empty text filters nothing, as in the other tools.
    let session_key = given.optional_text("session_key").filter(|key| !key.is_empty());
    let kinds = given.words("kinds", &Kind::ALL.map(Kind::word));
    let kinds = kinds.into_iter().map(str::to_owned).collect();
    Ask { after, limit: 1, filter: EventFilter { session_key, kinds } }
}

async fn poll(store: &Store, ask: Ask, shown: Shown<'_>) -> Result<Value, Refusal> {
    let (window, page) = page(store, &ask, first(ask.after), shown).await.map_err(Refusal::Events)?;
    Ok(window.answer(ask.after, page))
}

async fn wait(
    store: &Store,
    ask: Ask,
    limit: Duration,
    shown: Shown<'_>,
    stopping: &CancellationToken,
) -> Result<Value, Refusal> {
    let end = Instant::now() + limit;
    let mut latest = store.latest_event();
    let mut from = first(ask.after);
    loop {
        // Before the look: what comes during it is a change.
        latest.borrow_and_update();
        let window = match page(store, &ask, from, shown).await {
            Ok((window, page)) => {
                if let Some(answer) = window.first(ask.after, page) {
                    return Ok(answer);
                }
                // Nothing up to here is wanted: it need not be looked at again.
                from = from.max(window.latest.next().0);
                Some(window)
            }
            // The log is not open yet; when it is, that is a change.
            Err(StoreError::Locked) if !limit.is_zero() => None,
            Err(error) => return Err(Refusal::Events(error)),
        };
        let reason = tokio::select! {
            biased;
            () = stopping.cancelled() => "restart",
            changed = latest.changed(), if !limit.is_zero() => match changed {
                Ok(()) => continue,
                Err(_) => "restart",
            },
            () = tokio::time::sleep_until(end) => "timeout",
        };
        return match window {
            Some(window) => Ok(window.nothing(ask.after, reason)),
            None => Err(Refusal::Events(StoreError::Locked)),
        };
    }
}

/// The first number to look at; after 0 comes the oldest that is kept.
fn first(after: u64) -> u64 {
    if after == 0 { 0 } else { after + 1 }
}

/// The first events from `from` on that are wanted and may be seen.
async fn page(
    store: &Store,
    ask: &Ask,
    mut from: u64,
    shown: Shown<'_>,
) -> Result<(Window, Vec<(Cursor, Map<String, Value>)>), StoreError> {
    let mut found = Vec::new();
    loop {
        let page = store.events_from(from, ask.limit, ask.filter.clone()).await?;
        let window = Window { oldest: Cursor(page.oldest), latest: Cursor(page.latest) };
        let wanted = ask.limit - found.len();
        let seen = page.events.iter().filter(|event| shown(event)).take(wanted);
        found.extend(seen.map(|event| (Cursor(event.number), body(event))));
        match page.events.last() {
            Some(last) if found.len() < ask.limit && page.events.len() == ask.limit => from = last.number + 1,
            Some(_) | None => return Ok((window, found)),
        }
    }
}

fn body(event: &KeptEvent) -> Map<String, Value> {
    // Only an older or newer hermesd could have written something else.
    serde_json::from_str(&event.body).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{NewEvent, UnixMs};
    use serde_json::json;

    fn everything(_: &KeptEvent) -> bool {
        true
    }

    struct Log {
        _dir: tempfile::TempDir,
        store: Store,
        start: u64,
    }

    impl Log {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let (store, findings) = Store::open(&dir.path().join("hermesd.db"));
            assert!(findings.is_empty(), "{findings:?}");
            let start = *store.latest_event().borrow();
            Self { _dir: dir, store, start }
        }

        async fn add(&self, kind: Kind, session: &str) -> u64 {
            let body = json!({"type": kind.word(), "session_key": session}).to_string();
            let event = NewEvent { at: UnixMs(1), kind: kind.word(), session_key: session.to_owned(), body };
            self.store.append_events(vec![event], None).await.unwrap()
        }

        async fn call(&self, tool: &str, arguments: Value, shown: Shown<'_>) -> Value {
            let raw = RawValue::from_string(arguments.to_string()).unwrap();
            let reply = call(&self.store, tool, Some(&raw), shown, &CancellationToken::new()).await.unwrap();
            serde_json::from_str::<Value>(reply.json.get()).unwrap()
        }

        async fn answer(&self, tool: &str, arguments: Value) -> Value {
            self.call(tool, arguments, &everything).await["structuredContent"].clone()
        }
    }

    #[tokio::test]
    async fn pages_follow_each_other_and_filters_choose() {
        let log = Log::new();
        for n in 0..5 {
            log.add(Kind::Message, if n % 2 == 0 { "a" } else { "b" }).await;
        }
        log.add(Kind::ApprovalRequested, "").await;
        let first = log.answer("events_poll", json!({"limit": "4"})).await;
        assert_eq!(first["events"].as_array().unwrap().len(), 4);
        assert_eq!(first["oldest_cursor"], json!(log.start + 1));
        assert_eq!(first["latest_cursor"], json!(log.start + 6));
        let rest = log.answer("events_poll", json!({"after_cursor": first["next_cursor"]})).await;
        assert_eq!(rest["events"].as_array().unwrap().len(), 2);
        let of_b = log.answer("events_poll", json!({"session_key": "b", "kinds": ["message"]})).await;
        let cursors: Vec<&Value> = of_b["events"].as_array().unwrap().iter().map(|e| &e["cursor"]).collect();
        assert_eq!(cursors, [&json!(log.start + 2), &json!(log.start + 4)]);
        let wrong = log.call("events_poll", json!({"kinds": "messages", "limit": "x"}), &everything).await;
        let text = wrong["content"][0]["text"].as_str().unwrap().to_owned();
        assert!(
            text.contains("`kinds`") && text.contains("conversation_rewritten") && text.contains("`limit`"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_page_goes_on_past_what_the_caller_may_not_see() {
        let log = Log::new();
        for kind in [Kind::ApprovalRequested, Kind::ApprovalRequested, Kind::ApprovalRequested, Kind::Message]
        {
            log.add(kind, "a").await;
        }
        let hides = |event: &KeptEvent| event.kind != Kind::ApprovalRequested.word();
        for tool in ["events_poll", "events_wait"] {
            let answer = log.call(tool, json!({"limit": 2}), &hides).await["structuredContent"].clone();
            assert_eq!(answer["next_cursor"], json!(log.start + 4), "{answer}");
        }
    }

    #[tokio::test]
    async fn a_cursor_from_elsewhere_is_answered_at_once() {
        let log = Log::new();
        let above = log.start + 99;
        for tool in ["events_poll", "events_wait"] {
            let answer = log.answer(tool, json!({"after_cursor": above})).await;
            assert_eq!(
                (&answer["reset"], &answer["next_cursor"]),
                (&json!(true), &json!(log.start)),
                "{tool}"
            );
        }
    }

    #[tokio::test]
    async fn a_wait_of_nothing_looks_once() {
        let log = Log::new();
        let none = log.answer("events_wait", json!({"after_cursor": log.start, "timeout_ms": 0})).await;
        assert_eq!((&none["event"], &none["reason"]), (&Value::Null, &json!("timeout")));
        let number = log.add(Kind::Message, "a").await;
        let one = log.answer("events_wait", json!({"after_cursor": log.start, "timeout_ms": 0})).await;
        assert_eq!((&one["event"]["cursor"], &one["next_cursor"]), (&json!(number), &json!(number)));
    }

    #[tokio::test]
    async fn every_waiter_wakes_with_its_event_and_no_other() {
        let log = Log::new();
        let waits: Vec<_> = ["a", "b", "a"]
            .map(|session| {
                log.answer(
                    "events_wait",
                    json!({"after_cursor": log.start, "session_key": session, "timeout_ms": 300_000}),
                )
            })
            .into();
        let write = async {
            log.add(Kind::ApprovalResolved, "").await;
            log.add(Kind::Message, "b").await;
            log.add(Kind::Message, "a").await;
        };
        let (answers, ()) = tokio::join!(futures_util::future::join_all(waits), write);
        let cursors: Vec<u64> =
            answers.iter().map(|answer| answer["event"]["cursor"].as_u64().unwrap() - log.start).collect();
        assert_eq!(cursors, [3, 2, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_with_its_time_or_with_the_daemon() {
        let log = Log::new();
        let arguments = RawValue::from_string(format!("{{\"after_cursor\": {}}}", log.start)).unwrap();
        let before = Instant::now();
        let stopping = CancellationToken::new();
        let reply = call(&log.store, "events_wait", Some(&arguments), &everything, &stopping).await.unwrap();
        assert!(reply.json.get().contains("timeout"), "{}", reply.json);
        assert_eq!(before.elapsed().as_secs(), 30);
        stopping.cancel();
        let reply = call(&log.store, "events_wait", Some(&arguments), &everything, &stopping).await.unwrap();
        assert!(reply.json.get().contains("restart"), "{}", reply.json);
        assert_eq!(before.elapsed().as_secs(), 30);
    }
}
