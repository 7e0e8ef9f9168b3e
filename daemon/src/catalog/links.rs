//! Links to resources in what a server says, rewritten where its URIs have other names.
//!
//! Pure. Promise: only `uri` of resources and resource links and `resourceUri` of `_meta.ui` change,
//! and only where the name differs; every other byte stays. A text that holds none of these words
//! is not even read.

use super::uris::Renamed;
use crate::jsonrpc::splice::{Members, push_string};
use serde_json::value::RawValue;

/// Where links may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A `CallToolResult`: `content` and `_meta`.
    Content,
    /// A `ReadResourceResult`: `contents`.
    Contents,
    /// A `GetPromptResult`: `messages`.
    Messages,
    /// An item of `tools/list` or `resources/list`: `_meta`.
    Item,
}

/// `body` with the names that clients know; `None`: it stays as it is.
pub fn renamed(body: &RawValue, place: Place, names: &Renamed) -> Option<Box<RawValue>> {
    // MCP Apps (SEP-1865) has `resourceUri`; its older form is the member `ui/resourceUri`.
    let mentioned = body.get().contains("\"uri\"") || body.get().contains("esourceUri\"");
    if !mentioned {
        return None;
    }
    let members = Members::parse(body).ok()?;
    let mut changes = Vec::new();
    let list = |name: &'static str, each: &dyn Fn(&RawValue) -> Option<Box<RawValue>>| {
        Some((name, array(members.get(name)?, each)?))
    };
    match place {
        Place::Content => changes.extend(list("content", &|block| in_block(block, names))),
        Place::Contents => changes.extend(list("contents", &|content| in_member(content, "uri", names))),
        Place::Messages => changes.extend(list("messages", &|message| in_message(message, names))),
        Place::Item => {}
    }
    if let Some(meta) = members.get("_meta").and_then(|meta| in_meta(meta, names)) {
        changes.push(("_meta", meta.get().to_owned()));
    }
    with_all(body, changes)
}

