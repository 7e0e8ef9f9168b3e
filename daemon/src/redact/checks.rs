//! Whether a candidate is a secret or harmless text that looks like one.
//!
//! Each check that refuses a value answers "no" only for short ones: see `words`.

use super::Kind;
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Longer values are never taken for a placeholder.
const MAX_PLACEHOLDER: usize = 64;
/// Longer values are never taken for a piece of program.
const MAX_CODE: usize = 256;

/// Names that end like a credential but page through lists or belong to language models.
pub(super) fn is_harmless_name(before: &str) -> bool {
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
pub(super) fn is_placeholder(value: &str) -> bool {
    if value.len() > MAX_PLACEHOLDER {
        return false;
    }
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
pub(super) fn follows_bearer(word: &str) -> bool {
    if word.len() > MAX_CODE {
        return false;
    }
    let word = word.trim_end_matches(['.', ':', ')', '!', '?']).to_ascii_lowercase();
    word.starts_with("realm=")
        || word.starts_with("error=")
        || (word.starts_with("auth") && word.len() <= 16 && word.bytes().all(|b| b.is_ascii_lowercase()))
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
pub(super) fn is_code(value: &str) -> bool {
    if value.len() > MAX_CODE {
        return false;
    }
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
pub(super) fn looks_random(value: &str) -> bool {
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
pub(super) fn is_user_and_password(value: &str) -> bool {
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
    if *end == "token" && is_harmless_name(&lower[..lower.len() - end.len()]) {
        return None;
    }
    Some(match *end {
        "token" => Kind::Token,
        "secret" => Kind::Secret,
        "password" | "passwd" | "passphrase" => Kind::Password,
        "authorization" => Kind::BasicAuth,
        "cookie" => Kind::Cookie,
        _ => Kind::ApiKey,
    })
}
