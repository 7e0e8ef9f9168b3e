//! The result of a call on its way to the client: is it an error, is it too long.
//!
//! Pure. Promise: without `result_limit` nothing is touched. With it, whole content blocks are kept
//! as long as they fit; only plain text is ever shortened, at character borders, and never inside
//! JSON or base64; `isError`, `_meta` and unknown members stay; a marker says what is missing.

use crate::jsonrpc::splice::{Members, ObjectWriter, push_string};
use serde_json::value::RawValue;
use std::num::NonZeroU64;

/// Less room than this is not worth a piece of text.
const MIN_PIECE: usize = 64;
/// A run of base64 characters from this length on is never cut.
const MIN_BASE64: usize = 64;

/// Whether a `CallToolResult` says `isError: true`.
pub fn is_error(result: &RawValue) -> bool {
    // Nearly every result has no such member, and a search is far cheaper than reading a long one.
    result.get().contains("\"isError\"")
        && Members::parse(result)
            .is_ok_and(|members| members.get("isError").is_some_and(|flag| flag.get() == "true"))
}

/// A result that was cut.
#[derive(Debug)]
pub struct Cut {
    /// What to hand on.
    pub result: Box<RawValue>,
    /// Bytes that the server sent.
    pub was: usize,
}

/// Cuts a `CallToolResult` to about `limit` bytes; `None`: it fits, or is no object with content.
///
/// The marker and members that are never cut come on top, so the outcome may be somewhat larger.
/// `structuredContent` is the first to go: it is JSON, and its text form is in `content`.
pub fn cut(result: &RawValue, limit: NonZeroU64) -> Option<Cut> {
    let limit = usize::try_from(limit.get()).unwrap_or(usize::MAX);
    let was = result.get().len();
    if was <= limit {
        return None;
    }
    let members = Members::parse(result).ok()?;
    let content: Vec<&RawValue> = serde_json::from_str(members.get("content")?.get()).ok()?;
    let content_bytes: usize = content.iter().map(|block| block.get().len() + 1).sum();
    let structured = members.get("structuredContent").map_or(0, |raw| raw.get().len());
    let other = was.saturating_sub(content_bytes + structured);
    let mut lost = Vec::new();
    if structured > 0 {
        lost.push(format!("structuredContent ({structured} bytes)"));
    }
    let mut kept = Kept { blocks: Vec::new(), room: limit.saturating_sub(other), lost };
    for block in content {
        kept.add(block);
    }
    let marker = format!(
        "[hermesd: result cut from {was} bytes to the limit of {limit} bytes (result_limit). Missing: {}. \
         Ask for less at a time.]",
        if kept.lost.is_empty() { "nothing".to_owned() } else { kept.lost.join(", ") }
    );
    kept.blocks.push(text_block(&marker));
    let blocks = format!("[{}]", kept.blocks.join(","));
    let mut out = ObjectWriter::with_capacity(blocks.len() + other);
    for (name, value) in members.iter() {
        match name {
            "content" => out.member(name, &blocks),
            "structuredContent" => &mut out,
            _ => out.member(name, value.get()),
        };
    }
    Some(Cut { result: out.finish(), was })
}

struct Kept {
    blocks: Vec<String>,
    /// Bytes that may still be used.
    room: usize,
    /// What is missing, for the marker.
    lost: Vec<String>,
}

impl Kept {
    fn add(&mut self, block: &RawValue) {
        let size = block.get().len() + 1;
        if size <= self.room {
            self.room -= size;
            self.blocks.push(block.get().to_owned());
            return;
        }
        let members = Members::parse(block).unwrap_or_default();
        let kind = members.text("type").unwrap_or_default();
        let text = members.text("text").filter(|text| kind == "text" && !is_json(text));
        let piece = text.as_deref().and_then(|text| shorten(text, self.room));
        match piece {
            Some((piece, dropped)) => {
                let mut quoted = String::new();
                push_string(&mut quoted, &piece);
                let shortened = members.with("text", &quoted);
                self.room = 0;
                self.blocks.push(shortened.get().to_owned());
                self.lost.push(format!("{dropped} bytes in the middle of a text"));
            }
            None => {
                let uri = uri_of(&members);
                let what = if kind.is_empty() { "block" } else { &kind };
                self.lost.push(format!("one {what}{uri} ({size} bytes)"));
            }
        }
    }
}

