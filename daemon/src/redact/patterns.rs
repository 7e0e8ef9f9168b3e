//! What a credential looks like.
//!
//! Three automata: fixed prefixes (case matters, one alternation: literal search does most of the
//! work), words such as `token=` (case does not matter), and URLs with a password. A match is only
//! a candidate; the checks below keep harmless text. Every check that refuses resumes the search
//! behind a bounded piece of text, so that the whole stays linear.

use super::{Kind, Span};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use regex::{Captures, Regex};
use std::sync::LazyLock;

const PREFIXES: &str = concat!(
    r"(?-u:\b)(?:",
    r"gh[opusr]_[A-Za-z0-9_]+|GHP_[A-Za-z0-9_]+|github_pat_[A-Za-z0-9_]{10,}",
    r"|(?:sk|SK)-[A-Za-z0-9_-]{16,}",
    r"|(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?-u:\b)",
    r"|xox[abeoprs]-[A-Za-z0-9-]{8,}|xapp-[0-9]-[A-Za-z0-9-]{8,}",
    r"|hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_+-]{8,}",
    r"|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{16,}|GOCSPX-[A-Za-z0-9_-]{16,}",
    r"|(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{8,}|whsec_[A-Za-z0-9+/=]{16,}",
    r"|npm_[A-Za-z0-9]{30,}|hf_[A-Za-z0-9]{20,}|pypi-[A-Za-z0-9_-]{50,}",
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*){0,3}",
    r"|glpat-[A-Za-z0-9_.-]{16,}|gsk_[A-Za-z0-9]{20,}|xai-[A-Za-z0-9]{20,}",
    r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}",
    r"|do[oprt]_v1_[a-f0-9]{64}|sbp_[a-f0-9]{40}|figd_[A-Za-z0-9_-]{20,}|lin_api_[A-Za-z0-9]{20,}",
    r"|bot[0-9]{6,}:[A-Za-z0-9_-]{30,}",
    r")",
);

// Value alternatives of a word: in double, single or escaped quotes (up to the closing one or the
// end of the line), or bare.
const WORDS: &str = concat!(
    r#"(?i-u:bearer)\s+(?P<bearer>[^\s"'\\<>,;]+)"#,
    r"|(?i-u:basic)[ \t]+(?P<basic>[A-Za-z0-9+/_-]{4,}={0,2})",
    r"|(?P<name>(?i-u:token|secret|passw(?:or)?d|passphrase|pwd|api[_-]?key|(?:access|private|auth)[_-]?key",
    r"|authorization|cookie|credentials?))(?i-u:(?:[_-]?access)?[_-]?key(?:[_-]?id)?)?",
    r#"(?P<close>\\{0,3}["'])?[ \t]*(?P<op>=>|[:=])[ \t]*"#,
    r#"(?:\\{1,3}"(?P<eq>[^"\\\r\n]*)|"(?P<dq>(?:[^"\\\r\n]|\\.)*)|'(?P<sq>(?:[^'\\\r\n]|\\.)*)"#,
    r#"|(?P<bare>[^\s&,;"']+))"#,
    r#"|(?i-u:key)=(?P<key>[^\s&,;"']+)"#,
    r"|--[a-z-]*(?:token|secret|password|passwd|api-key)[ \t]+(?P<flag>[^\s&,;\x22']+)",
);

const URLS: &str = r#"://(?P<user>[^\s/?#@:"'<>\\]*)(?::(?P<password>[^\s/?#@"'<>\\]*))?@"#;

static PREFIX: LazyLock<Regex> = LazyLock::new(|| compile(PREFIXES));
static WORD: LazyLock<Regex> = LazyLock::new(|| compile(WORDS));
static URL: LazyLock<Regex> = LazyLock::new(|| compile(URLS));

fn compile(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the patterns are constants and tested")
}

/// Finds everything that looks like a credential.
pub(super) fn find(text: &str, spans: &mut Vec<Span>) {
    for found in PREFIX.find_iter(text) {
        if let Some(kind) = prefix_kind(found.as_str()) {
            spans.push(Span { start: found.start(), end: found.end(), kind });
        }
    }
    let mut from = 0;
    while let Some(found) = WORD.find_at(text, from) {
        let groups = WORD.captures_at(text, found.start()).expect("the same search just matched here");
        from = match word(text, &groups) {
            Ok(span) => {
                spans.push(span);
                found.end().max(span.end)
            }
            // A refused value may hold a secret of its own ("token: Bearer abc").
            Err(resume) => resume.max(found.start() + 1),
        };
    }
    for groups in URL.captures_iter(text) {
        spans.extend(userinfo(&groups));
    }
}

