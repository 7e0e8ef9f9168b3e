//! The places of the sockets: private, with sockets in them, and somebody who listens.

use super::{Daemon, Lookup, at, finding};
use hermes_proto::control as pb;
use hermes_proto::endpoint::{self, EndpointFile, Home};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Looks at every place where a client would look.
pub(super) fn look(home: &Home, daemon: &Daemon, env: Lookup<'_>) -> Vec<pb::Finding> {
    let candidates = match endpoint::candidates(home, env) {
        Ok(candidates) => candidates,
        Err(error) => {
            let hint = "set HERMESD_RUNTIME_DIR to a short folder of yours with mode 0700".to_owned();
            return vec![finding("socket-place", pb::Severity::Error, error.to_string(), hint)];
        }
    };
    let mut found = Vec::new();
    let held = endpoint::is_locked(home);
    for place in &candidates {
        if let Err(error @ endpoint::EndpointError::NotPrivate { .. }) = endpoint::private(&place.dir) {
            let hint = format!("chmod 700 {}", place.dir.display());
            found.push(finding("runtime-folder", pb::Severity::Error, error.to_string(), hint));
        }
        for socket in [place.control_socket(), place.mcp_socket()] {
            found.extend(trouble(&socket, held));
        }
    }
    if held && *daemon == Daemon::Gone {
        let pid = EndpointFile::read(home).map_or("PID".to_owned(), |file| file.pid.to_string());
        let text = format!("a daemon (pid {pid}) holds the lock of this home, but not its socket");
        let hint =
            format!("it starts, ends, or its socket was removed: wait, else `kill {pid}` and start it again");
        found.push(finding("socket-gone", pb::Severity::Error, text, hint));
    }
    found
}

/// What is wrong with one path; nothing where a daemon or a service manager listens, or nothing is.
fn trouble(socket: &Path, held: bool) -> Option<pb::Finding> {
    let meta = fs::symlink_metadata(socket).ok()?;
    if !meta.file_type().is_socket() {
        let text = "is no socket, and no daemon can listen there".to_owned();
        let hint = format!("move it away: mv {0} {0}.old", socket.display());
        return Some(at(socket, finding("no-socket", pb::Severity::Error, text, hint)));
    }
    match UnixStream::connect(socket) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused && !held => {
            let text = "is left over: nobody listens there".to_owned();
            let hint = "start the daemon, which replaces it: hermesctl daemon start".to_owned();
            Some(at(socket, finding("stale-socket", pb::Severity::Warning, text, hint)))
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let text = format!("cannot be opened: {error}");
            Some(at(
                socket,
                finding(
                    "socket-closed",
                    pb::Severity::Error,
                    text,
                    format!("chmod 600 {}", socket.display()),
                ),
            ))
        }
        Ok(_) | Err(_) => None,
    }
}
