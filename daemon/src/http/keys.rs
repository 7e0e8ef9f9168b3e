//! The bearer tokens of the listener, compared in constant time, and the file of the generated one.
//!
//! Promise: only digests are kept for comparing; a comparison looks at every token and every byte, so that its time tells
//! nothing. The file is private to the user, and one that others could read is not believed any more.

use crate::names::ProfileName;
use crate::secret::Secret;
use rustix::fs::{Mode, OFlags};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Name of the file in `$HERMES_HOME/hermesd`.
pub const TOKEN_FILE: &str = "http-token";

/// Longest token file that is read.
const MAX_FILE: u64 = 4096;

/// Who may come in.
#[derive(Debug)]
pub enum Keys {
    /// Whoever reaches the port; profile `default`.
    Open,
    /// Whoever shows one of these.
    Tokens(Vec<(ProfileName, [u8; 32])>),
}

/// Who came in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Guest {
    /// Which token; 0 where none is asked for.
    pub key: usize,
    /// Its profile.
    pub profile: ProfileName,
}

impl Guest {
    /// The one guest there is where nobody is asked for a token.
    pub fn anybody() -> Self {
        Self { key: 0, profile: ProfileName::new("default") }
    }
}

impl Keys {
    /// These tokens.
    pub fn of(tokens: impl IntoIterator<Item = (ProfileName, Secret)>) -> Self {
        let digest = |token: Secret| Sha256::digest(token.expose().as_bytes()).into();
        Self::Tokens(tokens.into_iter().map(|(profile, token)| (profile, digest(token))).collect())
    }

    /// Who shows `token`; `None`: nobody we know.
    pub fn guest(&self, token: &[u8]) -> Option<Guest> {
        let Self::Tokens(known) = self else { return Some(Guest::anybody()) };
        let shown: [u8; 32] = Sha256::digest(token).into();
        let mut found = None;
        for (key, (profile, digest)) in known.iter().enumerate() {
            let difference = shown.iter().zip(digest).fold(0, |all, (a, b)| all | (a ^ b));
            // `black_box`: the loop must not end at the first byte that differs.
            if std::hint::black_box(difference) == 0 {
                found = Some(Guest { key, profile: profile.clone() });
            }
        }
        found
    }
}

/// The generated token of this home; made when there is none. Blocking.
///
/// # Errors
/// When the file cannot be read or written.
pub fn generated(folder: &Path) -> io::Result<Secret> {
    let path = folder.join(TOKEN_FILE);
    match read(&path) {
        Ok(Some(token)) => return Ok(token),
        Ok(None) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut file = tempfile::NamedTempFile::new_in(folder)?; // 0600
    file.write_all(token.as_bytes())?;
    file.write_all(b"\n")?;
    file.as_file().sync_all()?;
    file.persist(&path).map_err(|error| error.error)?;
    Ok(Secret::new(token))
}

/// `None`: what is there is not to be believed, a new one is needed.
fn read(path: &Path) -> io::Result<Option<Secret>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(rustix::io::Errno::LOOP) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let meta = file.metadata()?;
    let own = meta.uid() == rustix::process::getuid().as_raw();
    if !meta.is_file() || !own || meta.mode() & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "others can read the token of the HTTP listener; a new one is made");
        return Ok(None);
    }
    let mut text = String::new();
    file.take(MAX_FILE).read_to_string(&mut text)?;
    let token = text.trim();
    let good = token.len() >= 16 && token.bytes().all(|byte| byte.is_ascii_graphic());
    Ok(good.then(|| Secret::new(token)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_file_is_private_and_its_token_stays() {
        let folder = tempfile::tempdir().unwrap();
        let token = generated(folder.path()).unwrap();
        assert_eq!(token.expose().len(), 64);
        let path = folder.path().join(TOKEN_FILE);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(generated(folder.path()).unwrap(), token);
        fs::write(&path, "chosen-by-a-person-0001\n").unwrap();
        assert_eq!(generated(folder.path()).unwrap().expose(), "chosen-by-a-person-0001");
    }

    #[test]
    fn a_token_that_others_could_read_or_nobody_could_guess_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(TOKEN_FILE);
        let first = generated(folder.path()).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let second = generated(folder.path()).unwrap();
        assert!(second != first && fs::metadata(&path).unwrap().mode() & 0o777 == 0o600);
        fs::write(&path, "").unwrap();
        assert!(generated(folder.path()).unwrap() != second);
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, "token-of-somebody-else-1").unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert_eq!(generated(folder.path()).unwrap().expose().len(), 64);
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "token-of-somebody-else-1");
    }
}
