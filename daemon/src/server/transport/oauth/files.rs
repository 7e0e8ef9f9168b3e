//! The files of a login in `$HERMES_HOME/mcp-tokens/`, and the lock beside them.
//!
//! Owner: the [`Account`](super::account::Account) of the server; Hermes Agent writes three of them
//! too, without a lock. Promise: folder 0700, files 0600, replaced as a whole or not at all, on disk
//! before a write returns. May block: call it on the blocking pool.

use super::record::{Binding, Client, Tokens, UnixSecs};
use crate::names::ServerName;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use std::fs::{self, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Largest file that is read, in bytes.
const LARGEST: u64 = 1 << 20;

/// One of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Tokens; shared with Hermes Agent.
    Tokens,
    /// The registration; shared with Hermes Agent.
    Client,
    /// What the authorization server published; shared with Hermes Agent.
    Metadata,
    /// To whom the login belongs.
    Binding,
    /// A renewal under way; see [`journal`](super::journal).
    Journal,
    /// Locked while tokens are renewed or replaced.
    Lock,
}

impl Part {
    fn suffix(self) -> &'static str {
        match self {
            Self::Tokens => ".json",
            Self::Client => ".client.json",
            Self::Metadata => ".meta.json",
            Self::Binding => ".hermesd.json",
            Self::Journal => ".hermesd-renewal.json",
            Self::Lock => ".hermesd.lock",
        }
    }
}

/// A file that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}", path.display())]
pub struct FileError {
    /// Which.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// What tells one state of the token file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    inode: u64,
    modified: (i64, i64),
    length: u64,
}

/// Everything on disk about one login.
#[derive(Debug, Clone, Default)]
pub struct Stored {
    /// The tokens.
    pub tokens: Option<Tokens>,
    /// The registration.
    pub client: Option<Client>,
    /// What the authorization server published.
    pub metadata: Option<Map<String, Value>>,
    /// To whom it belongs; `None`: it was made by Hermes Agent.
    pub binding: Option<Binding>,
}

/// The lock; dropping it gives it back.
#[derive(Debug)]
pub struct Locked {
    _file: File,
}

/// Where the files of one server are.
#[derive(Debug, Clone)]
pub struct Files {
    dir: PathBuf,
    stem: String,
}

impl Files {
    /// The files of `server` below `home`. Names that Hermes Agent would give the same file (`a.b` and
    /// `a_b`) are kept apart: whoever logs in second gets a name with a digest.
    pub fn of(home: &Path, server: &ServerName) -> Self {
        let dir = home.join("mcp-tokens");
        let plain = Self { dir: dir.clone(), stem: safe(server.as_str()) };
        match plain.binding() {
            Some(binding) if binding.server != server.as_str() => {
                let hash = Sha256::digest(server.as_str().as_bytes());
                let tail: String = hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
                Self { dir, stem: format!("{}-{tail}", plain.stem) }
            }
            Some(_) | None => plain,
        }
    }

    /// Where a part is.
    pub fn path(&self, part: Part) -> PathBuf {
        self.dir.join(format!("{}{}", self.stem, part.suffix()))
    }

    /// The state of the token file; `None`: there is none.
    pub fn stamp(&self) -> Option<Stamp> {
        let meta = fs::metadata(self.path(Part::Tokens)).ok()?;
        Some(Stamp { inode: meta.ino(), modified: (meta.mtime(), meta.mtime_nsec()), length: meta.len() })
    }

    /// Everything there is. A damaged file counts as missing, with a warning in the log.
    pub fn load(&self) -> Stored {
        let object = |part| {
            self.read(part).unwrap_or_else(|error| {
                let reason = io::Error::to_string(&error.source);
                tracing::warn!(file = %error.path.display(), reason, "file of a login cannot be used");
                None
            })
        };
        Stored {
            tokens: object(Part::Tokens).and_then(|file| Tokens::of_file(&file, self.written())),
            client: object(Part::Client).and_then(|file| Client::of_registration(&file)),
            metadata: object(Part::Metadata),
            binding: self.binding(),
        }
    }