/// The password of a URL, with the user before it if that looks like a token.
fn userinfo(groups: &Captures<'_>) -> Option<Span> {
    let user = groups.name("user").expect("the group always takes part");
    let password =
        groups.name("password").filter(|found| !found.is_empty() && !is_placeholder(found.as_str()));
    let end = password.map_or(user.end(), |found| found.end());
    let start = match password {
        Some(found) if !looks_random(user.as_str()) => found.start(),
        Some(_) => user.start(),
        None if looks_random(user.as_str()) && !is_placeholder(user.as_str()) => user.start(),
        None => return None,
    };
    Some(Span { start, end, kind: Kind::UrlPassword })
}

fn prefix_kind(found: &str) -> Option<Kind> {
    Some(match found.as_bytes() {
        [b'g', b'h', ..] | [b'G', b'H', ..] | [b'g', b'i', ..] => Kind::GitHub,
        [b's' | b'S', b'k' | b'K', b'-', rest @ ..] => return is_key(rest).then_some(Kind::ApiKey),
        [b'A', b'I', b'z', ..] | [b'y', b'a', ..] | [b'G', b'O', ..] => Kind::Google,
        [b'A', ..] => Kind::Aws,
        [b'x', b'o', ..] | [b'x', b'a', b'p', ..] | [b'h', b'o', ..] => Kind::Slack,
        [b's' | b'r' | b'p', b'k', b'_', ..] | [b'w', ..] => Kind::Stripe,
        [b'n', ..] => Kind::Npm,
        [b'h', b'f', ..] => Kind::HuggingFace,
        [b'e', ..] => Kind::Jwt,
        _ => Kind::ApiKey,
    })
}

/// Tells `sk-learn-contrib-extras` and other words with dashes from a key.
fn is_key(rest: &[u8]) -> bool {
    let words =
        rest.split(|b| *b == b'-').all(|part| part.len() < 16 && part.iter().all(u8::is_ascii_lowercase));
    !words || !rest.contains(&b'-')
}

/// The span of a word match, or where to go on.
fn word(text: &str, groups: &Captures<'_>) -> Result<Span, usize> {
    let whole = groups.get(0).expect("group 0 is the match");
    let value = |name: &str| groups.name(name);
    let spanned = |start: usize, end: usize, kind| Ok(Span { start, end, kind });
    if let Some(found) = value("bearer") {
        let masked = !is_placeholder(found.as_str()) && !follows_bearer(found.as_str());
        return if masked { spanned(whole.start(), whole.end(), Kind::Bearer) } else { Err(found.start()) };
    }
    if let Some(found) = value("basic") {
        let masked = is_user_and_password(found.as_str());
        return if masked {
            spanned(found.start(), found.end(), Kind::BasicAuth)
        } else {
            Err(found.start())
        };
    }
    if let Some(found) = value("key") {
        let long = found.as_str().chars().count() >= 8 || found.as_str().bytes().any(|b| b.is_ascii_digit());
        let masked = long && !is_placeholder(found.as_str()) && !is_code(found.as_str());
        let end = found.start() + found.as_str().trim_end_matches('\\').len();
        return if masked { spanned(whole.start(), end, Kind::ApiKey) } else { Err(found.start()) };
    }
    if let Some(found) = value("flag") {
        let masked = looks_random(found.as_str()) && !is_placeholder(found.as_str());
        return if masked { spanned(found.start(), found.end(), Kind::Secret) } else { Err(found.start()) };
    }
    named(text, groups, whole.start())
}

