//! What `tools/list` says about the ten tools.
//!
//! Pure. Promise: names, types, defaults and required arguments are those of the reference; the
//! bytes never change while the daemon runs. Limits are in the descriptions only, since a value
//! outside is moved to the nearer end and not refused.

use super::events::Kind;
use super::messages::Role;
use super::tools::Tool as Name;
use crate::names::RawTool;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::sync::Arc;

/// One tool as it is listed.
#[derive(Debug, Clone)]
pub struct ToolDefinition {
    /// The raw name.
    pub name: RawTool,
    /// What a call can change.
    pub effect: Effect,
    /// The `Tool` object: name, title, description, inputSchema, outputSchema, annotations.
    pub json: Box<RawValue>,
}

/// What a call of a tool can change; decides what `conversations: read` offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    Reads,
    /// Something outside: a message is sent, a request is decided.
    Acts,
}

/// The ten, in the reference's order.
pub(super) fn all() -> Vec<ToolDefinition> {
    Name::ALL.into_iter().map(definition).collect()
}

fn definition(name: Name) -> ToolDefinition {
    let (title, description) = words(name);
    let tool = Tool::new(name.name(), description, map(input_schema(name)))
        .with_title(title)
        .with_raw_output_schema(map(output_schema(name)))
        .with_annotations(annotations(name));
    let json = serde_json::value::to_raw_value(&tool).expect("a tool of texts and JSON is JSON");
    ToolDefinition { name: RawTool::new(name.name()), effect: effect(name), json }
}

fn effect(name: Name) -> Effect {
    match name {
        Name::MessagesSend | Name::PermissionsRespond => Effect::Acts,
        Name::ConversationsList
        | Name::ConversationGet
        | Name::MessagesRead
        | Name::AttachmentsFetch
        | Name::EventsPoll
        | Name::EventsWait
        | Name::ChannelsList
        | Name::PermissionsListOpen => Effect::Reads,
    }
}

fn annotations(name: Name) -> ToolAnnotations {
    let hints = ToolAnnotations::new();
    match effect(name) {
        Effect::Reads => hints.read_only(true).open_world(false),
        // A decision lets a held call run, whatever that call does; a message cannot be taken back.
        Effect::Acts => hints.read_only(false).destructive(true).idempotent(false).open_world(true),
    }
}

fn words(name: Name) -> (&'static str, &'static str) {
    match name {
        Name::ConversationsList => (
            "List conversations",
            "Lists the current conversations of Hermes Agent on all messaging platforms, most recently used first. \
             Start here: the other tools take the session_key found in this list.",
        ),
        Name::ConversationGet => (
            "Show a conversation",
            "Shows one conversation: platform, chat, people, times and the tokens used so far.",
        ),
        Name::MessagesRead => (
            "Read messages",
            "Reads the newest messages of a conversation, oldest first, as the people in it and the assistant wrote \
             them. A text is cut after 2000 characters and then marked with truncated; full gives it whole. \
             total_in_session says how many messages there are in all; before and after turn pages.",
        ),
        Name::AttachmentsFetch => (
            "List attachments",
            "Lists the images, files and media paths of one message. Answers with addresses and paths, or the data \
             itself where the message holds it.",
        ),
        Name::EventsPoll => (
            "Poll events",
            "Returns at once what happened after a cursor: new messages, messages taken back, approvals asked for and \
             decided. Pass next_cursor as after_cursor the next time.",
        ),
        Name::EventsWait => (
            "Wait for an event",
            "Waits until something happens after a cursor and returns that one event, or says that the time is over. Pass \
             next_cursor as after_cursor the next time; begin with latest_cursor of events_poll.",
        ),
        Name::MessagesSend => (
            "Send a message",
            "Sends a text to a chat on a messaging platform, as Hermes Agent. It reaches real people and cannot be taken \
             back. Take the target from channels_list. Long texts go in several messages. The answer says whether it \
             was delivered; do not repeat a call whose outcome is unknown.",
        ),
        Name::ChannelsList => (
            "List channels",
            "Lists the chats that messages can be sent to. Each target can be given to messages_send as it is.",
        ),
        Name::PermissionsListOpen => {
            ("List open approvals", "Lists the requests that wait for somebody's approval, oldest first.")
        }
        Name::PermissionsRespond => (
            "Answer an approval",
            "Decides one request that waits for approval. Ask the user before you allow.",
        ),
    }
}

