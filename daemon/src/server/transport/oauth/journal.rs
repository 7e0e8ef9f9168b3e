//! The journal of a renewal, so that a rotated token survives a crash between answer and save.
//!
//! Owner: whoever holds the lock of the files. Promise: room for the answer is on disk before the old
//! token is shown to anybody; the answer is on disk before it is looked at; after a crash it is found.
//! May block: call it on the blocking pool.

use super::files::{FileError, Files, Part};
use super::record::{Tokens, UnixSecs, digest};
use crate::secret::Secret;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Room that is taken in advance, in bytes; larger answers need more at the time.
const ROOM: usize = 64 << 10;

/// What an earlier renewal left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Left {
    /// Nothing, or nothing that concerns the tokens at hand.
    Nothing,
    /// It was interrupted before the answer came: the old token may be used up.
    Asked,
    /// Its answer was not saved yet.
    Answered(Tokens),
}

/// Writes down that the renewal with `refresh` begins.
///
/// # Errors
/// [`FileError`]: then nothing may be asked for, because the answer could not be kept.
pub fn begin(files: &Files, refresh: &Secret, now: UnixSecs) -> Result<(), FileError> {
    files.write_text(Part::Journal, padded(&json!({"for": digest(refresh), "at": now})).as_bytes())
}

/// Writes down the canonical answer, in the room that [`begin`] took.
///
/// # Errors
/// [`FileError`]; the answer is still good in memory.
pub fn answered(
    files: &Files,
    refresh: &Secret,
    answer: &Map<String, Value>,
    now: UnixSecs,
) -> Result<(), FileError> {
    let path = files.path(Part::Journal);
    let text = padded(&json!({"for": digest(refresh), "at": now, "answer": answer}));
    let write = || {
        let file = File::options().write(true).open(&path)?;
        file.write_all_at(text.as_bytes(), 0)?;
        file.sync_data()
    };
    write().map_err(|source| FileError { path: path.clone(), source })
}

/// What is left of a renewal of `tokens`.
pub fn left(files: &Files, tokens: &Tokens) -> Left {
    let Ok(Some(journal)) = files.read(Part::Journal) else { return Left::Nothing };
    let Some(refresh) = &tokens.refresh else { return Left::Nothing };
    if journal.get("for").and_then(Value::as_str) != Some(&digest(refresh)) {
        // The tokens are newer than it.
        return Left::Nothing;
    }
    let at = journal.get("at").and_then(Value::as_u64).unwrap_or_default();
    let answer = journal.get("answer").and_then(Value::as_object);
    match answer.and_then(|answer| Tokens::of_answer(answer, Some(refresh), at)) {
        Some(tokens) => Left::Answered(tokens),
        None => Left::Asked,
    }
}

/// Forgets the renewal: its answer is saved, or there will be none.
///
/// # Errors
/// [`FileError`].
pub fn end(files: &Files) -> Result<(), FileError> {
    files.remove_part(Part::Journal)
}

fn padded(entry: &Value) -> String {
    // The blanks are overwritten by the answer, so that a full disk cannot cost it.
    let mut text = entry.to_string();
    text.extend(std::iter::repeat_n(' ', ROOM.saturating_sub(text.len())));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::ServerName;

    fn tokens(refresh: &str) -> Tokens {
        Tokens {
            access: Secret::new("at-1"),
            refresh: Some(Secret::new(refresh)),
            expires_at: None,
            lifetime: None,
            scope: None,
        }
    }

    #[test]
    fn an_answer_that_was_not_saved_is_found_after_a_crash() {
        let home = tempfile::tempdir().unwrap();
        let files = Files::of(home.path(), &ServerName::new("s"));
        let old = tokens("rt-1");
        assert_eq!(left(&files, &old), Left::Nothing);
        begin(&files, &Secret::new("rt-1"), 10).unwrap();
        let room = std::fs::metadata(files.path(Part::Journal)).unwrap().len();
        assert_eq!(left(&files, &old), Left::Asked);
        let answer = json!({"access_token": "at-2", "token_type": "bearer", "refresh_token": "rt-2", "expires_in": 60});
        answered(&files, &Secret::new("rt-1"), answer.as_object().unwrap(), 12).unwrap();
        assert_eq!(
            std::fs::metadata(files.path(Part::Journal)).unwrap().len(),
            room,
            "no new room is needed"
        );
        let Left::Answered(found) = left(&files, &old) else { panic!("lost") };
        assert_eq!((found.refresh.as_ref().unwrap().expose(), found.expires_at), ("rt-2", Some(72)));
        // Once saved, the journal says nothing about them any more, even where it could not be removed.
        assert_eq!(left(&files, &found), Left::Nothing);
        end(&files).unwrap();
        assert_eq!(left(&files, &old), Left::Nothing);
    }

    #[test]
    fn a_torn_journal_counts_as_interrupted_or_not_at_all() {
        let home = tempfile::tempdir().unwrap();
        let files = Files::of(home.path(), &ServerName::new("s"));
        files.write_text(Part::Journal, b"{\"for\": \"x").unwrap();
        assert_eq!(left(&files, &tokens("rt-1")), Left::Nothing);
    }
}
