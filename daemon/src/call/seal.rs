//! `requestState` (2026-07-28): what hermesd hands a client to bring back, readable by nobody else.
//!
//! Pure but for [`SealKey::load`] and [`SealKey::of_home`]. AES-256-GCM with a random nonce. Promise: what was not sealed with this key,
//! or was changed by a bit, does not open. May touch: its key file (0600).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, Write};
use std::path::Path;

/// What the sealed bytes are for; part of what is authenticated.
const CONTEXT: &[u8] = b"hermesd requestState 1";

/// Bytes of a key.
const KEY: usize = 32;

/// Longest state that is looked at, in bytes.
const MAX_STATE: usize = 4096;

/// The key of this home.
pub struct SealKey(LessSafeKey);

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey")
    }
}

/// What is sealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Which suspended call; random.
    #[serde(rename = "h")]
    pub handle: String,
    /// Who may bring it back.
    #[serde(rename = "o")]
    pub owner: String,
    /// Digest of method, name and arguments of the request, in hex.
    #[serde(rename = "r")]
    pub request: String,
    /// When it lapses, ms since 1970.
    #[serde(rename = "u")]
    pub until_ms: i64,
}

impl SealKey {
    /// A key that lives as long as the daemon.
    ///
    /// # Errors
    /// No randomness.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; KEY];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Self::of(&bytes))
    }

    fn of(bytes: &[u8; KEY]) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, bytes).expect("the key has the length of the algorithm");
        Self(LessSafeKey::new(key))
    }

    /// The key in `file`; made, readable by its owner alone, where there is none or it is damaged.
    ///
    /// # Errors
    /// As the file system. Blocks.
    pub fn load(file: &Path) -> io::Result<Self> {
        match std::fs::read(file) {
            Ok(bytes) => {
                if let Ok(bytes) = <[u8; KEY]>::try_from(bytes.as_slice()) {
                    return Ok(Self::of(&bytes));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut bytes = [0; KEY];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        // Created 0600, and whole or not there.
        let folder = file.parent().unwrap_or(Path::new("."));
        let mut new = tempfile::NamedTempFile::new_in(folder)?;
        new.write_all(&bytes)?;
        new.persist(file).map_err(|error| error.error)?;
        Ok(Self::of(&bytes))
    }

    /// As [`load`](Self::load), away from the runtime's thread; a key for this daemon's life where that fails.
    ///
    /// # Errors
    /// No randomness.
    pub async fn of_home(file: &Path) -> io::Result<Self> {
        let path = file.to_owned();
        match tokio::task::spawn_blocking(move || Self::load(&path)).await {
            Ok(Ok(key)) => Ok(key),
            Ok(Err(error)) => {
                tracing::warn!(%error, file = %file.display(), "the key for requestState is not kept");
                Self::random()
            }
            Err(_) => Self::random(),
        }
    }

    /// `state` as one word.
    ///
    /// # Errors
    /// No randomness for the nonce.
    pub fn seal(&self, state: &State) -> io::Result<String> {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).map_err(io::Error::other)?;
        let mut text = serde_json::to_vec(state).expect("text and a number serialise");
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(CONTEXT), &mut text)
            .expect("a state is far shorter than the algorithm's limit");
        let mut whole = nonce.to_vec();
        whole.append(&mut text);
        Ok(URL_SAFE_NO_PAD.encode(whole))
    }

    /// What a word made by [`seal`](Self::seal) says; `None`: it was not made with this key, or changed.
    pub fn open(&self, word: &str) -> Option<State> {
        if word.len() > MAX_STATE {
            return None;
        }
        let mut whole = URL_SAFE_NO_PAD.decode(word).ok()?;
        let text = whole.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(text.0).ok()?;
        let text = self.0.open_in_place(nonce, Aad::from(CONTEXT), text.1).ok()?;
        serde_json::from_slice(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;

    fn state() -> State {
        State { handle: "h".into(), owner: "session:1".into(), request: "ab".into(), until_ms: 7 }
    }

    #[test]
    fn the_key_is_private_and_the_same_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.key");
        let sealed = SealKey::load(&file).unwrap().seal(&state()).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(SealKey::load(&file).unwrap().open(&sealed), Some(state()));
        assert_eq!(SealKey::random().unwrap().open(&sealed), None);
        std::fs::write(&file, "short").unwrap();
        assert_eq!(SealKey::load(&file).unwrap().open(&sealed), None);
    }

    proptest! {
        #[test]
        fn a_changed_bit_never_opens(at in any::<proptest::sample::Index>(), bit in 0u32..8) {
            let key = SealKey::random().unwrap();
            let sealed = key.seal(&state()).unwrap();
            prop_assert!(!sealed.contains("session"));
            let mut bytes = URL_SAFE_NO_PAD.decode(&sealed).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(key.open(&URL_SAFE_NO_PAD.encode(bytes)), None);
        }

        #[test]
        fn no_word_panics(word in "[A-Za-z0-9_=-]{0,200}") {
            prop_assert_eq!(SealKey::random().unwrap().open(&word), None);
        }
    }
}