/// `object` with these members in place of its own.
fn with_all(object: &RawValue, changes: Vec<(&'static str, String)>) -> Option<Box<RawValue>> {
    let mut out: Option<Box<RawValue>> = None;
    for (name, value) in changes {
        let members = Members::parse(out.as_deref().unwrap_or(object)).ok()?;
        out = Some(members.with(name, &value));
    }
    out
}

/// The array again, with the elements that `each` changes; `None`: it changes none.
fn array(raw: &RawValue, each: &dyn Fn(&RawValue) -> Option<Box<RawValue>>) -> Option<String> {
    let items: Vec<&RawValue> = serde_json::from_str(raw.get()).ok()?;
    let changed: Vec<Option<Box<RawValue>>> = items.iter().map(|item| each(item)).collect();
    if changed.iter().all(Option::is_none) {
        return None;
    }
    let texts: Vec<&str> = items
        .iter()
        .zip(&changed)
        .map(|(old, new)| new.as_ref().map_or(old.get(), |new| new.get()))
        .collect();
    Some(format!("[{}]", texts.join(",")))
}

fn in_message(message: &RawValue, names: &Renamed) -> Option<Box<RawValue>> {
    let members = Members::parse(message).ok()?;
    let content = members.get("content")?;
    let content = match content.get().as_bytes().first() {
        Some(b'[') => array(content, &|block| in_block(block, names))?,
        _ => in_block(content, names)?.get().to_owned(),
    };
    Some(members.with("content", &content))
}

/// A content block: a resource link, an embedded resource, or anything with `_meta`.
fn in_block(block: &RawValue, names: &Renamed) -> Option<Box<RawValue>> {
    let members = Members::parse(block).ok()?;
    let mut changes = Vec::new();
    match members.text("type").as_deref() {
        Some("resource_link") => {
            changes.extend(member(&members, "uri", names).map(|uri| ("uri", uri)));
        }
        Some("resource") => {
            let resource = members.get("resource").and_then(|resource| in_member(resource, "uri", names));
            changes.extend(resource.map(|resource| ("resource", resource.get().to_owned())));
        }
        _ => {}
    }
    if let Some(meta) = members.get("_meta").and_then(|meta| in_meta(meta, names)) {
        changes.push(("_meta", meta.get().to_owned()));
    }
    with_all(block, changes)
}

fn in_meta(meta: &RawValue, names: &Renamed) -> Option<Box<RawValue>> {
    let members = Members::parse(meta).ok()?;
    let mut changes = Vec::new();
    if let Some(ui) = members.get("ui").and_then(|ui| in_member(ui, "resourceUri", names)) {
        changes.push(("ui", ui.get().to_owned()));
    }
    changes.extend(member(&members, "ui/resourceUri", names).map(|uri| ("ui/resourceUri", uri)));
    with_all(meta, changes)
}

fn in_member(object: &RawValue, name: &str, names: &Renamed) -> Option<Box<RawValue>> {
    let members = Members::parse(object).ok()?;
    Some(members.with(name, &member(&members, name, names)?))
}

/// The new value of a member that holds a URI, quoted.
fn member(members: &Members<'_>, name: &str, names: &Renamed) -> Option<String> {
    let uri = members.text(name)?;
    let mut quoted = String::new();
    push_string(&mut quoted, &names.name(&uri)?);
    Some(quoted)
}

#[cfg(test)]
mod tests {
    use super::super::build::Offer;
    use super::super::uris::Renames;
    use super::*;
    use crate::config::{ServerConfig, StdioConfig, TransportConfig};
    use crate::names::ServerName;
    use std::sync::Arc;

    fn names() -> Arc<Renamed> {
        let offer = |server: &str| {
            let stdio = TransportConfig::Stdio(StdioConfig::command("x"));
            let config = ServerConfig::with_transport(ServerName::new(server), stdio);
            let items = ["n://1", "ui://x"].map(|uri| (uri.to_owned(), raw("{}")));
            Offer { resources: items.into(), ..Offer::of_tools(Arc::new(config), vec![]) }
        };
        Renames::among(&[offer("a"), offer("b")]).of("a").unwrap().clone()
    }

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn shown(place: Place, text: &str) -> String {
        renamed(&raw(text), place, &names()).map_or_else(|| "as it is".to_owned(), |new| new.get().to_owned())
    }

    #[test]
    fn links_and_embedded_resources_of_a_result_are_renamed_and_nothing_else() {
        let before = r#"{"z":1.0,"content":[{"type":"text","text":"n://1 \"uri\""},{"type":"resource_link","uri":"n:\/\/1","x":1e3},{"type":"resource","resource":{"uri":"n://1","text":"n://1"}},{"type":"resource_link","uri":"n://2"}],"structuredContent":{"uri":"n://1"},"_meta":{"ui":{"resourceUri":"ui://x","k":1},"uri":"n://1"}}"#;
        let after = r#"{"z":1.0,"content":[{"type":"text","text":"n://1 \"uri\""},{"type":"resource_link","uri":"hermes://a/n://1","x":1e3},{"type":"resource","resource":{"uri":"hermes://a/n://1","text":"n://1"}},{"type":"resource_link","uri":"n://2"}],"structuredContent":{"uri":"n://1"},"_meta":{"ui":{"resourceUri":"ui://a/x","k":1},"uri":"n://1"}}"#;
        assert_eq!(shown(Place::Content, before), after);
        assert_eq!(
            shown(Place::Content, r#"{"content":[{"type":"text","text":"\"uri\":\"n://1\""}]}"#),
            "as it is"
        );
        assert_eq!(shown(Place::Content, r#"{"content":{"uri":"n://1"}}"#), "as it is");
    }

    #[test]
    fn contents_messages_and_items_have_links_too() {
        assert_eq!(
            shown(Place::Contents, r#"{"contents":[{"uri":"n://1","text":""},{"uri":"n://9"}]}"#),
            r#"{"contents":[{"uri":"hermes://a/n://1","text":""},{"uri":"n://9"}]}"#
        );
        for content in
            [r#"{"type":"resource_link","uri":"n://1"}"#, r#"[{"type":"resource_link","uri":"n://1"}]"#]
        {
            let after = content.replace("n://1", "hermes://a/n://1");
            assert_eq!(
                shown(Place::Messages, &format!(r#"{{"messages":[{{"role":"user","content":{content}}}]}}"#)),
                format!(r#"{{"messages":[{{"role":"user","content":{after}}}]}}"#)
            );
        }
        assert_eq!(
            shown(
                Place::Item,
                r#"{"name":"t","_meta":{"ui/resourceUri":"ui://x","ui":{"resourceUri":"ui://x"}}}"#
            ),
            r#"{"name":"t","_meta":{"ui/resourceUri":"ui://a/x","ui":{"resourceUri":"ui://a/x"}}}"#
        );
        assert_eq!(shown(Place::Item, r#"{"name":"t","uri":"n://1"}"#), "as it is");
    }
}
