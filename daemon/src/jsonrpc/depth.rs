//! How deep a JSON text is nested.
//!
//! Pure. hermesd itself walks no body, but clients do: most parsers give up between 128 and 1000
//! levels, and take the whole session with them.

/// Levels of one answer that are passed on; the message around it is one more, and parsers that stop
/// at 128 count that too.
pub const MAX_ANSWER: usize = 126;

/// Levels of one item of a list.
pub const MAX_ITEM: usize = 120;

/// Whether `json`, which must be valid, has more than `limit` levels.
pub fn is_deeper(json: &str, limit: usize) -> bool {
    // Each level takes two characters, so short texts are not even looked at.
    if json.len() / 2 <= limit {
        return false;
    }
    let (mut depth, mut in_text, mut escaped) = (0usize, false, false);
    for byte in json.bytes() {
        if in_text {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_text = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_text = true,
            b'[' | b'{' => {
                depth += 1;
                if depth > limit {
                    return true;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_counted_outside_of_texts() {
        let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        assert!(!is_deeper(&nested(100), 100) && is_deeper(&nested(101), 100));
        let text = format!(r#"{{"a\\\"{}":1,"b":"{}"}}"#, "[".repeat(500), "{".repeat(500));
        assert!(!is_deeper(&text, 100));
        let wide = format!("[{}1]", "[[]],".repeat(500));
        assert!(!is_deeper(&wide, 3) && is_deeper(&wide, 2));
    }
}
