//! What is asked of a server for each kind of item, and the answers of the utility tools.
//!
//! Pure. The lists come from what the daemon knows already, all pages of it; `read_resource` and
//! `get_prompt` give the JSON that Hermes Agent's tools of these names give.

use super::route::Upstream;
use super::trace::Trace;
use crate::catalog::exposed::Utility;
use crate::catalog::snapshot::{ItemKind, Tool};
use crate::jsonrpc::reply::Reply;
use crate::jsonrpc::splice::{self, Members, ObjectWriter};
use crate::names::RawTool;
use crate::server::listing::{Item, Listing};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// One request to a server.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) method: &'static str,
    pub(super) params: Box<RawValue>,
    /// Where the wire's token belongs; `None`: the wire finds the place.
    pub(super) hole: Option<usize>,
}

/// The method by which an item is used, for the audit.
pub(super) fn client_method(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Tool | ItemKind::Utility(_) => "tools/call",
        ItemKind::Resource => "resources/read",
        ItemKind::Subscription => "resources/subscribe",
        ItemKind::Prompt => "prompts/get",
        ItemKind::Completion => "completion/complete",
    }
}

/// The method that a utility tool uses at the server.
pub(super) fn server_method(utility: Utility) -> &'static str {
    match utility {
        Utility::ListResources | Utility::ReadResource => "resources/read",
        Utility::ListPrompts | Utility::GetPrompt => "prompts/get",
    }
}

/// What the server is asked for; `traceparent` is the header of this hop of `trace`.
pub(super) fn asked(
    tool: &Tool,
    raw: &RawTool,
    upstream: &Upstream,
    trace: &Trace,
    traceparent: &str,
) -> Asked {
    let asked = named(tool, raw, upstream, traceparent);
    // The params of a tool have it already.
    if asked.hole.is_some() {
        asked
    } else {
        Asked { params: traced(&asked.params, trace, traceparent), ..asked }
    }
}

/// `params` as a part of `trace`.
fn traced(params: &RawValue, trace: &Trace, traceparent: &str) -> Box<RawValue> {
    let params = Members::parse(params).unwrap_or_default();
    let meta = params.get("_meta").and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
    let kept = if trace.is_continued() { meta.without("traceparent") } else { meta.without("tracestate") };
    let meta = Members::parse(&kept).unwrap_or_default();
    params.with("_meta", meta.with("traceparent", &format!("\"{traceparent}\"")).get())
}

fn named(tool: &Tool, raw: &RawTool, upstream: &Upstream, traceparent: &str) -> Asked {
    let with = |member: &str, text: &str| {
        let mut quoted = String::new();
        splice::push_string(&mut quoted, text);
        let params = upstream.arguments().and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
        params.with(member, &quoted)
    };
    match tool.kind {
        ItemKind::Tool => {
            let (params, hole) = upstream.params(raw, traceparent);
            Asked { method: "tools/call", params, hole: Some(hole) }
        }
        ItemKind::Resource => {
            Asked { method: "resources/read", params: with("uri", raw.as_str()), hole: None }
        }
        ItemKind::Subscription => {
            Asked { method: "resources/subscribe", params: with("uri", raw.as_str()), hole: None }
        }
        ItemKind::Prompt => Asked { method: "prompts/get", params: with("name", raw.as_str()), hole: None },
        ItemKind::Completion => {
            let params = upstream.arguments().and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
            let of = params.get("ref").and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
            let key = if of.get("uri").is_some() { "uri" } else { "name" };
            let mut quoted = String::new();
            splice::push_string(&mut quoted, raw.as_str());
            let params = params.with("ref", of.with(key, &quoted).get());
            Asked { method: "completion/complete", params, hole: None }
        }
        ItemKind::Utility(utility) => {
            let members: &[&str] = match utility {
                Utility::ListResources | Utility::ReadResource => &["uri"],
                Utility::ListPrompts | Utility::GetPrompt => &["name", "arguments"],
            };
            let given = upstream.arguments().and_then(|raw| Members::parse(raw).ok()).unwrap_or_default();
            let mut params = ObjectWriter::default();
            for member in members {
                if let Some(value) = given.get(member) {
                    params.member(member, value.get());
                }
            }
            Asked { method: server_method(utility), params: params.finish(), hole: None }
        }
    }
}

/// What a utility tool is asked about: the resource or prompt of that raw name; `None`: a list.
pub(super) fn subject(utility: Utility, upstream: &Upstream) -> Option<(ItemKind, String)> {
    let (kind, member) = match utility {
        Utility::ListResources | Utility::ListPrompts => return None,
        Utility::ReadResource => (ItemKind::Resource, "uri"),
        Utility::GetPrompt => (ItemKind::Prompt, "name"),
    };
    let given = upstream.arguments().and_then(|raw| Members::parse(raw).ok())?;
    Some((kind, given.text(member)?.into_owned()))
}

