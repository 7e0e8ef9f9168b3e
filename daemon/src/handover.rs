//! Sockets that a service manager opened before us and keeps when we end.
//!
//! Owner: `boot`, once. Promise: the two sockets are told apart by their names, whatever their order;
//! what is handed over is used whole or refused, so that no socket is left that nobody answers. Their files
//! are the manager's: nothing here or later removes them. May not touch: the file system.

use hermes_proto::endpoint::{self, CONTROL_SOCKET, Endpoint, EndpointError, MCP_SOCKET};
use listenfd::ListenFd;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Why what a service manager handed over cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// One of the two is not there.
    #[error("the service manager handed over no {missing}, only {given}; its socket unit must list both")]
    Incomplete {
        /// File name of the socket that is missing.
        missing: &'static str,
        /// Paths of all that were given.
        given: String,
    },
    /// Clients look for both in one folder, under fixed names.
    #[error("the service manager made {found} where clients look for {wanted}")]
    Misplaced {
        /// Where it is.
        found: PathBuf,
        /// Where it must be.
        wanted: PathBuf,
    },
    /// Others may enter the folder.
    #[error(transparent)]
    Folder(#[from] EndpointError),
    /// A descriptor is no listening Unix socket.
    #[error("descriptor {number} of the service manager is no Unix socket: {source}")]
    NotASocket {
        /// The descriptor.
        number: usize,
        /// What the system said.
        source: io::Error,
    },
}

/// Both sockets as they were given.
#[derive(Debug)]
pub struct Given {
    /// The folder of both.
    pub endpoint: Endpoint,
    /// gRPC.
    pub control: UnixListener,
    /// Shims.
    pub mcp: UnixListener,
}

/// What a socket is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Control,
    Mcp,
}

impl Role {
    fn file_name(self) -> &'static str {
        match self {
            Self::Control => CONTROL_SOCKET,
            Self::Mcp => MCP_SOCKET,
        }
    }
}

/// Takes what `LISTEN_FDS` counts; `None` when nothing was handed over.
///
/// # Errors
/// [`HandoverError`]; the daemon must not run then, because the manager holds sockets that it
/// would not answer.
pub fn take(var: &dyn Fn(&str) -> Option<String>) -> Result<Option<Given>, HandoverError> {
    // Before listenfd takes the variables away.
    let names = var("LISTEN_FDNAMES").unwrap_or_default();
    let mut given = ListenFd::from_env();
    let (mut control, mut mcp, mut paths) = (None, None, Vec::new());
    for index in 0..given.len() {
        let not_a_socket = |source| HandoverError::NotASocket { number: index + 3, source };
        let Some(listener) = given.take_unix_listener(index).map_err(not_a_socket)? else { continue };
        listener.set_nonblocking(true).map_err(not_a_socket)?;
        let address = listener.local_addr().map_err(not_a_socket)?;
        let path = address.as_pathname().unwrap_or(Path::new("(no path)")).to_owned();
        match role(names.split(':').nth(index).unwrap_or_default(), &path) {
            Some(Role::Control) => control = Some((listener, path.clone())),
            Some(Role::Mcp) => mcp = Some((listener, path.clone())),
            None => tracing::warn!(path = %path.display(), "a socket from the service manager is not ours"),
        }
        paths.push(path.display().to_string());
    }
    if paths.is_empty() {
        return Ok(None);
    }
    let missing =
        |role: Role| HandoverError::Incomplete { missing: role.file_name(), given: paths.join(", ") };
    let (control, control_path) = control.ok_or_else(|| missing(Role::Control))?;
    let (mcp, mcp_path) = mcp.ok_or_else(|| missing(Role::Mcp))?;
    let endpoint = placed(&control_path, &mcp_path)?;
    endpoint::private(&endpoint.dir)?;
    Ok(Some(Given { endpoint, control, mcp }))
}

/// What the socket at `path` is for, by `FileDescriptorName=`; a unit that lists both sockets gives
/// both the same name, then the file's name decides.
fn role(name: &str, path: &Path) -> Option<Role> {
    let is = |role: Role| name == role.file_name() || format!("{name}.sock") == role.file_name();
    let by_name = [Role::Control, Role::Mcp].into_iter().find(|role| is(*role));
    let file = path.file_name().and_then(|name| name.to_str());
    by_name.or_else(|| [Role::Control, Role::Mcp].into_iter().find(|role| file == Some(role.file_name())))
}

/// The folder of both sockets, if clients find them there.
fn placed(control: &Path, mcp: &Path) -> Result<Endpoint, HandoverError> {
    let endpoint = Endpoint { dir: control.parent().map(Path::to_owned).unwrap_or_default() };
    for (found, wanted) in [(control, endpoint.control_socket()), (mcp, endpoint.mcp_socket())] {
        if found != wanted {
            return Err(HandoverError::Misplaced { found: found.to_owned(), wanted });
        }
    }
    Ok(endpoint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_told_apart_by_their_name_and_else_by_their_file() {
        let path = Path::new;
        assert_eq!(role("hermesd.socket", path("/r/control.sock")), Some(Role::Control));
        assert_eq!(role("hermesd.socket", path("/r/mcp.sock")), Some(Role::Mcp));
        assert_eq!(role("", path("/r/mcp.sock")), Some(Role::Mcp));
        assert_eq!(role("control", path("/r/x.sock")), Some(Role::Control));
        assert_eq!(role("mcp.sock", path("/r/control.sock")), Some(Role::Mcp), "the name wins");
        assert_eq!(role("unknown", path("/r/other.sock")), None);
    }

    #[test]
    fn sockets_that_no_client_would_find_are_refused() {
        let placed = |control: &str, mcp: &str| placed(Path::new(control), Path::new(mcp));
        assert_eq!(placed("/r/control.sock", "/r/mcp.sock").unwrap().dir, Path::new("/r"));
        for (control, mcp) in [("/r/control.sock", "/s/mcp.sock"), ("/r/c.sock", "/r/mcp.sock")] {
            assert!(matches!(placed(control, mcp), Err(HandoverError::Misplaced { .. })), "{control} {mcp}");
        }
    }
}
