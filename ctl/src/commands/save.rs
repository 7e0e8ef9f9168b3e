//! Saving what a result holds besides text: images, audio, binary resources.
//!
//! Promise: files are new, below the folder that was named, and named by us: a server's words never make a
//! path.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Most files of one name that are stepped over.
const TRIES: u32 = 10_000;

/// Saves every image, sound and binary resource of `result` into `folder`, which is made if need be. Answers
/// the file of each content block that was saved, by its place.
///
/// # Errors
/// When a file cannot be written, or what came is no base64.
pub(super) fn all(result: &Value, tool: &str, folder: &Path) -> io::Result<BTreeMap<usize, PathBuf>> {
    let blocks = result["content"].as_array().map_or(&[][..], Vec::as_slice);
    let mut saved = BTreeMap::new();
    for (at, block) in blocks.iter().enumerate() {
        let (data, mime) = match block["type"].as_str() {
            Some("image" | "audio") => (&block["data"], &block["mimeType"]),
            Some("resource") => (&block["resource"]["blob"], &block["resource"]["mimeType"]),
            _ => continue,
        };
        let Some(data) = data.as_str() else { continue };
        let bytes = STANDARD.decode(data).map_err(|error| io::Error::other(format!("no base64: {error}")))?;
        let at_folder =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.display()));
        fs::create_dir_all(folder).map_err(at_folder)?;
        let ending = ending(mime.as_str().unwrap_or_default());
        let (mut file, path) = fresh(folder, &stem(tool), ending)?;
        file.write_all(&bytes).map_err(at_folder)?;
        saved.insert(at, path);
    }
    Ok(saved)
}

/// A file that did not exist.
fn fresh(folder: &Path, stem: &str, ending: &str) -> io::Result<(File, PathBuf)> {
    for number in 1..TRIES {
        let path = folder.join(format!("{stem}-{number}.{ending}"));
        match File::create_new(&path) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
        }
    }
    Err(io::Error::other(format!("{} is full of {stem} files", folder.display())))
}

fn stem(tool: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let stem: String = tool.chars().take(60).map(safe).collect();
    if stem.is_empty() { "result".to_owned() } else { stem }
}

fn ending(mime: &str) -> &'static str {
    match mime.split(';').next().unwrap_or_default().trim() {
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/svg+xml" => "svg",
        "audio/wav" | "audio/x-wav" => "wav",
        "audio/mpeg" => "mp3",
        "audio/ogg" => "ogg",
        "application/pdf" => "pdf",
        "application/zip" => "zip",
        _ => "bin",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn files_are_new_below_the_folder_and_named_by_us() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("out");
        let result = json!({"content": [
            {"type": "text", "text": "x"},
            {"type": "image", "data": "AAEC", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "file:///etc/passwd", "blob": "AA==", "mimeType": "x/y"}},
        ]});
        let first = all(&result, "../../evil", &folder).unwrap();
        assert_eq!(first.keys().copied().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(first[&1], folder.join("______evil-1.png"));
        assert_eq!(fs::read(&first[&1]).unwrap(), [0, 1, 2]);
        let second = all(&result, "../../evil", &folder).unwrap();
        assert_eq!(second[&1], folder.join("______evil-2.png"), "nothing is overwritten");
        let broken = json!({"content": [{"type": "image", "data": "%%"}]});
        assert!(all(&broken, "t", &folder).is_err());
    }
}
