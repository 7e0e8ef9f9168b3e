//! Folders and files of one home, made private to the user.
//!
//! Owner: `boot` makes one [`Paths`] and hands out what each owner needs. Promise: a folder that
//! [`ensure_private`] accepts is a real folder of this user that nobody else can enter; it never
//! follows a symlink there and is not fooled by the umask. Blocking file calls.
//! May not touch: what is in the files.

use crate::config::{Finding, Severity};
use hermes_proto::endpoint::{Endpoint, EndpointError, Home, Lookup};
use rustix::fs::{Mode, OFlags};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where everything of one home is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// HERMES_HOME, canonical. Shared with Hermes Agent.
    pub home: PathBuf,
    /// `$HERMES_HOME/hermesd`: everything that is ours and lasts.
    pub state_dir: PathBuf,
    /// The folder of both sockets.
    pub runtime_dir: PathBuf,
    /// `$HERMES_HOME/logs/hermesd`: our log and one for each server.
    pub logs_dir: PathBuf,
    /// `config.yaml`.
    pub config_file: PathBuf,
    /// `.env`.
    pub env_file: PathBuf,
    /// Held by the daemon while it runs.
    pub lock_file: PathBuf,
    /// Says where the sockets are.
    pub endpoint_file: PathBuf,
    /// Children of this and earlier daemons, `children.json`.
    pub ledger: PathBuf,
    /// Our database, `hermesd.db`.
    pub db: PathBuf,
    /// Seals what clients of 2026-07-28 have to bring back.
    pub state_key: PathBuf,
    /// Answers of the malware check.
    pub osv_cache: PathBuf,
    /// OAuth tokens, shared with Hermes Agent.
    pub tokens_dir: PathBuf,
    /// Database of Hermes Agent; read, and written only by the mirror.
    pub state_db: PathBuf,
    /// Sessions of the gateway; read only.
    pub sessions_file: PathBuf,
    /// Channels of the gateway; read only.
    pub channel_directory: PathBuf,
    /// Friendly names of channels; read only.
    pub channel_aliases: PathBuf,
    /// Lower-priority base of `platforms:`; read only.
    pub gateway_file: PathBuf,
}

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PathsError {
    /// The system refused.
    #[error("{path}: {source}")]
    Io {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A symlink stands where the folder belongs; whoever made it decides where it leads.
    #[error("{path} is a symlink; remove it, or name a real folder instead")]
    Symlink {
        /// The symlink.
        path: PathBuf,
    },
    /// A file stands where the folder belongs.
    #[error("{path} is not a folder; move it away")]
    NotFolder {
        /// The file.
        path: PathBuf,
    },
    /// The folder is somebody else's.
    #[error("{path} belongs to uid {owner}, not to you (uid {uid}); remove it, or name another folder")]
    ForeignOwner {
        /// The folder.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// This user.
        uid: u32,
    },
    /// Others could write there, so what is in it may be theirs.
    #[error("others can write into {path} (mode {mode:04o}); look at what is in it, then `chmod 700` it")]
    OthersWrite {
        /// The folder.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
}

impl Paths {
    /// The paths of `home`; nothing is made or read but what finding the runtime folder needs.
    ///
    /// # Errors
    /// As [`Endpoint::choose`].
    pub fn of(home: &Home, env: Lookup<'_>) -> Result<Self, EndpointError> {
        let root = home.path();
        let state_dir = home.state_dir();
        Ok(Self {
            runtime_dir: Endpoint::choose(home, env)?.dir,
            logs_dir: root.join("logs/hermesd"),
            config_file: root.join("config.yaml"),
            env_file: root.join(".env"),
            lock_file: home.lock_file(),
            endpoint_file: home.endpoint_file(),
            ledger: state_dir.join("children.json"),
            db: state_dir.join("hermesd.db"),
            state_key: state_dir.join("state.key"),
            osv_cache: state_dir.join("osv-cache.json"),
            tokens_dir: root.join("mcp-tokens"),
            state_db: root.join("state.db"),
            sessions_file: root.join("sessions/sessions.json"),
            channel_directory: root.join("channel_directory.json"),
            channel_aliases: root.join("channel_aliases.json"),
            gateway_file: root.join("gateway.json"),
            state_dir,
            home: root.to_owned(),
        })
    }

    /// Makes our own folders (state, logs, runtime) and makes sure that they are private.
    ///
    /// # Errors
    /// The first folder that cannot be used.
    pub fn prepare(&self) -> Result<(), PathsError> {
        for folder in [&self.state_dir, &self.logs_dir, &self.runtime_dir] {
            ensure_private(folder)?;
        }
        Ok(())
    }

    /// What others can read or write although it may hold secrets: `.env`, `config.yaml`, tokens, and
    /// folders above ours that anybody can rearrange. Nothing is changed.
    pub fn exposed(&self) -> Vec<Finding> {
        let files = [&self.env_file, &self.config_file, &self.gateway_file, &self.tokens_dir];
        let mut findings: Vec<Finding> =
            files.into_iter().filter_map(|path| exposed_to_others(path)).collect();
        let mut parents: Vec<&Path> =
            [&self.state_dir, &self.runtime_dir].iter().filter_map(|p| p.parent()).collect();
        parents.dedup();
        findings.extend(parents.into_iter().filter_map(open_parent));
        findings
    }
}

/// Makes `folder` (and missing ones above it) with mode 0700, whatever the umask, or checks one that
/// exists: a real folder of this user. One that others could only read is closed to them.
///
/// # Errors
/// [`PathsError`]; the folder is not to be used then.
pub fn ensure_private(folder: &Path) -> Result<(), PathsError> {
    let io_error = |source: io::Error| PathsError::Io { path: folder.to_owned(), source };
    match fs::symlink_metadata(folder) {
        Ok(meta) if meta.file_type().is_symlink() => {
            return Err(PathsError::Symlink { path: folder.to_owned() });
        }
        Ok(meta) if !meta.is_dir() => return Err(PathsError::NotFolder { path: folder.to_owned() }),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(folder)?,
        Err(error) => return Err(io_error(error)),
    }
    // From here on by descriptor: what was checked is what is changed, even if the path is exchanged.
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let opened = rustix::fs::open(folder, flags, Mode::empty()).map_err(|errno| match errno {
        rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR => {
            PathsError::Symlink { path: folder.to_owned() }
        }
        errno => io_error(errno.into()),
    })?;
    let meta = fs::File::from(opened);
    let found = meta.metadata().map_err(io_error)?;
    let uid = rustix::process::geteuid().as_raw();
    if found.uid() != uid {
        return Err(PathsError::ForeignOwner { path: folder.to_owned(), owner: found.uid(), uid });
    }
    let mode = found.mode() & 0o7777;
    if mode & 0o002 != 0 {
        return Err(PathsError::OthersWrite { path: folder.to_owned(), mode });
    }
    if mode & 0o777 != 0o700 {
        rustix::fs::fchmod(&meta, Mode::from_raw_mode(0o700)).map_err(|errno| io_error(errno.into()))?;
    }
    Ok(())
}

/// Makes `folder` and what is missing above it, all 0700 less the umask.
fn make(folder: &Path) -> Result<(), PathsError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| PathsError::Io { path, source }
    };
    if let Some(parent) = folder.parent() {
        // Folders above may be symlinks: people move ~/.hermes to another disk.
        if !parent.as_os_str().is_empty() && !parent.exists() {
            make(parent)?;
            ensure_usable(parent)?;
        }
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        // Another process was faster; the checks that follow decide about its folder.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map_err(failed(folder)),
    }
}

