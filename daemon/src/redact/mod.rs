//! The one choke point that masks secrets in every text that leaves the daemon.
//!
//! Pure. Promise: the exact values hermesd knows (raw, escaped, url- and base64-encoded) and what
//! looks like a credential are replaced by a label; harmless text stays as it is; JSON stays valid
//! JSON; the time is linear in the text, whatever a server writes. [`StreamRedactor`] keeps that
//! promise over chunk and line borders. A masked text is for reading only: never write it back.
//! May not touch: files, logs, and the secrets themselves beyond building the automaton.

mod checks;
mod forms;
mod json;
mod patterns;
mod pem;
mod scan;
mod stream;
mod words;

pub use stream::StreamRedactor;

use crate::config::RedactionLabels;
use crate::secret::KnownSecrets;
use scan::Scan;
use std::borrow::Cow;

/// How much is masked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Exact values that hermesd knows.
    Known,
    /// Those, and everything that looks like a credential.
    Patterns,
}

/// What a masked text was; decides the typed label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Known,
    GitHub,
    ApiKey,
    Aws,
    Slack,
    Google,
    Stripe,
    Npm,
    HuggingFace,
    Jwt,
    PrivateKey,
    Bearer,
    BasicAuth,
    UrlPassword,
    Cookie,
    Password,
    Secret,
    Token,
}

impl Kind {
    fn label(self, labels: RedactionLabels) -> &'static str {
        if labels == RedactionLabels::Plain {
            return "[REDACTED]";
        }
        match self {
            Self::Known => "[KNOWN_SECRET_REDACTED]",
            Self::GitHub => "[GH_TOKEN_REDACTED]",
            Self::ApiKey => "[API_KEY_REDACTED]",
            Self::Aws => "[AWS_KEY_REDACTED]",
            Self::Slack => "[SLACK_TOKEN_REDACTED]",
            Self::Google => "[GOOGLE_KEY_REDACTED]",
            Self::Stripe => "[STRIPE_KEY_REDACTED]",
            Self::Npm => "[NPM_TOKEN_REDACTED]",
            Self::HuggingFace => "[HF_TOKEN_REDACTED]",
            Self::Jwt => "[JWT_REDACTED]",
            Self::PrivateKey => "[PRIVATE_KEY_REDACTED]",
            Self::Bearer => "[BEARER_TOKEN_REDACTED]",
            Self::BasicAuth => "[BASIC_AUTH_REDACTED]",
            Self::UrlPassword => "[URL_PASSWORD_REDACTED]",
            Self::Cookie => "[COOKIE_REDACTED]",
            Self::Password => "[PASSWORD_REDACTED]",
            Self::Secret => "[SECRET_REDACTED]",
            Self::Token => "[TOKEN_REDACTED]",
        }
    }
}

/// A stretch of text to mask, in bytes, at character borders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    start: usize,
    end: usize,
    kind: Kind,
}

/// Masks secrets. Build one for each configuration and share it.
#[derive(Debug)]
pub struct Redactor {
    scan: Scan,
    labels: RedactionLabels,
}

impl Redactor {
    /// Builds the automaton of all forms of `known`; about 0.2 ms a secret.
    ///
    /// Values shorter than 4 characters are left out, those shorter than 8 are masked as whole
    /// words only: anything else would destroy the texts they happen to occur in.
    pub fn new(known: &KnownSecrets, labels: RedactionLabels) -> Self {
        Self { scan: Scan::new(known), labels }
    }

    /// Whether anything could be masked under `scope`; `false`: a text need not be looked at.
    pub fn masks(&self, scope: Scope) -> bool {
        scope == Scope::Patterns || !self.scan.knows_nothing()
    }

    /// Masks known values and patterns; borrows when nothing is found.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.redact_scope(text, Scope::Patterns)
    }

    /// Masks as much as `scope` says; borrows when nothing is found.
    pub fn redact_scope<'t>(&self, text: &'t str, scope: Scope) -> Cow<'t, str> {
        let spans = self.spans(text, scope);
        if spans.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(self.mask(text, &spans)) }
    }

    /// Masks inside the strings of one JSON text; what is around them is not touched, so valid JSON
    /// stays valid. A member whose name says that it holds a credential loses its whole value.
    ///
    /// Text that is no JSON is masked like [`Self::redact_scope`] does.
    pub fn redact_json<'t>(&self, raw: &'t str, scope: Scope) -> Cow<'t, str> {
        json::redact(self, raw, scope)
    }

    /// Where the secrets are: sorted, not touching each other.
    pub(crate) fn spans(&self, text: &str, scope: Scope) -> Vec<Span> {
        let mut spans = Vec::new();
        self.scan.find(text, scope, &mut spans);
        if scope == Scope::Patterns {
            patterns::find(text, &mut spans);
            pem::find(text, &mut spans);
        }
        merge(spans)
    }

    fn mask(&self, text: &str, spans: &[Span]) -> String {
        let mut out = String::with_capacity(text.len());
        let mut from = 0;
        for span in spans {
            out.push_str(&text[from..span.start]);
            out.push_str(span.kind.label(self.labels));
            from = span.end;
        }
        out.push_str(&text[from..]);
        out
    }
}

/// Sorts spans and joins those that overlap; the one that starts first names the label.
fn merge(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end), span.kind));
    let mut merged: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.start < last.end => last.end = last.end.max(span.end),
            _ => merged.push(span),
        }
    }
    merged
}

#[cfg(test)]
mod tests;
