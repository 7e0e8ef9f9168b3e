//! One daemon per home: the lock, both sockets, and the file that says where they are.
//!
//! Owner: `boot`, for the life of the process. Promise: whoever holds the flock on
//! `$HERMES_HOME/hermesd/lock` is the daemon of that home; sockets are unlinked and bound only
//! while it is held, so a living daemon's socket is never taken away; sockets are never open to
//! others, not even between bind and chmod. May not touch: anything outside the home's state
//! folder and the runtime folder.

use crate::handover::Given;
use crate::paths::{PathsError, ensure_private};
use crate::shutdown;
use hermes_proto::endpoint::{Endpoint, EndpointError, EndpointFile, Home};
use rustix::fs::{FlockOperation, flock};
use rustix::process::umask;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a starting daemon waits for one that is just ending: a little more than that one takes.
const LOCK_WAIT: Duration = shutdown::BUDGET.saturating_add(Duration::from_secs(2));

/// Why this process cannot be the daemon of a home.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another daemon is.
    #[error("hermesd is already running for {home} (pid {pid}, sockets in {dir})")]
    Running {
        /// The home.
        home: PathBuf,
        /// Pid of the other daemon; `unknown` when its file cannot be read.
        pid: String,
        /// Its runtime folder; `unknown` as above.
        dir: String,
    },
    /// Something that is no socket stands where a socket must be.
    #[error("{path} is {found}, not a socket; move it away or set HERMESD_RUNTIME_DIR to another folder")]
    Foreign {
        /// The path.
        path: PathBuf,
        /// What is there.
        found: &'static str,
    },
    /// A folder is not private to this user.
    #[error(transparent)]
    Folder(#[from] PathsError),
    /// `endpoint.json` cannot be written.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

fn io_at(path: &Path) -> impl FnOnce(io::Error) -> ClaimError {
    let path = path.to_owned();
    move |source| ClaimError::Io { path, source }
}

/// The lock of a home. Held until dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct Claim {
    home: Home,
    _lock: File,
}

/// Both listening sockets.
#[derive(Debug)]
pub struct Sockets {
    /// Where they are.
    pub endpoint: Endpoint,
    /// gRPC.
    pub control: UnixListener,
    /// Shims.
    pub mcp: UnixListener,
    /// The files that this process made; none of a service manager's.
    pub made: Vec<Made>,
}

/// A socket file, recognised again by what it is and not by its name alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Made {
    fn at(path: PathBuf) -> io::Result<Self> {
        let meta = fs::symlink_metadata(&path)?;
        Ok(Self { device: meta.dev(), inode: meta.ino(), path })
    }
}

impl Claim {
    /// Takes the lock of `home`, waiting a moment for a daemon that is just ending.
    ///
    /// # Errors
    /// [`ClaimError::Running`] with the pid of the daemon that has it.
    pub fn take(home: &Home) -> Result<Self, ClaimError> {
        ensure_private(&home.state_dir())?;
        let path = home.lock_file();
        let mut options = File::options();
        // O_NOFOLLOW: a symlink planted here must not make us write elsewhere.
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
        let mut lock = options.open(&path).map_err(io_at(&path))?;
        let until = std::time::Instant::now() + LOCK_WAIT;
        while let Err(error) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(io_at(&path)(error.into()));
            }
            if std::time::Instant::now() > until || !is_ending(&mut lock) {
                return Err(running(home, &mut lock));
            }
            // Before the runtime exists: nothing else runs on this thread.
            let _ = rustix::thread::nanosleep(&rustix::thread::Timespec { tv_sec: 0, tv_nsec: 20_000_000 });
        }
        lock.set_len(0).map_err(io_at(&path))?;
        lock.write_all(std::process::id().to_string().as_bytes()).map_err(io_at(&path))?;
        Ok(Self { home: home.clone(), _lock: lock })
    }

    /// Binds both sockets in the runtime folder and writes `endpoint.json`. What an ended daemon
    /// left at their paths is removed, what is no socket is refused.
    ///
    /// # Errors
    /// [`ClaimError`]; nothing stays bound then.
    pub fn bind(&self, endpoint: Endpoint) -> Result<Sockets, ClaimError> {
        ensure_private(&endpoint.dir)?;
        let (control, control_file) = bind(endpoint.control_socket())?;
        let (mcp, mcp_file) = bind(endpoint.mcp_socket())?;
        self.publish(&endpoint)?;
        Ok(Sockets { endpoint, control, mcp, made: vec![control_file, mcp_file] })
    }

    /// Uses the sockets of a service manager and writes `endpoint.json` for them.
    ///
    /// # Errors
    /// [`ClaimError::Endpoint`] when the state folder is not writable.
    pub fn adopt(&self, given: Given) -> Result<Sockets, ClaimError> {
        self.publish(&given.endpoint)?;
        Ok(Sockets { endpoint: given.endpoint, control: given.control, mcp: given.mcp, made: Vec::new() })
    }

    fn publish(&self, endpoint: &Endpoint) -> Result<(), ClaimError> {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let file = EndpointFile {
            dir: endpoint.dir.clone(),
            pid: std::process::id(),
            started,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        Ok(file.write(&self.home)?)
    }

    /// Says in the lock file that this daemon is on its way out, so that a successor waits for it.
    pub fn ending(&mut self) {
        // Best effort: a successor that misses it only gets a refusal it can repeat.
        let _ = self._lock.write_all(b" ending");
    }

    /// Removes the sockets this daemon made, and `endpoint.json`. A service manager that began to listen
    /// meanwhile has put files of its own in their place; those stay.
    pub fn retire(&self, made: &[Made]) {
        for file in made.iter().filter(|file| Made::at(file.path.clone()).is_ok_and(|now| now == **file)) {
            let _ = fs::remove_file(&file.path);
        }
        let _ = fs::remove_file(self.home.endpoint_file());
    }
}