fn input_schema(name: Name) -> Value {
    match name {
        Name::ConversationsList => object(
            json!({
                "platform": optional_text("Only this platform, for example telegram or slack; case does not matter."),
                "limit": whole(50, "Longest list, 1 to 200."),
                "search": optional_text("Only conversations with this text in their names or key."),
                "active_since": {
                    "anyOf": [{ "type": "string" }, { "type": "number" }, { "type": "null" }], "default": null,
                    "description": "Only conversations used then or later: a time like 2026-05-17T08:00:00 (local) or seconds since 1970.",
                },
                "include_local": flag("Also sessions without a chat of their own: command line, ended and continued ones."),
            }),
            &[],
        ),
        Name::ConversationGet => object(
            json!({ "session_key": text(SESSION_KEY), "include_local": flag(LOCAL) }),
            &["session_key"],
        ),
        Name::MessagesRead => object(
            json!({
                "session_key": text(SESSION_KEY),
                "limit": whole(50, "How many messages, 1 to 200."),
                "before": message_id("Only messages before this one: the page before the one that you have."),
                "after": message_id("Only messages after this one, the oldest of them first: the page after the one that you have."),
                "roles": {
                    "anyOf": [
                        { "type": "array", "items": { "type": "string", "enum": Role::ALL.map(Role::word) } },
                        { "type": "null" },
                    ],
                    "default": null,
                    "description": "Only messages of these; user and assistant if not given.",
                },
                "full": flag("Whole texts, and messages that have attachments and no text."),
                "include_local": flag(LOCAL),
            }),
            &["session_key"],
        ),
        Name::AttachmentsFetch => object(
            json!({
                "session_key": text(SESSION_KEY),
                "message_id": text("The id of a message, from messages_read."),
                "include_local": flag(LOCAL),
            }),
            &["session_key", "message_id"],
        ),
        Name::EventsPoll => object(
            json!({
                "after_cursor": whole(0, "The last cursor seen; 0 for the oldest event kept."),
                "session_key": optional_text("Only events of this conversation."),
                "limit": whole(20, "Longest list, 1 to 200."),
                "kinds": kinds(),
            }),
            &[],
        ),
        Name::EventsWait => object(
            json!({
                "after_cursor": whole(0, "The last cursor seen; 0 for the oldest event kept."),
                "session_key": optional_text("Only events of this conversation."),
                "timeout_ms": whole(30_000, "Longest wait in milliseconds, 0 to 300000."),
                "kinds": kinds(),
            }),
            &[],
        ),
        Name::MessagesSend => object(
            json!({
                "target": text("platform:chat, as channels_list gives it, or a bare platform for its home channel."),
                "message": text("The text to send, in Markdown. MEDIA:/path adds a file of Hermes Agent's media folders."),
                "idempotency_key": optional_text(
                    "Any text that is new for each message: the same call with the same key is sent once, however often it is made.",
                ),
            }),
            &["target", "message"],
        ),
        Name::ChannelsList => {
            object(json!({ "platform": optional_text("Only this platform; case does not matter.") }), &[])
        }
        Name::PermissionsListOpen => object(json!({}), &[]),
        Name::PermissionsRespond => object(
            json!({
                "id": text("The id of the request, from permissions_list_open."),
                "decision": text("allow-once, allow-always or deny."),
            }),
            &["id", "decision"],
        ),
    }
}

const LOCAL: &str =
    "Whether session_key may be that of a single session, as conversations_list gives it with include_local.";
const SESSION_KEY: &str = "The session_key of a conversation, from conversations_list.";

/// The object of a success, or the object with `error` that goes with `isError`.
fn output_schema(name: Name) -> Value {
    let nullable = json!({ "type": ["string", "null"] });
    let string = json!({ "type": "string" });
    let whole = json!({ "type": "integer" });
    let list = json!({ "type": "array", "items": { "type": "object" } });
    let list_of = |item: Value| json!({ "type": "array", "items": item });
    match name {
        Name::ConversationsList => {
            let fields = json!({
                "session_key": string, "session_id": string, "platform": string, "chat_type": nullable,
                "display_name": nullable, "chat_name": nullable, "user_name": nullable, "updated_at": nullable,
            });
            answer(json!({ "count": whole, "conversations": list_of(whole_object(fields)) }))
        }
        Name::ConversationGet => answer(json!({
            "session_key": string, "session_id": string, "platform": string, "chat_type": nullable,
            "display_name": nullable, "user_name": nullable, "chat_name": nullable, "chat_id": nullable,
            "thread_id": nullable, "updated_at": nullable, "created_at": nullable, "input_tokens": whole,
            "output_tokens": whole, "total_tokens": whole,
        })),
        Name::MessagesRead => {
            let fields = json!({
                "id": string, "role": { "type": "string", "enum": Role::ALL.map(Role::word) }, "content": string,
                "timestamp": { "type": ["number", "string", "null"], "description": "Seconds since 1970." },
            });
            let mut message = whole_object(fields);
            message["properties"]["truncated"] = json!({ "const": true, "description": "The text was cut." });
            message["properties"]["attachments"] =
                json!({ "type": "integer", "description": "How many there are; with full." });
            let messages = list_of(message);
            let mut answer = answer(
                json!({ "session_key": string, "count": whole, "total_in_session": whole, "messages": messages }),
            );
            answer["properties"]["more"] = json!({
                "type": "boolean",
                "description": "Whether there are further messages in the direction of reading; with any argument but limit.",
            });
            answer
        }
        Name::AttachmentsFetch => {
            let item = json!({
                "type": "object",
                "properties": { "type": string, "url": string, "path": string, "data": { "type": "object" } },
                "required": ["type"],
            });
            answer(json!({ "message_id": string, "count": whole, "attachments": list_of(item) }))
        }
        Name::EventsPoll => {
            let mut fields = cursors();
            fields["events"] = list_of(event());
            with_marks(answer(fields))
        }
        Name::EventsWait => {
            let mut fields = cursors();
            let none = json!({ "type": "null" });
            fields["event"] = json!({ "anyOf": [event(), none] });
            with_marks(answer(fields))
        }
        Name::MessagesSend => sent(),
        Name::ChannelsList => {
            let fields =
                json!({ "target": string, "platform": string, "name": nullable, "chat_type": nullable });
            answer(json!({ "count": whole, "channels": list_of(whole_object(fields)) }))
        }
        Name::PermissionsListOpen => answer(json!({ "count": whole, "approvals": list })),
        Name::PermissionsRespond => {
            answer(json!({ "resolved": { "type": "boolean" }, "approval_id": string, "decision": string }))
        }
    }
}

