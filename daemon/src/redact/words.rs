//! Values that stand behind a word: `token=x`, `"password": "x"`, `Authorization: Bearer x`.
//!
//! By hand, behind the literal search: that is several times as fast as a pattern with groups, and
//! shows that the whole is linear: a value that is taken is never looked at again, and one that is
//! refused is short (64 or 256 bytes) or was not read to its end.

use super::{Kind, Span, checks};

/// What a word announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// `Bearer x`
    Bearer,
    /// `Basic x`
    Basic,
    /// `key=x`
    Key,
    /// `name=x`, `name: x`, `"name": "x"`, `--name x`
    Name(Kind),
}

use Word::{Basic, Bearer, Key, Name};

/// Every word, in lower case.
pub(super) const WORDS: [(&str, Word); 24] = [
    ("bearer", Bearer),
    ("basic", Basic),
    ("key=", Key),
    ("token", Name(Kind::Token)),
    ("secret", Name(Kind::Secret)),
    ("credential", Name(Kind::Secret)),
    ("password", Name(Kind::Password)),
    ("passwd", Name(Kind::Password)),
    ("passphrase", Name(Kind::Password)),
    ("pwd", Name(Kind::Password)),
    ("authorization", Name(Kind::BasicAuth)),
    ("cookie", Name(Kind::Cookie)),
    ("apikey", Name(Kind::ApiKey)),
    ("api_key", Name(Kind::ApiKey)),
    ("api-key", Name(Kind::ApiKey)),
    ("accesskey", Name(Kind::ApiKey)),
    ("access_key", Name(Kind::ApiKey)),
    ("access-key", Name(Kind::ApiKey)),
    ("privatekey", Name(Kind::ApiKey)),
    ("private_key", Name(Kind::ApiKey)),
    ("private-key", Name(Kind::ApiKey)),
    ("authkey", Name(Kind::ApiKey)),
    ("auth_key", Name(Kind::ApiKey)),
    ("auth-key", Name(Kind::ApiKey)),
];

/// What may follow a name before its value: `secret_access_key_id`, `credentials`.
const MORE: [&str; 12] = [
    "_access_key_id",
    "_access_key",
    "-access-key-id",
    "-access-key",
    "accesskeyid",
    "accesskey",
    "_key_id",
    "_key",
    "-key",
    "_id",
    "key",
    "s",
];

/// One text, read from left to right.
pub(super) struct Search<'t> {
    text: &'t str,
    /// Words before this were part of a value that is masked already.
    from: usize,
    /// Words before this are in a header value that is masked to its end. Their own values may
    /// reach further, but no header begins there: looking for its end again would be quadratic.
    header: usize,
}