fn text_block(text: &str) -> String {
    let mut block = ObjectWriter::default();
    block.string("type", "text").string("text", text);
    block.finish().get().to_owned()
}

/// Where the client can still get a resource that did not fit.
fn uri_of(members: &Members<'_>) -> String {
    let inner = members.get("resource").and_then(|raw| Members::parse(raw).ok());
    let uri = members.text("uri").map(|uri| uri.into_owned());
    let uri = uri.or_else(|| inner.and_then(|inner| inner.text("uri").map(|uri| uri.into_owned())));
    uri.filter(|uri| uri.len() <= 200).map_or_else(String::new, |uri| format!(" {uri}"))
}

fn is_json(text: &str) -> bool {
    let text = text.trim();
    text.starts_with(['{', '[']) && serde_json::from_str::<&RawValue>(text).is_ok()
}

/// The beginning and the end of `text` in about `room` bytes of JSON, and how many bytes are gone;
/// `None` if no useful piece is left.
fn shorten(text: &str, room: usize) -> Option<(String, usize)> {
    // Overhead of the block itself and of the note in the middle.
    let room = room.checked_sub(160).filter(|room| *room >= MIN_PIECE)?;
    let head = outside_base64(text, forward(text, room - room / 4), Side::Before);
    let tail = outside_base64(text, backward(text, room / 4), Side::After).max(head);
    if head < MIN_PIECE && text.len() - tail < MIN_PIECE {
        return None;
    }
    let dropped = tail - head;
    let piece = format!("{}\n[… {dropped} bytes cut by hermesd …]\n{}", &text[..head], &text[tail..]);
    Some((piece, dropped))
}

/// Bytes of `c` as part of a JSON string.
fn json_len(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        c => c.len_utf8(),
    }
}

fn forward(text: &str, room: usize) -> usize {
    let mut used = 0;
    text.char_indices()
        .find(|(_, c)| {
            used += json_len(*c);
            used > room
        })
        .map_or(text.len(), |(at, _)| at)
}

fn backward(text: &str, room: usize) -> usize {
    let mut used = 0;
    let first = text.char_indices().rev().find(|(_, c)| {
        used += json_len(*c);
        used > room
    });
    first.map_or(0, |(at, c)| at + c.len_utf8())
}

#[derive(Clone, Copy)]
enum Side {
    Before,
    After,
}

