//! Values that must never be printed, and the set of all that the daemon knows.
//!
//! Pure. [`Secret`] shows nothing in `Debug` and has no `Display`; [`KnownSecrets`] is what the
//! redactor masks by exact value. May not touch: files, logs.

pub use hermes_proto::secrets::{name_says_secret, value_is_secret};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// A value that shows itself only through [`Secret::expose`].
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps `value`.
    pub fn new(value: impl Into<Arc<str>>) -> Self {
        Self(value.into())
    }

    /// The value; for the place that needs it (an environment, a header) and no other.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[SECRET]")
    }
}

/// A user name of a URL that is this long is a token.
const MIN_TOKEN: usize = 20;

/// `%40` as `@`; what decodes to no text stays as it is.
fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

/// Every exact value to mask.
#[derive(Clone, Default)]
pub struct KnownSecrets {
    values: BTreeSet<Secret>,
}

impl fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KnownSecrets({})", self.values.len())
    }
}

impl KnownSecrets {
    /// Notes `value` if `name` says it is a secret and the value is worth masking, and the credentials of
    /// URLs in it, whatever its name.
    pub fn note(&mut self, name: &str, value: &str) {
        if name_says_secret(name) && value_is_secret(value) {
            self.values.insert(Secret::new(value));
        }
        self.note_urls(value);
    }

    /// Notes the credentials of every URL in `text`, as they stand there and decoded.
    pub fn note_urls(&mut self, text: &str) {
        for (at, _) in text.match_indices("://") {
            let authority =
                text[at + 3..].split(['/', '?', '#', ' ', '"', '\'', '<', '>', ',']).next().unwrap_or("");
            let Some((userinfo, _)) = authority.rsplit_once('@') else { continue };
            let credential = match userinfo.split_once(':') {
                Some((_, password)) => password,
                // A user alone is a name; a long one is a token.
                None if userinfo.len() >= MIN_TOKEN => userinfo,
                None => continue,
            };
            for credential in [credential, &percent_decoded(credential)] {
                if value_is_secret(credential) {
                    self.values.insert(Secret::new(credential));
                }
            }
        }
    }

    /// Notes a value that is known to be a secret, whatever its name.
    pub fn insert(&mut self, value: Secret) {
        if !value.expose().is_empty() {
            self.values.insert(value);
        }
    }

    /// Adds all of `other`.
    pub fn extend(&mut self, other: &Self) {
        self.values.extend(other.values.iter().cloned());
    }

    /// Longest first, so that a secret that contains another is masked whole.
    pub fn longest_first(&self) -> Vec<Secret> {
        let mut all: Vec<Secret> = self.values.iter().cloned().collect();
        all.sort_by_key(|secret| std::cmp::Reverse(secret.expose().len()));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_urls_are_known_wherever_they_stand() {
        let known = |text: &str| -> Vec<String> {
            let mut secrets = KnownSecrets::default();
            secrets.note("PLAIN", text);
            secrets.values.iter().map(|secret| secret.expose().to_owned()).collect()
        };
        assert_eq!(known("postgres://u:pa55word-1@127.0.0.1:5432/x"), ["pa55word-1"]);
        assert_eq!(
            known("see http://a@b/ and redis://:p%40ssword%2F2@h, ok"),
            ["p%40ssword%2F2", "p@ssword/2"]
        );
        assert_eq!(known("https://abcdefghij0123456789@host/x"), ["abcdefghij0123456789"]);
        for nothing in
            ["https://user@host/", "a://b", "https://host/p@th:abcdefghij", "://u:short@h", "%zz://:%f@x"]
        {
            assert_eq!(known(nothing), [] as [&str; 0], "{nothing}");
        }
    }
}
