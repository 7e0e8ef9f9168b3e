//! Where the sockets of a home are, and whether a daemon holds them.
//!
//! One daemon per home: `$HERMES_HOME/hermesd/lock` (flock) decides, `endpoint.json` beside it
//! says where that daemon's sockets are. Clients start the shim with HOME LOGNAME PATH SHELL TERM
//! USER and nothing else, so nothing may depend on XDG_RUNTIME_DIR. Reads only; the daemon is the
//! only writer (through [`EndpointFile::write`]).

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Name of the admin socket in the runtime folder.
pub const CONTROL_SOCKET: &str = "control.sock";
/// Name of the shim socket in the runtime folder.
pub const MCP_SOCKET: &str = "mcp.sock";

/// Longest socket path in bytes that every supported system accepts (macOS: 104 with the NUL).
pub const MAX_SOCKET_PATH: usize = 103;

/// How environment variables are looked up; tests and the shim pass their own.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Why a home or its sockets cannot be found.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// Neither `--home`, `HERMES_HOME`, `HOME` nor the password file name a folder.
    #[error("no home: set HERMES_HOME or HOME, or pass --home")]
    NoHome,
    /// Reading or writing below the home failed.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The folder for the sockets is not private to this user.
    #[error(
        "{path} is not a folder of this user with mode 0700 ({found}); set HERMESD_RUNTIME_DIR to one that is"
    )]
    NotPrivate {
        /// The folder.
        path: PathBuf,
        /// What was found instead.
        found: String,
    },
    /// A socket path would be longer than the system allows.
    #[error(
        "{path} is {len} bytes long and a socket path may have {MAX_SOCKET_PATH}; set HERMESD_RUNTIME_DIR to a shorter folder"
    )]
    TooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        len: usize,
    },
}

fn io_at(path: &Path) -> impl FnOnce(io::Error) -> EndpointError {
    let path = path.to_owned();
    move |source| EndpointError::Io { path, source }
}

/// A canonical HERMES_HOME.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    path: PathBuf,
    is_default: bool,
}

impl Home {
    /// Finds the home: `flag` (`--home`), else `HERMES_HOME` (trimmed, not empty), else `~/.hermes`.
    ///
    /// The folder need not exist; what exists of the path is made canonical, so that two spellings
    /// of one home are one home.
    ///
    /// # Errors
    /// [`EndpointError::NoHome`] when no source names a folder.
    pub fn find(flag: Option<&Path>, env: Lookup<'_>) -> Result<Self, EndpointError> {
        let default = home_dir(env).map(|home| home.join(".hermes"));
        let named = flag.map(Path::to_owned).or_else(|| {
            let value = env("HERMES_HOME")?;
            let text = value.to_string_lossy();
            let trimmed = text.trim();
            (!trimmed.is_empty()).then(|| expand_tilde(trimmed, env))
        });
        let path = named.or_else(|| default.clone()).ok_or(EndpointError::NoHome)?;
        let path = canonical(&path);
        let is_default = default.is_some_and(|default| canonical(&default) == path);
        Ok(Self { path, is_default })
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is `~/.hermes`.
    pub fn is_default(&self) -> bool {
        self.is_default
    }

    /// The daemon's own folder below the home.
    pub fn state_dir(&self) -> PathBuf {
        self.path.join("hermesd")
    }

    /// The file whose flock makes a daemon the only one of this home.
    pub fn lock_file(&self) -> PathBuf {
        self.state_dir().join("lock")
    }

    /// The file that says where the running daemon's sockets are.
    pub fn endpoint_file(&self) -> PathBuf {
        self.state_dir().join("endpoint.json")
    }

    /// Folder name of this home inside a runtime folder that several homes share: `hermesd` for
    /// the default one, else with ten letters and digits that are its own.
    pub fn runtime_name(&self) -> String {
        if self.is_default {
            return "hermesd".to_owned();
        }
        let digest = Sha256::digest(self.path.as_os_str().as_encoded_bytes());
        let short: String = digest.iter().take(5).map(|b| format!("{b:02x}")).collect();
        format!("hermesd-{short}")
    }
}

fn home_dir(env: Lookup<'_>) -> Option<PathBuf> {
    env("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
}

fn expand_tilde(text: &str, env: Lookup<'_>) -> PathBuf {
    match (text.strip_prefix("~/"), home_dir(env)) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(text),
    }
}

/// Canonical form of the longest existing part, with the rest appended as written.
fn canonical(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut missing = Vec::new();
    let mut existing = path.as_path();
    loop {
        if let Ok(found) = existing.canonicalize() {
            return missing.iter().rev().fold(found, |at: PathBuf, name| at.join(name));
        }
        match (existing.parent(), existing.file_name()) {
            (Some(parent), Some(name)) => {
                missing.push(name.to_owned());
                existing = parent;
            }
            _ => return path,
        }
    }
}

/// The folder that holds both sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The runtime folder, 0700.
    pub dir: PathBuf,
}

