//! One automaton for all literals: the known values in every form, and the words (`token`, `key=`,
//! `bearer`, …) behind which a value may stand.
//!
//! A pass over the text costs about 2 ns a byte whatever is looked for, so there is one. It
//! ignores case; a known form is compared exactly afterwards.

use super::{Kind, Scope, Span, forms, words};
use crate::secret::KnownSecrets;
use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use std::fmt;

/// Shorter values are left alone.
const MIN_CHARS: usize = 4;
/// Shorter values are masked as whole words only.
const MIN_ANYWHERE: usize = 8;
/// A dense automaton is built below this many bytes of literals; it is the fastest, but large.
const DENSE_BYTES: usize = 32 * 1024;

pub(super) struct Scan {
    automaton: AhoCorasick,
    forms: Vec<Form>,
    /// Bytes of the longest form.
    longest: usize,
}

struct Form {
    text: Box<str>,
    whole_word: bool,
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scan({} forms)", self.forms.len())
    }
}

impl Scan {
    pub(super) fn knows_nothing(&self) -> bool {
        self.forms.is_empty()
    }

    pub(super) fn new(known: &KnownSecrets) -> Self {
        let mut forms: Vec<Form> = Vec::new();
        for secret in known.longest_first() {
            let chars = secret.expose().chars().count();
            if chars >= MIN_CHARS {
                let whole_word = chars < MIN_ANYWHERE;
                forms.extend(
                    forms::of(secret.expose()).into_iter().map(|text| Form { text: text.into(), whole_word }),
                );
            }
        }
        let literals =
            || words::WORDS.iter().map(|(word, _)| *word).chain(forms.iter().map(|form| &*form.text));
        let dense = literals().map(str::len).sum::<usize>() <= DENSE_BYTES;
        let automaton = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::Standard)
            .kind(dense.then_some(AhoCorasickKind::DFA))
            .build(literals())
            .expect("far fewer literals than the automaton can hold");
        let longest = forms.iter().map(|form| form.text.len()).max().unwrap_or(0);
        Self { automaton, forms, longest }
    }

    /// Bytes of the longest form of a known value.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Finds known values, and what stands behind the words if `scope` says so. Spans may overlap.
    pub(super) fn find(&self, text: &str, scope: Scope, spans: &mut Vec<Span>) {
        if scope == Scope::Known && self.forms.is_empty() {
            return;
        }
        let mut words = words::Search::new(text);
        for found in self.automaton.find_overlapping_iter(text) {
            let (start, end) = (found.start(), found.end());
            match found.pattern().as_usize().checked_sub(words::WORDS.len()) {
                Some(form) => {
                    let form = &self.forms[form];
                    // Bytes, not text: a case-blind match may end inside no character, but be sure.
                    let same = text.as_bytes()[start..end] == *form.text.as_bytes();
                    if same && (!form.whole_word || is_word(text, start, end)) {
                        spans.push(Span { start, end, kind: Kind::Known });
                    }
                }
                None if scope == Scope::Patterns => {
                    let (_, word) = words::WORDS[found.pattern().as_usize()];
                    words.hit(word, start, end, spans);
                }
                None => {}
            }
        }
    }
}

fn is_word(text: &str, start: usize, end: usize) -> bool {
    let touches = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    !touches(text[..start].chars().next_back()) && !touches(text[end..].chars().next())
}
