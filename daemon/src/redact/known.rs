//! Known values: all their forms in one automaton.

use super::{Kind, Span, forms};
use crate::secret::KnownSecrets;
use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use std::fmt;

/// Shorter values are left alone.
const MIN_CHARS: usize = 4;
/// Shorter values are masked as whole words only.
const MIN_ANYWHERE: usize = 8;
/// A dense automaton is built below this many bytes of forms; it is the fastest, but large.
const DENSE_BYTES: usize = 64 * 1024;

pub(super) struct Known {
    automaton: Option<AhoCorasick>,
    /// Whether each form is masked as a whole word only.
    whole_word: Vec<bool>,
    /// Bytes of the longest form.
    longest: usize,
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Known({} forms)", self.whole_word.len())
    }
}

impl Known {
    pub(super) fn new(known: &KnownSecrets) -> Self {
        let mut all: Vec<(String, bool)> = Vec::new();
        for secret in known.longest_first() {
            let chars = secret.expose().chars().count();
            if chars >= MIN_CHARS {
                let forms = forms::of(secret.expose());
                all.extend(forms.into_iter().map(|form| (form, chars < MIN_ANYWHERE)));
            }
        }
        all.sort();
        all.dedup_by(|a, b| a.0 == b.0);
        let bytes: usize = all.iter().map(|(form, _)| form.len()).sum();
        let longest = all.iter().map(|(form, _)| form.len()).max().unwrap_or(0);
        let kind = (bytes <= DENSE_BYTES).then_some(AhoCorasickKind::DFA);
        let automaton = (!all.is_empty()).then(|| {
            AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .kind(kind)
                .build(all.iter().map(|(form, _)| form))
                .expect("far fewer forms than the automaton can hold")
        });
        Self { automaton, whole_word: all.into_iter().map(|(_, word)| word).collect(), longest }
    }

    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    pub(super) fn find(&self, text: &str, spans: &mut Vec<Span>) {
        let Some(automaton) = &self.automaton else { return };
        for found in automaton.find_iter(text) {
            let (start, end) = (found.start(), found.end());
            if self.whole_word[found.pattern().as_usize()] && !is_word(text, start, end) {
                continue;
            }
            spans.push(Span { start, end, kind: Kind::Known });
        }
    }
}

fn is_word(text: &str, start: usize, end: usize) -> bool {
    let touches = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    !touches(text[..start].chars().next_back()) && !touches(text[end..].chars().next())
}
