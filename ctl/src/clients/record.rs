//! What hermesctl wrote into which client's file, so that it can be taken out again byte for byte.
//!
//! Promise: a record is written before the command says that it is done, for its owner only; a damaged file of records
//! is an error and never overwritten. A record holds the text that was there before, which may hold secrets.

use super::apply::ApplyError;
use crate::config_edit::file::{FileError, Lock, Privacy, rewrite};
use hermes_proto::endpoint::Home;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// One registration.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The client's word on the command line.
    pub client: String,
    /// Its file.
    pub file: PathBuf,
    /// Name of the entry.
    pub name: String,
    /// Whether there was no file before.
    pub created: bool,
    /// Folders that were made for it.
    #[serde(default)]
    pub folders: Vec<PathBuf>,
    /// Names of entries that were taken out.
    #[serde(default)]
    pub replaced: Vec<String>,
    /// What was changed.
    pub cut: Cut,
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Record({} {} {})", self.client, self.file.display(), self.name)
    }
}

/// One change of a text: at `at`, `old` became `new`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// Byte position.
    pub at: usize,
    /// What was there.
    pub old: String,
    /// What is there.
    pub new: String,
}

impl Cut {
    /// The smallest cut that makes `after` of `before`.
    pub fn between(before: &str, after: &str) -> Self {
        let same = |(a, b): &(u8, u8)| a == b;
        let pairs = before.bytes().zip(after.bytes());
        let mut start = pairs.take_while(same).count();
        while !before.is_char_boundary(start) || !after.is_char_boundary(start) {
            start -= 1;
        }
        let pairs = before[start..].bytes().rev().zip(after[start..].bytes().rev());
        let mut end = pairs.take_while(same).count();
        while !before.is_char_boundary(before.len() - end) || !after.is_char_boundary(after.len() - end) {
            end -= 1;
        }
        Self {
            at: start,
            old: before[start..before.len() - end].to_owned(),
            new: after[start..after.len() - end].to_owned(),
        }
    }

    /// `text` as it was before, if the change can be found in it: at its place, or in one other place only.
    pub fn undo(&self, text: &str) -> Option<String> {
        if self.new.is_empty() {
            return None;
        }
        let here = text.get(self.at..).is_some_and(|rest| rest.starts_with(&self.new));
        let at = match here {
            true => self.at,
            false => {
                let mut found = text.match_indices(&self.new).map(|(at, _)| at);
                let only = found.next()?;
                found.next().is_none().then_some(only)?
            }
        };
        Some(format!("{}{}{}", &text[..at], self.old, &text[at + self.new.len()..]))
    }
}

#[derive(Default, Serialize, Deserialize)]
struct File {
    version: u32,
    records: Vec<Record>,
}

fn path(home: &Home) -> PathBuf {
    home.state_dir().join("registered.json")
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<Record>, ApplyError> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let file: File = serde_json::from_slice(bytes)
        .map_err(|source| ApplyError::Io { path: path.to_owned(), source: source.into() })?;
    Ok(file.records)
}

/// All records of `home`.
///
/// # Errors
/// [`ApplyError::Io`] when the file is there and cannot be read.
pub fn all(home: &Home) -> Result<Vec<Record>, ApplyError> {
    let path = path(home);
    match fs::read(&path) {
        Ok(bytes) => parse(&path, &bytes),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(ApplyError::Io { path, source }),
    }
}

/// Puts `record` in the place of the one of the same file and name.
///
/// # Errors
/// [`ApplyError`]; the records are as they were then.
pub fn put(lock: &Lock, home: &Home, record: &Record) -> Result<(), ApplyError> {
    change(lock, home, |records| {
        records.retain(|other| (&other.file, &other.name) != (&record.file, &record.name));
        records.push(record.clone());
    })
}

/// Forgets the record of this file and name.
///
/// # Errors
/// [`ApplyError`]; the records are as they were then.
pub fn forget(lock: &Lock, home: &Home, file: &Path, name: &str) -> Result<(), ApplyError> {
    change(lock, home, |records| records.retain(|other| other.file != file || other.name != name))
}

fn change(lock: &Lock, home: &Home, mut edit: impl FnMut(&mut Vec<Record>)) -> Result<(), ApplyError> {
    let path = path(home);
    rewrite(lock, &path, Privacy::Private, |before| {
        let mut records = parse(&path, before)?;
        edit(&mut records);
        let file = File { version: 1, records };
        let mut bytes = serde_json::to_vec_pretty(&file).map_err(|source| {
            ApplyError::File(FileError::Io { path: path.clone(), action: "written", source: source.into() })
        })?;
        bytes.push(b'\n');
        Ok::<_, ApplyError>(bytes)
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cut_is_undone_byte_for_byte(before in "[aä{}\n ]{0,30}", after in "[aä{}\n ]{0,30}") {
            let cut = Cut::between(&before, &after);
            if !cut.new.is_empty() {
                prop_assert_eq!(cut.undo(&after), Some(before));
            }
        }

        #[test]
        fn a_cut_is_found_again_where_the_text_before_it_changed(front in "[a-c]{0,9}", back in "[a-c]{0,9}") {
            let before = format!("[{back}");
            let cut = Cut::between(&before, &format!("[NEW{back}"));
            prop_assert_eq!(cut.undo(&format!("[{front}NEW{back}")), Some(format!("[{front}{back}")));
        }
    }

    #[test]
    fn a_change_that_stands_in_two_other_places_is_not_guessed() {
        let cut = Cut { at: 0, old: String::new(), new: "x".to_owned() };
        assert_eq!(cut.undo("a x b x"), None);
        assert_eq!(cut.undo("x b x").as_deref(), Some(" b x"));
    }

    #[test]
    fn records_are_private_and_one_a_file_and_name() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let home = Home::find(Some(dir.path()), &|_| None).unwrap();
        let lock = Lock::take(&home).unwrap();
        let record = Record {
            client: "cursor".into(),
            file: "/x".into(),
            name: "hermes".into(),
            created: false,
            folders: vec![],
            replaced: vec![],
            cut: Cut::between("a", "ab"),
        };
        put(&lock, &home, &record).unwrap();
        put(&lock, &home, &record).unwrap();
        assert_eq!(all(&home).unwrap(), std::slice::from_ref(&record));
        assert_eq!(path(&home).metadata().unwrap().permissions().mode() & 0o777, 0o600);
        forget(&lock, &home, &record.file, "hermes").unwrap();
        assert!(all(&home).unwrap().is_empty());
        fs::write(path(&home), "damaged").unwrap();
        assert!(put(&lock, &home, &record).is_err());
        assert_eq!(fs::read_to_string(path(&home)).unwrap(), "damaged");
    }
}
