//! Our own folders: real, ours, closed to others. Nothing is made or mended here.

use super::Found;
use crate::config::Severity;
use crate::paths::Paths;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Looks at the folders; one that does not exist yet is made by the daemon.
pub(super) fn look(paths: &Paths) -> Vec<Found> {
    let folders = [
        ("state-folder", &paths.state_dir),
        ("log-folder", &paths.logs_dir),
        ("runtime-folder", &paths.runtime_dir),
    ];
    let mut found: Vec<Found> =
        folders.into_iter().filter_map(|(kind, folder)| trouble(kind, folder)).collect();
    let open = paths.exposed().into_iter().map(|finding| Found { kind: "permissions", finding });
    found.extend(open);
    found
}

fn trouble(kind: &'static str, folder: &Path) -> Option<Found> {
    let named = folder.display();
    let meta = match fs::symlink_metadata(folder) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            let hint = format!("make {named} readable for you");
            return Some(Found::new(kind, Severity::Error, error.to_string(), hint).at(folder));
        }
    };
    let uid = rustix::process::geteuid().as_raw();
    let (what, hint) = if meta.is_symlink() {
        (
            "is a symlink, and whoever made it decides where it leads".to_owned(),
            format!("remove it: rm {named}"),
        )
    } else if !meta.is_dir() {
        ("is a file where a folder belongs".to_owned(), format!("move it away: mv {named} {named}.old"))
    } else if meta.uid() != uid {
        (
            format!("belongs to uid {}, not to you", meta.uid()),
            "remove it or give it back to you with chown".to_owned(),
        )
    } else if meta.mode() & 0o077 != 0 {
        (
            format!("can be entered by others (mode {:04o})", meta.mode() & 0o7777),
            format!("chmod 700 {named}"),
        )
    } else if rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_err() {
        (
            "cannot be written".to_owned(),
            format!("chmod 700 {named}, or look whether its disk is mounted read-only"),
        )
    } else {
        return None;
    };
    Some(Found::new(kind, Severity::Error, what, hint).at(folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_that_is_not_ours_alone_is_found_with_what_mends_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("logs");
        assert_eq!(trouble("log-folder", &folder), None, "made by the daemon");
        fs::write(&folder, "").unwrap();
        assert!(trouble("log-folder", &folder).unwrap().finding.hint.starts_with("move it away"));
        fs::remove_file(&folder).unwrap();
        std::os::unix::fs::symlink(dir.path(), &folder).unwrap();
        assert!(trouble("log-folder", &folder).unwrap().finding.message.contains("symlink"));
        fs::remove_file(&folder).unwrap();
        fs::create_dir(&folder).unwrap();
        for (mode, bad) in [(0o755, true), (0o700, false)] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(trouble("log-folder", &folder).is_some(), bad, "{mode:o}");
        }
    }
}
