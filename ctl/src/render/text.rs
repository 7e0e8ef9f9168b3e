//! Small pieces of text: escaping, durations, sizes.
//!
//! Pure. Promise: [`plain`] and [`block`] let nothing through that could move the cursor, change
//! colours or reorder what is shown, whoever wrote the text.

use std::fmt::Write;
use std::time::Duration;

/// `text` on one line, with everything that a terminal would act on written out.
pub fn plain(text: &str) -> String {
    escape(text, |_| false)
}

/// Like [`plain`], but line breaks and tabs stay.
pub fn block(text: &str) -> String {
    escape(text, |c| matches!(c, '\n' | '\t'))
}

fn escape(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if keep(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() || is_invisible(c) => {
                write!(out, "\\u{{{:x}}}", u32::from(c)).expect("writing to a string cannot fail");
            }
            c => out.push(c),
        }
    }
    out
}

/// Characters that hide, reorder or join without being seen.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{e0000}'..='\u{e007f}')
}

/// `text` up to `limit` characters, cut with an ellipsis, first line only.
pub fn summary(text: &str, limit: usize) -> String {
    let line = text.trim().lines().next().unwrap_or("").trim();
    if line.chars().count() <= limit {
        return plain(line);
    }
    let cut: String = line.chars().take(limit.saturating_sub(1)).collect();
    format!("{}…", plain(cut.trim_end()))
}

/// A span in at most two units: `3.2 s`, `4m 10s`, `2h 5m`, `3d 4h`.
pub fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 if span.is_zero() => "0 s".to_owned(),
        0 if span.as_micros() < 1000 => format!("{} us", span.as_micros()),
        0 => format!("{} ms", span.as_millis()),
        1..=9 => format!("{:.1} s", span.as_secs_f64()),
        10..=59 => format!("{seconds} s"),
        60..=3599 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..=86_399 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// A size in MiB or KiB.
pub fn size(bytes: u64) -> String {
    if bytes >= 1024 * 1024 {
        let tenths = bytes.saturating_mul(10) / (1024 * 1024);
        format!("{}.{} MiB", tenths / 10, tenths % 10)
    } else {
        format!("{} KiB", bytes.div_ceil(1024))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terminal_orders_and_hidden_characters_are_written_out() {
        assert_eq!(plain("a\x1b[31mb\u{202e}c\nd"), "a\\u{1b}[31mb\\u{202e}c\\nd");
        assert_eq!(block("a\n\tb\x07"), "a\n\tb\\u{7}");
        assert_eq!(plain("张伟 ✓"), "张伟 ✓");
    }

    proptest! {
        #[test]
        fn nothing_that_a_terminal_acts_on_gets_through(text in any::<String>()) {
            prop_assert!(!plain(&text).chars().any(|c| c.is_control() || is_invisible(c)));
            prop_assert!(summary(&text, 20).lines().count() <= 1);
        }
    }

    #[test]
    fn spans_and_sizes_read_like_speech() {
        let of = |ms| span(Duration::from_millis(ms));
        assert_eq!([of(0), of(40), of(3200), of(250_000)], ["0 s", "40 ms", "3.2 s", "4m 10s"]);
        assert_eq!([of(7_500_000), of(273_600_000)], ["2h 5m", "3d 4h"]);
        assert_eq!([size(1), size(12_900_000)], ["1 KiB", "12.3 MiB"]);
    }
}