impl<'t> Search<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, from: 0, header: 0 }
    }

    /// Looks at what stands behind the word at `start..end`. Words come in the order of their ends.
    pub(super) fn hit(&mut self, word: Word, start: usize, end: usize, spans: &mut Vec<Span>) {
        if start < self.from {
            return;
        }
        let heads = matches!(word, Name(Kind::Cookie | Kind::BasicAuth));
        if start < self.header && (heads || matches!(word, Bearer | Basic)) {
            return;
        }
        let found = match word {
            Bearer => self.bearer(start, end),
            Basic => self.basic(end),
            Key => self.key(start, end),
            Name(kind) => self.name(kind, start, end),
        };
        if let Some(span) = found {
            if heads {
                self.header = span.end;
            } else {
                self.from = span.end;
            }
            spans.push(span);
        }
    }

    fn bearer(&self, start: usize, end: usize) -> Option<Span> {
        let at = end + self.count(end, |c| c.is_whitespace());
        if at == end {
            return None;
        }
        let stop = self.bare_end(at, |c| matches!(c, '"' | '\'' | '\\' | '<' | '>' | ',' | ';'));
        let value = &self.text[at..stop];
        let refused = value.is_empty() || checks::is_placeholder(value) || checks::follows_bearer(value);
        (!refused).then_some(Span { start, end: stop, kind: Kind::Bearer })
    }

    fn basic(&self, end: usize) -> Option<Span> {
        let at = end + self.blanks(end);
        if at == end {
            return None;
        }
        let length =
            self.count(at, |c| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '_' | '-' | '='));
        let value = &self.text[at..at + length];
        let masked = length >= 4 && checks::is_user_and_password(value);
        masked.then_some(Span { start: at, end: at + length, kind: Kind::BasicAuth })
    }

    fn key(&self, start: usize, end: usize) -> Option<Span> {
        let stop = self.value_end(end);
        let value = &self.text[end..stop];
        let long = value.chars().take(8).count() == 8 || value.bytes().any(|b| b.is_ascii_digit());
        let masked = long && !checks::is_placeholder(value) && !checks::is_code(value);
        masked.then_some(Span { start, end: stop, kind: Kind::ApiKey })
    }

    fn name(&self, kind: Kind, start: usize, end: usize) -> Option<Span> {
        let rest = &self.text.as_bytes()[end..];
        let more = MORE.iter().find(|more| {
            rest.len() >= more.len() && rest[..more.len()].eq_ignore_ascii_case(more.as_bytes())
        });
        // "tokens" and "passwords" are counted, not kept: only credentials come in the plural.
        let plural = more.is_some_and(|more| *more == "s")
            && !self.text[start..end].eq_ignore_ascii_case("credential");
        let end = end + if plural { 0 } else { more.map_or(0, |more| more.len()) };
        let quote = self.closing_quote(end);
        let gap = end + quote + self.blanks(end + quote);
        let Some((at, op)) = self.operator(gap) else { return self.flag(kind, start, end, gap) };
        if kind == Kind::Token && checks::is_harmless_name(&self.text[..start]) {
            return None;
        }
        let blanks = self.blanks(at);
        let from = at + blanks;
        if let Some((open, close)) = self.quoted(from) {
            let value = &self.text[open..close];
            let masked = !value.is_empty() && !checks::is_placeholder(value);
            return masked.then_some(Span { start: open, end: close, kind });
        }
        match kind {
            Kind::Cookie if op == Operator::Colon => return self.cookie(from),
            Kind::BasicAuth if op == Operator::Colon => return self.authorization(from),
            _ => {}
        }
        if self.text[from..].starts_with('=') {
            return None;
        }
        let to = self.value_end(from);
        let value = &self.text[from..to];
        if value.is_empty() || checks::is_placeholder(value) {
            return None;
        }
        if op == Operator::Equals && blanks == 0 && quote == 0 {
            // As the reference does: name and value go together.
            return (!checks::is_code(value)).then_some(Span { start, end: to, kind });
        }
        // `X-Api-Key: x`: a header's value is a secret whatever it looks like.
        let header = op == Operator::Colon && self.text[..start].ends_with('-');
        (header || checks::looks_random(value)).then_some(Span { start: from, end: to, kind })
    }

    /// `--api-key x`
    fn flag(&self, kind: Kind, start: usize, end: usize, at: usize) -> Option<Span> {
        let before =
            self.text[..start].bytes().rev().take(32).take_while(|b| b.is_ascii_lowercase() || *b == b'-');
        let dashes = self.text[..start].bytes().rev().take(before.count()).collect::<Vec<u8>>();
        if at == end || !dashes.ends_with(b"--") {
            return None;
        }
        let to = self.value_end(at);
        let value = &self.text[at..to];
        let masked = checks::looks_random(value) && !checks::is_placeholder(value);
        masked.then_some(Span { start: at, end: to, kind })
    }

    /// The value of a `Cookie` header, if it has a name and a value.
    fn cookie(&self, from: usize) -> Option<Span> {
        let tchar = |c: char| c.is_ascii_alphanumeric() || "_-.$!#%&*+^`|~".contains(c);
        let name = self.text[from..].chars().take(256).take_while(|c| tchar(*c)).count();
        let masked = name > 0 && self.text[from + name..].starts_with('=');
        masked.then(|| Span { start: from, end: self.line_end(from), kind: Kind::Cookie })
    }

    /// The value of an `Authorization` header: the scheme stays, the rest goes.
    fn authorization(&self, from: usize) -> Option<Span> {
        let scheme = self.header_word(from);
        let is_one_of = |known: &[&str]| known.iter().any(|known| scheme.eq_ignore_ascii_case(known));
        let one_word = is_one_of(&["bearer", "basic", "token", "apikey", "bot"]);
        let whole_line = is_one_of(&["digest", "negotiate", "ntlm", "aws4-hmac-sha256"]);
        if !one_word && !whole_line {
            let random = checks::looks_random(scheme) && !checks::is_placeholder(scheme);
            let end = if scheme.len() >= 64 { self.line_end(from) } else { from + scheme.len() };
            return random.then_some(Span { start: from, end, kind: Kind::BasicAuth });
        }
        let gap = self.blanks(from + scheme.len());
        let at = from + scheme.len() + gap;
        let credential = self.header_word(at);
        if gap == 0
            || credential.is_empty()
            || checks::is_placeholder(credential)
            || checks::follows_bearer(credential)
        {
            return None;
        }
        let long = whole_line || credential.len() >= 256;
        let end = if long { self.line_end(at) } else { at + credential.len() };
        Some(Span { start: at, end, kind: Kind::BasicAuth })
    }

    /// A word of a header's value, at most 256 characters of it.
    fn header_word(&self, from: usize) -> &'t str {
        let stop = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\' | ',');
        let rest = &self.text[from..];
        let end = rest.char_indices().enumerate().find(|(i, (_, c))| *i == 256 || stop(*c));
        &rest[..end.map_or(rest.len(), |(_, (at, _))| at)]
    }

    /// End of a header value: the line, or the quote or brace around it.
    fn line_end(&self, from: usize) -> usize {
        let stop = |c: char| matches!(c, '\n' | '\r' | '"' | '\'' | '\\' | '}' | ']');
        self.text[from..].find(stop).map_or(self.text.len(), |at| from + at)
    }

    /// Length of a quote that closes the name, with the backslashes before it.
    fn closing_quote(&self, at: usize) -> usize {
        let escapes = self.text[at..].bytes().take(3).take_while(|b| *b == b'\\').count();
        match self.text.as_bytes().get(at + escapes) {
            Some(b'"' | b'\'') => escapes + 1,
            _ => 0,
        }
    }

    fn operator(&self, at: usize) -> Option<(usize, Operator)> {
        match self.text.as_bytes().get(at)? {
            b'=' if self.text.as_bytes().get(at + 1) == Some(&b'>') => Some((at + 2, Operator::Arrow)),
            b'=' => Some((at + 1, Operator::Equals)),
            b':' => Some((at + 1, Operator::Colon)),
            _ => None,
        }
    }

    /// Inside of the quotes that open at `at`; an open end is the end of the line.
    fn quoted(&self, at: usize) -> Option<(usize, usize)> {
        let bytes = self.text.as_bytes();
        let escapes = self.text[at..].bytes().take(3).take_while(|b| *b == b'\\').count();
        let quote = *bytes.get(at + escapes).filter(|b| matches!(b, b'"' | b'\''))?;
        let open = at + escapes + 1;
        let mut close = open;
        while let Some(byte) = bytes.get(close) {
            match byte {
                b'\n' | b'\r' => break,
                b'\\' if escapes > 0 => break,
                b'\\' => close += 1,
                byte if *byte == quote => break,
                _ => {}
            }
            close += 1;
        }
        // A backslash at the very end jumps over it.
        let mut close = close.min(bytes.len());
        while !self.text.is_char_boundary(close) {
            close += 1;
        }
        Some((open, close))
    }

    /// End of a bare value; a backslash at its end escapes the quote behind it.
    fn value_end(&self, from: usize) -> usize {
        let end = self.bare_end(from, |c| matches!(c, '&' | ',' | ';' | '"' | '\''));
        from + self.text[from..end].trim_end_matches('\\').len()
    }

    fn bare_end(&self, from: usize, stop: impl Fn(char) -> bool) -> usize {
        self.text[from..].find(|c: char| c.is_whitespace() || stop(c)).map_or(self.text.len(), |at| from + at)
    }

    fn blanks(&self, at: usize) -> usize {
        self.text[at..].bytes().take_while(|b| matches!(b, b' ' | b'\t')).count()
    }

    /// Bytes of the characters from `at` that `wanted` takes.
    fn count(&self, at: usize, wanted: impl Fn(char) -> bool) -> usize {
        self.text[at..].find(|c: char| !wanted(c)).unwrap_or(self.text.len() - at)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equals,
    Colon,
    Arrow,
}
