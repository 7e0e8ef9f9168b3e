//! Injection scan of texts that a model will read.
//!
//! Pure. Promise: the text is looked at as a model understands it: invisible characters, full-width
//! and look-alike letters, spaced-out words and encodings do not hide a phrase. A finding says what
//! kind it is and shows a harmless excerpt; it never blocks anything by itself. Scan every
//! model-visible text: names, titles, descriptions, parameter texts, prompts, resources, server
//! instructions.

mod normalise;
mod patterns;
mod phrases;

use normalise::Normalised;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Characters of an excerpt.
const MAX_EXCERPT: usize = 160;
/// Bytes looked at; a longer text is looked at up to here.
pub const MAX_SCANNED: usize = 256 * 1024;

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// "Ignore previous instructions".
    Override,
    /// "You are now …".
    Identity,
    /// "Your new task is …".
    Task,
    /// Text that poses as a system prompt.
    SystemPrompt,
    /// Role or instruction tags.
    RoleTag,
    /// "Do not tell the user".
    Concealment,
    /// A command that loads something from the network.
    NetworkCommand,
    /// Decoding of base64.
    Base64Decode,
    /// Execution of code.
    CodeExecution,
    /// Import of a module that reaches the machine.
    DangerousImport,
    /// Invisible characters where they serve no script and no emoji.
    Invisible,
    /// Characters that reorder what is shown.
    Bidi,
    /// A tool of another server is named.
    OtherServer,
    /// Readable text in base64 or in escapes.
    EncodedPayload,
    /// Sentences inside an HTML comment.
    HtmlComment,
    /// Secrets or the conversation are to be handed over.
    Exfiltration,
    /// The tool puts itself before others or in their place.
    Precedence,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Override,
        Self::Identity,
        Self::Task,
        Self::SystemPrompt,
        Self::RoleTag,
        Self::Concealment,
        Self::NetworkCommand,
        Self::Base64Decode,
        Self::CodeExecution,
        Self::DangerousImport,
        Self::Invisible,
        Self::Bidi,
        Self::OtherServer,
        Self::EncodedPayload,
        Self::HtmlComment,
        Self::Exfiltration,
        Self::Precedence,
    ];

    /// Stable word for programs, logs and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Override => "override",
            Self::Identity => "identity",
            Self::Task => "task",
            Self::SystemPrompt => "system_prompt",
            Self::RoleTag => "role_tag",
            Self::Concealment => "concealment",
            Self::NetworkCommand => "network_command",
            Self::Base64Decode => "base64_decode",
            Self::CodeExecution => "code_execution",
            Self::DangerousImport => "dangerous_import",
            Self::Invisible => "invisible",
            Self::Bidi => "bidi",
            Self::OtherServer => "other_server",
            Self::EncodedPayload => "encoded_payload",
            Self::HtmlComment => "html_comment",
            Self::Exfiltration => "exfiltration",
            Self::Precedence => "precedence",
        }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What kind.
    pub kind: Kind,
    /// What it looks like, normalised, at most 160 characters. Redact before showing.
    pub excerpt: String,
}

/// Names of tools that a text of one server has no business with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Foreign {
    names: BTreeSet<String>,
}

impl Foreign {
    /// `others` are raw and exposed names of all other servers' tools, `own` those of this server.
    /// Names that are ordinary words (`search`, `list`) are left out, and so are shared ones.
    pub fn new<'a>(
        own: impl IntoIterator<Item = &'a str>,
        others: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let own: BTreeSet<String> = own.into_iter().map(str::to_lowercase).collect();
        let distinct =
            |name: &&str| name.len() >= 6 && (name.contains(['_', '-']) || has_inner_capital(name));
        let names = others.into_iter().filter(distinct).map(str::to_lowercase);
        Self { names: names.filter(|name| !own.contains(name)).collect() }
    }

    /// Whether no name is foreign.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

fn has_inner_capital(name: &str) -> bool {
    name.bytes().zip(name.bytes().skip(1)).any(|(a, b)| a.is_ascii_lowercase() && b.is_ascii_uppercase())
}

/// Keeps the compiled phrases (5 MB) in memory, for whoever looks through many texts.
#[derive(Debug)]
pub struct Kept {
    _phrases: Arc<patterns::Compiled>,
}

/// Compiles the phrases if nobody keeps them: tens of milliseconds.
pub fn keep() -> Kept {
    Kept { _phrases: patterns::compiled() }
}

/// Looks through one text; at most one finding of a kind, in the order of [`Kind`]. Compiles the phrases
/// first unless somebody keeps them ([`keep`]).
pub fn scan(text: &str, foreign: &Foreign) -> Vec<Finding> {
    let text = &text[..floor_border(text, MAX_SCANNED)];
    let plain = Normalised::of(text);
    let mut found = Vec::new();
    patterns::search(&plain, &mut found);
    if plain.invisible {
        found.push(Finding { kind: Kind::Invisible, excerpt: excerpt(&plain.flat, 0) });
    }
    if plain.bidi {
        found.push(Finding { kind: Kind::Bidi, excerpt: excerpt(&plain.flat, 0) });
    }
    if let Some(at) = foreign_name(&plain.flat, foreign) {
        found.push(Finding { kind: Kind::OtherServer, excerpt: excerpt(&plain.flat, at) });
    }
    if let Some(hidden) = normalise::decoded(text) {
        let inside = Normalised::of(&hidden);
        patterns::search(&inside, &mut found);
        found.push(Finding { kind: Kind::EncodedPayload, excerpt: excerpt(&inside.flat, 0) });
    }
    found.sort_by_key(|finding| finding.kind);
    found.dedup_by_key(|finding| finding.kind);
    found
}

/// Looks for names of other servers' tools only.
pub fn other_server(text: &str, foreign: &Foreign) -> Option<Finding> {
    let plain = Normalised::of(&text[..floor_border(text, MAX_SCANNED)]);
    let at = foreign_name(&plain.flat, foreign)?;
    Some(Finding { kind: Kind::OtherServer, excerpt: excerpt(&plain.flat, at) })
}

fn foreign_name(text: &str, foreign: &Foreign) -> Option<usize> {
    if foreign.names.is_empty() {
        return None;
    }
    let inside = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let mut words = text.split(|c: char| !inside(c)).filter(|word| !word.is_empty());
    let word = words.find(|word| foreign.names.contains(*word))?;
    Some(word.as_ptr() as usize - text.as_ptr() as usize)
}

/// A piece of `text` around byte `at`.
fn excerpt(text: &str, at: usize) -> String {
    let start = floor_border(text, at.saturating_sub(20));
    text[start..].chars().take(MAX_EXCERPT).collect()
}

fn floor_border(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests;