/// Where an answer of the event log stands in it.
fn cursors() -> Value {
    let cursor = |text: &str| json!({ "type": "integer", "description": text });
    json!({
        "next_cursor": cursor("Pass this as after_cursor the next time."),
        "oldest_cursor": cursor("The oldest event kept."),
        "latest_cursor": cursor("The newest event there ever was."),
    })
}

/// What an answer of the event log may say besides.
fn with_marks(mut schema: Value) -> Value {
    let mark = |text: &str| json!({ "type": "boolean", "description": text });
    schema["properties"]["gap"] =
        mark("Events after after_cursor are no longer kept: read the conversations again.");
    schema["properties"]["reset"] = mark("after_cursor is of another log: go on from next_cursor.");
    schema["properties"]["reason"] = json!({ "type": "string", "description": "Why there is no event: timeout, reset, or restart (ask again)." });
    schema
}

fn event() -> Value {
    let string = json!({ "type": "string" });
    json!({
        "type": "object",
        "properties": {
            "cursor": { "type": "integer" },
            "type": { "type": "string", "enum": Kind::ALL.map(Kind::word) },
            "session_key": string, "role": string, "content": string, "timestamp": string, "message_id": string,
            "truncated": { "type": "boolean" }, "removed": { "type": "integer" }, "reason": string,
            "approval_id": string, "decision": string, "server": string, "tool": string,
        },
        "required": ["cursor", "type", "session_key"],
    })
}

fn kinds() -> Value {
    json!({
        "anyOf": [{ "type": "array", "items": { "type": "string", "enum": Kind::ALL.map(Kind::word) } }, { "type": "null" }],
        "default": null,
        "description": "Only events of these kinds; gap markers come in any case.",
    })
}

/// What `messages_send` answers, with what goes with an error.
fn sent() -> Value {
    let string = json!({ "type": "string" });
    let whole = json!({ "type": "integer" });
    let list = json!({ "type": "array", "items": { "type": "object" } });
    let mut schema = answer(json!({ "success": { "type": "boolean" } }));
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    let delivery = json!({
        "enum": ["not_sent", "partly_sent", "unknown"],
        "description": "Beside an error: whether the chat has the message.",
    });
    for (member, of) in [
        ("platform", &string),
        ("chat_id", &string),
        ("thread_id", &string),
        ("message_id", &string),
        ("message_ids", &texts),
        ("parts", &whole),
        ("parts_sent", &whole),
        ("warnings", &texts),
        ("note", &string),
        ("mirrored", &json!({ "type": "boolean" })),
        (
            "repeated",
            &json!({ "const": true, "description": "It was sent by an earlier call with this key." }),
        ),
        ("delivery", &delivery),
        ("retry_after_ms", &whole),
        ("candidates", &list),
        ("hint", &string),
    ] {
        schema["properties"][member] = of.clone();
    }
    schema
}

/// Clients check structured content even of errors, so the schema has room for both.
fn answer(mut properties: Value) -> Value {
    let required = names(&properties);
    properties["error"] = json!({ "type": "string" });
    json!({
        "type": "object",
        "properties": properties,
        "anyOf": [{ "required": required }, { "required": ["error"] }],
    })
}

fn whole_object(properties: Value) -> Value {
    let required = names(&properties);
    json!({ "type": "object", "properties": properties, "required": required })
}

fn names(properties: &Value) -> Vec<String> {
    properties.as_object().map(|members| members.keys().cloned().collect()).unwrap_or_default()
}

fn object(properties: Value, required: &[&str]) -> Value {
    let mut schema = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn optional_text(description: &str) -> Value {
    json!({ "anyOf": [{ "type": "string" }, { "type": "null" }], "default": null, "description": description })
}

fn flag(description: &str) -> Value {
    json!({ "type": "boolean", "default": false, "description": description })
}

fn message_id(description: &str) -> Value {
    json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }, { "type": "null" }], "default": null, "description": description })
}

fn whole(default: i64, description: &str) -> Value {
    json!({ "type": "integer", "default": default, "description": description })
}

fn map(schema: Value) -> Arc<JsonObject> {
    match schema {
        Value::Object(members) => Arc::new(members),
        other => unreachable!("every schema above is an object, not {other}"),
    }
}
