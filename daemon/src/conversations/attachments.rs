//! Attachments of one message.
//!
//! Pure. Promise: every image, file and media path of a message is listed in the order in which a
//! reader meets it: parts first, then the `MEDIA:` paths of the text.

use super::content::Content;
use serde::Serialize;
use serde_json::{Map, Value};

/// One attachment as clients see it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Attachment {
    /// An image with its address; inline images have a `data:` address.
    Image {
        /// Always `image`.
        #[serde(rename = "type")]
        kind: &'static str,
        /// Where the image is.
        url: String,
    },
    /// A part of another type, as stored.
    Part {
        /// The part's own type, empty if it has none.
        #[serde(rename = "type")]
        kind: String,
        /// The whole part.
        data: Map<String, Value>,
    },
    /// A file that the text names.
    Media {
        /// Always `media`.
        #[serde(rename = "type")]
        kind: &'static str,
        /// Path on the machine of Hermes Agent.
        path: String,
    },
}

/// Lists the attachments of `content`.
pub(super) fn of(content: &Content) -> Vec<Attachment> {
    let mut found = Vec::new();
    if let Content::Parts(parts) = content {
        found.extend(parts.iter().filter_map(Value::as_object).filter_map(of_part));
    }
    let text = content.text();
    found.extend(media_paths(&text).map(|path| Attachment::Media { kind: "media", path: path.to_owned() }));
    found
}

fn of_part(part: &Map<String, Value>) -> Option<Attachment> {
    let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
    let url = match kind {
        "text" => return None,
        "image_url" => part.get("image_url").and_then(address),
        "image" => filled(part.get("url"))
            .or_else(|| part.get("source").and_then(address))
            .or_else(|| inline_image(part)),
        other => return Some(Attachment::Part { kind: other.to_owned(), data: part.clone() }),
    };
    url.map(|url| Attachment::Image { kind: "image", url })
}

/// The address in `image_url` or `source`: a text, a map with `url`, or a map with the image itself.
fn address(value: &Value) -> Option<String> {
    match value {
        Value::String(_) => filled(Some(value)),
        Value::Object(map) => filled(map.get("url")).or_else(|| inline_image(map)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

/// A `data:` address for base64 data, with the media type under either of its usual names.
fn inline_image(map: &Map<String, Value>) -> Option<String> {
    let data = filled(map.get("data"))?;
    let media_type = filled(map.get("media_type"))
        .or_else(|| filled(map.get("mimeType")))
        .unwrap_or_else(|| "application/octet-stream".to_owned());
    Some(format!("data:{media_type};base64,{data}"))
}

fn filled(value: Option<&Value>) -> Option<String> {
    value.and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// What follows each `MEDIA:`, white space skipped, up to the next white space.
fn media_paths(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let after = rest.find("MEDIA:").map(|at| &rest[at + "MEDIA:".len()..])?.trim_start();
        let end = after.find(char::is_whitespace).unwrap_or(after.len());
        rest = &after[end..];
        // Nothing but white space is left behind the last mark.
        (end > 0).then(|| &after[..end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn listed(parts: &Value) -> Value {
        serde_json::to_value(of(&Content::decode(&format!("\0json:{parts}")))).unwrap()
    }

    #[test]
    fn images_are_listed_in_every_form_that_clients_store() {
        let parts = json!([
            {"type": "image_url", "image_url": {"url": "https://a/1"}},
            {"type": "image_url", "image_url": "https://a/2"},
            {"type": "image", "url": "https://a/3"},
            {"type": "image", "source": {"url": "https://a/4"}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}},
            {"type": "image", "data": "R0lG", "mimeType": "image/gif"},
        ]);
        let urls = [
            "https://a/1",
            "https://a/2",
            "https://a/3",
            "https://a/4",
            "data:image/png;base64,iVBO",
            "data:image/gif;base64,R0lG",
        ];
        let expected: Vec<Value> = urls.iter().map(|url| json!({"type": "image", "url": url})).collect();
        assert_eq!(listed(&parts), Value::Array(expected));
    }

    #[test]
    fn an_image_without_an_address_is_left_out_whatever_its_source_is() {
        assert_eq!(
            listed(
                &json!([{"type": "image", "source": 5}, {"type": "image_url", "image_url": {"url": ""}}, {"type": "image"}])
            ),
            json!([])
        );
    }

    #[test]
    fn other_parts_are_listed_whole_and_text_only_for_its_media() {
        let file = json!({"type": "file", "file": {"filename": "app.log"}});
        let parts = json!([file, {"type": "text", "text": "see MEDIA: /tmp/a.png, and MEDIA:/tmp/b"}, {"kind": "odd"}, 5]);
        assert_eq!(
            listed(&parts),
            json!([
                {"type": "file", "data": file},
                {"type": "", "data": {"kind": "odd"}},
                {"type": "media", "path": "/tmp/a.png,"},
                {"type": "media", "path": "/tmp/b"},
            ])
        );
    }

    #[test]
    fn a_mark_without_a_path_is_no_attachment() {
        assert_eq!(of(&Content::decode("MEDIA:  ")), []);
        assert_eq!(of(&Content::decode("media:/x")), []);
    }

    proptest! {
        #[test]
        fn paths_are_never_empty_and_never_hold_white_space(text in "(MEDIA:|[ \n\ta字])*") {
            for path in media_paths(&text) {
                prop_assert!(!path.is_empty() && !path.contains(char::is_whitespace));
            }
        }
    }
}
