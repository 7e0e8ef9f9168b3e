//! What a credential looks like by itself: fixed prefixes, and URLs with a password.
//!
//! Case matters, so one alternation does: its literal search does most of the work. A match is only
//! a candidate; a check keeps harmless text.

use super::checks::{is_placeholder, looks_random};
use super::{Kind, Span};
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

const URLS: &str = r#"://(?P<user>[^\s/?#@:"'<>\\]*)(?::(?P<password>[^\s/?#@"'<>\\]*))?@"#;

static PREFIX: LazyLock<Regex> = LazyLock::new(|| compile(PREFIXES));
static URL: LazyLock<Regex> = LazyLock::new(|| compile(URLS));

fn compile(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the patterns are constants and tested")
}

/// The alternatives of the prefixes, for a test that looks for an example of each.
#[cfg(test)]
pub(super) fn alternatives() -> Vec<String> {
    let inner = PREFIXES.strip_prefix(r"(?-u:\b)(?:").and_then(|rest| rest.strip_suffix(')'));
    let (mut all, mut depth) = (vec![String::new()], 0_usize);
    for c in inner.expect("the shape above").chars() {
        match c {
            '|' if depth == 0 => all.push(String::new()),
            c => {
                depth = match c {
                    '(' => depth + 1,
                    ')' => depth - 1,
                    _ => depth,
                };
                all.last_mut().expect("never empty").push(c);
            }
        }
    }
    all
}

/// Finds everything that looks like a credential.
pub(super) fn find(text: &str, spans: &mut Vec<Span>) {
    for found in PREFIX.find_iter(text) {
        if let Some(kind) = prefix_kind(found.as_str()) {
            spans.push(Span { start: found.start(), end: found.end(), kind });
        }
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