/// `name = value` and its relatives.
fn named(text: &str, groups: &Captures<'_>, start: usize) -> Result<Span, usize> {
    let name = groups.name("name").expect("the last alternative has a name").as_str().to_ascii_lowercase();
    let op = groups.name("op").expect("the last alternative has an operator").as_str();
    let kind = kind_of(&name);
    let quoted = groups.name("dq").or_else(|| groups.name("sq")).or_else(|| groups.name("eq"));
    let value = quoted.or_else(|| groups.name("bare")).expect("one of the values takes part");
    let (from, mut to) = (value.start(), value.end());
    if quoted.is_none() {
        // A backslash at the end escapes the quote behind it.
        to = from + value.as_str().trim_end_matches('\\').len();
    }
    let content = &text[from..to];
    if content.is_empty() || is_placeholder(content) || is_harmless_name(&text[..start], &name) {
        return Err(from);
    }
    if quoted.is_none() && op == ":" {
        match kind {
            Kind::Cookie => return cookie(text, from),
            Kind::BasicAuth => return authorization(text, from),
            _ => {}
        }
    }
    if quoted.is_some() {
        return Ok(Span { start: from, end: to, kind });
    }
    let tight = text.as_bytes()[from - 1] == b'=' && groups.name("close").is_none();
    if tight {
        // As the reference does: name and value go together.
        let code = content.starts_with('=') || is_code(content);
        return if code { Err(from) } else { Ok(Span { start, end: to, kind }) };
    }
    // `X-Api-Key: x`: a header's value is a secret whatever it looks like.
    let header = text[..start].ends_with('-') && op == ":";
    if header || looks_random(content) { Ok(Span { start: from, end: to, kind }) } else { Err(from) }
}

/// The value of a `Cookie` header, if it has a name and a value.
fn cookie(text: &str, from: usize) -> Result<Span, usize> {
    // Only the first bytes decide, so that a line of refused candidates costs linear time.
    let head = &text.as_bytes()[from..text.len().min(from + 256)];
    let named = head.iter().position(|b| !(b.is_ascii_alphanumeric() || b"_-.$!#%&*+^`|~".contains(b)));
    if named.is_some_and(|at| at > 0 && head[at] == b'=') {
        Ok(Span { start: from, end: line_end(text, from), kind: Kind::Cookie })
    } else {
        Err(from)
    }
}

/// The value of an `Authorization` header: the scheme stays, the rest goes.
fn authorization(text: &str, from: usize) -> Result<Span, usize> {
    let word = |from: usize| {
        let stop = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\' | ',');
        let end = text[from..].char_indices().take(256).find(|(_, c)| stop(*c));
        &text[from..end.map_or(text.len(), |(at, _)| from + at)]
    };
    let scheme = word(from);
    let one_word =
        ["bearer", "basic", "token", "apikey", "bot"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    let whole_line = ["digest", "negotiate", "ntlm", "aws4-hmac-sha256"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known));
    if !one_word && !whole_line {
        let random = looks_random(scheme) && !is_placeholder(scheme);
        let end = if scheme.len() >= 64 { line_end(text, from) } else { from + scheme.len() };
        return if random { Ok(Span { start: from, end, kind: Kind::BasicAuth }) } else { Err(from) };
    }
    let rest = &text[from + scheme.len()..];
    let gap = rest.bytes().take(64).take_while(|b| matches!(b, b' ' | b'\t')).count();
    let at = from + scheme.len() + gap;
    let credential = word(at);
    if gap == 0 || credential.is_empty() || is_placeholder(credential) || follows_bearer(credential) {
        return Err(from);
    }
    let end = if whole_line || credential.len() >= 256 { line_end(text, at) } else { at + credential.len() };
    Ok(Span { start: at, end, kind: Kind::BasicAuth })
}

fn kind_of(name: &str) -> Kind {
    match name {
        "token" => Kind::Token,
        "password" | "passwd" | "passphrase" | "pwd" => Kind::Password,
        "authorization" => Kind::BasicAuth,
        "cookie" => Kind::Cookie,
        name if name.ends_with("key") => Kind::ApiKey,
        _ => Kind::Secret,
    }
}

/// End of a header value: the line, or the quote or brace around it.
fn line_end(text: &str, from: usize) -> usize {
    let stop = |b: &u8| matches!(b, b'\n' | b'\r' | b'"' | b'\'' | b'\\' | b'}' | b']');
    text.as_bytes()[from..].iter().position(stop).map_or(text.len(), |at| from + at)
}

/// Names that end like a credential but page through lists or belong to language models.
fn is_harmless_name(before: &str, name: &str) -> bool {
    if name != "token" {
        return false;
    }
    let tail: String = before
        .chars()
        .rev()
        .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
        .take(24)
        .collect();
    let word: String = tail.chars().rev().collect::<String>().to_ascii_lowercase();
    let word = word.trim_end_matches(['_', '-']);
    [
        "page",
        "next",
        "continuation",
        "progress",
        "sync",
        "cursor",
        "eos",
        "bos",
        "pad",
        "unk",
        "sep",
        "mask",
        "cls",
    ]
    .iter()
    .any(|end| word.ends_with(end))
}