    fn written(&self) -> UnixSecs {
        let modified = fs::metadata(self.path(Part::Tokens)).and_then(|meta| meta.modified());
        modified.ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).map_or(0, |age| age.as_secs())
    }

    fn binding(&self) -> Option<Binding> {
        let file = self.read(Part::Binding).ok().flatten()?;
        serde_json::from_value(Value::Object(file)).ok()
    }

    /// One part as a JSON object; `None`: there is none.
    ///
    /// # Errors
    /// [`FileError`]: not readable, too large, no JSON object.
    pub fn read(&self, part: Part) -> Result<Option<Map<String, Value>>, FileError> {
        let path = self.path(part);
        let wrap = |source| FileError { path: path.clone(), source };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(wrap(error)),
        };
        let meta = file.metadata().map_err(wrap)?;
        if meta.permissions().mode() & 0o077 != 0 {
            // Somebody else could read it; from now on nobody can.
            let _ = file.set_permissions(Permissions::from_mode(0o600));
        }
        let mut text = Vec::new();
        file.take(LARGEST).read_to_end(&mut text).map_err(wrap)?;
        serde_json::from_slice(&text).map(Some).map_err(|error| wrap(error.into()))
    }

    /// Replaces one part.
    ///
    /// # Errors
    /// [`FileError`]; the file is then as it was.
    pub fn write(&self, part: Part, content: &Map<String, Value>) -> Result<(), FileError> {
        let text = serde_json::to_string_pretty(content).expect("strings are the keys");
        self.write_text(part, text.as_bytes())
    }

    /// Replaces one part by `text`.
    ///
    /// # Errors
    /// [`FileError`]; the file is then as it was.
    pub(super) fn write_text(&self, part: Part, text: &[u8]) -> Result<(), FileError> {
        let path = self.path(part);
        let wrap = |source| FileError { path: path.clone(), source };
        self.make_dir().map_err(wrap)?;
        // Made with mode 0600.
        let mut file = tempfile::NamedTempFile::new_in(&self.dir).map_err(wrap)?;
        file.write_all(text).map_err(wrap)?;
        file.as_file().sync_all().map_err(wrap)?;
        file.persist(&path).map_err(|error| wrap(error.error))?;
        File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(wrap)
    }

    /// Removes everything but the lock.
    ///
    /// # Errors
    /// [`FileError`] of the first part that could not be removed; the others are gone.
    pub fn remove(&self) -> Result<(), FileError> {
        let parts = [Part::Tokens, Part::Journal, Part::Client, Part::Metadata, Part::Binding];
        let mut failed = None;
        for part in parts {
            if let Err(error) = self.remove_part(part) {
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Removes one part.
    ///
    /// # Errors
    /// [`FileError`]. A part that is not there is removed.
    pub(super) fn remove_part(&self, part: Part) -> Result<(), FileError> {
        let path = self.path(part);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(FileError { path, source }),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Takes the lock if nobody has it.
    ///
    /// # Errors
    /// [`FileError`]: the folder or the lock cannot be made.
    pub fn try_lock(&self) -> Result<Option<Locked>, FileError> {
        let path = self.path(Part::Lock);
        let wrap = |source| FileError { path: path.clone(), source };
        self.make_dir().map_err(wrap)?;
        let mut options = File::options();
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.create(true).truncate(false).write(true).open(&path).map_err(wrap)?;
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Locked { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(wrap(error.into())),
        }
    }

    fn make_dir(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        if fs::metadata(&self.dir)?.permissions().mode() & 0o077 != 0 {
            fs::set_permissions(&self.dir, Permissions::from_mode(0o700))?;
        }
        Ok(())
    }
}

/// The name of the files as Hermes Agent makes it.
fn safe(server: &str) -> String {
    let word = |c: char| if c.is_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let mapped: String = server.chars().map(word).collect();
    let stem: String = mapped.trim_matches('_').chars().take(128).collect();
    if stem.is_empty() { "default".to_owned() } else { stem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn files(home: &Path, server: &str) -> Files {
        Files::of(home, &ServerName::new(server))
    }

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn names_are_as_hermes_agent_makes_them() {
        for (server, stem) in [
            ("notes", "notes"),
            ("a.b", "a_b"),
            ("../../etc/passwd", "etc_passwd"),
            ("__x__", "x"),
            ("...", "default"),
            ("größe-1", "größe-1"),
        ] {
            assert_eq!(safe(server), stem);
        }
        assert_eq!(safe(&"x".repeat(200)).len(), 128);
    }

    #[test]
    fn two_servers_with_the_same_file_name_never_share_a_login() {
        let home = tempfile::tempdir().unwrap();
        let first = files(home.path(), "a.b");
        let binding = Binding {
            server: "a.b".into(),
            origin: "https://x".into(),
            issuer: None,
            client_id: "c".into(),
            scopes: vec![],
        };
        first.write(Part::Binding, &object(serde_json::to_value(binding).unwrap())).unwrap();
        assert_eq!(files(home.path(), "a.b").path(Part::Tokens), first.path(Part::Tokens));
        assert_ne!(files(home.path(), "a_b").path(Part::Tokens), first.path(Part::Tokens));
    }

    #[test]
    fn everything_is_private_and_a_lax_file_is_tightened_when_it_is_read() {
        let home = tempfile::tempdir().unwrap();
        let files = files(home.path(), "s");
        files.write(Part::Tokens, &object(json!({"access_token": "a"}))).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let path = files.path(Part::Tokens);
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(files.load().tokens.is_some());
        assert_eq!(mode(&path), 0o600);
        let names: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().collect();
        assert_eq!(names.len(), 1, "no temporary file is left");
    }

    #[test]
    fn a_damaged_file_is_no_login_and_no_failure() {
        let home = tempfile::tempdir().unwrap();
        let files = files(home.path(), "s");
        for text in ["", "{", "[]", "{\"access_token\": 5}"] {
            files.write_text(Part::Tokens, text.as_bytes()).unwrap();
            assert!(files.load().tokens.is_none(), "{text}");
        }
    }

    #[test]
    fn the_lock_is_held_by_one_at_a_time() {
        let home = tempfile::tempdir().unwrap();
        let files = files(home.path(), "s");
        let held = files.try_lock().unwrap();
        assert!(held.is_some() && files.try_lock().unwrap().is_none());
        drop(held);
        assert!(files.try_lock().unwrap().is_some());
    }
}
