//! Masking inside the strings of a JSON text.
//!
//! One pass over the whole text finds candidates at full speed; only strings that hold one, that
//! have escapes (a secret may hide behind `\n` or `\/`), or that stand under a telling name are
//! looked at one by one.

use super::patterns::member_kind;
use super::{Redactor, Scope, Span};
use std::borrow::Cow;

pub(super) fn redact<'t>(redactor: &Redactor, raw: &'t str, scope: Scope) -> Cow<'t, str> {
    let candidates = redactor.spans(raw, scope);
    let mut walk = Walk { redactor, raw, scope, candidates: &candidates, copied: 0, out: String::new() };
    match walk.strings() {
        Ok(()) if walk.out.is_empty() => Cow::Borrowed(raw),
        Ok(()) => {
            walk.out.push_str(&raw[walk.copied..]);
            Cow::Owned(walk.out)
        }
        Err(NotJson) => redactor.redact_scope(raw, scope),
    }
}

/// A string was never closed.
struct NotJson;

struct Walk<'a> {
    redactor: &'a Redactor,
    raw: &'a str,
    scope: Scope,
    candidates: &'a [Span],
    /// Bytes of `raw` that are in `out` already.
    copied: usize,
    out: String,
}

impl Walk<'_> {
    fn strings(&mut self) -> Result<(), NotJson> {
        let bytes = self.raw.as_bytes();
        let mut at = 0;
        // The name whose value comes next.
        let mut name: Option<super::Kind> = None;
        while let Some(open) = self.raw[at..].find('"').map(|offset| at + offset) {
            let (close, escapes) = string_end(bytes, open + 1).ok_or(NotJson)?;
            let after = next_visible(bytes, close + 1);
            let is_name = bytes.get(after) == Some(&b':');
            // Only a value that follows its name directly belongs to it.
            let told = name.take().filter(|_| !is_name && next_visible_back(bytes, open) == Some(b':'));
            if let Some(kind) = told.filter(|_| close > open + 1) {
                self.whole(open, close, kind);
            } else if escapes || self.touched(open, close) {
                self.string(open, close, escapes);
            }
            if is_name && self.scope == Scope::Patterns {
                name = member_kind(&self.raw[open + 1..close]);
            }
            at = close + 1;
        }
        Ok(())
    }

    /// Whether a candidate overlaps the string between these quotes. Strings come in order, so
    /// candidates that end before this one are never needed again.
    fn touched(&mut self, open: usize, close: usize) -> bool {
        while let [first, rest @ ..] = self.candidates
            && first.end <= open
        {
            self.candidates = rest;
        }
        self.candidates.first().is_some_and(|first| first.start < close)
    }

    fn whole(&mut self, open: usize, close: usize, kind: super::Kind) {
        let content = &self.raw[open + 1..close];
        if content.starts_with('[') && content.ends_with("REDACTED]") {
            return;
        }
        self.replace(open + 1, close, kind.label(self.redactor.labels));
    }

    fn string(&mut self, open: usize, close: usize, escapes: bool) {
        let literal = &self.raw[open..=close];
        let text: Cow<'_, str> = if escapes {
            match serde_json::from_str::<String>(literal) {
                Ok(text) => Cow::Owned(text),
                // A lone surrogate or a bad escape: mask what can be seen.
                Err(_) => Cow::Borrowed(&literal[1..literal.len() - 1]),
            }
        } else {
            Cow::Borrowed(&literal[1..literal.len() - 1])
        };
        if let Cow::Owned(masked) = self.redactor.redact_scope(&text, self.scope) {
            let quoted = serde_json::to_string(&masked).expect("a text is always JSON");
            self.replace(open + 1, close, &quoted[1..quoted.len() - 1]);
        }
    }

    fn replace(&mut self, start: usize, end: usize, with: &str) {
        self.out.push_str(&self.raw[self.copied..start]);
        self.out.push_str(with);
        self.copied = end;
    }
}

/// The closing quote of a string whose content starts at `from`, and whether it has escapes.
fn string_end(bytes: &[u8], from: usize) -> Option<(usize, bool)> {
    let mut at = from;
    let mut escapes = false;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => return Some((at, escapes)),
            b'\\' => {
                escapes = true;
                at += 2;
            }
            _ => at += 1,
        }
    }
    None
}

fn next_visible(bytes: &[u8], from: usize) -> usize {
    bytes[from..].iter().position(|b| !b.is_ascii_whitespace()).map_or(bytes.len(), |at| from + at)
}

fn next_visible_back(bytes: &[u8], before: usize) -> Option<u8> {
    bytes[..before].iter().rev().find(|b| !b.is_ascii_whitespace()).copied()
}
