//! A long text in pieces that a platform takes.
//!
//! Pure. Promise: the pieces, joined, are the text; each, as it is sent, is within the limit; a code
//! block that is cut goes on as a code block in the next piece.

/// What a platform's limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// UTF-16 code units.
    Utf16,
    /// Bytes of UTF-8.
    Bytes,
    /// Characters, with `& < >` as the entities that they become.
    Entities,
}

/// The most that one message may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) unit: Unit,
    /// At least 100, so that a fence and a character fit.
    pub(super) most: usize,
}

/// One piece of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece<'t> {
    /// Its part of the text.
    pub(super) text: &'t str,
    /// The line that opens the code block which it continues.
    open: Option<&'t str>,
    /// The marker that closes the code block which goes on in the next piece.
    close: Option<&'t str>,
}

/// Longest line that is repeated to open a block again; of a longer one only the marker is.
const FENCE_LINE: usize = 40;
/// Longest marker of a fence that is understood.
const MARKER: usize = 16;

impl Unit {
    fn of(self, character: char) -> usize {
        match self {
            Self::Utf16 => character.len_utf16(),
            Self::Bytes => character.len_utf8(),
            Self::Entities => match character {
                '&' => 5,
                '<' | '>' => 4,
                _ => 1,
            },
        }
    }

    fn count(self, text: &str) -> usize {
        text.chars().map(|character| self.of(character)).sum()
    }
}

impl Piece<'_> {
    /// The text that is sent.
    pub(super) fn render(&self) -> String {
        let mut out = String::with_capacity(self.text.len() + 64);
        if let Some(open) = self.open {
            out.push_str(open);
            out.push('\n');
        }
        out.push_str(self.text);
        if let Some(close) = self.close {
            if !out.ends_with('\n') {
                out.push('\n');
            }
            out.push_str(close);
        }
        out
    }
}

/// Cuts `text` into pieces within `limit`; at paragraphs, lines or words where there are any.
pub(super) fn split(text: &str, limit: Limit) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut at = 0;
    let mut fence: Option<Fence<'_>> = None;
    while at < text.len() {
        let rest = &text[at..];
        let open = fence.map(|fence| fence.line);
        let opening = open.map_or(0, |line| limit.unit.count(line) + 1);
        if opening + limit.unit.count(rest) <= limit.most {
            pieces.push(Piece { text: rest, open, close: None });
            break;
        }
        // A marker and a line end are kept free for closing a block.
        let room = limit.most.saturating_sub(opening + MARKER + 1).max(4 * 5);
        let cut = cut(rest, limit.unit, room);
        let piece = &rest[..cut];
        fence = after(piece, fence);
        pieces.push(Piece { text: piece, open, close: fence.map(|fence| fence.marker) });
        at += cut;
    }
    pieces
}

/// Where the first piece of `text` ends: at most `room` units, at the best break of its second half.
fn cut(text: &str, unit: Unit, room: usize) -> usize {
    let mut used = 0;
    let mut end = 0;
    for (at, character) in text.char_indices() {
        used += unit.of(character);
        if used > room {
            break;
        }
        end = at + character.len_utf8();
    }
    let window = &text[..end];
    let half = end / 2;
    let last = |what: &str| window.rfind(what).map(|at| at + what.len()).filter(|at| *at > half);
    last("\n\n").or_else(|| last("\n")).or_else(|| last(" ")).unwrap_or(end)
}

/// An open code block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fence<'t> {
    marker: &'t str,
    /// What opens it again.
    line: &'t str,
}

/// The block that is open behind `text`, if `before` was open in front of it.
fn after<'t>(text: &'t str, before: Option<Fence<'t>>) -> Option<Fence<'t>> {
    let mut open = before;
    for line in text.lines() {
        let Some((marker, info)) = fence_of(line) else { continue };
        open = match open {
            None => Some(Fence {
                marker,
                line: if line.trim().len() <= FENCE_LINE { line.trim() } else { marker },
            }),
            // Only a bare marker of the same kind and at least the same length closes.
            Some(fence) if info.is_empty() && marker.starts_with(fence.marker) => None,
            still => still,
        };
    }
    open
}

