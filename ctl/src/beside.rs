//! Finds the other programs of this workspace: beside our own executable, else on PATH.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Our own executable; after an upgrade the file that took its place.
///
/// # Errors
/// What the system says when it cannot tell.
pub fn own_exe() -> std::io::Result<PathBuf> {
    let exe = env::current_exe()?;
    // Linux marks the path of a replaced file.
    let text = exe.to_string_lossy();
    match text.strip_suffix(" (deleted)") {
        Some(path) if !exe.exists() => Ok(PathBuf::from(path)),
        _ => Ok(exe),
    }
}

/// The program `name` that belongs to us: in our own folder, else on PATH.
pub fn find(name: &str) -> Option<PathBuf> {
    let own = own_exe().ok();
    let own_folder = own.as_deref().and_then(|exe| sibling(exe, name));
    own_folder.filter(|path| is_program(path)).or_else(|| on_path(name))
}

/// Where `name` would be beside `exe`; copies under a prefix (`t-hermesctl`) keep it.
pub fn sibling(exe: &Path, name: &str) -> Option<PathBuf> {
    let folder = exe.parent()?;
    let prefix = exe
        .file_name()
        .and_then(OsStr::to_str)
        .and_then(|own| ["hermesctl", "hermes-shim"].iter().find_map(|name| own.strip_suffix(name)));
    let with_prefix = folder.join(format!("{}{name}", prefix.unwrap_or("")));
    if is_program(&with_prefix) { Some(with_prefix) } else { Some(folder.join(name)) }
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|path| path.is_absolute() && is_program(path))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