impl Endpoint {
    /// Path of the gRPC socket.
    pub fn control_socket(&self) -> PathBuf {
        self.dir.join(CONTROL_SOCKET)
    }

    /// Path of the shim socket.
    pub fn mcp_socket(&self) -> PathBuf {
        self.dir.join(MCP_SOCKET)
    }

    /// Where a daemon of `home` makes its sockets: HERMESD_RUNTIME_DIR, XDG_RUNTIME_DIR,
    /// `/run/user/<uid>` if it is ours and 0700, `$HERMES_HOME/run`. The folder need not exist yet.
    ///
    /// # Errors
    /// [`EndpointError::TooLong`] when the chosen folder makes a socket path too long.
    pub fn choose(home: &Home, env: Lookup<'_>) -> Result<Self, EndpointError> {
        let set = |name: &str| env(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let dir = if let Some(dir) = set("HERMESD_RUNTIME_DIR") {
            std::path::absolute(&dir).unwrap_or(dir)
        } else if let Some(base) = set("XDG_RUNTIME_DIR").filter(|dir| private(dir).is_ok()).or_else(run_user)
        {
            base.join(home.runtime_name())
        } else {
            home.path().join("run")
        };
        let endpoint = Self { dir };
        let longest = endpoint.control_socket();
        let len = longest.as_os_str().len();
        if len > MAX_SOCKET_PATH {
            return Err(EndpointError::TooLong { path: longest, len });
        }
        Ok(endpoint)
    }
}

fn run_user() -> Option<PathBuf> {
    let dir = PathBuf::from(format!("/run/user/{}", rustix::process::getuid().as_raw()));
    private(&dir).is_ok().then_some(dir)
}

/// Checks that `dir` is a real folder (no symlink) of this user with mode 0700.
///
/// # Errors
/// [`EndpointError::NotPrivate`] with what was found, or the error of `lstat`.
pub fn private(dir: &Path) -> Result<(), EndpointError> {
    let meta = fs::symlink_metadata(dir).map_err(io_at(dir))?;
    let uid = rustix::process::getuid().as_raw();
    let found = if !meta.is_dir() {
        "not a folder".to_owned()
    } else if meta.uid() != uid {
        format!("owner uid {}", meta.uid())
    } else if meta.mode() & 0o077 != 0 {
        format!("mode {:04o}", meta.mode() & 0o7777)
    } else {
        return Ok(());
    };
    Err(EndpointError::NotPrivate { path: dir.to_owned(), found })
}

/// What `endpoint.json` holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointFile {
    /// Runtime folder with both sockets.
    pub dir: PathBuf,
    /// The daemon.
    pub pid: u32,
    /// Start of the daemon, seconds since the epoch.
    pub started: u64,
    /// Version of the daemon.
    pub version: String,
}

impl EndpointFile {
    /// Writes the file atomically, 0600.
    ///
    /// # Errors
    /// [`EndpointError::Io`] when the state folder is missing or not writable.
    pub fn write(&self, home: &Home) -> Result<(), EndpointError> {
        let target = home.endpoint_file();
        let temp = target.with_extension("json.new");
        let text = serde_json::to_vec(self).expect("paths that came from strings serialise");
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&temp).map_err(io_at(&temp))?;
        io::Write::write_all(&mut file, &text).map_err(io_at(&temp))?;
        fs::rename(&temp, &target).map_err(io_at(&target))
    }

    /// Reads the file of `home`; `None` when it is missing or damaged.
    pub fn read(home: &Home) -> Option<Self> {
        serde_json::from_slice(&fs::read(home.endpoint_file()).ok()?).ok()
    }
}

/// Whether some process holds the lock of `home` now.
pub fn is_locked(home: &Home) -> bool {
    let Ok(file) = fs::OpenOptions::new().read(true).write(true).open(home.lock_file()) else {
        return false;
    };
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => false, // released again when the file closes
        Err(error) => error == rustix::io::Errno::WOULDBLOCK,
    }
}

/// Where a client tries to connect, best guess first; never empty.
///
/// HERMESD_RUNTIME_DIR, else the folder in `endpoint.json`, then the places of [`Endpoint::choose`].
/// Unlike [`Found::locate`] this never touches the lock, so that clients which look often cannot
/// disturb a daemon that is just taking it; connecting is the proof. A stale `endpoint.json` costs
/// one refused connection.
///
/// # Errors
/// As [`Endpoint::choose`], when there is no other candidate.
pub fn candidates(home: &Home, env: Lookup<'_>) -> Result<Vec<Endpoint>, EndpointError> {
    let chosen = Endpoint::choose(home, env);
    if env("HERMESD_RUNTIME_DIR").is_some_and(|v| !v.is_empty()) {
        return chosen.map(|endpoint| vec![endpoint]);
    }
    match (EndpointFile::read(home).map(|file| Endpoint { dir: file.dir }), chosen) {
        (Some(said), Ok(chosen)) if said == chosen => Ok(vec![said]),
        (Some(said), Ok(chosen)) => Ok(vec![said, chosen]),
        (Some(said), Err(_)) => Ok(vec![said]),
        (None, chosen) => chosen.map(|endpoint| vec![endpoint]),
    }
}