/// Moves a cut out of a run of base64.
fn outside_base64(text: &str, at: usize, side: Side) -> usize {
    let is_part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'-' | b'_');
    let bytes = text.as_bytes();
    let before = bytes[..at].iter().rev().take_while(|b| is_part(b)).count();
    let after = bytes[at..].iter().take_while(|b| is_part(b)).count();
    if before == 0 || after == 0 || before + after < MIN_BASE64 {
        return at;
    }
    match side {
        Side::Before => at - before,
        Side::After => at + after,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn raw(value: &Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(value).unwrap()
    }

    fn cut_to(value: &Value, limit: u64) -> Value {
        let cut = cut(&raw(value), NonZeroU64::new(limit).unwrap()).unwrap();
        serde_json::from_str(cut.result.get()).unwrap()
    }

    #[test]
    fn what_fits_is_not_touched() {
        let result = raw(&json!({ "content": [{ "type": "text", "text": "short" }] }));
        assert!(cut(&result, NonZeroU64::new(1000).unwrap()).is_none());
    }

    #[test]
    fn a_long_text_keeps_its_beginning_and_end() {
        let text = format!("start {} end", "語 ".repeat(10_000));
        let got = cut_to(
            &json!({ "content": [{ "type": "text", "text": text, "x": 1 }], "isError": true, "_meta": { "a": 1 } }),
            2000,
        );
        let shown = got["content"][0]["text"].as_str().unwrap();
        assert!(shown.starts_with("start 語") && shown.ends_with("語  end"), "{shown}");
        assert!(shown.contains("bytes cut by hermesd"));
        assert_eq!(
            (&got["isError"], &got["_meta"], &got["content"][0]["x"]),
            (&json!(true), &json!({ "a": 1 }), &json!(1))
        );
        assert!(got["content"][1]["text"].as_str().unwrap().contains("result_limit"));
        assert!(got.to_string().len() < 2600);
    }

    #[test]
    fn images_json_and_structured_content_are_dropped_whole() {
        let list: Vec<u32> = (0..2000).collect();
        let got = cut_to(
            &json!({
                "content": [
                    { "type": "text", "text": "kept" },
                    { "type": "image", "data": "A".repeat(9000), "mimeType": "image/png" },
                    { "type": "text", "text": serde_json::to_string(&list).unwrap() },
                    { "type": "resource", "resource": { "uri": "file:///big", "text": "y".repeat(9000) } }
                ],
                "structuredContent": { "list": list }
            }),
            2000,
        );
        let blocks = got["content"].as_array().unwrap();
        assert_eq!(blocks.len(), 2);
        assert_eq!(blocks[0], json!({ "type": "text", "text": "kept" }));
        let marker = blocks[1]["text"].as_str().unwrap();
        for part in ["structuredContent", "one image", "one text", "one resource file:///big"] {
            assert!(marker.contains(part), "{marker}");
        }
        assert!(got.get("structuredContent").is_none());
    }

    #[test]
    fn base64_inside_a_text_is_not_cut() {
        let data = "QUJD".repeat(1000);
        let text = format!("{} {data} {}", "word ".repeat(100), "word ".repeat(100));
        let got = cut_to(&json!({ "content": [{ "type": "text", "text": text }] }), 1500);
        assert!(!got["content"][0]["text"].as_str().unwrap().contains("QUJD"));
        let only = cut_to(&json!({ "content": [{ "type": "text", "text": data }] }), 1500);
        assert!(only["content"][0]["text"].as_str().unwrap().contains("result_limit"));
    }

    fn block() -> impl Strategy<Value = Value> {
        prop_oneof![
            "(\\PC|\n|\"){0,400}".prop_map(|text| json!({ "type": "text", "text": text })),
            (0usize..400).prop_map(|n| json!({ "type": "image", "data": "QUJD".repeat(n), "mimeType": "image/png" })),
            (0u32..200).prop_map(|n| json!({ "type": "text", "text": serde_json::to_string(&(0..n).collect::<Vec<_>>()).unwrap() })),
        ]
    }

    proptest! {
        #[test]
        fn a_cut_result_is_valid_bounded_and_made_of_whole_blocks(
            blocks in proptest::collection::vec(block(), 0..6), limit in 1u64..3000, error in any::<bool>(),
        ) {
            let before = json!({ "content": blocks, "isError": error, "unknown": [1.50] });
            let sent = raw(&before);
            let Some(done) = cut(&sent, NonZeroU64::new(limit).unwrap()) else {
                prop_assert!(sent.get().len() as u64 <= limit);
                return Ok(());
            };
            let after: Value = serde_json::from_str(done.result.get()).unwrap();
            prop_assert_eq!(done.was, sent.get().len());
            prop_assert_eq!(&after["isError"], &before["isError"]);
            prop_assert_eq!(&after["unknown"], &before["unknown"]);
            prop_assert!(done.result.get().len() as u64 <= limit + 1200, "{} of {}", done.result.get().len(), limit);
            let shown = after["content"].as_array().unwrap();
            for block in &shown[..shown.len() - 1] {
                let whole = blocks.contains(block);
                let cut_text = block["text"].as_str().is_some_and(|text| text.contains("bytes cut by hermesd"));
                prop_assert!(whole || cut_text, "{}", block);
            }
        }
    }
}
