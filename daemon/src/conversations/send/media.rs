//! Files that a message names by `MEDIA:path`.
//!
//! Promise: only regular files below the media folders are read, after all links are followed, and never
//! from a folder that holds credentials; what is left out is said. Blocking: call [`load`] on the
//! blocking pool. May not touch: anything else on the disk.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Largest file in bytes, the most that any of the platforms takes from a bot.
pub(super) const LARGEST: u64 = 50 * 1024 * 1024;
/// Most files of one message.
pub(super) const MOST: usize = 10;

/// Folders of Hermes Agent below its home that files may come from, with their older names.
const CACHES: &[&str] =
    &["cache", "image_cache", "audio_cache", "video_cache", "document_cache", "browser_screenshots"];
/// Parts of paths below which nothing is ever sent, whatever the allowed folders are.
const SECRET_PLACES: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".password-store",
    "gcloud",
    "mcp-tokens",
    "hermesd",
    "keyrings",
    "Keychains",
];
/// Names of files that are never sent.
const SECRET_FILES: &[&str] = &[
    ".env",
    ".netrc",
    ".pgpass",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    "auth.json",
    "config.yaml",
    "gateway.json",
    "state.db",
    "state.db-wal",
    "credentials",
    "id_rsa",
    "id_ed25519",
    "id_ecdsa",
];

/// A message taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Named {
    /// The text without the tags.
    pub(super) text: String,
    /// The paths as written, in their order.
    pub(super) paths: Vec<String>,
    /// Images go as plain files.
    pub(super) as_document: bool,
    /// Audio goes as a voice message.
    pub(super) as_voice: bool,
}

/// What a file is to the recipient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Image,
    Video,
    Voice,
    Audio,
    Document,
}

/// A file to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attachment {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) mime: String,
    pub(super) bytes: Vec<u8>,
}

/// Which files may be sent.
#[derive(Debug, Clone)]
pub(super) struct Allowed {
    /// HERMES_HOME.
    pub(super) home: PathBuf,
    /// `HERMES_MEDIA_ALLOW_DIRS`.
    pub(super) folders: Vec<PathBuf>,
    /// The user's home, for `~/`.
    pub(super) user_home: Option<PathBuf>,
}

const DOCUMENT_TAG: &str = "[[as_document]]";
const VOICE_TAG: &str = "[[audio_as_voice]]";

/// Takes the tags out of `message`.
pub(super) fn extract(message: &str) -> Named {
    let mut named = Named {
        as_document: message.contains(DOCUMENT_TAG),
        as_voice: message.contains(VOICE_TAG),
        ..Named::default()
    };
    let message = message.replace(DOCUMENT_TAG, "").replace(VOICE_TAG, "");
    let mut rest = message.as_str();
    while let Some(at) = rest.find("MEDIA:") {
        let after = rest[at + "MEDIA:".len()..].trim_start_matches(' ');
        let Some((path, behind)) = path_at(after) else {
            // A word that only looks like a tag.
            let end = at + "MEDIA:".len();
            named.text.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        };
        named.text.push_str(rest[..at].trim_end_matches(['`', '"', '\'']));
        named.paths.push(path);
        rest = behind;
    }
    named.text.push_str(rest);
    if !named.paths.is_empty() || named.as_document || named.as_voice {
        named.text = tidy(&named.text);
    }
    named
}

/// An absolute path at the start of `text`, perhaps in quotes, and what follows it.
fn path_at(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next().filter(|first| matches!(first, '"' | '\'' | '`'));
    let (path, rest) = match quote {
        Some(quote) => text[1..].split_once(quote)?,
        None => {
            let end = text.find(char::is_whitespace).unwrap_or(text.len());
            let path = text[..end].trim_end_matches(['`', '"', '\'', ',', '.', ';', ':', ')', ']', '}']);
            (path, text[path.len()..].trim_start_matches(['`', '"', '\'']))
        }
    };
    (path.starts_with('/') || path.starts_with("~/")).then(|| (path.to_owned(), rest))
}

fn tidy(text: &str) -> String {
    let mut text = text.trim().to_owned();
    while text.contains("\n\n\n") {
        text = text.replace("\n\n\n", "\n\n");
    }
    text
}

/// Reads the files that may be sent; says of each other one why it is left out.
pub(super) fn load(named: &Named, allowed: &Allowed) -> (Vec<Attachment>, Vec<String>) {
    let roots = allowed.roots();
    let (mut files, mut warnings) = (Vec::new(), Vec::new());
    for (number, path) in named.paths.iter().enumerate() {
        let loaded =
            if number < MOST { read(path, &roots, allowed) } else { Err(format!("more than {MOST} files")) };
        match loaded {
            Ok((name, bytes)) => files.push(attachment(name, bytes, named)),
            Err(why) => warnings.push(format!("{path} was not attached: {why}")),
        }
    }
    (files, warnings)
}

