//! Messages that a session takes over from the one it continues.
//!
//! Pure. Hermes Agent compresses a conversation by ending its session and storing the summary and the last
//! messages again in a new one, perhaps one by one. Promise: those are recognised for [`FOR_MS`] from the
//! first one on and in their order only, so that the same words said later are a new message.

use std::collections::HashMap;

/// How long copies come, in milliseconds.
pub(super) const FOR_MS: i64 = 10_000;

/// What a message of the new session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kin {
    /// New.
    New,
    /// The first that was taken over.
    FirstCopy,
    /// A further one.
    Copy,
}

/// The messages that may come again in each new session.
#[derive(Debug, Clone, Default)]
pub(super) struct Inheritance {
    sessions: HashMap<String, Heir>,
}

#[derive(Debug, Clone)]
struct Heir {
    digests: Vec<i64>,
    /// Those before were seen.
    at: usize,
    until_ms: i64,
}

impl Inheritance {
    /// `session` begins, and continues one that said `digests`.
    pub(super) fn begin(&mut self, session: &str, digests: Vec<i64>, now_ms: i64) {
        if !digests.is_empty() {
            let heir = Heir { digests, at: 0, until_ms: now_ms.saturating_add(FOR_MS) };
            self.sessions.insert(session.to_owned(), heir);
        }
    }

    /// What the next message of `session` is.
    pub(super) fn sort(&mut self, session: &str, digest: i64, now_ms: i64) -> Kin {
        let Some(heir) = self.sessions.get_mut(session) else { return Kin::New };
        let copied = heir.at > 0;
        if now_ms <= heir.until_ms
            && let Some(further) = heir.digests[heir.at..].iter().position(|known| *known == digest)
        {
            heir.at += further + 1;
            return if copied { Kin::Copy } else { Kin::FirstCopy };
        }
        // The copies come in one piece; only a summary stands before them.
        if copied || now_ms > heir.until_ms {
            self.sessions.remove(session);
        }
        Kin::New
    }

    /// Forgets sessions whose time is over; also those that a clock set back would keep.
    pub(super) fn expire(&mut self, now_ms: i64) {
        let time = now_ms..=now_ms.saturating_add(FOR_MS);
        self.sessions.retain(|_, heir| time.contains(&heir.until_ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Kin::{Copy, FirstCopy, New};

    fn kinds(said: Vec<i64>, then: &[i64]) -> Vec<Kin> {
        let mut all = Inheritance::default();
        all.begin("s", said, 0);
        then.iter().map(|digest| all.sort("s", *digest, 5)).collect()
    }

    #[test]
    fn what_follows_a_summary_is_taken_over_and_what_follows_that_is_new() {
        assert_eq!(kinds(vec![1, 2, 3, 4], &[99, 3, 4, 5]), [New, FirstCopy, Copy, New]);
    }

    #[test]
    fn the_same_words_after_the_copies_are_new() {
        assert_eq!(kinds(vec![1, 2, 3], &[2, 3, 1]), [FirstCopy, Copy, New]);
        assert_eq!(kinds(vec![1, 2, 1], &[2, 7, 1]), [FirstCopy, New, New]);
    }

    #[test]
    fn copies_come_soon_or_not_at_all() {
        let mut all = Inheritance::default();
        all.begin("s", vec![1], 0);
        all.begin("t", vec![1], 0);
        assert_eq!(all.sort("s", 1, FOR_MS + 1), New);
        all.expire(FOR_MS + 1);
        assert!(all.sessions.is_empty());
        assert_eq!(all.sort("other", 1, 0), New);
    }
}