/// Where a client looks for the daemon of `home`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where its sockets are, or would be.
    pub endpoint: Endpoint,
    /// The running daemon's own word, when its lock is held.
    pub running: Option<EndpointFile>,
}

impl Found {
    /// Looks in the documented order: HERMESD_RUNTIME_DIR, `endpoint.json` if its lock is held,
    /// then the places of [`Endpoint::choose`].
    ///
    /// # Errors
    /// As [`Endpoint::choose`].
    pub fn locate(home: &Home, env: Lookup<'_>) -> Result<Self, EndpointError> {
        let running = if is_locked(home) { EndpointFile::read(home) } else { None };
        let forced = env("HERMESD_RUNTIME_DIR").is_some_and(|v| !v.is_empty());
        let endpoint = match &running {
            Some(file) if !forced => Endpoint { dir: file.dir.clone() },
            _ => Endpoint::choose(home, env)?,
        };
        Ok(Self { endpoint, running })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn env_of(pairs: &[(&str, &str)]) -> impl Fn(&str) -> Option<OsString> + use<> {
        let map: std::collections::BTreeMap<String, OsString> =
            pairs.iter().map(|(k, v)| ((*k).to_owned(), OsString::from(v))).collect();
        move |name| map.get(name).cloned()
    }

    #[test]
    fn home_is_flag_then_variable_then_dot_hermes() {
        let env = env_of(&[("HOME", "/nonexistent/u"), ("HERMES_HOME", "  /nonexistent/h ")]);
        assert_eq!(
            Home::find(Some(Path::new("/nonexistent/f")), &env).unwrap().path(),
            Path::new("/nonexistent/f")
        );
        assert_eq!(Home::find(None, &env).unwrap().path(), Path::new("/nonexistent/h"));
        let bare = env_of(&[("HOME", "/nonexistent/u"), ("HERMES_HOME", "  ")]);
        let home = Home::find(None, &bare).unwrap();
        assert!(home.is_default());
        assert_eq!(home.path(), Path::new("/nonexistent/u/.hermes"));
        assert!(matches!(Home::find(None, &env_of(&[])), Err(EndpointError::NoHome)));
    }

    #[test]
    fn endpoint_file_counts_only_while_the_lock_is_held() {
        let dir = tempfile::tempdir().unwrap();
        let home_path = dir.path().to_str().unwrap();
        let env = env_of(&[("HERMES_HOME", home_path)]);
        let home = Home::find(None, &env).unwrap();
        fs::create_dir_all(home.state_dir()).unwrap();
        let file = EndpointFile { dir: "/x".into(), pid: 1, started: 2, version: "v".into() };
        file.write(&home).unwrap();
        let lock = fs::File::create(home.lock_file()).unwrap();
        assert_eq!(Found::locate(&home, &env).unwrap().running, None);
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let found = Found::locate(&home, &env).unwrap();
        assert_eq!(found.running, Some(file));
        assert_eq!(found.endpoint.dir, Path::new("/x"));
    }

    #[test]
    fn long_homes_get_a_clear_error_instead_of_a_cut_path() {
        let long = format!("/nonexistent/{}", "d".repeat(120));
        let env = env_of(&[("HERMESD_RUNTIME_DIR", &long), ("HOME", "/h")]);
        let home = Home::find(None, &env).unwrap();
        let error = Endpoint::choose(&home, &env).unwrap_err();
        assert!(error.to_string().contains("HERMESD_RUNTIME_DIR"), "{error}");
    }

    #[test]
    fn a_folder_that_others_can_enter_is_not_private() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(private(dir.path()), Err(EndpointError::NotPrivate { .. })));
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        private(dir.path()).unwrap();
    }

    #[test]
    fn clients_try_the_daemons_own_word_first_and_a_forced_folder_only() {
        let dir = tempfile::tempdir().unwrap();
        let home_path = dir.path().to_str().unwrap();
        let env = env_of(&[("HERMES_HOME", home_path), ("XDG_RUNTIME_DIR", "/nonexistent")]);
        let home = Home::find(None, &env).unwrap();
        let chosen = Endpoint::choose(&home, &env).unwrap();
        assert_eq!(candidates(&home, &env).unwrap().as_slice(), std::slice::from_ref(&chosen));
        fs::create_dir_all(home.state_dir()).unwrap();
        EndpointFile { dir: "/x".into(), pid: 1, started: 2, version: "v".into() }.write(&home).unwrap();
        assert_eq!(candidates(&home, &env).unwrap(), [Endpoint { dir: "/x".into() }, chosen]);
        let forced = env_of(&[("HERMES_HOME", home_path), ("HERMESD_RUNTIME_DIR", "/forced")]);
        assert_eq!(candidates(&home, &forced).unwrap(), [Endpoint { dir: "/forced".into() }]);
    }
}