/// A umask such as 0777 would leave a fresh folder that even its owner cannot enter.
fn ensure_usable(folder: &Path) -> Result<(), PathsError> {
    let io_error = |source: io::Error| PathsError::Io { path: folder.to_owned(), source };
    let meta = fs::symlink_metadata(folder).map_err(io_error)?;
    if meta.is_dir() && meta.mode() & 0o700 != 0o700 {
        fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o700)).map_err(io_error)?;
    }
    Ok(())
}

fn warning(path: &Path, message: String, hint: String) -> Finding {
    let file = Some(path.to_owned());
    Finding { severity: Severity::Warning, server: None, file, line: 0, key: String::new(), message, hint }
}

fn exposed_to_others(path: &Path) -> Option<Finding> {
    let meta = fs::metadata(path).ok()?;
    let mode = meta.mode() & 0o777;
    let wanted = if meta.is_dir() { 0o700 } else { 0o600 };
    (mode & 0o077 != 0).then(|| {
        let message = format!("{} may hold secrets and others can read it (mode {mode:04o})", path.display());
        warning(path, message, format!("chmod {wanted:o} {}", path.display()))
    })
}

fn open_parent(parent: &Path) -> Option<Finding> {
    let mode = fs::metadata(parent).ok()?.mode() & 0o7777;
    // In a sticky folder (/tmp) others cannot rename what is ours.
    (mode & 0o002 != 0 && mode & 0o1000 == 0).then(|| {
        let message = format!("anybody can rename folders in {} (mode {mode:04o})", parent.display());
        warning(parent, message, format!("chmod o-w {}", parent.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::os::unix::fs::PermissionsExt;

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn paths(home: &Path) -> Paths {
        let home_text = home.as_os_str().to_owned();
        let env =
            move |name: &str| -> Option<OsString> { (name == "HERMES_HOME").then(|| home_text.clone()) };
        let home = Home::find(None, &env).unwrap();
        let run = home.path().join("run").into_os_string();
        Paths::of(&home, &|name| (name == "HERMESD_RUNTIME_DIR").then(|| run.clone())).unwrap()
    }

    #[test]
    fn our_folders_are_made_private_with_everything_above_them() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(&dir.path().join("not/there/yet"));
        paths.prepare().unwrap();
        for folder in [&paths.state_dir, &paths.logs_dir, &paths.runtime_dir, &paths.home] {
            assert_eq!(mode(folder), 0o700, "{}", folder.display());
        }
        paths.prepare().expect("a second start finds them as they are");
        assert_eq!(paths.exposed(), []);
    }

    #[test]
    fn a_folder_that_others_could_read_is_closed_and_one_they_could_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        chmod(dir.path(), 0o755);
        ensure_private(dir.path()).unwrap();
        assert_eq!(mode(dir.path()), 0o700);
        chmod(dir.path(), 0o777);
        let error = ensure_private(dir.path()).unwrap_err();
        assert!(matches!(error, PathsError::OthersWrite { mode: 0o777, .. }), "{error}");
    }

    #[test]
    fn symlinks_and_files_in_the_place_of_a_folder_are_refused_with_what_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        fs::create_dir(&target).unwrap();
        chmod(&target, 0o755);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(matches!(ensure_private(&link), Err(PathsError::Symlink { .. })));
        assert_eq!(mode(&target), 0o755, "nothing behind it was touched");
        let dangling = dir.path().join("dangling");
        std::os::unix::fs::symlink(dir.path().join("none"), &dangling).unwrap();
        assert!(matches!(ensure_private(&dangling), Err(PathsError::Symlink { .. })));
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(matches!(ensure_private(&dir.path().join("file")), Err(PathsError::NotFolder { .. })));
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        // The root folder is root's; where the tests run as root, a folder is given away instead.
        let dir = tempfile::tempdir().unwrap();
        let foreign = if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(dir.path(), Some(12345), None).unwrap();
            dir.path()
        } else {
            Path::new("/")
        };
        let error = ensure_private(foreign).unwrap_err();
        assert!(matches!(error, PathsError::ForeignOwner { .. }), "{error}");
    }

    #[test]
    fn readable_secrets_and_open_parents_are_reported_with_the_command_that_mends_them() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(dir.path());
        fs::write(&paths.env_file, "A=b").unwrap();
        chmod(&paths.env_file, 0o644);
        fs::write(&paths.config_file, "").unwrap();
        chmod(&paths.config_file, 0o600);
        chmod(dir.path(), 0o777);
        let found = paths.exposed();
        let hints: Vec<&str> = found.iter().map(|finding| finding.hint.as_str()).collect();
        let expected = [
            format!("chmod 600 {}", paths.env_file.display()),
            format!("chmod o-w {}", paths.home.display()),
        ];
        assert_eq!(hints, expected);
    }
}