fn is_ending(lock: &mut File) -> bool {
    lock_text(lock).ends_with("ending")
}

fn lock_text(lock: &mut File) -> String {
    let mut text = String::new();
    let _ = io::Seek::seek(lock, io::SeekFrom::Start(0));
    let _ = lock.take(64).read_to_string(&mut text);
    text
}

fn running(home: &Home, lock: &mut File) -> ClaimError {
    let file = EndpointFile::read(home);
    let from_lock = lock_text(lock);
    let pid = match (&file, from_lock.split_whitespace().next()) {
        (_, Some(pid)) => pid.to_owned(),
        (Some(file), None) => file.pid.to_string(),
        (None, None) => "unknown".to_owned(),
    };
    let dir = file.map_or("unknown".to_owned(), |file| file.dir.display().to_string());
    ClaimError::Running { home: home.path().to_owned(), pid, dir }
}

fn bind(path: PathBuf) -> Result<(UnixListener, Made), ClaimError> {
    match fs::symlink_metadata(&path) {
        Ok(meta) if meta.file_type().is_socket() => fs::remove_file(&path).map_err(io_at(&path))?,
        Ok(meta) => {
            let found = if meta.is_dir() {
                "a folder"
            } else if meta.file_type().is_symlink() {
                "a symlink"
            } else {
                "a file"
            };
            return Err(ClaimError::Foreign { path, found });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io_at(&path)(error)),
    }
    // The mask makes the socket 0600 from its first moment; start-up has only this thread.
    let before = umask(rustix::fs::Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(&path);
    umask(before);
    let listener = bound.map_err(io_at(&path))?;
    listener.set_nonblocking(true).map_err(io_at(&path))?;
    let made = Made::at(path.clone()).map_err(io_at(&path))?;
    Ok((listener, made))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(dir: &tempfile::TempDir) -> Home {
        Home::find(Some(dir.path()), &|_| None).unwrap()
    }

    fn endpoint(dir: &tempfile::TempDir) -> Endpoint {
        Endpoint { dir: dir.path().join("run") }
    }

    #[test]
    fn a_second_daemon_is_refused_with_the_pid_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let claim = Claim::take(&home(&dir)).unwrap();
        let error = Claim::take(&home(&dir)).unwrap_err();
        assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
        drop(claim);
        Claim::take(&home(&dir)).unwrap();
    }

    #[test]
    fn stale_sockets_are_replaced_and_files_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let claim = Claim::take(&home(&dir)).unwrap();
        drop(claim.bind(endpoint(&dir)).unwrap());
        let sockets = claim.bind(endpoint(&dir)).unwrap();
        let meta = fs::metadata(sockets.endpoint.mcp_socket()).unwrap();
        assert_eq!(meta.mode() & 0o777, 0o600);
        fs::remove_file(sockets.endpoint.mcp_socket()).unwrap();
        fs::write(sockets.endpoint.mcp_socket(), "precious").unwrap();
        assert!(matches!(claim.bind(endpoint(&dir)), Err(ClaimError::Foreign { found: "a file", .. })));
        assert_eq!(fs::read_to_string(sockets.endpoint.mcp_socket()).unwrap(), "precious");
    }

    #[test]
    fn only_files_that_this_daemon_made_are_removed_at_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let claim = Claim::take(&home(&dir)).unwrap();
        let sockets = claim.bind(endpoint(&dir)).unwrap();
        let (control, mcp) = (sockets.endpoint.control_socket(), sockets.endpoint.mcp_socket());
        // A service manager takes the place over.
        fs::remove_file(&mcp).unwrap();
        let _taken = UnixListener::bind(&mcp).unwrap();
        claim.retire(&sockets.made);
        assert!(!control.exists() && mcp.exists());
        assert!(!claim.home.endpoint_file().exists());
        fs::remove_file(&mcp).unwrap();
        let listen = |path: &Path| UnixListener::bind(path).unwrap();
        let given =
            Given { control: listen(&control), mcp: listen(&mcp), endpoint: sockets.endpoint.clone() };
        let adopted = claim.adopt(given).unwrap();
        assert!(claim.home.endpoint_file().exists());
        claim.retire(&adopted.made);
        assert!(control.exists() && mcp.exists(), "the manager goes on listening there");
    }

    #[test]
    fn a_symlinked_runtime_folder_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, dir.path().join("run")).unwrap();
        let claim = Claim::take(&home(&dir)).unwrap();
        assert!(matches!(claim.bind(endpoint(&dir)), Err(ClaimError::Folder(PathsError::Symlink { .. }))));
    }
}
