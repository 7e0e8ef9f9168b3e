//! Private key blocks. By hand: a pattern with an open end would be quadratic on hostile text.

use super::{Kind, Span};

pub(super) const BEGIN: &str = "-----BEGIN ";
pub(super) const END: &str = "-----END ";
/// Longest first line: `-----BEGIN ENCRYPTED PRIVATE KEY BLOCK-----` with room to spare.
const MAX_HEAD: usize = 64;
/// An end further away belongs to something else.
const MAX_BODY: usize = 64 * 1024;
/// So many characters of base64 in a row make a line a part of the block.
const MIN_RUN: usize = 40;

/// Finds every block, from its first line to its last, or to the first line that cannot belong to it.
pub(super) fn find(text: &str, spans: &mut Vec<Span>) {
    let mut from = 0;
    // The next end marker is looked up once and kept: looking for it from each block would be
    // quadratic where no end ever comes.
    let mut next_end = Some(0);
    while let Some(start) = text[from..].find(BEGIN).map(|at| at + from) {
        let Some(body) = head(&text[start..]).map(|length| start + length) else {
            from = start + BEGIN.len();
            continue;
        };
        if next_end.is_some_and(|end| end < body) {
            next_end = text[body..].find(END).map(|at| at + body);
        }
        let end = match next_end {
            Some(end) if end - body <= MAX_BODY => tail(text, end),
            _ => body + body_lines(&text[body..]),
        };
        spans.push(Span { start, end, kind: Kind::PrivateKey });
        from = end;
    }
}

/// Length of a first line that opens a private key.
pub(super) fn head(text: &str) -> Option<usize> {
    let window = &text.as_bytes()[..text.len().min(MAX_HEAD)];
    let name = &window[BEGIN.len()..];
    let dashes = name.windows(5).position(|five| five == b"-----")?;
    let name = &name[..dashes];
    let private = name.windows(11).any(|word| word == b"PRIVATE KEY");
    private.then_some(BEGIN.len() + dashes + 5)
}

/// End of the closing line whose marker is at `end`.
pub(super) fn tail(text: &str, end: usize) -> usize {
    let window = &text.as_bytes()[end + END.len()..];
    let window = &window[..window.len().min(MAX_HEAD)];
    match window.windows(5).position(|five| five == b"-----") {
        Some(dashes) => end + END.len() + dashes + 5,
        None => end + END.len(),
    }
}

/// Length of the lines at the start of `text` that can belong to a key.
fn body_lines(text: &str) -> usize {
    // The rest of the first line: a block may be written on one line. Only what is taken is looked
    // at, so that a line full of openings costs linear time.
    let run = text.bytes().take_while(|b| is_base64(*b)).count();
    let rest = &text[run..];
    let first = match rest.find(|c: char| !matches!(c, ' ' | '\t' | '\r')) {
        Some(at) if rest.as_bytes()[at] == b'\n' => run + at + 1,
        _ => return run,
    };
    let more = text[first..].split_inclusive('\n').take_while(|line| is_body(line)).map(str::len);
    first + more.sum::<usize>()
}

/// Whether a line can stand inside a block.
pub(super) fn is_body(line: &str) -> bool {
    let line = line.trim();
    if line.bytes().all(is_base64) || line.starts_with("Proc-Type:") || line.starts_with("DEK-Info:") {
        return true;
    }
    // A log prefix before the line, or several lines on one.
    line.as_bytes().split(|b| !is_base64(*b)).any(|run| run.len() >= MIN_RUN)
}

/// Backslashes too: in a log, line ends may be written as `\n`.
fn is_base64(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'\\')
}
