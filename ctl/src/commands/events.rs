//! `events`: what happened in conversations.

use super::audit::when;
use super::{Context, Format, put};
use crate::cli::EventsArgs;
use crate::client::Follow;
use crate::failure::{Done, Failure};
use crate::render::text;
use hermes_proto::control as pb;
use serde_json::{Map, Value, json};

/// Longest text of one line, in characters.
const SHOWN: usize = 200;

/// Prints events as they come; as JSON each event is an object on a line of its own.
pub(super) async fn run(cx: &Context, args: EventsArgs) -> Result<Done, Failure> {
    let wanted = pb::EventsRequest {
        session_key: args.session.unwrap_or_default(),
        kinds: args.kind,
        after_cursor: args.since,
        limit: args.lines,
        ..Default::default()
    };
    let follow = if args.follow { Follow::Yes } else { Follow::No };
    let mut events = cx.client().await?.events(wanted, follow).await?;
    while let Some(chunk) = events.next().await? {
        let mut out = String::new();
        for notice in notices(&chunk) {
            match cx.format {
                Format::Json => out.push_str(&notice.0.to_string()),
                Format::Text => out.push_str(&notice.1),
            }
            out.push('\n');
        }
        for event in &chunk.events {
            match cx.format {
                Format::Json => out.push_str(&object(event).to_string()),
                Format::Text => out.push_str(&line(event)),
            }
            out.push('\n');
        }
        put(&out)?;
    }
    Ok(Done::Well)
}

/// What must be known about the cursor that was asked for, for programs and for people.
fn notices(chunk: &pb::EventsChunk) -> Vec<(Value, String)> {
    let (oldest, latest) = (chunk.oldest_cursor, chunk.latest_cursor);
    let mut notices = Vec::new();
    if chunk.gap {
        let text = format!("-- events before {oldest} are not kept any more");
        notices.push((json!({ "gap": true, "oldest_cursor": oldest }), text));
    }
    if chunk.reset {
        let text = format!("-- this cursor is of another log, which ended; the newest is {latest}");
        notices.push((json!({ "reset": true, "latest_cursor": latest }), text));
    }
    notices
}

fn body(event: &pb::Event) -> Map<String, Value> {
    serde_json::from_str(&event.body_json).unwrap_or_default()
}

fn object(event: &pb::Event) -> Value {
    let mut object = Map::from_iter([
        ("cursor".to_owned(), event.cursor.into()),
        ("at_ms".to_owned(), event.at_ms.into()),
    ]);
    object.extend(body(event));
    Value::Object(object)
}

/// One event for a person: when, cursor, what, where, and what was said.
pub(crate) fn line(event: &pb::Event) -> String {
    let body = body(event);
    let word = |name: &str| match body.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    let said = match event.kind.as_str() {
        "message" => {
            format!("{}  {}: {}", event.session_key, word("role"), text::summary(&word("content"), SHOWN))
        }
        "conversation_rewritten" => format!("{}  {} messages gone", event.session_key, word("removed")),
        "gap" => format!("messages may be missing: {}", word("reason")),
        "approval_requested" => format!("{}  {} {}", word("approval_id"), word("server"), word("tool")),
        "approval_resolved" => format!("{}  {}", word("approval_id"), word("decision")),
        _ => event.session_key.clone(),
    };
    text::plain(&format!("{}  {}  {}  {said}", when(event.at_ms), event.cursor, event.kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(content: &str) -> pb::Event {
        let body = json!({"type": "message", "session_key": "k", "role": "user", "content": content});
        pb::Event {
            cursor: 7,
            at_ms: 5,
            kind: "message".into(),
            session_key: "k".into(),
            body_json: body.to_string(),
        }
    }

    #[test]
    fn an_event_is_one_line_that_cannot_act_on_the_terminal() {
        let line = line(&message("a\nb\x1b[2J"));
        assert!(line.contains("  7  message  k  user: a"), "{line}");
        assert!(!line.contains('\x1b') && !line.contains('\n'), "{line}");
    }

    #[test]
    fn for_programs_an_event_is_its_own_object_with_cursor_and_time() {
        let object = object(&message("hi"));
        assert_eq!(
            (&object["cursor"], &object["at_ms"], &object["content"]),
            (&json!(7), &json!(5), &json!("hi"))
        );
    }
}
