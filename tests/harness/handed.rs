//! A service manager as far as sockets go: it listens, hands its sockets to one daemon after the
//! other, and hears what they notify.
//!
//! Promise: a daemon gets the sockets as descriptors 3 and 4, as systemd does it, and its own pid in
//! `LISTEN_PID`.

use crate::daemon::Daemon;
use crate::wait::{SOON, wait_some};
use crate::world::World;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// Moves the standard streams to the descriptors of the protocol and becomes the daemon.
const HAND_OVER: &str = r#"exec 3<&0 4>&1 </dev/null >/dev/null; export LISTEN_PID=$$; exec "$0" "$@""#;

/// Both sockets of one world, held for as long as this lives.
#[derive(Debug)]
pub struct Handed {
    control: UnixListener,
    mcp: UnixListener,
    folder: PathBuf,
}

/// In which order a daemon gets the sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// control.sock, mcp.sock.
    Listed,
    /// The other way round.
    Reversed,
}

impl Handed {
    /// Listens where clients of `world` look.
    ///
    /// # Panics
    /// When something is there already.
    pub fn listen(world: &World) -> Self {
        let folder = world.runtime();
        fs::DirBuilder::new().mode(0o700).create(&folder).expect("the folder is new");
        let listen = |name: &str| UnixListener::bind(folder.join(name)).expect("the folder is empty");
        Self { control: listen("control.sock"), mcp: listen("mcp.sock"), folder }
    }

    /// Starts `program` as the daemon with both sockets and further variables.
    ///
    /// # Panics
    /// When there is no shell.
    pub fn launch(&self, world: &World, program: &Path, order: Order, env: &[(&str, &str)]) -> Daemon {
        let copy = |listener: &UnixListener| {
            Stdio::from(OwnedFd::from(listener.try_clone().expect("an open socket")))
        };
        let (third, fourth) = match order {
            Order::Listed => (copy(&self.control), copy(&self.mcp)),
            Order::Reversed => (copy(&self.mcp), copy(&self.control)),
        };
        let (log, file) = world.daemon_log();
        let meta = file.metadata().expect("an open file");
        let mut command = world.command(Path::new("/bin/sh"));
        command.args(["-c", HAND_OVER]).arg(program).arg("run");
        command.env("LISTEN_FDS", "2").env("LISTEN_FDNAMES", "hermesd.socket:hermesd.socket");
        // What systemd sets where stderr goes to its journal.
        command.env("JOURNAL_STREAM", format!("{}:{}", meta.dev(), meta.ino()));
        command.envs(env.iter().copied()).stdin(third).stdout(fourth).stderr(file);
        let child = command.spawn().expect("there is a shell");
        Daemon { child, ended: None, log }
    }

    /// Device and inode of both socket files; fails when one is gone.
    ///
    /// # Panics
    /// As said.
    pub fn files(&self) -> [(u64, u64); 2] {
        ["control.sock", "mcp.sock"].map(|name| {
            let meta = fs::metadata(self.folder.join(name)).expect("the manager's socket file is there");
            (meta.dev(), meta.ino())
        })
    }
}

/// The end that a service manager listens at for `READY=1` and the like.
#[derive(Debug)]
pub struct Notices {
    socket: UnixDatagram,
    path: String,
    heard: Vec<String>,
}

impl Notices {
    /// Listens in the folder of `world`.
    ///
    /// # Panics
    /// When a second one is made there.
    pub fn listen(world: &World) -> Self {
        let path = world.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("the path is free");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket");
        Self { socket, path: path.display().to_string(), heard: Vec::new() }
    }

    /// The value of `NOTIFY_SOCKET`.
    pub fn address(&self) -> &str {
        &self.path
    }

    /// Waits for the next notice that says `word`, and forgets those before it.
    ///
    /// # Panics
    /// When none comes.
    #[track_caller]
    pub fn wait(&mut self, word: &str) {
        wait_some(&format!("{word} is told"), SOON, || {
            let mut buffer = [0; 4096];
            if let Ok(n) = self.socket.recv(&mut buffer) {
                self.heard.extend(String::from_utf8_lossy(&buffer[..n]).lines().map(str::to_owned));
            }
            let at = self.heard.iter().position(|line| line == word)?;
            self.heard.drain(..=at);
            Some(())
        });
    }

    /// Whether nothing is told for `span`, after what was already on its way.
    pub fn silent_for(&mut self, span: Duration) -> bool {
        self.drain();
        self.heard.clear();
        crate::wait::holds_for(span, || {
            self.drain();
            self.heard.is_empty()
        })
    }

    /// Hears what comes within a tenth of a second.
    fn drain(&mut self) {
        let mut buffer = [0; 4096];
        while let Ok(n) = self.socket.recv(&mut buffer) {
            self.heard.extend(String::from_utf8_lossy(&buffer[..n]).lines().map(str::to_owned));
        }
    }
}