impl Allowed {
    /// The folders after all links.
    fn roots(&self) -> Vec<PathBuf> {
        let caches = CACHES.iter().map(|name| self.home.join(name));
        caches.chain(self.folders.iter().cloned()).filter_map(|folder| folder.canonicalize().ok()).collect()
    }
}

fn read(path: &str, roots: &[PathBuf], allowed: &Allowed) -> Result<(String, Vec<u8>), String> {
    // The same words for a missing and for a forbidden file: an answer must not tell what is on the disk.
    let outside = || "it is not in a media folder of Hermes Agent (HERMES_MEDIA_ALLOW_DIRS)".to_owned();
    let path = match (path.strip_prefix("~/"), &allowed.user_home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    };
    let Ok(real) = path.canonicalize() else {
        let below = roots.iter().any(|root| path.starts_with(root) && !has_parent_steps(&path));
        return Err(if below { "there is no such file".to_owned() } else { outside() });
    };
    let root = roots.iter().find(|root| real.starts_with(root)).ok_or_else(outside)?;
    if is_secret(&real, root, allowed) {
        return Err("it is in a place for credentials".to_owned());
    }
    let before = std::fs::symlink_metadata(&real).map_err(|error| error.to_string())?;
    if !before.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let file = File::open(&real).map_err(|error| error.to_string())?;
    let opened = file.metadata().map_err(|error| error.to_string())?;
    // Between the look and the opening the name may have come to mean another file.
    if (opened.dev(), opened.ino()) != (before.dev(), before.ino()) {
        return Err("it was replaced while it was opened".to_owned());
    }
    if opened.len() > LARGEST {
        return Err(format!("it is larger than {} MiB", LARGEST / 1024 / 1024));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > LARGEST {
        return Err(format!("it is larger than {} MiB", LARGEST / 1024 / 1024));
    }
    let name = real.file_name().map_or_else(|| "file".to_owned(), |name| name.to_string_lossy().into_owned());
    Ok((name, bytes))
}

fn has_parent_steps(path: &Path) -> bool {
    path.components().any(|part| part == std::path::Component::ParentDir)
}

fn is_secret(real: &Path, root: &Path, allowed: &Allowed) -> bool {
    let below = real.strip_prefix(root).unwrap_or(real);
    let in_place = real.components().any(|part| SECRET_PLACES.iter().any(|place| part.as_os_str() == *place));
    let name = real.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let named = SECRET_FILES.contains(&name.as_str())
        || name.starts_with(".env")
        || [".pem", ".key", ".p12", ".pfx", ".kdbx"].iter().any(|end| name.ends_with(end));
    // A folder that contains the home of Hermes Agent opens its caches and nothing else of it.
    let in_home = allowed.home.canonicalize().is_ok_and(|home| {
        real.strip_prefix(&home)
            .is_ok_and(|part| !CACHES.iter().any(|cache| part.starts_with(cache)) && !root.starts_with(&home))
    });
    let system = ["/etc", "/proc", "/sys", "/dev", "/boot"].iter().any(|place| real.starts_with(place));
    in_place || named || in_home || system || below.as_os_str().is_empty()
}

fn attachment(name: String, bytes: Vec<u8>, named: &Named) -> Attachment {
    let ending = Path::new(&name).extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    let (kind, mime) = match ending.as_str() {
        "jpg" | "jpeg" => (Kind::Image, "image/jpeg"),
        "png" => (Kind::Image, "image/png"),
        "webp" => (Kind::Image, "image/webp"),
        "gif" => (Kind::Image, "image/gif"),
        "mp4" => (Kind::Video, "video/mp4"),
        "mov" => (Kind::Video, "video/quicktime"),
        "avi" => (Kind::Video, "video/x-msvideo"),
        "mkv" => (Kind::Video, "video/x-matroska"),
        "3gp" => (Kind::Video, "video/3gpp"),
        "ogg" | "opus" if named.as_voice => (Kind::Voice, "audio/ogg"),
        "ogg" | "opus" => (Kind::Audio, "audio/ogg"),
        "mp3" => (Kind::Audio, "audio/mpeg"),
        "m4a" => (Kind::Audio, "audio/mp4"),
        "wav" => (Kind::Audio, "audio/wav"),
        "flac" => (Kind::Audio, "audio/flac"),
        "pdf" => (Kind::Document, "application/pdf"),
        _ => (Kind::Document, "application/octet-stream"),
    };
    let kind = if named.as_document { Kind::Document } else { kind };
    Attachment { name, kind, mime: mime.to_owned(), bytes }
}

/// What the session is told where a message was nothing but files.
pub(super) fn described(files: &[Attachment]) -> String {
    match files {
        [] => String::new(),
        [file] => match file.kind {
            Kind::Voice => "[Sent voice message]".to_owned(),
            Kind::Image => "[Sent image attachment]".to_owned(),
            Kind::Video => "[Sent video attachment]".to_owned(),
            Kind::Audio => "[Sent audio attachment]".to_owned(),
            Kind::Document => "[Sent document attachment]".to_owned(),
        },
        many => format!("[Sent {} media attachments]", many.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn world() -> (tempfile::TempDir, Allowed) {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("hermes");
        for place in ["hermes/cache/images", "hermes/mcp-tokens", "open/.ssh", "closed"] {
            std::fs::create_dir_all(folder.path().join(place)).unwrap();
        }
        for file in [
            "hermes/cache/images/a.png",
            "hermes/.env",
            "hermes/notes.txt",
            "open/report.pdf",
            "open/.ssh/id",
            "open/server.key",
            "closed/x.txt",
        ] {
            std::fs::write(folder.path().join(file), file).unwrap();
        }
        let allowed = Allowed {
            home,
            folders: vec![folder.path().join("open")],
            user_home: Some(folder.path().into()),
        };
        (folder, allowed)
    }

    fn load_one(allowed: &Allowed, path: &Path) -> Result<Attachment, String> {
        let named = Named { paths: vec![path.display().to_string()], ..Named::default() };
        let (mut files, mut warnings) = load(&named, allowed);
        files.pop().ok_or_else(|| warnings.remove(0))
    }

    #[test]
    fn tags_are_taken_out_of_the_text_in_every_spelling() {
        let table = [
            ("pic MEDIA:/a/b.png", "pic", vec!["/a/b.png"]),
            ("a MEDIA: /x.png, then\nMEDIA:\"/y z.pdf\" b", "a , then\n b", vec!["/x.png", "/y z.pdf"]),
            ("see `MEDIA:/a.png`.", "see .", vec!["/a.png"]),
            ("MEDIA:~/c.jpg", "", vec!["~/c.jpg"]),
            ("MEDIA: files are large", "MEDIA: files are large", vec![]),
            ("the word MEDIA:", "the word MEDIA:", vec![]),
        ];
        for (message, text, paths) in table {
            let named = extract(message);
            assert_eq!(
                (named.text.as_str(), named.paths),
                (text, paths.iter().map(|p| (*p).to_owned()).collect()),
                "{message}"
            );
        }
        let document = extract("[[as_document]] MEDIA:/a.png");
        assert!(document.as_document && document.text.is_empty());
        assert_eq!(extract("  kept as it is\n\n\n").text, "  kept as it is\n\n\n");
    }

    #[test]
    fn files_of_the_media_folders_are_read_and_all_others_are_not() {
        let (folder, allowed) = world();
        let at = |name: &str| folder.path().join(name);
        assert_eq!(load_one(&allowed, &at("hermes/cache/images/a.png")).unwrap().kind, Kind::Image);
        assert_eq!(load_one(&allowed, &at("open/report.pdf")).unwrap().mime, "application/pdf");
        let outside = load_one(&allowed, &at("closed/x.txt")).unwrap_err();
        let missing = load_one(&allowed, &at("closed/none.txt")).unwrap_err();
        assert_eq!(outside.replace("x.txt", ""), missing.replace("none.txt", ""), "both look the same");
        for secret in ["hermes/.env", "hermes/notes.txt", "open/.ssh/id", "open/server.key"] {
            assert!(load_one(&allowed, &at(secret)).is_err(), "{secret}");
        }
        assert!(load_one(&allowed, &at("open")).is_err());
        assert!(load_one(&allowed, Path::new("/etc/hostname")).is_err());
    }

    #[test]
    fn links_and_parent_steps_do_not_lead_out() {
        let (folder, allowed) = world();
        let at = |name: &str| folder.path().join(name);
        symlink(at("closed/x.txt"), at("open/link.txt")).unwrap();
        symlink(at("hermes"), at("open/home")).unwrap();
        assert!(load_one(&allowed, &at("open/link.txt")).is_err());
        assert!(load_one(&allowed, &at("open/../closed/x.txt")).is_err());
        assert!(load_one(&allowed, &at("open/home/.env")).is_err());
        assert!(
            load_one(&allowed, &at("open/home/cache/images/a.png")).is_ok(),
            "a cache is a cache by any road"
        );
    }

    #[test]
    fn an_allowed_folder_above_the_home_opens_only_its_caches() {
        let (folder, mut allowed) = world();
        allowed.folders = vec![folder.path().to_owned()];
        let at = |name: &str| folder.path().join(name);
        assert!(load_one(&allowed, &at("closed/x.txt")).is_ok());
        assert!(load_one(&allowed, &at("hermes/notes.txt")).is_err());
        assert!(load_one(&allowed, &at("hermes/cache/images/a.png")).is_ok());
    }
}
