//! Masking a text that arrives in pieces, such as a server's stderr.

use super::{Kind, Redactor, Scope, Span, pem};
use std::sync::Arc;

/// Bytes of an unfinished line that are held back before it is cut.
const MAX_HELD: usize = 64 * 1024;
/// A cut leaves at least this much unwritten: enough to recognise the start of any pattern.
const LOOK_AHEAD: usize = 8 * 1024;

/// Masks a stream of bytes; what is returned, joined, holds no secret, however it was split.
///
/// Whole lines are returned as soon as they are complete. An unfinished line is held back up to
/// 64 KiB (more if a known value is longer); then its beginning is returned, cut where no secret
/// can be. Invalid UTF-8 becomes U+FFFD.
#[derive(Debug)]
pub struct StreamRedactor {
    redactor: Arc<Redactor>,
    held: Vec<u8>,
    swallow: Swallow,
}

/// What is being dropped because it continues a secret that was masked already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Swallow {
    Nothing,
    /// Up to white space or a quote.
    Token,
    /// Up to the end of the line.
    Line,
    /// Lines of a private key.
    Pem,
}

impl StreamRedactor {
    /// An empty stream.
    pub fn new(redactor: Arc<Redactor>) -> Self {
        Self { redactor, held: Vec::new(), swallow: Swallow::Nothing }
    }

    /// Uses another redactor from the next piece on (the configuration changed).
    pub fn replace(&mut self, redactor: Arc<Redactor>) {
        self.redactor = redactor;
    }

    /// Takes the next piece and returns what can be shown by now.
    pub fn push(&mut self, piece: &[u8]) -> String {
        let scan_from = self.held.len();
        self.held.extend_from_slice(piece);
        let mut out = String::new();
        if let Some(newline) = self.held[scan_from..].iter().rposition(|b| *b == b'\n') {
            let rest = self.held.split_off(scan_from + newline + 1);
            let lines = std::mem::replace(&mut self.held, rest);
            self.lines(&String::from_utf8_lossy(&lines), &mut out);
        }
        let look_ahead = LOOK_AHEAD.max(self.redactor.scan.longest() + 4);
        if self.held.len() > MAX_HELD.max(2 * look_ahead) {
            self.cut(look_ahead, &mut out);
        }
        out
    }

    /// Ends the stream and returns what was held back.
    pub fn finish(mut self) -> String {
        let rest = std::mem::take(&mut self.held);
        let mut out = String::new();
        self.lines(&String::from_utf8_lossy(&rest), &mut out);
        out
    }

    /// Writes complete lines.
    fn lines(&mut self, text: &str, out: &mut String) {
        let text = self.skip_swallowed(text);
        if text.is_empty() {
            return;
        }
        let spans = self.redactor.spans(text, Scope::Patterns);
        // A key whose end has not come yet goes on in the next lines.
        let open = spans.last().filter(|span| span.end == text.len() && is_open_key(&text[span.start..]));
        if open.is_some() && text.ends_with('\n') {
            self.swallow = Swallow::Pem;
        }
        out.push_str(&self.redactor.mask(text, &spans));
    }

    /// Drops what continues a masked secret.
    fn skip_swallowed<'t>(&mut self, text: &'t str) -> &'t str {
        let end = match self.swallow {
            Swallow::Nothing => return text,
            Swallow::Token => {
                text.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '&' | ',' | ';'))
            }
            Swallow::Line => text.find('\n'),
            Swallow::Pem => return self.skip_key(text),
        };
        match end {
            Some(end) => {
                self.swallow = Swallow::Nothing;
                &text[end..]
            }
            None => "",
        }
    }

    fn skip_key<'t>(&mut self, text: &'t str) -> &'t str {
        let mut from = 0;
        for line in text.split_inclusive('\n') {
            if let Some(end) = line.find(pem::END) {
                self.swallow = Swallow::Nothing;
                return &text[from + pem::tail(line, end)..];
            }
            if !pem::is_body(line) {
                self.swallow = Swallow::Nothing;
                return &text[from..];
            }
            from += line.len();
        }
        ""
    }

    /// Writes the beginning of a line that does not end.
    fn cut(&mut self, look_ahead: usize, out: &mut String) {
        let held = std::mem::take(&mut self.held);
        // The last character may be incomplete; up to three bytes wait for the rest of it.
        let whole = complete_utf8(&held);
        let text = String::from_utf8_lossy(&held[..whole]).into_owned();
        let text = self.skip_swallowed(&text);
        let mut at = text.len().saturating_sub(look_ahead);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let spans = self.redactor.spans(text, Scope::Patterns);
        let before: Vec<Span> = spans.into_iter().take_while(|span| span.start < at).collect();
        if let Some(last) = before.last() {
            at = at.max(last.end);
            if last.end == text.len() {
                self.swallow = match last.kind {
                    Kind::PrivateKey => Swallow::Pem,
                    _ if is_open_key(&text[last.start..]) => Swallow::Pem,
                    Kind::Cookie | Kind::BasicAuth => Swallow::Line,
                    _ => Swallow::Token,
                };
            }
        }
        out.push_str(&self.redactor.mask(&text[..at], &before));
        self.held = text.as_bytes()[at..].to_vec();
        self.held.extend_from_slice(&held[whole..]);
    }
}

/// Whether a masked key block at the end of a text has no closing line.
///
/// The block may begin with something else that was masked too, such as a header before the key.
fn is_open_key(block: &str) -> bool {
    block
        .rfind(pem::BEGIN)
        .is_some_and(|at| pem::head(&block[at..]).is_some() && !block[at..].contains(pem::END))
}

/// Length without an unfinished character at the end.
fn complete_utf8(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(3);
    for (i, byte) in bytes.iter().enumerate().skip(tail) {
        let needed = match byte {
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            _ => continue,
        };
        if i + needed > bytes.len() {
            return i;
        }
    }
    bytes.len()
}
