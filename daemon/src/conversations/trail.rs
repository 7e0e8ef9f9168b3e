//! Telling new messages from old ones that were stored again.
//!
//! Pure. Hermes Agent rewrites a session in three ways: it deletes all rows and inserts those that stay
//! under new ids and with new times (retry, undo, compress), it marks rows as taken back (rewind), or it
//! marks them as summarised and inserts the summary and what stays. Promise: a message that was told
//! before is not told again, and what was written after a rewrite is.

/// What became of a row that was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is there and shown.
    Shown,
    /// It is there and was taken back: whatever is written now is new, also the same words.
    TakenBack,
    /// It is gone, or stands in a summarised part: it may have been stored again.
    Gone,
}

/// Whether more was told than is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    /// Every message that was told is remembered.
    Whole,
    /// Older ones are forgotten.
    Tail,
}

/// What happened to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sorted {
    /// Which rows are new messages, by index, in order.
    pub(super) new: Vec<usize>,
    /// How many of the remembered messages are no longer there.
    pub(super) removed: usize,
}

/// Rows beyond this many are too many to compare: the newest are compared, the others are old.
const COMPARED: usize = 10_000;

/// Sorts the rows above the last one that was told, given what became of those told before.
///
/// `T` is whatever identifies a message by what it says.
pub(super) fn sort<T: PartialEq>(told: &[(T, Fate)], memory: Memory, rows: &[T]) -> Sorted {
    let gone: Vec<&T> = told.iter().filter(|(_, fate)| *fate == Fate::Gone).map(|(told, _)| told).collect();
    let taken_back = told.iter().filter(|(_, fate)| *fate == Fate::TakenBack).count();
    if gone.is_empty() {
        return Sorted { new: (0..rows.len()).collect(), removed: taken_back };
    }
    let skipped = rows.len().saturating_sub(COMPARED);
    let compared: Vec<&T> = rows[skipped..].iter().collect();
    let new = unmatched(&gone, &compared);
    let matches = compared.len() - new.len();
    // What stands before something that was told belongs to the rewrite: older messages that are
    // forgotten here, or a summary of them.
    let first = (0..compared.len()).find(|at| !new.contains(at));
    let new = match (first, memory) {
        (Some(first), _) => new.into_iter().filter(|at| *at > first).map(|at| at + skipped).collect(),
        (None, Memory::Whole) => new.into_iter().map(|at| at + skipped).collect(),
        (None, Memory::Tail) => Vec::new(),
    };
    Sorted { new, removed: gone.len() - matches + taken_back }
}

/// Indices of `rows` outside a longest common subsequence with `known`, in order.
fn unmatched<T: PartialEq>(known: &[T], rows: &[T]) -> Vec<usize> {
    let width = rows.len() + 1;
    // longest[i * width + j]: the longest common subsequence of known[i..] and rows[j..].
    let mut longest = vec![0_u32; (known.len() + 1) * width];
    for i in (0..known.len()).rev() {
        for j in (0..rows.len()).rev() {
            longest[i * width + j] = if known[i] == rows[j] {
                longest[(i + 1) * width + j + 1] + 1
            } else {
                longest[(i + 1) * width + j].max(longest[i * width + j + 1])
            };
        }
    }
    let (mut i, mut new) = (0, Vec::new());
    for j in 0..rows.len() {
        // Skip known rows as long as that costs no match.
        while i < known.len() && known[i] != rows[j] && longest[(i + 1) * width + j] == longest[i * width + j]
        {
            i += 1;
        }
        if i < known.len() && known[i] == rows[j] {
            i += 1;
        } else {
            new.push(j);
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn gone<T: Clone>(told: &[T]) -> Vec<(T, Fate)> {
        told.iter().map(|told| (told.clone(), Fate::Gone)).collect()
    }

    fn new_after(told: &[&'static str], rows: &[&'static str]) -> Vec<usize> {
        sort(&gone(told), Memory::Whole, rows).new
    }

    #[test]
    fn undo_and_retry_bring_only_what_is_new() {
        assert_eq!(new_after(&["a", "b", "a", "c"], &["a", "b"]), Vec::<usize>::new());
        assert_eq!(new_after(&["a", "b"], &["a", "b", "a", "d"]), [2, 3]);
        assert_eq!(new_after(&["a", "b", "a", "c"], &["a", "b", "a", "d"]), [3]);
    }

    #[test]
    fn a_summary_is_part_of_the_rewrite_and_what_follows_is_new() {
        assert_eq!(new_after(&["a", "b", "a", "d"], &["summary", "a", "d", "e"]), [3]);
    }

    #[test]
    fn the_same_words_after_a_rewind_are_a_new_message() {
        let told = [("a", Fate::Shown), ("b", Fate::TakenBack)];
        assert_eq!(sort(&told, Memory::Whole, &["b"]), Sorted { new: vec![0], removed: 1 });
    }

    #[test]
    fn nothing_gone_means_everything_is_new() {
        let told = [("a", Fate::Shown)];
        assert_eq!(sort(&told, Memory::Tail, &["a", "a"]), Sorted { new: vec![0, 1], removed: 0 });
    }

    #[test]
    fn forgotten_history_is_not_told_again() {
        let told = gone(&["y", "z"]);
        assert_eq!(sort(&told, Memory::Tail, &["w", "x", "y", "z", "new"]).new, [4]);
        assert_eq!(sort(&told, Memory::Tail, &["w", "x"]), Sorted { new: vec![], removed: 2 });
        assert_eq!(
            sort(&told, Memory::Whole, &["w"]).new,
            [0],
            "a cleared session goes on with a new message"
        );
    }

    proptest! {
        #[test]
        fn what_comes_after_a_rewrite_is_new_and_what_stays_is_not(
            told in prop::collection::vec((0u16..500, any::<bool>()), 1..60), added in prop::collection::vec(500u16..900, 0..20),
        ) {
            let before: Vec<u16> = told.iter().map(|(row, _)| *row).collect();
            let mut rows: Vec<u16> = told.iter().filter(|(_, stays)| *stays).map(|(row, _)| *row).collect();
            let kept = rows.len();
            rows.extend(&added);
            let sorted = sort(&gone(&before), Memory::Whole, &rows);
            prop_assert_eq!(sorted.new, (kept..rows.len()).collect::<Vec<_>>());
            prop_assert_eq!(sorted.removed, before.len() - kept);
        }
    }
}