/// Values that stand for a value: `${X}`, `<token>`, `***`, `None`, or an earlier mask.
fn is_placeholder(value: &str) -> bool {
    let inner = |open: &str, close: &str| {
        value.strip_prefix(open).is_some_and(|rest| rest.trim_end_matches([')', ']', '.']).ends_with(close))
    };
    let variable = value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    (value.starts_with('[') && value.contains("REDACTED"))
        || variable.is_some_and(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
        || inner("<", ">")
        || inner("{{", "}}")
        || value.trim_end_matches([')', ']', '}', '.']).bytes().all(|b| matches!(b, b'*' | b'.'))
        || matches!(
            value.trim_end_matches([')', ']', '}', '.', ',']).to_ascii_lowercase().as_str(),
            "none" | "null" | "nil" | "true" | "false" | "undefined" | "..." | ""
        )
}

/// Words that come after "bearer" in prose and in WWW-Authenticate.
fn follows_bearer(word: &str) -> bool {
    let word = word.trim_end_matches(['.', ':', ')', '!', '?']).to_ascii_lowercase();
    word.starts_with("realm=")
        || word.starts_with("error=")
        || word.starts_with("auth")
        || matches!(
            word.as_str(),
            "of" | "token"
                | "tokens"
                | "scheme"
                | "and"
                | "or"
                | "is"
                | "was"
                | "header"
                | "headers"
                | "credential"
                | "credentials"
                | "to"
                | "in"
                | "on"
                | "for"
                | "with"
                | "must"
                | "bonds"
                | "bond"
                | "shares"
                | "the"
                | "method"
                | "format"
                | "prefix"
                | "type"
                | "only"
                | "not"
                | "from"
                | "as"
                | "by"
                | "has"
        )
}

/// `str.lower`, `self.token`, `itemgetter(1)`: a program, not a value.
fn is_code(value: &str) -> bool {
    const ROOTS: [&str; 20] = [
        "self", "this", "os", "process", "env", "config", "cfg", "settings", "str", "args", "opts",
        "options", "params", "request", "req", "ctx", "operator", "app", "secrets", "std",
    ];
    let word = value.split(['(', '[', ')', '.']).next().unwrap_or("");
    let identifier = !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
    let after = &value[word.len()..];
    identifier && (after.starts_with('(') || (after.starts_with('.') && ROOTS.contains(&word)))
}

/// Whether a bare value after a colon is a credential and not a word of prose or a type.
///
/// Everything from 64 characters is: so what is refused is short, and the search stays linear.
fn looks_random(value: &str) -> bool {
    if value.len() >= 64 {
        return true;
    }
    let value = value.trim_end_matches([')', ']', '}', '>', '.']);
    let (digit, letter) =
        (value.bytes().any(|b| b.is_ascii_digit()), value.bytes().any(|b| b.is_ascii_alphabetic()));
    let code =
        value.bytes().any(|b| matches!(b, b'(' | b')' | b'<' | b'>' | b'[' | b']' | b'{' | b'}' | b'|'));
    if code {
        return false;
    }
    let lower_words = value.bytes().all(|b| b.is_ascii_lowercase() || matches!(b, b'_' | b'-' | b'.'));
    (value.len() >= 6 && digit && letter) || (value.len() >= 20 && !value.contains('.') && !lower_words)
}

/// Whether the text after "Basic" is `user:password` in base64.
fn is_user_and_password(value: &str) -> bool {
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let decodes = |alphabet| GeneralPurpose::new(alphabet, config).decode(value).ok();
    decodes(&alphabet::STANDARD)
        .or_else(|| decodes(&alphabet::URL_SAFE))
        .is_some_and(|bytes| bytes.contains(&b':'))
}

/// Whether a JSON member of this name holds a credential in its text.
pub(super) fn member_kind(name: &str) -> Option<Kind> {
    if name.len() < 5 || name.len() > 64 {
        return None;
    }
    let lower = name.to_ascii_lowercase();
    const ENDS: [&str; 16] = [
        "token",
        "secret",
        "password",
        "passwd",
        "passphrase",
        "api_key",
        "api-key",
        "apikey",
        "access_key",
        "accesskey",
        "private_key",
        "privatekey",
        "secret_key",
        "secretkey",
        "authorization",
        "cookie",
    ];
    let end = ENDS.iter().find(|end| lower.ends_with(**end))?;
    if is_harmless_name(&lower[..lower.len() - end.len()], end) {
        return None;
    }
    Some(kind_of(end))
}
