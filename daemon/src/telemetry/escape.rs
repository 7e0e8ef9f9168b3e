//! Makes a line of foreign bytes safe to store and to print: no control character survives.
//!
//! Pure. Promise: the result holds no control, line or direction character, is valid UTF-8 and at most
//! `max` bytes of text plus one marker; colours are dropped, everything else stays readable.

use std::fmt::Write;

/// Most bytes of one log line, marker not counted.
pub const MAX_LINE: usize = 8 * 1024;

/// `bytes` (one line, without its newline) as one printable line of at most `max` bytes; what was
/// cut off is said at its end, with the whole length in bytes.
pub fn escape_line(bytes: &[u8], max: usize) -> String {
    escape_part(bytes, max, bytes.len())
}

/// As [`escape_line`], for the front part of a line that was `whole` bytes long.
pub fn escape_part(bytes: &[u8], max: usize, whole: usize) -> String {
    let mut out = String::with_capacity(bytes.len().min(max) + 48);
    let mut rest = bytes;
    while !rest.is_empty() {
        if out.len() >= max {
            cut(&mut out, max, whole);
            return out;
        }
        if let Some(length) = colour(rest) {
            rest = &rest[length..];
            continue;
        }
        rest = &rest[one(rest, &mut out)..];
    }
    if out.len() > max || bytes.len() < whole {
        cut(&mut out, max, whole);
    }
    out
}

fn cut(out: &mut String, max: usize, whole: usize) {
    out.truncate(out.floor_char_boundary(max));
    let _ = write!(out, " [cut: {whole} bytes]"); // a String takes everything
}

/// Appends the first character or broken byte; how many bytes it took.
fn one(rest: &[u8], out: &mut String) -> usize {
    let window = &rest[..rest.len().min(4)];
    let valid = match std::str::from_utf8(window) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&window[..error.valid_up_to()]).expect("checked by valid_up_to"),
    };
    match valid.chars().next() {
        Some(c) => {
            escape_char(c, out);
            c.len_utf8()
        }
        None => {
            let _ = write!(out, "\\x{:02x}", rest[0]);
            1
        }
    }
}

fn escape_char(c: char, out: &mut String) {
    match c {
        '\t' => out.push('\t'),
        '\r' => out.push_str("\\r"),
        '\n' => out.push_str("\\n"),
        c if c.is_ascii_control() => {
            let _ = write!(out, "\\x{:02x}", u32::from(c));
        }
        c if deceives(c) => {
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
        }
        c => out.push(c),
    }
}

/// Characters that move the cursor, break the line, turn the direction or cannot be seen.
fn deceives(c: char) -> bool {
    (c.is_control() && c != '\t')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{61c}')
}

/// Length of a colour sequence (`ESC [ … m`) at the front; it carries no text and is dropped.
fn colour(rest: &[u8]) -> Option<usize> {
    let body = rest.strip_prefix(b"\x1b[")?;
    let digits = body.iter().take(32).take_while(|b| b.is_ascii_digit() || matches!(b, b';' | b':')).count();
    (body.get(digits) == Some(&b'm')).then_some(digits + 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terminal_commands_and_forged_lines_become_visible_text() {
        assert_eq!(escape_line(b"\x1b]0;title\x07", 99), "\\x1b]0;title\\x07");
        assert_eq!(escape_line(b"50%\rdone", 99), "50%\\rdone");
        assert_eq!(escape_line("a\u{202e}b\u{2028}c\u{85}".as_bytes(), 99), "a\\u{202e}b\\u{2028}c\\u{85}");
        assert_eq!(escape_line(b"\x1b[2J", 99), "\\x1b[2J");
    }

    #[test]
    fn colours_are_dropped_and_text_of_all_languages_stays() {
        assert_eq!(escape_line("\x1b[1;31mrot\x1b[0m\t中文 é 👍".as_bytes(), 99), "rot\t中文 é 👍");
    }

    #[test]
    fn broken_utf8_stays_visible_byte_by_byte() {
        assert_eq!(escape_line(b"a\xff\xe4\xbd", 99), "a\\xff\\xe4\\xbd");
    }

    #[test]
    fn long_lines_are_cut_at_a_character_and_say_so() {
        let line = "é".repeat(100);
        assert_eq!(escape_line(line.as_bytes(), 5), "éé [cut: 200 bytes]");
        assert_eq!(escape_line(b"12345", 5), "12345");
    }

    proptest! {
        #[test]
        fn no_bytes_at_all_give_a_control_character_or_an_overlong_line(
            bytes in proptest::collection::vec(any::<u8>(), 0..300), max in 0usize..64,
        ) {
            let line = escape_line(&bytes, max);
            prop_assert!(!line.chars().any(deceives), "{line:?}");
            prop_assert!(line.len() <= max + 48);
        }

        #[test]
        fn printable_text_is_kept_as_it_is(text in "[ -~äé中]{0,60}") {
            prop_assert_eq!(escape_line(text.as_bytes(), 1000), text);
        }
    }
}
