//! Pure: opens the encrypted private key in a PEM file.
//!
//! Promise: everything else in the file stays as it is; errors hold nothing of the key.

use crate::secret::Secret;
use pkcs8::{EncryptedPrivateKeyInfoRef, LineEnding, SecretDocument};

const BEGIN: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
const END: &str = "-----END ENCRYPTED PRIVATE KEY-----";

/// `file` with its encrypted key replaced by the opened one; unchanged when it has none.
///
/// # Errors
/// What is wrong, for a person.
pub fn unlocked(file: Vec<u8>, password: Option<&Secret>) -> Result<Vec<u8>, &'static str> {
    let Ok(text) = std::str::from_utf8(&file) else { return Ok(file) };
    if text.contains("Proc-Type: 4,ENCRYPTED") {
        return Err("its encryption is of an old kind; convert it with `openssl pkcs8 -topk8`");
    }
    let Some(start) = text.find(BEGIN) else { return Ok(file) };
    let end = text[start..].find(END).map(|at| start + at + END.len()).ok_or("the file is cut off")?;
    let password = password.ok_or("it needs a password: `client_cert: [cert, key, password]`")?;
    let (_, der) = SecretDocument::from_pem(&text[start..end]).map_err(|_| "the file is damaged")?;
    let info = EncryptedPrivateKeyInfoRef::try_from(der.as_bytes()).map_err(|_| "the file is damaged")?;
    let opened = info
        .decrypt(password.expose())
        .map_err(|_| "the password is wrong, or the encryption is of a kind that is not known")?;
    let key = opened.to_pem("PRIVATE KEY", LineEnding::LF).map_err(|_| "the key is too long")?;
    Ok([&file[..start], key.as_bytes(), &file[end..]].concat())
}
