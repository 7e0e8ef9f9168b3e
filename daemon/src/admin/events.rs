//! Events of conversations for hermesctl, and how their watcher is doing. Reads only.

use super::convert::Mask;
use super::service::Inner;
use crate::conversations::events::{Cursor, Kind, Position, Window};
use crate::conversations::watch::State;
use crate::store::{EventFilter, EventPage, KeptEvent, PAGE_LIMIT, Store, StoreError};
use hermes_proto::control as pb;
use serde_json::Value;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_stream::Stream;
use tonic::Status;

type Chunks = Pin<Box<dyn Stream<Item = Result<pb::EventsChunk, Status>> + Send>>;

/// The watcher in one line, and the two ends of the log.
pub(super) fn status(inner: &Inner) -> pb::EventsStatus {
    let (oldest, latest) = inner.store.event_window().unwrap_or_default();
    let newest = inner.store.newest_event();
    pb::EventsStatus {
        watcher: inner.watch.status().borrow().words(),
        oldest_cursor: oldest,
        latest_cursor: latest,
        last_at_ms: newest.as_ref().map_or(0, |event| event.at.0),
        last_kind: newest.map(|event| event.kind.clone()).unwrap_or_default(),
    }
}

/// What a person should know about the watcher: nothing while it works or waits.
pub(super) fn finding(inner: &Inner) -> Option<pb::Finding> {
    let State::Trouble(why) = inner.watch.status().borrow().state.clone() else { return None };
    Some(pb::Finding {
        severity: pb::Severity::Warning.into(),
        message: format!("no events of conversations for now: {}", (inner.mask)(&why)),
        hint: "it is tried again by itself; if it stays, look at state.db and at `hermesctl logs`".to_owned(),
        ..Default::default()
    })
}

/// What is asked for and, if wanted, what follows until the caller or the daemon ends.
pub(super) async fn stream(inner: &Inner, request: pb::EventsRequest) -> Result<Chunks, Status> {
    let filter = filter(&request)?;
    // Before the first look: what comes during it is a change.
    let mut latest = inner.store.latest_event();
    latest.borrow_and_update();
    let store = inner.store.clone();
    let refused = |error: StoreError| refused(&error);
    let page = match request.after_cursor {
        None => {
            let limit = if request.limit == 0 { PAGE_LIMIT } else { request.limit as usize };
            store.newest_events(limit, filter.clone()).await.map_err(refused)?
        }
        Some(after) => {
            let from = if after == 0 { 0 } else { after.saturating_add(1) };
            store.events_from(from, PAGE_LIMIT, filter.clone()).await.map_err(refused)?
        }
    };
    let full = page.events.len() == PAGE_LIMIT;
    let ends = match (request.follow, request.after_cursor) {
        (true, _) => Ends::Never,
        (false, Some(_)) if full => Ends::WithTheLog,
        (false, _) => Ends::WithThis,
    };
    // The newest ones reach to the end of the log, the others to where the page was full.
    let end = page.events.last().filter(|_| full && request.after_cursor.is_some());
    let from = end.map_or(page.latest, |event| event.number) + 1;
    let mut state = Following { store, filter, latest, from, mask: inner.mask.clone(), ends, first: None };
    let mut first = state.chunk(&page);
    let window = Window { oldest: Cursor(page.oldest), latest: Cursor(page.latest) };
    match request.after_cursor.map(|after| window.position(after)) {
        Some(Position::Gap { .. }) => first.gap = true,
        Some(Position::Reset) => first.reset = true,
        Some(Position::Whole { .. }) | None => {}
    }
    state.first = Some(first);
    let stop = inner.shutdown.clone();
    Ok(Box::pin(futures_util::stream::unfold(Some(state), move |state| {
        let stop = stop.clone();
        async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => None,
                next = next(state?) => next,
            }
        }
    })))
}

/// When a stream ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// After the first chunk.
    WithThis,
    /// With the newest event there is.
    WithTheLog,
    /// Never.
    Never,
}

/// A stream between two chunks.
struct Following {
    store: Store,
    filter: EventFilter,
    latest: watch::Receiver<u64>,
    /// The next number to look at.
    from: u64,
    mask: Arc<dyn Fn(&str) -> String + Send + Sync>,
    ends: Ends,
    first: Option<pb::EventsChunk>,
}

type Step = Option<(Result<pb::EventsChunk, Status>, Option<Following>)>;

async fn next(mut state: Following) -> Step {
    if let Some(chunk) = state.first.take() {
        return Some((Ok(chunk), (state.ends != Ends::WithThis).then_some(state)));
    }
    loop {
        let page = match state.store.events_from(state.from, PAGE_LIMIT, state.filter.clone()).await {
            Ok(page) => page,
            Err(StoreError::Closed) => return None,
            Err(error) => return Some((Err(refused(&error)), None)),
        };
        let full = page.events.len() == PAGE_LIMIT;
        let end = page.events.last().filter(|_| full).map_or(page.latest, |event| event.number);
        state.from = state.from.max(end + 1);
        if !page.events.is_empty() {
            return Some((Ok(state.chunk(&page)), Some(state)));
        }
        if state.ends == Ends::WithTheLog || state.latest.changed().await.is_err() {
            return None;
        }
    }
}

impl Following {
    fn chunk(&self, page: &EventPage) -> pb::EventsChunk {
        pb::EventsChunk {
            events: page.events.iter().map(|event| self.event(event)).collect(),
            oldest_cursor: page.oldest,
            latest_cursor: page.latest,
            ..Default::default()
        }
    }

    fn event(&self, event: &KeptEvent) -> pb::Event {
        let mut body: Value = serde_json::from_str(&event.body).unwrap_or_default();
        mask(&mut body, &*self.mask);
        pb::Event {
            cursor: event.number,
            at_ms: event.at.0,
            kind: event.kind.clone(),
            session_key: event.session_key.clone(),
            body_json: body.to_string(),
        }
    }
}

/// Masks secrets in texts, one by one: the JSON stays JSON.
fn mask(value: &mut Value, masks: Mask<'_>) {
    match value {
        Value::String(text) => *text = masks(text),
        Value::Array(items) => items.iter_mut().for_each(|item| mask(item, masks)),
        Value::Object(members) => members.values_mut().for_each(|member| mask(member, masks)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn filter(request: &pb::EventsRequest) -> Result<EventFilter, Status> {
    let known = Kind::ALL.map(Kind::word);
    if let Some(kind) = request.kinds.iter().find(|kind| !known.contains(&kind.as_str())) {
        let text = format!("there are no events of kind `{kind}`\nhint: kinds are {}", known.join(", "));
        return Err(Status::invalid_argument(text));
    }
    let session_key = Some(request.session_key.clone()).filter(|key| !key.is_empty());
    Ok(EventFilter { session_key, kinds: request.kinds.clone() })
}

fn refused(error: &StoreError) -> Status {
    Status::aborted(format!("hermesd.db cannot be read: {error}\nhint: `hermesctl doctor` says more"))
}