/// The answer that needs no server; what is `hidden` is not in it.
pub(super) fn known(
    utility: Utility,
    listing: Option<&Listing>,
    hidden: &dyn Fn(ItemKind, &str) -> bool,
) -> Option<Reply> {
    let kind = if utility == Utility::ListPrompts { ItemKind::Prompt } else { ItemKind::Resource };
    let (member, keys, items): (_, &[&str], &[Item]) = match utility {
        Utility::ListResources => {
            ("resources", &["uri", "name", "description", "mimeType"], listing.map_or(&[], |l| &l.resources))
        }
        Utility::ListPrompts => {
            ("prompts", &["name", "description", "arguments"], listing.map_or(&[], |l| &l.prompts))
        }
        Utility::ReadResource | Utility::GetPrompt => return None,
    };
    let short = |item: &Item| {
        let mut whole: Map<String, Value> = serde_json::from_str(item.raw.get()).unwrap_or_default();
        let kept = keys.iter().filter_map(|key| Some(((*key).to_owned(), whole.remove(*key)?)));
        Value::Object(kept.filter(|(_, value)| !value.is_null()).collect())
    };
    Some(text_result(
        &json!({ member: items.iter().filter(|item| !hidden(kind, &item.key)).map(short).collect::<Vec<_>>() }),
    ))
}

/// The answer of `read_resource` or `get_prompt`, from what the server gave.
pub(super) fn rendered(utility: Utility, result: &RawValue) -> Reply {
    let result: Value = serde_json::from_str(result.get()).unwrap_or(Value::Null);
    match utility {
        Utility::ListResources | Utility::ReadResource => {
            let contents = result["contents"].as_array().map(Vec::as_slice).unwrap_or_default();
            let part = |content: &Value| match (content["text"].as_str(), content["blob"].as_str()) {
                (Some(text), _) => Some(text.to_owned()),
                (None, Some(blob)) => Some(format!("[binary data, {} bytes]", blob.len())),
                (None, None) => None,
            };
            let parts: Vec<String> = contents.iter().filter_map(part).collect();
            text_result(&json!({ "result": parts.join("\n") }))
        }
        Utility::ListPrompts | Utility::GetPrompt => {
            let messages = result["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
            let message = |message: &Value| {
                let content = &message["content"];
                let content = if content["type"] == "text" { &content["text"] } else { content };
                json!({ "role": message["role"], "content": content })
            };
            let mut answer = json!({ "messages": messages.iter().map(message).collect::<Vec<_>>() });
            if let Some(description) = result["description"].as_str() {
                answer["description"] = description.into();
            }
            text_result(&answer)
        }
    }
}

/// A server's error, but for a completion that it does not know: then there is nothing to complete.
pub(super) fn refused(kind: ItemKind, error: Box<RawValue>) -> Reply {
    let code = Members::parse(&error).ok().and_then(|members| members.get("code").map(RawValue::get));
    if kind == ItemKind::Completion && code == Some("-32601") {
        return Reply::Result(splice::raw(&json!({ "completion": { "values": [], "hasMore": false } })));
    }
    Reply::Error(error)
}

fn text_result(answer: &Value) -> Reply {
    Reply::Result(splice::raw(&json!({ "content": [{ "type": "text", "text": answer.to_string() }] })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(reply: &Reply) -> Value {
        let (Reply::Result(body) | Reply::Error(body)) = reply;
        let body: Value = serde_json::from_str(body.get()).unwrap();
        serde_json::from_str(body["content"][0]["text"].as_str().unwrap()).unwrap()
    }

    fn raw(value: &Value) -> Box<RawValue> {
        RawValue::from_string(value.to_string()).unwrap()
    }

    #[test]
    fn texts_are_joined_and_binary_parts_are_named() {
        let result = json!({ "contents": [{ "text": "a" }, { "blob": "QUJD" }, { "text": "b" }] });
        let answer = text(&rendered(Utility::ReadResource, &raw(&result)));
        assert_eq!(answer, json!({ "result": "a\n[binary data, 4 bytes]\nb" }));
    }

    #[test]
    fn prompts_lose_their_frames_and_keep_what_is_no_text() {
        let image = json!({ "type": "image", "data": "QQ==", "mimeType": "image/png" });
        let result = json!({ "description": "d", "messages": [
            { "role": "user", "content": { "type": "text", "text": "hi" } }, { "role": "assistant", "content": image }] });
        let answer = text(&rendered(Utility::GetPrompt, &raw(&result)));
        let wanted = json!({ "description": "d", "messages": [
            { "role": "user", "content": "hi" }, { "role": "assistant", "content": image }] });
        assert_eq!(answer, wanted);
    }
}