/// Marker and rest of a line that begins or ends a code block.
fn fence_of(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    let kind = line.chars().next().filter(|kind| matches!(kind, '`' | '~'))?;
    let length = line.len() - line.trim_start_matches(kind).len();
    let (marker, info) = line.split_at(length);
    let fits = (3..=MARKER).contains(&length) && !(kind == '`' && info.contains('`'));
    fits.then(|| (marker, info.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn utf16(most: usize) -> Limit {
        Limit { unit: Unit::Utf16, most }
    }

    fn joined(pieces: &[Piece<'_>]) -> String {
        pieces.iter().map(|piece| piece.text).collect()
    }

    #[test]
    fn a_text_within_the_limit_stays_whole_and_units_are_utf16() {
        let text = "😀".repeat(2048);
        assert_eq!(split(&text, utf16(4096)).len(), 1);
        assert_eq!(split(&(text.clone() + "x"), utf16(4096)).len(), 2);
        assert_eq!(split(&text, Limit { unit: Unit::Bytes, most: 8192 }).len(), 1);
        assert_eq!(split(&text, Limit { unit: Unit::Bytes, most: 8191 }).len(), 2);
        assert_eq!(split("", utf16(100)), []);
    }

    #[test]
    fn paragraphs_are_kept_together_before_lines_and_lines_before_words() {
        let text = format!("{}\n\n{}\n{} {}", "a".repeat(60), "b".repeat(10), "c".repeat(30), "d".repeat(30));
        let pieces = split(&text, utf16(100));
        assert_eq!(pieces[0].text, format!("{}\n\n", "a".repeat(60)));
        assert_eq!(joined(&pieces), text);
    }

    #[test]
    fn a_code_block_that_is_cut_goes_on_as_one_with_its_language() {
        let text = format!("before\n```rust\n{}```\nafter", "let a = 1;\n".repeat(20));
        let pieces = split(&text, utf16(120));
        assert!(pieces.len() > 2);
        let sent: Vec<String> = pieces.iter().map(Piece::render).collect();
        assert!(sent[0].ends_with("\n```"), "{}", sent[0]);
        assert!(sent[1].starts_with("```rust\nlet"), "{}", sent[1]);
        assert!(sent.last().unwrap().ends_with("after"));
        for part in &sent {
            assert_eq!(part.matches("```").count() % 2, 0, "{part}");
        }
        assert_eq!(joined(&pieces), text);
    }

    #[test]
    fn a_longer_or_other_marker_inside_a_block_does_not_end_it() {
        assert_eq!(after("````\n```\n", None).unwrap().marker, "````");
        assert_eq!(after("~~~ sh\n```\n", None).unwrap().line, "~~~ sh");
        assert_eq!(after("```\na\n````\n", None), None);
        assert_eq!(after("inline ```x``` code\n", None), None);
    }

    proptest! {
        #[test]
        fn pieces_joined_are_the_text_and_each_fits(
            text in r"([a-c é😀&<>]{0,12}(\n|\n\n|`{3,5}[a-z]{0,2}\n|~~~\n| )){0,60}",
            most in 100usize..300, unit in 0usize..3,
        ) {
            let limit = Limit { unit: [Unit::Utf16, Unit::Bytes, Unit::Entities][unit], most };
            let pieces = split(&text, limit);
            prop_assert_eq!(joined(&pieces), text.clone());
            for piece in &pieces {
                prop_assert!(limit.unit.count(&piece.render()) <= most);
                prop_assert!(!piece.text.is_empty());
            }
        }

        #[test]
        fn every_piece_but_the_last_closes_the_blocks_that_it_opens(
            text in r"((`{3,4}[a-z]{0,3}|~~~|[a-z ]{0,30})\n){0,60}",
        ) {
            let pieces = split(&text, utf16(120));
            for piece in pieces.iter().rev().skip(1) {
                let sent = piece.render();
                prop_assert_eq!(after(&sent, None), None, "{}", sent);
            }
        }

        #[test]
        fn any_text_ends(text in ".{0,2000}") {
            prop_assert_eq!(joined(&split(&text, utf16(100))), text);
        }
    }
}
